//! The recorder: operations that were begun are recorded, refused ones are not, and their number is bounded.

use crate::{Action, Full, Outcome, Recorder, Request, check_linearizable};
use diorite_base::SystemClock;
use parking_lot::Mutex;
use std::sync::Arc;

fn recorder(capacity: usize) -> Recorder {
    Recorder::new(Arc::new(SystemClock::new()), capacity)
}

#[test]
fn each_outcome_is_recorded_as_what_it_says() {
    let recorder = recorder(100);
    let swap = Request::CompareAndSet { expected: Some(1), new: Some(2) };
    let asked = [
        (Request::Write(Some(1)), Outcome::Done),
        (Request::Write(Some(3)), Outcome::NotDone),
        (Request::Read, Outcome::Unknown),
        (Request::Read, Outcome::Found(Some(1))),
        (swap, Outcome::Done),
        (swap, Outcome::NotApplied),
        (swap, Outcome::Conflict(Some(2))),
        (swap, Outcome::Unknown),
    ];
    for (request, outcome) in asked {
        let ticket = recorder.begin(1, 1, request).unwrap();
        recorder.finish(ticket, outcome);
    }
    drop(recorder.begin(1, 1, Request::Write(Some(4))).unwrap());
    let operations = recorder.operations();
    let set = |applied| Action::CompareAndSet { expected: Some(1), new: Some(2), applied };
    let expected = [
        Action::Write(Some(1)),
        Action::Read(Some(1)),
        set(Some(true)),
        set(Some(false)),
        Action::Read(Some(2)),
        set(None),
        Action::Write(Some(4)),
    ];
    assert_eq!(operations.iter().map(|op| op.action).collect::<Vec<_>>(), expected);
    assert_eq!(operations.iter().filter(|op| op.is_unknown()).count(), 2);
    assert_eq!(check_linearizable(&operations), Ok(()));
}

#[test]
fn a_full_history_refuses() {
    let recorder = recorder(1);
    drop(recorder.begin(1, 1, Request::Read).unwrap());
    assert_eq!(recorder.begin(1, 1, Request::Read).unwrap_err(), Full(1));
    assert_eq!(recorder.len(), 1);
}

#[test]
fn what_threads_do_to_a_real_register_is_accepted_and_what_a_cache_does_is_not() {
    let (recorder, register) = (recorder(100_000), Mutex::new(None));
    std::thread::scope(|scope| {
        for client in 0..4u32 {
            let (recorder, register) = (&recorder, &register);
            scope.spawn(move || {
                for n in 0..500u64 {
                    let value = Some(u64::from(client) * 1_000 + n);
                    let ticket = recorder.begin(client, 1, Request::Write(value)).unwrap();
                    *register.lock() = value;
                    recorder.finish(ticket, Outcome::Done);
                    let ticket = recorder.begin(client, 1, Request::Read).unwrap();
                    let found = *register.lock();
                    recorder.finish(ticket, Outcome::Found(found));
                }
            });
        }
    });
    assert_eq!(check_linearizable(&recorder.operations()), Ok(()));
    let ticket = recorder.begin(9, 1, Request::Read).unwrap();
    recorder.finish(ticket, Outcome::Found(Some(0)));
    assert!(check_linearizable(&recorder.operations()).is_err());
}
