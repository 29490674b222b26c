//! Consistency levels as the wire numbers and names them.
//!
//! Always true: a level parsed here is one of the protocol's. Left out: what a level means for a read or a write; the query layer
//! decides (every write is a quorum write, every read is linearizable unless the session asks for less).

use std::fmt;

/// A `[consistency]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u16)]
pub enum Consistency {
    /// `ANY`
    Any = 0,
    /// `ONE`
    One = 1,
    /// `TWO`
    Two = 2,
    /// `THREE`
    Three = 3,
    /// `QUORUM`
    #[default]
    Quorum = 4,
    /// `ALL`
    All = 5,
    /// `LOCAL_QUORUM`
    LocalQuorum = 6,
    /// `EACH_QUORUM`
    EachQuorum = 7,
    /// `SERIAL`
    Serial = 8,
    /// `LOCAL_SERIAL`
    LocalSerial = 9,
    /// `LOCAL_ONE`
    LocalOne = 10,
}

impl Consistency {
    /// Every level, in wire order.
    pub const ALL_LEVELS: [Consistency; 11] = [
        Consistency::Any,
        Consistency::One,
        Consistency::Two,
        Consistency::Three,
        Consistency::Quorum,
        Consistency::All,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
        Consistency::Serial,
        Consistency::LocalSerial,
        Consistency::LocalOne,
    ];

    /// The level with this wire code.
    pub fn from_code(code: u16) -> Option<Consistency> {
        Consistency::ALL_LEVELS.get(usize::from(code)).copied()
    }

    /// The wire code.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Whether this is a level of the conditional phase (`SERIAL`, `LOCAL_SERIAL`).
    pub fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }

    /// The level as CQL and the error messages of drivers write it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Any => "ANY",
            Consistency::One => "ONE",
            Consistency::Two => "TWO",
            Consistency::Three => "THREE",
            Consistency::Quorum => "QUORUM",
            Consistency::All => "ALL",
            Consistency::LocalQuorum => "LOCAL_QUORUM",
            Consistency::EachQuorum => "EACH_QUORUM",
            Consistency::Serial => "SERIAL",
            Consistency::LocalSerial => "LOCAL_SERIAL",
            Consistency::LocalOne => "LOCAL_ONE",
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
