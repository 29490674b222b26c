//! What nodes do for the indexes and views of tables: they propose the steps that are due in the tablets that they lead, and
//! remove entries that readers have found stale. Now and then an index is dropped in a tablet, to be built again.
//!
//! Left out: how fast a node goes on.

use super::schema::RowWorld;
use super::unique::compare;
use crate::cluster::Cluster;
use diorite_base::TabletId;
use diorite_model::schema::Table;
use diorite_query::index::{Compared, Due, IndexStep, Part, due, part, removals, specifications};
use diorite_query::kv::Kv as _;
use diorite_replica::TabletHandle;
use diorite_storage::{AFTER_ALL_KEYS, DataView, MemoryTablet, ScanRange, TabletData};
use std::convert::Infallible;
use std::sync::Arc;

/// The rows that a step indexes, so that builds take several.
const STEP_ROWS: usize = 4;

/// The next thing to do in a tablet.
enum Next {
    Step(IndexStep),
    /// Rows are compared, and then the step is taken.
    Compare(u64, Vec<Vec<u8>>, IndexStep),
}

fn next_step(handle: &TabletHandle<MemoryTablet>, table: &Table) -> Option<Next> {
    let data = handle.data();
    match due(table, &specifications(&DataView(data)).expect("memory can be read"))? {
        Due::Step(step) => Some(Next::Step(step)),
        Due::Compare { index, round, from } => {
            let range = ScanRange { start: &from, end: AFTER_ALL_KEYS, reverse: false, expected_entries: 0 };
            let mut rows = Vec::new();
            let scan = |visit: &mut dyn FnMut(&[u8], &[u8]) -> bool| {
                let scanned = data.scan(&range, &mut |key, value| {
                    rows.push(key.to_vec());
                    visit(key, value)
                });
                Ok::<_, Infallible>(scanned.expect("memory can be read"))
            };
            let Ok(Part { to, is_last, .. }) = part(AFTER_ALL_KEYS, (STEP_ROWS, usize::MAX), scan);
            let to = if is_last { Compared::All } else { Compared::Before(to) };
            Some(Next::Compare(index, rows, IndexStep::Compare { index, round, from: Compared::Before(from), to }))
        }
        Due::Build { index, from } => {
            let range = ScanRange { start: &from, end: AFTER_ALL_KEYS, reverse: false, expected_entries: 0 };
            let scan = |visit: &mut dyn FnMut(&[u8], &[u8]) -> bool| {
                Ok::<_, Infallible>(data.scan(&range, visit).expect("memory can be read"))
            };
            let Ok(Part { to, is_last, .. }) = part(AFTER_ALL_KEYS, (STEP_ROWS, usize::MAX), scan);
            Some(Next::Step(IndexStep::Build { index, from, to, is_last }))
        }
    }
}

/// Now and then the leader of a tablet of a table with an index does the next thing for it.
pub(super) fn keep_index(cluster: &mut Cluster) {
    let Some(rows) = &mut cluster.rows else { return };
    if !rows.dice.chance(900) {
        return;
    }
    let table = if rows.dice.chance(200) { rows.world.table() } else { Arc::clone(&rows.world.unique().table) };
    let Some(entry) = cluster.setting.newest.table_by_id(table.id) else { return };
    let tablet = rows.dice.pick(&entry.tablets).tablet;
    let (drops, removes) = (rows.dice.chance(30), rows.dice.chance(500));
    if rows.dice.chance(150) {
        rows.world.look_at_covering();
    }
    let Some(handle) = handle_of_leader(cluster, tablet) else { return };
    let steps: Vec<Next> = if drops {
        // Of a view there are statements that do not know it: for them it is never as if there were none.
        table.indexes.iter().map(|index| Next::Step(IndexStep::Drop { index: index.id })).collect()
    } else if removes {
        let stale = handle.take_stale().keys.into_iter().collect();
        let row_bytes = |row: &[u8]| {
            let stored = handle.data().get(row).expect("memory can be read");
            Ok::<_, Infallible>(stored.map_or(0, |row| row.len()))
        };
        let Ok(steps) = removals(stale, row_bytes);
        steps.into_iter().map(Next::Step).collect()
    } else {
        next_step(&handle, &table).into_iter().collect()
    };
    let Some(rows) = &cluster.rows else { return };
    for next in steps {
        match next {
            Next::Step(step) => propose(&rows.world, tablet, &step),
            Next::Compare(index, compared, step) => {
                let (comparer, kv) = (rows.world.comparer(), Arc::clone(&rows.world.kv));
                rows.world.kv.spawn(compare(comparer, kv, (table.id, tablet), index, (compared, step)));
            }
        }
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
