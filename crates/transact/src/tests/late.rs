//! What comes after an attempt was given up, and what was not there when a read began.

use crate::coordinator::{Action, Coordinator, Part, Plan};
use crate::ids::{Home, Participant, TransactionId};
use crate::message::{Program, Refusal, Reply, Request, Status};
use crate::snapshot::{self, SnapshotRead, Staged, StagedIn};
use crate::step::Ending;
use crate::targets::{Target, Targets};
use crate::timing::Timing;
use diorite_base::{TableId, TabletId};
use std::sync::Arc;

const HOME: TabletId = TabletId(1);

fn id(number: u64) -> TransactionId {
    TransactionId { tablet: HOME, term: 1, number }
}

fn part(tablet: u64) -> Part {
    Part {
        participant: Participant { table: TableId(1), tablet: TabletId(tablet), key: vec![tablet as u8] },
        targets: Targets::new(vec![Target::Row(vec![tablet as u8])]),
        program: Program(Vec::new()),
        readers_ask: true,
    }
}

/// All that it sends now.
fn sent(coordinator: &mut Coordinator) -> Vec<(TabletId, Request)> {
    std::iter::from_fn(|| coordinator.action())
        .map(|action| match action {
            Action::Send(to, request) => (to, request),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_prepare_that_is_answered_after_its_attempt_was_given_up_is_ended_again() {
    let plan = Arc::new(Plan { parts: [1, 2, 3].map(part).to_vec(), nearest: Some(0) });
    let mut coordinator = Coordinator::new(plan, Timing::default(), None);
    coordinator.start(0);
    sent(&mut coordinator);
    coordinator.replied(HOME, Reply::Reserved { id: id(1), attempt: 1 }, 0);
    assert_eq!(sent(&mut coordinator).len(), 2, "both are prepared at once");
    coordinator.replied(TabletId(2), Reply::NotPrepared { id: id(1), refusal: Refusal::Held }, 0);
    let finish = |tablet| (TabletId(tablet), Request::Finish { id: id(1), ending: Ending::Aborted });
    let given_up = sent(&mut coordinator);
    assert!(given_up.contains(&finish(2)) && given_up.contains(&finish(3)), "{given_up:?}");
    // The other one had not been applied when it was told of the end.
    let late = || Reply::Prepared { id: id(1), stamp_us: 5 };
    coordinator.replied(TabletId(3), late(), 0);
    assert_eq!(sent(&mut coordinator), [finish(3)]);
    coordinator.replied(TabletId(3), late(), 0);
    assert_eq!(sent(&mut coordinator), [], "a repeated answer says nothing new");
    // The next attempt is another transaction.
    coordinator.replied(HOME, Reply::Reserved { id: id(2), attempt: 2 }, 0);
    assert_eq!(sent(&mut coordinator).len(), 1, "in order");
    coordinator.replied(TabletId(2), Reply::Prepared { id: id(2), stamp_us: 6 }, 0);
    coordinator.replied(TabletId(3), Reply::Prepared { id: id(2), stamp_us: 7 }, 0);
    let committing = sent(&mut coordinator);
    assert!(matches!(committing.last(), Some((_, Request::Commit { id: of, .. })) if *of == id(2)), "{committing:?}");
}

fn staged(number: u64, prepared_us: i64) -> Staged {
    let home = Home { table: TableId(1), key: vec![1], tells_readers: true };
    Staged { id: id(number), prepared_us, home }
}

fn of(staged: &Staged) -> StagedIn {
    (TabletId(9), staged.id, staged.prepared_us)
}

/// Pins the tablet with these prepares, and returns the round in which their homes are asked.
fn pinned(read: &mut SnapshotRead, prepares: &[Staged]) -> u32 {
    let Some(snapshot::Action::Pin { round, .. }) = read.action() else { panic!("{read:?}") };
    assert!(read.pinned(TabletId(9), round, u64::MAX, prepares.to_vec(), 9));
    for prepare in prepares {
        assert!(matches!(read.action(), Some(snapshot::Action::Ask { of: asked, .. }) if asked == of(prepare)));
    }
    round
}

#[test]
fn a_read_goes_beyond_what_was_prepared_when_it_began_and_no_further() {
    let mut read = SnapshotRead::new([TabletId(9)], 10, 3, 0);
    let (first, second, third) = (staged(1, 5), staged(2, 6), staged(3, 20));
    let round = pinned(&mut read, &[first.clone(), second.clone()]);
    // The first one may have been acknowledged before the read began, the second one was not committed after that.
    read.resolved(round, of(&first), Status::Committed(20), 2);
    assert_eq!(read.action(), None, "the others are waited for");
    read.resolved(round, of(&second), Status::NotYet, 2);
    let round = pinned(&mut read, &[first.clone(), second.clone(), third.clone()]);
    read.resolved(round, of(&first), Status::Committed(20), 3);
    // Both are committed only now.
    read.resolved(round, of(&second), Status::Committed(30), 3);
    read.resolved(round, of(&third), Status::Committed(31), 3);
    let Some(snapshot::Action::Done { at_us, committed }) = read.action() else { panic!("{read:?}") };
    assert_eq!((at_us, committed.into_iter().collect::<Vec<_>>()), (20, vec![(of(&first), 20)]));
}

#[test]
fn a_read_begins_again_if_a_prepare_may_have_been_forgotten() {
    let mut read = SnapshotRead::new([TabletId(9)], 10, 2, 0);
    let one = staged(1, 5);
    let round = pinned(&mut read, std::slice::from_ref(&one));
    read.resolved(round, of(&one), Status::Aborted, 2);
    pinned(&mut read, &[]);
    assert!(matches!(read.action(), Some(snapshot::Action::Done { at_us: 10, .. })));
}
