//! The lock table of a tablet, in the memory of its leader: who holds which rows and ranges, and who waits for them.
//!
//! A request names all that it needs in this tablet and receives all of it at once, so nobody here holds one key while
//! it waits for another. A request is granted if nothing of it is held and no older request that waits overlaps it:
//! queues are first in, first out, also between rows and ranges, and nobody overtakes.
//!
//! Always true: what is held does not overlap; a request that waits overlaps something that is held or an older one
//! that waits (no lost wake-up), so a removal examines only the first in the queue of each row that is freed, and the
//! ranges that wait. Memory is bounded by [`LockLimits`]. A row costs O(log n) to request and to release, whatever else
//! is held or waits, plus one step for each waiting range, of which there are few ([`LockLimits::waiting_ranges`]).
//! Left out: deadlocks between tablets. Whoever holds something elsewhere asks with [`Wait::Never`], or waits in the
//! order of the tablets ([`crate::coordinator`]).

use crate::ids::TransactionId;
use crate::targets::{Target, Targets};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Who holds locks or waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A transaction.
    Transaction(TransactionId),
    /// A write that is no transaction, by its tag.
    Write(u64),
}

/// Why something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// In memory, until a write has been evaluated and appended, or a prepare has been applied.
    Latched,
    /// In memory, by a transaction whose home is here.
    Reserved,
    /// By a prepare that is applied. Readers ask the home.
    Prepared,
}

/// What a request does when it cannot be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// It is refused.
    Never,
    /// It waits until this time on the monotonic clock, nanoseconds.
    Until(u64),
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All of it is held now.
    Granted,
    /// It waits.
    Waits,
    /// Refused: something is held, or waited for.
    Held,
    /// Refused: the table is full.
    Full,
}

/// Bounds of the memory of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockLimits {
    /// Rows and ranges that are held or waited for. What is prepared is always taken.
    pub targets: usize,
    /// Ranges that are waited for.
    pub waiting_ranges: usize,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self { targets: 100_000, waiting_ranges: 64 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holding {
    targets: Targets,
    hold: Hold,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    owner: Owner,
    targets: Targets,
    deadline_ns: u64,
}

/// See the top of this module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Locks {
    limits: LockLimits,
    holders: BTreeMap<Owner, Holding>,
    /// What is held, by its first key. The entries do not overlap.
    held: BTreeMap<Vec<u8>, (Target, Owner)>,
    /// Those who wait, in the order of their arrival.
    waiters: BTreeMap<u64, Waiter>,
    /// The numbers in `waiters`.
    waiting: BTreeMap<Owner, u64>,
    /// The queue of each row that is waited for.
    rows: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// The ranges that are waited for.
    ranges: BTreeSet<u64>,
    deadlines: BTreeSet<(u64, u64)>,
    next: u64,
    targets: usize,
}

