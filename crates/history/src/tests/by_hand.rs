//! Histories made by hand, with known verdicts.

use crate::operation::{Action, Operation, Value};
use crate::{Insert, Violation, check_acknowledged, check_counter, check_linearizable, check_linearizable_within};
use std::collections::BTreeMap;

fn op(client: u32, start_ns: u64, end_ns: impl Into<Option<u64>>, action: Action) -> Operation {
    Operation { key: 7, client, start_ns, end_ns: end_ns.into(), action }
}

fn read(value: impl Into<Value>) -> Action {
    Action::Read(value.into())
}

fn write(value: impl Into<Value>) -> Action {
    Action::Write(value.into())
}

fn swap(expected: impl Into<Value>, new: u64, applied: impl Into<Option<bool>>) -> Action {
    Action::CompareAndSet { expected: expected.into(), new: Some(new), applied: applied.into() }
}

fn refused(history: &[Operation]) -> String {
    match check_linearizable(history) {
        Err(violation @ Violation::NotLinearizable { .. }) => violation.to_string(),
        other => panic!("it has to be refused: {other:?}"),
    }
}

#[test]
fn a_read_during_a_write_may_see_either_value() {
    for seen in [None, Some(1)] {
        let history = [op(1, 0, 100, write(1)), op(2, 10, 20, read(seen))];
        assert_eq!(check_linearizable(&history), Ok(()));
    }
    let history = [op(1, 0, 100, write(1)), op(2, 10, 20, read(1)), op(3, 30, 40, read(None))];
    assert!(refused(&history).contains("stale read"));
}

#[test]
fn a_planted_stale_read_is_found() {
    let history = [op(1, 0, 10, write(1)), op(1, 20, 30, write(2)), op(2, 40, 50, read(2)), op(3, 60, 70, read(1))];
    let said = refused(&history);
    assert!(said.contains("key 7") && said.contains("client 3    read 1"), "{said}");
}

#[test]
fn a_planted_lost_write_is_found() {
    let history = [op(1, 0, 10, write(1)), op(2, 20, 30, read(None))];
    assert!(refused(&history).contains("nothing was the value before and after a moment at which 1 was"));
    let inserts = [
        Insert { key: 1, value: 10, acknowledged: true },
        Insert { key: 2, value: 20, acknowledged: true },
        Insert { key: 3, value: 30, acknowledged: false },
    ];
    let all = BTreeMap::from([(1, 10), (2, 20)]);
    assert_eq!(check_acknowledged(&inserts, &all), Ok(()));
    let one = BTreeMap::from([(1, 10), (3, 30)]);
    let lost = check_acknowledged(&inserts, &one);
    assert_eq!(lost, Err(Violation::LostWrites { lost: vec![(2, Some(20), None)] }));
    let other = BTreeMap::from([(1, 10), (2, 21)]);
    assert_eq!(
        check_acknowledged(&inserts, &other),
        Err(Violation::LostWrites { lost: vec![(2, Some(20), Some(21))] })
    );
}

#[test]
fn what_nobody_wrote_is_found() {
    assert!(refused(&[op(1, 0, 10, read(5))]).contains("nobody wrote 5"));
    assert!(refused(&[op(1, 0, 10, swap(None, 5, false)), op(1, 20, 30, read(5))]).contains("nobody wrote 5"));
    assert!(refused(&[op(1, 0, 10, read(5)), op(2, 20, 30, write(5))]).contains("before it was written"));
    let found = BTreeMap::from([(1, 10)]);
    assert_eq!(check_acknowledged(&[], &found), Err(Violation::Invented { key: 1, found: 10 }));
}

#[test]
fn an_unknown_write_may_take_effect_late_or_never_but_not_twice() {
    let unknown = op(1, 0, None, write(1));
    let known = op(2, 10, 20, write(2));
    for seen in [1, 2] {
        assert_eq!(check_linearizable(&[unknown, known, op(3, 30, 40, read(seen))]), Ok(()));
    }
    let history = [unknown, op(3, 5, 6, read(1)), known, op(3, 30, 40, read(2)), op(3, 50, 60, read(1))];
    refused(&history);
}

