//! Prepared statements, which EXECUTE names by their ids.
//!
//! Always true: the id is the MD5 of keyspace and text, so every node gives a statement the same one; looking one up takes no lock; the cache
//! is bounded in bytes and drops the statements that were used longest ago; clients learn that from the error `Unprepared`. A statement is planned again when
//! its table has changed, and is dropped if its bind markers then differ.
//! Left out: surviving a restart (drivers prepare again).

use crate::activity::StatementActivity;
use crate::plan::{Plan, Planned};
use crate::statement_id::StatementId;
use arc_swap::ArcSwap;
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::{Prepared as PreparedReply, Version};
use diorite_model::schema::TableEntry;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The table of a statement as one version of the catalog has it.
#[derive(Debug)]
pub struct Resolved {
    /// The catalog's version.
    pub catalog_version: u64,
    /// The table with its tablets.
    pub entry: Arc<TableEntry>,
    /// The hidden view from which a read is answered, with its tablets.
    pub view: Option<Arc<TableEntry>>,
}

impl Resolved {
    /// The table of a point statement as the catalog has it; `None` if the plan is for another version of it.
    pub fn of(planned: &Planned, catalog: &Catalog) -> Option<Self> {
        planned.point.as_ref()?;
        let [table] = planned.tables.as_slice() else { return None };
        let entry = catalog.table_by_id(table.table().id)?;
        let covering = if let Plan::Select(select) = &planned.plan { select.covering.as_deref() } else { None };
        let view = covering.and_then(|covering| catalog.table_by_id(covering.plan.table.table().id)).cloned();
        (entry.table.version == table.table().version).then(|| Self {
            catalog_version: catalog.version(),
            entry: Arc::clone(entry),
            view,
        })
    }
}

/// The current plan of a prepared statement.
#[derive(Debug)]
pub struct CurrentPlan {
    /// The plan.
    pub planned: Arc<Planned>,
    /// The answer to PREPARE.
    pub reply: Arc<PreparedReply>,
    /// Set while the plan is known to be good for the catalog it names.
    pub resolved: Option<Resolved>,
}

impl CurrentPlan {
    /// A plan with the answer to PREPARE. `may_be_short`: requests may go the short path.
    pub fn new(id: StatementId, planned: Planned, catalog: &Catalog, may_be_short: bool) -> Self {
        let reply =
            PreparedReply { id: id.to_vec(), markers: planned.markers.clone(), result: Arc::clone(&planned.result) };
        let resolved = may_be_short.then(|| Resolved::of(&planned, catalog)).flatten();
        Self { planned: Arc::new(planned), reply: Arc::new(reply), resolved }
    }
}

/// A prepared statement.
#[derive(Debug)]
pub struct PreparedStatement {
    /// Its id.
    pub id: StatementId,
    /// The keyspace unqualified names belong to.
    pub keyspace: Option<String>,
    /// The text.
    pub text: String,
    /// Where its requests are counted.
    pub activity: Arc<StatementActivity>,
    /// The plan.
    pub current: ArcSwap<CurrentPlan>,
    /// The result's columns are no longer those the statement was first prepared with. Clients of protocols before v5 cannot be told of it
    /// otherwise, so they are sent the columns with every result from then on.
    pub result_changed: AtomicBool,
    /// Nobody has prepared the statement again since they changed. Some of those clients (gocql) use the columns
    /// received at PREPARE whatever comes with the result, so the first of them that asks to leave the columns out has
    /// to prepare again, as with Cassandra.
    pub must_prepare_again: AtomicBool,
    /// Held while the plan is replaced, so that of several requests that have planned it one says what has changed.
    replacing: Mutex<()>,
    last_used: AtomicU64,
    /// Memory that it takes, about.
    size_bytes: usize,
}

impl PreparedStatement {
    /// A statement that was just planned.
    pub fn new(
        id: StatementId,
        keyspace: Option<String>,
        text: String,
        activity: Arc<StatementActivity>,
        current: CurrentPlan,
    ) -> Self {
        Self {
            // The text here and in the statistics, and the memory that planning has counted.
            size_bytes: 1_024 + 2 * text.len() + usize::try_from(current.planned.cost.bytes()).unwrap_or(usize::MAX),
            id,
            keyspace,
            text,
            activity,
            current: ArcSwap::from_pointee(current),
            result_changed: AtomicBool::new(false),
            must_prepare_again: AtomicBool::new(false),
            replacing: Mutex::new(()),
            last_used: AtomicU64::new(0),
        }
    }

