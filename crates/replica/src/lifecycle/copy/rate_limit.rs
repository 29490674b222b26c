//! A rate limit without a clock: it says how long to wait until more bytes may pass.
//!
//! Always true: over any duration long against [`SLACK_NS`] no more passes than the rate allows, and as much as that if
//! something always waits: a caller that is late, by the delay of a wake-up, may pass more the next time. The debt is
//! counted in bytes, so that a new rate applies at once, to the existing debt too.

/// For how much lateness a caller may compensate, nanoseconds.
const SLACK_NS: u64 = 50_000_000;

/// A rate, and the debt under it.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: u64,
    /// Bytes that have passed and that elapsed time has not covered yet, times 10^9; negative: time that was not used.
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

    /// Returns `bytes` that were allowed to pass and never will.
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

/// The credit that the receiver of one copy has granted its sender.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    /// Bytes that may be sent, counted from the beginning of the copy.
    pub(crate) allowed: u64,
    /// Bytes that have arrived.
    pub(crate) taken: u64,
    /// Bytes that will arrive, as far as is known.
    pub(crate) expected: u64,
}

impl Credit {
    /// How many bytes to grant next, so that at most `window` are in flight; 0: none for now.
    pub(crate) fn wanted(&self, piece: u64, window: u64) -> u64 {
        let missing = self.expected.saturating_sub(self.allowed);
        let under_way = self.allowed.saturating_sub(self.taken);
        if under_way + piece > window { 0 } else { missing.min(piece) }
    }

    /// Credit that was granted and not used.
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

    /// A node that receives several copies, on a clock that the test advances. Threads wake up late, by up to two
    /// milliseconds.
    struct Receiver {
        limit: RateLimit,
        copies: Vec<Credit>,
        /// When each thread wakes up next.
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

        /// Runs for a duration; every sender sends what it may, `delay_ns` later. Returns the bytes that arrived.
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
                        // Credit in flight is at most as old as the delay.
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
            // Bytes that passed before the change count at the old rate.
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
