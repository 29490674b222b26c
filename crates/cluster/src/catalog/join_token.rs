//! A join token, as the catalog has it, and as a node shows it.
//!
//! Always true: the catalog has the digest of a secret, never the secret. Left out: who joins ([`super::joining`]).

use diorite_base::hex::Hex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Names a join token. It is no secret.
pub type JoinTokenId = Hex<8>;

/// The SHA-256 of a token's secret.
pub type JoinTokenDigest = Hex<32>;

/// A join token, as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Of its secret.
    pub digest: JoinTokenDigest,
    /// Its end, milliseconds since 1970: nobody joins with it from then on.
    pub expires_ms: i64,
    /// How many nodes may join with it.
    pub nodes: u32,
}

/// What a node has shown that wants to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownToken {
    /// Which token.
    pub id: JoinTokenId,
    /// Of the secret that was shown.
    pub digest: JoinTokenDigest,
}

/// Why nobody joins with what was shown. For the members' logs: whoever has shown it is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidToken {
    /// There is no such token.
    #[error("there is no join token {0}: it was never made, is used up or was revoked, or has expired")]
    Unknown(JoinTokenId),
    /// The secret is another one.
    #[error("the secret that was shown is not that of join token {0}")]
    Wrong(JoinTokenId),
    /// It was valid before.
    #[error("join token {0} has expired")]
    Expired(JoinTokenId),
}

impl JoinToken {
    /// Whether it has come to its end.
    pub fn is_over(&self, now_ms: i64) -> bool {
        now_ms >= self.expires_ms
    }
}
