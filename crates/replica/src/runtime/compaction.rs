//! Compactions that RocksDB does not choose: whole compactions that an operator has ordered, and those that a tablet
//! asks for (`Tablet::compact_due`).
//!
//! One thread compacts one tablet at a time, since a compaction of a whole tablet needs its space twice. The threads
//! that merge run at lower priority than requests.
//!
//! Always true: a tablet that is closed meanwhile is skipped; a new order during a compaction of everything begins it
//! anew. Left out: remembering an order over a restart.

use crate::lifecycle::replicas::NodeReplicas;
use diorite_base::TabletId;
use diorite_storage::Tablet;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// How often tablets are asked whether a compaction is due.
const LOOK: Duration = Duration::from_secs(1);

/// The progress of the last order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStatus {
    /// Whether the order is being carried out.
    pub is_running: bool,
    /// The number of tablets that are compacted.
    pub tablets_done: usize,
    /// The number of tablets when the order began.
    pub tablets: usize,
}

#[derive(Default)]
struct State {
    closed: bool,
    is_ordered: bool,
    status: CompactionStatus,
}

/// The state that the thread shares with those who give orders.
#[derive(Default)]
pub(crate) struct Compactions {
    state: Mutex<State>,
    changed: Condvar,
}

impl Compactions {
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Orders a compaction of all tablets, from the beginning.
    pub(crate) fn order(&self) {
        let mut state = self.state.lock();
        state.is_ordered = true;
        // The status must show this order from now on, not the last one.
        state.status = CompactionStatus { is_running: true, ..CompactionStatus::default() };
        self.changed.notify_all();
    }

    pub(crate) fn status(&self) -> CompactionStatus {
        self.state.lock().status
    }

    /// Waits for an order for a while; returns whether there is one. `None` when the store is closing.
    fn next(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if !state.closed && !state.is_ordered {
            self.changed.wait_for(&mut state, LOOK);
        }
        (!state.closed).then(|| std::mem::take(&mut state.is_ordered))
    }

    /// Notes the progress; returns false if the compaction is to end.
    fn advance(&self, done: usize, tablets: usize) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.is_ordered {
            return false;
        }
        state.status = CompactionStatus { is_running: done < tablets, tablets_done: done, tablets };
        true
    }
}

/// The open tablets. A tablet cannot be closed while its data is in use, so one is used at a time.
pub(crate) trait OpenTablets {
    /// The ids of all open tablets.
    fn ids(&self) -> Vec<TabletId>;
    /// The data of an open tablet.
    fn data(&self, tablet: TabletId) -> Option<Arc<Tablet>>;
}

impl OpenTablets for NodeReplicas {
    fn ids(&self) -> Vec<TabletId> {
        self.tablets.load().keys().copied().collect()
    }

    fn data(&self, tablet: TabletId) -> Option<Arc<Tablet>> {
        self.tablets.load().get(&tablet).map(|handle| Arc::clone(&handle.data))
    }
}

/// Runs until the store closes.
pub(crate) fn run(compactions: &Compactions, open: &impl OpenTablets) {
    while let Some(is_ordered) = compactions.next() {
        if is_ordered {
            compact_all(compactions, open);
        } else {
            compact_due(open);
        }
    }
}

fn compact_all(compactions: &Compactions, open: &impl OpenTablets) {
    let mut tablets = open.ids();
    tablets.sort_unstable();
    for (done, tablet) in tablets.iter().enumerate() {
        if !compactions.advance(done, tablets.len()) {
            return;
        }
        let Some(data) = open.data(*tablet) else { continue };
        match data.flush(true) {
            Ok(()) => data.compact(),
            Err(error) => tracing::warn!(%tablet, %error, "a tablet that is to be compacted could not be flushed"),
        }
    }
    compactions.advance(tablets.len(), tablets.len());
}

fn compact_due(open: &impl OpenTablets) {
    for tablet in open.ids() {
        if let Some(Err(error)) = open.data(tablet).map(|data| data.compact_due()) {
            tracing::warn!(%tablet, %error, "a tablet could not be compacted");
        }
    }
}
