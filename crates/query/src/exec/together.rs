//! Named partitions of one tablet are read together, at one moment of the tablet.
//!
//! A statement that names several partitions (`IN`) returns them in its own order, whichever tablets they are in. So
//! partitions that were read together wait for their turn.
//!
//! Always true: the header, static row and rows of a partition are of one moment, and so are all partitions of a
//! tablet, as far as one answer holds them ([`MAX_SPANS`] keys and ranges, and up to a megabyte of stored bytes); the
//! others are read by themselves, several at a time. Left out: partitions that are alone in their tablet, or of which
//! more rows are named than are read at once ([`super::select`]).

use super::keys::{KeyRange, PartitionKey};
use super::piece::{Fetched, Found, Piece, RANGES_AT_ONCE};
use super::read::{CHUNK_BYTES, INLINE_BYTES, Read, tablet_of};
use crate::budget::refused;
use crate::kv::several::Span;
use crate::kv::{Fetch, Kv, ScanChunk};
use crate::program::PARTITION_DELETIONS;
use diorite_base::TabletId;
use diorite_cql::protocol::CqlError;
use diorite_model::key::{self, RowKind};
use futures::channel::oneshot;
use std::collections::HashMap;

/// The most keys and ranges that are read together.
const MAX_SPANS: usize = 4_096;
/// Their most bytes.
const MAX_SPAN_BYTES: usize = 256 << 10;
/// The most groups of partitions that are read together: their rows wait for their turn.
const MAX_GROUPS: usize = 256;
/// About the most bytes that wait in all groups.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// The least that a group may hold.
const MIN_GROUP_BYTES: usize = 64 << 10;

/// Partitions of one tablet: their places in the statement's order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    tablet: TabletId,
    members: Vec<usize>,
}

/// How a partition is read.
pub(super) enum Way<'p> {
    Alone,
    /// The first of its group, which reads for the others; they wait for it.
    First(First<'p>),
    /// Another one reads for it. If that is cancelled, the answer did not hold it.
    Waits(oneshot::Receiver<Fetched<'p>>),
}

/// See [`Way::First`].
pub(super) struct First<'p> {
    group: Group,
    others: Vec<oneshot::Sender<Fetched<'p>>>,
    max_bytes: usize,
}

/// How partitions are read, by their places in the statement's order; those without an entry are read alone.
#[derive(Default)]
pub(super) struct Ways<'p>(HashMap<usize, Way<'p>, ahash::RandomState>);

impl<'p> Ways<'p> {
    fn of(groups: Vec<Group>) -> Self {
        let max_bytes = (MAX_WAITING_BYTES / groups.len().max(1)).clamp(MIN_GROUP_BYTES, CHUNK_BYTES);
        let mut ways = Self::default();
        for group in groups {
            let Some((first, others)) = group.members.split_first() else { continue };
            let (senders, receivers): (Vec<_>, Vec<_>) = others.iter().map(|_| oneshot::channel()).unzip();
            ways.0.extend(others.iter().copied().zip(receivers.into_iter().map(Way::Waits)));
            ways.0.insert(*first, Way::First(First { group: group.clone(), others: senders, max_bytes }));
        }
        ways
    }

    /// How the partition at this place is read.
    pub(super) fn take(&mut self, at: usize) -> Way<'p> {
        self.0.remove(&at).unwrap_or(Way::Alone)
    }
}

