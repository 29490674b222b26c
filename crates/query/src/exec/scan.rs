//! Scans over ranges of tokens, tablet after tablet.
//!
//! Always true: a page never mixes two states of a partition's header, as rows of a partition come from one tablet. Left out: named
//! partitions ([`super::select`]).

use super::ahead;
use super::collect::{Collector, Step};
use super::finish::finish;
use super::paging::PagingState;
use super::read::{CHUNK_ENTRIES, Page, PageRequest, Read, TabletScan, check_result_size};
use crate::budget::refused;
use crate::error::invalid;
use crate::kv::{Fetch, IndexScan, Kv, ScanChunk};
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::term::{Bound, Term};
use diorite_cql::protocol::{CqlError, Rows};
use diorite_model::key;
use std::sync::Arc;

/// The range of tokens that the statement asks for: first and last token, both inclusive. `None` if it is empty.
pub(super) fn token_range(partition: &PartitionRestriction, bound: &Bound<'_>) -> Result<Option<(i64, i64)>, CqlError> {
    let PartitionRestriction::Tokens { lower, upper } = partition else {
        return Ok(Some((i64::MIN, i64::MAX)));
    };
    let token = |term: &Term| -> Result<i64, CqlError> {
        let wire = term.require(bound, "partition key token")?;
        let wire: [u8; 8] = (*wire).try_into().map_err(|_| invalid("Invalid token"))?;
        Ok(i64::from_be_bytes(wire))
    };
    let first = match lower {
        None => i64::MIN,
        Some((term, true)) => token(term)?,
        Some((term, false)) => match token(term)?.checked_add(1) {
            Some(first) => first,
            None => return Ok(None),
        },
    };
    let last = match upper {
        None => i64::MAX,
        // Below the first hash there is nothing.
        Some((term, _)) if term.is_token_of_hash() && token(term)? == i64::MIN => return Ok(None),
        // The ring's smallest token as an upper end means its end, as tools that split the ring write it.
        Some((term, is_inclusive)) => match (token(term)?, is_inclusive) {
            (i64::MIN, _) => i64::MAX,
            (last, true) => last,
            (last, false) => last - 1,
        },
    };
    Ok((first <= last).then_some((first, last)))
}

