//! How a read uses a secondary index.

use diorite_model::schema::IndexTarget;

/// An index that names the rows of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPlan {
    /// The index.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The position of its column.
    pub column: usize,
    /// The part of the column.
    pub target: IndexTarget,
    /// The filters that name values of it, by their places; all of them hold for the rows.
    pub filters: Vec<usize>,
    /// Its column is static: all rows of a partition have the value.
    pub whole_partitions: bool,
    /// `ALLOW FILTERING`: tablets in which the index is not complete may be read row by row.
    pub may_scan: bool,
}

impl IndexPlan {
    /// The memory that it takes.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + size_of_val(self.filters.as_slice())
    }
}
