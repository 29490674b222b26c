//! The shell of secondary indexes and materialized views: in the tablets that this node leads, it proposes what is due
//! ([`diorite_query::index::due`]), and removes stale entries that readers have met.
//!
//! Always true: whatever is decided here is decided again by the step when it is applied, so that a node that no longer
//! leads, or serves an old catalog, does no harm; a step is small, and is followed by a pause as long as itself, or
//! longer if the rate is limited; what was done is [recorded](record). Left out: when an index may be used (each read
//! looks at the tablet).

pub(super) mod check;
mod covering;
mod defining;
mod pacer;
mod place;
pub(super) mod record;
pub(super) mod status;

use super::own::Own;
use crate::catalog::CatalogFollower;
use crate::pause::pause;
use crate::route::Router;
use ahash::AHashMap;
use diorite_base::mutation::EvaluationFailed;
use diorite_base::program::Unprovable;
use diorite_base::write::KvError;
use diorite_base::{Clock, TableId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Table, TableEntry, TabletRange};
use diorite_query::engine::Comparison;
use diorite_query::index::{
    Compared, Due, INDEXED, IndexReply, IndexStep, Part, Specification, due, part, removals, specifications,
};
use diorite_replica::{Leadership, StaleEntries, Store, TabletHandle};
use diorite_storage::{AFTER_ALL_KEYS, DataView, ScanRange, StorageError};
use futures::StreamExt;
use place::Tokens;
use record::{Amount, Finished, IndexRecord};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// How often it is looked whether the catalog has changed.
const INTERVAL: Duration = Duration::from_millis(100);
/// All tablets are looked at after so many intervals: leaders may have changed.
const INTERVALS_PER_SWEEP: u32 = 20;
/// After so many sweeps nothing is taken as known.
const SWEEPS_KNOWN: u32 = 30;
/// Tablets that are worked on at a time. Each pauses for half of the time, so that with more of them the threads that apply
/// writes would have steps waiting all the time.
const AT_A_TIME: usize = 2;
/// While a step is paid for, it is looked so often whether the rate has changed.
const RATE_LOOK: Duration = Duration::from_secs(1);
/// The shortest pause after a step that has read rows.
const LEAST_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause: a step lasts for an hour if the process is stopped for an hour in the midst of it.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// After so many steps in a tablet, others have their turn.
const STEPS_PER_TURN: usize = 256;
/// After so long other tablets have their turn, too: a low rate makes steps rare.
const LONGEST_TURN_NS: u64 = 5_000_000_000;
/// The rows that a step indexes; a step writes a part of them if their entries are many. Other writes of the same thread wait
/// for a step, so that it takes about as long as a few of them.
const STEP_BYTES: usize = 256 << 10;
const STEP_ROWS: usize = 64;
/// The rows that are compared in a step; each takes a transaction.
const COMPARED_ROWS: usize = 256;

