//! The decisive check: a search for an order over the events of one key in time (Wing and Gong; Lowe, "Testing for
//! linearizability").
//!
//! A *configuration* is the state of the key and the set of open operations that have taken effect. At an operation's
//! end, configurations in which it has not are extended by open operations until it has, or are dropped. When none is
//! left, no order exists.
//!
//! The rules that keep configurations few, and why they change no verdict:
//! * A read takes effect as soon as the state allows: it changes nothing, so waiting gains nothing. Likewise an
//!   unapplied compare-and-set.
//! * A value that is written once is not replaced before all its observers have taken effect: it never comes back.
//! * All values without further observers are equivalent ([`UNOBSERVED`]); a write of such a value over such a value
//!   takes effect at once, unless an unapplied compare-and-set may still need it.
//! * An optional operation takes effect only directly before one that needs it.
//!
//! Always true: memory and time are bounded by the budget; when it is used up the answer is "undecided".

use crate::prepare::{Optional, Prepared, Step, UNOBSERVED, ValueId};
use std::collections::HashSet;

/// The most required operations of one key that may be open at one time.
pub(crate) const MOST_OPEN: usize = 128;

/// A set of open operations, by slot.
type Slots = u128;

/// Why a search finds no order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoOrder {
    /// No order exists: none reaches the end of this operation (an index).
    At(usize),
    /// The budget did not suffice.
    Undecided,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Configuration {
    /// The open operations that have taken effect.
    done: Slots,
    state: ValueId,
    /// How many of each optional group have taken effect.
    used: Box<[u32]>,
}

/// The open operations, by effect; lists are indexed by value.
struct Open {
    free: Slots,
    steps: Vec<Step>,
    changing: Slots,
    /// Writes of values without observers.
    unseen_writes: Slots,
    conflicts: Slots,
    observers_of: Vec<Slots>,
    reads_of: Vec<Slots>,
    conflicts_of: Vec<Slots>,
    /// Required observers that have not begun yet.
    still_to_come: Vec<usize>,
    /// Optional operations that have begun, by group.
    available: Vec<u32>,
}

enum Event {
    Begin(usize),
    BeginOptional(usize),
    End(usize),
}

/// Searches for an order; `budget` is the most configurations to visit.
pub(crate) fn search(prepared: &Prepared, budget: usize) -> Result<(), NoOrder> {
    let mut search = Search {
        prepared,
        open: Open::new(prepared),
        configurations: vec![Configuration {
            done: 0,
            state: crate::prepare::ABSENT,
            used: vec![0; prepared.optional.len()].into(),
        }],
        budget,
    };
    let mut slots = vec![0; prepared.required.len()];
    for event in events(prepared) {
        match event {
            Event::BeginOptional(group) => search.open.available[group] += 1,
            Event::Begin(place) => {
                slots[place] = search.open.add(prepared, prepared.required[place].step).ok_or(NoOrder::Undecided)?;
                search.reduce_all();
            }
            Event::End(place) => {
                search.reach(slots[place])?;
                if search.configurations.is_empty() {
                    return Err(NoOrder::At(prepared.required[place].source));
                }
                search.open.remove(slots[place]);
            }
        }
    }
    Ok(())
}

/// All events in time. At the same instant starts come before ends, so that touching intervals overlap.
fn events(prepared: &Prepared) -> impl Iterator<Item = Event> {
    let mut events = Vec::with_capacity(prepared.required.len() * 2);
    for (place, operation) in prepared.required.iter().enumerate() {
        events.push((operation.start_ns, false, Event::Begin(place)));
        events.push((operation.end_ns, true, Event::End(place)));
    }
    for (group, optional) in prepared.optional.iter().enumerate() {
        events.extend(optional.starts_ns.iter().map(|start_ns| (*start_ns, false, Event::BeginOptional(group))));
    }
    events.sort_by_key(|(time_ns, is_end, _)| (*time_ns, *is_end));
    events.into_iter().map(|(_, _, event)| event)
}

impl Open {
    fn new(prepared: &Prepared) -> Self {
        let values = prepared.values.len();
        Self {
            free: Slots::MAX,
            steps: vec![Step::Read(UNOBSERVED); MOST_OPEN],
            changing: 0,
            unseen_writes: 0,
            conflicts: 0,
            observers_of: vec![0; values],
            reads_of: vec![0; values],
            conflicts_of: vec![0; values],
            still_to_come: prepared.values.iter().map(|facts| facts.observers).collect(),
            available: vec![0; prepared.optional.len()],
        }
    }

    /// The slot of the operation, if it gets one.
    fn add(&mut self, prepared: &Prepared, step: Step) -> Option<usize> {
        let slot = self.free.trailing_zeros() as usize;
        if slot >= MOST_OPEN {
            return None;
        }
        let bit = 1 << slot;
        self.free &= !bit;
        self.steps[slot] = step;
        match step {
            Step::Read(value) => {
                self.reads_of[value] |= bit;
                self.observe(value, bit);
            }
            Step::Swap(expected, _) => {
                self.changing |= bit;
                self.observe(expected, bit);
            }
            Step::Write(value) => {
                self.changing |= bit;
                if is_unseen(prepared, value) {
                    self.unseen_writes |= bit;
                }
            }
            Step::Conflict(value) => {
                self.conflicts |= bit;
                self.conflicts_of[value] |= bit;
            }
        }
        Some(slot)
    }

    fn observe(&mut self, value: ValueId, bit: Slots) {
        self.observers_of[value] |= bit;
        self.still_to_come[value] -= 1;
    }

