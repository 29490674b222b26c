//! The secret key of one process of a node. Its hash with the life that the process's heartbeats name is the
//! incarnation in the process's handshakes. Only the process's guard (`crate::guard`) shows the key, after the process
//! has ended: the key proves that end.

use diorite_base::random;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A key that one process of a node and its guard share. Another process cannot know it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct LifeKey([u8; 32]);

impl LifeKey {
    /// An unpredictable key.
    pub(crate) fn random() -> Self {
        Self(random::secret())
    }

    /// The incarnation in the handshakes of this life. The key cannot be computed from it.
    pub(crate) fn incarnation(&self, life: u64) -> u64 {
        let hash = digest(&SHA256, &[self.0.as_slice(), &life.to_be_bytes()].concat());
        hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl fmt::Debug for LifeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LifeKey(..)")
    }
}

impl From<LifeKey> for String {
    fn from(key: LifeKey) -> String {
        key.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for LifeKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let malformed = "a key has 64 hexadecimal digits";
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(malformed);
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| malformed)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| malformed)?;
        }
        Ok(Self(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn a_key_is_read_as_written_and_nothing_else_is_one() {
        let key = LifeKey::random();
        let text = String::from(key.clone());
        assert_eq!(LifeKey::try_from(text.clone()), Ok(key.clone()));
        assert_eq!(LifeKey::try_from(text.clone()).unwrap().incarnation(7), key.incarnation(7));
        assert_ne!(key.incarnation(8), key.incarnation(7), "it is good for one life");
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replacen(&text[..1], "g", 1), &"é".repeat(32)] {
            assert!(LifeKey::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
        assert_ne!(LifeKey::random().incarnation(7), key.incarnation(7));
        assert!(!format!("{key:?}").contains(&text[..16]), "logs do not show it");
    }
}
