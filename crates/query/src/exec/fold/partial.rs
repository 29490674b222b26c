//! A fold that has gone part of the way.
//!
//! Always true: going on from a partial over the rest of the rows gives what one collector over all rows would have given. Left out: where the rows come
//! from.

use crate::exec::aggregate::State;
use crate::exec::collect::{Collector, Group, Limits, Step};
use crate::exec::evaluate::Scope;
use crate::exec::filter::BoundFilter;
use crate::exec::row::RowData;
use crate::kv::ScanChunk;
use crate::plan::select::SelectPlan;
use diorite_cql::protocol::CqlError;
use diorite_model::key;

/// What there is so far, and what is needed to go on.
#[derive(Debug, Clone)]
pub struct Partial {
    /// What is still wanted.
    pub limits: Limits,
    /// Token and partition columns of the partition it is in, or has ended; empty before the first.
    pub partition: Vec<u8>,
    /// The partition had rows.
    pub has_rows: bool,
    /// Rows (or groups) of the partition that `PER PARTITION LIMIT` still allows.
    pub left_in_partition: u64,
    /// Nothing more of the partition is wanted.
    pub is_partition_done: bool,
    /// The last key that was dealt with.
    pub position: Vec<u8>,
    /// The states of the aggregates; none if rows are grouped.
    pub states: Vec<State>,
    /// The first row, for what is selected beside aggregates.
    pub first_row: Option<RowData>,
    /// The group that is open.
    pub group: Option<Group>,
    /// The encoded rows of the groups that are closed.
    pub body: Vec<u8>,
    /// How many there are.
    pub row_count: u32,
}

/// How a range goes on after a piece of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It does not: what is wanted is there.
    Full,
    /// It does not: it has been read.
    Exhausted,
    /// From this key on; in reverse, before it.
    From(Vec<u8>),
}

/// What was read of a range.
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

impl Partial {
    /// Nothing yet.
    pub fn begin(limits: Limits) -> Self {
        Self {
            limits,
            partition: Vec::new(),
            has_rows: false,
            left_in_partition: limits.rows_per_partition,
            is_partition_done: false,
            position: Vec::new(),
            states: Vec::new(),
            first_row: None,
            group: None,
            body: Vec::new(),
            row_count: 0,
        }
    }

    /// Memory of what a collector is charged for that goes on from it, beside the body.
    pub fn held_bytes(&self) -> usize {
        let states: usize = self.states.iter().map(State::held_bytes).sum();
        let first_row = self.first_row.as_ref().map_or(0, RowData::size_bytes);
        states + first_row + self.group.as_ref().map_or(0, Group::held_bytes)
    }

    /// Goes on over a piece of a range; the body of what comes back is of this piece alone.
    pub fn go_on(
        self,
        plan: &SelectPlan,
        scope: Scope<'_>,
        filters: &[BoundFilter<'_>],
        piece: Piece<'_>,
    ) -> Result<(Partial, Next), CqlError> {
        let Piece { header, static_row, chunk, ends_partition } = piece;
        let mut collector = Collector::new(plan, scope, filters, self.limits);
        collector.go_on(self, header.map(<[u8]>::to_vec), static_row)?;
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
}
