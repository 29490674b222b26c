//! Batches of plain writes of clients, while they are under way.

use crate::client::Asked;
use diorite_base::write::KvError;
use std::collections::BTreeMap;

/// The first token of parts of batches.
pub const FIRST_PART: u64 = 1 << 54;

/// A batch that is under way.
pub struct Batch {
    /// The client's request.
    pub asked: Asked,
    /// The number of parts without an outcome.
    pub open: usize,
    /// How often a part was planned again.
    pub plans: u32,
    /// Whether any part was carried out, or may have been.
    pub may_be_done: bool,
    /// The error of the last part that failed.
    pub failure: Option<KvError>,
}

/// All batches.
#[derive(Default)]
pub struct Batches {
    /// By request.
    pub under_way: BTreeMap<u64, Batch>,
    /// By the token of a part: its batch, and its entries.
    pub parts: BTreeMap<u64, (u64, Vec<(u64, u64)>)>,
    /// Counts parts.
    pub next: u64,
}
