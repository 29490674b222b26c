//! How far indexes are: each node says it for the tablets that it leads, and the node that leads the catalog gathers
//! the answers.
//!
//! Always true: a tablet is complete if its own specification says so; one for which no leader has answered is unknown.
//! A tablet that two nodes believe to lead is not counted above the number of all. Left out: dropped indexes, of which
//! tablets may still hold entries.

use super::place::Tokens;
use super::record::IndexRecord;
use crate::operate::sight::Sight;
use diorite_admin::api::{
    Failure, FailureKind, IndexDetail, IndexId, IndexList, IndexState, IndexStatus, IndexedTablet, MOST_INDEXED_TABLETS,
};
use diorite_base::mutation::EvaluationFailed;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_model::schema::{CoveringState, Index, Table, TableEntry};
use diorite_query::ddl::index::target;
use diorite_query::index::{Compared, INDEXED, Specification, specifications};
use diorite_replica::{Leadership, Store, TabletHandle};
use diorite_storage::DataView;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

/// How much of a complete tablet is indexed.
const WHOLE_PERMILLE: u16 = 1_000;

/// An index in the tablets that one node leads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::operate) struct Led {
    pub(in crate::operate) id: IndexId,
    /// The tablets.
    pub(in crate::operate) tablets: usize,
    /// Those that are complete.
    pub(in crate::operate) complete: usize,
    /// Those in which it has begun, complete ones included.
    pub(in crate::operate) begun: usize,
    /// What is done of all of them, in thousandths of tablets.
    pub(in crate::operate) done_permille: u64,
    pub(in crate::operate) rate_rows: u64,
    pub(in crate::operate) rate_bytes: u64,
    /// Until these tablets are complete; none: they are, or it is not known.
    pub(in crate::operate) eta_seconds: Option<u64>,
    /// Of a unique index or a view that has failed in one of them: why.
    #[serde(default)]
    pub(in crate::operate) failure: Option<String>,
    /// The tablets one by one, if they were asked for: what is done, nothing if it has not begun.
    #[serde(default)]
    pub(in crate::operate) listed: Vec<(TabletId, Option<u16>)>,
}

type Answers<E> = Vec<(NodeId, Result<Vec<Led>, E>)>;

/// How much of a tablet is indexed, and compared for a unique index or a view; `None`: it has not begun. Only a complete one
/// has all thousandths.
fn done_permille(specification: Option<&Specification>, tokens: Tokens) -> Option<u16> {
    let specification = specification?;
    let built = specification.progress.next().map_or(1.0, |next| tokens.share_before(next));
    let compared = specification.dependent.as_ref().map(|dependent| match &dependent.compared {
        Compared::Nothing | Compared::Failed(_) => 0.0,
        Compared::Before(next) => tokens.share_before(next),
        Compared::All => 1.0,
    });
    let done = compared.map_or(built, |compared| match specification.is_of_view() {
        true => compared,
        false => (built + compared) / 2.0,
    });
    let permille = (done * f64::from(WHOLE_PERMILLE)) as u16;
    Some(if specification.is_done() { WHOLE_PERMILLE } else { permille.min(WHOLE_PERMILLE - 1) })
}

fn stored(handle: &TabletHandle) -> Result<Vec<(u64, Specification)>, EvaluationFailed> {
    // A tablet that has had no index is not read.
    if handle.flags() & INDEXED == 0 { Ok(Vec::new()) } else { specifications(&DataView(handle.data())) }
}

/// How far the indexes of all tables are in the tablets that this node leads; those of one index are listed. Reads the
/// tablets.
pub(in crate::operate) fn led_here(
    store: &Store,
    catalog: &Catalog,
    record: &IndexRecord,
    now_ns: u64,
    of: Option<IndexId>,
) -> Vec<Led> {
    let handles = store.tablets();
    let wanted = |entry: &&std::sync::Arc<TableEntry>| {
        entry.table.is_maintaining() && of.is_none_or(|of| of.table == entry.table.id)
    };
    let mut found = Vec::new();
    for entry in catalog.tables().filter(wanted) {
        let mut tablets = Vec::new();
        for (tablet, tokens) in Tokens::of_all(entry) {
            let Some(handle) = handles.get(&tablet) else { continue };
            if handle.leadership() != Leadership::Here {
                continue;
            }
            match stored(handle) {
                Ok(specifications) => tablets.push((tablet, tokens, specifications)),
                Err(error) => tracing::debug!(%tablet, %error, "the indexes of a tablet cannot be read"),
            }
        }
        for (index, _) in entry.table.maintained().filter(|(index, _)| of.is_none_or(|of| of.index == *index)) {
            let id = IndexId { table: entry.table.id, index };
            let each = tablets.iter().map(|(tablet, tokens, stored)| {
                let specification = stored.iter().find(|(known, _)| *known == index).map(|(_, known)| known);
                (*tablet, done_permille(specification, *tokens))
            });
            let of_index = tablets.iter().flat_map(|(.., stored)| stored).filter(|(known, _)| *known == index);
            let failure = of_index.filter_map(|(_, of)| of.failure()).next().map(str::to_owned);
            found.push(Led { failure, ..led(id, each.collect(), of.is_some(), (record, now_ns)) });
        }
    }
    found
}

