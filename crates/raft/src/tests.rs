//! Groups of one voter and of several: nothing is committed before it is durable, and a group continues after a
//! restart.
#![allow(clippy::unwrap_used, reason = "tests")]

mod golden;
mod script;

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// A log that is durable when `persisted` is called.
#[derive(Clone, Default)]
struct TestLog {
    entries: Rc<RefCell<Vec<Entry>>>,
}

impl LogReader for TestLog {
    fn entries(&self, low: u64, high: u64, _: u64) -> Result<Vec<Entry>, LogReadError> {
        Ok(self.entries.borrow().iter().filter(|entry| (low..high).contains(&entry.index)).cloned().collect())
    }
}

fn options() -> GroupOptions {
    GroupOptions { replica: 1, announces_commits: true }
}

fn recovered() -> Recovered {
    Recovered { conf_state: ConfState { voters: vec![1], ..ConfState::default() }, ..Recovered::default() }
}

/// Runs turns until there is nothing left to do; returns the committed data.
fn drive(group: &mut Group<TestLog>, log: &TestLog, hard_state: &mut HardState) -> Vec<Vec<u8>> {
    let mut committed = Vec::new();
    while let Some(mut step) = group.ready() {
        log.entries.borrow_mut().extend(step.entries.iter().cloned());
        if let Some(state) = &step.hard_state {
            *hard_state = state.clone();
        }
        let mut entries = std::mem::take(&mut step.committed);
        entries.extend(group.persisted(step).0);
        if let Some(last) = entries.last() {
            group.applied(last.index);
        }
        committed.extend(entries.into_iter().map(|entry| entry.data.to_vec()).filter(|data| !data.is_empty()));
    }
    committed
}

#[test]
fn a_sole_voter_elects_itself_and_commits_what_is_durable() {
    let (log, mut hard_state) = (TestLog::default(), HardState::default());
    let mut group = Group::new(&options(), recovered(), log.clone()).unwrap();
    assert!(matches!(group.propose(b"early".to_vec()), Err(GroupError::NotLeader)));
    group.campaign().unwrap();
    drive(&mut group, &log, &mut hard_state);
    assert!(group.is_leader() && group.is_established_leader() && group.is_sole_voter());

    let index = group.propose(b"a".to_vec()).unwrap();
    let step = group.ready().unwrap();
    assert!(step.committed.is_empty(), "not committed before it is durable");
    assert_eq!(step.entries.last().unwrap().index, index);
    log.entries.borrow_mut().extend(step.entries.iter().cloned());
    let (committed, _) = group.persisted(step);
    assert_eq!(committed.last().unwrap().data.as_ref(), b"a");
}

#[test]
fn after_a_restart_it_applies_what_was_not_applied_and_no_more() {
    let (log, mut hard_state) = (TestLog::default(), HardState::default());
    let mut group = Group::new(&options(), recovered(), log.clone()).unwrap();
    group.campaign().unwrap();
    drive(&mut group, &log, &mut hard_state);
    for data in [b"a", b"b", b"c"] {
        group.propose(data.to_vec()).unwrap();
    }
    assert_eq!(drive(&mut group, &log, &mut hard_state).len(), 3);
    let applied_before = 2; // the election's empty entry and "a" had reached the durable state machine
    let last = log.entries.borrow().last().map(LogPosition::from).unwrap();
    let again = Recovered { hard_state: hard_state.clone(), last, applied: applied_before, ..recovered() };
    let mut group = Group::new(&options(), again, log.clone()).unwrap();
    group.campaign().unwrap();
    assert_eq!(drive(&mut group, &log, &mut hard_state), [b"b".to_vec(), b"c".to_vec()]);
}

