//! What an applied statement leaves to be done: rows that are there already are waited for some seconds, and so are tablets
//! that are to drop an index or a view, or to come to know the columns that a view has got; what follows for covering
//! indexes is proposed.
//!
//! Always true: what is left undone here is done by the nodes later, but for dropping what has failed: that is the
//! statement's. Left out: comparing rows (the nodes).

use super::covering::{ASKED_AT_A_TIME, Known, Looked, finish, local_warning, stored};
use crate::budget::Budget;
use crate::error::invalid;
use crate::index::Specification;
use crate::kv::{Kv, KvError};
use diorite_base::{TableId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, CoveringOutcome};
use diorite_cql::language::ast::{Drop, DroppedObject, QualifiedName, Statement};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{CoveringState, Table, TableEntry, ViewOf};
use futures::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a statement waits at most, and how often it looks meanwhile.
const WAIT_NS: u64 = 5_000_000_000;
const LOOK_NS: u64 = 50_000_000;

/// What a statement has made of rows that are there already.
struct Awaited {
    table: Arc<Table>,
    made: Made,
    id: u64,
    name: String,
}

/// How long a statement waits for others once it has taken effect, all in all. Its time may be over before: that is no
/// error.
#[derive(Clone, Copy)]
struct Wait<'b> {
    budget: &'b Budget,
    until_ns: u64,
    /// When it is to be answered.
    answer_by_ns: Option<u64>,
}

