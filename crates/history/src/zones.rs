//! The fast check, with a readable answer: the times at which a value was certainly current.
//!
//! For a value that is written once, all operations that wrote or saw it share one period in which the key held it. If
//! one of them ended before another began, the key held the value from that end to that start: its *zone*. No other
//! value's zone may overlap it, and no other value may have come and gone within it (Gibbons and Korach, "Testing
//! shared memories").
//! Left out: values that several operations write, and compare-and-set as more than a read and a write;
//! [`crate::search`] decides those.

use crate::operation::{Operation, shown};
use crate::prepare::{ABSENT, Facts, Failure, Prepared, Required, Step, ValueId};

/// All operations that wrote or saw one value.
#[derive(Clone, Copy)]
struct Cluster {
    value: ValueId,
    /// The first end among them, with its operation (`None`: the beginning of time).
    first_end: (u64, Option<usize>),
    /// The last start among them, with its operation.
    last_start: (u64, Option<usize>),
}

impl Cluster {
    fn is_zone(&self) -> bool {
        self.first_end.0 < self.last_start.0
    }

    fn add(&mut self, operation: &Required) {
        // One later, so that 0 is before everything.
        let (start_ns, end_ns) = (operation.start_ns.saturating_add(1), operation.end_ns.saturating_add(1));
        if self.first_end.1.is_none() && self.value != ABSENT || end_ns < self.first_end.0 {
            self.first_end = (end_ns, Some(operation.source));
        }
        if self.last_start.1.is_none() || start_ns > self.last_start.0 {
            self.last_start = (start_ns, Some(operation.source));
        }
    }
}

fn clusters(prepared: &Prepared) -> Vec<Cluster> {
    let empty = |value| Cluster { value, first_end: (0, None), last_start: (0, None) };
    let mut clusters: Vec<Cluster> = (0..prepared.values.len()).map(empty).collect();
    for operation in &prepared.required {
        match operation.step {
            Step::Read(value) | Step::Write(value) => clusters[value].add(operation),
            Step::Swap(expected, new) => {
                clusters[expected].add(operation);
                clusters[new].add(operation);
            }
            Step::Conflict(_) => {}
        }
    }
    clusters.retain(|cluster| prepared.values[cluster.value].is_unique && cluster.last_start.1.is_some());
    clusters
}

/// Finds two values that were current at the same time.
pub(crate) fn check_zones(operations: &[Operation], prepared: &Prepared) -> Result<(), Failure> {
    let clusters = clusters(prepared);
    let mut zones: Vec<&Cluster> = clusters.iter().filter(|cluster| cluster.is_zone()).collect();
    zones.sort_by_key(|zone| zone.first_end.0);
    for pair in zones.windows(2) {
        if pair[1].first_end.0 < pair[0].last_start.0 {
            return Err(failure(operations, &prepared.values, pair[0], pair[1]));
        }
    }
    for point in clusters.iter().filter(|cluster| !cluster.is_zone()) {
        // Of the zones that began before it, the last one also ends last, since none overlap.
        let before = zones.partition_point(|zone| zone.first_end.0 < point.last_start.0);
        let zone = before.checked_sub(1).map(|last| zones[last]);
        if let Some(zone) = zone.filter(|zone| point.first_end.0 < zone.last_start.0) {
            return Err(failure(operations, &prepared.values, zone, point));
        }
    }
    Ok(())
}

/// The failure that `zone` and `other` were current at the same time.
fn failure(operations: &[Operation], values: &[Facts], zone: &Cluster, other: &Cluster) -> Failure {
    let name = |cluster: &Cluster| shown(values[cluster.value].value);
    let reason = format!(
        "{} was the value before and after a moment at which {} was: a stale read, or a lost write",
        name(zone),
        name(other)
    );
    let mut witnesses: Vec<usize> = [zone.first_end, zone.last_start, other.first_end, other.last_start]
        .into_iter()
        .filter_map(|(_, source)| source)
        .collect();
    for cluster in [zone, other] {
        let value = values[cluster.value].value;
        let writers = operations.iter().enumerate().filter(|(_, op)| op.produces() == Some(value));
        witnesses.extend(writers.map(|(place, _)| place));
    }
    witnesses.sort_unstable();
    witnesses.dedup();
    Failure { reason, witnesses }
}