#[test]
fn a_truncated_log_keeps_the_term_of_its_end() {
    let (log, mut hard_state) = (TestLog::default(), HardState::default());
    let mut group = Group::new(&options(), recovered(), log.clone()).unwrap();
    group.campaign().unwrap();
    drive(&mut group, &log, &mut hard_state);
    let index = group.propose(b"a".to_vec()).unwrap();
    drive(&mut group, &log, &mut hard_state);
    assert_eq!(group.truncate_to(index).unwrap(), Some(group.term().0));
    assert_eq!(group.truncate_to(index).unwrap(), None);
    log.entries.borrow_mut().clear();
    let last = LogPosition::new(index, group.term().0);
    let again = Recovered { hard_state: hard_state.clone(), truncated: last, last, applied: index, ..recovered() };
    let mut group = Group::new(&options(), again, log.clone()).unwrap();
    group.campaign().unwrap();
    assert!(drive(&mut group, &log, &mut hard_state).is_empty());
    assert!(group.is_established_leader());
}

#[test]
fn whoever_holds_an_entry_knows_after_a_restart_what_was_committed_before_it() {
    let mut recovered = recovered();
    recovered.conf_state.voters = vec![1, 2];
    let mut group = Group::new(&options(), recovered, TestLog::default()).unwrap();
    let mut append = |entries: &[(u64, &[u8])], last: u64, commit: u64| {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.from, message.to, message.term) = (2, 1, 1);
        (message.index, message.log_term, message.commit) = (last, u64::from(last > 0), commit);
        for (index, data) in entries {
            let entry = Entry { index: *index, term: 1, data: data.to_vec().into(), ..Entry::default() };
            message.entries.push(entry);
        }
        group.step(message).unwrap();
        let step = group.ready().unwrap();
        let written = (step.hard_state.is_some(), step.entries.len(), step.commit);
        group.persisted(step);
        written
    };
    assert_eq!(append(&[(1, b"a change of the members")], 0, 0), (true, 1, 0), "a term that is new is written");
    assert_eq!(append(&[], 1, 1), (false, 0, 1), "a commit index that moves on its own is not written");
    assert_eq!(append(&[(2, b"the next change")], 1, 1), (false, 1, 1), "it goes with the entry");
}

/// An acknowledgement by replica 2 of everything up to `index`.
fn acknowledged(term: u64, index: u64) -> Message {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgAppendResponse);
    (message.from, message.to, message.term, message.index) = (2, 1, term, index);
    message
}

/// Runs turns and carries out changes of the members as they are committed.
fn drive_members(group: &mut Group<TestLog>, log: &TestLog) {
    while let Some(mut step) = group.ready() {
        log.entries.borrow_mut().extend(step.entries.iter().cloned());
        let mut entries = std::mem::take(&mut step.committed);
        entries.extend(group.persisted(step).0);
        for entry in &entries {
            group.apply_member_change(entry).unwrap();
            group.applied(entry.index);
        }
    }
}

#[test]
fn voters_change_by_way_of_a_joint_configuration_that_both_sets_have_to_leave() {
    let log = TestLog::default();
    let mut group = Group::new(&options(), recovered(), log.clone()).unwrap();
    group.campaign().unwrap();
    drive_members(&mut group, &log);
    group.propose_member_change(&MemberChange::AddLearner(2)).unwrap();
    drive_members(&mut group, &log);
    assert_eq!((group.members().voters.as_slice(), group.members().learners.as_slice()), (&[1][..], &[2][..]));
    let change = MemberChange::EnterJoint { add: vec![2], demote: Vec::new(), remove: vec![1] };
    group.propose_member_change(&change).unwrap();
    drive_members(&mut group, &log);
    assert!(group.is_joint() && !group.is_sole_voter(), "the leader alone could decide that");
    assert_eq!(group.members().voters, [2]);
    assert_eq!(group.members().voters_outgoing, [1]);
    assert_eq!(group.all_voters().collect::<Vec<_>>(), [2, 1]);
    let joint = group.members().clone();
    group.propose_member_change(&MemberChange::LeaveJoint).unwrap();
    drive_members(&mut group, &log);
    assert!(group.is_joint(), "not without the other");
    assert!(group.is_changing_members());
    group.step(acknowledged(group.term().0, group.last_index())).unwrap();
    drive_members(&mut group, &log);
    assert_eq!((group.is_joint(), group.members().voters.as_slice()), (false, &[2][..]));
    // A restart in between finds both sets.
    let again = Recovered { conf_state: joint.clone(), ..recovered() };
    let group = Group::new(&options(), again, TestLog::default()).unwrap();
    assert!(group.is_joint());
    assert_eq!(group.members(), &joint);
}

