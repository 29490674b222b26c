//! Stored rows of a table, for whoever needs them beside a statement's answer.
//!
//! Always true: a row is read as it is after all that was answered before, whatever transactions have prepared; the rows
//! of a range are of one moment; what is given to others is well formed to its end, so that writes which maintain indexes
//! and views meet nothing malformed later. Left out: what rows mean.

use super::homes::tablet_of;
use super::snapshot::{Need, Snapshot, Touched};
use super::source::Source;
use crate::budget::Budget;
use crate::error::{corrupt, in_tablet, invalid};
use crate::kv::{Fetch, FetchRows, Fetched, Kv, ScanRequest};
use crate::program::PARTITION_DELETIONS;
use crate::table::TableContext;
use diorite_base::TabletId;
use diorite_cql::protocol::CqlError;
use diorite_model::deletions::{Deletions, over};
use diorite_model::row::{LiveRow, NOTHING_DELETED, now_seconds};
use diorite_model::{entry, key};
use diorite_transact::targets::{Target, Targets};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a read begins again because a transaction had prepared what it met, or because a tablet is no more.
const ROUNDS: u32 = 8;
const PAUSE_NS: u64 = 1_000_000;
/// The most rows of a range.
const MAX_ROWS: usize = 10_000;
const CHUNK_ENTRIES: usize = 1_000;
const CHUNK_BYTES: usize = 1 << 20;

/// A stored row, and the deletion over it.
#[derive(Debug)]
pub struct RawRow {
    value: Vec<u8>,
    deleted_us: i64,
    now_s: u32,
}

impl RawRow {
    /// The bytes of the stored row.
    pub fn size_bytes(&self) -> usize {
        self.value.len()
    }

    /// Whether the same is stored as was another time.
    pub fn is_same(&self, other: &Self) -> bool {
        self.value == other.value && self.deleted_us == other.deleted_us
    }

    /// Its live cells, when it was read.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn live(&self) -> Result<LiveRow<'_>, CqlError> {
        self.live_at(self.now_s)
    }

    /// Its live cells at a second that is not before the read.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn live_at(&self, now_s: u32) -> Result<LiveRow<'_>, CqlError> {
        LiveRow::new(&self.value, now_s, self.deleted_us).map_err(corrupt)
    }
}

/// Reads rows of a table.
pub struct RawRead<'a, K: Kv> {
    /// The seam.
    pub kv: &'a Arc<K>,
    /// The table.
    pub table: &'a Arc<TableContext>,
    /// The request's budget.
    pub budget: &'a Budget,
}