/// Why work on a tablet is interrupted; the next sweep goes on.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(transparent)]
    Write(#[from] KvError),
    #[error(transparent)]
    Step(#[from] Unprovable),
    #[error(transparent)]
    Read(#[from] StorageError),
    #[error(transparent)]
    Specification(#[from] EvaluationFailed),
    #[error("{}", .0.message)]
    Compare(#[from] CqlError),
    #[error("transactions that were begun before a unique index or a view have not ended yet")]
    Waits,
    #[error("the node is shutting down")]
    Ending,
}

/// A look at a tablet.
struct Look {
    /// The indexes of the table that are not complete in it.
    incomplete: Vec<u64>,
    /// The next thing to do, and the rows that it reads with their bytes.
    next: Option<(Next, (usize, usize))>,
}

/// The next thing to do in a tablet.
enum Next {
    Step(IndexStep),
    /// Compare these rows with all others, and then take the step.
    Compare(u64, Vec<Vec<u8>>, IndexStep),
}

/// Looks at a tablet, and reads the rows of the next step.
fn look_at(handle: &TabletHandle, table: &Table) -> Result<Look, Interrupted> {
    let data = handle.data();
    let stored = specifications(&DataView(data))?;
    let is_complete = |id: u64| {
        let is_done = |specification: &Specification| specification.is_done() || specification.failure().is_some();
        stored.iter().any(|(of, specification)| *of == id && is_done(specification))
    };
    let incomplete = table.maintained().map(|(id, _)| id).filter(|id| !is_complete(*id)).collect();
    let next = match due(table, &stored) {
        None => None,
        Some(Due::Step(step)) => Some((Next::Step(step), (0, 0))),
        Some(Due::Compare { index, round, from }) => {
            let range =
                ScanRange { start: &from, end: AFTER_ALL_KEYS, reverse: false, expected_entries: COMPARED_ROWS };
            let mut rows = Vec::new();
            let Part { to, is_last, entries, bytes } = part(AFTER_ALL_KEYS, (COMPARED_ROWS, STEP_BYTES), |visit| {
                data.scan(&range, &mut |key, value| {
                    rows.push(key.to_vec());
                    visit(key, value)
                })
            })?;
            let to = if is_last { Compared::All } else { Compared::Before(to) };
            let step = IndexStep::Compare { index, round, from: Compared::Before(from), to };
            Some((Next::Compare(index, rows, step), (entries, bytes)))
        }
        Some(Due::Build { index, from }) => {
            let range = ScanRange { start: &from, end: AFTER_ALL_KEYS, reverse: false, expected_entries: STEP_ROWS };
            let Part { to, is_last, entries, bytes } =
                part(AFTER_ALL_KEYS, (STEP_ROWS, STEP_BYTES), |visit| data.scan(&range, visit))?;
            Some((Next::Step(IndexStep::Build { index, from, to, is_last }), (entries, bytes)))
        }
    };
    Ok(Look { incomplete, next })
}

/// The pause after a step: as long as the step, so that steps take half of the time at most.
fn pause_after(took_ns: u64, least: Duration) -> Duration {
    Duration::from_nanos(took_ns).clamp(least, LONGEST_PAUSE)
}

/// What is known of the tablets led here: the version of the table for which nothing is due.
#[derive(Default)]
struct Known {
    complete: AHashMap<TabletId, u64>,
    /// The tablets of tables with unique indexes or views.
    tablets: AHashMap<TableId, Vec<TabletRange>>,
    sweeps: u32,
    /// Some tablet has had its turn, and is not done.
    has_more: bool,
    /// Readers have met more stale entries of some tablet than could be kept.
    has_more_stale: bool,
}

impl Known {
    /// A tablet that has taken over another's rows compares its own again, for unique indexes and views.
    fn see(&mut self, catalog: &Catalog) {
        let has_dependents =
            |entry: &&Arc<TableEntry>| entry.table.unique_indexes().next().is_some() || !entry.table.views.is_empty();
        let tablets = catalog.tables().filter(has_dependents).map(|entry| (entry.table.id, entry.tablets.clone()));
        let before = std::mem::replace(&mut self.tablets, tablets.collect());
        for (table, tablets) in self.tablets.iter().filter(|(table, tablets)| before.get(table) != Some(*tablets)) {
            tracing::trace!(%table, "the tablets of a table with unique indexes or views have changed");
            self.complete.retain(|tablet, _| tablets.iter().all(|range| range.tablet != *tablet));
        }
    }
}

/// The indexes that a tablet cannot have completed: it has had none, or none when all was done.
fn new_indexes(handle: &TabletHandle, table: &Table, known: &Known) -> impl Iterator<Item = u64> {
    let has_had_none = handle.flags() & INDEXED == 0;
    let known = known.complete.get(&handle.id()).copied();
    let ids = table.maintained().map(|(id, _)| id);
    ids.filter(move |id| has_had_none || known.is_some_and(|version| *id > version))
}

/// See the top of this module.
pub(super) struct Indexing<'n> {
    pub(super) store: &'n Store,
    pub(super) router: &'n Router,
    pub(super) catalog: &'n CatalogFollower,
    pub(super) clock: &'n dyn Clock,
    pub(super) runtime: &'n Handle,
    pub(super) record: &'n IndexRecord,
    /// Compares rows.
    pub(super) own: &'n OnceLock<Arc<dyn Own>>,
}

impl Indexing<'_> {
    /// Runs as long as the node.
    pub(super) async fn run(&self) {
        futures::join!(self.keep_building(), self.keep_defining(), self.keep_finishing_covering());
    }

    async fn keep_building(&self) {
        let (mut known, mut version, mut intervals) = (Known::default(), None, 0);
        loop {
            // A build goes on at once: its turns are short, so that other tablets have theirs.
            pause(if known.has_more { LEAST_PAUSE } else { INTERVAL }).await;
            intervals += 1;
            let catalog = self.catalog.served();
            let has_more = known.has_more || known.has_more_stale;
            if version == Some(catalog.version()) && intervals < INTERVALS_PER_SWEEP && !has_more {
                continue;
            }
            (version, intervals) = (Some(catalog.version()), 0);
            known.sweeps += 1;
            if known.sweeps >= SWEEPS_KNOWN {
                known = Known::default();
            }
            known.see(&catalog);
            self.sweep_indexes(&catalog, &mut known).await;
        }
    }

    /// The tablets that are led here and have, or should have, indexes.
    fn indexed_tablets(&self, catalog: &Catalog) -> Vec<(Arc<TabletHandle>, Arc<Table>)> {
        let has_indexes = catalog.tables().any(|entry| entry.table.is_maintaining());
        let tablets = self.store.tablets();
        let mut found = Vec::new();
        for (tablet, handle) in tablets.iter() {
            if !has_indexes && handle.flags() & INDEXED == 0 {
                continue;
            }
            let Some(entry) = catalog.table_of(*tablet) else { continue };
            let concerns = entry.table.is_maintaining() || handle.flags() & INDEXED != 0;
            if concerns && handle.leadership() == Leadership::Here {
                found.push((Arc::clone(handle), Arc::clone(&entry.table)));
            } else {
                // What it has noted as leader is charged to the account of requests.
                drop(handle.take_stale());
            }
        }
        found
    }

    async fn sweep_indexes(&self, catalog: &Catalog, known: &mut Known) {
        let tablets = self.indexed_tablets(catalog);
        let led: BTreeMap<TabletId, TableId> = tablets.iter().map(|(handle, table)| (handle.id(), table.id)).collect();
        self.record.keep(&led);
        let is_due = |(handle, table): &&(Arc<TabletHandle>, Arc<Table>)| {
            known.complete.get(&handle.id()) != Some(&table.version)
        };
        let mut work = Vec::new();
        for (handle, table) in tablets.iter().filter(is_due) {
            self.record.expect(table.id, handle.id(), new_indexes(handle, table, known));
            work.push(self.work_on(Arc::clone(handle), Arc::clone(table)));
        }
        let mut working = futures::stream::iter(work).buffer_unordered(AT_A_TIME);
        (known.has_more, known.has_more_stale) = (false, false);
        while let Some((tablet, version, outcome)) = working.next().await {
            match outcome {
                Ok(true) => drop(known.complete.insert(tablet, version)),
                Ok(false) => known.has_more = true,
                Err(error) => {
                    self.record.interrupted();
                    tracing::debug!(%tablet, %error, "work on the indexes of a tablet is interrupted");
                }
            }
        }
        drop(working);
        self.tell_finished(&tablets, known);
        let work = tablets.iter().map(|(handle, table)| self.remove_stale_of(handle, table.id));
        let mut working = futures::stream::iter(work.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
        while let Some(has_more) = working.next().await {
            known.has_more_stale |= has_more;
        }
    }

    /// Logs which indexes are complete now in all tablets that are led here.
    fn tell_finished(&self, tablets: &[(Arc<TabletHandle>, Arc<Table>)], known: &Known) {
        let of = |wanted: TableId| tablets.iter().filter(move |(_, table)| table.id == wanted);
        let is_known =
            |table| of(table).all(|(handle, table)| known.complete.get(&handle.id()) == Some(&table.version));
        for Finished { index, rows, took_s } in self.record.take_finished(self.clock.monotonic_ns(), is_known) {
            let Some((_, table)) = of(index.table).next() else { continue };
            // An index that was dropped meanwhile is not told.
            let Some((_, name)) = table.maintained().find(|(id, _)| *id == index.index) else { continue };
            let (keyspace, tablets) = (&table.keyspace, of(index.table).count());
            tracing::info!(
                event = "index",
                %keyspace,
                table = %table.name,
                index = %name,
                tablets,
                rows,
                seconds = took_s,
                "an index is complete in all tablets that this node leads"
            );
        }
    }

    /// Returns whether readers have met more stale entries than could be kept.
    async fn remove_stale_of(&self, handle: &Arc<TabletHandle>, table: TableId) -> bool {
        let stale = handle.take_stale();
        if stale.keys.is_empty() {
            return false;
        }
        if let Err(error) = self.remove_stale(handle, table, &stale).await {
            self.record.interrupted();
            tracing::debug!(tablet = %handle.id(), %error, "stale index entries are not removed yet");
        }
        stale.is_full
    }

    /// Does what is due in a tablet, or some of it.
    async fn work_on(
        &self,
        handle: Arc<TabletHandle>,
        table: Arc<Table>,
    ) -> (TabletId, u64, Result<bool, Interrupted>) {
        let (tablet, version) = (handle.id(), table.version);
        (tablet, version, self.carry_on(handle, table).await)
    }

    /// Returns whether nothing is left to do.
    async fn carry_on(&self, handle: Arc<TabletHandle>, table: Arc<Table>) -> Result<bool, Interrupted> {
        let version = |catalog: &Catalog| catalog.table_by_id(table.id).map(|entry| entry.table.version);
        let served = self.catalog.served();
        let tokens = served.table_by_id(table.id).and_then(|entry| Tokens::of(entry, handle.id()));
        let turn_ns = self.clock.monotonic_ns();
        for _ in 0..STEPS_PER_TURN {
            if version(&self.catalog.served()) != Some(table.version) {
                break;
            }
            let began_ns = self.clock.monotonic_ns();
            let (reader, of) = (Arc::clone(&handle), Arc::clone(&table));
            let looking = self.runtime.spawn_blocking(move || look_at(&reader, &of)).await;
            let Look { incomplete, next } = looking.map_err(|_| Interrupted::Ending)??;
            self.record.look(table.id, handle.id(), &incomplete);
            let Some((next, read)) = next else { return Ok(true) };
            let step = match next {
                Next::Step(step) => step,
                Next::Compare(index, rows, step) => self.compare(table.id, index, rows, step).await?,
            };
            let reply = self.router.write(handle.id(), step.mutation()?).await?;
            if matches!(step, IndexStep::Compare { .. }) && IndexReply::decode(&reply) == Ok(IndexReply::Overtaken) {
                // Transactions that were prepared before the index have not ended yet.
                return Err(Interrupted::Waits);
            }
            let amount = match &step {
                IndexStep::Build { from, to, .. } => Amount::of(read, tokens, (from, to)),
                IndexStep::Compare { .. } => Amount { rows: read.0 as u64, bytes: read.1 as u64, share: 0.0 },
                _ => Amount::default(),
            };
            let now_ns = self.clock.monotonic_ns();
            self.record.done(table.id, &step, amount, now_ns);
            let took_ns = now_ns.saturating_sub(began_ns);
            let least = if amount.rows == 0 { Duration::ZERO } else { LEAST_PAUSE };
            pause(pause_after(took_ns, least)).await;
            let until_ns = now_ns.saturating_add(self.record.pacer.pay(amount.bytes, now_ns));
            self.wait_for_rate(until_ns).await;
            if self.clock.monotonic_ns().saturating_sub(turn_ns) > LONGEST_TURN_NS {
                break;
            }
        }
        Ok(false)
    }

    /// Compares rows for a unique index or a view; returns the step that says so.
    async fn compare(
        &self,
        table: TableId,
        index: u64,
        rows: Vec<Vec<u8>>,
        step: IndexStep,
    ) -> Result<IndexStep, Interrupted> {
        // The node has only just been started.
        let own = self.own.get().ok_or(Interrupted::Ending)?;
        let found = own.compare_rows(table, index, rows).await?;
        Ok(match (found, step) {
            (
                Comparison::Duplicate(why) | Comparison::Impossible(why),
                IndexStep::Compare { index, round, from, .. },
            ) => IndexStep::Compare { index, round, from, to: Compared::Failed(why) },
            (_, step) => step,
        })
    }

    /// Waits until then, or until the rate changes.
    async fn wait_for_rate(&self, until_ns: u64) {
        let rate_bytes = self.record.pacer.rate_bytes();
        while self.record.pacer.rate_bytes() == rate_bytes {
            let left_ns = until_ns.saturating_sub(self.clock.monotonic_ns());
            if left_ns == 0 {
                return;
            }
            pause(Duration::from_nanos(left_ns).min(RATE_LOOK)).await;
        }
    }

    /// Removes entries that readers have met, unless they are right again.
    async fn remove_stale(
        &self,
        handle: &Arc<TabletHandle>,
        table: TableId,
        stale: &StaleEntries,
    ) -> Result<(), Interrupted> {
        let (reader, keys) = (Arc::clone(handle), stale.keys.iter().cloned().collect::<Vec<_>>());
        let row_bytes = move |row: &[u8]| reader.data().get(row).map(|row| row.map_or(0, |row| row.len()));
        let looking = self.runtime.spawn_blocking(move || removals(keys, row_bytes)).await;
        for step in looking.map_err(|_| Interrupted::Ending)?? {
            let began_ns = self.clock.monotonic_ns();
            self.router.write(handle.id(), step.mutation()?).await?;
            let now_ns = self.clock.monotonic_ns();
            self.record.done(table, &step, Amount::default(), now_ns);
            pause(pause_after(now_ns.saturating_sub(began_ns), LEAST_PAUSE)).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_step_within_limits() {
        let step = Duration::from_millis(40);
        assert_eq!(pause_after(40_000_000, LEAST_PAUSE), step);
        assert_eq!((pause_after(0, LEAST_PAUSE), pause_after(0, Duration::ZERO)), (LEAST_PAUSE, Duration::ZERO));
        let an_hour_ns = 3_600_000_000_000;
        assert_eq!(pause_after(an_hour_ns, LEAST_PAUSE), LONGEST_PAUSE);
    }
}