impl<K: Kv> Read<'_, K> {
    /// Which of the partitions from `first` on are read together.
    pub(super) fn ways<'p>(
        &self,
        partitions: &[PartitionKey],
        first: usize,
        ranges: &[KeyRange],
    ) -> Result<Ways<'p>, CqlError> {
        if partitions.len() < first + 2 || ranges.is_empty() || ranges.len() > RANGES_AT_ONCE {
            return Ok(Ways::default());
        }
        let of_range = |range: &KeyRange| range.start.len() + range.end.as_ref().map_or(0, Vec::len);
        let range_bytes: usize = ranges.iter().map(of_range).sum();
        self.budget().take((partitions.len() - first) * size_of::<(usize, Way<'_>)>())?;
        let mut groups: Vec<(Group, usize)> = Vec::new();
        let mut open: HashMap<TabletId, usize, ahash::RandomState> = HashMap::default();
        for (at, partition) in partitions.iter().enumerate().skip(first) {
            let tablet = tablet_of(self.tablets, partition.token);
            let bytes = (2 * ranges.len() + 2) * partition.prefix.len() + range_bytes;
            let has_room = |(group, so_far): &(Group, usize)| {
                (group.members.len() + 1) * (ranges.len() + 2) <= MAX_SPANS && so_far + bytes <= MAX_SPAN_BYTES
            };
            match open.get(&tablet).map(|group| &mut groups[*group]).filter(|group| has_room(group)) {
                Some((group, so_far)) => {
                    group.members.push(at);
                    *so_far += bytes;
                }
                None => {
                    open.insert(tablet, groups.len());
                    groups.push((Group { tablet, members: vec![at] }, bytes));
                }
            }
        }
        let groups = groups.into_iter().map(|(group, _)| group).filter(|group| group.members.len() > 1);
        Ok(Ways::of(groups.take(MAX_GROUPS).collect()))
    }

    /// Reads the beginning of a piece, in its way.
    pub(super) async fn fetch_in<'p>(
        &'p self,
        way: Way<'p>,
        piece: Piece<'p>,
        partitions: &'p [PartitionKey],
        entries: usize,
    ) -> Result<Fetched<'p>, CqlError> {
        match way {
            Way::Alone => self.fetch(piece, entries).await,
            Way::Waits(read) => match read.await {
                Ok(fetched) => Ok(fetched),
                Err(oneshot::Canceled) => self.fetch(piece, entries).await,
            },
            Way::First(first) => {
                let mut read = self.fetch_together(&first, piece.ranges, partitions, entries).await?.into_iter();
                let Some(own) = read.next() else { return self.fetch(piece, entries).await };
                // A receiver that is gone needs no rows.
                first.others.into_iter().zip(read).for_each(|(other, fetched)| drop(other.send(fetched)));
                Ok(own)
            }
        }
    }

    /// Reads the partitions of a group: as many as the answer holds, in their order.
    async fn fetch_together<'p>(
        &'p self,
        First { group, max_bytes, .. }: &First<'p>,
        ranges: &'p [KeyRange],
        partitions: &'p [PartitionKey],
        entries: usize,
    ) -> Result<Vec<Fetched<'p>>, CqlError> {
        let mut spans = Vec::with_capacity(group.members.len() * (ranges.len() + 2));
        let mut held = self.budget().hold(0)?;
        for member in &group.members {
            let prefix = partitions[*member].prefix.as_slice();
            let before = spans.len();
            spans.push(Span::key_if(PARTITION_DELETIONS, with(prefix, key::push_header)));
            spans.extend(self.plan.reads_statics.then(|| Span::key(with(prefix, key::push_static))));
            spans.extend(ranges.iter().map(|range| range.span(prefix)));
            let bytes = spans[before..].iter().map(|span| size_of::<Span>() + span.size_bytes()).sum();
            held.grow(bytes).map_err(refused)?;
        }
        // A header and a static row for each row that is wanted.
        let entries = entries.saturating_add(2 * group.members.len().min(entries));
        let rows = self.several_fetch(&spans, entries, *max_bytes);
        let chunk = self.source.fetch(group.tablet, Fetch { rows, ..Fetch::default() }).await?.chunk;
        held.grow(chunk.size_bytes()).map_err(refused)?;
        let split = || self.split(group, ranges, partitions, &chunk);
        let split = if chunk.size_bytes() > INLINE_BYTES { self.source.run_long(split).await } else { split() };
        split.map_err(self.in_tablet(group.tablet))
    }

    /// Splits an answer into the partitions of a group, as far as it holds them.
    fn split<'p>(
        &'p self,
        group: &Group,
        ranges: &'p [KeyRange],
        partitions: &'p [PartitionKey],
        chunk: &ScanChunk,
    ) -> Result<Vec<Fetched<'p>>, CqlError> {
        let mut read = Vec::with_capacity(group.members.len());
        let mut parts = Parts { entries: chunk.entries().peekable(), is_whole: chunk.exhausted };
        for member in &group.members {
            let partition = &partitions[*member];
            let Some(part) = parts.next(&partition.prefix)? else { break };
            let mut held = self.budget().hold(0)?;
            held.grow(part.size_bytes()).map_err(refused)?;
            let spans = ranges.iter().map(|range| range.span(&partition.prefix)).collect();
            let piece = Piece { partition, ranges, is_first: true, is_last: true, is_resumed: false };
            let found = Found::Several(group.tablet, spans, part.rows);
            read.push(Fetched { piece, _held: held, header: part.header, static_row: part.static_row, found });
        }
        Ok(read)
    }
}

