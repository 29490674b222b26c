//! Writes that are appended to a tablet's log and not yet applied, by the rows that they write.
//!
//! What is evaluated at the leader reads the stored rows, so it waits until earlier writes to its rows are applied. Its
//! lock keeps later ones away. Always true: a row costs O(log n); each write with a range that is in flight costs a
//! step.

use crate::targets::{Target, Targets};
use std::collections::BTreeMap;

/// See the top of this module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct InFlight {
    writes: BTreeMap<u64, Targets>,
    /// How many of the writes write each row.
    rows: BTreeMap<Vec<u8>, usize>,
    /// The writes that write ranges.
    ranges: BTreeMap<u64, Vec<Target>>,
}

impl InFlight {
    /// A write with this tag is appended.
    pub fn add(&mut self, tag: u64, targets: Targets) {
        for target in targets.iter() {
            match target {
                Target::Row(key) => *self.rows.entry(key.clone()).or_default() += 1,
                range @ Target::Range { .. } => self.ranges.entry(tag).or_default().push(range.clone()),
            }
        }
        let replaced = self.writes.insert(tag, targets);
        assert!(replaced.is_none(), "write {tag} is in flight already");
    }

    /// The write is applied.
    pub fn remove(&mut self, tag: u64) {
        let Some(targets) = self.writes.remove(&tag) else { return };
        self.ranges.remove(&tag);
        for target in targets.iter() {
            if let Target::Row(key) = target
                && let Some(count) = self.rows.get_mut(key)
            {
                *count -= 1;
                if *count == 0 {
                    self.rows.remove(key);
                }
            }
        }
    }

    /// Whether a write to one of these keys is in flight.
    pub fn overlaps(&self, targets: &Targets) -> bool {
        let is_written = |target: &Target| match target {
            Target::Row(key) => self.rows.contains_key(key),
            Target::Range { start, end } => self.rows.range(start.clone()..end.clone()).next().is_some(),
        };
        let mut ranges = self.ranges.values().flatten();
        targets.iter().any(is_written) || ranges.any(|range| targets.iter().any(|target| target.overlaps(range)))
    }

    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_knows_the_keys_of_what_is_in_flight(
            writes in prop::collection::vec((prop::collection::vec((0u8..6, 0u8..6), 1..3), any::<bool>()), 0..8),
            key in 0u8..6,
            other in 0u8..6,
        ) {
            let target = |&(start, end): &(u8, u8)| match start < end {
                true => Target::Range { start: vec![start], end: vec![end] },
                false => Target::Row(vec![start]),
            };
            let (mut in_flight, mut naive) = (InFlight::default(), Vec::new());
            for (tag, (parts, ends)) in writes.iter().enumerate() {
                let targets = Targets::new(parts.iter().map(target).collect());
                in_flight.add(tag as u64, targets.clone());
                if *ends {
                    in_flight.remove(tag as u64);
                } else {
                    naive.push(targets);
                }
            }
            let asked = Targets::new(vec![target(&(key, other))]);
            prop_assert_eq!(in_flight.overlaps(&asked), naive.iter().any(|targets| targets.overlap(&asked)));
            prop_assert_eq!(in_flight.is_empty(), naive.is_empty());
        }
    }
}