impl<K: Kv> RawRead<'_, K> {
    /// A row.
    ///
    /// # Errors
    /// If it cannot be read, or is malformed.
    pub async fn row(&self, key: &[u8]) -> Result<Option<RawRow>, CqlError> {
        let row = self.unchecked_row(key).await?;
        if let Some(row) = &row {
            entry::check(&row.value).map_err(|malformed| self.in_tablet(key, corrupt(malformed)))?;
        }
        Ok(row)
    }

    /// A row, which may be malformed.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn unchecked_row(&self, key: &[u8]) -> Result<Option<RawRow>, CqlError> {
        let partition_len = self.table.layout().partition_len(key).map_err(corrupt)?;
        let header = header_of(&key[..partition_len]);
        let fetch = Fetch {
            header: Some((PARTITION_DELETIONS, header.clone())),
            rows: FetchRows::One(key.to_vec()),
            ..Fetch::default()
        };
        let targets = || Targets::new(vec![Target::Row(key.to_vec()), Target::Row(header.clone())]);
        let fetched = self.fetched(key, fetch, &targets, Need::Nothing).await?;
        self.raw_row((key, partition_len), fetched).map_err(|error| self.in_tablet(key, error))
    }

    fn raw_row(&self, (key, partition_len): (&[u8], usize), fetched: Fetched) -> Result<Option<RawRow>, CqlError> {
        let now_s = now_seconds(self.kv.now_us());
        let deletions = fetched.header.as_deref().map(Deletions::decode).transpose().map_err(corrupt)?;
        let Some(value) = fetched.row else { return Ok(None) };
        let is_regular = key::kind_of(key, partition_len).map_err(corrupt)? == key::RowKind::Regular;
        let deleted_us = deletions.map_or(NOTHING_DELETED, |all| match is_regular {
            true => all.deletion_for(&key[partition_len + 1..], &value),
            false => over(all.partition(), &value),
        });
        Ok(Some(RawRow { value, deleted_us, now_s }))
    }

    /// An error about what was read at a key, with its place if a row is malformed.
    fn in_tablet(&self, key: &[u8], error: CqlError) -> CqlError {
        match self.tablet(key) {
            Ok(tablet) => in_tablet(&**self.kv, error, self.table.table(), tablet),
            Err(_) => error,
        }
    }

    /// The rows from one key to before another of the same partition.
    ///
    /// # Errors
    /// If they cannot be read, or are more than a statement may change.
    pub async fn rows(&self, start: &[u8], end: &[u8]) -> Result<Vec<(Vec<u8>, RawRow)>, CqlError> {
        let partition_len = self.table.layout().partition_len(start).map_err(corrupt)?;
        let header = header_of(&start[..partition_len]);
        let (mut from, mut found) = (start.to_vec(), Vec::new());
        loop {
            let range = ScanRequest {
                start: from.clone(),
                end: end.to_vec(),
                reverse: false,
                max_entries: CHUNK_ENTRIES,
                max_bytes: CHUNK_BYTES,
            };
            let header_key = Some((PARTITION_DELETIONS, header.clone()));
            let fetch = Fetch { header: header_key, rows: FetchRows::Range(range), ..Fetch::default() };
            let target = || Targets::new(vec![Target::Range { start: header.clone(), end: end.to_vec() }]);
            let fetched = self.fetched(start, fetch, &target, Need::All).await?;
            self.raw_rows(partition_len, &fetched, &mut found).map_err(|error| self.in_tablet(start, error))?;
            if found.len() > MAX_ROWS {
                return Err(invalid(format!(
                    "a deletion of more than {MAX_ROWS} rows of a table with unique indexes or views is over the limit: delete \
                     fewer rows at a time"
                )));
            }
            let Some((last, _)) = fetched.chunk.entries().last().filter(|_| !fetched.chunk.exhausted) else {
                return Ok(found);
            };
            from = [last, &[0]].concat();
        }
    }

    /// Adds the live rows of an answer.
    fn raw_rows(
        &self,
        partition_len: usize,
        fetched: &Fetched,
        found: &mut Vec<(Vec<u8>, RawRow)>,
    ) -> Result<(), CqlError> {
        let now_s = now_seconds(self.kv.now_us());
        let deletions = fetched.header.as_deref().map(Deletions::decode).transpose().map_err(corrupt)?;
        for (key, value) in fetched.chunk.entries() {
            if key::kind_of(key, partition_len).map_err(corrupt)? != key::RowKind::Regular {
                continue;
            }
            entry::check(value).map_err(corrupt)?;
            let over = |all: &Deletions<'_>| all.deletion_for(&key[partition_len + 1..], value);
            let deleted_us = deletions.as_ref().map_or(NOTHING_DELETED, over);
            // Dead rows are passed over: a queue may have very many.
            if !LiveRow::new(value, now_s, deleted_us).and_then(|row| row.exists()).map_err(corrupt)? {
                continue;
            }
            self.budget.take(key.len() + value.len() + size_of::<RawRow>())?;
            found.push((key.to_vec(), RawRow { value: value.to_vec(), deleted_us, now_s }));
        }
        Ok(())
    }

    /// Reads the tablet of a key, in a snapshot if there is a need, or if a transaction has prepared what is read.
    async fn fetched(
        &self,
        key: &[u8],
        fetch: Fetch,
        targets: &(dyn Fn() -> Targets + Sync),
        mut need: Need,
    ) -> Result<Fetched, CqlError> {
        for round in 0.. {
            let tablet = self.tablet(key)?;
            let snapshot = Snapshot::new(self.kv, need);
            let source = Source::tablets(&**self.kv, false, None, self.budget).in_snapshot(&snapshot);
            let touched = Touched { targets: BTreeMap::from([(tablet, targets())]), is_small: false };
            let taken = match need {
                Need::Nothing => Ok(()),
                Need::Several | Need::All => source.take_snapshot(touched, self.budget).await,
            };
            let outcome = match taken {
                Ok(()) => source.fetch(tablet, fetch.clone()).await,
                Err(error) => Err(error),
            };
            let is_again = snapshot.has_met_lock() || source.met_missing_tablet();
            if !is_again || round >= ROUNDS {
                let mut fetched = outcome?;
                self.budget.take(fetched.to_be_charged())?;
                return Ok(fetched);
            }
            need = Need::All;
            if round > 0 {
                self.kv.pause(PAUSE_NS << round).await;
            }
        }
        unreachable!("the last round returns")
    }

    fn tablet(&self, key: &[u8]) -> Result<TabletId, CqlError> {
        let catalog = self.kv.catalog();
        let table = self.table.table();
        let entry =
            catalog.table_by_id(table.id).ok_or_else(|| invalid(format!("table {} was dropped", table.name)))?;
        Ok(tablet_of(&entry.tablets, key::token_of(key).map_err(corrupt)?))
    }
}

fn header_of(partition: &[u8]) -> Vec<u8> {
    let mut header = partition.to_vec();
    key::push_header(&mut header);
    header
}
