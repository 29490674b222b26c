//! Continues a partial aggregate with the entries of a range.
//!
//! Always true: the pieces of a range, one after the other, give the same result as the whole range. Left out: where
//! the pieces come from.

use crate::exec::collect::{Collector, Step};
use crate::exec::evaluate::Scope;
use crate::exec::filter::BoundFilter;
use crate::exec::partial::Partial;
use crate::kv::ScanChunk;
use crate::plan::select::SelectPlan;
use diorite_cql::protocol::CqlError;
use diorite_model::key;

/// How a range continues after a piece of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It does not: the limits are reached.
    Full,
    /// It does not: it has been read.
    Exhausted,
    /// From this key on; in reverse, before it.
    From(Vec<u8>),
}

/// The entries that were read of a range.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'c> {
    /// The header of the partition that the range begins in.
    pub header: Option<&'c [u8]>,
    /// Its static row.
    pub static_row: Option<&'c [u8]>,
    /// The entries.
    pub chunk: &'c ScanChunk,
    /// With the range its last partition ends too.
    pub ends_partition: bool,
}

/// Continues a partial aggregate with a piece of a range; the body of the result is of this piece alone.
pub fn go_on(
    partial: Partial,
    plan: &SelectPlan,
    scope: Scope<'_>,
    filters: &[BoundFilter<'_>],
    piece: Piece<'_>,
) -> Result<(Partial, Next), CqlError> {
    let Piece { header, static_row, chunk, ends_partition } = piece;
    let mut collector = Collector::new(plan, scope, filters, partial.limits);
    collector.go_on(partial, header.map(<[u8]>::to_vec), static_row)?;
    if collector.consume(chunk.entries())? == Step::Full {
        return Ok((collector.into_partial(), Next::Full));
    }
    let next = match chunk.entries().last().filter(|_| !chunk.exhausted) {
        None => Next::Exhausted,
        Some(_) if plan.is_reversed && collector.is_partition_done() => Next::Exhausted,
        Some((last, _)) if plan.is_reversed => Next::From(last.to_vec()),
        Some((last, _)) if collector.is_partition_done() && last.starts_with(collector.partition()) => {
            let mut start = collector.partition().to_vec();
            key::push_partition_end(&mut start);
            Next::From(start)
        }
        Some((last, _)) => Next::From([last, &[0]].concat()),
    };
    if next == Next::Exhausted && ends_partition {
        collector.end_partition()?;
    }
    Ok((collector.into_partial(), next))
}
