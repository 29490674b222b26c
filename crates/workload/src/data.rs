//! Keys and values that check themselves.
//!
//! A key is `key:<n>`, padded to the wanted size. A value is a function of its key number and a version, so that a
//! reader needs nothing but the key to tell a right value from a wrong one and to learn which write it came from:
//!
//! ```text
//! word 0 = version ^ mix(key)   word 1 = key ^ mix(word 0)   words 2.. = SplitMix64 stream seeded by word 1
//! ```
//!
//! Always true: the same key, version and size give the same bytes; every byte of a value is checked on read, by making
//! it again, which costs less than a checksum; the bytes look random, so a server cannot compress them to speak of.
//!
//! Left out: secrecy. Anyone who reads this page can forge a value; the check is against faults, not against malice.

use std::fmt::Write as _;

use diorite_base::random::{Random, SplitMix64};

/// The smallest value that can carry its key and version, in bytes.
pub const MIN_VALUE_BYTES: usize = 16;

/// The version of a value, which identifies the write: the upper half is the start of the writing process in seconds since 1970,
/// the lower half counts that process's writes of the key from 1. Later writes compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version(pub u64);

impl Version {
    /// The `count`-th write of a key by the process that started at `epoch_s`.
    pub fn new(epoch_s: u32, count: u32) -> Self {
        Self(u64::from(epoch_s) << 32 | u64::from(count))
    }

    /// When the process that wrote it began, in seconds since 1970.
    pub fn epoch_s(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Which of that process's writes of the key it is, from 1.
    pub fn count(self) -> u32 {
        self.0 as u32
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.epoch_s(), self.count())
    }
}

/// How the keys of a run are written.
#[derive(Debug, Clone)]
pub struct KeyFormat {
    prefix: String,
    size_bytes: usize,
}

impl KeyFormat {
    /// Keys `<prefix>:<n>`, padded with `_` to `size_bytes`; longer ones stay as they are.
    pub fn new(prefix: impl Into<String>, size_bytes: usize) -> Self {
        Self { prefix: prefix.into(), size_bytes }
    }

    /// Writes the key of number `number` into `key`, replacing what was there.
    pub fn write(&self, number: u64, key: &mut String) {
        key.clear();
        key.push_str(&self.prefix);
        key.push(':');
        write!(key, "{number}").expect("writing to a string does not fail");
        // '_' is not a digit, so two numbers never pad to the same key.
        while key.len() < self.size_bytes {
            key.push('_');
        }
    }

    /// The key of number `number` as a new string, for messages.
    pub fn name(&self, number: u64) -> String {
        let mut key = String::new();
        self.write(number, &mut key);
        key
    }
}

/// Writes the value of `number` at `version` into `value`, replacing what was there. `size_bytes` is at least
/// [`MIN_VALUE_BYTES`].
pub fn write_value(number: u64, version: Version, size_bytes: usize, value: &mut Vec<u8>) {
    assert!(size_bytes >= MIN_VALUE_BYTES, "a value of {size_bytes} bytes cannot carry its key and version");
    let first = version.0 ^ mix(number);
    let second = number ^ mix(first);
    value.clear();
    value.reserve(size_bytes + 8);
    value.extend_from_slice(&first.to_le_bytes());
    value.extend_from_slice(&second.to_le_bytes());
    let mut stream = SplitMix64::new(second);
    while value.len() < size_bytes {
        value.extend_from_slice(&stream.next_u64().to_le_bytes());
    }
    value.truncate(size_bytes);
}

/// Why bytes are not a value of the expected key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// The size differs from the run's `--value_size`.
    Size { found: usize, wanted: usize },
    /// The first words name another key.
    Key { found: u64 },
    /// The first words are right, but the byte at this offset is not.
    Byte { offset: usize },
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Size { found, wanted } => write!(formatter, "it has {found} bytes instead of {wanted}"),
            Self::Key { found } => write!(formatter, "its first words belong to key number {found}, or are damaged"),
            Self::Byte { offset } => write!(formatter, "the byte at offset {offset} is damaged"),
        }
    }
}

/// Checks every byte of a value read for key `number` and tells the version it was written with.
pub fn check_value(number: u64, size_bytes: usize, value: &[u8]) -> Result<Version, Mismatch> {
    if value.len() != size_bytes {
        return Err(Mismatch::Size { found: value.len(), wanted: size_bytes });
    }
    let (words, tail) = value.as_chunks::<8>();
    let [first, second, stream_words @ ..] = words else {
        return Err(Mismatch::Size { found: value.len(), wanted: MIN_VALUE_BYTES });
    };
    let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
    let key = second ^ mix(first);
    if key != number {
        return Err(Mismatch::Key { found: key });
    }
    let mut stream = SplitMix64::new(second);
    for (index, word) in stream_words.iter().enumerate() {
        if u64::from_le_bytes(*word) != stream.next_u64() {
            return Err(Mismatch::Byte { offset: MIN_VALUE_BYTES + index * 8 });
        }
    }
    if !stream.next_u64().to_le_bytes().starts_with(tail) {
        return Err(Mismatch::Byte { offset: value.len() - tail.len() });
    }
    Ok(Version(first ^ mix(number)))
}

/// The text of a point of a series, `size_bytes` hexadecimal digits that differ by series and point.
pub fn point_text(series: u64, point: u64, size_bytes: usize) -> String {
    let mut random = SplitMix64::new(mix(series) ^ point);
    let mut text = String::with_capacity(size_bytes + 16);
    while text.len() < size_bytes {
        write!(text, "{:016x}", random.next_u64()).expect("writing to a string does not fail");
    }
    text.truncate(size_bytes);
    text
}

/// A bijection of 64 bits that spreads every input bit (the finalizer of SplitMix64).
fn mix(word: u64) -> u64 {
    SplitMix64::new(word).next_u64()
}

#[cfg(test)]
mod tests;
