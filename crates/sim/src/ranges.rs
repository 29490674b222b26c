//! The keys of each tablet, according to the catalog.
//!
//! Always true: the ranges of a table's tablets cover its keys, each once. A tablet that is no longer part of a table
//! keeps its range.

use diorite_base::{TableId, TabletId};
use diorite_cluster::catalog::Catalog;
use std::collections::BTreeMap;

/// The key of a tablet's counter.
pub const COUNTER: u64 = 900;

/// The first key of the second half of the inserts.
pub const SECOND_INSERTS: u64 = 1_000_000;

/// Where tablets are split: each part has keys that clients write.
pub const CUTS: [u64; 4] = [1, COUNTER, COUNTER + 1, SECOND_INSERTS];

/// The keys of a tablet: those of `root`, an initial tablet, in `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The initial tablet.
    pub root: TabletId,
    /// The first.
    pub start: u64,
    /// The first that is not.
    pub end: u64,
}

impl KeyRange {
    /// All keys of a tablet.
    pub fn all(root: TabletId) -> Self {
        Self { root, start: 0, end: u64::MAX }
    }

    /// Whether the key is one of them.
    pub fn contains(&self, key: u64) -> bool {
        (self.start..self.end).contains(&key)
    }

    /// Whether there is a key that both have.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.root == other.root && self.start < other.end && other.start < self.end
    }
}

/// The token that the data of a key begins with: keys of simulated tables are tokens.
pub fn token(key: u64) -> i64 {
    (key.saturating_add(1) ^ (1 << 63)) as i64
}

/// The first key of this token, or of a greater one: the smallest token is nobody's.
pub fn key(token: i64) -> u64 {
    ((token as u64) ^ (1 << 63)).saturating_sub(1)
}

/// The keys of every tablet that there is, was or will be.
#[derive(Debug, Default)]
pub struct Ranges {
    known: BTreeMap<TabletId, KeyRange>,
    /// The tables that clients write to, each by its only tablet in the beginning.
    roots: BTreeMap<TableId, TabletId>,
}

impl Ranges {
    /// Clients write to this table, whose only tablet is `root` now.
    pub fn add_root(&mut self, table: TableId, root: TabletId) {
        self.roots.insert(table, root);
    }

    /// Takes in a newer snapshot of the catalog; returns the tablets that are new in it.
    pub fn learn(&mut self, catalog: &Catalog) -> Vec<TabletId> {
        let mut found = Vec::new();
        for entry in catalog.tables() {
            let root = self.roots.get(&entry.table.id).copied();
            for (at, range) in entry.tablets.iter().enumerate() {
                let next = entry.tablets.get(at + 1).map_or(u64::MAX, |next| key(next.first_token));
                let whole = root.map_or_else(
                    || KeyRange::all(range.tablet),
                    |root| KeyRange { root, start: key(range.first_token), end: next },
                );
                found.push((range.tablet, whole));
                let split = catalog.placement(range.tablet).and_then(|placement| placement.split);
                if let Some(split) = split.filter(|_| root.is_some()) {
                    let [first, second] = split.children;
                    found.push((first, KeyRange { end: key(split.at), ..whole }));
                    found.push((second, KeyRange { start: key(split.at), ..whole }));
                }
            }
        }
        let new = found.iter().map(|(tablet, _)| *tablet).filter(|tablet| !self.known.contains_key(tablet)).collect();
        self.known.extend(found);
        new
    }

    /// The keys of a tablet; all of its own, if clients do not write to it.
    pub fn of(&self, tablet: TabletId) -> KeyRange {
        self.known.get(&tablet).copied().unwrap_or(KeyRange::all(tablet))
    }

    /// All tablets that have, had or will have a key of a root.
    pub fn holding(&self, root: TabletId, key: u64) -> Vec<TabletId> {
        let holds = |range: &KeyRange| range.root == root && range.contains(key);
        self.known.iter().filter(|(_, range)| holds(range)).map(|(tablet, _)| *tablet).collect()
    }

    /// The tablet of the beginning that a table came of, if clients write to it.
    pub fn root_of(&self, table: TableId) -> Option<TabletId> {
        self.roots.get(&table).copied()
    }

    /// All tablets that were ever known.
    pub fn tablets(&self) -> impl Iterator<Item = TabletId> + '_ {
        self.known.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_tokens_in_the_same_order() {
        assert_eq!((token(0), token(u64::MAX), key(token(5))), (i64::MIN + 1, i64::MAX, 5));
        assert_eq!((key(i64::MIN), key(token(0))), (0, 0));
        assert!(token(1) < token(COUNTER) && token(COUNTER) < token(SECOND_INSERTS));
    }
}
