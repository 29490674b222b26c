//! What a trace says about statements, and the traces that a read of `system_traces` is about.
//!
//! Always true: nothing here is done for requests without a trace; a session that another node has coordinated is asked
//! for at that node, which its id names, and is missing where that node does not answer. Left out: keeping traces
//! ([`crate::trace`]), and their rows ([`crate::system`]).

use super::state::QueryEngine;
use crate::auth;
use crate::budget::Budget;
use crate::exec::explain::{covering_path, read_path, write_path};
use crate::kv::Kv;
use crate::plan::Plan;
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::select::SelectPlan;
use crate::plan::term::{Bound, Term};
use crate::plan::values::Values;
use crate::trace::{Trace, node_of};
use diorite_cql::protocol::CqlError;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// The most sessions of one read that other nodes are asked for.
const MAX_ASKED: usize = 16;

/// Notes what kind of plan is carried out. That of a `SELECT` is noted when it is known by which index it reads.
pub(super) fn note_plan(budget: &Budget, plan: &Plan) {
    let Some(trace) = budget.trace() else { return };
    let activity = match plan {
        Plan::Select(_) => return,
        Plan::Modify(modify) => write_path(modify),
        Plan::Batch(batch) => format!("Batch of {} statements", batch.statements.len()),
        Plan::Block(block) => format!("Transaction block of {} statements", block.statements.len()),
        Plan::Explain(_) => "Explain".to_owned(),
        Plan::Use(_) => "Use".to_owned(),
        Plan::Definition(statement) if auth::handles(statement) => "Statement about roles or permissions".to_owned(),
        Plan::Definition(_) => "Statement about the schema".to_owned(),
    };
    trace.note(activity);
}

/// Notes how a `SELECT` finds its rows: by the view of a covering index, or in its table.
pub(super) fn note_read(budget: &Budget, plan: &SelectPlan, is_covered: bool) {
    let Some(trace) = budget.trace() else { return };
    match plan.covering.as_ref().filter(|_| is_covered) {
        Some(covering) => trace.note(covering_path(&plan.table, &covering.index)),
        None => trace.note(read_path(&plan.restrictions, &plan.table)),
    }
}

/// The sessions that a read names; `None`: all.
fn session_ids(partition: &PartitionRestriction, bound: &Bound<'_>) -> Result<Option<BTreeSet<Uuid>>, CqlError> {
    let PartitionRestriction::Keys(keys) = partition else { return Ok(None) };
    let terms: &[Term] = match keys.first() {
        Some(Values::One(term)) => std::slice::from_ref(term),
        Some(Values::Many(terms)) => terms,
        Some(Values::List(_)) | None => return Ok(None),
    };
    let mut ids = BTreeSet::new();
    for term in terms {
        let id = term.evaluate(bound)?.bytes();
        ids.extend(id.and_then(|id| Uuid::from_slice(&id).ok()));
    }
    Ok(Some(ids))
}

/// The traces that a read may have to show: those that it names, wherever they are kept, or all that are kept here.
pub(super) async fn traces_of<K: Kv>(
    engine: &QueryEngine<K>,
    plan: &SelectPlan,
    bound: &Bound<'_>,
) -> Result<Vec<Arc<Trace>>, CqlError> {
    let Some(ids) = session_ids(&plan.restrictions.partition, bound)? else { return Ok(engine.traces.all()) };
    let (mut found, mut asked) = (Vec::new(), 0);
    for id in ids {
        if let Some(trace) = engine.traces.find(id) {
            found.push(trace);
            continue;
        }
        let Some(node) = node_of(id).filter(|node| *node != engine.node && asked < MAX_ASKED) else { continue };
        asked += 1;
        found.extend(engine.kv.trace(node, id).await.map(Arc::new));
    }
    Ok(found)
}