fn led(
    id: IndexId,
    tablets: Vec<(TabletId, Option<u16>)>,
    is_listed: bool,
    (record, now_ns): (&IndexRecord, u64),
) -> Led {
    let rate = record.rate(id, now_ns);
    let done_permille: u64 = tablets.iter().filter_map(|(_, done)| *done).map(u64::from).sum();
    let left = tablets.len() as f64 - done_permille as f64 / f64::from(WHOLE_PERMILLE);
    Led {
        id,
        tablets: tablets.len(),
        complete: tablets.iter().filter(|(_, done)| *done == Some(WHOLE_PERMILLE)).count(),
        begun: tablets.iter().filter(|(_, done)| done.is_some()).count(),
        done_permille,
        rate_rows: rate.rows,
        rate_bytes: rate.bytes,
        eta_seconds: (left > 0.0 && rate.share > 0.0).then(|| (left / rate.share).ceil() as u64),
        failure: None,
        listed: if is_listed { tablets } else { Vec::new() },
    }
}

/// What an index or a view is of.
fn target_of(table: &Table, id: u64) -> String {
    match table.defined_indexes().find(|index| index.id == id) {
        Some(index) if index.unique.is_some() => format!("unique {}", target(table, index)),
        Some(index) => target(table, index),
        None => match table.hidden_views().find(|(view, _)| view.id == id) {
            Some((_, Some((index, _)))) => format!("hidden view of {}", index.name),
            Some((_, None)) => "hidden view, retired".to_owned(),
            None => "materialized view".to_owned(),
        },
    }
}

/// Why an index that was to be covering is a local one.
fn uncovered(table: &Table, id: u64) -> Option<String> {
    let index = table.indexes.iter().find(|index| index.id == id)?;
    match &index.covering.as_ref()?.state {
        CoveringState::Failed(why) => Some(format!("it does not cover its columns: {why}")),
        CoveringState::Building | CoveringState::Ready => None,
    }
}

/// The sum of what the nodes say of one index.
fn status(entry: &TableEntry, (index, index_name): (u64, &str), all: &[&Led]) -> IndexStatus {
    let Table { keyspace, name, .. } = &*entry.table;
    let tablets = entry.tablets.len();
    let sum = |of: fn(&Led) -> usize| all.iter().map(|led| of(led)).sum::<usize>().min(tablets);
    let (known, complete, begun) = (sum(|led| led.tablets), sum(|led| led.complete), sum(|led| led.begun));
    let failure = all.iter().find_map(|led| led.failure.clone());
    let state = match (complete, begun) {
        _ if failure.is_some() => IndexState::Failed,
        (complete, _) if complete == tablets => IndexState::Ready,
        (complete, _) if complete == known => IndexState::Unknown,
        (_, 0) => IndexState::NotBegun,
        _ => IndexState::Building,
    };
    let done: u64 = all.iter().map(|led| led.done_permille).sum();
    let is_ready = state == IndexState::Ready;
    let most = if is_ready { WHOLE_PERMILLE } else { WHOLE_PERMILLE - 1 };
    // The slowest node decides; of a node that does nothing it is not known.
    let unfinished = || all.iter().filter(|led| led.complete < led.tablets);
    let eta =
        unfinished().map(|led| led.eta_seconds).collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max());
    IndexStatus {
        keyspace: keyspace.clone(),
        table: name.clone(),
        name: index_name.to_owned(),
        target: target_of(&entry.table, index),
        state,
        done_permille: u16::try_from(done / tablets.max(1) as u64).map_or(most, |done| done.min(most)),
        tablets,
        tablets_complete: complete,
        tablets_unknown: tablets - known,
        rate_rows: if is_ready { 0 } else { all.iter().map(|led| led.rate_rows).sum() },
        rate_bytes: if is_ready { 0 } else { all.iter().map(|led| led.rate_bytes).sum() },
        eta_seconds: eta.filter(|_| !is_ready && known == tablets && failure.is_none()),
        failure: failure.or_else(|| uncovered(&entry.table, index)),
    }
}

/// An index that waits for the next one.
fn deferred(entry: &TableEntry, index: &Index) -> IndexStatus {
    let status = status(entry, (index.id, &index.name), &[]);
    IndexStatus { state: IndexState::Deferred, tablets_unknown: 0, ..status }
}

/// The ids and names of what can be asked for.
fn named(table: &Table) -> impl Iterator<Item = (u64, &str)> {
    table.maintained().chain(table.deferred_indexes.iter().map(|index| (index.id, index.name.as_str())))
}

