//! What this node remembers of homes between the transactions that it coordinates: ids that they have issued in advance,
//! and transactions of which all participants have finished.
//!
//! Always true: an id is handed out once. Everything here may be forgotten: a transaction without such an id reserves
//! first, and a home forgets its records by itself after a while. Left out: how long an id lives at its home
//! ([`diorite_transact::timing`]).

use ahash::AHashMap;
use diorite_base::TabletId;
use diorite_transact::TransactionId;
use parking_lot::Mutex;

/// The most ids of a home that are kept, and the most ended transactions that are reported at once.
const MAX_OF_HOME: usize = 64;
/// The most homes that are remembered.
const MAX_HOMES: usize = 4_096;
/// An older id is not used: its home may soon not know it any more.
const MAX_AGE_NS: u64 = 2_000_000_000;
/// How long transactions reserve first at a home after one has found rows held: with contention, prepares would often be in
/// vain.
const RESERVES_NS: u64 = 100_000_000;

/// When ended transactions are to be reported to their home.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// With those that end in the next moments: [`InAdvance::take_ended`].
    Soon,
    Now(Vec<TransactionId>),
    /// Another transaction does it.
    Not,
}

#[derive(Debug, Default)]
struct OfHome {
    ids: Vec<(TransactionId, u64)>,
    reserves_until_ns: u64,
    ended: Vec<TransactionId>,
    /// What has ended by then is reported soon.
    reports_soon: bool,
}

/// See the top of this module.
#[derive(Debug, Default)]
pub(super) struct InAdvance(Mutex<AHashMap<TabletId, OfHome>>);

impl InAdvance {
    fn with<T>(&self, home: TabletId, change: impl FnOnce(&mut OfHome) -> T) -> T {
        let mut homes = self.0.lock();
        if homes.len() >= MAX_HOMES && !homes.contains_key(&home) {
            homes.clear();
        }
        change(homes.entry(home).or_default())
    }

    /// An id with which a transaction may begin at this home.
    pub(super) fn take(&self, home: TabletId, now_ns: u64) -> Option<TransactionId> {
        let mut homes = self.0.lock();
        let of_home = homes.get_mut(&home).filter(|of_home| now_ns >= of_home.reserves_until_ns)?;
        // The newest one is the last.
        let newest = of_home.ids.pop().filter(|(_, since_ns)| now_ns < *since_ns + MAX_AGE_NS);
        if newest.is_none() {
            of_home.ids.clear();
        }
        newest.map(|(id, _)| id)
    }

    /// A home has issued an id in advance.
    pub(super) fn put(&self, id: TransactionId, now_ns: u64) {
        self.with(id.tablet, |of_home| {
            if of_home.ids.last().is_some_and(|(last, _)| last.term != id.term) {
                of_home.ids.clear();
            }
            if of_home.ids.len() < MAX_OF_HOME {
                of_home.ids.push((id, now_ns));
            }
        });
    }

    /// A home does not know an id any more, so it may not know the others.
    pub(super) fn forget_ids(&self, home: TabletId) {
        self.with(home, |of_home| of_home.ids.clear());
    }

    /// Rows were held that a transaction with an id of this home needs.
    pub(super) fn was_held(&self, home: TabletId, now_ns: u64) {
        self.with(home, |of_home| of_home.reserves_until_ns = now_ns + RESERVES_NS);
    }

    /// All participants of a transaction have finished.
    pub(super) fn ended(&self, home: TabletId, id: TransactionId) -> Report {
        self.with(home, |of_home| {
            of_home.ended.push(id);
            match of_home.ended.len() {
                1 => Report::Soon,
                MAX_OF_HOME.. => Report::Now(std::mem::take(&mut of_home.ended)),
                _ => Report::Not,
            }
        })
    }

    /// The participants of a transaction are about to finish, and [`Self::ended_unheard`] follows. Whether the caller is
    /// to call [`Self::take_ended`] soon: nobody else does.
    pub(super) fn begins_to_end(&self, home: TabletId) -> bool {
        self.with(home, |of_home| !std::mem::replace(&mut of_home.reports_soon, true))
    }