#[test]
fn changes_of_one_replica_in_an_old_log_are_carried_out() {
    let mut group = Group::new(&options(), recovered(), TestLog::default()).unwrap();
    let mut change = raft::eraftpb::ConfChange::default();
    change.set_change_type(raft::eraftpb::ConfChangeType::AddNode);
    change.node_id = 2;
    let data = protobuf::Message::write_to_bytes(&change).unwrap();
    let mut entry = Entry { index: 1, term: 1, data: data.into(), ..Entry::default() };
    entry.set_entry_type(EntryType::EntryConfChange);
    assert_eq!(group.apply_member_change(&entry).unwrap().unwrap().voters, [1, 2]);
    assert_eq!(group.apply_member_change(&Entry::default()).unwrap(), None);
}

#[test]
fn a_replica_that_has_lost_its_log_is_recovering_until_it_holds_as_much_again() {
    let hard_state = HardState { term: 4, vote: 2, commit: 3, ..HardState::default() };
    let mut recovered = Recovered { hard_state, floor: LogPosition::new(2, 4), ..recovered() };
    recovered.conf_state.voters = vec![1, 2];
    let log = TestLog::default();
    let mut group = Group::new(&options(), recovered, log.clone()).unwrap();
    assert!(group.is_recovering());
    assert_eq!((group.memory().0.term, group.memory().0.vote, group.memory().1), (4, 2, LogPosition::new(2, 4)));
    // The leader believes that the replica holds the entries that it acknowledged.
    let mut heartbeat = Message::default();
    heartbeat.set_msg_type(MessageType::MsgHeartbeat);
    (heartbeat.from, heartbeat.to, heartbeat.term, heartbeat.commit) = (2, 1, 4, 2);
    group.step(heartbeat).unwrap();
    drive_members(&mut group, &log);
    for index in 1..=2 {
        assert!(group.is_recovering());
        let mut append = Message::default();
        append.set_msg_type(MessageType::MsgAppend);
        (append.from, append.to, append.term) = (2, 1, 4);
        (append.index, append.log_term) = (index - 1, if index > 1 { 4 } else { 0 });
        append.entries.push(Entry { index, term: 4, ..Entry::default() });
        group.step(append).unwrap();
        drive_members(&mut group, &log);
    }
    assert!(!group.is_recovering());
}

#[test]
fn a_leader_believes_a_member_that_says_that_it_has_lost_its_log() {
    let log = TestLog::default();
    let mut group = Group::new(&options(), recovered(), log.clone()).unwrap();
    group.campaign().unwrap();
    drive_members(&mut group, &log);
    group.propose_member_change(&MemberChange::AddLearner(2)).unwrap();
    drive_members(&mut group, &log);
    let last = group.last_index();
    group.step(acknowledged(group.term().0, last)).unwrap();
    let matched = |group: &Group<TestLog>| group.progress().next().unwrap().matched;
    assert_eq!(matched(&group), last);
    group.forget_progress(2, last + 5);
    assert_eq!(matched(&group), last, "it cannot have lost more than it had");
    group.forget_progress(2, 0);
    assert_eq!(matched(&group), 0);
}

