//! Votes of replicas that have lost entries which they acknowledged, and when a candidate may count them.
//!
//! Such a replica may have helped to commit entries that it no longer holds, so its vote does not show that the candidate
//! holds them. It gives a *conditional vote*. A candidate counts these once it has the votes of at least half of the voters
//! without them, its own included: no majority is possible without one of these voters, so they alone show that the
//! candidate holds everything that was committed. The conditional votes only complete the majority. In a joint
//! configuration half of the outgoing set is needed. If the candidate's log holds the next change of members, which may
//! be committed, half of the other set is needed as well: that set may have decided alone since.
//!
//! Always true: a conditional vote is recorded like any other before it is sent, so that a replica votes once in a term.
//! On the wire it is a refusal, whose `log_term`, otherwise 0, is the term of the vote: earlier programs do not count it.
//! `docs/decisions/2026-11-26-conditional-votes.md` has the argument.

use raft::eraftpb::{ConfState, Message, MessageType};
use std::collections::BTreeSet;

/// The kind of the answers that a candidate waits for, and their term.
pub(crate) type Round = (MessageType, u64);

pub(crate) fn is_vote(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse)
}

/// Whether the message is a conditional vote.
pub fn is_conditional_vote(message: &Message) -> bool {
    is_vote(message) && message.reject && message.log_term != 0
}

/// Makes a vote conditional; refusals stay as they are. `term`: that of the replica that votes.
pub(crate) fn make_conditional(vote: &mut Message, term: u64) {
    if is_vote(vote) && !vote.reject {
        (vote.reject, vote.log_term, vote.term) = (true, vote.term, term);
    }
}

/// The vote that a conditional vote becomes when it is counted.
fn counted(mut vote: Message) -> Message {
    (vote.reject, vote.term, vote.log_term) = (false, vote.log_term, 0);
    (vote.commit, vote.commit_term) = (0, 0);
    vote
}

fn round_of(vote: &Message) -> Round {
    (vote.get_msg_type(), vote.term)
}

/// The votes that a candidate has received in a round.
#[derive(Debug, Default)]
pub(crate) struct Votes {
    round: Option<Round>,
    /// The other replicas that have voted without a condition.
    whole: BTreeSet<u64>,
    /// Conditional votes that are not counted yet.
    held: Vec<Message>,
}

impl Votes {
    /// Takes an answer to a request for a vote; `awaited` is the candidate's round. Returns what counts at once.
    pub(crate) fn take(&mut self, answer: Message, awaited: Option<Round>) -> Option<Message> {
        let is_conditional = is_conditional_vote(&answer);
        let vote = if is_conditional { counted(answer) } else { answer };
        if !vote.reject && awaited == Some(round_of(&vote)) {
            self.begin(round_of(&vote));
            if is_conditional {
                self.held.push(vote);
                return None;
            }
            self.whole.insert(vote.from);
        }
        (!is_conditional).then_some(vote)
    }

    fn begin(&mut self, round: Round) {
        if self.round != Some(round) {
            *self = Self { round: Some(round), ..Self::default() };
        }
    }

