//! Bytes spread over time, without a clock: how long to wait until the next may pass.
//!
//! Always true: over any time long against [`SLACK_NS`] no more passes than the rate allows, and as much as that if there is always something to pass:
//! whoever comes late by a wake-up's delay may make up for it. What is owed is counted in bytes, so that a new rate holds from the moment it is set, for what
//! is owed already too.

/// By how much those who come late may make up for it, nanoseconds.
const SLACK_NS: u64 = 50_000_000;

/// A rate, and what has passed under it.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: u64,
    /// Bytes that have passed and are not paid for by time yet, times 10^9; negative: time that was not used.
    owed: i128,
    as_of_ns: u64,
}

impl RateLimit {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), owed: 0, as_of_ns: 0 }
    }

    /// Sets the rate from `now_ns` on.
    pub(crate) fn set_rate(&mut self, bytes_per_second: u64, now_ns: u64) {
        self.advance(now_ns);
        self.bytes_per_second = bytes_per_second.max(1);
    }

    /// Lets `bytes` pass, or says how long to wait before asking again, nanoseconds.
    pub(crate) fn ask(&mut self, bytes: u64, now_ns: u64) -> Result<(), u64> {
        self.advance(now_ns);
        if self.owed > 0 {
            let wait_ns = (self.owed / i128::from(self.bytes_per_second)).max(1);
            return Err(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        }
        self.owed += i128::from(bytes) * 1_000_000_000;
        Ok(())
    }

    /// Of what was let pass, `bytes` never will.
    pub(crate) fn refund(&mut self, bytes: u64) {
        self.owed -= i128::from(bytes) * 1_000_000_000;
    }

    fn advance(&mut self, now_ns: u64) {
        let rate = i128::from(self.bytes_per_second);
        let passed_ns = now_ns.saturating_sub(self.as_of_ns);
        self.as_of_ns = self.as_of_ns.max(now_ns);
        self.owed = (self.owed - i128::from(passed_ns) * rate).max(-i128::from(SLACK_NS) * rate);
    }
}

/// What the receiver of one copy has let its sender send.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    /// Bytes that may be sent, since the copy began.
    pub(crate) allowed: u64,
    /// Bytes that have come.
    pub(crate) taken: u64,
    /// Bytes that will come, as far as is known.
    pub(crate) expected: u64,
}

impl Credit {
    /// How many bytes to allow next, so that no more than `window` are on their way; 0: none for now.
    pub(crate) fn wanted(&self, piece: u64, window: u64) -> u64 {
        let missing = self.expected.saturating_sub(self.allowed);
        let under_way = self.allowed.saturating_sub(self.taken);
        if under_way + piece > window { 0 } else { missing.min(piece) }
    }

    /// What was allowed and has not come.
    pub(crate) fn unused(&self) -> u64 {
        self.allowed.saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    const PIECE: u64 = 256 << 10;
    const WINDOW: u64 = 8 << 20;

    /// Copies that one node receives, on a clock that the test turns. Threads wake late, by up to two milliseconds.
    struct Receiver {
        limit: RateLimit,
        copies: Vec<Credit>,
        /// When each thread looks again.
        wakes_ns: Vec<u64>,
        now_ns: u64,
        dice: u64,
    }

    impl Receiver {
        fn new(rate: u64, copies: usize) -> Self {
            let credit = || Credit { expected: u64::MAX, ..Credit::default() };
            let copies: Vec<_> = (0..copies).map(|_| credit()).collect();
            Self { limit: RateLimit::new(rate), wakes_ns: vec![0; copies.len()], copies, now_ns: 0, dice: 7 }
        }

        fn lateness_ns(&mut self) -> u64 {
            self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.dice >> 33) % (2 * MS)
        }

        /// Runs for so long; every sender sends what it may `delay_ns` later. Returns the bytes that came.
        fn run(&mut self, lasting_ns: u64, delay_ns: u64) -> u64 {
            let (until_ns, mut came) = (self.now_ns + lasting_ns, 0);
            while self.now_ns < until_ns {
                let at = (0..self.copies.len()).min_by_key(|at| self.wakes_ns[*at]).unwrap_or(0);
                self.now_ns = self.now_ns.max(self.wakes_ns[at]);
                let credit = &mut self.copies[at];
                let wanted = credit.wanted(PIECE, WINDOW);
                let wait_ns = match self.limit.ask(wanted, self.now_ns) {
                    Ok(()) => {
                        credit.allowed += wanted;
                        // Nothing is under way for longer than it takes to be sent.
                        came += credit.unused();
                        credit.taken = credit.allowed;
                        delay_ns
                    }
                    Err(wait_ns) => wait_ns.min(100 * MS),
                };
                self.wakes_ns[at] = self.now_ns + wait_ns + self.lateness_ns();
            }
            came
        }
    }

    fn assert_within_five_percent(bytes: u64, rate: u64, seconds: u64) {
        let expected = rate * seconds;
        assert!(bytes.abs_diff(expected) * 20 <= expected, "{bytes} bytes in {seconds} s at {rate}");
    }

    #[test]
    fn one_copy_and_several_together_keep_to_the_rate_within_five_percent() {
        for (rate, copies) in [(200_000_000, 1), (200_000_000, 4), (1_000_000, 3), (1_000_000_000, 8)] {
            let mut receiver = Receiver::new(rate, copies);
            receiver.run(SECOND, 0);
            assert_within_five_percent(receiver.run(20 * SECOND, 0), rate, 20);
        }
    }

    #[test]
    fn a_new_rate_holds_from_the_moment_it_is_set_up_and_down() {
        let mut receiver = Receiver::new(200_000_000, 4);
        receiver.run(SECOND, 0);
        for rate in [10_000_000, 400_000_000, 1_000, 200_000_000] {
            receiver.limit.set_rate(rate, receiver.now_ns);
            // What was let through before the change counts as it did then.
            let passed = receiver.run(SECOND, 0);
            assert!(passed <= 2 * rate.max(PIECE), "{passed} at {rate}");
            if rate > 1_000 {
                assert_within_five_percent(receiver.run(10 * SECOND, 0), rate, 10);
            }
        }
    }

    #[test]
    fn time_that_nobody_used_is_not_made_up_for_and_what_never_came_is() {
        let mut limit = RateLimit::new(1_000_000);
        assert!(limit.ask(PIECE, 100 * SECOND).is_ok());
        let slack = 1_000_000 * SLACK_NS / SECOND;
        let wait_ns = limit.ask(PIECE, 100 * SECOND).unwrap_err();
        assert_eq!(wait_ns, (PIECE - slack) * 1_000);
        limit.refund(PIECE);
        assert!(limit.ask(PIECE, 100 * SECOND).is_ok());
    }

    #[test]
    fn no_more_is_allowed_than_the_window_and_what_will_come() {
        let mut credit = Credit { expected: 3 * PIECE + 5, ..Credit::default() };
        for _ in 0..3 {
            let wanted = credit.wanted(PIECE, WINDOW);
            credit.allowed += wanted;
        }
        assert_eq!((credit.allowed, credit.wanted(PIECE, WINDOW)), (3 * PIECE, 5));
        assert_eq!(credit.wanted(PIECE, 3 * PIECE), 0, "the window is full");
        credit.taken = PIECE;
        assert_eq!(credit.wanted(PIECE, 3 * PIECE), 5);
    }
}
