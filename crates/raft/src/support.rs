//! Support between nodes, from which leases are made.
//!
//! The idea is that of CockroachDB's leader leases over store liveness. Every node sends heartbeats to every other. By
//! its answer a node *supports* the sender for a fixed duration, under an *epoch* that it changes whenever it has let
//! its support lapse. A follower acknowledges its group's leader under its current epoch, which is a promise: while I
//! support you in this epoch, I neither vote for another nor campaign. A leader's lease then lasts as long as a quorum
//! of followers supports its node, each in the epoch under which it acknowledged. So heartbeats are per pair of nodes,
//! whatever the number of groups, and an idle group costs nothing.
//!
//! Always true: only durations on a node's own monotonic clock count. The supporter counts from the receipt of a
//! heartbeat, the supported node from its sending, which was earlier, and it counts a shorter time, as clocks run at
//! different rates (each up to [`DRIFT_PERMILLE`] too fast or too slow). The clock goes on while the machine sleeps.
//! Where a node has reason to believe that its clock stood still nevertheless, it discards the support that it has
//! received ([`SupportTable::void_received`]). A heartbeat of a restarted node is not answered before the support of
//! its former life has lapsed. Left out: the groups' promises, which the replica layer keeps, and sending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a node supports another after a heartbeat, nanoseconds on its own clock.
pub const SUPPORT_NS: u64 = 800_000_000;

/// By how much a node's monotonic clock may run too fast or too slow, in thousandths. Time daemons may slew it by up to
/// a tenth: Linux accepts no more from them than that (`tick`) and half a thousandth (`freq`). Oscillators are off by
/// less than a ten-thousandth.
pub const DRIFT_PERMILLE: u64 = 105;

/// How long the supported node counts on support, nanoseconds on its own clock from the sending of the heartbeat. One
/// node's clock may be too slow and the other's too fast: with a drift of d, S(1 - d) / (1 + d) would be safe, which is
/// more than S(1 - 2d).
pub const LEASE_NS: u64 = SUPPORT_NS - SUPPORT_NS / 1_000 * 2 * DRIFT_PERMILLE;

/// How often a node sends heartbeats, nanoseconds.
pub const HEARTBEAT_NS: u64 = 100_000_000;

/// The number of an uninterrupted period of support. It changes when support lapses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// No period of support; none has this number.
    pub const NONE: Self = Self(0);
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Asks for support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The sender's life; each start of its process begins a new one.
    pub incarnation: u64,
    /// The sender's monotonic time of sending.
    pub sent_ns: u64,
}

/// A heartbeat to one peer, with the latest heartbeat that the sender has received from that peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The heartbeat that asks for support.
    pub heartbeat: Heartbeat,
    /// The latest heartbeat of the receiver that has reached the sender.
    pub latest: Option<Heartbeat>,
}

/// Grants support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// The heartbeat that it answers.
    pub heartbeat: Heartbeat,
    /// The supporter's epoch; never [`Epoch::NONE`].
    pub epoch: Epoch,
}

/// The support of one peer in one epoch, as its receiver knows it. Read by any thread.
#[derive(Debug)]
pub struct Supporter {
    epoch: Epoch,
    until_ns: AtomicU64,
}

impl Supporter {
    /// The monotonic time until which the support can be counted on.
    pub fn until_ns(&self) -> u64 {
        self.until_ns.load(Ordering::Acquire)
    }

    /// The epoch of the support.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// A change between this node and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupportChange {
    /// This node no longer supports the peer: groups that it leads need a leader.
    Withdrawn(u64),
    /// This node supports the peer again, or for the first time.
    Given(u64),
    /// The peer supports this node under a new epoch: groups led here must be acknowledged again.
    Received(u64),
}

#[derive(Debug)]
struct Given {
    incarnation: u64,
    epoch: Epoch,
    until_ns: u64,
    active: bool,
}

