//! The split of a tablet: its group ends with an entry that names the boundary, and the groups of two child tablets
//! begin with its data (`docs/decisions/2026-11-22-splitting-tablets.md`).
//!
//! Always true: a leader ends its lease before it proposes the entry; a replica that has applied it takes no writes and
//! answers no reads, for ever; all replicas of a child begin at the same index and term, those of the entry, with the
//! same data; a child's data is made from its parent's only on a node whose Raft log has no record of the child, and is
//! not used until it has.
//! Left out: which tablets are split, and when the children serve in the parent's place (the catalog's).

use crate::planted::Planted;
use diorite_base::bytes::{Malformed, Reader, put_slice};
use diorite_base::limits::MAX_STORED_KEY_BYTES;
use diorite_base::row_index::{FIRST_ROW_KEY, RECORD_PREFIX};
use diorite_base::{GroupId, TabletId};
use diorite_raft::{HardState, LogReader, MarkedPayload};
use diorite_storage::{
    AFTER_ALL_KEYS, AppliedState, Engine, LogRecords, MEMBERS_KEY, SPLIT_KEY, StorageError, TabletBatch as _,
    TabletData,
};
use std::sync::Arc;

/// Marks the entry in its raft context.
pub(crate) const SPLIT: &[u8] = b"split";

/// The most bytes that are added to each prepared child from its parent's log; if there are more, its data is made
/// anew.
const MAX_ADDED_BYTES: u64 = 16 << 20;

/// Where a tablet is split, and into which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The first key of the second child; at least eight bytes long, as keys of the data are.
    pub boundary: Vec<u8>,
    /// The children, in the order of their keys.
    pub children: [TabletId; 2],
}

impl Split {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for child in self.children {
            out.extend_from_slice(&child.0.to_le_bytes());
        }
        put_slice(&mut out, &self.boundary);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::read(&mut Reader::new(bytes))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let children = [TabletId(reader.u64()?), TabletId(reader.u64()?)];
        Ok(Self { boundary: reader.slice()?.to_vec(), children })
    }
}

impl MarkedPayload for Split {
    const MARK: &'static [u8] = SPLIT;
    /// Two numbers, a length, the boundary.
    const MAX_BYTES: usize = 2 * 8 + 10 + MAX_STORED_KEY_BYTES;

    fn encode(&self) -> Vec<u8> {
        Split::encode(self)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Split::decode(bytes).ok()
    }
}

/// The record in a tablet's data that it was split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMark {
    /// The tablet that was split.
    pub parent: TabletId,
    /// The index of the split entry in the parent's log.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The boundary and the children.
    pub split: Split,
}

impl SplitMark {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.parent.0, self.index, self.term] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.split.encode());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (parent, index, term) = (TabletId(reader.u64()?), reader.u64()?, reader.u64()?);
        Ok(Self { parent, index, term, split: Split::read(&mut reader)? })
    }
}

/// Receives splits of replicas.
pub trait SplitListener: Send + Sync + 'static {
    /// A replica of this node has applied the entry that splits its tablet, or has been opened after that; `leads`: it
    /// leads. Must not wait.
    fn split(&self, mark: &SplitMark, leads: bool);
}

/// Begins the log of a child whose data was made when its parent had applied `held`, with the committed entries of
/// `parent`'s log from there to the split. Returns false, and changes nothing, if some of them are missing.
pub fn begin_from_log<R: LogReader, B: LogRecords>(
    held: &AppliedState,
    mark: &SplitMark,
    parent: &R,
    child: GroupId,
    records: &mut B,
    planted: Planted,
) -> Result<bool, StorageError> {
    if held.index >= mark.index {
        return Ok(false);
    }
    let mut entries = parent.entries(held.index + 1, mark.index + 1, MAX_ADDED_BYTES).unwrap_or_default();
    let is_whole = entries.first().is_some_and(|entry| entry.index == held.index + 1)
        && entries.last().is_some_and(|entry| (entry.index, entry.term) == (mark.index, mark.term));
    // The parent was itself a child whose data was not reduced yet: only the parent knows which part of the rows to
    // keep.
    let is_cut_twice = entries.iter().rev().skip(1).any(|entry| entry.context == SPLIT);
    if !is_whole || is_cut_twice {
        return Ok(false);
    }
    if planted.allowed().forget_parents_log {
        entries.iter_mut().filter(|entry| entry.context.is_empty()).for_each(|entry| entry.data.clear());
    }
    records.restart_after(child, 0, held.index, held.term)?;
    records.append(child, &entries, mark.index)?;
    let state = HardState { term: mark.term, commit: mark.index, ..HardState::default() };
    records.set_hard_state(child, &state)?;
    Ok(true)
}

/// Begins the log of a child whose data was made after its parent had been split: the data holds everything up to
/// there.
pub fn begin_as_copy<B: LogRecords>(mark: &SplitMark, child: GroupId, records: &mut B) -> Result<(), StorageError> {
    records.restart_after(child, 0, mark.index, mark.term)
}

