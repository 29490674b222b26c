//! The shell of secondary indexes: in the tablets that this node leads, it proposes what is due
//! ([`diorite_query::index::due`]), and removes stale entries that readers have met.
//!
//! Always true: whatever is decided here is decided again by the step when it is applied, so that a node that no longer
//! leads, or serves an old catalog, does no harm; a step is small, and is followed by a pause as long as itself. Left
//! out: when an index may be used (each read looks at the tablet).

use crate::catalog::CatalogFollower;
use crate::pause::pause;
use crate::route::Router;
use ahash::AHashMap;
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_base::program::Unprovable;
use diorite_base::write::KvError;
use diorite_base::{Clock, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_model::schema::Table;
use diorite_query::index::{Due, INDEXED, IndexStep, Part, due, part, removals, specifications};
use diorite_replica::{Leadership, StaleEntries, Store, TabletHandle};
use diorite_storage::{AFTER_ALL_KEYS, ScanRange, StorageError, Tablet};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How often it is looked whether the catalog has changed.
const INTERVAL: Duration = Duration::from_millis(100);
/// All tablets are looked at after so many intervals: leaders may have changed.
const INTERVALS_PER_SWEEP: u32 = 20;
/// After so many sweeps nothing is taken as known.
const SWEEPS_KNOWN: u32 = 30;
/// Tablets that are worked on at a time.
const AT_A_TIME: usize = 4;
/// The shortest pause between two steps.
const LEAST_PAUSE: Duration = Duration::from_millis(2);
/// After so many steps in a tablet, others have their turn.
const STEPS_PER_TURN: usize = 32;
/// The rows that a step indexes; a step writes a part of them if their entries are many.
const STEP_BYTES: usize = 256 << 10;
const STEP_ROWS: usize = 2_000;

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
    #[error("the node is shutting down")]
    Ending,
}

/// A tablet's data, for reading specifications.
struct View<'t>(&'t Arc<Tablet>);

impl TabletView for View<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        let found = self.0.get(key).map_err(|error| EvaluationFailed(error.to_string()))?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        self.0.scan(&range, visit).map(|_| ()).map_err(|error| EvaluationFailed(error.to_string()))
    }
}

/// The next step in a tablet; reads it.
fn next_step(handle: &TabletHandle, table: &Table) -> Result<Option<IndexStep>, Interrupted> {
    let data = handle.data();
    match due(table, &specifications(&View(data))?) {
        None => Ok(None),
        Some(Due::Step(step)) => Ok(Some(step)),
        Some(Due::Build { index, from }) => {
            let range = ScanRange { start: &from, end: AFTER_ALL_KEYS, reverse: false, expected_entries: STEP_ROWS };
            let Part { to, is_last } = part(AFTER_ALL_KEYS, (STEP_ROWS, STEP_BYTES), |visit| data.scan(&range, visit))?;
            Ok(Some(IndexStep::Build { index, from, to, is_last }))
        }
    }
}

/// What is known of the tablets led here: the version of the table for which nothing is due.
#[derive(Default)]
struct Known {
    complete: AHashMap<TabletId, u64>,
    sweeps: u32,
    /// Some tablet has had its turn, and is not done.
    has_more: bool,
}

/// See the top of this module.
pub(super) struct Indexing<'n> {
    pub(super) store: &'n Store,
    pub(super) router: &'n Router,
    pub(super) catalog: &'n CatalogFollower,
    pub(super) clock: &'n dyn Clock,
    pub(super) runtime: &'n Handle,
}

