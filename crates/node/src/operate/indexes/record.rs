//! What the shell of indexes has done and seen on this node: for operators, metrics and the log.
//!
//! Always true: a rate is that of the last seconds; what is left is as of the last look at each tablet that is led
//! here. Left out: the tablets' own state, which they store.

use super::pacer::Pacer;
use super::place::Tokens;
use diorite_admin::api::IndexId;
use diorite_base::{TableId, TabletId};
use diorite_query::index::IndexStep;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

/// The seconds of which rates are an average.
const WINDOW_S: u64 = 10;
const NS_PER_S: u64 = 1_000_000_000;

/// What was done since the node was started.
#[derive(Debug, Default)]
pub(crate) struct IndexCounters {
    /// Steps that began an index in a tablet.
    pub(crate) defined: AtomicU64,
    /// Steps that indexed rows that were there before.
    pub(crate) built: AtomicU64,
    /// Steps that removed stale entries.
    pub(crate) removed: AtomicU64,
    /// Steps that compared rows that were there before a unique index.
    pub(crate) compared: AtomicU64,
    /// Steps that dropped an index of a tablet.
    pub(crate) dropped: AtomicU64,
    /// The rows and headers of partitions that steps have read; those of a step that ended early count again.
    pub(crate) rows: AtomicU64,
    /// Their bytes.
    pub(crate) bytes: AtomicU64,
    /// Entries that readers have found stale, in steps that remove them.
    pub(crate) stale_entries: AtomicU64,
    /// How often work on a tablet was interrupted, to be taken up again.
    pub(crate) interrupted: AtomicU64,
}

/// Rows that were indexed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Amount {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// In tablets.
    pub(super) share: f64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.share += other.share;
    }

    /// What a step from `from` up to `to` adds; the last step has all that is left.
    pub(super) fn of((rows, bytes): (usize, usize), tokens: Option<Tokens>, (from, to): (&[u8], &[u8])) -> Self {
        let share = tokens.map_or(0.0, |tokens| (tokens.share_before(to) - tokens.share_before(from)).max(0.0));
        Self { rows: rows as u64, bytes: bytes as u64, share }
    }
}

/// How fast an index is built here.
#[derive(Debug, Default)]
struct Speed {
    began_ns: u64,
    total: Amount,
    /// By second, the last ones.
    seconds: VecDeque<(u64, Amount)>,
}

impl Speed {
    fn add(&mut self, now_ns: u64, amount: Amount) {
        self.total.add(amount);
        let second = now_ns / NS_PER_S;
        match self.seconds.back_mut().filter(|(last, _)| *last == second) {
            Some((_, sum)) => sum.add(amount),
            None => self.seconds.push_back((second, amount)),
        }
        self.seconds.retain(|(of, _)| of + WINDOW_S >= second);
    }

    /// Per second.
    fn rate(&self, now_ns: u64) -> Amount {
        let first = (now_ns / NS_PER_S).saturating_sub(WINDOW_S);
        let mut sum = Amount::default();
        self.seconds.iter().filter(|(second, _)| *second >= first).for_each(|(_, amount)| sum.add(*amount));
        let elapsed_s = now_ns.saturating_sub(self.began_ns.max(first * NS_PER_S)) as f64 / 1e9;
        let elapsed_s = elapsed_s.max(1.0);
        let per_second = |number: u64| (number as f64 / elapsed_s) as u64;
        Amount { rows: per_second(sum.rows), bytes: per_second(sum.bytes), share: sum.share / elapsed_s }
    }
}

/// An index that is complete in all tablets led here.
#[derive(Debug, PartialEq)]
pub(super) struct Finished {
    pub(super) index: IndexId,
    pub(super) rows: u64,
    pub(super) took_s: u64,
}

#[derive(Debug, Default)]
struct Seen {
    /// The tablets led here in which an index is not complete.
    left: BTreeMap<IndexId, BTreeSet<TabletId>>,
    /// The indexes that are being built here.
    speeds: BTreeMap<IndexId, Speed>,
}

/// See the top of this module.
#[derive(Debug, Default)]
pub(crate) struct IndexRecord {
    pub(crate) counters: IndexCounters,
    /// The limit of builds.
    pub(crate) pacer: Pacer,
    /// Held while a part of an index is compared with its table.
    pub(super) comparing: tokio::sync::Mutex<()>,
    seen: Mutex<Seen>,
}

impl IndexRecord {
    /// Builds may index so many bytes of rows per second; 0: no limit.
    pub(in crate::operate) fn new(rate_bytes: u64) -> Self {
        Self { pacer: Pacer::new(rate_bytes), ..Self::default() }
    }

    /// Notes indexes that cannot be complete in a tablet, before it is looked at.
    pub(super) fn expect(&self, table: TableId, tablet: TabletId, incomplete: impl Iterator<Item = u64>) {
        let mut incomplete = incomplete.peekable();
        if incomplete.peek().is_none() {
            return;
        }
        let mut seen = self.seen.lock();
        for index in incomplete {
            seen.left.entry(IndexId { table, index }).or_default().insert(tablet);
        }
    }

    /// Notes which indexes of a tablet are not complete.
    pub(super) fn look(&self, table: TableId, tablet: TabletId, incomplete: &[u64]) {
        let mut seen = self.seen.lock();
        for (of, tablets) in &mut seen.left {
            if of.table == table && !incomplete.contains(&of.index) {
                tablets.remove(&tablet);
            }
        }
        for index in incomplete {
            seen.left.entry(IndexId { table, index: *index }).or_default().insert(tablet);
        }
        seen.left.retain(|_, tablets| !tablets.is_empty());
    }

