//! `EXPLAIN`: the plan of a statement as rows of text.
//!
//! Always true: nothing is read or written, and no tablet is asked: the answer follows from the plan and the catalog.
//! Left out: the texts ([`crate::exec::explain`]).

use super::request::Reply;
use super::state::QueryEngine;
use super::write::check_write_consistency;
use crate::error::invalid;
use crate::exec::explain::{Around, check_write, rows};
use crate::kv::Kv;
use crate::plan::Planned;
use crate::plan::explain::{ExplainPlan, Explained};
use crate::plan::term::Bound;
use crate::table::Source;
use diorite_base::level::Level;
use diorite_cql::protocol::{Consistency, CqlError, Response};
use std::sync::Arc;

/// The answer to an `EXPLAIN`; errors are those of the statement.
pub(super) fn explain<K: Kv>(
    engine: &QueryEngine<K>,
    plan: &ExplainPlan,
    planned: &Planned,
    bound: &Bound<'_>,
    consistency: Consistency,
) -> Result<Reply, CqlError> {
    match &plan.of {
        Explained::Select(_) if consistency == Consistency::Any => {
            return Err(invalid("ANY ConsistencyLevel is only supported for writes"));
        }
        Explained::Select(_) => {}
        Explained::Modify(modify) => {
            check_write_consistency(consistency)?;
            check_write(modify, bound)?;
        }
    }
    // The table whose tablets are asked.
    let table = plan.of.covering().map_or(plan.of.table(), |covering| &covering.plan.table);
    let entry = match table.source() {
        Source::Virtual => None,
        Source::Tablets => Some(engine.entry(table)?),
    };
    let around = Around {
        tablets: entry.as_ref().map(|entry| entry.tablets.as_slice()),
        staleness_ms: table.staleness_ms(consistency),
        has_snapshots: table.has_transactions() && engine.kv.catalog().level() >= Level::RECORDED,
    };
    let rows = rows(plan, Arc::clone(&planned.result), around, bound)?;
    Ok(Reply::plain(Response::Rows(rows)))
}
