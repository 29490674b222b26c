//! Receives a connection's completed writes.
//!
//! Always true: the inbox lives until all writes of its connection are completed, and with it the charge for these
//! writes, even if the client is gone.

use diorite_base::account::{Account, Meter};
use diorite_base::write::{Completion, WriteSink};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

/// Completed writes of one connection, waiting for its task.
pub(crate) struct Inbox {
    done: Mutex<Vec<Completion>>,
    arrived: Notify,
    /// The memory of writes that are not answered yet.
    pub(crate) meter: Meter,
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
    /// The inbox of a connection whose writes are charged to `account`.
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self { done: Mutex::default(), arrived: Notify::new(), meter: Meter::shared(account) }
    }

    /// Moves the completed writes to `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut Vec<Completion>) {
        std::mem::swap(&mut *self.done.lock(), into);
    }

    /// Waits until a write has been completed.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn writes_stay_charged_after_their_connection_is_gone() {
        let account = Account::root("all requests", 1 << 20);
        let connection = account.child("one connection", 1 << 20);
        let inbox = Arc::new(Inbox::new(&connection));
        inbox.meter.take(100_000).unwrap();
        let waits = Arc::clone(&inbox) as Arc<dyn WriteSink>;
        drop((inbox, connection));
        assert!(account.used_bytes() >= 100_000);
        drop(waits);
        assert_eq!(account.used_bytes(), 0);
    }
}
