//! Who votes in a group, as its log alone says: for whoever cannot read the data in which that is kept.
//!
//! Always true: while two sets decide together, both count. Left out: learners, and whether an entry is committed: only such are to be given.

use protobuf::Message as _;
use raft::eraftpb::{ConfChange, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType};
use std::collections::BTreeSet;

/// The voters of a group, from its first ones on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedVoters {
    incoming: BTreeSet<u64>,
    outgoing: BTreeSet<u64>,
}

impl LoggedVoters {
    /// Those before the first of the entries that follow.
    pub fn new(before: &ConfState) -> Self {
        Self {
            incoming: before.voters.iter().copied().collect(),
            outgoing: before.voters_outgoing.iter().copied().collect(),
        }
    }

    /// Takes the next committed entry.
    ///
    /// # Errors
    /// If it is a change of the members that cannot be decoded.
    pub fn take(&mut self, entry: &Entry) -> Result<(), protobuf::ProtobufError> {
        match entry.get_entry_type() {
            EntryType::EntryNormal => {}
            EntryType::EntryConfChange => {
                let change = ConfChange::parse_from_bytes(&entry.data)?;
                self.change(change.get_change_type(), change.node_id);
            }
            EntryType::EntryConfChangeV2 => {
                let change = ConfChangeV2::parse_from_bytes(&entry.data)?;
                self.change_all(&change);
            }
        }
        Ok(())
    }

    fn change_all(&mut self, change: &ConfChangeV2) {
        if change.changes.is_empty() {
            self.outgoing.clear();
        } else if change.changes.len() > 1 || change.get_transition() != ConfChangeTransition::Auto {
            self.outgoing = self.incoming.clone();
        }
        change.changes.iter().for_each(|change| self.change(change.get_change_type(), change.node_id));
    }

    fn change(&mut self, kind: ConfChangeType, replica: u64) {
        match kind {
            ConfChangeType::AddNode => self.incoming.insert(replica),
            ConfChangeType::RemoveNode | ConfChangeType::AddLearnerNode => self.incoming.remove(&replica),
        };
    }

    /// Whether another than this one votes.
    pub fn has_other_than(&self, replica: u64) -> bool {
        self.incoming.union(&self.outgoing).any(|voter| *voter != replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::MemberChange;

    #[test]
    fn a_log_says_whether_others_vote() {
        let mut voters = LoggedVoters::new(&ConfState { voters: vec![1], ..ConfState::default() });
        assert!(!voters.has_other_than(1) && voters.has_other_than(3));
        let joint = |add: &[u64], remove: &[u64]| MemberChange::EnterJoint {
            add: add.to_vec(),
            demote: Vec::new(),
            remove: remove.to_vec(),
        };
        let changes = [
            (MemberChange::AddLearner(2), false),
            (joint(&[2], &[]), true),
            (MemberChange::LeaveJoint, true),
            // Until the change is over, the other one decides as well.
            (joint(&[], &[2]), true),
            (MemberChange::LeaveJoint, false),
        ];
        for (change, has_other) in changes {
            let data = change.encode().write_to_bytes().expect("a change is encoded").into();
            let entry = Entry { entry_type: EntryType::EntryConfChangeV2, data, ..Entry::default() };
            voters.take(&entry).expect("own encoding");
            assert_eq!(voters.has_other_than(1), has_other, "{change:?}");
        }
        assert!(voters.take(&Entry::default()).is_ok());
    }
}
