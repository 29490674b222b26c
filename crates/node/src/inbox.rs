//! Where a connection's completed writes arrive.

use diorite_base::write::{Completion, WriteSink};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Completed writes of one connection, waiting for its task.
#[derive(Default)]
pub(crate) struct Inbox {
    done: Mutex<Vec<Completion>>,
    arrived: Notify,
}

impl WriteSink for Inbox {
    fn complete(&self, done: &mut Vec<Completion>) {
        let mut waiting = self.done.lock();
        if waiting.is_empty() {
            std::mem::swap(&mut *waiting, done);
        } else {
            waiting.append(done);
        }
        drop(waiting);
        self.arrived.notify_one();
    }
}

impl Inbox {
    /// Moves what has arrived into `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut Vec<Completion>) {
        std::mem::swap(&mut *self.done.lock(), into);
    }

    /// Waits until something has arrived.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}
