//! Decides whether this node's wall clock is right, by comparing it with the clocks of other nodes.
//!
//! Every answer to a heartbeat carries the wall clock of the answering node. It was read between the sending of the
//! heartbeat and the receipt of the answer, so the difference between the clocks is known up to that duration. A slow
//! network makes this interval long, and a long interval proves nothing.
//!
//! Always true: a change of the machine's clock affects stamps and expiry only after it was judged
//! ([`diorite_base::TrustedClock`]). A node's clock counts as off only if it certainly differs by more than the limit
//! from those of other nodes that agree with each other and are the majority, or are half of all while this node's
//! clock was set. A node that can ask no other node trusts its own clock.
//! Left out: what a node does whose clock is off (`Core::set_clock_is_off`), and reading clocks.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// How far a wall clock may be from the others', microseconds; the same limit holds when a connection is made.
pub const CLOCK_LIMIT_US: i64 = 500_000;

/// How long a peer's answer counts, nanoseconds.
const FRESH_NS: u64 = 3_000_000_000;

/// How far a peer's clock is ahead of the trusted time: a range, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    low_us: i64,
    high_us: i64,
}

impl Offset {
    /// The offset of a peer that answered with `peer_us`. The answer was received at `now_us` of the trusted time,
    /// `took_us` after the question was sent.
    pub(crate) fn measured(peer_us: i64, now_us: i64, took_us: i64) -> Self {
        let low_us = peer_us.saturating_sub(now_us);
        Self { low_us, high_us: low_us.saturating_add(took_us) }
    }

    /// The offset from a clock that is `ahead_us` ahead of the trusted time.
    fn against(self, ahead_us: i64) -> Self {
        Self { low_us: self.low_us.saturating_sub(ahead_us), high_us: self.high_us.saturating_sub(ahead_us) }
    }

    fn may_agree(self) -> bool {
        self.low_us <= CLOCK_LIMIT_US && self.high_us >= -CLOCK_LIMIT_US
    }

    fn middle_us(self) -> i64 {
        self.low_us.midpoint(self.high_us)
    }
}

/// The verdict on this node's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No other node can be asked.
    Alone,
    /// Enough others agree with it.
    Agrees,
    /// It is not known which clocks are right.
    Undecided,
    /// The others, which agree with each other, are ahead by so much, microseconds.
    Off { others_ahead_us: i64 },
}

/// Judges a wall clock by the others' offsets from it. `was_set`: it was set by more than the limit since it was last
/// adopted.
pub(crate) fn judge(offsets: &[Offset], was_set: bool) -> Verdict {
    let nodes = offsets.len() + 1;
    if nodes == 1 {
        return Verdict::Alone;
    }
    let agreeing = offsets.iter().filter(|offset| offset.may_agree()).count() + 1;
    if 2 * agreeing > nodes {
        return Verdict::Agrees;
    }
    let mut apart: Vec<i64> =
        offsets.iter().filter(|offset| !offset.may_agree()).map(|offset| offset.middle_us()).collect();
    apart.sort_unstable();
    // The largest set of them that agree with each other.
    let together =
        |first: &i64| apart.iter().filter(|other| (0..=CLOCK_LIMIT_US).contains(&other.saturating_sub(*first))).count();
    let (most, first) = apart.iter().map(|first| (together(first), *first)).max().unwrap_or((0, 0));
    if 2 * most > nodes || (2 * most == nodes && was_set) {
        Verdict::Off { others_ahead_us: first }
    } else {
        Verdict::Undecided
    }
}

#[derive(Debug, Default)]
struct Watched {
    /// By peer: when it answered, on the monotonic clock, and its offset from the trusted time.
    offsets: BTreeMap<u64, (u64, Offset)>,
    /// How far the machine's wall clock was ahead of the trusted time at the last check.
    step_us: i64,
    /// How often the wall clock was set by more than the limit.
    steps: u64,
    off: Option<i64>,
}

