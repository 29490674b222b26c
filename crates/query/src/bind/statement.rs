//! From a parsed statement to a plan.
//!
//! Always true: binding is a pure function of the statement and the catalog: it neither waits nor reads data, and its cost is bounded by a
//! [`Budget`]. Left out: statements that define the schema or roles, which are carried out as they were parsed.

use super::binder::Binder;
use super::covering::bind_read;
use super::explain::{bind_explain, result_columns};
use super::modify::{bind_delete, bind_insert, bind_update};
use super::receiver::Receiver;
use super::timeout::bind_timeout;
use crate::ddl::describe;
use crate::error::invalid;
use crate::plan::budget::Budget;
use crate::plan::modify::ModifyPlan;
use crate::plan::point::point_plan;
use crate::plan::restrictions::{PartitionRestriction, Restrictions};
use crate::plan::values::Values;
use crate::plan::{BatchPlan, BlockPlan, Plan, Planned, check_batch};
use diorite_base::level::Level;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{self, Modification, Parsed, Statement};
use diorite_cql::protocol::{CqlError, ResultMetadata};
use diorite_model::types::CqlType;
use std::sync::Arc;

/// Plans `parsed`; unqualified names belong to `keyspace`.
pub fn plan(catalog: &Catalog, keyspace: Option<&str>, parsed: &Parsed) -> Result<Planned, CqlError> {
    plan_within(catalog, keyspace, parsed, Budget::default())
}

/// Plans `parsed` within the given steps and memory.
pub fn plan_within(
    catalog: &Catalog,
    keyspace: Option<&str>,
    parsed: &Parsed,
    budget: Budget,
) -> Result<Planned, CqlError> {
    let mut binder = Binder::new(catalog, keyspace, &parsed.markers, budget);
    let mut result = None;
    let mut partition_key_indexes = Vec::new();
    let plan = match &parsed.statement {
        Statement::Select(select) => {
            let plan = bind_read(&mut binder, select)?;
            partition_key_indexes = key_markers(&plan.routed().restrictions);
            result = Some(Arc::clone(&plan.selection.metadata));
            Plan::Select(Box::new(plan))
        }
        Statement::Insert(insert) => Plan::Modify(Box::new(bind_insert(&mut binder, insert)?)),
        Statement::Update(update) => Plan::Modify(Box::new(bind_update(&mut binder, update)?)),
        Statement::Delete(delete) => Plan::Modify(Box::new(bind_delete(&mut binder, delete)?)),
        Statement::Batch(batch) => Plan::Batch(Box::new(bind_batch(&mut binder, batch)?)),
        Statement::Use(keyspace) => Plan::Use(keyspace.clone()),
        Statement::Transaction(transaction) => {
            let block = bind_block(&mut binder, transaction)?;
            partition_key_indexes = block_markers(&block);
            Plan::Block(Box::new(block))
        }
        Statement::Explain(inner) => {
            let explained = bind_explain(&mut binder, inner)?;
            partition_key_indexes = key_markers(explained.of.restrictions());
            result = Some(Arc::new(result_columns()));
            Plan::Explain(Box::new(explained))
        }
        other => {
            if let Statement::Describe(request) = other {
                result = Some(Arc::new(describe::result_columns(request)));
            }
            Plan::Definition(other.clone())
        }
    };
    if let Plan::Modify(modify) = &plan {
        partition_key_indexes = key_markers(&modify.restrictions);
    }
    if let Plan::Definition(_) | Plan::Use(_) = plan
        && !parsed.markers.is_empty()
    {
        return Err(invalid(
            "Bind variables are only supported in SELECT, INSERT, UPDATE, DELETE and BATCH statements",
        ));
    }
    let timeout = bind_timeout(&mut binder, &parsed.statement)?;
    if let Plan::Select(select) = &plan
        && let Some(covering) = select.ready_covering().filter(|_| !partition_key_indexes.is_empty())
    {
        binder.name_markers_after(covering.plan.table.table())?;
    }
    let markers = binder.bind_markers(partition_key_indexes)?;
    let result = result.unwrap_or_else(|| Arc::new(ResultMetadata::empty()));
    let marker_count = parsed.markers.len();
    // A statement with a time limit of its own takes the general path, which enforces limits.
    let point = point_plan(&plan, marker_count).filter(|_| timeout.is_none());
    Ok(Planned { plan, marker_count, markers, result, tables: binder.tables, point, timeout, cost: binder.budget })
}

