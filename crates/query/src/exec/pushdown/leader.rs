//! The side with the rows: carries out tasks.
//!
//! Always true: a task is carried out only if this node serves the version of the table that it was made for. The plans of the newest statements are
//! kept, so that a statement is planned once and not once per piece; how many is bounded. Left out: reading ([`crate::kv::Kv::fetch`] does it).

use super::advance::{Piece, go_on};
use super::task::{Reply, Task};
use crate::bind;
use crate::budget::Budget;
use crate::exec::evaluate::Scope;
use crate::exec::filter;
use crate::exec::partial::Partial;
use crate::functions::{Environment, UuidSource};
use crate::kv::Fetched;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use crate::plan::{Plan, Planned};
use diorite_base::Clock;
use diorite_base::account::{Account, Meter};
use diorite_base::bytes::Reader;
use diorite_base::limits::MAX_REQUEST_MEMORY_BYTES;
use diorite_base::random::SplitMix64;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::parse;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many plans are kept.
const MAX_PLANS: usize = 64;
/// Longer statements are planned each time.
const MAX_KEPT_TEXT_BYTES: usize = 16 << 10;

/// A plan that is kept.
#[derive(Debug)]
struct Kept {
    keyspace: String,
    statement: String,
    planned: Arc<Planned>,
}

/// See the top of this module.
pub struct PartialAggregator {
    /// The last used plans come first.
    plans: Mutex<VecDeque<Kept>>,
    uuids: UuidSource,
    /// The account for the memory of tasks, and the clock for their deadlines. Without it tasks are not limited.
    limits: Option<(Arc<Account>, Arc<dyn Clock>)>,
}

impl Default for PartialAggregator {
    fn default() -> Self {
        Self { plans: Mutex::default(), uuids: UuidSource::new(SplitMix64::from_entropy()), limits: None }
    }
}

impl PartialAggregator {
    /// One whose tasks are charged to an account, and end when the requests end that they are a part of.
    pub fn limited(account: Arc<Account>, clock: Arc<dyn Clock>) -> Self {
        Self { limits: Some((account, clock)), ..Self::default() }
    }

    /// The budget of a task with this much time left.
    fn budget(&self, left_ms: Option<u64>) -> Budget {
        let Some((account, clock)) = &self.limits else { return Budget::new(Meter::alone(usize::MAX), u64::MAX) };
        let left_ns = left_ms.unwrap_or(u64::MAX).saturating_mul(1_000_000);
        let meter = Meter::new(account, MAX_REQUEST_MEMORY_BYTES);
        Budget::watching(meter, clock.monotonic_ns().saturating_add(left_ns), Arc::clone(clock))
    }

    /// Aggregates the fetched entries according to the encoded `task`, at this node's catalog; returns an encoded
    /// [`Reply`].
    pub fn aggregate(&self, catalog: &Catalog, task: &[u8], read: &Fetched) -> Vec<u8> {
        self.carry_out(catalog, task, read).unwrap_or_else(|| Reply::Declined.encode(&[]))
    }

    fn carry_out(&self, catalog: &Catalog, task: &[u8], read: &Fetched) -> Option<Vec<u8>> {
        let task = Task::decode(task).ok()?;
        let budget = &self.budget(task.left_ms);
        let planned = self.plan(catalog, &task)?;
        let plan = select_of(&planned)?;
        let partial = Partial::decode(plan.selection.shows.len(), &mut Reader::new(task.partial)).ok()?;
        let environment = Environment { now_s: task.now_s, budget, ..Environment::new(task.now_us, &self.uuids) };
        let bound = Bound { values: &task.values, environment };
        let filters = filter::prepare(&plan.table, &plan.restrictions.filters, &bound).ok()?;
        let scope = Scope { table: &plan.table, bound: &bound, aggregates: &[] };
        let piece = Piece {
            header: read.header.as_deref(),
            static_row: read.static_row.as_deref(),
            chunk: &read.chunk,
            ends_partition: task.ends_partition,
        };
        let (partial, next) = go_on(partial, plan, scope, &filters, piece).ok()?;
        Some(Reply::Done(Box::new(partial), next).encode(&plan.selection.shows))
    }

    /// The plan of a task's statement, if it is for the table that this node serves.
    fn plan(&self, catalog: &Catalog, task: &Task<'_>) -> Option<Arc<Planned>> {
        let is_served = catalog.table_by_id(task.table).is_some_and(|entry| entry.table.version == task.version);
        if !is_served {
            return None;
        }
        let fits = |planned: &Planned| {
            let table = select_of(planned).map(|plan| plan.table.table());
            planned.marker_count == task.values.len()
                && table.is_some_and(|table| (table.id, table.version) == (task.table, task.version))
        };
        {
            let mut plans = self.plans.lock();
            let is_wanted =
                |kept: &Kept| kept.statement == task.statement && kept.keyspace == task.keyspace && fits(&kept.planned);
            if let Some(at) = plans.iter().position(is_wanted)
                && let Some(kept) = plans.remove(at)
            {
                let planned = Arc::clone(&kept.planned);
                plans.push_front(kept);
                return Some(planned);
            }
        }
        let keyspace = Some(task.keyspace).filter(|keyspace| !keyspace.is_empty());
        let parsed = parse(task.statement).ok()?;
        let planned = Arc::new(bind::plan(catalog, keyspace, &parsed).ok()?);
        if !fits(&planned) {
            return None;
        }
        if task.statement.len() <= MAX_KEPT_TEXT_BYTES {
            let (keyspace, statement) = (task.keyspace.to_owned(), task.statement.to_owned());
            let mut plans = self.plans.lock();
            plans.push_front(Kept { keyspace, statement, planned: Arc::clone(&planned) });
            plans.truncate(MAX_PLANS);
        }
        Some(planned)
    }
}

fn select_of(planned: &Planned) -> Option<&SelectPlan> {
    match &planned.plan {
        Plan::Select(plan) => Some(plan),
        _ => None,
    }
}
