//! Index entries that readers have found stale, until the node proposes to remove them.
//!
//! Always true: each is kept once; their number and their bytes are bounded, and their bytes are charged to the account
//! of requests as long as they are kept; what does not fit is forgotten, and the next reader finds it again. Left out:
//! whether an entry is stale (the step that removes it decides that again).

use diorite_base::account::{Account, Charge};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most entries that are kept.
const MOST_ENTRIES: usize = 4_096;
/// After so many bytes no more are kept.
const MOST_BYTES: usize = 1 << 20;
/// The fixed cost of an entry, as bytes.
const FIXED_BYTES: usize = 64;

/// Stale index entries of a tablet.
#[derive(Debug, Default)]
pub struct StaleEntries {
    /// The keys.
    pub keys: BTreeSet<Vec<u8>>,
    /// Some were forgotten: readers meet them faster than they are removed.
    pub is_full: bool,
    bytes: usize,
    charge: Option<Charge>,
}

impl StaleEntries {
    /// Adds entries.
    pub(crate) fn add(&mut self, keys: Vec<Vec<u8>>, account: &Arc<Account>) {
        for key in keys {
            if self.keys.contains(&key) {
                continue;
            }
            let bytes = self.bytes + key.len() + FIXED_BYTES;
            let is_full = self.keys.len() >= MOST_ENTRIES || self.bytes >= MOST_BYTES;
            if is_full || !self.charge(bytes, account) {
                self.is_full = true;
                return;
            }
            self.bytes = bytes;
            self.keys.insert(key);
        }
    }

    /// Charges so many bytes; whether the account has them.
    fn charge(&mut self, bytes: usize, account: &Arc<Account>) -> bool {
        match &mut self.charge {
            Some(charge) => charge.resize(bytes).is_ok(),
            None => account.charge(bytes).map(|charge| self.charge = Some(charge)).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_once_within_bounds_and_charged_while_they_are_kept() {
        let account = Account::root("all requests", 64 << 20);
        let mut stale = StaleEntries::default();
        let key = |n: usize, bytes: usize| [&n.to_be_bytes()[..], &vec![b'k'; bytes]].concat();
        stale.add(vec![key(1, 10), key(2, 10), key(1, 10)], &account);
        stale.add(vec![key(2, 10)], &account);
        assert_eq!((stale.keys.len(), stale.is_full), (2, false));
        assert!(account.used_bytes() > 0);
        stale.add((0..10_000).map(|n| key(n, 10)).collect(), &account);
        assert_eq!((stale.keys.len(), stale.is_full), (MOST_ENTRIES, true));
        drop(stale);
        assert_eq!(account.used_bytes(), 0);

        // Keys may be long; one at least is kept.
        let mut stale = StaleEntries::default();
        stale.add(vec![key(0, 3 * MOST_BYTES), key(1, 10)], &account);
        assert_eq!((stale.keys.len(), stale.is_full), (1, true));
        let mut stale = StaleEntries::default();
        stale.add((0..256).map(|n| key(n, 65_535)).collect(), &account);
        assert!(stale.is_full && account.used_bytes() < 2 * MOST_BYTES + (3 * MOST_BYTES + FIXED_BYTES + 100));

        // Where the account has nothing left, nothing is kept.
        let (small, mut stale) = (Account::root("all requests", 1 << 10), StaleEntries::default());
        stale.add(vec![key(0, 1 << 20)], &small);
        assert!(stale.keys.is_empty() && stale.is_full);
    }
}
