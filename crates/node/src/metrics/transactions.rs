//! Transactions over several tablets: what the leaders here did, how those that this node coordinated have ended, and
//! what is prepared now.

use super::source::read;
use super::writer::Writer;
use crate::shared::Shared;
use diorite_replica::{Leadership, Store};
use prometheus_client::registry::Unit;
use std::fmt;

/// From this age on a prepared transaction counts as old: its leader has asked the home by then.
const OLD_US: u64 = 1_000_000;

/// What is prepared in the tablets led here, and the snapshots that are kept here.
#[derive(Default)]
struct Now {
    prepared: u64,
    old: u64,
    staged_bytes: u64,
    snapshots: u64,
}

impl Now {
    fn of(store: &Store) -> Self {
        let mut now = Self::default();
        for handle in store.tablets().values() {
            now.snapshots += handle.snapshots_kept() as u64;
            if handle.leadership() != Leadership::Here {
                continue;
            }
            for one in handle.prepared_transactions() {
                now.prepared += 1;
                now.old += u64::from(one.age_us >= OLD_US);
                now.staged_bytes += one.staged.bytes as u64;
            }
        }
        now
    }
}

pub(super) fn write(shared: &Shared, out: &mut Writer<'_, '_>) -> fmt::Result {
    let help = "Transactions over several tablets that this node coordinated, by how they ended for the client";
    out.counters("transactions", help, None, "outcome", &shared.engine.transaction_outcomes().by_name())?;
    let counters = &shared.kv.store.counters().transactions;
    let steps = [
        ("prepared", read(&counters.prepared)),
        ("committed_as_home", read(&counters.committed)),
        ("finished_committed", read(&counters.finished_committed)),
        ("finished_aborted", read(&counters.finished_aborted)),
    ];
    out.counters("transaction_steps", "Steps of transactions in tablets led here", None, "step", &steps)?;
    let held = [
        ("transaction_refused", read(&counters.refused)),
        ("write_waited", read(&counters.writes_waited)),
        ("write_refused", read(&counters.writes_refused)),
    ];
    let help = "Transactions refused, and other writes that waited or were refused, because transactions held rows of tablets led here";
    out.counters("transaction_rows_held", help, None, "effect", &held)?;
    let calls = [("ask_home", read(&counters.home_questions)), ("finish", read(&counters.finished_by_home))];
    let help = "Calls to other tablets for transactions that their coordinators left: questions to homes, and participants that homes finish";
    out.counters("transaction_calls", help, None, "call", &calls)?;
    let snapshots = [("taken", read(&counters.snapshots_taken)), ("too_late", read(&counters.snapshots_too_late))];
    let help = "Snapshots of tablets led here for reads of several tablets, by what became of the request";
    out.counters("transaction_snapshots", help, None, "outcome", &snapshots)?;
    let reads = shared.engine.transaction_outcomes().reads_by_name();
    let help = "Reads without snapshots of several rows of tables with transactions, by whether they were repeated with snapshots because a tablet changed or more pages follow";
    out.counters("transaction_reads", help, None, "outcome", &reads)?;
    let now = Now::of(&shared.kv.store);
    let help = "Transactions that are prepared in tablets led here, each once for every tablet";
    out.gauge("transactions_prepared", help, None, now.prepared)?;
    let help = "Transactions that have been prepared in tablets led here for more than a second";
    out.gauge("transactions_prepared_old", help, None, now.old)?;
    let help = "Bytes that prepared transactions have staged in tablets led here";
    out.gauge("transactions_staged", help, Some(&Unit::Bytes), now.staged_bytes)?;
    let help = "Snapshots that replicas here keep for reads of several tablets";
    out.gauge("transaction_snapshots_kept", help, None, now.snapshots)
}
