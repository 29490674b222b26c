//! A single write that somebody awaits.

use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A sink for one write that somebody awaits.
struct OneWrite(Mutex<Option<oneshot::Sender<Result<WriteReply, KvError>>>>);

impl WriteSink for OneWrite {
    fn complete(&self, done: &mut Vec<Completion>) {
        for (_, outcome) in done.drain(..) {
            if let Some(waiting) = self.0.lock().take() {
                // Whoever waited may be gone (the connection closed); the write stands.
                let _ = waiting.send(outcome);
            }
        }
    }
}

/// A sink for one write, and its outcome. The outcome fails if the sink is dropped unanswered.
pub(crate) fn one_write() -> (Arc<dyn WriteSink>, oneshot::Receiver<Result<WriteReply, KvError>>) {
    let (sender, receiver) = oneshot::channel();
    (Arc::new(OneWrite(Mutex::new(Some(sender)))), receiver)
}
