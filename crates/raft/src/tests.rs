//! A group of one voter takes the full turn: nothing is committed before it is durable, and it goes on after a restart.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// A log that is durable when `persisted` is called.
#[derive(Clone, Default)]
struct TestLog {
    entries: Rc<RefCell<Vec<Entry>>>,
}

impl LogReader for TestLog {
    fn entries(&self, low: u64, high: u64, _: u64) -> Result<Vec<Entry>, String> {
        Ok(self.entries.borrow().iter().filter(|entry| (low..high).contains(&entry.index)).cloned().collect())
    }
}

fn options() -> GroupOptions {
    GroupOptions { replica: 1 }
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
    let last = log.entries.borrow().last().map(|entry| (entry.index, entry.term)).unwrap();
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
    assert_eq!(group.truncate_to(index).unwrap(), Some(group.term()));
    assert_eq!(group.truncate_to(index).unwrap(), None);
    log.entries.borrow_mut().clear();
    let last = (index, group.term());
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
        let hard_state = step.hard_state.clone();
        group.persisted(step);
        hard_state
    };
    assert_eq!(append(&[(1, b"a change of the members")], 0, 0).unwrap().commit, 0);
    assert_eq!(append(&[], 1, 1), None, "a commit index that moves on its own is not written");
    let with_the_next = append(&[(2, b"the next change")], 1, 1).expect("written with the entry");
    assert_eq!((with_the_next.term, with_the_next.commit), (1, 1));
}
