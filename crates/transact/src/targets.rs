//! What a transaction or a write locks in a tablet: rows and ranges of keys.
//!
//! Always true: [`Targets`] are in key order and do not overlap, so at most one of them contains a key; copies of them
//! share their memory, as the table of locks, a step and its record all have them. Left out: shared locks. A one-shot
//! transaction writes what it locks, and a row that it only tests is locked in the same way.

use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use std::fmt;
use std::sync::Arc;

/// A row or a range of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The row of this key.
    Row(Vec<u8>),
    /// Every key from `start` to before `end`.
    Range {
        /// The first key.
        start: Vec<u8>,
        /// The first key after the range; greater than `start`.
        end: Vec<u8>,
    },
}

impl Target {
    /// The first key.
    pub fn start(&self) -> &[u8] {
        match self {
            Self::Row(start) | Self::Range { start, .. } => start,
        }
    }

    /// Whether it ends before `key`.
    pub fn ends_before(&self, key: &[u8]) -> bool {
        match self {
            Self::Row(row) => row.as_slice() < key,
            Self::Range { end, .. } => end.as_slice() <= key,
        }
    }

    /// Whether a key is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.ends_before(other.start()) && !other.ends_before(self.start())
    }

    /// Whether the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start() <= key && !self.ends_before(key)
    }

    /// The union of two that overlap, of which `other` does not begin first.
    fn absorb(&mut self, other: Self) {
        match (self, other) {
            (Self::Row(_), Self::Row(_)) | (Self::Range { .. }, Self::Row(_)) => {}
            (Self::Range { end, .. }, Self::Range { end: other, .. }) => *end = std::mem::take(end).max(other),
            (row @ Self::Row(_), range) => *row = range,
        }
    }
}

/// A set of keys: rows and ranges in key order, none of which overlap.
// `None` if there are none, and only then: most of those that are made are empty at first.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Targets(Option<Arc<[Target]>>);

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Targets").field(&self.all()).finish()
    }
}

impl Targets {
    fn of(targets: Vec<Target>) -> Self {
        Self((!targets.is_empty()).then(|| targets.into()))
    }

    fn all(&self) -> &[Target] {
        self.0.as_deref().unwrap_or_default()
    }

    /// The union of these. Empty ranges are left out.
    pub fn new(mut targets: Vec<Target>) -> Self {
        if let [Target::Row(_)] = targets[..] {
            return Self::of(targets);
        }
        targets.retain(|target| !matches!(target, Target::Range { start, end } if start >= end));
        targets.sort_by(|one, other| one.start().cmp(other.start()));
        let mut union: Vec<Target> = Vec::with_capacity(targets.len());
        for target in targets {
            match union.last_mut() {
                Some(last) if last.overlaps(&target) => last.absorb(target),
                _ => union.push(target),
            }
        }
        Self::of(union)
    }

    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = &Target> {
        self.all().iter()
    }

    /// How many rows and ranges there are.
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a key is in both.
    pub fn overlap(&self, other: &Self) -> bool {
        let other = other.all();
        self.iter().any(|target| {
            let after = other.partition_point(|of_other| !target.ends_before(of_other.start()));
            after > 0 && target.overlaps(&other[after - 1])
        })
    }

    /// Whether the key is in them.
    pub fn contains(&self, key: &[u8]) -> bool {
        let all = self.all();
        let after = all.partition_point(|target| target.start() <= key);
        after > 0 && all[after - 1].contains(key)
    }

    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for target in self.iter() {
            match target {
                Target::Row(key) => {
                    out.push(0);
                    put_slice(out, key);
                }
                Target::Range { start, end } => {
                    out.push(1);
                    put_slice(out, start);
                    put_slice(out, end);
                }
            }
        }
    }

    /// Decodes what [`Self::encode`] wrote, at most `limit` targets.
    pub fn decode(reader: &mut Reader<'_>, limit: usize) -> Result<Self, Malformed> {
        let count = reader.shortest_varint()?;
        if count > limit as u64 {
            return Err(Malformed);
        }
        let mut targets: Vec<Target> = Vec::new();
        for _ in 0..count {
            let target = match reader.u8()? {
                0 => Target::Row(reader.shortest_slice()?.to_vec()),
                1 => Target::Range { start: reader.shortest_slice()?.to_vec(), end: reader.shortest_slice()?.to_vec() },
                _ => return Err(Malformed),
            };
            let is_empty = matches!(&target, Target::Range { start, end } if start >= end);
            let is_in_order = targets.last().is_none_or(|last| last.ends_before(target.start()));
            if is_empty || !is_in_order {
                return Err(Malformed);
            }
            targets.push(target);
        }
        Ok(Self::of(targets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target() -> impl Strategy<Value = Target> {
        let key = || prop::collection::vec(0u8..3, 0..3);
        prop_oneof![key().prop_map(Target::Row), (key(), key()).prop_map(|(start, end)| Target::Range { start, end })]
    }

    /// All keys that the strategy makes, and those between them.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        for one in 0..3 {
            keys.push(vec![one]);
            for two in 0..3 {
                keys.extend([vec![one, two], vec![one, two, 0]]);
            }
        }
        keys
    }

    proptest! {
        #[test]
        fn a_union_has_the_keys_of_its_parts_and_one_form(parts in prop::collection::vec(target(), 0..6)) {
            let union = Targets::new(parts.clone());
            for key in keys() {
                prop_assert_eq!(union.contains(&key), parts.iter().any(|part| part.contains(&key)), "{:?}", key);
            }
            let mut bytes = Vec::new();
            union.encode(&mut bytes);
            prop_assert_eq!(Targets::decode(&mut Reader::new(&bytes), 6), Ok(union.clone()));
            prop_assert_eq!(Targets::new(union.all().iter().rev().cloned().collect()), union);
        }

        #[test]
        fn two_overlap_if_a_key_is_in_both(one in target(), other in target()) {
            let (one, other) = (Targets::new(vec![one]), Targets::new(vec![other]));
            let has_common = keys().iter().any(|key| one.contains(key) && other.contains(key));
            prop_assert_eq!(one.overlap(&other), has_common);
        }
    }
}