#[test]
fn an_entry_is_acknowledged_by_those_who_hold_it_durably() {
    let (log, mut hard_state) = (TestLog::default(), HardState::default());
    let three = ConfState { voters: vec![1, 2, 3], ..ConfState::default() };
    let follower =
        Group::new(&options(), Recovered { conf_state: three, ..Recovered::default() }, log.clone()).unwrap();
    assert_eq!(follower.acknowledgements(1), (0, 2), "only a leader knows who holds what");
    let mut group = Group::new(&options(), recovered(), log.clone()).unwrap();
    group.campaign().unwrap();
    drive(&mut group, &log, &mut hard_state);
    let index = group.propose(b"a".to_vec()).unwrap();
    let step = group.ready().unwrap();
    assert_eq!(group.acknowledgements(index), (0, 1), "not before it is durable");
    log.entries.borrow_mut().extend(step.entries.iter().cloned());
    group.persisted(step);
    assert_eq!(group.acknowledgements(index), (1, 1));
    assert_eq!(group.acknowledgements(index + 1), (0, 1));
}

/// A leader with a log of ten entries and its own first one, all applied, and a learner that has reported that it holds
/// none of them.
fn leader_with_a_learner() -> (Group<TestLog>, TestLog) {
    let log = TestLog::default();
    let mut group = Group::new(&options(), recovered(), log.clone()).unwrap();
    group.campaign().unwrap();
    drive_members(&mut group, &log);
    for number in 0..10u8 {
        group.propose(vec![number]).unwrap();
    }
    drive_members(&mut group, &log);
    group.propose_member_change(&MemberChange::AddLearner(2)).unwrap();
    drive_members(&mut group, &log);
    let mut lacks_all = acknowledged(group.term().0, group.last_index() - 1);
    lacks_all.reject = true;
    group.step(lacks_all).unwrap();
    (group, log)
}

/// The indexes of the entries that are sent.
fn sent(group: &mut Group<TestLog>) -> Vec<u64> {
    let Some(mut step) = group.ready() else { return Vec::new() };
    let mut messages = std::mem::take(&mut step.messages);
    messages.extend(group.persisted(step).1);
    messages.iter().flat_map(|message| message.entries.iter().map(|entry| entry.index)).collect()
}

#[test]
fn what_a_member_lacks_is_sent_once_it_was_read_beside_the_turns() {
    let (mut group, log) = leader_with_a_learner();
    let last = group.last_index();
    let fetches = group.take_fetches();
    assert_eq!(fetches.len(), 1);
    group.ping();
    assert_eq!(sent(&mut group), [0; 0], "nothing was read yet");
    assert!(!group.has_fetches(), "it is being read");
    let entries = fetches[0].read(&log);
    assert_eq!(entries.as_ref().unwrap().len() as u64, last);
    // One piece was read; the rest is asked for when that is acknowledged.
    group.fetched(&fetches[0], entries.map(|entries| entries[..4].to_vec())).unwrap();
    assert_eq!(sent(&mut group), [1, 2, 3, 4]);
    assert!(!group.has_fetches());
    group.step(acknowledged(group.term().0, 4)).unwrap();
    let fetches = group.take_fetches();
    assert_eq!(fetches.len(), 1);
    group.fetched(&fetches[0], fetches[0].read(&log)).unwrap();
    assert_eq!(sent(&mut group), (5..=last).collect::<Vec<_>>());
    group.step(acknowledged(group.term().0, last)).unwrap();
    assert!(!group.has_fetches());
    assert_eq!(group.progress().next().unwrap().matched, last);
}

#[test]
fn what_was_read_in_another_term_is_not_sent_and_read_again() {
    let (mut group, log) = leader_with_a_learner();
    let before = group.take_fetches().remove(0);
    group.step_down();
    group.fetched(&before, before.read(&log)).unwrap();
    assert_eq!(sent(&mut group), [0; 0], "it does not lead");
    group.campaign().unwrap();
    drive_members(&mut group, &log);
    let mut lacks_all = acknowledged(group.term().0, group.last_index() - 1);
    lacks_all.reject = true;
    group.step(lacks_all).unwrap();
    let now = group.take_fetches().remove(0);
    group.fetched(&before, before.read(&log)).unwrap();
    assert_eq!(sent(&mut group), [0; 0]);
    assert_eq!(group.take_fetches(), [now], "asked for again");
}