impl Locks {
    /// An empty table.
    pub fn new(limits: LockLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The table of a leader that has found these prepares in its store. They do not overlap.
    pub fn rebuild<'a>(limits: LockLimits, prepared: impl IntoIterator<Item = (TransactionId, &'a Targets)>) -> Self {
        let mut locks = Self::new(limits);
        for (id, targets) in prepared {
            locks.restore(Owner::Transaction(id), targets.clone(), Hold::Prepared);
        }
        locks
    }

    /// Asks for all of `targets`. An owner asks once, until it has released them.
    pub fn request(&mut self, owner: Owner, targets: &Targets, wait: Wait) -> Asked {
        assert!(!self.knows(&owner), "{owner:?} has asked already");
        let is_free = self.is_free(targets, self.next);
        let deadline_ns = match (is_free, wait) {
            (false, Wait::Never) => return Asked::Held,
            (_, Wait::Until(deadline_ns)) => deadline_ns,
            (true, Wait::Never) => u64::MAX,
        };
        // A write that need not wait ends at once: rows that nobody holds can be written however many others are held.
        let is_brief = is_free && matches!(owner, Owner::Write(_));
        if !is_brief && self.targets + targets.len() > self.limits.targets {
            return Asked::Full;
        }
        if is_free {
            self.hold(owner, targets.clone(), Hold::Latched);
            return Asked::Granted;
        }
        let has_range = targets.iter().any(|target| matches!(target, Target::Range { .. }));
        if has_range && self.ranges.len() >= self.limits.waiting_ranges {
            return Asked::Full;
        }
        let number = self.next;
        self.next += 1;
        self.targets += targets.len();
        for target in targets.iter() {
            match target {
                Target::Row(key) => self.rows.entry(key.clone()).or_default().insert(number),
                Target::Range { .. } => self.ranges.insert(number),
            };
        }
        self.deadlines.insert((deadline_ns, number));
        self.waiting.insert(owner, number);
        self.waiters.insert(number, Waiter { owner, targets: targets.clone(), deadline_ns });
        Asked::Waits
    }

    /// Holds what an earlier leader has granted, whatever the limits. It overlaps nothing that is held.
    pub fn restore(&mut self, owner: Owner, targets: Targets, hold: Hold) {
        for target in targets.iter() {
            assert!(!self.is_held(target), "{target:?} is held by {owner:?} and by another");
        }
        self.hold(owner, targets, hold);
    }

    /// Says why a holder holds what was granted.
    pub fn mark(&mut self, owner: &Owner, hold: Hold) {
        let holding = self.holders.get_mut(owner).expect("a lock is marked by its holder");
        holding.hold = hold;
    }

    /// Ends what an owner holds or waits for. Returns those that hold what they have asked for in consequence.
    pub fn release(&mut self, owner: &Owner) -> Vec<Owner> {
        if let Some(holding) = self.holders.remove(owner) {
            for target in holding.targets.iter() {
                self.held.remove(target.start());
            }
            self.targets -= holding.targets.len();
            return self.grant(&holding.targets);
        }
        match self.waiting.get(owner) {
            Some(number) => {
                let targets = self.remove_waiter(*number).targets;
                self.grant(&targets)
            }
            None => Vec::new(),
        }
    }

    /// Ends the waits whose deadline has come. Returns who waited, and those that hold what they have asked for in
    /// consequence.
    pub fn expire(&mut self, now_ns: u64) -> (Vec<Owner>, Vec<Owner>) {
        let mut expired = Vec::new();
        while let Some(&(deadline_ns, number)) = self.deadlines.first()
            && deadline_ns <= now_ns
        {
            expired.push(self.remove_waiter(number));
        }
        let granted = expired.iter().flat_map(|waiter| self.grant(&waiter.targets)).collect();
        (expired.into_iter().map(|waiter| waiter.owner).collect(), granted)
    }

    /// The next deadline of a waiter, for a timer.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// The holder of a row, and why.
    pub fn holder(&self, key: &[u8]) -> Option<(Owner, Hold)> {
        let (_, (target, owner)) = self.held.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let holding = self.holders.get(owner).filter(|_| target.contains(key))?;
        Some((*owner, holding.hold))
    }

    /// What an owner holds.
    pub fn held_by(&self, owner: &Owner) -> Option<&Targets> {
        self.holders.get(owner).map(|holding| &holding.targets)
    }

    /// Whether an owner holds something or waits.
    pub fn knows(&self, owner: &Owner) -> bool {
        self.holders.contains_key(owner) || self.waiting.contains_key(owner)
    }

    /// Whether nothing is held. A write of a table without transactions looks at nothing else.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    fn hold(&mut self, owner: Owner, targets: Targets, hold: Hold) {
        for target in targets.iter() {
            let replaced = self.held.insert(target.start().to_vec(), (target.clone(), owner));
            assert!(replaced.is_none(), "what is held does not overlap");
        }
        self.targets += targets.len();
        self.holders.insert(owner, Holding { targets, hold });
    }

    fn is_held(&self, target: &Target) -> bool {
        let until = match target {
            Target::Row(key) => Bound::Included(key.as_slice()),
            Target::Range { end, .. } => Bound::Excluded(end.as_slice()),
        };
        let last = self.held.range::<[u8], _>((Bound::Unbounded, until)).next_back();
        last.is_some_and(|(_, (held, _))| held.overlaps(target))
    }

    /// Whether a request that arrived before this number waits for a key of the target.
    fn is_awaited_before(&self, target: &Target, number: u64) -> bool {
        let is_older = |queue: &BTreeSet<u64>| queue.first().is_some_and(|first| *first < number);
        let has_rows = match target {
            Target::Row(key) => self.rows.get(key).is_some_and(is_older),
            Target::Range { start, end } => self.rows.range(start.clone()..end.clone()).any(|(_, it)| is_older(it)),
        };
        let mut older = self.ranges.range(..number).filter_map(|number| self.waiters.get(number));
        let is_of = |it: &Target| matches!(it, Target::Range { .. }) && it.overlaps(target);
        has_rows || older.any(|waiter| waiter.targets.iter().any(is_of))
    }

    fn is_free(&self, targets: &Targets, number: u64) -> bool {
        !targets.iter().any(|target| self.is_held(target) || self.is_awaited_before(target, number))
    }

    fn remove_waiter(&mut self, number: u64) -> Waiter {
        let waiter = self.waiters.remove(&number).expect("a number of a waiter");
        self.waiting.remove(&waiter.owner);
        self.deadlines.remove(&(waiter.deadline_ns, number));
        self.ranges.remove(&number);
        for target in waiter.targets.iter() {
            if let Target::Row(key) = target
                && let Some(queue) = self.rows.get_mut(key)
            {
                queue.remove(&number);
                if queue.is_empty() {
                    self.rows.remove(key);
                }
            }
        }
        self.targets -= waiter.targets.len();
        waiter
    }

    /// Grants what can be granted after `freed` is no longer held or waited for by someone.
    fn grant(&mut self, freed: &Targets) -> Vec<Owner> {
        let mut candidates = self.ranges.clone();
        for target in freed.iter() {
            match target {
                Target::Row(key) => candidates.extend(self.rows.get(key).and_then(BTreeSet::first)),
                Target::Range { start, end } => {
                    let queues = self.rows.range(start.clone()..end.clone());
                    candidates.extend(queues.filter_map(|(_, queue)| queue.first()));
                }
            }
        }
        let mut granted = Vec::new();
        for number in candidates {
            let Some(waiter) = self.waiters.get(&number) else { continue };
            if self.is_free(&waiter.targets, number) {
                let waiter = self.remove_waiter(number);
                self.hold(waiter.owner, waiter.targets, Hold::Latched);
                granted.push(waiter.owner);
            }
        }
        granted
    }
}

#[cfg(test)]
mod tests;
