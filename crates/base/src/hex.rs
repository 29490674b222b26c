//! Bytes that are written as hexadecimal digits.
//!
//! Always true: two digits a byte, in lower case; other text is refused. Left out: secrets, which must not be shown; their owners
//! wrap the bytes in types of their own.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// So many bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex<const N: usize>(pub [u8; N]);

/// A text is not that many bytes in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{digits} hexadecimal digits are expected")]
pub struct NotHex {
    /// How many digits there should be.
    pub digits: usize,
}

impl<const N: usize> Hex<N> {
    /// Whether both are the same, in a time that does not depend on where they differ.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<const N: usize> FromStr for Hex<N> {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<Self, NotHex> {
        let malformed = NotHex { digits: 2 * N };
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(malformed),
        };
        if text.len() != 2 * N {
            return Err(malformed);
        }
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl<const N: usize> From<Hex<N>> for String {
    fn from(hex: Hex<N>) -> String {
        hex.to_string()
    }
}

impl<const N: usize> TryFrom<String> for Hex<N> {
    type Error = NotHex;

    fn try_from(text: String) -> Result<Self, NotHex> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_written_and_in_one_way_only() {
        let bytes = Hex([0, 1, 0x9a, 0xff]);
        assert_eq!(bytes.to_string(), "00019aff");
        assert_eq!("00019aff".parse(), Ok(bytes));
        for wrong in ["", "00019af", "00019aff0", "00019AFF", "0001 9af", "+0019aff", "éé"] {
            assert_eq!(wrong.parse::<Hex<4>>(), Err(NotHex { digits: 8 }), "{wrong}");
        }
    }

    #[test]
    fn sameness_looks_at_every_byte() {
        let bytes = Hex([7; 32]);
        assert!(bytes.is_same(&Hex([7; 32])));
        for place in 0..32 {
            let mut other = bytes;
            other.0[place] ^= 0x80;
            assert!(!bytes.is_same(&other), "{place}");
        }
    }
}
