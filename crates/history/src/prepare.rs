//! The history of one key in the form that the checks use: values numbered, unknown outcomes resolved as far as
//! possible.
//!
//! The resolutions, and why they change no verdict:
//! * A value that only one operation writes, and that was seen, was written before the first observer was answered. So
//!   the writer certainly took effect, and its interval ends there at the latest. A conditional writer then saw its own
//!   expected value in turn, and so on back.
//! * An operation with an unknown outcome whose value nobody saw explains nothing, unless an unapplied compare-and-set
//!   needs a value in between. Without such, it is left out.
//! * The remaining operations with unknown outcomes are *optional*: equal ones form one group, and only the number of
//!   them that were used matters.
//!
//! Always true: every required operation has an end, and the facts about values count required observers only.

use crate::operation::{Action, Operation, Value, shown};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A value's number within its key.
pub(crate) type ValueId = usize;

/// Stands for every value without an observer.
pub(crate) const UNOBSERVED: ValueId = 0;

/// Absence, the initial value of every key.
pub(crate) const ABSENT: ValueId = 1;

/// The effect of an operation on a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Sees this value.
    Read(ValueId),
    /// Sees that the value is not this one (a compare-and-set that was not applied).
    Conflict(ValueId),
    /// Replaces whatever there is.
    Write(ValueId),
    /// Sees the first, leaves the second.
    Swap(ValueId, ValueId),
}

/// An operation that certainly took effect between its start and its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Required {
    pub start_ns: u64,
    pub end_ns: u64,
    pub step: Step,
    /// Its index among the key's operations.
    pub source: usize,
}

/// Equal operations, each of which took effect at some time after its start, or never.
#[derive(Debug)]
pub(crate) struct Optional {
    pub step: Step,
    pub starts_ns: Vec<u64>,
}

/// Facts about a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub value: Value,
    /// Whether at most one operation writes it, so that it never comes back once it was replaced.
    pub is_unique: bool,
    /// Required operations that see it.
    pub observers: usize,
    /// Some unapplied compare-and-set expected it.
    pub has_conflicts: bool,
    /// An optional compare-and-set expects it.
    pub is_optionally_expected: bool,
}

/// The history of one key.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub required: Vec<Required>,
    pub optional: Vec<Optional>,
    pub values: Vec<Facts>,
    pub has_conflicts: bool,
}

/// Why a key's history is impossible, and the operations (their indexes) that show it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub reason: String,
    pub witnesses: Vec<usize>,
}

/// Facts about a value before outcomes are resolved.
#[derive(Default, Clone)]
struct Sightings {
    producers: Vec<usize>,
    /// End and index of the first operation known to have seen it.
    first: Option<(u64, usize)>,
}

struct Preparation<'a> {
    operations: &'a [Operation],
    numbers: BTreeMap<Value, ValueId>,
    values: Vec<Value>,
    sightings: Vec<Sightings>,
    /// For each operation the time before which it certainly took effect, if it did.
    ends_ns: Vec<Option<u64>>,
}

/// Prepares the operations of one key, or returns a contradiction.
pub(crate) fn prepare(operations: &[Operation]) -> Result<Prepared, Failure> {
    let mut preparation = Preparation {
        operations,
        numbers: BTreeMap::from([(None, ABSENT)]),
        values: vec![None, None],
        sightings: vec![Sightings::default(); 2],
        ends_ns: operations.iter().map(|op| if op.is_unknown() { None } else { op.end_ns }).collect(),
    };
    for (place, operation) in operations.iter().enumerate() {
        preparation.gather(place, operation);
    }
    preparation.resolve()?;
    Ok(preparation.finish())
}