    /// Replaces `current`, the plan that a request has found outdated, by the plan that it has made for this catalog; returns the
    /// plan for the request. `None`: the markers are others, for which the client has not encoded its values.
    ///
    /// Another request may have replaced the plan meanwhile, and clients may have prepared the statement since: they need not
    /// prepare it again.
    pub fn replaced(&self, current: &CurrentPlan, fresh: CurrentPlan, catalog: &Catalog) -> Option<Arc<CurrentPlan>> {
        if fresh.reply.markers != current.reply.markers {
            return None;
        }
        let _replacing = self.replacing.lock();
        let known = self.current.load_full();
        if known.planned.is_current(catalog) && known.reply.markers == fresh.reply.markers {
            return Some(known);
        }
        if fresh.reply.result.id() != known.reply.result.id() {
            self.result_changed.store(true, Ordering::Relaxed);
            self.must_prepare_again.store(true, Ordering::Relaxed);
        }
        let fresh = Arc::new(fresh);
        self.current.store(Arc::clone(&fresh));
        Some(fresh)
    }

    /// Whether the client's wish to be spared the result's columns may be granted.
    pub fn may_skip_metadata(&self, version: Version) -> bool {
        version >= Version::V5 || !self.result_changed.load(Ordering::Relaxed)
    }

    /// Whether a client that asks for this would read the result by columns it no longer has.
    pub fn would_mislead(&self, version: Version, skip_metadata: bool) -> bool {
        version < Version::V5 && skip_metadata && self.must_prepare_again.load(Ordering::Relaxed)
    }

    fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

type Statements = HashMap<StatementId, Arc<PreparedStatement>, ahash::RandomState>;

/// All prepared statements of a node.
#[derive(Debug)]
pub struct PreparedCache {
    statements: ArcSwap<Statements>,
    /// Grows with every insertion; statements record their last use by it.
    epoch: AtomicU64,
    writers: Mutex<usize>,
    max_bytes: usize,
}

impl PreparedCache {
    /// An empty cache.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            statements: ArcSwap::from_pointee(Statements::default()),
            epoch: AtomicU64::new(1),
            writers: Mutex::new(0),
            max_bytes,
        }
    }

    /// Calls `use_it` with the statement, without counting references.
    #[inline]
    pub fn with<T>(&self, id: &[u8], use_it: impl FnOnce(&Arc<PreparedStatement>) -> T) -> Option<T> {
        let id: &StatementId = id.try_into().ok()?;
        let statements = self.statements.load();
        let statement = statements.get(id)?;
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Written only when it changes, so that the line stays shared between cores.
        if statement.last_used.load(Ordering::Relaxed) != epoch {
            statement.last_used.store(epoch, Ordering::Relaxed);
        }
        Some(use_it(statement))
    }

    /// The statement.
    pub fn get(&self, id: &[u8]) -> Option<Arc<PreparedStatement>> {
        self.with(id, Arc::clone)
    }

    /// Adds a statement; others may have to go.
    pub fn insert(&self, statement: Arc<PreparedStatement>) {
        let mut used_bytes = self.writers.lock();
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        statement.last_used.store(epoch, Ordering::Relaxed);
        let mut statements = Statements::clone(&self.statements.load());
        *used_bytes += statement.size_bytes();
        if let Some(replaced) = statements.insert(statement.id, statement) {
            *used_bytes -= replaced.size_bytes();
        }
        if *used_bytes > self.max_bytes {
            let mut by_age: Vec<(u64, StatementId)> =
                statements.values().map(|known| (known.last_used.load(Ordering::Relaxed), known.id)).collect();
            by_age.sort_unstable();
            // An eighth at a time, so that the next insertion is cheap; never the newest.
            let goal = self.max_bytes - self.max_bytes / 8;
            for (_, id) in by_age.iter().take(by_age.len() - 1) {
                if *used_bytes <= goal {
                    break;
                }
                if let Some(dropped) = statements.remove(id) {
                    *used_bytes -= dropped.size_bytes();
                }
            }
        }
        self.statements.store(Arc::new(statements));
    }

    /// Drops a statement, unless a client has prepared it again meanwhile.
    pub fn remove(&self, statement: &Arc<PreparedStatement>) {
        let mut used_bytes = self.writers.lock();
        let mut statements = Statements::clone(&self.statements.load());
        if statements.get(&statement.id).is_some_and(|known| Arc::ptr_eq(known, statement)) {
            statements.remove(&statement.id);
            *used_bytes -= statement.size_bytes();
            self.statements.store(Arc::new(statements));
        }
    }

    /// Bytes that they take, about.
    pub fn bytes(&self) -> usize {
        *self.writers.lock()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.statements.load().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
