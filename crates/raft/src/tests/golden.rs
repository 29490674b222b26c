//! The golden bytes of changes of a group's members.

use crate::MemberChange;
use diorite_base::Levels;
use diorite_golden::{Decoded, Golden, kinds};
use protobuf::Message as _;
use raft::eraftpb::ConfChangeV2;

kinds!(CHANGES, kind_of(MemberChange): AddLearner, RemoveLearner, EnterJoint, LeaveJoint);

#[test]
fn changes_of_members_have_their_bytes() {
    let changes = [
        ("add a learner", MemberChange::AddLearner(4)),
        ("remove a learner", MemberChange::RemoveLearner(4)),
        ("enter a joint configuration", MemberChange::EnterJoint { add: vec![4], demote: vec![3], remove: vec![1, 2] }),
        ("leave a joint configuration", MemberChange::LeaveJoint),
    ];
    let kinds: Vec<_> = changes.iter().map(|(_, change)| kind_of(change)).collect();
    assert_eq!(kinds, CHANGES);
    let written = changes.map(|(name, change)| (name, change.encode().write_to_bytes().unwrap()));
    Golden { level: Levels::OWN.greatest.0, format: "member-changes", kinds: &[] }.check(&written, |_, bytes| {
        let change = ConfChangeV2::parse_from_bytes(bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{change:?}"), encoded: Some(change.write_to_bytes().unwrap()) }
    });
}