impl Preparation<'_> {
    fn number(&mut self, value: Value) -> ValueId {
        let next = self.values.len();
        let number = *self.numbers.entry(value).or_insert(next);
        if number == next {
            self.values.push(value);
            self.sightings.push(Sightings::default());
        }
        number
    }

    fn gather(&mut self, place: usize, operation: &Operation) {
        let end_ns = self.ends_ns[place];
        let seen = match operation.action {
            Action::Read(value) => end_ns.map(|end| (value, end)),
            Action::CompareAndSet { expected, applied: Some(true), .. } => end_ns.map(|end| (expected, end)),
            Action::CompareAndSet { expected, .. } => {
                self.number(expected);
                None
            }
            Action::Write(_) => None,
        };
        if let Some((value, end)) = seen {
            let number = self.number(value);
            self.see(number, end, place);
        }
        if let Some(value) = operation.produces() {
            let number = self.number(value);
            self.sightings[number].producers.push(place);
            if matches!(operation.action, Action::CompareAndSet { expected, .. } if expected == value) {
                // A compare-and-set from a value to itself needs another writer of that value, so it must not count as
                // the only one.
                self.sightings[number].producers.push(place);
            }
        }
    }

    /// Whether this is the earliest sighting so far.
    fn see(&mut self, value: ValueId, end_ns: u64, place: usize) -> bool {
        let first = &mut self.sightings[value].first;
        let is_earliest = first.is_none_or(|(earliest, _)| end_ns < earliest);
        if is_earliest {
            *first = Some((end_ns, place));
        }
        is_earliest
    }

    /// Gives every writer of a seen value the end that follows from the sighting, the earliest sighting first.
    fn resolve(&mut self) -> Result<(), Failure> {
        let firsts = self.sightings.iter().enumerate();
        let mut queue: BinaryHeap<_> =
            firsts.filter_map(|(value, seen)| Some(Reverse((seen.first?.0, value)))).collect();
        while let Some(Reverse((end_ns, value))) = queue.pop() {
            let Some((first_ns, observer)) = self.sightings[value].first else { continue };
            if first_ns != end_ns || value == ABSENT {
                continue;
            }
            let [producer] = self.sightings[value].producers[..] else {
                if self.sightings[value].producers.is_empty() {
                    let reason = format!("nobody wrote {}, which was seen", shown(self.values[value]));
                    return Err(Failure { reason, witnesses: vec![observer] });
                }
                continue;
            };
            let end_ns = self.ends_ns[producer].map_or(end_ns, |known| known.min(end_ns));
            self.ends_ns[producer] = Some(end_ns);
            if end_ns < self.operations[producer].start_ns {
                let reason = format!("{} was seen before it was written", shown(self.values[value]));
                return Err(Failure { reason, witnesses: vec![producer, observer] });
            }
            if let Action::CompareAndSet { expected, .. } = self.operations[producer].action {
                let expected = self.number(expected);
                if self.see(expected, end_ns, producer) {
                    queue.push(Reverse((end_ns, expected)));
                }
            }
        }
        Ok(())
    }

    fn facts(&self) -> Vec<Facts> {
        let facts = |(number, seen): (usize, &Sightings)| Facts {
            value: self.values[number],
            is_unique: match number {
                UNOBSERVED => false,
                ABSENT => seen.producers.is_empty(),
                _ => seen.producers.len() == 1,
            },
            ..Facts::default()
        };
        self.sightings.iter().enumerate().map(facts).collect()
    }

    fn finish(self) -> Prepared {
        let mut values = self.facts();
        let mut required = Vec::new();
        for (source, operation) in self.operations.iter().enumerate() {
            let Some(end_ns) = self.ends_ns[source] else { continue };
            let step = self.step(operation);
            match step {
                Step::Read(value) | Step::Swap(value, _) => values[value].observers += 1,
                Step::Conflict(value) => values[value].has_conflicts = true,
                Step::Write(_) => {}
            }
            required.push(Required { start_ns: operation.start_ns, end_ns, step, source });
        }
        let has_conflicts = values.iter().any(|facts| facts.has_conflicts);
        let optional = self.optional(&mut values, has_conflicts);
        Prepared { required, optional, values, has_conflicts }
    }

    fn step(&self, operation: &Operation) -> Step {
        match operation.action {
            Action::Read(value) => Step::Read(self.numbers[&value]),
            Action::Write(value) => Step::Write(self.numbers[&value]),
            Action::CompareAndSet { expected, applied: Some(false), .. } => Step::Conflict(self.numbers[&expected]),
            Action::CompareAndSet { expected, new, .. } => Step::Swap(self.numbers[&expected], self.numbers[&new]),
        }
    }

    /// The groups of operations whose outcomes stay unknown and that may explain something.
    fn optional(&self, values: &mut [Facts], has_conflicts: bool) -> Vec<Optional> {
        let unresolved = |(place, op): &(usize, &Operation)| self.ends_ns[*place].is_none() && op.produces().is_some();
        let unknown = self.operations.iter().enumerate().filter(unresolved);
        let unknown: Vec<(u64, Step)> = unknown.map(|(_, op)| (op.start_ns, self.step(op))).collect();
        let is_seen = |facts: &Facts| facts.observers > 0 || facts.is_optionally_expected || facts.has_conflicts;
        // The expected value of an optional operation counts as seen, if the operation itself explains something.
        loop {
            let mut is_complete = true;
            for &(_, step) in &unknown {
                if let Step::Swap(expected, new) = step
                    && !values[expected].is_optionally_expected
                    && (is_seen(&values[new]) || values[expected].has_conflicts)
                {
                    values[expected].is_optionally_expected = true;
                    is_complete = false;
                }
            }
            if is_complete {
                break;
            }
        }
        let mut groups: BTreeMap<Step, Vec<u64>> = BTreeMap::new();
        for (start_ns, step) in unknown {
            let or_unobserved = |new| if is_seen(&values[new]) { new } else { UNOBSERVED };
            let step = match step {
                Step::Write(new) => Step::Write(or_unobserved(new)),
                Step::Swap(expected, new) => Step::Swap(expected, or_unobserved(new)),
                Step::Read(_) | Step::Conflict(_) => continue,
            };
            // A value without observers can only come in between, where an unapplied compare-and-set needs that.
            let explains = match step {
                Step::Write(UNOBSERVED) => has_conflicts,
                Step::Swap(expected, UNOBSERVED) => values[expected].has_conflicts,
                _ => true,
            };
            if explains {
                groups.entry(step).or_default().push(start_ns);
            }
        }
        groups.into_iter().map(|(step, starts_ns)| Optional { step, starts_ns }).collect()
    }
}