    fn remove(&mut self, slot: usize) {
        let others: Slots = !(1 << slot);
        self.free |= !others;
        self.changing &= others;
        self.unseen_writes &= others;
        self.conflicts &= others;
        match self.steps[slot] {
            Step::Read(value) | Step::Swap(value, _) => {
                self.observers_of[value] &= others;
                self.reads_of[value] &= others;
            }
            Step::Conflict(value) => self.conflicts_of[value] &= others,
            Step::Write(_) => {}
        }
    }

    /// Whether all required operations that see the value have taken effect.
    fn is_seen_by_all(&self, value: ValueId, done: Slots) -> bool {
        self.still_to_come[value] == 0 && self.observers_of[value] & !done == 0
    }
}

/// Whether nothing in the history distinguishes this value from others without observers.
fn is_unseen(prepared: &Prepared, value: ValueId) -> bool {
    let facts = &prepared.values[value];
    facts.observers == 0 && !facts.has_conflicts && !facts.is_optionally_expected
}

struct Search<'a> {
    prepared: &'a Prepared,
    open: Open,
    configurations: Vec<Configuration>,
    budget: usize,
}

impl Search<'_> {
    fn reduce_all(&mut self) {
        let mut configurations = std::mem::take(&mut self.configurations);
        configurations.iter_mut().for_each(|configuration| self.reduce(configuration));
        self.configurations = configurations;
    }

    /// Lets all operations take effect that change nothing, and forgets a value without further observers.
    fn reduce(&self, configuration: &mut Configuration) {
        let Open { reads_of, conflicts, conflicts_of, unseen_writes, .. } = &self.open;
        let state = configuration.state;
        configuration.done |= reads_of[state] | (conflicts & !conflicts_of[state]);
        let facts = &self.prepared.values[state];
        let is_over = self.open.is_seen_by_all(state, configuration.done);
        if is_over && !facts.has_conflicts && !facts.is_optionally_expected {
            configuration.state = UNOBSERVED;
            if !self.prepared.has_conflicts {
                configuration.done |= unseen_writes;
            }
        }
    }

    /// Extends the configurations until the operation in `slot` has taken effect in each; those that cannot are
    /// dropped.
    fn reach(&mut self, slot: usize) -> Result<(), NoOrder> {
        let bit: Slots = 1 << slot;
        let mut stack = std::mem::take(&mut self.configurations);
        if let [only] = &mut stack[..]
            && only.done & bit != 0
        {
            only.done &= !bit;
            self.configurations = stack;
            return Ok(());
        }
        let mut visited: HashSet<Configuration> = HashSet::new();
        let mut reached: HashSet<Configuration> = HashSet::new();
        while let Some(mut configuration) = stack.pop() {
            if configuration.done & bit != 0 {
                configuration.done &= !bit;
                if reached.insert(configuration.clone()) {
                    self.configurations.push(configuration);
                }
                continue;
            }
            if !visited.insert(configuration.clone()) {
                continue;
            }
            self.budget = self.budget.checked_sub(1).ok_or(NoOrder::Undecided)?;
            self.extend(&configuration, slot, &mut stack);
        }
        Ok(())
    }

    /// Every configuration that is one change away and may lead to the operation in slot `goal`.
    fn extend(&self, from: &Configuration, goal: usize, into: &mut Vec<Configuration>) {
        let mut candidates = self.open.changing & !from.done;
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            let bit: Slots = 1 << slot;
            candidates &= !bit;
            if slot != goal && self.is_dead_end(self.open.steps[slot], goal) {
                continue;
            }
            if let Some(state) = self.after(from.state, from.done | bit, self.open.steps[slot]) {
                let mut next = Configuration { done: from.done | bit, state, used: from.used.clone() };
                self.reduce(&mut next);
                into.push(next);
            }
        }
        for (group, optional) in self.prepared.optional.iter().enumerate() {
            if from.used[group] < self.open.available[group] && self.is_useful(from, optional) {
                let Some(state) = self.after(from.state, from.done, optional.step) else { continue };
                let mut next = Configuration { done: from.done, state, used: from.used.clone() };
                next.used[group] += 1;
                self.reduce(&mut next);
                into.push(next);
            }
        }
    }

    /// Whether the state after `step` has to last beyond this event, and the goal cannot take effect in it.
    fn is_dead_end(&self, step: Step, goal: usize) -> bool {
        let (Step::Write(new) | Step::Swap(_, new)) = step else { return true };
        let has_to_last = self.prepared.values[new].is_unique && self.open.still_to_come[new] > 0;
        let accepts: Slots = self.open.observers_of[new] | self.open.conflicts;
        has_to_last && accepts & (1 << goal) == 0
    }

    /// The state after a change, if it may take effect now. `done` includes it.
    fn after(&self, state: ValueId, done: Slots, step: Step) -> Option<ValueId> {
        let may_go = !self.prepared.values[state].is_unique || self.open.is_seen_by_all(state, done);
        match step {
            Step::Write(new) => may_go.then_some(new),
            Step::Swap(expected, new) => (expected == state && may_go).then_some(new),
            Step::Read(_) | Step::Conflict(_) => None,
        }
    }

    /// Whether some open operation could take effect directly after the optional one and not now.
    fn is_useful(&self, from: &Configuration, optional: &Optional) -> bool {
        let (Step::Write(new) | Step::Swap(_, new)) = optional.step else { return false };
        let is_awaited =
            self.open.observers_of[new] & !from.done != 0 || self.prepared.values[new].is_optionally_expected;
        let conflict_waits = self.open.conflicts_of[from.state] & !from.done != 0;
        new != from.state && (is_awaited || conflict_waits)
    }
}
