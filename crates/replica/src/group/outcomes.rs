//! Outcomes of a round of a turn.

use crate::group::proposal::Waiter;
use ahash::AHashMap;
use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use std::sync::Arc;

/// The most buffers that are kept.
const MAX_SPARE: usize = 256;

/// The most outcomes that one of them has room for: a connection keeps the buffer that it is given, however few its
/// outcomes are.
const MAX_SPARE_OUTCOMES: usize = 8;

/// Outcomes of a round of a turn, grouped by sink so that each sink is woken once, in the order of their first outcomes.
#[derive(Default)]
pub(crate) struct Outcomes {
    places: AHashMap<usize, usize>,
    by_sink: Vec<(Arc<dyn WriteSink>, Vec<Completion>)>,
    /// Empty buffers of earlier rounds: most sinks are of one write.
    spare: Vec<Vec<Completion>>,
}

impl Outcomes {
    pub(crate) fn push(&mut self, waiter: Waiter, outcome: Result<WriteReply, KvError>) {
        let address = Arc::as_ptr(&waiter.sink).cast::<()>() as usize;
        let place = *self.places.entry(address).or_insert(self.by_sink.len());
        if place == self.by_sink.len() {
            self.by_sink.push((waiter.sink, self.spare.pop().unwrap_or_default()));
        }
        self.by_sink[place].1.push((waiter.token, outcome));
    }

    /// Adds the same error for several waiters.
    pub(crate) fn fail(&mut self, waiters: impl IntoIterator<Item = Waiter>, error: &KvError) {
        waiters.into_iter().for_each(|waiter| self.push(waiter, Err(error.clone())));
    }

    /// Delivers all outcomes to their sinks.
    pub(crate) fn deliver(&mut self) {
        self.places.clear();
        for (sink, mut done) in self.by_sink.drain(..) {
            sink.complete(&mut done);
            done.clear();
            if (1..=MAX_SPARE_OUTCOMES).contains(&done.capacity()) && self.spare.len() < MAX_SPARE {
                self.spare.push(done);
            }
        }
    }
}
