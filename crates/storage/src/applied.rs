//! The applied state of a tablet: the index up to which its data reflects the log, and the log's statements about the
//! tablet as a whole.
//!
//! Always true: the applied state is written with every batch, and is a function of the entries up to its index. States
//! that earlier versions wrote can be read.

use crate::error::StorageError;
use diorite_base::Horizon;
use diorite_base::bytes::{Malformed, Reader};

/// The index up to which the Raft log has been applied to a tablet, and the log's statements up to there about the
/// tablet as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedState {
    /// Index of the last applied entry.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The greatest client-given timestamp applied, microseconds; `i64::MIN` if none.
    pub newest_explicit_us: i64,
    /// The greatest server timestamp applied, microseconds; a new leader's clock starts above it.
    pub newest_stamp_us: i64,
    /// Flag bits raised by evaluated mutations.
    pub flags: u64,
    /// The time that the log has decided. It is behind the newest stamp if that was raised by taking over the rows of
    /// another tablet.
    pub horizon: Horizon,
    /// `gc_grace_seconds` according to the log; [`UNKNOWN_GRACE_S`] before the log has named it.
    pub gc_grace_s: u32,
}

/// No deletion is old enough to be purged.
pub const UNKNOWN_GRACE_S: u32 = u32::MAX;

impl Default for AppliedState {
    fn default() -> Self {
        Self {
            index: 0,
            term: 0,
            newest_explicit_us: i64::MIN,
            newest_stamp_us: 0,
            flags: 0,
            horizon: Horizon::default(),
            gc_grace_s: UNKNOWN_GRACE_S,
        }
    }
}

impl AppliedState {
    /// Advances the state by a mutation with this stamp, this greatest timestamp of a client's, and this
    /// `gc_grace_seconds`, if it names one.
    pub fn advance(&mut self, stamp_us: i64, explicit_us: Option<i64>, gc_grace_s: Option<u32>) {
        self.newest_stamp_us = self.newest_stamp_us.max(stamp_us);
        self.gc_grace_s = gc_grace_s.unwrap_or(self.gc_grace_s);
        let now_s = u32::try_from(stamp_us.max(0) / 1_000_000).unwrap_or(u32::MAX).max(self.horizon.now_s);
        let rows_s = now_s.saturating_sub(self.gc_grace_s).max(self.horizon.rows_s);
        // Once a client has given a timestamp, rows may be stored whose timestamps lie under deletions of ranges.
        let ranges_s = if self.newest_explicit_us == i64::MIN { rows_s } else { self.horizon.ranges_s };
        self.horizon = Horizon { now_s, rows_s, ranges_s };
        self.newest_explicit_us =
            explicit_us.map_or(self.newest_explicit_us, |given| self.newest_explicit_us.max(given));
    }

    pub(crate) fn encode(&self) -> [u8; 56] {
        let mut bytes = [0; 56];
        bytes[..8].copy_from_slice(&self.index.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.term.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.newest_explicit_us.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.newest_stamp_us.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.flags.to_le_bytes());
        let Horizon { now_s, rows_s, ranges_s } = self.horizon;
        for (at, second) in [now_s, rows_s, ranges_s, self.gc_grace_s].into_iter().enumerate() {
            bytes[40 + 4 * at..44 + 4 * at].copy_from_slice(&second.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        Self::read(bytes).map_err(|_| StorageError::Corrupt("applied state".to_owned()))
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut state = Self {
            index: reader.u64()?,
            term: reader.u64()?,
            newest_explicit_us: reader.i64()?,
            newest_stamp_us: reader.i64()?,
            flags: reader.u64()?,
            ..Self::default()
        };
        // States of earlier versions end here, without a horizon.
        if !reader.is_empty() {
            state.horizon = Horizon { now_s: reader.u32()?, rows_s: reader.u32()?, ranges_s: reader.u32()? };
            state.gc_grace_s = reader.u32()?;
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn what_was_written_before_there_was_a_horizon_is_read() {
        let mut state = AppliedState { index: 7, term: 3, flags: 1, ..AppliedState::default() };
        state.advance(2_000_000_000, None, None);
        let bytes = state.encode();
        assert_eq!(AppliedState::decode(&bytes).unwrap(), state);
        let before = AppliedState::decode(&bytes[..40]).unwrap();
        assert_eq!(before, AppliedState { horizon: Horizon::default(), ..state });
        assert!(AppliedState::decode(&bytes[..41]).is_err());
    }

    #[test]
    fn the_horizon_follows_the_stamps_and_never_goes_back() {
        let mut state = AppliedState::default();
        let horizon = |now_s, rows_s, ranges_s| Horizon { now_s, rows_s, ranges_s };
        state.advance(100_000_000, None, None);
        assert_eq!(state.horizon, horizon(100, 0, 0), "how long deletions stay is not known");
        state.advance(101_999_999, None, Some(10));
        assert_eq!(state.horizon, horizon(101, 91, 91));
        state.advance(110_000_000, None, Some(50));
        assert_eq!(state.horizon, horizon(110, 91, 91), "it was told that they stay longer");
        state.advance(120_000_000, Some(5), Some(10));
        assert_eq!(state.horizon, horizon(120, 110, 110));
        state.advance(130_000_000, None, None);
        assert_eq!(
            state.horizon,
            horizon(130, 120, 110),
            "clients give timestamps: rows may be stored under deletions of ranges"
        );
    }
}
