//! The data that a connection keeps of each request, and when the request was read, without a clock read for each.
//!
//! Always true: nothing is allocated per request; a write carries its data in the tag that comes back with its outcome.

use diorite_cql::protocol::Consistency;
use diorite_query::activity::Slot;

const CONSISTENCY_SHIFT: u32 = 32;
const AGE_SHIFT: u32 = 36;

/// The tag of a write until it is answered: its stream, the number of its statement (see
/// [`diorite_query::engine::slot_of`]), its size (see [`diorite_query::engine::held_bytes_of`]), the consistency level
/// for an error message, and when it was read. Twenty-eight bits of microseconds are about four minutes, which is
/// longer than any timeout.
///
/// ```text
/// bits  0-15 stream · 16-27 statement · 28-31 size · 32-35 consistency · 36-63 microseconds
/// ```
pub(crate) fn tag_of(stream: i16, asked: Consistency, arrived_ns: u64) -> u64 {
    (arrived_ns / 1_000) << AGE_SHIFT | u64::from(asked.code() & 0xF) << CONSISTENCY_SHIFT | u64::from(stream as u16)
}

/// The consistency level that a write asked for.
pub(crate) fn consistency_of(tag: u64) -> Consistency {
    Consistency::from_code((tag >> CONSISTENCY_SHIFT & 0xF) as u16).unwrap_or_default()
}

/// How long ago a write was read, microseconds.
pub(crate) fn age_us(tag: u64, now_ns: u64) -> u32 {
    ((now_ns / 1_000) as u32).wrapping_sub((tag >> AGE_SHIFT) as u32) & (u32::MAX >> (AGE_SHIFT - 32))
}

/// Reads of one statement that were answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadsOfStatement {
    pub(crate) slot: Slot,
    pub(crate) count: u64,
    pub(crate) rows: u64,
}

/// Statistics of requests that were read at once.
#[derive(Default)]
pub(crate) struct Taken {
    /// EXECUTEs.
    pub(crate) executes: u64,
    /// Reads that were answered at once, by statement: mostly one.
    pub(crate) reads: Vec<ReadsOfStatement>,
    /// Some writes were handed to the store.
    pub(crate) writes: bool,
}

impl Taken {
    #[inline]
    pub(crate) fn count_read(&mut self, slot: Slot, rows: u64) {
        match self.reads.iter_mut().find(|reads| reads.slot == slot) {
            Some(reads) => (reads.count, reads.rows) = (reads.count + 1, reads.rows + rows),
            None => self.reads.push(ReadsOfStatement { slot, count: 1, rows }),
        }
    }

    /// Clears the statistics, and keeps the buffer for reuse.
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        (self.executes, self.writes) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_query::engine::{held_bytes_of, slot_of};

    #[test]
    fn a_tag_names_stream_statement_consistency_and_age() {
        let read_ns = 5_000_000_000_123_456;
        for stream in [0, 7, i16::MAX, -1] {
            let tag = tag_of(stream, Consistency::LocalQuorum, read_ns) | 511 << 16 | 15 << 28;
            assert_eq!((tag as u16 as i16, slot_of(tag)), (stream, 511));
            assert_eq!(held_bytes_of(tag), 32 << 20);
            assert_eq!(consistency_of(tag), Consistency::LocalQuorum);
            assert_eq!(age_us(tag, read_ns + 2_500_000), 2_500);
        }
    }

    #[test]
    fn ages_survive_the_end_of_the_numbers() {
        let read_ns = ((1 << 28) - 10) * 1_000;
        assert_eq!(age_us(tag_of(1, Consistency::One, read_ns), read_ns + 100_000), 100);
    }

    #[test]
    fn reads_are_counted_by_statement() {
        let mut taken = Taken::default();
        [(3, 1), (4, 0), (3, 1)].into_iter().for_each(|(slot, rows)| taken.count_read(slot, rows));
        let reads = |slot, count, rows| ReadsOfStatement { slot, count, rows };
        assert_eq!(taken.reads, [reads(3, 2, 2), reads(4, 1, 0)]);
        taken.clear();
        assert!(taken.reads.is_empty());
    }
}
