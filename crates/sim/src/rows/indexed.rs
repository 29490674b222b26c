//! At rest, each replica's indexes agree with its rows.
//!
//! Always true: each replica is looked at by itself, whether it leads or not, and has applied all of its log or a part of
//! it: each entry of the log writes rows together with their index entries. Left out: indexes that are being built.

use super::schema::RowWorld;
use crate::checkers::Finding;
use crate::cluster::Cluster;
use diorite_base::Clock as _;
use diorite_model::row::now_seconds;
use diorite_query::index::{Check, CheckedPart, Place, StepSize, Unchecked, check_part, specifications};
use diorite_storage::{DataView, MemoryTablet, TabletData as _};
use std::sync::Arc;

/// Small, so that a comparison takes several steps.
const SIZE: StepSize = StepSize { entries: 5, bytes: usize::MAX, named: 3 };

/// Looks for values without index entries, in all replicas of the first table.
pub(super) fn check_indexes(cluster: &Cluster, world: &RowWorld) -> Result<(), Finding> {
    let Some(entry) = cluster.setting.newest.table_by_id(world.table().id) else { return Ok(()) };
    for (node, life) in cluster.nodes.iter().filter_map(|(node, of)| Some((node, of.life.as_ref()?))) {
        for (tablet, handle) in entry.tablets.iter().filter_map(|of| life.handles.get_key_value(&of.tablet)) {
            let wrong = |what: String| Finding {
                checker: "indexes",
                at_ns: cluster.now_ns(),
                message: format!("{tablet} on {node}: {what}"),
            };
            let stored = specifications(&DataView(handle.data())).map_err(|failed| wrong(failed.to_string()))?;
            for (index, _) in stored.iter().filter(|(_, specification)| specification.is_complete()) {
                let found = whole(handle.data(), *index, cluster.setting.time.wall_us());
                let found = found.map_err(|why| wrong(format!("{why:?}")))?;
                if found.missing + found.unreadable > 0 {
                    return Err(wrong(format!("index {index}: {found:?}")));
                }
            }
        }
    }
    Ok(())
}

fn whole(data: &Arc<MemoryTablet>, index: u64, wall_us: i64) -> Result<CheckedPart, Unchecked> {
    let newest_us = data.applied_state().expect("memory can be read").newest_stamp_us;
    // A value that expires later has been removed by no step and by no compaction.
    let now_s = now_seconds(newest_us.max(wall_us));
    let comparison = Check { index, now_s, is_own: &|_| true, size: SIZE };
    let (mut sum, mut place) = (CheckedPart::default(), Place::first());
    loop {
        let step = check_part(&DataView(data), comparison, &place)?;
        sum = step.after(sum, SIZE.named);
        match sum.next.take() {
            Some(next) => place = next,
            None => return Ok(sum),
        }
    }
}