/// The support that one node gives and receives.
#[derive(Debug)]
pub struct SupportTable {
    incarnation: u64,
    started_ns: u64,
    next_epoch: u64,
    given: BTreeMap<u64, Given>,
    /// For each peer, the last of its lives that is known to have ended.
    ended: BTreeMap<u64, u64>,
    /// The latest heartbeat of each peer.
    heartbeats: BTreeMap<u64, Heartbeat>,
    received: BTreeMap<u64, Arc<Supporter>>,
    /// Answers to heartbeats that were sent before this time give no support.
    void_before_ns: u64,
}

impl SupportTable {
    /// The table of a node that started at `started_ns`. `incarnation` distinguishes this life of the node from its
    /// others; epochs count up from it.
    pub fn new(incarnation: u64, started_ns: u64) -> Self {
        Self {
            incarnation,
            started_ns,
            next_epoch: incarnation | 1,
            given: BTreeMap::new(),
            ended: BTreeMap::new(),
            heartbeats: BTreeMap::new(),
            received: BTreeMap::new(),
            void_before_ns: 0,
        }
    }

    /// The incarnation of this life of the node.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The heartbeat to send to `peer` now.
    pub fn beat(&self, peer: u64, now_ns: u64) -> Beat {
        let heartbeat = Heartbeat { incarnation: self.incarnation, sent_ns: now_ns };
        Beat { heartbeat, latest: self.heartbeats.get(&peer).copied() }
    }

    /// Takes a peer's heartbeat. Returns the answer, if the peer is to have one, and what changed. A peer that does not
    /// receive this node's heartbeats is not supported: it could not learn of the support, and the groups that it leads
    /// would wait for it for ever.
    pub fn on_heartbeat(&mut self, peer: u64, beat: Beat, now_ns: u64) -> (Option<Support>, Vec<SupportChange>) {
        let mut changes = Vec::new();
        let heartbeat = beat.heartbeat;
        self.heartbeats.insert(peer, heartbeat);
        if self.withdraw_if_lapsed(peer, now_ns) {
            changes.push(SupportChange::Withdrawn(peer));
        }
        if self.ended.get(&peer) == Some(&heartbeat.incarnation) {
            // The heartbeat was sent before the life ended.
            return (None, changes);
        }
        let incarnation = self.incarnation;
        let is_recent = |ours: Heartbeat| ours.incarnation == incarnation && now_ns < ours.sent_ns + SUPPORT_NS;
        if !beat.latest.is_some_and(is_recent) {
            return (None, changes);
        }
        let next_epoch = &mut self.next_epoch;
        let given = self.given.entry(peer).or_insert_with(|| {
            *next_epoch += 1;
            Given { incarnation: heartbeat.incarnation, epoch: Epoch(*next_epoch), until_ns: 0, active: false }
        });
        if given.active && given.incarnation != heartbeat.incarnation {
            return (None, changes);
        }
        if !given.active {
            changes.push(SupportChange::Given(peer));
        }
        given.incarnation = heartbeat.incarnation;
        given.active = true;
        given.until_ns = given.until_ns.max(now_ns + SUPPORT_NS);
        (Some(Support { heartbeat, epoch: given.epoch }), changes)
    }

    /// Takes the answer to a heartbeat of this node.
    pub fn supported(&mut self, peer: u64, support: Support) -> Option<SupportChange> {
        if support.heartbeat.incarnation != self.incarnation || support.heartbeat.sent_ns < self.void_before_ns {
            return None;
        }
        let until_ns = support.heartbeat.sent_ns + LEASE_NS;
        if let Some(current) = self.received.get(&peer)
            && current.epoch == support.epoch
        {
            current.until_ns.fetch_max(until_ns, Ordering::AcqRel);
            return None;
        }
        let supporter = Supporter { epoch: support.epoch, until_ns: AtomicU64::new(until_ns) };
        if let Some(former) = self.received.insert(peer, Arc::new(supporter)) {
            // The peer no longer gives support under the former epoch. A clock that stood still would not show that, so
            // leases under that epoch end here.
            former.until_ns.store(0, Ordering::Release);
        }
        Some(SupportChange::Received(peer))
    }

