//! Protocol versions.
//!
//! Always true: a [`Version`] value is one this server speaks. Left out: v1 and v2 (8-byte headers, 16-bit collection sizes), the
//! never-released v6, and DataStax's private versions 65 and 66; drivers that open with one of those are told to come back with
//! [`Version::HIGHEST`].

/// A native protocol version that is spoken here. Ordered, so that `version >= Version::V4` reads as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// Cassandra 2.1
    V3 = 3,
    /// Cassandra 2.2
    V4 = 4,
    /// Cassandra 4.0: checksummed segments
    V5 = 5,
}

impl Version {
    /// Every version, lowest first.
    pub const ALL: [Version; 3] = [Version::V3, Version::V4, Version::V5];
    /// The version of answers to a peer with an unsupported version.
    pub const HIGHEST: Version = Version::V5;

    /// The version with this number (direction bit already removed).
    pub fn from_number(number: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.number() == number)
    }

    /// 3, 4 or 5.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// 0, 1 or 2: for tables that hold one entry per version.
    pub(crate) fn index(self) -> usize {
        usize::from(self.number() - Version::V3.number())
    }
}
