//! No acknowledged write is lost, and every value found was written.
//!
//! Always true: a write with an unknown outcome may be present or absent. Left out: order and time, which
//! [`crate::check_linearizable`] checks.

use crate::violation::Violation;
use std::collections::BTreeMap;

/// The write of a key that is written with one value only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insert {
    /// The key.
    pub key: u64,
    /// The written value. A retry writes the same value.
    pub value: u64,
    /// Whether the write was acknowledged; if not, it may have happened or not.
    pub acknowledged: bool,
}

/// Checks that every acknowledged insert is in `found`, with its value, and that `found` holds only inserted values.
pub fn check_acknowledged(inserts: &[Insert], found: &BTreeMap<u64, u64>) -> Result<(), Violation> {
    let mut written: BTreeMap<u64, Insert> = BTreeMap::new();
    for insert in inserts {
        let known = written.entry(insert.key).or_insert(*insert);
        if known.value != insert.value {
            let message = format!("key {} was inserted as {} and as {}", insert.key, known.value, insert.value);
            return Err(Violation::Malformed(message));
        }
        known.acknowledged |= insert.acknowledged;
    }
    let lost: Vec<_> = written
        .values()
        .filter(|insert| insert.acknowledged && found.get(&insert.key) != Some(&insert.value))
        .map(|insert| (insert.key, Some(insert.value), found.get(&insert.key).copied()))
        .collect();
    if !lost.is_empty() {
        return Err(Violation::LostWrites { lost });
    }
    let invented = found.iter().find(|(key, value)| written.get(key).is_none_or(|insert| insert.value != **value));
    match invented {
        Some((&key, &found)) => Err(Violation::Invented { key, found }),
        None => Ok(()),
    }
}

/// A counter that was incremented by one `acknowledged` times, and `unknown` times without an answer, may be `found`.
pub fn check_counter(acknowledged: u64, unknown: u64, found: u64) -> Result<(), Violation> {
    if (acknowledged..=acknowledged.saturating_add(unknown)).contains(&found) {
        Ok(())
    } else {
        Err(Violation::Counter { acknowledged, unknown, found })
    }
}