impl<'b> Wait<'b> {
    fn from_now(kv: &impl Kv, (budget, answer_by_ns): (&'b Budget, Option<u64>)) -> Self {
        let until_ns = kv.monotonic_ns().saturating_add(WAIT_NS);
        Self { budget, until_ns: answer_by_ns.map_or(until_ns, |by_ns| until_ns.min(by_ns)), answer_by_ns }
    }

    fn goes_on(self, kv: &impl Kv) -> bool {
        kv.monotonic_ns() < self.until_ns && self.budget.check().is_ok()
    }
}

/// The end of a statement.
pub(super) enum Ended {
    /// All is done, or will be: warnings.
    Well(Vec<String>),
    /// What it has made is to be dropped, and the error is the answer.
    Failed(Box<Drop>, CqlError),
}

/// Waits for what a statement has made or removed, and finishes it; `before`: the catalog that it was planned with. The
/// statement is to be answered at `answer_by_ns`, if that is given.
///
/// # Errors
/// If what it has made was dropped meanwhile, or if the request has ended while rows are compared.
pub(super) async fn ended<K: Kv>(
    kv: &K,
    before: &Catalog,
    (statement, command): (&Statement, &Command),
    (budget, answer_by_ns): (&Budget, Option<u64>),
) -> Result<Ended, CqlError> {
    let wait = Wait::from_now(kv, (budget, answer_by_ns));
    if let (Statement::Drop(Drop { object: DroppedObject::Index(index), .. }), Command::AlterTable { table }) =
        (statement, command)
    {
        await_removal(kv, table.id, &index.name, wait).await;
    }
    let gone = lost(before, &kv.catalog(), command);
    if let Some((table, gone)) = gone.filter(|(_, gone)| !gone.is_empty()) {
        await_tablets(kv, table, &Meant::Forgotten(gone), wait).await;
    }
    if let Some((table, extended)) = extended(before, &kv.catalog(), command) {
        await_tablets(kv, table, &Meant::Extended(extended), wait).await;
    }
    let mut warnings = Vec::new();
    for Awaited { table, made, id, name } in awaited(kv, statement, command) {
        match (made, compared(kv, &table, (made, id, &name), wait).await?) {
            (Made::Covering, Built::Whole) => propose(kv, &table, id, CoveringOutcome::Ready, wait).await,
            (Made::Covering, Built::Failed(why)) => {
                warnings.push(local_warning(&name, &why));
                propose(kv, &table, id, CoveringOutcome::Failed(why), wait).await;
                await_tablets(kv, table.id, &Meant::Forgotten(vec![id]), wait).await;
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

/// What is made of the rows that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// A unique index.
    Unique,
    /// A materialized view.
    View,
    /// The hidden view of a covering index.
    Covering,
}

impl Made {
    /// The error of a statement that has made it.
    fn failed(self, name: &str, why: &str) -> CqlError {
        invalid(match self {
            // The reason names two rows that are alike.
            Self::Unique if why.starts_with("the rows ") => {
                format!("Execution Error. Duplicate value disallowed by unique index {name}: {why}")
            }
            Self::Unique => format!("the unique index {name} cannot be made: {why}"),
            Self::View | Self::Covering => format!("the materialized view {name} cannot be made: {why}"),
        })
    }

    /// The error of a statement whose work another one has undone.
    fn dropped(self, name: &str) -> CqlError {
        let what = match self {
            Self::Unique => "unique index",
            Self::View => "materialized view",
            Self::Covering => "index",
        };
        invalid(format!("the {what} {name} was dropped meanwhile"))
    }

    /// Whether a table has what was made with this number.
    fn is_left(self, table: &Table, id: u64) -> bool {
        match self {
            Self::Unique => table.unique_indexes().any(|(index, _)| index.id == id),
            Self::View => table.views.iter().any(|view| view.id == id),
            Self::Covering => {
                table.indexes.iter().filter_map(|index| index.covering.as_ref()).any(|covering| covering.view == id)
            }
        }
    }

    /// What the catalog has of it. A node may record that a covering index is ready, or has failed, before the statement
    /// sees it; of one that has failed the tablets know nothing any more.
    fn recorded(self, table: &Table, id: u64) -> Option<Built> {
        if self != Self::Covering {
            return None;
        }
        let mut covering = table.indexes.iter().filter_map(|index| index.covering.as_ref());
        match &covering.find(|covering| covering.view == id)?.state {
            CoveringState::Building => None,
            CoveringState::Ready => Some(Built::Whole),
            CoveringState::Failed(why) => Some(Built::Failed(why.clone())),
        }
    }

    fn going(self, table: &Table, name: &str) -> String {
        let Table { keyspace, name: of, .. } = table;
        let what = match self {
            Self::Unique => format!("compared for the unique index {name}"),
            Self::View => format!("added to the materialized view {name}"),
            Self::Covering => format!("added to the covering index {name}"),
        };
        format!("the rows of table {keyspace}.{of} are still being {what}: see 'diorite admin indexes'")
    }
}

/// What has become of the rows that were there before a unique index or a view.
#[derive(Debug)]
enum Built {
    /// All were compared: no two have the same values, or the view has what follows from them.
    Whole,
    /// They are being compared: a warning.
    Going(String),
    /// Two have the same values, or something else is in the way.
    Failed(String),
}

/// Waits until the rows that were there before a unique index or a view of a table, with that number and name, have been
/// compared. What the catalog has of it counts even if the wait is over.
///
/// # Errors
/// If it was dropped meanwhile, or if the request has ended.
async fn compared<K: Kv>(
    kv: &K,
    table: &Table,
    (made, id, name): (Made, u64, &str),
    wait: Wait<'_>,
) -> Result<Built, CqlError> {
    let mut known = Known::default();
    loop {
        wait.budget.check()?;
        let catalog = kv.catalog();
        let Some(entry) = catalog.table_by_id(table.id).filter(|entry| made.is_left(&entry.table, id)) else {
            return Err(made.dropped(name));
        };
        if let Some(built) = made.recorded(&entry.table, id) {
            return Ok(built);
        }
        if kv.monotonic_ns() >= wait.until_ns {
            return Ok(Built::Going(made.going(table, name)));
        }
        match known.look(kv, (table.id, id), Some(wait.until_ns)).await {
            None => return Err(made.dropped(name)),
            Some(Looked::Whole) => return Ok(Built::Whole),
            Some(Looked::Failed(why)) => return Ok(Built::Failed(why)),
            Some(Looked::Going) => kv.pause(LOOK_NS).await,
        }
    }
}

/// Proposes what becomes of a hidden view. If that does not succeed, a node does it later.
async fn propose<K: Kv>(kv: &K, table: &Table, view: u64, outcome: CoveringOutcome, wait: Wait<'_>) {
    if let Err(error) = finish(kv, (table.id, view), outcome, wait.answer_by_ns).await {
        tracing::debug!(table = %table.name, error = %error.message, "a covering index is finished later");
    }
}

/// Waits until the hidden view of an index that a table does not have any more is removed, which the nodes do once none of
/// them uses it.
async fn await_removal<K: Kv>(kv: &K, table: TableId, index: &str, wait: Wait<'_>) {
    while wait.goes_on(kv) {
        let catalog = kv.catalog();
        let is_left = |entry: &Arc<TableEntry>| {
            entry.table.hidden_views().any(|(view, of)| of.is_none() && view.is_of_index(index))
        };
        if !catalog.table_by_id(table).is_some_and(is_left) {
            return;
        }
        kv.pause(LOOK_NS).await;
    }
}

/// The table that has lost unique indexes or views by a command, and their numbers.
fn lost(before: &Catalog, now: &Catalog, command: &Command) -> Option<(TableId, Vec<u64>)> {
    let table = match command {
        Command::AlterTable { table } => table.id,
        Command::DropView { keyspace, name, .. } => before.table(keyspace, name)?.table.view.as_ref()?.base,
        _ => return None,
    };
    let (had, has) = (&before.table_by_id(table)?.table, &now.table_by_id(table)?.table);
    let unique = had.unique_indexes().map(|(index, _)| index.id);
    let dependents = unique.chain(had.views.iter().map(|view| view.id));
    let is_lost = |id: &u64| has.maintained().all(|(known, _)| known != *id);
    Some((table, dependents.filter(is_lost).collect()))
}

/// The table of which views have got columns by a command: the numbers of the views, and since when they have them.
fn extended(before: &Catalog, now: &Catalog, command: &Command) -> Option<(TableId, Vec<(u64, u64)>)> {
    let Command::AlterTable { table } = command else { return None };
    let (had, has) = (&before.table_by_id(table.id)?.table, &now.table_by_id(table.id)?.table);
    let has_grown =
        |view: &ViewOf| had.views.iter().any(|of| of.id == view.id && of.columns_since < view.columns_since);
    let grown: Vec<(u64, u64)> =
        has.views.iter().filter(|view| has_grown(view)).map(|view| (view.id, view.columns_since)).collect();
    (!grown.is_empty()).then_some((table.id, grown))
}

/// What the tablets of a table are to come to.
enum Meant {
    /// They know nothing more of these unique indexes or views, which the table has lost: until then their leaders refuse
    /// writes that take no notice of these.
    Forgotten(Vec<u64>),
    /// They know these views with the columns of that version of the table: until then they refuse writes that maintain
    /// the views.
    Extended(Vec<(u64, u64)>),
}

impl Meant {
    /// Whether the table is still to come to that.
    fn is_of(&self, table: &Table) -> bool {
        match self {
            Self::Forgotten(ids) => table.maintained().all(|(id, _)| !ids.contains(&id)),
            Self::Extended(views) => {
                views.iter().all(|(id, since)| table.views.iter().any(|of| (of.id, of.columns_since) == (*id, *since)))
            }
        }
    }

    /// Whether a tablet has come to that.
    async fn is_reached<K: Kv>(&self, kv: &K, tablet: TabletId, until_ns: u64) -> Result<bool, KvError> {
        match self {
            Self::Forgotten(ids) => {
                for id in ids {
                    if stored(kv, tablet, *id, Some(until_ns)).await?.is_some() {
                        return Ok(false);
                    }
                }
            }
            Self::Extended(views) => {
                for (id, since) in views {
                    let known = stored(kv, tablet, *id, Some(until_ns)).await?;
                    let known = known.and_then(|bytes| Specification::decode(&bytes).ok());
                    if known.is_none_or(|known| known.columns_since() < *since) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Waits until all tablets of a table have come to what is meant. If a tablet does not answer, nothing is waited for.
async fn await_tablets<K: Kv>(kv: &K, table: TableId, meant: &Meant, wait: Wait<'_>) {
    let mut done: BTreeSet<TabletId> = BTreeSet::new();
    while wait.goes_on(kv) {
        let catalog = kv.catalog();
        let Some(entry) = catalog.table_by_id(table).filter(|entry| meant.is_of(&entry.table)) else { return };
        let tablets = entry.tablets.iter().map(|range| range.tablet);
        let left: Vec<TabletId> = tablets.filter(|tablet| !done.contains(tablet)).collect();
        for asked in left.chunks(ASKED_AT_A_TIME) {
            let reached = join_all(asked.iter().map(|tablet| meant.is_reached(kv, *tablet, wait.until_ns))).await;
            if reached.iter().any(Result::is_err) {
                return;
            }
            let new = asked.iter().zip(reached).filter(|(_, reached)| matches!(reached, Ok(true)));
            done.extend(new.map(|(tablet, _)| *tablet));
        }
        if entry.tablets.iter().all(|range| done.contains(&range.tablet)) {
            return;
        }
        kv.pause(LOOK_NS).await;
    }
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
