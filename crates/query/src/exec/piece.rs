//! A piece of a named partition: rows or ranges that are read together.
//!
//! Always true: the first piece of a partition brings its header and static row. Left out: pieces of several partitions that are read together
//! ([`super::together`]).

use super::collect::{Collector, Step};
use super::keys::{KeyRange, PartitionKey};
use super::read::{CHUNK_BYTES, Read, TabletScan, tablet_of};
use crate::budget::refused;
use crate::kv::several::Span;
use crate::kv::{Fetch, FetchRows, Kv, ScanChunk};
use diorite_base::TabletId;
use diorite_base::account::Held;
use diorite_cql::protocol::CqlError;

/// The most keys and ranges of a partition that are read together, at one moment.
pub(super) const RANGES_AT_ONCE: usize = 1_000;

/// A row or range of a named partition.
pub(super) struct Piece<'p> {
    pub(super) partition: &'p PartitionKey,
    /// Read together, at one moment. None if the restrictions leave nothing of the partition.
    pub(super) ranges: &'p [KeyRange],
    /// The first of its partition, which brings header and static row.
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// The former page ended in its partition.
    pub(super) is_resumed: bool,
}

/// The result of a fetch for a piece.
pub(super) struct Fetched<'p> {
    pub(super) piece: Piece<'p>,
    /// Its memory.
    pub(super) _held: Held<'p>,
    pub(super) header: Option<Vec<u8>>,
    pub(super) static_row: Option<Vec<u8>>,
    pub(super) found: Found,
}

pub(super) enum Found {
    Nothing,
    /// Key and value.
    Row(Vec<u8>, Vec<u8>),
    /// A range and its first chunk.
    Chunk(TabletScan, ScanChunk),
    /// Keys and ranges of a tablet and the first chunk of all of them.
    Several(TabletId, Vec<Span>, ScanChunk),
}

impl<K: Kv> Read<'_, K> {
    /// Reads the beginning of a piece: a row, or the first chunk of a range.
    pub(super) async fn fetch<'p>(&'p self, piece: Piece<'p>, entries: usize) -> Result<Fetched<'p>, CqlError> {
        let mut held = self.budget().hold(0)?;
        let tablet = tablet_of(self.tablets, piece.partition.token);
        let prefix = piece.partition.prefix.as_slice();
        let mut request = if piece.is_first { self.partition_fetch(prefix) } else { Fetch::default() };
        let (mut row_key, mut scan, mut spans) = (None, None, None);
        if let [range] = piece.ranges {
            let start = [prefix, &range.start].concat();
            match &range.end {
                None => {
                    request.rows = FetchRows::One(start.clone());
                    row_key = Some(start);
                }
                Some(end) => {
                    let end = [prefix, end].concat();
                    request.rows = self.chunk_fetch(&start, &end, entries);
                    scan = Some(TabletScan { tablet, start, end, by: None });
                }
            }
        } else if !piece.ranges.is_empty() {
            let named: Vec<Span> = piece.ranges.iter().map(|range| range.span(prefix)).collect();
            request.rows = self.several_fetch(&named, entries, CHUNK_BYTES);
            spans = Some(named);
        }
        let mut fetched = self.source.fetch(tablet, request).await?;
        held.grow(fetched.to_be_charged()).map_err(refused)?;
        let found = match (row_key.zip(fetched.row), scan, spans) {
            (Some((key, value)), ..) => Found::Row(key, value),
            (None, Some(scan), _) => Found::Chunk(scan, fetched.chunk),
            (None, None, Some(spans)) => Found::Several(tablet, spans, fetched.chunk),
            (None, None, None) => Found::Nothing,
        };
        Ok(Fetched { piece, _held: held, header: fetched.header, static_row: fetched.static_row, found })
    }

    /// Feeds a piece to the collector, with the rest of its range. `remaining` is the rest of its partition's limit
    /// after the former page.
    pub(super) async fn take_piece(
        &self,
        fetched: Fetched<'_>,
        remaining: Option<u64>,
        collector: &mut Collector<'_>,
    ) -> Result<Step, CqlError> {
        let Fetched { piece, _held, header, static_row, found } = fetched;
        if piece.is_first {
            let begun = collector.begin_partition(&piece.partition.prefix, header, static_row.as_deref());
            begun.map_err(self.in_partition(piece.partition))?;
            if let Some(remaining) = remaining.filter(|_| piece.is_resumed) {
                collector.resume_partition(remaining);
            }
        }
        if !collector.is_partition_done() {
            let step = match found {
                Found::Nothing => Step::More,
                Found::Row(key, value) => {
                    let row = ScanChunk { buffer: value, ends: Vec::new(), exhausted: true };
                    self.consume(Some(&key), &row, collector).await.map_err(self.in_partition(piece.partition))?
                }
                Found::Chunk(scan, chunk) => self.range(scan, Some(chunk), collector).await?,
                Found::Several(tablet, spans, chunk) => self.several(tablet, spans, chunk, collector).await?,
            };
            if step == Step::Full {
                return Ok(Step::Full);
            }
        }
        if piece.is_last {
            collector.end_partition()?;
            if collector.is_full() {
                return Ok(Step::Full);
            }
        }
        Ok(Step::More)
    }

    /// Feeds keys and ranges of one partition to the collector, of which a first chunk has been read.
    async fn several(
        &self,
        tablet: TabletId,
        mut spans: Vec<Span>,
        mut chunk: ScanChunk,
        collector: &mut Collector<'_>,
    ) -> Result<Step, CqlError> {
        let is_reversed = self.plan.is_reversed;
        loop {
            let step = self.consume(None, &chunk, collector).await.map_err(self.in_tablet(tablet))?;
            if step == Step::Full {
                return Ok(Step::Full);
            }
            let Some((last, _)) = chunk.entries().last().filter(|_| !chunk.exhausted) else { break };
            let mut from = last.to_vec();
            if !is_reversed {
                from.push(0);
            }
            spans = spans.into_iter().filter_map(|span| span.clipped(&from, is_reversed)).collect();
            if spans.is_empty() || collector.is_partition_done() {
                break;
            }
            let rows = self.several_fetch(&spans, self.chunk_entries(collector), CHUNK_BYTES);
            chunk = self.source.fetch(tablet, Fetch { rows, ..Fetch::default() }).await?.chunk;
        }
        Ok(Step::More)
    }
}