#[test]
fn entries_that_were_cut_while_they_were_to_be_read_are_lacking_and_others_must_be_there() {
    let (mut group, _) = leader_with_a_learner();
    let fetch = group.take_fetches().remove(0);
    assert!(matches!(
        group.fetched(&fetch, Err(LogReadError::Failed("the disk".to_owned()))),
        Err(GroupError::Broken(_))
    ));
    assert!(!group.has_lacking());
    group.truncate_to(5).unwrap();
    group.fetched(&fetch, Err(LogReadError::Failed("gone".to_owned()))).unwrap();
    assert_eq!(group.take_lacking(), [2].into());
    assert!(!group.has_fetches());
}

/// A message from a leader to a follower in term 3.
fn from_leader(kind: MessageType, index: u64, log_term: u64, commit: u64, entries: &[(u64, u64)]) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (2, 1, 3);
    (message.index, message.log_term, message.commit) = (index, log_term, commit);
    for (index, term) in entries {
        message.entries.push(Entry { index: *index, term: *term, ..Entry::default() });
    }
    message
}

/// A follower with a log of entries of these terms, beginning with the first, that knows the first `commit` to be committed.
fn follower(terms: &[u64], commit: u64) -> (Group<TestLog>, TestLog) {
    let log = TestLog::default();
    let entries = (1..).zip(terms).map(|(index, term)| Entry { index, term: *term, ..Entry::default() });
    log.entries.borrow_mut().extend(entries);
    let last = terms.last().map_or(LogPosition::START, |term| LogPosition::new(terms.len() as u64, *term));
    let hard_state = HardState { term: last.term, commit, ..HardState::default() };
    let mut recovered = Recovered { hard_state, last, ..recovered() };
    recovered.conf_state.voters = vec![1, 2, 3];
    let mut group = Group::new(&options(), recovered, log.clone()).unwrap();
    drive_members(&mut group, &log);
    (group, log)
}

#[test]
fn a_follower_that_receives_a_commit_index_beyond_its_log_reports_a_lost_end() {
    let (mut group, log) = follower(&[1, 1], 1);
    assert!(!group.is_recovering());
    group.step(from_leader(MessageType::MsgHeartbeat, 0, 0, 5, &[])).unwrap();
    drive_members(&mut group, &log);
    assert!(group.is_recovering() && group.has_unknown_floor());
    assert_eq!(group.take_new_floor(), Some(UNKNOWN_FLOOR), "to be remembered over restarts");
    assert_eq!(group.commit_index(), 1, "what it holds may be of a log that was replaced");
    // Its leader sends the missing entries, and an upper bound of what it may have acknowledged.
    group.learn_floor(LogPosition::new(5, 3));
    assert_eq!(group.take_new_floor(), None, "a loss of power now leaves it unknown");
    group.step(from_leader(MessageType::MsgAppend, 1, 1, 4, &[(2, 3), (3, 3), (4, 3)])).unwrap();
    drive_members(&mut group, &log);
    assert_eq!(group.commit_index(), 4);
    assert!(group.is_recovering() && !group.has_unknown_floor());
    group.step(from_leader(MessageType::MsgHeartbeat, 0, 0, 5, &[])).unwrap();
    group.step(from_leader(MessageType::MsgAppend, 4, 3, 5, &[(5, 3)])).unwrap();
    drive_members(&mut group, &log);
    assert!(!group.is_recovering());
    assert_eq!(group.take_new_floor(), Some(LogPosition::new(5, 3)));
    assert_eq!(group.commit_index(), 5);
}

