//! Order of writes, the readable end, and what a read may return.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;

const EPOCH: u32 = 1_700_000_000;

fn version(count: u32) -> Version {
    Version::new(EPOCH, count)
}

#[test]
fn new_keys_become_readable_in_order_of_their_numbers() {
    let keys = KeyState::new(EPOCH, 0, 3, 1_000);
    let tickets: Vec<_> = std::iter::from_fn(|| keys.start_new()).collect();
    assert_eq!(tickets.iter().map(|ticket| ticket.number).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(keys.exhausted());
    keys.acknowledge(tickets[1]);
    assert_eq!(keys.readable(), 0);
    keys.acknowledge(tickets[0]);
    assert_eq!(keys.readable(), 2);
    keys.acknowledge(tickets[2]);
    assert_eq!(keys.readable(), 3);
}

#[test]
fn a_key_has_one_writer_at_a_time_and_rising_versions() {
    let keys = KeyState::new(EPOCH, 0, 10, 10);
    let first = keys.start_new().unwrap();
    assert_eq!(keys.start_overwrite(first.number), None);
    keys.acknowledge(first);
    let second = keys.start_overwrite(first.number).unwrap();
    assert_eq!(second.version, version(2));
    assert_eq!(keys.start_overwrite(first.number), None);
    assert_eq!(keys.oldest_allowed(first.number), version(1), "the second write is not acknowledged yet");
    keys.acknowledge(second);
    assert_eq!(keys.oldest_allowed(first.number), version(2));
}

#[test]
fn a_key_with_a_lost_write_is_left_alone() {
    let keys = KeyState::new(EPOCH, 0, 10, 10);
    let ticket = keys.start_new().unwrap();
    keys.give_up(ticket);
    assert_eq!(keys.readable(), 1, "one lost write does not hold up the run");
    assert!(keys.may_be_missing(ticket.number));
    assert_eq!(keys.start_overwrite(ticket.number), None);
}

#[test]
fn a_key_whose_write_was_refused_is_written_again() {
    let keys = KeyState::new(EPOCH, 1, 10, 10);
    let refused = keys.start_new().unwrap();
    assert!(!keys.withdraw(refused), "it was never written");
    keys.give_up(refused);
    let written = keys.start_new().unwrap();
    keys.acknowledge(written);
    for (number, count) in [(written.number, 2), (0, 1)] {
        let ticket = keys.start_overwrite(number).unwrap();
        assert_eq!(keys.newest_possible(number), version(count));
        assert!(keys.withdraw(ticket));
        assert_eq!(keys.newest_possible(number), version(count - 1));
        assert_eq!(keys.start_overwrite(number).unwrap().version, version(count));
    }
}

#[test]
fn a_new_key_takes_the_place_of_one_with_a_lost_write() {
    let keys = KeyState::new(EPOCH, 0, 2, 10);
    let (first, second) = (keys.start_new().unwrap(), keys.start_new().unwrap());
    keys.acknowledge(first);
    keys.give_up(second);
    keys.extend();
    assert!(!keys.exhausted());
    let third = keys.start_new().unwrap();
    assert_eq!((third.number, keys.start_new()), (2, None));
    keys.acknowledge(third);
    assert_eq!(keys.readable(), 3);
}

#[test]
fn the_newest_version_that_is_possible_is_the_one_being_written() {
    let keys = KeyState::new(EPOCH, 0, 10, 10);
    let ticket = keys.start_new().unwrap();
    assert_eq!(keys.newest_possible(ticket.number), version(1));
    keys.acknowledge(ticket);
    assert_eq!(keys.newest_possible(ticket.number), version(1));
    let lost = keys.start_overwrite(ticket.number).unwrap();
    assert_eq!(keys.newest_possible(ticket.number), version(2));
    keys.give_up(lost);
    assert_eq!(keys.newest_possible(ticket.number), version(2), "it may take effect later");
}

#[test]
fn keys_of_an_earlier_run_exist_at_an_unknown_version() {
    let keys = KeyState::new(EPOCH, 100, 200, 1_000);
    assert_eq!(keys.readable(), 100);
    assert_eq!(keys.oldest_allowed(7), Version::default());
    assert!(!keys.may_be_missing(7));
    let ticket = keys.start_overwrite(7).unwrap();
    keys.acknowledge(ticket);
    assert_eq!(keys.oldest_allowed(7), version(1));
    assert_eq!(keys.start_new().unwrap().number, 100);
}

#[test]
fn untracked_keys_rewrite_the_same_version() {
    let keys = KeyState::new(EPOCH, 30_000_000_000, 30_000_000_000, CHUNK_KEYS as u64);
    let far = 29_999_999_999;
    assert_eq!(keys.start_overwrite(far).unwrap().version, keys.start_overwrite(far).unwrap().version);
    assert_eq!(keys.oldest_allowed(far), Version::default());
}

#[test]
fn writers_wait_for_the_oldest_unacknowledged_key() {
    let keys = KeyState::new(EPOCH, 0, u64::MAX / 2, 0);
    let oldest = keys.start_new().unwrap();
    for _ in 1..WINDOW_KEYS {
        let ticket = keys.start_new().unwrap();
        keys.acknowledge(ticket);
    }
    assert_eq!(keys.start_new(), None);
    assert!(!keys.exhausted());
    keys.acknowledge(oldest);
    assert_eq!(keys.readable(), WINDOW_KEYS);
    assert_eq!(keys.start_new().unwrap().number, WINDOW_KEYS);
}

#[test]
fn many_threads_finish_every_key() {
    let keys = KeyState::new(EPOCH, 0, 200_000, 200_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !keys.exhausted() {
                    if let Some(ticket) = keys.start_new() {
                        keys.acknowledge(ticket);
                    }
                }
            });
        }
    });
    assert_eq!(keys.readable(), 200_000);
}
