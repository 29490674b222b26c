//! Format bits, which tell the kinds of stored values apart, and the result of compacting a value.

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
    /// The value stays as it is.
    Keep,
    /// The value is removed.
    Remove,
    /// The value is replaced by this one.
    Replace(Vec<u8>),
}
