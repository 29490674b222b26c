//! A single write with a future for its outcome.

use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A sink for one write, whose outcome goes to a future.
struct OneWrite(Mutex<Option<oneshot::Sender<Result<WriteReply, KvError>>>>);

impl WriteSink for OneWrite {
    fn complete(&self, done: &mut Vec<Completion>) {
        for (_, outcome) in done.drain(..) {
            if let Some(waiting) = self.0.lock().take() {
                // The receiver may be gone (its connection is closed); the write stands.
                let _ = waiting.send(outcome);
            }
        }
    }
}

/// A sink for one write, and the future of its outcome. The future fails if the sink is dropped without an outcome.
pub(crate) fn one_write() -> (Arc<dyn WriteSink>, oneshot::Receiver<Result<WriteReply, KvError>>) {
    let (sender, receiver) = oneshot::channel();
    (Arc::new(OneWrite(Mutex::new(Some(sender)))), receiver)
}
