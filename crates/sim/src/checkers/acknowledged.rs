//! No acknowledged write is lost, no write is applied twice, and every value found was written by a client.

use super::Finding;
use diorite_history::{Insert, check_acknowledged, check_counter};
use std::collections::BTreeMap;

/// A key that was only ever incremented.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    /// Increments that were acknowledged.
    pub acknowledged: u64,
    /// Increments with an unknown outcome.
    pub unknown: u64,
}

/// How long after a loss of power an entry may still be acknowledged that it destroyed: replicas that relied on the
/// lost log do not know yet.
const UNAWARE_NS: u64 = 3_000_000_000;

/// Losses of power that may have destroyed acknowledged writes, because those are acknowledged before they are durable.
#[derive(Debug, Default)]
pub struct Losses(Vec<(u64, u64)>);

impl Losses {
    /// Records a loss of power at `at_ns`; everything written before `synced_ns` was durable.
    pub fn note(&mut self, synced_ns: u64, at_ns: u64) {
        self.0.push((synced_ns, at_ns));
    }

    /// Whether there was one.
    pub fn are_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a write acknowledged at this time may be lost.
    pub fn may_have_taken(&self, acknowledged_ns: u64) -> bool {
        self.0.iter().any(|(synced_ns, at_ns)| (*synced_ns..at_ns + UNAWARE_NS).contains(&acknowledged_ns))
    }
}

/// Compares the writes with what is `found` in the end: `inserts` of keys that were written once, and `counters` by
/// key.
pub fn check(
    at_ns: u64,
    inserts: &[Insert],
    counters: &BTreeMap<u64, Counter>,
    found: &BTreeMap<u64, u64>,
) -> Result<(), Finding> {
    let finding = |message| Finding { checker: "acknowledged", at_ns, message };
    let mut rest = found.clone();
    for (key, counter) in counters {
        let value = rest.remove(key).unwrap_or(0);
        check_counter(counter.acknowledged, counter.unknown, value)
            .map_err(|violation| finding(format!("key {key}: {violation}")))?;
    }
    check_acknowledged(inserts, &rest).map_err(|violation| finding(violation.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_inserts_and_double_increments_are_found() {
        let inserts =
            [Insert { key: 1, value: 10, acknowledged: true }, Insert { key: 2, value: 20, acknowledged: false }];
        let counters = BTreeMap::from([(9, Counter { acknowledged: 2, unknown: 1 })]);
        let check = |found: &[(u64, u64)]| check(0, &inserts, &counters, &found.iter().copied().collect());
        assert!(check(&[(1, 10), (9, 2)]).is_ok());
        assert!(check(&[(1, 10), (2, 20), (9, 3)]).is_ok());
        assert!(check(&[(2, 20), (9, 3)]).is_err(), "an acknowledged insert is missing");
        assert!(check(&[(1, 10), (9, 4)]).is_err(), "an increment counted twice");
        assert!(check(&[(1, 10), (3, 30), (9, 2)]).is_err(), "nobody wrote key 3");
    }
}
