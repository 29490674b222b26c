//! Single schedules at one tablet, step by step.

use super::*;
use crate::ids::{Participant, Prepared};
use crate::locks::Owner;
use crate::message::HomePart;
use crate::step::{Commit, Ending};
use crate::targets::Target;
use diorite_base::TableId;

const TABLET: TabletId = TabletId(7);
const CLIENT: Asker = Asker(1);
const SWEEPER: Asker = Asker(2);

/// A tablet whose entries are applied as soon as they are appended.
struct Tablet {
    leader: Leader,
    records: Records,
    clock_us: i64,
    replies: Vec<(Asker, Reply)>,
    asked: Vec<(TransactionId, i64)>,
    steps: Vec<Step>,
    admitted: Vec<u64>,
    refused: Vec<u64>,
}

impl Tablet {
    fn new() -> Self {
        let records = Records::default();
        let mut leader = Leader::new(TABLET, 3, &records, LockLimits::default(), Timing::default(), 0);
        leader.ready();
        let (replies, asked, steps) = (Vec::new(), Vec::new(), Vec::new());
        Self { leader, records, clock_us: 100, replies, asked, steps, admitted: Vec::new(), refused: Vec::new() }
    }

    fn request(&mut self, from: Asker, request: Request) {
        self.leader.request(&self.records, from, request, true, 0).expect("it leads");
        self.run(0);
    }

    fn request_at(&mut self, now_ns: u64, request: Request) {
        self.leader.request(&self.records, CLIENT, request, true, now_ns).expect("it leads");
        self.run(now_ns);
    }

    fn sweep(&mut self, now_ns: u64) {
        self.leader.sweep(&self.records, now_ns);
        self.run(now_ns);
    }

    fn run(&mut self, now_ns: u64) {
        while let Some(action) = self.leader.action() {
            match action {
                Action::Propose { step, above_us } => {
                    self.clock_us = self.clock_us.max(above_us) + 1;
                    self.records.apply(self.clock_us, &step);
                    self.leader.applied(&self.records, &step, now_ns);
                    self.steps.push(step);
                }
                Action::Evaluate { id, program } => {
                    let operation = Operation { key: program.0.clone(), now_s: 0, program: program.0 };
                    self.leader.evaluated(id, Evaluated::Operations(vec![operation]), now_ns);
                }
                Action::Reply { to, reply, .. } => self.replies.push((to, reply)),
                Action::Call(PeerCall::Ask { id, prepared_us, .. }) => self.asked.push((id, prepared_us)),
                Action::Admit(tag) => self.admitted.push(tag),
                Action::Refuse(tag) => self.refused.push(tag),
                Action::Call(PeerCall::Finish { .. }) => {}
            }
        }
    }

    fn last_reply(&self) -> Reply {
        self.replies.last().expect("an answer").1
    }

    fn reserve(&mut self, key: u8) -> TransactionId {
        let wait_ns = Some(1_000);
        self.request(CLIENT, Request::Reserve { attempt: 1, targets: row(key), program: Program(vec![key]), wait_ns });
        let Reply::Reserved { id, .. } = self.last_reply() else { panic!("{:?}", self.replies) };
        id
    }
}

fn row(key: u8) -> Targets {
    Targets::new(vec![Target::Row(vec![key])])
}

fn participant(tablet: u64) -> Participant {
    Participant { table: TableId(1), tablet: TabletId(tablet), key: vec![1] }
}