impl Indexing<'_> {
    /// Runs as long as the node.
    pub(super) async fn run(&self) {
        let (mut known, mut version, mut intervals) = (Known::default(), None, 0);
        loop {
            pause(INTERVAL).await;
            intervals += 1;
            let catalog = self.catalog.served();
            if version == Some(catalog.version()) && intervals < INTERVALS_PER_SWEEP && !known.has_more {
                continue;
            }
            (version, intervals) = (Some(catalog.version()), 0);
            known.sweeps += 1;
            if known.sweeps >= SWEEPS_KNOWN {
                known = Known::default();
            }
            self.sweep_indexes(&catalog, &mut known).await;
        }
    }

    /// The tablets that are led here and have, or should have, indexes.
    fn indexed_tablets(&self, catalog: &Catalog) -> Vec<(Arc<TabletHandle>, Arc<Table>)> {
        let has_indexes = catalog.tables().any(|entry| !entry.table.indexes.is_empty());
        let tablets = self.store.tablets();
        let mut found = Vec::new();
        for (tablet, handle) in tablets.iter() {
            if !has_indexes && handle.flags() & INDEXED == 0 {
                continue;
            }
            let Some(entry) = catalog.table_of(*tablet) else { continue };
            let concerns = !entry.table.indexes.is_empty() || handle.flags() & INDEXED != 0;
            if concerns && handle.leadership() == Leadership::Here {
                found.push((Arc::clone(handle), Arc::clone(&entry.table)));
            }
        }
        found
    }

    async fn sweep_indexes(&self, catalog: &Catalog, known: &mut Known) {
        let tablets = self.indexed_tablets(catalog);
        let is_due = |(handle, table): &&(Arc<TabletHandle>, Arc<Table>)| {
            known.complete.get(&handle.id()) != Some(&table.version)
        };
        let mut work = Vec::new();
        for (handle, table) in tablets.iter().filter(is_due) {
            work.push(self.work_on(Arc::clone(handle), Arc::clone(table)));
        }
        let mut working = futures::stream::iter(work).buffer_unordered(AT_A_TIME);
        known.has_more = false;
        while let Some((tablet, version, outcome)) = working.next().await {
            match outcome {
                Ok(true) => drop(known.complete.insert(tablet, version)),
                Ok(false) => known.has_more = true,
                Err(error) => {
                    tracing::debug!(%tablet, %error, "work on the indexes of a tablet is interrupted");
                }
            }
        }
        let work = tablets.iter().map(|(handle, _)| self.remove_stale_of(handle));
        let mut working = futures::stream::iter(work.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
        while let Some(has_more) = working.next().await {
            known.has_more |= has_more;
        }
    }

    /// Returns whether readers have met more stale entries than could be kept.
    async fn remove_stale_of(&self, handle: &Arc<TabletHandle>) -> bool {
        let stale = handle.take_stale();
        if stale.keys.is_empty() {
            return false;
        }
        if let Err(error) = self.remove_stale(handle, &stale).await {
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
        for _ in 0..STEPS_PER_TURN {
            if version(&self.catalog.served()) != Some(table.version) {
                break;
            }
            let began_ns = self.clock.monotonic_ns();
            let (reader, of) = (Arc::clone(&handle), Arc::clone(&table));
            let looking = self.runtime.spawn_blocking(move || next_step(&reader, &of)).await;
            let Some(step) = looking.map_err(|_| Interrupted::Ending)?? else { return Ok(true) };
            self.router.write(handle.id(), step.mutation()?).await?;
            let took = Duration::from_nanos(self.clock.monotonic_ns().saturating_sub(began_ns));
            pause(took.max(LEAST_PAUSE)).await;
        }
        Ok(false)
    }

    /// Removes entries that readers have met, unless they are right again.
    async fn remove_stale(&self, handle: &Arc<TabletHandle>, stale: &StaleEntries) -> Result<(), Interrupted> {
        let (reader, keys) = (Arc::clone(handle), stale.keys.iter().cloned().collect::<Vec<_>>());
        let row_bytes = move |row: &[u8]| reader.data().get(row).map(|row| row.map_or(0, |row| row.len()));
        let looking = self.runtime.spawn_blocking(move || removals(keys, row_bytes)).await;
        for step in looking.map_err(|_| Interrupted::Ending)?? {
            let began_ns = self.clock.monotonic_ns();
            self.router.write(handle.id(), step.mutation()?).await?;
            let took = Duration::from_nanos(self.clock.monotonic_ns().saturating_sub(began_ns));
            pause(took.max(LEAST_PAUSE)).await;
        }
        Ok(())
    }
}
