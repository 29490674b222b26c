//! A list that clients only appended to, each value once.
//!
//! Always true: an append with an unknown outcome may be present or absent; two concurrent appends may be in either
//! order.

use crate::operation::Ended;
use crate::violation::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// One append of a value that no other append has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Append {
    /// The value.
    pub value: u64,
    /// Its outcome.
    pub ended: Ended,
    /// When it was sent, nanoseconds on the clock of all clients.
    pub sent_ns: u64,
    /// When it was answered.
    pub answered_ns: u64,
}

/// Checks that `list` contains each acknowledged append once and no refused one, and that an append which was
/// acknowledged before another one was sent comes before it.
pub fn check_appended(appends: &[Append], list: &[u64]) -> Result<(), Violation> {
    let wrong = |reason: String| Err(Violation::List { reason, found: list.to_vec() });
    let mut places = BTreeMap::new();
    for (place, value) in list.iter().enumerate() {
        if places.insert(*value, place).is_some() {
            return wrong(format!("{value} is there twice"));
        }
    }
    if let Some(value) = list.iter().find(|value| !appends.iter().any(|append| append.value == **value)) {
        return wrong(format!("nobody appended {value}"));
    }
    let mut done: Vec<(Append, usize)> = Vec::new();
    for append in appends {
        match (append.ended, places.get(&append.value)) {
            (Ended::Done, None) => return wrong(format!("{} was acknowledged and is not there", append.value)),
            (Ended::NotDone, Some(_)) => return wrong(format!("{} was refused and is there", append.value)),
            (Ended::Done, Some(place)) => done.push((*append, *place)),
            _ => {}
        }
    }
    match out_of_order(&mut done) {
        Some(reason) => wrong(reason),
        None => Ok(()),
    }
}

/// A contradiction between the list and the order of the appends. Examines the appends by the time of sending, and
/// tracks the last position among those that were answered by then.
fn out_of_order(done: &mut [(Append, usize)]) -> Option<String> {
    let mut by_answer: Vec<(Append, usize)> = done.to_vec();
    by_answer.sort_by_key(|(append, _)| append.answered_ns);
    done.sort_by_key(|(append, _)| append.sent_ns);
    let mut answered = by_answer.into_iter().peekable();
    let mut hindmost: Option<(Append, usize)> = None;
    for (append, place) in done {
        while let Some(earlier) = answered.next_if(|(earlier, _)| earlier.answered_ns < append.sent_ns) {
            if hindmost.is_none_or(|(_, at)| earlier.1 > at) {
                hindmost = Some(earlier);
            }
        }
        if let Some((earlier, _)) = hindmost.filter(|(_, at)| at > place) {
            let (first, second) = (earlier.value, append.value);
            return Some(format!("{first} was acknowledged before {second} was sent, and stands behind it"));
        }
    }
    None
}

/// One write of a number to several places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Several {
    /// The number, which is written once.
    pub number: u64,
    /// Its outcome.
    pub ended: Ended,
}

/// Checks that an acknowledged write to several places is in all of them, and a refused one in none. `found`: the
/// number of places that contain each number.
pub fn check_several(writes: &[Several], found: &BTreeMap<u64, usize>, places: usize) -> Result<(), Violation> {
    for write in writes {
        let count = found.get(&write.number).copied().unwrap_or(0);
        let is_right = match write.ended {
            Ended::Done => count == places,
            Ended::NotDone => count == 0,
            Ended::Unknown => count <= places,
        };
        if !is_right {
            return Err(Violation::Several { number: write.number, ended: write.ended, found: count, places });
        }
    }
    let known: BTreeSet<u64> = writes.iter().map(|write| write.number).collect();
    let invented = found.iter().find(|(number, _)| !known.contains(number));
    invented.map_or(Ok(()), |(&key, &found)| Err(Violation::Invented { key, found: found as u64 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(value: u64, ended: Ended, sent_ns: u64, answered_ns: u64) -> Append {
        Append { value, ended, sent_ns, answered_ns }
    }

    #[test]
    fn lists_that_lack_double_invent_or_disorder_are_found() {
        let appends = [
            append(1, Ended::Done, 0, 10),
            append(2, Ended::Done, 20, 30),
            append(3, Ended::Unknown, 0, 40),
            append(4, Ended::NotDone, 0, 40),
            append(5, Ended::Done, 5, 25),
        ];
        for right in [&[1, 5, 2][..], &[3, 1, 2, 5], &[5, 1, 3, 2]] {
            assert_eq!(check_appended(&appends, right), Ok(()));
        }
        for wrong in [&[1, 5][..], &[1, 2, 5, 1], &[1, 4, 5, 2], &[2, 1, 5], &[1, 5, 2, 9]] {
            assert!(check_appended(&appends, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn writes_to_several_places_that_are_torn_or_were_refused_and_done_are_found() {
        let write = |number, ended| Several { number, ended };
        let writes = [write(1, Ended::Done), write(2, Ended::NotDone), write(3, Ended::Unknown)];
        let is_right = |found: &[(u64, usize)]| check_several(&writes, &found.iter().copied().collect(), 2).is_ok();
        assert!(is_right(&[(1, 2)]) && is_right(&[(1, 2), (3, 1)]));
        assert!(!is_right(&[(1, 1)]) && !is_right(&[(1, 2), (2, 1)]) && !is_right(&[(1, 2), (4, 1)]));
    }
}
