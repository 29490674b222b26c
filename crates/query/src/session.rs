//! What the server remembers about one connection: its current keyspace and what its client asked for.
//!
//! Always true: requests of one connection run concurrently, so everything here may be read and set from any thread. Left out: the
//! protocol version (it comes with every request), authentication (the node's).

use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One connection's state.
#[derive(Debug, Default)]
pub struct Session {
    keyspace: ArcSwapOption<String>,
    learns_tablets: AtomicBool,
}

impl Session {
    /// A new connection: no keyspace chosen.
    pub fn new() -> Arc<Session> {
        Arc::new(Session::default())
    }

    /// The keyspace that unqualified names belong to.
    pub fn keyspace(&self) -> Option<Arc<String>> {
        self.keyspace.load_full()
    }

    /// Whether the client wants to be told who leads the tablets of requests that came to the wrong node ([`crate::tablets`]).
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