    /// As [`Self::ended`], for a caller that cannot report later: the transactions that it is to report now, if any.
    pub(super) fn ended_unheard(&self, home: TabletId, id: TransactionId) -> Option<Vec<TransactionId>> {
        self.with(home, |of_home| {
            of_home.ended.push(id);
            let is_now = !of_home.reports_soon || of_home.ended.len() >= MAX_OF_HOME;
            is_now.then(|| std::mem::take(&mut of_home.ended))
        })
    }

    /// The transactions that are to be reported to a home.
    pub(super) fn take_ended(&self, home: TabletId) -> Vec<TransactionId> {
        let take = |of_home: &mut OfHome| {
            of_home.reports_soon = false;
            std::mem::take(&mut of_home.ended)
        };
        self.0.lock().get_mut(&home).map(take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: TabletId = TabletId(7);

    fn id(term: u64, number: u64) -> TransactionId {
        TransactionId { tablet: HOME, term, number }
    }

    #[test]
    fn an_id_is_handed_out_once_while_it_is_young_and_the_rows_of_its_home_are_free() {
        let pool = InAdvance::default();
        assert_eq!(pool.take(HOME, 0), None);
        pool.put(id(1, 1), 0);
        pool.put(id(1, 2), 5);
        assert_eq!(pool.take(TabletId(8), 6), None);
        assert_eq!(
            (pool.take(HOME, 6), pool.take(HOME, 6), pool.take(HOME, 6)),
            (Some(id(1, 2)), Some(id(1, 1)), None)
        );
        pool.put(id(1, 3), 10);
        assert_eq!(pool.take(HOME, 10 + MAX_AGE_NS), None);
        pool.put(id(1, 4), 10 + MAX_AGE_NS);
        pool.was_held(HOME, 10 + MAX_AGE_NS);
        assert_eq!(pool.take(HOME, 11 + MAX_AGE_NS), None);
        assert_eq!(pool.take(HOME, 10 + MAX_AGE_NS + RESERVES_NS), Some(id(1, 4)));
    }

    #[test]
    fn ids_of_a_former_term_and_too_many_ids_are_dropped() {
        let pool = InAdvance::default();
        pool.put(id(1, 1), 0);
        for number in 1..=MAX_OF_HOME as u64 + 1 {
            pool.put(id(2, number), 0);
        }
        let taken: Vec<_> = std::iter::from_fn(|| pool.take(HOME, 1)).collect();
        assert_eq!((taken.len(), taken[0], taken[MAX_OF_HOME - 1]), (MAX_OF_HOME, id(2, MAX_OF_HOME as u64), id(2, 1)));
    }

    #[test]
    fn ended_transactions_are_reported_together() {
        let pool = InAdvance::default();
        assert_eq!((pool.ended(HOME, id(1, 1)), pool.ended(HOME, id(1, 2))), (Report::Soon, Report::Not));
        assert_eq!(pool.take_ended(HOME), [id(1, 1), id(1, 2)]);
        let all: Vec<_> = (1..=MAX_OF_HOME as u64).map(|number| id(1, number)).collect();
        let reports: Vec<_> = all.iter().map(|id| pool.ended(HOME, *id)).collect();
        assert_eq!((&reports[0], reports.last()), (&Report::Soon, Some(&Report::Now(all))));
        assert_eq!(pool.take_ended(HOME), []);
    }

    #[test]
    fn what_ends_unheard_is_reported_with_others_or_at_once_if_nobody_will() {
        let pool = InAdvance::default();
        assert_eq!((pool.begins_to_end(HOME), pool.begins_to_end(HOME)), (true, false));
        assert_eq!((pool.ended_unheard(HOME, id(1, 1)), pool.ended_unheard(HOME, id(1, 2))), (None, None));
        assert_eq!(pool.take_ended(HOME), [id(1, 1), id(1, 2)]);
        assert_eq!(pool.ended_unheard(HOME, id(1, 3)), Some(vec![id(1, 3)]));
        assert!(pool.begins_to_end(HOME));
        let all: Vec<_> = (1..=MAX_OF_HOME as u64).map(|number| id(2, number)).collect();
        let reports: Vec<_> = all.iter().map(|id| pool.ended_unheard(HOME, *id)).collect();
        assert_eq!((&reports[0], reports.last()), (&None, Some(&Some(all))));
        assert_eq!(pool.take_ended(HOME), []);
    }
}
