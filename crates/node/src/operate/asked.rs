//! The questions to other nodes that wait for answers.
//!
//! Always true: a question is here from before it is sent until it is answered, until whoever asks stops waiting, or until
//! a connection ends that it or its answer may have been lost with.

use ahash::{AHashMap, AHashSet};
use diorite_admin::api::{Failure, FailureKind};
use diorite_base::NodeId;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

type Answer = Result<Value, Failure>;

struct Waiting {
    node: NodeId,
    answer: oneshot::Sender<Answer>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    waiting: AHashMap<u64, Waiting>,
    /// Nodes that have no connection on which their answers could arrive.
    cannot_answer: AHashSet<NodeId>,
}

/// See the top of this module.
#[derive(Default)]
pub(super) struct Questions(Mutex<State>);

/// A question that waits for its answer. Whoever asks may stop waiting: the request of a client that reads a trace ends
/// with its time, or with its connection.
pub(super) struct OpenQuestion<'a> {
    questions: &'a Questions,
    pub(super) id: u64,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.questions.0.lock().waiting.remove(&self.id);
    }
}

impl Questions {
    /// A question that is about to be sent to a node; `None` if the node could not answer.
    pub(super) fn open(&self, node: NodeId) -> Option<(OpenQuestion<'_>, oneshot::Receiver<Answer>)> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.0.lock();
        if state.cannot_answer.contains(&node) {
            return None;
        }
        state.next_id += 1;
        let id = state.next_id;
        state.waiting.insert(id, Waiting { node, answer });
        Some((OpenQuestion { questions: self, id }, answered))
    }

    /// Removes a question that a node has answered; returns the sender for the answer.
    pub(super) fn answered(&self, id: u64) -> Option<oneshot::Sender<Answer>> {
        self.0.lock().waiting.remove(&id).map(|waiting| waiting.answer)
    }

    /// Whether a node's answers can arrive from now on.
    pub(super) fn set_can_answer(&self, node: NodeId, can_answer: bool) {
        let mut state = self.0.lock();
        if can_answer {
            state.cannot_answer.remove(&node)
        } else {
            state.cannot_answer.insert(node)
        };
    }

    /// A connection to or from a node has ended: ends its questions. Those of `unsent` were certainly not sent.
    pub(super) fn disconnected(&self, node: NodeId, unsent: &[u64]) {
        let ended: Vec<(u64, Waiting)> = {
            let mut state = self.0.lock();
            let of_node = state.waiting.iter().filter(|(_, waiting)| waiting.node == node);
            let ids: Vec<u64> = of_node.map(|(id, _)| *id).collect();
            ids.into_iter().filter_map(|id| Some((id, state.waiting.remove(&id)?))).collect()
        };
        for (id, Waiting { answer, .. }) in ended {
            let kind = if unsent.contains(&id) { FailureKind::NotBegun } else { FailureKind::Unavailable };
            // The asking task may have given up.
            let _ = answer.send(Err(Failure::new(kind, format!("the connection with node {node} has ended"))));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn questions_end_with_a_connection_and_say_whether_they_were_sent() {
        let (questions, one, other) = (Questions::default(), NodeId(1), NodeId(2));
        let (_sent, mut of_sent) = questions.open(one).unwrap();
        let (unsent, mut of_unsent) = questions.open(one).unwrap();
        let (elsewhere, mut of_elsewhere) = questions.open(other).unwrap();
        questions.disconnected(one, &[unsent.id]);
        assert_eq!(of_sent.try_recv().unwrap().unwrap_err().kind, FailureKind::Unavailable);
        assert_eq!(of_unsent.try_recv().unwrap().unwrap_err().kind, FailureKind::NotBegun);
        assert!(questions.answered(unsent.id).is_none(), "an answer that comes late is for nobody");
        questions.answered(elsewhere.id).unwrap().send(Ok(Value::Null)).unwrap();
        assert_eq!(of_elsewhere.try_recv().unwrap().unwrap(), Value::Null);
    }

    #[test]
    fn a_node_whose_answers_cannot_arrive_is_not_asked() {
        let (questions, node) = (Questions::default(), NodeId(1));
        questions.set_can_answer(node, false);
        assert!(questions.open(node).is_none());
        questions.set_can_answer(node, true);
        assert!(questions.open(node).is_some());
    }
}
