//! What tells the kinds of stored values apart, and what compaction does with one.

/// The bits of byte 0 that name the format of a value.
pub(crate) const FORMAT_MASK: u8 = 0xC0;
/// A packed row, version 1.
pub(crate) const FORMAT_ROW: u8 = 0x40;
/// A packed row, version 2.
pub(crate) const FORMAT_BOUNDED_ROW: u8 = 0xC0;
/// A partition header, version 1.
pub(crate) const FORMAT_DELETIONS: u8 = 0x80;

/// What compaction does with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compaction {
    /// It stays as it is.
    Keep,
    /// Nothing of it is needed.
    Remove,
    /// This takes its place.
    Replace(Vec<u8>),
}