#[test]
fn of_two_swaps_of_one_value_only_one_applies() {
    let history = [op(1, 0, 10, swap(None, 1, true)), op(2, 0, 10, swap(None, 2, true))];
    refused(&history);
    let history = [op(1, 0, 10, swap(None, 1, true)), op(2, 0, 10, swap(None, 2, false))];
    assert_eq!(check_linearizable(&history), Ok(()));
    let history = [op(1, 0, 10, swap(None, 1, false)), op(2, 0, 10, swap(None, 2, false))];
    refused(&history);
}

#[test]
fn an_unknown_swap_that_was_seen_has_seen_its_own_value() {
    // 3 came from 2, and 2 from 1, so the value 1 was replaced before client 4 read it.
    let chain = [op(1, 0, 10, write(1)), op(1, 20, None, swap(1, 2, None)), op(2, 21, None, swap(2, 3, None))];
    let seen = [chain[0], chain[1], chain[2], op(3, 30, 40, read(3))];
    assert_eq!(check_linearizable(&seen), Ok(()));
    refused(&[seen[0], seen[1], seen[2], seen[3], op(4, 50, 60, read(1))]);
    refused(&[seen[0], seen[1], seen[2], seen[3], op(4, 50, 60, read(2))]);
}

#[test]
fn an_unapplied_swap_may_be_explained_by_an_unknown_write_that_nobody_saw() {
    let conflict = [op(1, 0, 10, write(1)), op(2, 20, 30, swap(1, 2, false))];
    refused(&conflict);
    let explained = [conflict[0], op(3, 5, None, write(9)), conflict[1]];
    assert_eq!(check_linearizable(&explained), Ok(()));
    // Not if the value was there afterwards.
    refused(&[explained[0], explained[1], explained[2], op(4, 40, 50, read(1))]);
}

#[test]
fn deleted_values_may_come_back_as_often_as_they_are_written() {
    let history = [
        op(1, 0, 10, write(1)),
        op(1, 20, 30, write(None)),
        op(1, 40, 50, read(None)),
        op(1, 60, 70, write(1)),
        op(1, 80, 90, read(1)),
    ];
    assert_eq!(check_linearizable(&history), Ok(()));
    let mut lost = history;
    lost[4].action = read(None);
    refused(&lost);
}

#[test]
fn keys_do_not_mix_and_touching_intervals_overlap() {
    let mut other = op(2, 20, 30, read(None));
    other.key = 8;
    assert_eq!(check_linearizable(&[op(1, 0, 10, write(1)), other]), Ok(()));
    assert_eq!(check_linearizable(&[op(1, 0, 10, write(1)), op(2, 10, 20, read(None))]), Ok(()));
}

#[test]
fn what_the_budget_does_not_reach_is_undecided_and_not_passed() {
    // The order of the writes is not determined: values that are written twice allow all orders.
    let mut history: Vec<Operation> = (0..20).map(|n| op(n, 0, 100, write(u64::from(n) / 2))).collect();
    history.push(op(50, 200, 210, read(3)));
    assert_eq!(check_linearizable_within(&history, 0), Err(Violation::Undecided { key: 7, budget: 0 }));
    assert!(check_linearizable(&history).is_ok());
    let many: Vec<Operation> = (0..200).map(|n| op(n, 0, 100, write(u64::from(n)))).collect();
    assert!(matches!(check_linearizable(&many), Err(Violation::Undecided { .. })));
    assert!(matches!(check_linearizable(&[op(1, 10, 5, write(1))]), Err(Violation::Malformed(_))));
}

#[test]
fn a_counter_lies_between_what_was_acknowledged_and_what_was_tried() {
    assert_eq!(check_counter(10, 2, 12), Ok(()));
    assert_eq!(check_counter(10, 2, 10), Ok(()));
    assert!(check_counter(10, 2, 9).is_err());
    assert!(check_counter(10, 2, 13).is_err());
}
