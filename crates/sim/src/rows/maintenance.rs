//! What nodes do for the index of the first table: they propose the steps that are due in the tablets that they lead, and
//! remove entries that readers have found stale. Now and then an index is dropped in a tablet, to be built again.
//!
//! Left out: how fast a node goes on.

use super::schema::RowWorld;
use crate::cluster::Cluster;
use diorite_base::TabletId;
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_model::schema::Table;
use diorite_query::index::{Due, IndexStep, Part, due, part, removals, specifications};
use diorite_query::kv::Kv as _;
use diorite_replica::TabletHandle;
use diorite_storage::{AFTER_ALL_KEYS, MemoryTablet, ScanRange, TabletData};
use std::convert::Infallible;
use std::sync::Arc;

/// The rows that a step indexes, so that builds take several.
const STEP_ROWS: usize = 4;

/// A tablet's data, for reading specifications.
pub(super) struct View<'d>(pub(super) &'d Arc<MemoryTablet>);

impl TabletView for View<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.0.get(key).expect("memory can be read").map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        self.0.scan(&range, visit).expect("memory can be read");
        Ok(())
    }
}

fn next_step(handle: &TabletHandle<MemoryTablet>, table: &Table) -> Option<IndexStep> {
    let data = handle.data();
    match due(table, &specifications(&View(data)).expect("memory can be read"))? {
        Due::Step(step) => Some(step),
        Due::Build { index, from } => {
            let range = ScanRange { start: &from, end: AFTER_ALL_KEYS, reverse: false, expected_entries: 0 };
            let scan = |visit: &mut dyn FnMut(&[u8], &[u8]) -> bool| {
                Ok::<_, Infallible>(data.scan(&range, visit).expect("memory can be read"))
            };
            let Ok(Part { to, is_last, .. }) = part(AFTER_ALL_KEYS, (STEP_ROWS, usize::MAX), scan);
            Some(IndexStep::Build { index, from, to, is_last })
        }
    }
}

/// Now and then the leader of a tablet of the first table does the next thing for its index.
pub(super) fn keep_index(cluster: &mut Cluster) {
    let Some(rows) = &mut cluster.rows else { return };
    if !rows.dice.chance(150) {
        return;
    }
    let table = rows.world.table();
    let Some(entry) = cluster.setting.newest.table_by_id(table.id) else { return };
    let tablet = rows.dice.pick(&entry.tablets).tablet;
    let (drops, removes) = (rows.dice.chance(30), rows.dice.chance(500));
    let Some(handle) = handle_of_leader(cluster, tablet) else { return };
    let steps = if drops {
        table.indexes.iter().map(|index| IndexStep::Drop { index: index.id }).collect()
    } else if removes {
        let stale = handle.take_stale().keys.into_iter().collect();
        let row_bytes = |row: &[u8]| {
            let stored = handle.data().get(row).expect("memory can be read");
            Ok::<_, Infallible>(stored.map_or(0, |row| row.len()))
        };
        let Ok(steps) = removals(stale, row_bytes);
        steps
    } else {
        next_step(&handle, &table).into_iter().collect()
    };
    let Some(rows) = &cluster.rows else { return };
    for step in steps {
        propose(&rows.world, tablet, &step);
    }
}

fn handle_of_leader(cluster: &Cluster, tablet: TabletId) -> Option<Arc<TabletHandle<MemoryTablet>>> {
    let life = cluster.nodes.get(&cluster.leader_of(tablet)?)?.life.as_ref()?;
    life.handles.get(&tablet).cloned()
}

/// Nobody waits for the outcome, which the next look at the tablet shows.
fn propose(world: &RowWorld, tablet: TabletId, step: &IndexStep) {
    let mutation = step.mutation().expect("steps are small");
    let kv = Arc::clone(&world.kv);
    world.kv.spawn(async move { drop(kv.write(tablet, mutation, None).await) });
}
