//! Load and size of tablets, by table.
//!
//! Always true: at most [`SHOWN`] tables have lines of their own, the oldest ones, so that a table keeps its lines as
//! long as it exists; all others share one line, with empty labels. A counter never falls, although tablets come and go
//! and their counts begin when they are opened.

use super::writer::Writer;
use ahash::AHashMap;
use diorite_base::{TableId, TabletId};
use diorite_cluster::catalog::Catalog;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Tables with lines of their own.
const SHOWN: usize = 200;
/// The id under which tables without lines of their own are summed.
const OTHERS: TableId = TableId(u64::MAX);

/// A sum of counts that may disappear, corrected so that it never falls.
#[derive(Default)]
struct Monotonic {
    gone: u64,
    last: u64,
}

impl Monotonic {
    fn next(&mut self, sum: u64) -> u64 {
        // A count has disappeared that was at least this large.
        self.gone += self.last.saturating_sub(sum);
        self.last = sum;
        self.gone + sum
    }
}

/// The values shown by the last scrape.
#[derive(Default)]
pub(super) struct Shown {
    by_table: BTreeMap<TableId, [Monotonic; 2]>,
    in_all: [Monotonic; 2],
}

#[derive(Default, Clone)]
struct Sums {
    tablets: u64,
    led: u64,
    reads: u64,
    writes: u64,
    bytes: u64,
}

/// The sums of one scrape.
pub(super) struct Tables {
    catalog: Arc<Catalog>,
    shown: AHashMap<TableId, (String, String)>,
    sums: BTreeMap<TableId, Sums>,
    all: Sums,
}

impl Tables {
    pub(super) fn new(catalog: &Arc<Catalog>) -> Self {
        let mut tables: Vec<TableId> = catalog.tables().map(|entry| entry.table.id).collect();
        tables.sort_unstable();
        tables.truncate(SHOWN);
        let shown = tables.into_iter().filter_map(|id| {
            let table = &catalog.table_by_id(id)?.table;
            Some((id, (table.keyspace.clone(), table.name.clone())))
        });
        Self { shown: shown.collect(), catalog: Arc::clone(catalog), sums: BTreeMap::new(), all: Sums::default() }
    }

    pub(super) fn add(&mut self, tablet: TabletId, (reads, writes): (u64, u64), bytes: u64, leads: bool) {
        self.all.reads += reads;
        self.all.writes += writes;
        // The catalog's own tablet belongs to no table.
        let Some(placement) = self.catalog.placement(tablet) else { return };
        let table = if self.shown.contains_key(&placement.table) { placement.table } else { OTHERS };
        let sums = self.sums.entry(table).or_default();
        sums.tablets += 1;
        sums.led += u64::from(leads);
        sums.reads += reads;
        sums.writes += writes;
        sums.bytes += bytes;
    }

    pub(super) fn write(mut self, last: &mut Shown, out: &mut Writer<'_, '_>) -> fmt::Result {
        let [reads, writes] = &mut last.in_all;
        out.counter("tablet_reads", "Reads served by tablets", None, reads.next(self.all.reads))?;
        out.counter("tablet_writes", "Writes of tablets led here", None, writes.next(self.all.writes))?;
        let catalog = Arc::clone(&self.catalog);
        last.by_table.retain(|table, _| *table == OTHERS || catalog.table_by_id(*table).is_some());
        for (table, sums) in &mut self.sums {
            let [reads, writes] = last.by_table.entry(*table).or_default();
            (sums.reads, sums.writes) = (reads.next(sums.reads), writes.next(sums.writes));
        }
        let nameless = (String::new(), String::new());
        let labelled: Vec<([(&str, &str); 2], &Sums)> = self
            .sums
            .iter()
            .map(|(table, sums)| {
                let (keyspace, name) = self.shown.get(table).unwrap_or(&nameless);
                ([("keyspace", keyspace.as_str()), ("table", name.as_str())], sums)
            })
            .collect();
        let mut family = |name, help, unit, kind, value: fn(&Sums) -> u64| {
            out.family((name, help, unit, kind), labelled.iter().map(|(labels, sums)| (&labels[..], value(sums))))
        };
        let bytes = Some(&Unit::Bytes);
        let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
        family("table_reads", "Reads served by tablets here, by table", None, counter, |sums| sums.reads)?;
        family("table_writes", "Writes of tablets led here, by table", None, counter, |sums| sums.writes)?;
        family("table_tablets", "Tablet replicas here, by table", None, gauge, |sums| sums.tablets)?;
        family("table_tablets_led", "Tablets led here, by table", None, gauge, |sums| sums.led)?;
        family("table_size", "SSTable files here, by table", bytes, gauge, |sums| sums.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_still_counts() {
        let mut shown = Monotonic::default();
        assert_eq!([10, 25, 5, 5, 8, 0, 1].map(|sum| shown.next(sum)), [10, 25, 25, 25, 28, 28, 29]);
    }
}