/// Removes the sibling's rows from a child's data when it is opened for the first time. The child's group begins where
/// its parent's was split, whatever that has applied since.
///
/// Durable when it returns: the log is truncated by the durable applied index, which must not be one of the parent's
/// log.
pub fn keep_own<E: Engine>(tablet: TabletId, data: &Arc<E::Tablet>, planted: Planted) -> Result<(), StorageError> {
    let Some(bytes) = data.get(SPLIT_KEY)? else { return Ok(()) };
    let corrupt = |_| StorageError::Corrupt(format!("how {tablet} was split"));
    let mark = SplitMark::decode(&bytes).map_err(corrupt)?;
    let mut batch = <E::Tablet as TabletData>::Batch::default();
    if keep_part::<E>(&mark.split, tablet, data, &mut batch)? {
        let state = AppliedState { index: mark.index, term: mark.term, ..data.applied_state()? };
        data.apply(&mut batch, &state)?;
        if !planted.allowed().keep_own_in_memory {
            data.make_durable()?;
        }
    }
    Ok(())
}

/// Puts the removal of the sibling's rows into `batch`, if `tablet` is a child of this split. The applied state has to
/// be written with it.
pub(crate) fn keep_part<E: Engine>(
    split: &Split,
    tablet: TabletId,
    data: &Arc<E::Tablet>,
    batch: &mut <E::Tablet as TabletData>::Batch,
) -> Result<bool, StorageError> {
    match split.children.iter().position(|child| *child == tablet) {
        Some(0) => batch.delete_range(&split.boundary, AFTER_ALL_KEYS),
        // The tablet's own records and index entries stay, those of the sibling's rows too: no reader of this tablet
        // looks at them.
        Some(_) => {
            batch.delete_range(&[], &RECORD_PREFIX);
            batch.delete_range(&FIRST_ROW_KEY, &split.boundary);
        }
        // The record is of the tablet's own split, or of its parent's parent's.
        None => return Ok(false),
    }
    // The keys of the tablet's own state may lie within the range.
    if let Some(members) = data.get(MEMBERS_KEY)? {
        batch.put(MEMBERS_KEY, &members);
    }
    batch.delete(SPLIT_KEY);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_raft::{Entry, ProvenPayload};
    use diorite_storage::MemoryRecords;

    struct Parent(Vec<Entry>);

    impl LogReader for Parent {
        fn entries(&self, low: u64, high: u64, _: u64) -> Result<Vec<Entry>, diorite_raft::LogReadError> {
            Ok(self.0.iter().filter(|entry| (low..high).contains(&entry.index)).cloned().collect())
        }
    }

    /// The log of a child is truncated by its durable applied index: if that were the parent's, entries of the child
    /// that are only in memory would be dropped.
    #[test]
    fn a_child_that_begins_as_a_copy_is_durable_as_its_own() {
        use diorite_storage::{Memory, MemoryBatch, MemoryTablet, TabletBatch, TabletData};
        let split = Split { boundary: vec![0x80; 9], children: [TabletId(7), TabletId(8)] };
        let mark = SplitMark { parent: TabletId(3), index: 9, term: 2, split };
        let data = Arc::new(MemoryTablet::new(None));
        let mut batch = MemoryBatch::default();
        batch.put(SPLIT_KEY, &mark.encode());
        // The parent has applied more entries of its own log since.
        data.apply(&mut batch, &AppliedState { index: 12, term: 4, ..AppliedState::default() }).expect("memory");
        data.flush();
        keep_own::<Memory>(TabletId(7), &data, Planted::default()).expect("memory");
        assert_eq!((data.flushed_state().index, data.flushed_state().term), (9, 2));
    }

    #[test]
    fn a_child_takes_its_parents_log_only_if_that_was_not_itself_split_off_in_it() {
        let split = Split { boundary: vec![0x80; 9], children: [TabletId(7), TabletId(8)] };
        let mark = SplitMark { parent: TabletId(3), index: 9, term: 2, split };
        let log = |splits: &[u64]| {
            let context = |index| if splits.contains(&index) { SPLIT } else { &[] };
            Parent(
                (1..=9)
                    .map(|index| Entry { index, term: 2, context: context(index).into(), ..Entry::default() })
                    .collect(),
            )
        };
        let begins = |splits: &[u64], index| {
            let held = AppliedState { index, term: 2, ..AppliedState::default() };
            let mut records = MemoryRecords::default();
            let begun = begin_from_log(&held, &mark, &log(splits), GroupId(7), &mut records, Planted::default());
            assert_eq!(begun.as_ref().ok(), Some(&!records.is_empty()), "all or nothing");
            begun.expect("memory takes everything")
        };
        assert!(begins(&[9], 4));
        assert!(!begins(&[9], 9), "it was made after the split");
        assert!(!begins(&[6, 9], 4), "what the parent was split from ends within");
        assert!(begins(&[6, 9], 6), "or before");
    }

    #[test]
    fn a_mark_survives_its_encoding() {
        let split = Split { boundary: vec![0x80; 9], children: [TabletId(7), TabletId(8)] };
        let mark = SplitMark { parent: TabletId(3), index: 1 << 40, term: 9, split };
        assert_eq!(SplitMark::decode(&mark.encode()).expect("own encoding"), mark);
        assert_eq!(Split::decode(&mark.split.encode()).expect("own encoding"), mark.split);
        assert!(SplitMark::decode(b"short").is_err());
    }

    #[test]
    fn a_split_at_what_no_key_can_be_is_not_proven() {
        let split = |length| Split { boundary: vec![0x80; length], children: [TabletId(7), TabletId(8)] };
        assert!(ProvenPayload::new(&split(MAX_STORED_KEY_BYTES)).is_ok());
        assert!(ProvenPayload::new(&split(MAX_STORED_KEY_BYTES + 16)).is_err());
    }
}