impl<K: Kv> Read<'_, K> {
    /// The scans that cover the token range, from where the former page ended.
    pub(super) fn tablet_scans(
        &self,
        state: Option<&PagingState>,
        by: Option<&Arc<IndexScan>>,
    ) -> Result<Vec<TabletScan>, CqlError> {
        let Some((first, last)) = token_range(&self.plan.restrictions.partition, self.bound)? else {
            return Ok(Vec::new());
        };
        // No row has the smallest token: under it are a tablet's own records and index entries.
        let first = first.max(i64::MIN + 1);
        let mut scans = Vec::new();
        for (at, range) in self.tablets.iter().enumerate() {
            let next = self.tablets.get(at + 1).map(|next| next.first_token);
            let last_of_tablet = next.map_or(i64::MAX, |next| next - 1);
            let (from, to) = (range.first_token.max(first), last_of_tablet.min(last));
            if from > to {
                continue;
            }
            let (mut start, mut end) = (Vec::new(), Vec::new());
            key::push_token_start(from, &mut start);
            key::push_token_end(to, &mut end);
            if let Some(state) = state {
                if state.key >= end {
                    continue;
                }
                if state.key >= start {
                    start.clone_from(&state.key);
                    start.push(0);
                }
            }
            scans.push(TabletScan { tablet: range.tablet, start, end, by: by.cloned() });
        }
        Ok(scans)
    }

    /// Feeds a range of one tablet to the collector; its first chunk may have been read before.
    pub(super) async fn range(
        &self,
        scan: TabletScan,
        mut first: Option<ScanChunk>,
        collector: &mut Collector<'_>,
    ) -> Result<Step, CqlError> {
        let TabletScan { tablet, mut start, mut end, by } = scan;
        let is_reversed = self.plan.is_reversed;
        let mut entries = self.chunk_entries(collector);
        while start < end {
            self.budget().check()?;
            let mut held = self.budget().hold(0)?;
            let chunk = match first.take() {
                // The caller, which read it, charges its memory.
                Some(chunk) => chunk,
                None => {
                    let rows = match &by {
                        Some(by) => self.index_fetch(by, (&start, &end), collector.partition(), entries),
                        None => self.chunk_fetch(&start, &end, entries),
                    };
                    let chunk = self.source.fetch(tablet, Fetch { rows, ..Fetch::default() }).await?.chunk;
                    held.grow(chunk.size_bytes()).map_err(refused)?;
                    chunk
                }
            };
            let step = self.consume(None, &chunk, collector).await.map_err(self.in_tablet(tablet))?;
            if step == Step::Full {
                return Ok(Step::Full);
            }
            let Some(last) = chunk.entries().last().filter(|_| !chunk.exhausted) else { break };
            // The page is not full, so many entries here gave no row (deleted or expired ones): read more at once.
            entries = entries.saturating_mul(4).min(CHUNK_ENTRIES);
            if is_reversed {
                end = last.0.to_vec();
            } else if collector.is_partition_done() && last.0.starts_with(collector.partition()) {
                start = collector.partition().to_vec();
                key::push_partition_end(&mut start);
            } else {
                start = last.0.to_vec();
                start.push(0);
            }
            if is_reversed && collector.is_partition_done() {
                break;
            }
        }
        Ok(Step::More)
    }

    /// Feeds scans to the collector, one after the other.
    async fn scans_in_turn(
        &self,
        scans: &[TabletScan],
        mut first: Option<ScanChunk>,
        collector: &mut Collector<'_>,
        page: &PageRequest<'_>,
    ) -> Result<Step, CqlError> {
        for scan in scans {
            if self.range(scan.clone(), first.take(), collector).await? == Step::Full {
                return Ok(Step::Full);
            }
            check_result_size(collector, page)?;
        }
        Ok(Step::More)
    }

    /// Reads a page of the scans; if it `is_cut`, others follow them.
    pub(super) async fn page_of_scans(
        &self,
        scans: &[TabletScan],
        is_cut: bool,
        page: Page<'_>,
    ) -> Result<Rows, CqlError> {
        let mut collector = Collector::new(self.plan, self.scope(), page.filters, page.limits);
        let mut first = None;
        let mut held = self.budget().hold(0)?;
        if let Some(state) = &page.state
            && let Some(scan) =
                scans.first().filter(|scan| state.is_in_partition() && scan.start.starts_with(&state.key))
        {
            let prefix = &state.key[..state.partition_len];
            let entries = self.chunk_entries(&collector);
            let rows = match &scan.by {
                Some(by) => self.index_fetch(by, (&scan.start, &scan.end), prefix, entries),
                None => self.chunk_fetch(&scan.start, &scan.end, entries),
            };
            let mut fetched = self.source.fetch(scan.tablet, Fetch { rows, ..self.partition_fetch(prefix) }).await?;
            held.grow(fetched.to_be_charged()).map_err(refused)?;
            let begun = collector.begin_partition(prefix, fetched.header, fetched.static_row.as_deref());
            begun.map_err(self.in_tablet(scan.tablet))?;
            collector.resume_partition(state.remaining_in_partition.unwrap_or(u64::MAX));
            first = Some(fetched.chunk);
        }
        let step = match ahead::are_by_one_value(scans) {
            true => ahead::scans_by_value(self, scans, first, &mut collector, page.request).await?,
            false => self.scans_in_turn(scans, first, &mut collector, page.request).await?,
        };
        if step == Step::Full {
            return finish(self, collector, page.request, false).await;
        }
        collector.end_partition()?;
        let end = scans.last().map(|scan| scan.end.clone()).filter(|_| is_cut && !collector.is_finished());
        let state = end.map(|key| PagingState {
            table: self.plan.table.table().id.0,
            remaining: Some(collector.rows_left()).filter(|rows| *rows != u64::MAX),
            remaining_in_partition: None,
            offset: collector.offset_left(),
            partition_len: size_of::<i64>(),
            key,
        });
        let rows = finish(self, collector, page.request, true).await?;
        Ok(Rows { paging_state: state.map(|state| state.encode()), ..rows })
    }
}
