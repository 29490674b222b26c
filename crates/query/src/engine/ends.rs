//! The ends of a transaction at its participants, of which its coordinator learns beside all else.
//!
//! Once the client can be answered nobody waits for them, so there is no task that does: their answers come to a sink.
//!
//! Always true: `ended` is called once, when all of them have finished. It is called by whoever brings the last answer, a
//! store thread perhaps, so it must not wait. Nobody waits for an end that fails: the home's leader finishes what is
//! left. Left out: what is sent, and what is done when all have finished ([`super::transaction`]).

use diorite_base::write::{Completion, WriteReply, WriteSink};
use diorite_transact::TransactionId;
use diorite_transact::message::Reply;
use diorite_transact::wire::Answer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Ends<F> {
    id: TransactionId,
    /// How many participants have not finished.
    left: AtomicUsize,
    ended: F,
}

/// Takes the answers of so many participants of a transaction.
pub(super) fn ends(
    id: TransactionId,
    participants: usize,
    ended: impl Fn() + Send + Sync + 'static,
) -> Arc<dyn WriteSink> {
    Arc::new(Ends { id, left: AtomicUsize::new(participants), ended })
}

/// Takes an answer that nobody waits for.
pub(super) fn unheard(id: TransactionId) -> Arc<dyn WriteSink> {
    ends(id, 0, || {})
}

fn is_end(reply: &WriteReply, of: TransactionId) -> bool {
    matches!(Answer::decode(reply), Ok(Answer::Reply { reply: Reply::Finished(id), .. }) if id == of)
}

impl<F: Fn() + Send + Sync> WriteSink for Ends<F> {
    fn complete(&self, done: &mut Vec<Completion>) {
        for (_, outcome) in done.drain(..) {
            let is_end = outcome.is_ok_and(|reply| is_end(&reply, self.id));
            if is_end && self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                (self.ended)();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::KvError;
    use diorite_base::TabletId;

    const ID: TransactionId = TransactionId { tablet: TabletId(7), term: 1, number: 1 };

    fn finished(id: TransactionId) -> Completion {
        (0, Ok(Answer::plain(Reply::Finished(id)).encode()))
    }

    #[test]
    fn a_transaction_has_ended_when_all_its_participants_have_said_so() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let sink = ends(ID, 2, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let mut done = vec![finished(ID), (0, Err(KvError::Unavailable(TabletId(8))))];
        sink.complete(&mut done);
        assert!(done.is_empty());
        let other = finished(TransactionId { number: 2, ..ID });
        sink.complete(&mut vec![other, (0, Ok(Answer::Done.encode())), (0, Ok(Vec::new()))]);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        sink.complete(&mut vec![finished(ID)]);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        unheard(ID).complete(&mut vec![(0, Ok(Answer::Done.encode()))]);
    }
}