    /// Discards all support that was received until now, because its age is uncertain. The next answers restore it. The
    /// support that this node gives is not shortened: it lasts by this node's own clock.
    pub fn void_received(&mut self, now_ns: u64) {
        self.void_before_ns = now_ns;
        self.received.values().for_each(|supporter| supporter.until_ns.store(0, Ordering::Release));
    }

    /// Withdraws support that has lapsed.
    pub fn expire(&mut self, now_ns: u64) -> Vec<SupportChange> {
        let peers: Vec<u64> = self.given.keys().copied().collect();
        let lapsed = peers.into_iter().filter(|&peer| self.withdraw_if_lapsed(peer, now_ns));
        lapsed.map(SupportChange::Withdrawn).collect()
    }

    /// A life of `peer` has certainly ended: no group is led in it any more, so support
    /// of it ends at once. Support of another life stays.
    pub fn ended(&mut self, peer: u64, incarnation: u64) -> Option<SupportChange> {
        self.ended.insert(peer, incarnation);
        let given = self.given.get_mut(&peer).filter(|given| given.active && given.incarnation == incarnation)?;
        given.active = false;
        self.next_epoch += 1;
        given.epoch = Epoch(self.next_epoch);
        Some(SupportChange::Withdrawn(peer))
    }

    /// When the next given support lapses, if any is active.
    pub fn next_lapse_ns(&self) -> Option<u64> {
        self.given.values().filter(|given| given.active).map(|given| given.until_ns).min()
    }

    fn withdraw_if_lapsed(&mut self, peer: u64, now_ns: u64) -> bool {
        match self.given.get_mut(&peer) {
            Some(given) if given.active && now_ns >= given.until_ns => {
                given.active = false;
                self.next_epoch += 1;
                given.epoch = Epoch(self.next_epoch);
                true
            }
            _ => false,
        }
    }

    /// The epoch under which this node supports `peer` now.
    pub fn given_epoch(&self, peer: u64) -> Option<Epoch> {
        self.given.get(&peer).filter(|given| given.active).map(|given| given.epoch)
    }

    /// When this node last received a heartbeat of `peer` that it could answer with support; `None` if it never did.
    pub fn last_heartbeat_ns(&self, peer: u64) -> Option<u64> {
        self.given.get(&peer).filter(|given| given.until_ns > 0).map(|given| given.until_ns.saturating_sub(SUPPORT_NS))
    }

