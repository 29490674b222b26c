//! Chooses which replica moves to which disk of its node, so that no disk fills while another has space.
//!
//! Always true: a move brings the two disks nearer to each other without changing which is fuller, so moves end. Left
//! out: the load of disks, for which bytes are the measure.

use diorite_base::TabletId;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How far apart the used shares of two disks may be before a replica moves.
const UNEVEN: f64 = 0.1;
/// Replicas smaller than this, or than this share of the bytes that would have to move, do not move.
const LEAST_BYTES: f64 = (1 << 20) as f64;
const LEAST_SHARE: f64 = 0.01;
/// The usage of a disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
    /// Whether it has not failed.
    pub(crate) works: bool,
}

impl Usage {
    fn used(&self) -> f64 {
        1.0 - self.free_bytes as f64 / self.total_bytes.max(1) as f64
    }
}

/// The working disks, fullest first, and the emptiest of them.
fn by_use(disks: &[Usage]) -> Option<(Vec<usize>, usize)> {
    let mut working: Vec<usize> =
        (0..disks.len()).filter(|at| disks[*at].works && disks[*at].total_bytes > 0).collect();
    working.sort_by(|a, b| disks[*b].used().total_cmp(&disks[*a].used()));
    let emptiest = working.pop()?;
    Some((working, emptiest))
}

/// Whether two disks differ so much that a replica should move.
pub(crate) fn are_uneven(disks: &[Usage]) -> bool {
    let apart = |(fuller, emptiest): (Vec<usize>, usize)| {
        fuller.first().is_some_and(|fullest| disks[*fullest].used() - disks[emptiest].used() >= UNEVEN)
    };
    by_use(disks).is_some_and(apart)
}

/// A replica that may move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replica {
    pub(crate) tablet: TabletId,
    pub(crate) disk: usize,
    pub(crate) bytes: u64,
}

/// The next replica to move, and its new disk.
pub(crate) fn choose(disks: &[Usage], replicas: &[Replica], reserve_bytes: u64) -> Option<(TabletId, usize)> {
    let (fuller, to) = by_use(disks)?;
    let room_bytes = disks[to].free_bytes.saturating_sub(reserve_bytes);
    for from in fuller {
        let apart = disks[from].used() - disks[to].used();
        if apart < UNEVEN {
            return None;
        }
        // The bytes that would make the two equal. The largest replica of at most that size moves: that takes the
        // fewest moves.
        let even_bytes = apart / (1.0 / disks[from].total_bytes as f64 + 1.0 / disks[to].total_bytes as f64);
        let least_bytes = LEAST_BYTES.max(even_bytes * LEAST_SHARE);
        let fits = |bytes: u64| (least_bytes..=even_bytes).contains(&(bytes as f64)) && bytes <= room_bytes;
        let candidates = replicas.iter().filter(|replica| replica.disk == from && fits(replica.bytes));
        if let Some(largest) = candidates.max_by_key(|replica| (replica.bytes, std::cmp::Reverse(replica.tablet))) {
            return Some((largest.tablet, to));
        }
    }
    None
}

/// State of the thread that moves replicas: whether it is to end, whether moves are paused, and which replicas to open
/// again.
#[derive(Default)]
pub(crate) struct DiskMoves {
    closed: Mutex<bool>,
    changed: Condvar,
    is_paused: AtomicBool,
    /// The replicas to open again where they are.
    renewals: Mutex<BTreeSet<TabletId>>,
}

impl DiskMoves {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// Asks for a replica to be opened again, because the options of its files have changed.
    pub(crate) fn renew(&self, tablet: TabletId) {
        self.renewals.lock().insert(tablet);
        self.changed.notify_all();
    }

    /// The next replica that is to be opened again.
    pub(crate) fn next_renewal(&self) -> Option<TabletId> {
        self.renewals.lock().pop_first()
    }

    /// Asks for these replicas to be opened again after the next wait.
    pub(crate) fn renew_later(&self, tablets: Vec<TabletId>) {
        self.renewals.lock().extend(tablets);
    }

    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Waits; false when the store is closing.
    pub(crate) fn wait(&self, period: Duration) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.changed.wait_for(&mut closed, period);
        }
        !*closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    fn disk(free_gb: u64, total_gb: u64) -> Usage {
        Usage { free_bytes: free_gb * GB, total_bytes: total_gb * GB, works: true }
    }

    fn replica(id: u64, at: usize, gb: u64) -> Replica {
        Replica { tablet: TabletId(id), disk: at, bytes: gb * GB }
    }

    /// Carries out moves until none is chosen; returns the tablets that moved.
    fn move_all(disks: &mut [Usage], replicas: &mut [Replica]) -> Vec<u64> {
        let mut moved = Vec::new();
        while let Some((tablet, to)) = choose(disks, replicas, GB) {
            assert!(moved.len() < 100, "moves end");
            let moving = replicas.iter_mut().find(|replica| replica.tablet == tablet).expect("one of them");
            disks[moving.disk].free_bytes += moving.bytes;
            disks[to].free_bytes -= moving.bytes;
            moving.disk = to;
            moved.push(tablet.0);
        }
        moved
    }

    #[test]
    fn an_added_disk_takes_its_share_in_the_fewest_moves() {
        let mut disks = [disk(20, 100), disk(200, 200)];
        let mut replicas: Vec<_> = (0..8).map(|id| replica(id, 0, 10)).collect();
        assert_eq!(move_all(&mut disks, &mut replicas), [0, 1, 2, 3, 4]);
        // 30 of 100 and 50 of 200: moving more would change which of them is fuller.
        assert!((disks[0].used() - disks[1].used()).abs() < UNEVEN);
    }

    #[test]
    fn what_is_even_enough_or_too_big_to_help_stays() {
        assert_eq!(choose(&[disk(50, 100), disk(59, 100)], &[replica(1, 0, 4)], GB), None);
        // Moving the only tablet would make the other disk the fuller one.
        assert_eq!(choose(&[disk(40, 100), disk(100, 100)], &[replica(1, 0, 60)], GB), None);
        // Nothing of this node is on the full disk, or only tiny replicas.
        assert_eq!(
            choose(
                &[disk(10, 100), disk(90, 100)],
                &[Replica { bytes: 4_096, ..replica(1, 0, 0) }, replica(2, 1, 5)],
                GB
            ),
            None
        );
        assert_eq!(choose(&[disk(10, 100)], &[replica(1, 0, 4)], GB), None);
    }

    #[test]
    fn a_failed_disk_and_one_without_room_take_no_part() {
        let failed = Usage { works: false, ..disk(100, 100) };
        assert_eq!(choose(&[disk(10, 100), failed], &[replica(1, 0, 4)], GB), None);
        assert_eq!(choose(&[disk(0, 10), disk(3, 10)], &[replica(1, 0, 1)], 3 * GB), None);
    }

    #[test]
    fn the_next_fullest_disk_is_relieved_where_the_fullest_holds_nothing_that_can_move() {
        let disks = [disk(1, 100), disk(20, 100), disk(90, 100)];
        assert_eq!(choose(&disks, &[replica(7, 1, 5), replica(8, 1, 6)], GB), Some((TabletId(8), 2)));
    }
}
