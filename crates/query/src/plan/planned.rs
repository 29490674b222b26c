//! A planned statement: its plan, its markers, and the tables that it depends on.
//!
//! Always true: a plan depends on the catalog only through the definitions of its tables ([`Planned::tables`]), whose versions it names.

use super::budget::Budget;
use super::point::PointPlan;
use super::statement::Plan;
use super::timeout::Timeout;
use crate::table::{Source, TableContext};
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::rows::BindMarkers;
use diorite_cql::protocol::{ColumnSpec, ResultMetadata, TypeOption};
use std::sync::Arc;

/// A planned statement.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// The bind markers.
    pub markers: BindMarkers,
    /// How many markers there are.
    pub marker_count: usize,
    /// The columns of the result; none for statements without one.
    pub result: Arc<ResultMetadata>,
    /// The tables it was planned for.
    pub tables: Vec<Arc<TableContext>>,
    /// How it is executed without waiting, if it is a point statement.
    pub point: Option<PointPlan>,
    /// `USING TIMEOUT`: how long it may take.
    pub timeout: Option<Timeout>,
    /// The cost of planning it.
    pub cost: Budget,
}

impl Planned {
    /// Whether the same text may have had other result columns before its table was changed: it names all columns there are (`SELECT *`), or some of
    /// a type that may have been changed with the table.
    pub fn may_have_had_other_columns(&self) -> bool {
        let columns = self.result.columns();
        self.tables.iter().map(|table| table.table()).any(|table| {
            let is_all = columns.len() == table.columns.len();
            let is_plain = |column: &ColumnSpec| matches!(column.type_option, TypeOption::Native(_));
            table.version > 1 && !columns.is_empty() && (is_all || !columns.iter().all(is_plain))
        })
    }

    /// Whether every table is still the one it was planned for.
    pub fn is_current(&self, catalog: &Catalog) -> bool {
        self.tables.iter().all(|planned| {
            let planned = match planned.source() {
                Source::Virtual => return true,
                Source::Tablets => planned.table(),
            };
            catalog.table_by_id(planned.id).is_some_and(|entry| entry.table.version == planned.version)
        })
    }
}