/// The schedule that breaks a protocol in which an id alone matches a prepare with its commit: the message that
/// prepared a transaction arrives once more after it was finished here, while its record is not forgotten. The rows of
/// the transaction would be written again, over what was written since.
#[test]
fn a_prepare_that_is_repeated_after_the_end_is_covered_by_no_commit() {
    let id = TransactionId { tablet: TabletId(1), term: 1, number: 1 };
    let home = Home { table: TableId(1), key: vec![9], tells_readers: true };
    let prepare = Request::Prepare { id, home, targets: row(5), program: Program(vec![5]), wait_ns: None };
    let mut tablet = Tablet::new();
    tablet.request(CLIENT, prepare.clone());
    let Reply::Prepared { stamp_us: first_us, .. } = tablet.last_reply() else { panic!("{:?}", tablet.replies) };
    let ending = Ending::Committed { prepared_us: first_us, committed_us: 500 };
    tablet.request(CLIENT, Request::Finish { id, ending });
    assert_eq!(tablet.last_reply(), Reply::Finished(id));

    tablet.request(CLIENT, prepare);
    let Reply::Prepared { stamp_us: again_us, .. } = tablet.last_reply() else { panic!("{:?}", tablet.replies) };
    assert!(again_us > first_us);
    tablet.request(SWEEPER, Request::Finish { id, ending });
    assert_eq!(tablet.last_reply(), Reply::Finished(id), "the prepare that the commit covers is finished");
    assert!(tablet.records.prepared(&id).is_some(), "and the other one is left alone");
    tablet.sweep(Timing::default().ask_ns);
    assert_eq!(tablet.asked, [(id, again_us)]);

    // The home knows which prepare its commit covers.
    let mut at_home = Tablet::new();
    let of_home = at_home.reserve(9);
    let covered = Prepared { participant: participant(20), stamp_us: first_us };
    at_home.request(CLIENT, Request::Commit { id: of_home, prepared: vec![covered], part: None });
    let Reply::Committed { committed_us, .. } = at_home.last_reply() else { panic!("{:?}", at_home.replies) };
    for (stamp_us, status) in [(first_us, Status::Committed(committed_us)), (again_us, Status::Aborted)] {
        at_home.request(SWEEPER, Request::Status { id: of_home, of: Some((TabletId(20), stamp_us)), at_us: None });
        assert_eq!(at_home.last_reply(), Reply::Status { id: of_home, status });
    }

    tablet.leader.learned(&tablet.records, id, again_us, Status::Aborted);
    tablet.run(0);
    assert!(tablet.records.prepared(&id).is_none() && tablet.leader.is_idle());
    assert_eq!(tablet.steps.last(), Some(&Step::Finish { id, ending: Ending::Aborted }));
}

#[test]
fn a_write_waits_for_a_reservation_until_its_deadline_and_in_its_turn() {
    let mut tablet = Tablet::new();
    let id = tablet.reserve(1);
    for (tag, deadline_ns) in [(1, 10), (2, 30), (3, 30)] {
        assert!(tablet.leader.write(tag, &row(1), Wait::Until(deadline_ns)).is_ok());
    }
    tablet.sweep(20);
    assert_eq!((&tablet.admitted[..], &tablet.refused[..]), (&[][..], &[1][..]));
    tablet.request(CLIENT, Request::Release(id));
    assert_eq!(tablet.admitted, [2, 3]);
    assert!(!tablet.leader.is_idle(), "both are in flight");
    tablet.leader.written(2);
    tablet.leader.written(3);
    assert!(tablet.leader.is_idle());
}

#[test]
fn records_are_forgotten_many_at_a_time_and_only_when_they_were_released_or_are_old() {
    let mut tablet = Tablet::new();
    let ids = [1, 2, 3].map(|key| {
        let id = tablet.reserve(key);
        let prepared = vec![Prepared { participant: participant(20), stamp_us: 1 }];
        tablet.request(CLIENT, Request::Commit { id, prepared, part: None });
        id
    });
    tablet.request(CLIENT, Request::Forget(ids[..2].to_vec()));
    tablet.leader.finished(ids[2], TabletId(20));
    tablet.sweep(1);
    assert_eq!(tablet.steps.last(), Some(&Step::Forget(ids[..2].to_vec())));
    tablet.sweep(Timing::default().keep_record_ns - 1);
    assert!(tablet.records.outcome(&ids[2]).is_some(), "its coordinator may still ask");
    tablet.sweep(Timing::default().keep_record_ns);
    assert_eq!(tablet.steps.last(), Some(&Step::Forget(vec![ids[2]])));
}

/// A commit of what was issued in advance, of the row 1.
fn unreserved(id: TransactionId) -> Request {
    let part = HomePart { attempt: 1, targets: row(1), program: Program(vec![1]) };
    Request::Commit { id, prepared: Vec::new(), part: Some(part) }
}