    /// Whether there are conditional votes that are not counted yet.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The conditional votes that may be counted now. `candidate` has voted for itself, and holds what it has
    /// acknowledged. `may_have_changed`: its log holds a further change of these members.
    pub(crate) fn countable(
        &mut self,
        candidate: u64,
        awaited: Option<Round>,
        members: &ConfState,
        may_have_changed: bool,
    ) -> Vec<Message> {
        let is_whole = |voter: &&u64| **voter == candidate || self.whole.contains(voter);
        let has_half = |voters: &[u64]| 2 * voters.iter().filter(is_whole).count() >= voters.len();
        let is_joint = !members.voters_outgoing.is_empty();
        let has_halves =
            has_half(&members.voters_outgoing) && (has_half(&members.voters) || (is_joint && !may_have_changed));
        if self.round.is_none() || self.round != awaited || !has_halves {
            return Vec::new();
        }
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Round = (MessageType::MsgRequestVoteResponse, 7);

    fn vote(from: u64, is_conditional: bool) -> Message {
        let mut vote = Message { from, term: ROUND.1, ..Message::default() };
        vote.set_msg_type(ROUND.0);
        if is_conditional {
            make_conditional(&mut vote, 5);
        }
        vote
    }

    fn members(voters: &[u64], outgoing: &[u64]) -> ConfState {
        ConfState { voters: voters.to_vec(), voters_outgoing: outgoing.to_vec(), ..ConfState::default() }
    }

    /// Whether replica 1 may count the vote of replica 2 if these others have voted without a condition: while its log
    /// holds no further change of members, and while it does.
    fn counts(whole: &[u64], voters: &[u64], outgoing: &[u64]) -> [bool; 2] {
        [false, true].map(|may_have_changed| {
            let mut votes = Votes::default();
            assert_eq!(votes.take(vote(2, true), Some(ROUND)), None);
            for voter in whole {
                let vote = vote(*voter, false);
                assert_eq!(votes.take(vote.clone(), Some(ROUND)), Some(vote), "counts at once");
            }
            let members = members(voters, outgoing);
            let counted = votes.countable(1, Some(ROUND), &members, may_have_changed);
            assert!(counted.is_empty() || counted == [vote(2, false)]);
            assert!(votes.countable(1, Some(ROUND), &members, may_have_changed).is_empty(), "they are counted once");
            !counted.is_empty()
        })
    }

    #[test]
    fn conditional_votes_count_once_no_majority_is_possible_without_the_others() {
        assert_eq!(counts(&[], &[1, 2], &[]), [true; 2]);
        assert_eq!(counts(&[3], &[1, 2, 3, 4], &[]), [true; 2]);
        assert_eq!(counts(&[], &[1, 2, 3], &[]), [false; 2], "2 and 3 may have committed something");
        assert_eq!(counts(&[], &[1, 2, 3, 4], &[]), [false; 2], "so may 2, 3 and 4");
        assert_eq!(counts(&[4], &[1, 2, 3], &[]), [false; 2], "4 is no voter");
    }

    #[test]
    fn in_a_joint_configuration_half_of_the_outgoing_voters_and_of_the_others_once_they_may_decide_alone() {
        assert_eq!(counts(&[], &[1, 2], &[1]), [true; 2], "from one voter to two");
        assert_eq!(counts(&[3], &[1, 2], &[1, 2, 3]), [true; 2], "from three to two");
        assert_eq!(counts(&[], &[2], &[1]), [true, false], "2 may have committed something since");
        assert_eq!(counts(&[], &[1, 2, 3], &[1]), [true, false], "so may 2 and 3");
        assert_eq!(counts(&[], &[1, 2], &[1, 2, 3]), [false; 2], "2 and 3 may have committed something before");
    }

    #[test]
    fn votes_of_another_round_and_refusals_are_not_collected() {
        let mut votes = Votes::default();
        let later = Some((ROUND.0, ROUND.1 + 1));
        votes.take(vote(2, true), Some(ROUND));
        assert!(votes.countable(1, later, &members(&[1, 2], &[]), false).is_empty());
        votes.take(vote(3, false), later);
        votes.take(vote(2, true), None);
        let refusal = Message { reject: true, ..vote(2, false) };
        assert_eq!(votes.take(refusal.clone(), Some(ROUND)), Some(refusal));
        assert_eq!(votes.countable(1, Some(ROUND), &members(&[1, 2], &[]), false).len(), 1, "the first one");
        votes.take(vote(2, true), Some(ROUND));
        let pre_vote = (MessageType::MsgRequestPreVoteResponse, ROUND.1);
        let mut other = vote(3, false);
        other.set_msg_type(pre_vote.0);
        votes.take(other, Some(pre_vote));
        assert!(
            votes.countable(1, Some(pre_vote), &members(&[1, 2], &[]), false).is_empty(),
            "a new round begins without votes"
        );
    }
}
