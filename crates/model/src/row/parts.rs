//! The parts of a packed row: flags, markers, deletions, expiries, and the horizon of a row of version 2.

use crate::format::{FORMAT_BOUNDED_ROW, FORMAT_MASK};
use diorite_base::Horizon;
use diorite_base::bytes::Reader;

/// The base timestamp of a row that the leader is to stamp: pass it to [`super::RowWriter::new`] and as the timestamp
/// of everything that is to carry the stamp. The value is reserved; clients may not use it.
pub const UNSTAMPED: i64 = i64::MIN;
/// The value for [`super::LiveRow::new`] where no deletion covers the row.
pub const NOTHING_DELETED: i64 = i64::MIN;

/// Flags of a row: what occurs in it.
pub(super) mod row_flag {
    pub const MARKER: u8 = 0x01;
    pub const DELETION: u8 = 0x02;
    pub const EXPIRING: u8 = 0x04;
    pub const TOMBSTONE: u8 = 0x08;
    pub const COMPLEX: u8 = 0x10;
    pub const COUNTER: u8 = 0x20;
}

/// Flags of markers, deletions, cells and elements.
pub(super) mod flag {
    /// A timestamp follows; else it is the base.
    pub const OWN_TIMESTAMP: u8 = 0x01;
    /// TTL and expiry follow.
    pub const EXPIRES: u8 = 0x02;
    /// A tombstone, with its local deletion time.
    pub const TOMBSTONE: u8 = 0x04;
    /// A multi-cell column.
    pub const COMPLEX: u8 = 0x08;
    /// A counter.
    pub const COUNTER: u8 = 0x10;
    /// Of a multi-cell column: a deletion precedes its elements. Of a counter: earlier increments do not count.
    pub const DELETED: u8 = 0x20;
    /// Of a deletion: its timestamp is the base less one.
    pub const BEFORE_BASE: u8 = 0x02;
}

/// Whole seconds since the epoch, as expiries count them.
pub fn now_seconds(now_us: i64) -> u32 {
    u32::try_from(now_us.div_euclid(1_000_000)).unwrap_or(if now_us < 0 { 0 } else { u32::MAX })
}

/// The expiry of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expiry {
    /// The TTL it was written with, seconds.
    pub ttl_s: u32,
    /// The second (since the epoch) at which it is no longer live.
    pub at_s: u32,
}

impl Expiry {
    /// Whether what carries it is live at `now_s`.
    #[inline]
    pub fn is_live(self, now_s: u32) -> bool {
        now_s < self.at_s
    }

    /// Seconds left at `now_s`: what `ttl(column)` shows.
    pub fn left_s(self, now_s: u32) -> u32 {
        self.at_s.saturating_sub(now_s)
    }
}

/// A deletion of everything up to and including a timestamp. Of two, the greater (by timestamp, then by local time) supersedes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Deletion {
    /// Microseconds; what carries this or less is deleted.
    pub timestamp_us: i64,
    /// When it was made, seconds since the epoch: decides when it may be purged.
    pub local_s: u32,
}

/// A row marker: the row exists by itself, as an INSERT made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Microseconds
    pub timestamp_us: i64,
    /// None if it stays.
    pub expiry: Option<Expiry>,
}

/// The encoded size of a horizon.
pub(super) const HORIZON_BYTES: usize = 12;

pub(super) fn push_horizon(horizon: Horizon, out: &mut Vec<u8>) {
    for second in [horizon.now_s, horizon.rows_s, horizon.ranges_s] {
        out.extend_from_slice(&second.to_le_bytes());
    }
}

/// The horizon of a row of version 2.
pub(crate) fn horizon(value: &[u8]) -> Option<Horizon> {
    if value.first()? & FORMAT_MASK != FORMAT_BOUNDED_ROW {
        return None;
    }
    let mut reader = Reader::new(value.get(9..)?);
    let mut second = || reader.u32().ok();
    Some(Horizon { now_s: second()?, rows_s: second()?, ranges_s: second()? })
}
