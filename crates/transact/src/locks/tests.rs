//! The lock table beside a naive one: lists of who holds and who waits, in the order of arrival.

use super::*;
use diorite_base::TabletId;
use proptest::prelude::*;

/// Holders and waiters as they arrived. After each event, whoever can be granted is granted, the oldest first.
#[derive(Default)]
struct Naive {
    held: Vec<(Owner, Targets)>,
    waiting: Vec<(Owner, Targets, u64)>,
}

impl Naive {
    fn is_free(&self, targets: &Targets, older: usize) -> bool {
        let is_apart = |other: &Targets| !other.overlap(targets);
        self.held.iter().all(|(_, held)| is_apart(held))
            && self.waiting[..older].iter().all(|(_, waiting, _)| is_apart(waiting))
    }

    fn request(&mut self, owner: Owner, targets: &Targets, wait: Wait) -> Asked {
        match (self.is_free(targets, self.waiting.len()), wait) {
            (true, _) => {
                self.held.push((owner, targets.clone()));
                Asked::Granted
            }
            (false, Wait::Never) => Asked::Held,
            (false, Wait::Until(deadline_ns)) => {
                self.waiting.push((owner, targets.clone(), deadline_ns));
                Asked::Waits
            }
        }
    }

    fn remove(&mut self, is_gone: impl Fn(&Owner, Option<u64>) -> bool) -> Vec<Owner> {
        self.held.retain(|(owner, _)| !is_gone(owner, None));
        self.waiting.retain(|(owner, _, deadline_ns)| !is_gone(owner, Some(*deadline_ns)));
        let mut granted = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            if self.is_free(&self.waiting[at].1, at) {
                let (owner, targets, _) = self.waiting.remove(at);
                self.held.push((owner, targets));
                granted.push(owner);
            } else {
                at += 1;
            }
        }
        granted
    }
}

#[derive(Clone, Debug)]
enum Event {
    Request(Vec<Target>, Option<u64>),
    Release(usize),
    Expire(u64),
}

fn target() -> impl Strategy<Value = Target> {
    let key = || (0u8..5).prop_map(|key| vec![key]);
    let range = (key(), key()).prop_map(|(start, end)| Target::Range { start, end });
    prop_oneof![4 => key().prop_map(Target::Row), 1 => range]
}

fn event() -> impl Strategy<Value = Event> {
    let request = (prop::collection::vec(target(), 1..4), prop::option::of(0u64..20));
    prop_oneof![
        4 => request.prop_map(|(targets, wait)| Event::Request(targets, wait)),
        3 => (0usize..40).prop_map(Event::Release),
        1 => (0u64..20).prop_map(Event::Expire),
    ]
}

fn sorted(mut owners: Vec<Owner>) -> Vec<Owner> {
    owners.sort();
    owners
}

/// What every table satisfies, however it was reached.
fn check(locks: &Locks) {
    let all = |locks: &Locks| locks.held.values().map(|(target, _)| target.clone()).collect::<Vec<_>>();
    for pair in all(locks).windows(2) {
        assert!(pair[0].ends_before(pair[1].start()), "held twice: {pair:?}");
    }
    for (number, waiter) in &locks.waiters {
        assert!(!locks.is_free(&waiter.targets, *number), "a lost wake-up: {waiter:?}");
    }
    let held: usize = locks.holders.values().map(|holding| holding.targets.len()).sum();
    let waiting: usize = locks.waiters.values().map(|waiter| waiter.targets.len()).sum();
    assert_eq!(locks.targets, held + waiting, "the count of targets");
    let queued: usize = locks.rows.values().map(BTreeSet::len).sum();
    let is_row = |target: &&Target| matches!(target, Target::Row(_));
    let rows = locks.waiters.values().flat_map(|waiter| waiter.targets.iter().filter(is_row)).count();
    assert_eq!((queued, locks.deadlines.len(), locks.waiting.len()), (rows, locks.waiters.len(), locks.waiters.len()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn it_grants_what_the_naive_table_grants(events in prop::collection::vec(event(), 0..40)) {
        let (mut locks, mut naive) = (Locks::new(LockLimits::default()), Naive::default());
        for (tag, event) in events.into_iter().enumerate() {
            match event {
                Event::Request(targets, wait) => {
                    let targets = Targets::new(targets);
                    let (owner, wait) = (Owner::Write(tag as u64), wait.map_or(Wait::Never, Wait::Until));
                    prop_assert_eq!(locks.request(owner, &targets, wait), naive.request(owner, &targets, wait));
                }
                Event::Release(tag) => {
                    let owner = Owner::Write(tag as u64);
                    let granted = sorted(locks.release(&owner));
                    prop_assert_eq!(granted, sorted(naive.remove(|it, _| *it == owner)));
                }
                Event::Expire(now_ns) => {
                    let before: Vec<Owner> = naive.waiting.iter().filter(|it| it.2 <= now_ns).map(|it| it.0).collect();
                    let (expired, granted) = locks.expire(now_ns);
                    let of_naive = naive.remove(|_, deadline_ns| deadline_ns.is_some_and(|it| it <= now_ns));
                    prop_assert_eq!(sorted(expired), sorted(before));
                    prop_assert_eq!(sorted(granted), sorted(of_naive));
                }
            }
            check(&locks);
            for key in 0..5u8 {
                let holder = naive.held.iter().find(|(_, held)| held.contains(&[key])).map(|(owner, _)| *owner);
                prop_assert_eq!(locks.holder(&[key]).map(|(owner, _)| owner), holder);
            }
        }
    }
}

fn row(key: u8) -> Targets {
    Targets::new(vec![Target::Row(vec![key])])
}

#[test]
fn what_is_prepared_is_found_again_and_nothing_else() {
    let id = TransactionId { tablet: TabletId(3), term: 1, number: 7 };
    let locks = Locks::rebuild(LockLimits { targets: 0, waiting_ranges: 0 }, [(id, &row(1))]);
    assert_eq!(locks.holder(&[1]), Some((Owner::Transaction(id), Hold::Prepared)));
    assert_eq!(locks.holder(&[2]), None);
}

#[test]
fn a_full_table_refuses() {
    let mut locks = Locks::new(LockLimits { targets: 3, waiting_ranges: 1 });
    let range = Targets::new(vec![Target::Range { start: vec![0], end: vec![9] }]);
    assert_eq!(locks.request(Owner::Write(1), &row(1), Wait::Never), Asked::Granted);
    assert_eq!(locks.request(Owner::Write(2), &range, Wait::Until(9)), Asked::Waits);
    assert_eq!(locks.request(Owner::Write(3), &range, Wait::Until(9)), Asked::Full, "one range waits already");
    assert_eq!(locks.request(Owner::Write(4), &row(2), Wait::Never), Asked::Held, "nobody overtakes");
    assert_eq!(locks.request(Owner::Write(5), &row(2), Wait::Until(9)), Asked::Waits);
    let owner = Owner::Transaction(TransactionId { tablet: TabletId(1), term: 1, number: 9 });
    assert_eq!(locks.request(owner, &row(99), Wait::Until(9)), Asked::Full);
    assert_eq!(locks.request(Owner::Write(6), &row(99), Wait::Until(9)), Asked::Granted, "it ends at once");
    assert_eq!(locks.release(&Owner::Write(6)), []);
    assert_eq!(locks.release(&Owner::Write(1)), [Owner::Write(2)]);
    assert_eq!(locks.release(&Owner::Write(2)), [Owner::Write(5)]);
}
