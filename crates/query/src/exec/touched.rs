//! What a page of a read may touch, for its snapshot.
//!
//! Always true: every key that the page reads is in it. Left out: how the snapshot is taken ([`super::snapshot`]).

use super::keys::{KeyRange, PartitionKey};
use super::read::{Read, TabletScan, tablet_of};
use super::snapshot::{MAX_TABLETS, Touched};
use crate::error::invalid;
use crate::kv::Kv;
use diorite_base::TabletId;
use diorite_cql::protocol::CqlError;
use diorite_model::key;
use diorite_transact::targets::{Target, Targets};
use std::collections::{BTreeMap, BTreeSet};

/// Of more partitions in one tablet only the first and the last are named, and all that is between them.
const MAX_NAMED: usize = 1_000;
/// So many partitions are a small read, and so many tablets of which an index names rows.
const FEW_PARTITIONS: usize = 64;
const FEW_TABLETS: usize = 64;

/// Whether a read of named partitions is of one row, which one fetch reads, with all that belongs to its partition.
pub(super) fn is_one_row(partitions: &[PartitionKey], ranges: &[KeyRange]) -> bool {
    partitions.len() <= 1 && ranges.len() <= 1 && ranges.iter().all(|range| range.end.is_none())
}

fn partition_target(partition: &PartitionKey) -> Target {
    let mut end = partition.prefix.clone();
    key::push_partition_end(&mut end);
    Target::Range { start: partition.prefix.clone(), end }
}

fn check_count(tablets: usize) -> Result<(), CqlError> {
    if tablets <= MAX_TABLETS {
        return Ok(());
    }
    Err(invalid(format!(
        "a read of {tablets} tablets of a table with transactions is over the limit of {MAX_TABLETS} tablets: \
         use paging, or token() ranges"
    )))
}

/// Of partitions that a statement names, and these rows in each. The read is small if they are few, and it is of single rows
/// or of one page.
pub(super) fn by_partitions<K: Kv>(
    read: &Read<'_, K>,
    partitions: &[PartitionKey],
    ranges: &[KeyRange],
    is_page: bool,
) -> Result<Touched, CqlError> {
    let mut named: BTreeMap<TabletId, Vec<&PartitionKey>> = BTreeMap::new();
    for partition in partitions {
        named.entry(tablet_of(read.tablets, partition.token)).or_default().push(partition);
    }
    check_count(named.len())?;
    let bytes = partitions.iter().map(|partition| 2 * (size_of::<Target>() + partition.prefix.len())).sum();
    read.budget().take(bytes)?;
    let targets = named.into_iter().map(|(tablet, mut named)| {
        named.sort_by(|one, other| one.prefix.cmp(&other.prefix));
        let targets = match named.as_slice() {
            [first, .., last] if named.len() > MAX_NAMED => {
                let mut end = last.prefix.clone();
                key::push_partition_end(&mut end);
                vec![Target::Range { start: first.prefix.clone(), end }]
            }
            few => few.iter().map(|partition| partition_target(partition)).collect(),
        };
        (tablet, Targets::new(targets))
    });
    let rows = partitions.len().saturating_mul(ranges.len());
    let are_single = rows <= FEW_PARTITIONS && ranges.iter().all(|range| range.end.is_none());
    let is_small = are_single || (is_page && partitions.len() <= FEW_PARTITIONS);
    Ok(Touched { targets: targets.collect(), is_small })
}

/// The keys of a tablet that a read names; of many, all between the first and the last.
fn targets_of(mut named: Vec<Target>) -> Targets {
    if named.len() > MAX_NAMED {
        named.sort_by(|one, other| one.start().cmp(other.start()));
        let end = named.iter().filter_map(|target| match target {
            Target::Range { end, .. } => Some(end),
            Target::Row(_) => None,
        });
        if let (Some(first), Some(end)) = (named.first(), end.max()) {
            named = vec![Target::Range { start: first.start().to_vec(), end: end.clone() }];
        }
    }
    Targets::new(named)
}

/// Of scans. The read is small if it is a page of the rows that an index names for one value in few tablets.
pub(super) fn by_scans<K: Kv>(read: &Read<'_, K>, scans: &[TabletScan], is_page: bool) -> Result<Touched, CqlError> {
    let bytes = scans.iter().map(|scan| 2 * (size_of::<Target>() + scan.end.len())).sum();
    read.budget().take(bytes)?;
    let mut named: BTreeMap<TabletId, Vec<Target>> = BTreeMap::new();
    for scan in scans {
        // A page that goes on in a partition also reads its beginning.
        let start = scan.start[..scan.start.len().min(size_of::<i64>())].to_vec();
        named.entry(scan.tablet).or_default().push(Target::Range { start, end: scan.end.clone() });
    }
    check_count(named.len())?;
    let is_one_value = |scan: &TabletScan| scan.by.as_ref().is_some_and(|by| by.is_one_value());
    let is_small = is_page && named.len() <= FEW_TABLETS && scans.iter().all(is_one_value);
    let targets = named.into_iter().map(|(tablet, named)| (tablet, targets_of(named)));
    Ok(Touched { targets: targets.collect(), is_small })
}

/// How many of these scans a page takes that reads at most so many tablets, all of each.
pub(super) fn within_tablets(scans: &[TabletScan], most: usize) -> usize {
    let mut tablets = BTreeSet::new();
    scans
        .iter()
        .take_while(|scan| tablets.contains(&scan.tablet) || tablets.len() < most && tablets.insert(scan.tablet))
        .count()
}