#[test]
fn what_is_remembered_without_a_log_is_never_less_than_what_may_have_been_acknowledged() {
    let hard_state = HardState { term: 4, ..HardState::default() };
    let held = |last, floor| Recovered { hard_state: hard_state.clone(), last, floor, ..recovered() };
    let (early, late) = (LogPosition::new(7, 2), LogPosition::new(9, 4));
    let any_of_the_term = LogPosition::new(u64::MAX, 4);
    // The log is removed.
    assert_eq!(floor_without_log(held(early, LogPosition::START).last_acknowledged(), &hard_state), early);
    assert_eq!(floor_without_log(held(early, UNKNOWN_FLOOR).last_acknowledged(), &hard_state), any_of_the_term);
    assert!(late < any_of_the_term && LogPosition::new(1, 5) > any_of_the_term, "a later term is past all of it");
    // The end of the log may be lost.
    assert_eq!(held(early, LogPosition::START).floor_with_lost_end(), UNKNOWN_FLOOR);
    assert_eq!(held(late, late).floor_with_lost_end(), UNKNOWN_FLOOR);
    assert_eq!(held(early, UNKNOWN_FLOOR).floor_with_lost_end(), UNKNOWN_FLOOR);
    assert_eq!(held(early, late).floor_with_lost_end(), any_of_the_term, "it was not whole again");
    assert_eq!(held(early, any_of_the_term).floor_with_lost_end(), any_of_the_term);
}

#[test]
fn a_replica_without_its_log_learns_its_floor_from_a_leader_and_is_no_judge_before() {
    let floor = LogPosition::new(u64::MAX, 3);
    let hard_state = HardState { term: 3, ..HardState::default() };
    let mut group = Group::new(&options(), Recovered { hard_state, floor, ..recovered() }, TestLog::default()).unwrap();
    assert!(group.is_recovering() && group.has_unknown_floor() && !group.has_only_lost_its_end());
    group.learn_floor(LogPosition::new(5, 3));
    assert!(group.is_recovering() && !group.has_unknown_floor());
    assert_eq!(group.take_new_floor(), Some(LogPosition::new(5, 3)), "its log is gone: it is known from now on");
}

#[test]
fn a_log_that_has_lost_its_end_may_have_got_back_what_was_replaced_there_which_is_not_committed() {
    // The follower had replaced its second entry by that of the leader in term 3, which relies on the acknowledgement.
    let (group, log) = follower(&[1, 2], 1);
    let recovered = Recovered { floor: UNKNOWN_FLOOR, ..recovered_from(&group, LogPosition::new(2, 2), &[1, 2, 3]) };
    let mut group = Group::new(&options(), recovered, log.clone()).unwrap();
    group.step(from_leader(MessageType::MsgHeartbeat, 0, 0, 2, &[])).unwrap();
    drive_members(&mut group, &log);
    assert_eq!(group.commit_index(), 1, "the second entry is not the one that was committed");
    group.step(from_leader(MessageType::MsgAppend, 1, 1, 2, &[(2, 3)])).unwrap();
    drive_members(&mut group, &log);
    assert_eq!(group.commit_index(), 2);
    group.step(from_leader(MessageType::MsgAppend, 2, 3, 2, &[(3, 3)])).unwrap();
    drive_members(&mut group, &log);
    // Entries that matched since then count for heartbeats too.
    group.step(from_leader(MessageType::MsgHeartbeat, 0, 0, 3, &[])).unwrap();
    drive_members(&mut group, &log);
    assert_eq!(group.commit_index(), 3);
}

fn recovered_from(group: &Group<TestLog>, last: LogPosition, voters: &[u64]) -> Recovered {
    let mut found = Recovered { hard_state: group.memory().0, last, ..recovered() };
    found.conf_state.voters = voters.to_vec();
    found
}

#[test]
fn a_commit_index_beyond_what_a_crash_has_left_of_the_log_is_not_believed() {
    let hard_state = HardState { term: 2, commit: 9, ..HardState::default() };
    let log = TestLog::default();
    log.entries.borrow_mut().push(Entry { index: 1, term: 2, ..Entry::default() });
    let recovered = Recovered { hard_state, last: LogPosition::new(1, 2), ..recovered() };
    let group = Group::new(&options(), recovered, log).unwrap();
    assert_eq!(group.commit_index(), 1);
}

