//! The state of one connection: its current keyspace, the options of its client, and its role.
//!
//! Always true: requests of one connection run concurrently, so everything here may be read and set from any thread; what the role may do is remembered for
//! one version of the catalog. Left out: the protocol version (it comes with every request), logging in (the node's).

use arc_swap::ArcSwapOption;
use diorite_base::TableId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stands for every version of the catalog: the node has no authentication.
const ALWAYS: u64 = u64::MAX;

/// One connection's state.
#[derive(Debug)]
pub struct Session {
    keyspace: ArcSwapOption<String>,
    learns_tablets: AtomicBool,
    role: ArcSwapOption<String>,
    /// The version of the catalog by which the role may do everything.
    trusted_at: AtomicU64,
    approved: Mutex<Approved>,
}

/// The tables that a role may access by one version of the catalog, and whether for writes (or else reads).
#[derive(Debug, Default)]
struct Approved {
    version: u64,
    tables: Vec<(TableId, bool)>,
}

/// The most tables that are remembered.
const MAX_APPROVED: usize = 64;

impl Session {
    fn with_trust(trusted_at: u64) -> Arc<Session> {
        Arc::new(Session {
            keyspace: ArcSwapOption::empty(),
            learns_tablets: AtomicBool::new(false),
            role: ArcSwapOption::empty(),
            trusted_at: AtomicU64::new(trusted_at),
            approved: Mutex::default(),
        })
    }

    /// A new connection to a node without authentication: it may do everything.
    pub fn new() -> Arc<Session> {
        Session::with_trust(ALWAYS)
    }

    /// A new connection to a node with authentication: it may do nothing before [`log_in`](Self::log_in).
    pub fn guarded() -> Arc<Session> {
        // The catalog's first version is 1.
        Session::with_trust(0)
    }

    /// The client has logged in as `role`.
    pub fn log_in(&self, role: &str) {
        self.role.store(Some(Arc::new(role.to_owned())));
    }

    /// The role of the client.
    pub fn role(&self) -> Option<Arc<String>> {
        self.role.load_full()
    }

    /// Whether the node has no authentication.
    pub fn is_open(&self) -> bool {
        self.trusted_at.load(Ordering::Relaxed) == ALWAYS
    }

    /// Whether the session may do everything, as far as this version of the catalog says.
    #[inline]
    pub fn is_trusted(&self, version: u64) -> bool {
        let trusted_at = self.trusted_at.load(Ordering::Relaxed);
        trusted_at == ALWAYS || trusted_at == version
    }

    /// By this version of the catalog the role may do everything.
    pub fn trust(&self, version: u64) {
        if !self.is_open() {
            self.trusted_at.store(version, Ordering::Relaxed);
        }
    }

    /// By this version of the catalog the role may write (or else read) a table.
    pub fn approve(&self, version: u64, table: TableId, is_write: bool) {
        let mut approved = self.approved.lock();
        if approved.version != version {
            *approved = Approved { version, tables: Vec::new() };
        }
        if approved.tables.len() < MAX_APPROVED && !approved.tables.contains(&(table, is_write)) {
            approved.tables.push((table, is_write));
        }
    }

    /// Whether that was found before.
    pub fn is_approved(&self, version: u64, table: TableId, is_write: bool) -> bool {
        let approved = self.approved.lock();
        approved.version == version && approved.tables.contains(&(table, is_write))
    }

    /// The keyspace that unqualified names belong to.
    pub fn keyspace(&self) -> Option<Arc<String>> {
        self.keyspace.load_full()
    }

    /// Whether the client asked for the leaders of tablets, for requests that came to another node ([`crate::tablets`]).
    #[inline]
    pub fn learns_tablets(&self) -> bool {
        self.learns_tablets.load(Ordering::Relaxed)
    }

    /// The client asked for that at STARTUP.
    pub fn set_learns_tablets(&self) {
        self.learns_tablets.store(true, Ordering::Relaxed);
    }

    /// `USE keyspace`; the caller has checked that it exists.
    pub fn set_keyspace(&self, name: &str) {
        self.keyspace.store(Some(Arc::new(name.to_owned())));
    }
}