    /// Forgets the tablets that are not led here any more, and indexes of tables without such tablets.
    pub(super) fn keep(&self, led: &BTreeMap<TabletId, TableId>) {
        let mut seen = self.seen.lock();
        if seen.left.is_empty() && seen.speeds.is_empty() {
            return;
        }
        let tables: BTreeSet<TableId> = led.values().copied().collect();
        seen.left.values_mut().for_each(|tablets| tablets.retain(|tablet| led.contains_key(tablet)));
        seen.left.retain(|_, tablets| !tablets.is_empty());
        seen.speeds.retain(|of, _| tables.contains(&of.table));
    }

    /// Notes that a step was carried out.
    pub(super) fn done(&self, table: TableId, step: &IndexStep, amount: Amount, now_ns: u64) {
        let add = |counter: &AtomicU64, number: u64| {
            counter.fetch_add(number, Ordering::Relaxed);
        };
        let counters = &self.counters;
        match step {
            IndexStep::Define { .. } => add(&counters.defined, 1),
            IndexStep::Drop { .. } => add(&counters.dropped, 1),
            IndexStep::Remove { entries, .. } => {
                add(&counters.removed, 1);
                add(&counters.stale_entries, entries.len() as u64);
            }
            IndexStep::Compare { .. } => add(&counters.compared, 1),
            IndexStep::Build { index, .. } => {
                add(&counters.built, 1);
                add(&counters.rows, amount.rows);
                add(&counters.bytes, amount.bytes);
                let mut seen = self.seen.lock();
                let new = || Speed { began_ns: now_ns, ..Speed::default() };
                seen.speeds.entry(IndexId { table, index: *index }).or_insert_with(new).add(now_ns, amount);
            }
        }
    }

    pub(super) fn interrupted(&self) {
        self.counters.interrupted.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the indexes that were built here and are complete in all tablets led here; `is_known`: whether nothing is
    /// due in any of the table's tablets.
    pub(super) fn take_finished(&self, now_ns: u64, is_known: impl Fn(TableId) -> bool) -> Vec<Finished> {
        let mut seen = self.seen.lock();
        let Seen { left, speeds } = &mut *seen;
        let mut finished = Vec::new();
        speeds.retain(|index, speed| {
            let is_finished = !left.contains_key(index) && is_known(index.table);
            if is_finished {
                let took_s = now_ns.saturating_sub(speed.began_ns) / NS_PER_S;
                finished.push(Finished { index: *index, rows: speed.total.rows, took_s });
            }
            !is_finished
        });
        finished
    }

    /// What is indexed per second now.
    pub(super) fn rate(&self, index: IndexId, now_ns: u64) -> Amount {
        self.seen.lock().speeds.get(&index).map_or_else(Amount::default, |speed| speed.rate(now_ns))
    }

    /// The indexes that are not complete in tablets led here, and the number of such tablets, each once for every
    /// index.
    pub(crate) fn left(&self) -> (usize, usize) {
        let seen = self.seen.lock();
        (seen.left.len(), seen.left.values().map(BTreeSet::len).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(5);
    const INDEX: IndexId = IndexId { table: TABLE, index: 7 };

    fn build() -> IndexStep {
        IndexStep::Build { index: 7, from: vec![0], to: vec![1], is_last: false }
    }

    fn amount(rows: u64) -> Amount {
        Amount { rows, bytes: 10 * rows, share: rows as f64 / 1e6 }
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let record = IndexRecord::default();
        for second in 100..120 {
            for _ in 0..4 {
                record.done(TABLE, &build(), amount(250), second * NS_PER_S);
            }
        }
        let rate = record.rate(INDEX, 120 * NS_PER_S);
        assert_eq!((rate.rows, rate.bytes), (1_000, 10_000));
        assert!((rate.share - 1e-3).abs() < 1e-9, "{rate:?}");
        assert_eq!(record.rate(INDEX, 200 * NS_PER_S), Amount::default());
        assert_eq!(record.rate(IndexId { index: 8, ..INDEX }, 120 * NS_PER_S), Amount::default());
        assert_eq!(record.counters.rows.load(Ordering::Relaxed), 20_000);
    }

    #[test]
    fn an_index_is_finished_once_and_only_when_no_tablet_is_left() {
        let record = IndexRecord::default();
        let tablets = [TabletId(1), TabletId(2)];
        tablets.iter().for_each(|tablet| record.look(TABLE, *tablet, &[7, 8]));
        assert_eq!(record.left(), (2, 4));
        record.done(TABLE, &build(), amount(3), NS_PER_S);
        record.look(TABLE, tablets[0], &[8]);
        assert_eq!((record.left(), record.take_finished(NS_PER_S, |_| true)), ((2, 3), Vec::new()));
        record.look(TABLE, tablets[1], &[]);
        assert_eq!(record.take_finished(NS_PER_S, |_| false), []);
        let finished = Finished { index: INDEX, rows: 3, took_s: 4 };
        assert_eq!(record.take_finished(5 * NS_PER_S, |_| true), [finished]);
        assert_eq!((record.left(), record.take_finished(NS_PER_S, |_| true)), ((1, 1), Vec::new()));
    }

    #[test]
    fn what_another_node_leads_is_forgotten() {
        let record = IndexRecord::default();
        record.look(TABLE, TabletId(1), &[7]);
        record.done(TABLE, &build(), amount(3), NS_PER_S);
        record.keep(&BTreeMap::from([(TabletId(2), TABLE)]));
        assert_eq!((record.left(), record.rate(INDEX, NS_PER_S).rows), ((0, 0), 3));
        record.keep(&BTreeMap::new());
        assert_eq!(
            (record.rate(INDEX, NS_PER_S), record.take_finished(NS_PER_S, |_| true)),
            (Amount::default(), Vec::new())
        );
    }
}
