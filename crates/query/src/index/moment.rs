//! What a read by index asks of a tablet, and why it may have no result.
//!
//! Always true: all that a moment shows is of one state of the tablet. Left out: the read itself ([`mod@super::read`]).

use super::specification::Specification;
use crate::kv::IndexScan;
use diorite_model::index::specification_key;
use std::ops::Deref;
use std::sync::Arc;

/// The most rows that are looked up for one result.
pub(super) const MOST_ROWS: usize = 8_192;

/// A tablet's data at one moment.
pub trait Moment {
    /// Why it cannot be read.
    type Error;
    /// A value.
    type Value: Deref<Target = [u8]>;
    /// The tablet's flags.
    fn flags(&self) -> u64;
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Self::Value>, Self::Error>;
    /// Calls `visit` with each entry of `start..end`, ascending, until it returns false. Returns whether it has seen all.
    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, Self::Error>;
    /// Charges bytes that are about to be copied.
    fn hold(&self, bytes: usize) -> Result<(), Self::Error>;

    /// What the tablet stores about an index.
    ///
    /// # Errors
    /// [`Unfinished::Unreadable`], or if it cannot be read.
    fn specification(&self, index: u64) -> Result<Option<Arc<Specification>>, Unfinished<Self::Error>> {
        stored_specification(self, index)
    }
}

/// Reads the specification of an index.
///
/// # Errors
/// [`Unfinished::Unreadable`], or if it cannot be read.
pub fn stored_specification<M: Moment + ?Sized>(
    moment: &M,
    index: u64,
) -> Result<Option<Arc<Specification>>, Unfinished<M::Error>> {
    let stored = moment.get(&specification_key(index))?.map(|value| Specification::decode(&value));
    stored.transpose().map(|found| found.map(Arc::new)).map_err(|_| Unfinished::Unreadable)
}

/// A read.
pub type Request<'a> = &'a IndexScan;

/// Why there is no result.
#[derive(Debug)]
pub enum Unfinished<E> {
    /// The data cannot be read.
    Failed(E),
    /// The index does not cover the tablet yet, and the tablet has more rows than may be read for a result.
    BeingBuilt,
    /// The index or the request is of a newer version.
    Unreadable,
}

impl<E> From<E> for Unfinished<E> {
    fn from(error: E) -> Self {
        Self::Failed(error)
    }
}