/// For each partition key column the marker bound to it, if all are bound to one each.
fn key_markers(restrictions: &Restrictions) -> Vec<u16> {
    let PartitionRestriction::Keys(keys) = &restrictions.partition else { return Vec::new() };
    let marker = |values: &Values| match values {
        Values::One(term) => term.as_marker(),
        _ => None,
    };
    keys.iter().map(marker).collect::<Option<Vec<u16>>>().unwrap_or_default()
}

/// Of the first statement whose whole partition key is bound by markers: drivers send the block where its rows are.
fn block_markers(block: &BlockPlan) -> Vec<u16> {
    let mut markers = block.statements.iter().map(|statement| key_markers(&statement.restrictions));
    markers.find(|markers| !markers.is_empty()).unwrap_or_default()
}

fn bind_modification(binder: &mut Binder<'_>, statement: &Modification) -> Result<ModifyPlan, CqlError> {
    binder.budget.step()?;
    binder.budget.charge(size_of::<ModifyPlan>())?;
    match statement {
        Modification::Insert(insert) => bind_insert(binder, insert),
        Modification::Update(update) => bind_update(binder, update),
        Modification::Delete(delete) => bind_delete(binder, delete),
    }
}

/// The messages are YCQL's, where it has them.
fn bind_block(binder: &mut Binder<'_>, block: &ast::Transaction) -> Result<BlockPlan, CqlError> {
    binder.require_level(Level::RECORDED)?;
    let mut statements = Vec::with_capacity(block.statements.len());
    for statement in &block.statements {
        let plan = bind_modification(binder, statement)?;
        let table = plan.table.table();
        if !plan.table.has_transactions() {
            return Err(invalid(format!(
                "Transactions are not enabled in the table {}.{}",
                table.keyspace, table.name
            )));
        }
        if table.is_counter() {
            return Err(invalid("Counters cannot be updated in a transaction block"));
        }
        if plan.condition.is_some() && !plan.answer.error {
            return Err(invalid(
                "Execution of conditional DML statement in transaction block without ELSE ERROR is not supported yet",
            ));
        }
        if plan.answer.status_row {
            return Err(invalid(
                "Execution of statement in transaction block with RETURNS STATUS AS ROW is not supported yet",
            ));
        }
        if plan.timestamp.is_some() {
            return Err(invalid("Cannot provide custom timestamp for a statement of a transaction block"));
        }
        statements.push(plan);
    }
    Ok(BlockPlan { statements })
}

fn bind_batch(binder: &mut Binder<'_>, batch: &ast::Batch) -> Result<BatchPlan, CqlError> {
    if batch.using.ttl.is_some() {
        return Err(invalid("Global TTL on the BATCH statement is not supported."));
    }
    let timestamp = match &batch.using.timestamp {
        Some(timestamp) => Some(binder.term(timestamp, &Receiver::new("[timestamp]", &CqlType::Bigint))?),
        None => None,
    };
    let mut statements = Vec::with_capacity(batch.statements.len());
    for statement in &batch.statements {
        statements.push(bind_modification(binder, statement)?);
    }
    if timestamp.is_some() && statements.iter().any(|statement| statement.timestamp.is_some()) {
        return Err(invalid("Timestamp must be set either on BATCH or individual statements"));
    }
    let plan = BatchPlan { kind: batch.kind, timestamp, statements };
    check_batch(plan.kind, plan.timestamp.is_some(), &plan.statements.iter().collect::<Vec<_>>())?;
    Ok(plan)
}