/// The result of a check of the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClockChange {
    /// By how much the wall clock was set, microseconds, if that is more than the limit: the age of what was received
    /// before is uncertain.
    pub(crate) was_set_by_us: Option<i64>,
    /// Whether the wall clock is to be adopted as it is now.
    pub(crate) adopt: bool,
    /// Whether the node's clock is off now, according to the others; `None` if that has not changed.
    pub(crate) is_off: Option<bool>,
}

/// The state of this node's wall clock and its offsets from the others'.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch(Mutex<Watched>);

impl ClockWatch {
    /// Takes a peer's answer. `step_us`: how far the machine's clock is ahead of the trusted time. Returns whether the
    /// peer's clock was apart from it before and no longer is.
    pub(crate) fn note_offset(&self, peer: u64, now_ns: u64, offset: Offset, step_us: i64) -> bool {
        let before = self.0.lock().offsets.insert(peer, (now_ns, offset));
        let agreed = |offset: Offset| offset.against(step_us).may_agree();
        agreed(offset) && before.is_some_and(|(_, before)| !agreed(before))
    }

    /// How far the others are ahead, microseconds, if this node's clock is off.
    pub(crate) fn off_us(&self) -> Option<i64> {
        self.0.lock().off
    }

    /// How often the wall clock was set by more than the limit.
    pub(crate) fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    /// The median of how far the other nodes' clocks are ahead of the trusted time, microseconds.
    pub(crate) fn ahead_us(&self, now_ns: u64) -> Option<i64> {
        let mut offsets: Vec<i64> = self.fresh(now_ns).map(Offset::middle_us).collect();
        offsets.sort_unstable();
        offsets.get(offsets.len() / 2).copied()
    }

    /// Whether this peer's last answer certainly differs from the machine's wall clock by more than the limit.
    pub(crate) fn is_apart(&self, peer: u64, step_us: i64) -> bool {
        self.0.lock().offsets.get(&peer).is_some_and(|(_, offset)| !offset.against(step_us).may_agree())
    }

    fn fresh(&self, now_ns: u64) -> impl Iterator<Item = Offset> {
        let mut watched = self.0.lock();
        watched.offsets.retain(|_, (measured_ns, _)| now_ns < measured_ns.saturating_add(FRESH_NS));
        watched.offsets.values().map(|(_, offset)| *offset).collect::<Vec<_>>().into_iter()
    }