/// The answers that there are, and the reasons why others are missing.
fn answered(answers: Answers<impl Display>) -> (Vec<(NodeId, Led)>, Vec<String>) {
    let (mut all, mut unanswered) = (Vec::new(), Vec::new());
    for (node, answer) in answers {
        match answer {
            Ok(found) => all.extend(found.into_iter().map(|led| (node, led))),
            Err(reason) => unanswered.push(format!("node {}: {reason}", node.0)),
        }
    }
    unanswered.sort_unstable();
    (all, unanswered)
}

/// The answers of all nodes as one.
pub(in crate::operate) fn gathered(sight: &Sight, answers: Answers<impl Display>) -> IndexList {
    let (all, unanswered) = answered(answers);
    let mut by_index: HashMap<IndexId, Vec<&Led>> = HashMap::new();
    all.iter().for_each(|(_, led)| by_index.entry(led.id).or_default().push(led));
    let mut indexes = Vec::new();
    for entry in sight.catalog.tables() {
        for (index, name) in entry.table.maintained() {
            let id = IndexId { table: entry.table.id, index };
            indexes.push(status(entry, (index, name), by_index.get(&id).map_or(&[], Vec::as_slice)));
        }
        indexes.extend(entry.table.deferred_indexes.iter().map(|index| deferred(entry, index)));
    }
    indexes.sort_by(|a, b| (&a.keyspace, &a.table, &a.name).cmp(&(&b.keyspace, &b.table, &b.name)));
    IndexList { indexes, unanswered }
}

/// The index or the view of a name.
///
/// # Errors
/// There is none.
pub(in crate::operate) fn find(catalog: &Catalog, keyspace: &str, name: &str) -> Result<IndexId, Failure> {
    let of = |entry: &TableEntry| {
        let (index, _) = named(&entry.table).find(|(_, of)| *of == name)?;
        Some(IndexId { table: entry.table.id, index })
    };
    let found = catalog.tables_in(keyspace).find_map(|entry| of(entry));
    found.ok_or_else(|| Failure::new(FailureKind::NotFound, format!("there is no index {keyspace}.{name}")))
}

/// Refuses an index that is deferred: there is nothing to compare.
pub(in crate::operate) fn check_begun(catalog: &Catalog, of: IndexId) -> Result<(), Failure> {
    let entry = catalog.table_by_id(of.table);
    let deferred = entry.and_then(|entry| entry.table.deferred_indexes.iter().find(|index| index.id == of.index));
    deferred.map_or(Ok(()), |index| {
        let message = format!("the index {} is deferred: it waits for the next index of its table", index.name);
        Err(Failure::new(FailureKind::Invalid, message))
    })
}

/// The answers of all nodes about one index.
///
/// # Errors
/// It was dropped meanwhile.
pub(in crate::operate) fn detail(
    sight: &Sight,
    id: IndexId,
    answers: Answers<impl Display>,
) -> Result<IndexDetail, Failure> {
    let dropped = || Failure::new(FailureKind::NotFound, "the index was dropped meanwhile");
    let entry = sight.catalog.table_by_id(id.table).ok_or_else(dropped)?;
    if let Some(index) = entry.table.deferred_indexes.iter().find(|index| index.id == id.index) {
        return Ok(IndexDetail { status: deferred(entry, index), listed: Vec::new(), unanswered: Vec::new() });
    }
    let index = entry.table.maintained().find(|(index, _)| *index == id.index).ok_or_else(dropped)?;
    let (all, unanswered) = answered(answers);
    let all: Vec<_> = all.into_iter().filter(|(_, led)| led.id == id).collect();
    let mut by_tablet: BTreeMap<TabletId, (NodeId, Option<u16>)> = BTreeMap::new();
    for (node, led) in &all {
        by_tablet.extend(led.listed.iter().map(|(tablet, done)| (*tablet, (*node, *done))));
    }
    let mut listed: Vec<IndexedTablet> = entry
        .tablets
        .iter()
        .map(|range| {
            let told = by_tablet.get(&range.tablet);
            let done = told.and_then(|(_, done)| *done);
            let state = match (told, done) {
                (None, _) => IndexState::Unknown,
                (Some(_), None) => IndexState::NotBegun,
                (Some(_), Some(WHOLE_PERMILLE)) => IndexState::Ready,
                (Some(_), Some(_)) => IndexState::Building,
            };
            IndexedTablet {
                tablet: range.tablet,
                leader: told.map(|(node, _)| *node),
                state,
                done_permille: done.unwrap_or(0),
            }
        })
        .collect();
    listed.sort_by_key(|one| (one.state, one.done_permille, one.tablet));
    listed.truncate(MOST_INDEXED_TABLETS);
    let all: Vec<&Led> = all.iter().map(|(_, led)| led).collect();
    Ok(IndexDetail { status: status(entry, index, &all), listed, unanswered })
}
