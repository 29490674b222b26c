//! What a trace says about statements, and the traces that a read of `system_traces` is about.
//!
//! Always true: nothing here is done for requests without a trace; a session that another node has coordinated is asked
//! for at that node, which its id names, and is missing where that node does not answer. Left out: keeping traces
//! ([`crate::trace`]), and their rows ([`crate::system`]).

use super::state::QueryEngine;
use crate::auth;
use crate::budget::Budget;
use crate::exec::explain::{covering_path, read_path, write_path};
use crate::exec::keys::values_of;
use crate::kv::Kv;
use crate::plan::Plan;
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use crate::trace::{Trace, node_of};
use diorite_cql::protocol::CqlError;
use futures::future::join_all;
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
fn session_ids(plan: &SelectPlan, bound: &Bound<'_>) -> Result<Option<BTreeSet<Uuid>>, CqlError> {
    let PartitionRestriction::Keys(keys) = &plan.restrictions.partition else { return Ok(None) };
    let Some(named) = keys.first() else { return Ok(None) };
    let ids = values_of(named, bound, &plan.table.column(0).name)?;
    Ok(Some(ids.iter().filter_map(|id| Uuid::from_slice(id).ok()).collect()))
}

/// The traces that a read may have to show: those that it names, wherever they are kept, or all that are kept here.
pub(super) async fn traces_of<K: Kv>(
    engine: &QueryEngine<K>,
    plan: &SelectPlan,
    bound: &Bound<'_>,
) -> Result<Vec<Arc<Trace>>, CqlError> {
    let mut found = engine.traces.all();
    let Some(mut missing) = session_ids(plan, bound)? else { return Ok(found) };
    found.retain(|trace| missing.remove(&trace.id));
    let elsewhere = |id: Uuid| Some((node_of(id).filter(|node| *node != engine.node)?, id));
    // All at once: nodes that do not answer are waited for, and waited for once.
    let mut asked = Vec::new();
    for (node, id) in missing.into_iter().filter_map(elsewhere).take(MAX_ASKED) {
        asked.push(engine.kv.trace(node, id));
    }
    for trace in join_all(asked).await.into_iter().flatten() {
        bound.environment.budget.take(trace.size_bytes())?;
        found.push(Arc::new(trace));
    }
    Ok(found)
}
