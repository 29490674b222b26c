//! Where a comparison of an index with its table has come to, as text that an operator's program gives back.
//!
//! ```text
//! place := rows: hex | rows: hex : hex | entries: hex | outward: hex | inward: hex
//! ```
//!
//! Always true: a text that is read is written alike. Left out: the tablet (whoever asks names it).

use diorite_base::row_index::FIRST_ROW_KEY;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// See the top of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Before the row with this key, or after some elements of it.
    Row {
        /// The key.
        key: Vec<u8>,
        /// The path of the last element that is compared.
        after: Option<Vec<u8>>,
    },
    /// All values are compared, and the entries before this key.
    Entry {
        /// The key.
        key: Vec<u8>,
    },
    /// Of a unique index or a view: rows before this key have been compared with the index table, or the view.
    Outward {
        /// The key.
        key: Vec<u8>,
    },
    /// In that table: entries before this key have been compared with their rows.
    Inward {
        /// The key.
        key: Vec<u8>,
    },
}

impl Place {
    /// The begin of a tablet.
    pub fn first() -> Self {
        Self::Row { key: FIRST_ROW_KEY.to_vec(), after: None }
    }
}

/// A text is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this is not a place at which a comparison goes on")]
pub struct NotAPlace;

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn read_hex(text: &str) -> Result<Vec<u8>, NotAPlace> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(NotAPlace),
    };
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Ok(digit(*high)? << 4 | digit(*low)?),
        _ => Err(NotAPlace),
    });
    pairs.collect()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row { key, after } => {
                f.write_str("rows:")?;
                write_hex(f, key)?;
                let Some(after) = after else { return Ok(()) };
                f.write_str(":")?;
                write_hex(f, after)
            }
            Self::Entry { key } => {
                f.write_str("entries:")?;
                write_hex(f, key)
            }
            Self::Outward { key } => {
                f.write_str("outward:")?;
                write_hex(f, key)
            }
            Self::Inward { key } => {
                f.write_str("inward:")?;
                write_hex(f, key)
            }
        }
    }
}

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let (kind, rest) = text.split_once(':').ok_or(NotAPlace)?;
        match (kind, rest.split_once(':')) {
            ("rows", None) => Ok(Self::Row { key: read_hex(rest)?, after: None }),
            ("rows", Some((key, after))) => Ok(Self::Row { key: read_hex(key)?, after: Some(read_hex(after)?) }),
            ("entries", None) => Ok(Self::Entry { key: read_hex(rest)? }),
            ("outward", None) => Ok(Self::Outward { key: read_hex(rest)? }),
            ("inward", None) => Ok(Self::Inward { key: read_hex(rest)? }),
            _ => Err(NotAPlace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_written_and_in_one_way_only() {
        let places = [
            Place::first(),
            Place::Row { key: vec![0, 0x9a, 0xff], after: Some(vec![7]) },
            Place::Row { key: vec![1], after: Some(Vec::new()) },
            Place::Entry { key: vec![0, 1] },
            Place::Outward { key: Vec::new() },
            Place::Inward { key: vec![3] },
        ];
        for place in places {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        assert_eq!(Place::first().to_string(), "rows:0000000000000001");
        for wrong in
            ["", "rows", "rows:0", "rows:0A", "rows:00:0", "rows:00:00:00", "entries:00:00", "other:00", "entries:é"]
        {
            assert_eq!(wrong.parse::<Place>(), Err(NotAPlace), "{wrong}");
        }
    }
}
