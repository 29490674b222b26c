//! Join tokens, as operators see them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The path of join tokens.
pub const JOIN_TOKENS: &str = "/api/v1/join-tokens";

/// A join token that was just made. Only this answer has its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJoinToken {
    /// Its id, with which it is revoked.
    pub id: String,
    /// The token, which a node shows to join: the id, a dot, and the secret.
    pub token: String,
    /// Its end, milliseconds since 1970.
    pub expires_ms: i64,
    /// How many nodes may join with it.
    pub nodes: u32,
}

impl fmt::Debug for NewJoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewJoinToken({})", self.id)
    }
}

/// A join token that is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenStatus {
    /// Its id.
    pub id: String,
    /// Its end, milliseconds since 1970.
    pub expires_ms: i64,
    /// How many nodes may still join with it.
    pub nodes: u32,
}