    /// Checks the machine's wall clock, which is `step_us` ahead of the trusted time.
    pub(crate) fn look(&self, now_ns: u64, step_us: i64) -> ClockChange {
        let offsets: Vec<Offset> = self.fresh(now_ns).map(|offset| offset.against(step_us)).collect();
        let is_step = step_us.saturating_abs() > CLOCK_LIMIT_US;
        let verdict = judge(&offsets, is_step);
        let mut watched = self.0.lock();
        let set_by_us = step_us.saturating_sub(watched.step_us);
        let was_set = set_by_us.saturating_abs() > CLOCK_LIMIT_US;
        watched.steps += u64::from(was_set);
        let adopt = match verdict {
            Verdict::Alone | Verdict::Agrees => true,
            Verdict::Undecided => !is_step,
            Verdict::Off { .. } => false,
        };
        let off = match verdict {
            Verdict::Off { others_ahead_us } => Some(others_ahead_us),
            _ => None,
        };
        let is_off = (off.is_some() != watched.off.is_some()).then_some(off.is_some());
        watched.off = off;
        if adopt {
            // Offsets from the former trusted time are converted to the new one.
            watched.offsets.values_mut().for_each(|(_, offset)| *offset = offset.against(step_us));
        }
        watched.step_us = if adopt { 0 } else { step_us };
        ClockChange { was_set_by_us: was_set.then_some(set_by_us), adopt, is_off }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: i64 = 86_400_000_000;
    const MS: u64 = 1_000_000;

    fn exactly(ahead_us: i64) -> Offset {
        Offset { low_us: ahead_us, high_us: ahead_us + 1_000 }
    }

    #[test]
    fn the_majority_is_right_and_a_node_alone_believes_itself() {
        let judged =
            |ahead_us: &[i64], was_set| judge(&ahead_us.iter().copied().map(exactly).collect::<Vec<_>>(), was_set);
        let is_off = |verdict| matches!(verdict, Verdict::Off { .. });
        assert_eq!(judged(&[], true), Verdict::Alone);
        assert_eq!(judged(&[3_000, -200_000], false), Verdict::Agrees);
        assert_eq!(judged(&[3_000, -DAY_US], false), Verdict::Agrees, "the other one is off");
        assert!(is_off(judged(&[DAY_US, DAY_US + 100_000], false)));
        assert_eq!(judged(&[DAY_US, -DAY_US], true), Verdict::Undecided, "no two agree");
        assert_eq!(judged(&[DAY_US], false), Verdict::Undecided, "one of two, and this one was not set");
        assert!(is_off(judged(&[DAY_US], true)), "it was set");
        assert_eq!(judged(&[0, DAY_US, DAY_US, DAY_US + 1], false), Verdict::Off { others_ahead_us: DAY_US + 500 });
    }

    #[test]
    fn a_slow_network_accuses_nobody() {
        // Answered after 3 s: the peer's clock may have been read at any moment of that.
        let slow = Offset::measured(1_000_000, 3_500_000, 3_000_000);
        assert!(slow.may_agree());
        assert!(!Offset::measured(1_000_000, 3_500_000, 100_000).may_agree());
        assert_eq!(judge(&[slow, slow], false), Verdict::Agrees);
    }

    #[test]
    fn a_clock_that_is_set_is_believed_only_if_others_agree_and_one_that_is_off_comes_back() {
        let watch = ClockWatch::default();
        let measure =
            |now_ns, ahead_us| (2..=3).for_each(|peer| _ = watch.note_offset(peer, now_ns, exactly(ahead_us), 0));
        measure(0, 0);
        assert_eq!(watch.look(100 * MS, 300), ClockChange { adopt: true, ..ClockChange::default() });
        // It is set a day ahead: it is not adopted, and reported once.
        let set = ClockChange { was_set_by_us: Some(DAY_US), adopt: false, is_off: Some(true) };
        assert_eq!(watch.look(200 * MS, DAY_US), set);
        measure(250 * MS, 0);
        assert_eq!(watch.look(300 * MS, DAY_US), ClockChange::default());
        assert_eq!((watch.steps(), watch.off_us().is_some()), (1, true));
        // It is set back.
        let set_back = ClockChange { was_set_by_us: Some(-DAY_US), adopt: true, is_off: Some(false) };
        assert_eq!(watch.look(400 * MS, 0), set_back);
        // All others are a day ahead, as their clocks were set right: so is this one's, and it is adopted.
        measure(500 * MS, DAY_US);
        assert_eq!(watch.look(600 * MS, 0), ClockChange { is_off: Some(true), ..ClockChange::default() });
        let set = ClockChange { was_set_by_us: Some(DAY_US), adopt: true, is_off: Some(false) };
        assert_eq!(watch.look(700 * MS, DAY_US), set);
        assert_eq!(watch.look(800 * MS, 0), ClockChange { adopt: true, ..ClockChange::default() });
    }

    #[test]
    fn what_was_measured_long_ago_counts_no_more() {
        let watch = ClockWatch::default();
        assert!(!watch.note_offset(2, 0, exactly(0), 0) && !watch.note_offset(2, 0, exactly(DAY_US), 0));
        assert!(watch.note_offset(2, 0, exactly(0), 0), "it agrees again");
        assert!(!watch.note_offset(2, 0, exactly(DAY_US), 0) && !watch.note_offset(3, 0, exactly(DAY_US), 0));
        assert_eq!(watch.look(100 * MS, 0).is_off, Some(true));
        assert_eq!(watch.look(FRESH_NS, 0).is_off, Some(false), "it is alone");
        assert_eq!(watch.ahead_us(FRESH_NS), None);
    }
}