#[test]
fn a_leader_whose_log_contradicts_what_was_committed_here_is_noticed() {
    let append =
        |index, log_term, entries: &[(u64, u64)]| from_leader(MessageType::MsgAppend, index, log_term, 0, entries);
    let contradictions = [
        ("another entry in the place of a committed one", append(1, 1, &[(2, 3)])),
        ("the last committed one is another", append(2, 1, &[(3, 3)])),
        ("an entry before it is another", append(1, 3, &[])),
        ("its log goes on with terms that are less", append(3, 1, &[])),
        ("an entry after it is of a lesser term", append(1, 1, &[(2, 2), (3, 1)])),
    ];
    for (why, message) in contradictions {
        let (mut group, log) = follower(&[1, 2], 2);
        let stepped = group.step(message);
        assert!(matches!(stepped, Err(GroupError::Diverged { .. })), "{why}: {stepped:?}");
        drive_members(&mut group, &log);
        assert_eq!(group.commit_index(), 2);
    }
    // Truncated entries cannot be compared, but terms only grow along the log.
    let cut = Recovered {
        truncated: LogPosition::new(5, 2),
        last: LogPosition::new(5, 2),
        applied: 5,
        ..recovered_from(&follower(&[1], 1).0, LogPosition::new(5, 2), &[1, 2, 3])
    };
    for (is_contradiction, message) in
        [(true, append(2, 1, &[(3, 3)])), (false, append(2, 1, &[(3, 2)])), (false, append(2, 1, &[]))]
    {
        let mut group = Group::new(&options(), cut.clone(), TestLog::default()).unwrap();
        assert_eq!(group.step(message).is_err(), is_contradiction);
    }
    for message in
        [append(2, 2, &[(3, 3)]), append(1, 1, &[(2, 2), (3, 2)]), append(0, 0, &[(1, 1)]), append(7, 2, &[])]
    {
        let (mut group, _) = follower(&[1, 2], 2);
        group.step(message).unwrap();
    }
}

#[test]
fn an_acknowledgement_of_more_than_the_leader_has_ever_had_counts_for_nothing() {
    let (mut group, log) = leader_with_a_learner();
    let last = group.last_index();
    group.step(acknowledged(group.term().0, last + 3)).unwrap();
    drive_members(&mut group, &log);
    assert_eq!(group.progress().next().unwrap().matched, 0);
    group.step(acknowledged(group.term().0, last)).unwrap();
    assert_eq!(group.progress().next().unwrap().matched, last);
}

#[test]
fn an_acknowledgement_of_another_entry_in_the_same_place_counts_for_nothing() {
    let (mut group, log) = leader_with_a_learner();
    let (last, term) = (group.last_index(), group.term().0);
    // A member that holds entries which a majority has lost, and reports how much it holds.
    let announced = |log_term| Message { log_term, ..acknowledged(term, last) };
    group.step(announced(term + 1)).unwrap();
    drive_members(&mut group, &log);
    assert_eq!(group.progress().next().unwrap().matched, 0);
    group.step(announced(term)).unwrap();
    assert_eq!(group.progress().next().unwrap().matched, last);
}

#[test]
fn an_acknowledgement_of_a_replica_that_is_no_member_is_an_error_whatever_it_says() {
    let (mut group, _) = leader_with_a_learner();
    let (last, term) = (group.last_index(), group.term().0);
    let of_a_stranger = |index, log_term| Message { from: 9, log_term, ..acknowledged(term, index) };
    for message in [of_a_stranger(last, 0), of_a_stranger(last + 1, 0), of_a_stranger(last, term + 1)] {
        assert!(group.step(message).is_err());
    }
}

#[test]
fn whoever_leads_with_a_log_that_may_have_lost_its_end_makes_it_the_truth() {
    let log = TestLog::default();
    let mut group = Group::new(&options(), Recovered { floor: UNKNOWN_FLOOR, ..recovered() }, log.clone()).unwrap();
    assert!(group.is_recovering());
    group.campaign().unwrap();
    drive_members(&mut group, &log);
    assert!(group.is_established_leader() && !group.is_recovering());
    assert_eq!(group.take_new_floor(), Some(LogPosition::START));
    assert_eq!(group.take_new_floor(), None);
}