fn with(prefix: &[u8], push: fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + 1);
    key.extend_from_slice(prefix);
    push(&mut key);
    key
}

/// The part of an answer that belongs to one partition.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    header: Option<Vec<u8>>,
    static_row: Option<Vec<u8>>,
    rows: ScanChunk,
}

impl Part {
    fn size_bytes(&self) -> usize {
        let values = [&self.header, &self.static_row];
        values.into_iter().flatten().map(Vec::len).sum::<usize>() + self.rows.size_bytes()
    }
}

/// The entries of several partitions, one partition after the other.
struct Parts<'e, I: Iterator<Item = (&'e [u8], &'e [u8])>> {
    entries: std::iter::Peekable<I>,
    /// Nothing is missing after the last entry.
    is_whole: bool,
}

impl<'e, I: Iterator<Item = (&'e [u8], &'e [u8])>> Parts<'e, I> {
    /// The part of the next partition; `None` if the answer does not hold it, or not its first row.
    fn next(&mut self, prefix: &[u8]) -> Result<Option<Part>, CqlError> {
        let mut part = Part { rows: ScanChunk { exhausted: true, ..ScanChunk::default() }, ..Part::default() };
        while let Some((key, value)) = self.entries.next_if(|(key, _)| key.starts_with(prefix)) {
            match key::kind_of(key, prefix.len()).map_err(crate::error::corrupt)? {
                RowKind::Header => part.header = Some(value.to_vec()),
                RowKind::Static => part.static_row = Some(value.to_vec()),
                RowKind::Regular => part.rows.push(key, value),
            }
        }
        // At the end of the answer, a part of this partition, or all of it, may be missing.
        part.rows.exhausted = self.is_whole || self.entries.peek().is_some();
        Ok((part.rows.exhausted || !part.rows.ends.is_empty()).then_some(part))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    /// The entry of a kind of row in a partition.
    fn entry(partition: u8, kind: u8) -> (Vec<u8>, Vec<u8>) {
        (vec![0, 0, 0, 0, 0, 0, 0, 0, partition, kind, 7], vec![partition, kind])
    }

    fn parts(entries: &[(Vec<u8>, Vec<u8>)], is_whole: bool) -> Vec<Option<(bool, bool, usize, bool)>> {
        let entries = entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        let mut parts = Parts { entries: entries.peekable(), is_whole };
        let shown =
            |part: Part| (part.header.is_some(), part.static_row.is_some(), part.rows.ends.len(), part.rows.exhausted);
        (1..=3).map(|partition| parts.next(&[0, 0, 0, 0, 0, 0, 0, 0, partition]).unwrap().map(shown)).collect()
    }

    #[test]
    fn entries_go_to_their_partitions_and_what_was_cut_off_is_known() {
        let all = [entry(1, 0), entry(1, 1), entry(1, 2), entry(1, 2), entry(3, 1), entry(3, 2)];
        let first = Some((true, true, 2, true));
        let nothing = Some((false, false, 0, true));
        assert_eq!(parts(&all, true), [first, nothing, Some((false, true, 1, true))]);
        assert_eq!(parts(&all, false), [first, nothing, Some((false, true, 1, false))]);
        assert_eq!(parts(&all[..5], false), [first, nothing, None], "its rows are not there");
        assert_eq!(parts(&all[..4], false), [Some((true, true, 2, false)), None, None]);
        assert_eq!(parts(&[], true), [nothing, nothing, nothing]);
    }
}
