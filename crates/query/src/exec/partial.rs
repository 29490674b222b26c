//! A partial aggregate: the state of a collector, from which another collector continues, perhaps on another node.
//!
//! Always true: continuing from a partial aggregate over the rest of the rows gives the result of one collector over all rows. Left out:
//! its bytes ([`super::pushdown`]).

use super::aggregate::State;
use super::row::RowData;

/// Limits on rows; `u64::MAX` is no limit.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// By `LIMIT`.
    pub rows: u64,
    /// By `PER PARTITION LIMIT`.
    pub rows_per_partition: u64,
    /// To be left out first, by `OFFSET`.
    pub offset: u64,
    /// Of this page.
    pub page_rows: u64,
    /// A page ends after the row that brings it to this size.
    pub page_bytes: usize,
}

/// The rows of a group so far.
#[derive(Debug, Clone)]
pub struct Group {
    /// Their common grouping key.
    pub key: Vec<Option<Vec<u8>>>,
    /// The states of the aggregates.
    pub states: Vec<State>,
    /// The first row of the group.
    pub first_row: RowData,
}

impl Group {
    /// Memory that is charged for it: its states' grows as they take rows.
    pub fn held_bytes(&self) -> usize {
        let states: usize = self.states.iter().map(State::held_bytes).sum();
        let key: usize = self.key.iter().flatten().map(Vec::len).sum();
        self.first_row.size_bytes() + self.states.len() * size_of::<State>() + states + key
    }
}

/// See the top of this module.
#[derive(Debug, Clone)]
pub struct Partial {
    /// The remaining limits.
    pub limits: Limits,
    /// Token and partition columns of the present or last partition; empty before the first.
    pub partition: Vec<u8>,
    /// The partition had rows.
    pub has_rows: bool,
    /// Rows (or groups) of the partition that `PER PARTITION LIMIT` still allows.
    pub left_in_partition: u64,
    /// Nothing more of the partition is wanted.
    pub is_partition_done: bool,
    /// The last key that was processed.
    pub position: Vec<u8>,
    /// The states of the aggregates; none if rows are grouped.
    pub states: Vec<State>,
    /// The first row, for columns that are selected beside aggregates.
    pub first_row: Option<RowData>,
    /// The group that is open.
    pub group: Option<Group>,
    /// The encoded rows of the groups that are closed.
    pub body: Vec<u8>,
    /// How many there are.
    pub row_count: u32,
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

    /// Memory that a collector which continues from it is charged for, beside the body.
    pub fn held_bytes(&self) -> usize {
        let states: usize = self.states.iter().map(State::held_bytes).sum();
        let first_row = self.first_row.as_ref().map_or(0, RowData::size_bytes);
        states + first_row + self.group.as_ref().map_or(0, Group::held_bytes)
    }
}
