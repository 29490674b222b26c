//! Secondary indexes: what is built and cleaned in the tablets led here, and what is left to build.
//!
//! Always true: nothing is read from tablets; what is left is as of the last look at each of them, which is repeated
//! every two seconds while something is due, and every minute otherwise.

use super::source::read;
use super::writer::Writer;
use crate::operate::IndexRecord;
use prometheus_client::registry::Unit;
use std::fmt;

pub(super) fn write(record: &IndexRecord, out: &mut Writer<'_, '_>) -> fmt::Result {
    let (indexes, tablets) = record.left();
    let help = "Secondary indexes that are not complete in tablets led here";
    out.gauge("indexes_building", help, None, indexes as u64)?;
    let help = "Tablets led here in which a secondary index is not complete, each once for every such index";
    out.gauge("index_tablets_left", help, None, tablets as u64)?;
    let counters = &record.counters;
    let steps = [
        ("define", read(&counters.defined)),
        ("build", read(&counters.built)),
        ("compare", read(&counters.compared)),
        ("remove_stale", read(&counters.removed)),
        ("drop", read(&counters.dropped)),
    ];
    out.counters("index_steps", "Steps of secondary indexes in tablets led here", None, "step", &steps)?;
    let help =
        "Rows and headers of partitions that were read to index them; those of a step that ended early count again";
    out.counter("index_built_rows", help, None, read(&counters.rows))?;
    let help = "Bytes of these rows";
    out.counter("index_built", help, Some(&Unit::Bytes), read(&counters.bytes))?;
    let help = "The most bytes of rows that are read per second to build indexes; 0: no limit";
    out.gauge("index_rate_limit", help, Some(&Unit::Bytes), record.pacer.rate_bytes())?;
    let help = "Index entries that readers have found stale, in steps that remove them";
    out.counter("index_stale_entries", help, None, read(&counters.stale_entries))?;
    let help = "Times that work on the secondary indexes of a tablet led here was interrupted, to be taken up again";
    out.counter("index_interrupted", help, None, read(&counters.interrupted))
}
