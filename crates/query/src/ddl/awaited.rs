//! What an applied statement leaves to be done: rows that are there already are waited for some seconds, and what follows
//! for covering indexes is proposed.
//!
//! Always true: what is left undone here is done by the nodes later, but for dropping what has failed: that is the
//! statement's. Left out: comparing rows (the nodes).

use super::covering::{finish, local_warning};
use super::unique::{Built, LOOK_NS, LOOKS, Made, compared};
use crate::budget::Budget;
use crate::kv::Kv;
use diorite_base::TableId;
use diorite_cluster::catalog::{Command, CoveringOutcome};
use diorite_cql::language::ast::{Drop, DroppedObject, QualifiedName, Statement};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Table, TableEntry};
use std::sync::Arc;

/// What a statement has made of rows that are there already.
struct Awaited {
    table: Arc<Table>,
    made: Made,
    id: u64,
    name: String,
}

/// The end of a statement.
pub(super) enum Ended {
    /// All is done, or will be: warnings.
    Well(Vec<String>),
    /// What it has made is to be dropped, and the error is the answer.
    Failed(Box<Drop>, CqlError),
}

/// Waits for what a statement has made, and finishes it.
///
/// # Errors
/// If what it has made was dropped meanwhile, or if the time of the statement is over.
pub(super) async fn ended<K: Kv>(
    kv: &K,
    statement: &Statement,
    command: &Command,
    budget: &Budget,
) -> Result<Ended, CqlError> {
    if let (Statement::Drop(Drop { object: DroppedObject::Index(index), .. }), Command::AlterTable { table }) =
        (statement, command)
    {
        await_removal(kv, table.id, &index.name, budget).await?;
    }
    let mut warnings = Vec::new();
    for Awaited { table, made, id, name } in awaited(kv, statement, command) {
        match (made, compared(kv, &table, (made, id, &name), budget).await?) {
            (Made::Covering, Built::Whole) => propose(kv, &table, id, CoveringOutcome::Ready).await,
            (Made::Covering, Built::Failed(why)) => {
                warnings.push(local_warning(&name, &why));
                propose(kv, &table, id, CoveringOutcome::Failed(why)).await;
            }
            (_, Built::Whole) => {}
            (_, Built::Going(warning)) => warnings.push(warning),
            (_, Built::Failed(why)) => {
                let dropped = drop_of(&table.keyspace, &name, made);
                return Ok(Ended::Failed(Box::new(dropped), made.failed(&name, &why)));
            }
        }
    }
    Ok(Ended::Well(warnings))
}

/// Proposes what becomes of a hidden view. If that does not succeed, a node does it later.
async fn propose<K: Kv>(kv: &K, table: &Table, view: u64, outcome: CoveringOutcome) {
    if let Err(error) = finish(kv, (table.id, view), outcome).await {
        tracing::debug!(table = %table.name, error = %error.message, "a covering index is finished later");
    }
}

/// Waits until the hidden view of an index that a table does not have any more is removed, which the nodes do once none of
/// them uses it.
async fn await_removal<K: Kv>(kv: &K, table: TableId, index: &str, budget: &Budget) -> Result<(), CqlError> {
    for _ in 0..LOOKS {
        budget.check()?;
        let catalog = kv.catalog();
        let is_left = |entry: &Arc<TableEntry>| {
            entry.table.hidden_views().any(|(view, of)| of.is_none() && view.is_of_index(index))
        };
        if !catalog.table_by_id(table).is_some_and(is_left) {
            break;
        }
        kv.pause(LOOK_NS).await;
    }
    Ok(())
}

/// What an applied statement has made of rows that may be there already.
fn awaited<K: Kv>(kv: &K, statement: &Statement, command: &Command) -> Vec<Awaited> {
    let catalog = kv.catalog();
    match (statement, command) {
        (Statement::CreateIndex(create), Command::AlterTable { table }) if !create.deferred => {
            let Some(entry) = catalog.table_by_id(table.id) else { return Vec::new() };
            let made = table.indexes.last().and_then(|made| entry.table.indexes.iter().find(|of| of.id == made.id));
            let Some(index) = made else { return Vec::new() };
            let of = |made, id| Awaited { table: Arc::clone(&entry.table), made, id, name: index.name.clone() };
            let unique = index.unique.iter().map(|_| of(Made::Unique, index.id));
            unique.chain(index.covering.iter().map(|covering| of(Made::Covering, covering.view))).collect()
        }
        (Statement::CreateMaterializedView(_), Command::CreateView { view, .. }) => {
            let base = view.view.as_ref().and_then(|view| catalog.table_by_id(view.base));
            let Some(base) = base else { return Vec::new() };
            let of = base.table.views.iter().find(|of| of.name == view.name);
            let of = of.map(|of| (of.id, of.name.clone()));
            of.map(|(id, name)| Awaited { table: Arc::clone(&base.table), made: Made::View, id, name })
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

fn drop_of(keyspace: &str, name: &str, made: Made) -> Drop {
    let name = QualifiedName { keyspace: Some(keyspace.to_owned()), name: name.to_owned() };
    let object = match made {
        Made::Unique | Made::Covering => DroppedObject::Index(name),
        Made::View => DroppedObject::MaterializedView(name),
    };
    Drop { if_exists: true, object }
}
