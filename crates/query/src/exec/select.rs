//! Execution of `SELECT`.
//!
//! Of named partitions (and rows) several are read at a time, those of one tablet together ([`super::together`]), and taken in order;
//! everything else is a scan over token ranges, tablet after tablet ([`super::scan`]). What was read goes to a [`Collector`]. Aggregates and
//! groups are computed where the rows are ([`super::pushdown`]).
//!
//! Always true: rows of a partition come from one tablet, so a page never mixes two states of a partition's header; memory is bounded by the
//! page and one chunk per tablet or partition being read; a page of a table with transactions is of one moment ([`super::snapshot`]), and
//! pages of other tables show what is there when each is read.

use super::by_index::{index_scan, partition_scans};
use super::collect::{Collector, Step};
use super::filter::{self, BoundFilter};
use super::finish::finish;
use super::keys::{KeyRange, PartitionKey, clustering_ranges, key_count, partition_keys};
use super::paging::PagingState;
use super::piece::{Piece, RANGES_AT_ONCE};
use super::pushdown::{Asking, Unit, named_units};
use super::read::{PARALLEL_PIECES, Page, PageRequest, Read, check_result_size};
use super::snapshot::MAX_PAGE_TABLETS;
use super::touched;
use crate::kv::Kv;
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::select::SelectPlan;
use diorite_cql::protocol::{CqlError, Rows};
use futures::stream::{FuturesOrdered, StreamExt};

/// A statement with at most so many keys and values is prepared on the calling thread.
const INLINE_KEYS: usize = 512;

/// Restrictions with bound values in place.
struct Prepared<'a> {
    filters: Vec<BoundFilter<'a>>,
    /// The named partitions, and the ranges of rows in each.
    named: Option<(Vec<PartitionKey>, Vec<KeyRange>)>,
}