#[test]
fn what_was_issued_in_advance_is_committed_once_while_it_is_young_and_wanted() {
    let mut tablet = Tablet::new();
    let first = tablet.leader.issue_in_advance(0).unwrap();
    tablet.request(CLIENT, unreserved(first));
    let Reply::Committed { id, committed_us, next } = tablet.last_reply() else { panic!("{:?}", tablet.replies) };
    assert_eq!(id, first);
    tablet.request(CLIENT, unreserved(first));
    let again = tablet.last_reply();
    assert!(matches!(again, Reply::Committed { committed_us: of, .. } if of == committed_us), "{again:?}");
    // Nothing else was issued, or it is void.
    let second = TransactionId { number: next.unwrap(), ..first };
    tablet.request(CLIENT, Request::Release(second));
    let of_another_term = TransactionId { term: first.term + 1, ..first };
    let never = TransactionId { number: 1_000, ..first };
    for id in [second, of_another_term, never] {
        tablet.request(CLIENT, unreserved(id));
        assert_eq!(tablet.last_reply(), Reply::Lost(id));
        tablet.request(CLIENT, Request::Status { id, of: None, at_us: None });
        assert_eq!(tablet.last_reply(), Reply::Status { id, status: Status::Aborted });
    }
    let old = tablet.leader.issue_in_advance(0).unwrap();
    tablet.request(CLIENT, Request::Status { id: old, of: None, at_us: None });
    assert_eq!(tablet.last_reply(), Reply::Status { id: old, status: Status::NotYet });
    // Nobody sweeps a tablet that is at rest.
    let over_ns = Timing::default().reservation_ns;
    tablet.request_at(over_ns, Request::Status { id: old, of: None, at_us: None });
    assert_eq!(tablet.last_reply(), Reply::Status { id: old, status: Status::Aborted });
    tablet.request_at(over_ns, unreserved(old));
    assert_eq!(tablet.last_reply(), Reply::Lost(old));
}

#[test]
fn a_commit_without_a_reservation_waits_for_no_lock_and_is_void_then() {
    let mut tablet = Tablet::new();
    let id = tablet.leader.issue_in_advance(0).unwrap();
    let reserved = tablet.reserve(1);
    tablet.request(SWEEPER, unreserved(id));
    assert_eq!(tablet.last_reply(), Reply::NotReserved { attempt: 1, refusal: Refusal::Held });
    tablet.request(CLIENT, Request::Release(reserved));
    tablet.request(SWEEPER, unreserved(id));
    assert_eq!(tablet.last_reply(), Reply::Lost(id));
    assert!(tablet.leader.is_idle());
}

#[test]
fn nothing_is_issued_in_advance_beside_the_end_of_a_tablet() {
    let mut tablet = Tablet::new();
    let (old, young) = (tablet.leader.issue_in_advance(1).unwrap(), tablet.leader.issue_in_advance(2).unwrap());
    assert!(tablet.leader.stop_in_advance(2));
    assert_eq!(tablet.leader.issue_in_advance(3), None);
    tablet.request(CLIENT, unreserved(old));
    assert_eq!(tablet.last_reply(), Reply::Lost(old));
    tablet.request(CLIENT, unreserved(young));
    assert!(matches!(tablet.last_reply(), Reply::Committed { next: None, .. }), "{:?}", tablet.replies);
    assert!(!tablet.leader.stop_in_advance(2));
    tablet.leader.resume_in_advance();
    assert!(tablet.leader.issue_in_advance(4).is_some());
}

#[test]
fn a_new_leader_holds_what_is_prepared_and_serves_when_its_first_entry_is_applied() {
    let id = TransactionId { tablet: TabletId(1), term: 1, number: 1 };
    let home = Home { table: TableId(1), key: vec![9], tells_readers: true };
    let mut records = Records::default();
    let prepare = crate::step::Prepare { id, home, targets: row(5), operations: Arc::default() };
    records.apply(5, &Step::Prepare(prepare));
    records.apply(6, &Step::Commit(Commit { id, prepared: Vec::new(), operations: Arc::default() }));
    let mut leader = Leader::new(TABLET, 4, &records, LockLimits::default(), Timing::default(), 0);
    let status = Request::Status { id, of: None, at_us: None };
    assert_eq!(leader.request(&records, CLIENT, status.clone(), true, 0), Err(NotServing));
    assert_eq!(leader.write(1, &row(6), Wait::Never), Err(NotServing));
    leader.ready();
    assert_eq!(leader.request(&records, CLIENT, status.clone(), false, 0), Err(NotServing), "it has no lease");
    assert_eq!(leader.request(&records, CLIENT, status, true, 0), Ok(()));
    assert_eq!(leader.locks().holder(&[5]), Some((Owner::Transaction(id), Hold::Prepared)));
}