    /// The epochs under which this node supports others now, by node.
    pub fn given_epochs(&self) -> impl Iterator<Item = (u64, Epoch)> + '_ {
        self.given.iter().filter(|(_, given)| given.active).map(|(peer, given)| (*peer, given.epoch))
    }

    /// The current support of others, by node.
    pub fn supporters(&self) -> impl Iterator<Item = (u64, &Arc<Supporter>)> + '_ {
        self.received.iter().map(|(peer, supporter)| (*peer, supporter))
    }

    /// The support of `peer` in `epoch`, if that is its current one.
    pub fn supporter(&self, peer: u64, epoch: Epoch) -> Option<Arc<Supporter>> {
        self.received.get(&peer).filter(|supporter| supporter.epoch == epoch).cloned()
    }

    /// Whether enough time has passed since the start of this process that every promise of its former life has lapsed.
    pub fn may_vote(&self, now_ns: u64) -> bool {
        now_ns >= self.started_ns + SUPPORT_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A heartbeat from `from` to `to`, with the latest heartbeat that `from` has received from `to`.
    fn beat(from: &SupportTable, to: &SupportTable, sent_ns: u64, received_ns: u64) -> Beat {
        let latest = Heartbeat { incarnation: to.incarnation, sent_ns: received_ns };
        Beat { latest: Some(latest), ..from.beat(0, sent_ns) }
    }

    #[test]
    fn support_is_counted_from_sending_by_one_side_and_from_receipt_by_the_other() {
        let (mut a, mut b) = (SupportTable::new(10, 0), SupportTable::new(20, 0));
        let (support, changes) = b.on_heartbeat(1, beat(&a, &b, 100 * MS, 4_950 * MS), 5_000 * MS);
        assert_eq!(changes, [SupportChange::Given(1)]);
        let support = support.expect("answered");
        assert_eq!(a.supported(2, support), Some(SupportChange::Received(2)));
        let supporter = a.supporter(2, support.epoch).expect("current");
        assert_eq!(supporter.until_ns(), 100 * MS + LEASE_NS);
        assert!(b.expire(5_799 * MS).is_empty());
        assert_eq!(b.expire(5_800 * MS), [SupportChange::Withdrawn(1)]);
    }

    #[test]
    fn an_epoch_ends_when_support_lapses_even_if_nobody_calls_expire() {
        let (mut a, mut b) = (SupportTable::new(10, 0), SupportTable::new(20, 0));
        let first = b.on_heartbeat(1, beat(&a, &b, 0, 0), 0).0.expect("answered");
        a.supported(2, first);
        let (second, changes) = b.on_heartbeat(1, beat(&a, &b, 900 * MS, 900 * MS), 900 * MS);
        assert_eq!(changes, [SupportChange::Withdrawn(1), SupportChange::Given(1)]);
        assert_ne!(second.expect("answered").epoch, first.epoch);
        assert_eq!(a.supported(2, second.expect("answered")), Some(SupportChange::Received(2)));
        assert!(a.supporter(2, first.epoch).is_none(), "the old epoch counts no more");
    }

    #[test]
    fn support_of_a_life_that_has_ended_is_withdrawn_at_once_and_only_of_that_life() {
        let (a, mut b) = (SupportTable::new(10, 0), SupportTable::new(20, 0));
        let first = b.on_heartbeat(1, beat(&a, &b, 0, 0), 0).0.expect("answered");
        assert_eq!(b.ended(1, 9), None, "an earlier life has ended, or another process");
        assert_eq!(b.given_epoch(1), Some(first.epoch));
        assert_eq!(b.ended(1, 10), Some(SupportChange::Withdrawn(1)));
        assert_eq!((b.ended(1, 10), b.given_epoch(1), b.next_lapse_ns()), (None, None, None));
        assert_eq!(b.on_heartbeat(1, beat(&a, &b, MS, 0), 2 * MS), (None, vec![]), "it was sent before the end");
        let again = SupportTable::new(11, 3 * MS);
        let (second, changes) = b.on_heartbeat(1, beat(&again, &b, 4 * MS, 2 * MS), 5 * MS);
        assert_eq!(changes, [SupportChange::Given(1)], "the next life does not wait for the former's support to lapse");
        assert!(second.expect("answered").epoch > first.epoch);
        assert_eq!(b.ended(1, 10), None, "the notice came twice, and late");
        assert_eq!(b.given_epoch(1), second.map(|support| support.epoch));
    }

    #[test]
    fn a_life_that_ends_before_its_first_heartbeat_is_taken_gets_no_support() {
        let (a, mut b) = (SupportTable::new(10, 0), SupportTable::new(20, 0));
        assert_eq!(b.ended(1, 10), None);
        assert_eq!(b.on_heartbeat(1, beat(&a, &b, 0, 0), MS), (None, vec![]));
    }

    #[test]
    fn support_of_an_uncertain_age_counts_no_more_until_it_is_renewed() {
        let (mut a, mut b) = (SupportTable::new(10, 0), SupportTable::new(20, 0));
        let first = b.on_heartbeat(1, beat(&a, &b, 100 * MS, 0), 100 * MS).0.expect("answered");
        let second = b.on_heartbeat(1, beat(&a, &b, 200 * MS, 100 * MS), 200 * MS).0.expect("answered");
        a.supported(2, first);
        let supporter = a.supporter(2, first.epoch).expect("current");
        a.void_received(250 * MS);
        assert_eq!(supporter.until_ns(), 0);
        assert_eq!((a.supported(2, second), supporter.until_ns()), (None, 0), "it answers to what was sent before");
        let third = b.on_heartbeat(1, beat(&a, &b, 300 * MS, 200 * MS), 300 * MS).0.expect("answered");
        a.supported(2, third);
        assert_eq!(supporter.until_ns(), 300 * MS + LEASE_NS);
    }

    #[test]
    fn support_of_a_former_epoch_counts_no_more_even_by_a_clock_that_stood_still() {
        let mut a = SupportTable::new(10, 0);
        let support =
            |sent_ns, epoch| Support { heartbeat: Heartbeat { incarnation: 10, sent_ns }, epoch: Epoch(epoch) };
        a.supported(2, support(100 * MS, 21));
        let former = a.supporter(2, Epoch(21)).expect("current");
        // To this node it seems that 100 ms have passed; its peer has withdrawn its support meanwhile.
        assert_eq!(a.supported(2, support(200 * MS, 23)), Some(SupportChange::Received(2)));
        assert_eq!(former.until_ns(), 0);
    }

    #[test]
    fn a_lease_ends_before_the_support_that_it_is_made_of_whatever_the_rates_of_the_clocks() {
        // Both clocks are off as far as they may be: the supported node's too slow, the supporter's too fast.
        let (slow, fast) = (1_000 - DRIFT_PERMILLE, 1_000 + DRIFT_PERMILLE);
        let (lease_ns, support_ns) = (LEASE_NS * 1_000 / slow, SUPPORT_NS * 1_000 / fast);
        assert!(lease_ns < support_ns, "{lease_ns} and {support_ns} of true time");
        // The drift limit covers a time daemon that slews by a tenth, and the oscillator's own error.
        const { assert!(DRIFT_PERMILLE >= 101) };
    }

    #[test]
    fn a_restarted_peer_waits_until_its_former_life_has_lapsed_and_answers_to_that_are_ignored() {
        let (a, mut b) = (SupportTable::new(10, 0), SupportTable::new(20, 0));
        let old = b.on_heartbeat(1, beat(&a, &b, 0, 0), 0).0.expect("answered");
        let mut again = SupportTable::new(11, 0);
        assert_eq!(again.supported(2, old), None);
        assert!(again.supporter(2, old.epoch).is_none());
        assert!(b.on_heartbeat(1, beat(&again, &b, 0, 100 * MS), 100 * MS).0.is_none());
        assert!(b.on_heartbeat(1, beat(&again, &b, 0, 800 * MS), 800 * MS).0.is_some());
        assert!(!again.may_vote(799 * MS) && again.may_vote(800 * MS));
    }

    #[test]
    fn a_peer_that_receives_nothing_from_us_is_not_supported_and_what_it_had_lapses() {
        let (mut a, mut b) = (SupportTable::new(10, 0), SupportTable::new(20, 0));
        assert!(b.on_heartbeat(1, a.beat(2, 0), 0).0.is_none(), "it has received nothing yet");
        a.on_heartbeat(2, b.beat(1, 50 * MS), 50 * MS);
        assert!(b.on_heartbeat(1, a.beat(2, 100 * MS), 100 * MS).0.is_some());
        // From here on the heartbeats of b are lost, and those of a are not.
        assert!((200..850).step_by(100).all(|ms| b.on_heartbeat(1, a.beat(2, ms * MS), ms * MS).0.is_some()));
        assert!((850..1_600).step_by(50).all(|ms| b.on_heartbeat(1, a.beat(2, ms * MS), ms * MS).0.is_none()));
        assert_eq!(b.on_heartbeat(1, a.beat(2, 1_650 * MS), 1_650 * MS).1, [SupportChange::Withdrawn(1)]);
        // Answers to heartbeats of this node's former life do not count either.
        let mut again = SupportTable::new(21, 0);
        assert!(again.on_heartbeat(1, a.beat(2, 100 * MS), 100 * MS).0.is_none());
    }
}