impl<K: Kv> Read<'_, K> {
    /// Reads a page.
    pub async fn execute(&self, page: PageRequest<'_>) -> Result<Rows, CqlError> {
        let mut state = self.end_of_former(&page)?;
        let prepared = match key_count(&self.plan.restrictions, self.bound) > INLINE_KEYS {
            true => self.source.run_long(|| self.prepare()).await?,
            false => self.prepare()?,
        };
        let filters = prepared.filters;
        let limits = self.limits(&page, state.as_ref())?;
        if let Some(state) = &mut state {
            state.limit_partition(limits.rows_per_partition);
        }
        let by = index_scan(self, &filters)?;
        let within = by.as_ref().zip(prepared.named.as_ref()).map(|(by, (partitions, _))| (by, partitions));
        let mut scans = match within {
            Some((by, partitions)) => partition_scans(self, partitions, by, state.as_ref()),
            None if prepared.named.is_some() => Vec::new(),
            None => self.tablet_scans(state.as_ref(), by.as_ref())?,
        };
        let folds = self.plan.is_one_row() || self.plan.grouping.is_some();
        if let Some((partitions, ranges)) = prepared.named.filter(|_| by.is_none()) {
            if self.source.wants_snapshot(touched::is_one_row(&partitions, &ranges)) {
                let touched = touched::by_partitions(self, &partitions, &ranges, !folds && page.page_size.is_some())?;
                self.source.take_snapshot(touched, self.budget()).await?;
            }
            if let Some(units) = named_units(self, &partitions, &ranges, state.as_ref())? {
                return Asking { read: self, filters: &filters }.rows(&units, limits, &page).await;
            }
            let page = Page { filters: &filters, limits, request: &page, state };
            return self.named_partitions(&partitions, &ranges, page).await;
        }
        let mut is_cut = false;
        if self.source.wants_snapshot(false) {
            let is_page = !folds && page.page_size.is_some();
            if is_page {
                let resumable = self.source.resumable(scans.iter().map(|scan| scan.tablet));
                let most = resumable.unwrap_or_else(|| touched::within_tablets(&scans, MAX_PAGE_TABLETS));
                is_cut = scans.len() > most;
                scans.truncate(most);
            }
            self.source.take_snapshot(touched::by_scans(self, &scans, is_page)?, self.budget()).await?;
        }
        if folds {
            let units: Vec<Unit> = scans.iter().map(|scan| Unit::of_scan(scan, state.as_ref())).collect();
            return Asking { read: self, filters: &filters }.rows(&units, limits, &page).await;
        }
        self.page_of_scans(&scans, is_cut, Page { filters: &filters, limits, request: &page, state }).await
    }

    /// Where the former page ended, if there was one.
    fn end_of_former(&self, page: &PageRequest<'_>) -> Result<Option<PagingState>, CqlError> {
        let Some(state) = page.state.map(PagingState::decode).transpose()? else { return Ok(None) };
        // Rows that are put in order, or aggregated into one, are one page.
        let has_pages = self.plan.ordering.is_empty() && !self.plan.is_one_row();
        if !has_pages || !state.is_of(&self.plan.table) {
            return Err(CqlError::protocol("Invalid value for the paging state"));
        }
        Ok(Some(state))
    }

    /// Makes filters and keys of the restrictions and the bound values.
    fn prepare(&self) -> Result<Prepared<'_>, CqlError> {
        let SelectPlan { table, restrictions, .. } = self.plan;
        let filters = filter::prepare(table, &restrictions.filters, self.bound)?;
        let named = match &restrictions.partition {
            PartitionRestriction::Keys(keys) => {
                let partitions = partition_keys(table, keys, self.bound)?;
                Some((partitions, clustering_ranges(table, restrictions, self.bound)?))
            }
            _ => None,
        };
        Ok(Prepared { filters, named })
    }

    /// Reads a page of named partitions.
    async fn named_partitions(
        &self,
        partitions: &[PartitionKey],
        ranges: &[KeyRange],
        page: Page<'_>,
    ) -> Result<Rows, CqlError> {
        let Page { filters, limits, request, state } = page;
        let mut collector = Collector::new(self.plan, self.scope(), filters, limits);
        let mut first = 0;
        if let Some(state) = &state {
            let prefix = &state.key[..state.partition_len];
            let found = partitions.iter().position(|partition| partition.prefix == prefix);
            first = found.ok_or_else(|| CqlError::protocol("Invalid value for the paging state"))?;
        }
        let after = state.as_ref().map(|state| &state.key[state.partition_len..]);
        let (resumed, fresh) = (self.in_order(ranges, after), self.in_order(ranges, None));
        // A partition that the page before has begun is read alone.
        let mut ways = self.ways(partitions, first + usize::from(state.is_some()), &fresh)?;
        let mut pieces = partitions.iter().enumerate().skip(first).flat_map(|(number, partition)| {
            let ranges = if number == first { &resumed } else { &fresh };
            let count = ranges.len().div_ceil(RANGES_AT_ONCE).max(1);
            (0..count).map(move |at| {
                let piece = Piece {
                    partition,
                    ranges: &ranges[at * RANGES_AT_ONCE..ranges.len().min((at + 1) * RANGES_AT_ONCE)],
                    is_first: at == 0,
                    is_last: at + 1 == count,
                    is_resumed: number == first,
                };
                (number, piece)
            })
        });
        let entries = self.chunk_entries(&collector);
        let budget = self.budget();
        // Reading far ahead would be in vain when few rows are wanted.
        let parallel = usize::try_from(collector.page_rows_left()).unwrap_or(PARALLEL_PIECES).min(PARALLEL_PIECES);
        let mut running = FuturesOrdered::new();
        loop {
            while running.len() < parallel.max(1)
                && let Some((number, piece)) = pieces.next()
            {
                running.push_back(self.fetch_in(ways.take(number), piece, partitions, entries));
            }
            let Some(fetched) = running.next().await else { break };
            budget.check()?;
            let remaining = state.as_ref().map(|state| state.remaining_in_partition.unwrap_or(u64::MAX));
            let step = self.take_piece(fetched?, remaining, &mut collector).await?;
            check_result_size(&collector, request)?;
            if step == Step::Full {
                break;
            }
        }
        drop(running);
        let is_last = partitions.last().is_none_or(|last| last.prefix == collector.partition())
            && collector.position().len() == collector.partition().len() + usize::from(!self.plan.is_reversed);
        finish(self, collector, request, is_last).await
    }
}
