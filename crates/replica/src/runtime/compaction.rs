//! Compactions that RocksDB does not choose: whole ones that an operator has ordered, and those that a tablet asks for (`Tablet::compact_due`).
//!
//! One thread, one tablet at a time; what merges runs at lower priority than requests: a whole compaction takes the space of its tablet twice.
//!
//! Always true: a tablet that is closed meanwhile is passed over; an order that comes while another one is carried out begins anew. Left out: remembering an order
//! over a restart.

use crate::lifecycle::replicas::NodeReplicas;
use diorite_base::TabletId;
use diorite_storage::Tablet;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// How often tablets are asked what is due.
const LOOK: Duration = Duration::from_secs(1);

/// How the last order gets on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStatus {
    /// It is under way.
    pub is_running: bool,
    /// Tablets that are done, and how many there were when it began.
    pub tablets_done: usize,
    /// See `tablets_done`.
    pub tablets: usize,
}

#[derive(Default)]
struct State {
    closed: bool,
    is_ordered: bool,
    status: CompactionStatus,
}

/// What the thread and those who order something share.
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

    /// Compacts everything, from the beginning.
    pub(crate) fn order(&self) {
        let mut state = self.state.lock();
        state.is_ordered = true;
        // Whoever asks how it gets on must not find the last one.
        state.status = CompactionStatus { is_running: true, ..CompactionStatus::default() };
        self.changed.notify_all();
    }

    pub(crate) fn status(&self) -> CompactionStatus {
        self.state.lock().status
    }

    /// Waits for an order; whether there is one. `None` when the store is closing.
    fn next(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if !state.closed && !state.is_ordered {
            self.changed.wait_for(&mut state, LOOK);
        }
        (!state.closed).then(|| std::mem::take(&mut state.is_ordered))
    }

    /// Notes how far it is; false if it is to end.
    fn advance(&self, done: usize, tablets: usize) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.is_ordered {
            return false;
        }
        state.status = CompactionStatus { is_running: done < tablets, tablets_done: done, tablets };
        true
    }
}

/// The tablets that are open. Whoever has one's data keeps it from being closed, so it is asked for one at a time.
pub(crate) trait OpenTablets {
    /// Their ids.
    fn ids(&self) -> Vec<TabletId>;
    /// The data of one of them.
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
