//! The catalog's answers to commands.
//!
//! Always true: an outcome names the version of the catalog at which the command was judged.

use super::command::EncodedCommandError;
use diorite_base::NodeId;
use serde::{Deserialize, Serialize};

/// Why a command was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// An object of that name exists, or a node at that address.
    AlreadyExists,
    /// The keyspace does not exist.
    NoSuchKeyspace,
    /// The table does not exist.
    NoSuchTable,
    /// The user type does not exist.
    NoSuchType,
    /// The node is not a member.
    NoSuchNode,
    /// Nobody joins with this token.
    NoSuchToken,
    /// There is no such group of networks.
    NoSuchCidrGroup,
    /// Another command has changed the object meanwhile: derive the command again from the current catalog.
    Conflict,
    /// Other objects depend on the object.
    InUse,
    /// The command asks for something impossible.
    Invalid,
}

/// The catalog's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The command was applied.
    Applied {
        /// The version of the catalog that includes it.
        version: u64,
    },
    /// The node is a member under this id.
    Registered {
        /// The node's id.
        node: NodeId,
        /// The version of the catalog that includes it.
        version: u64,
    },
    /// The command changes nothing: the object existed already (`IF NOT EXISTS`), did not exist (`IF EXISTS`), or had
    /// the wanted state.
    Unchanged {
        /// The version of the catalog at which that was found.
        version: u64,
    },
    /// The command was rejected, and has changed nothing.
    Rejected {
        /// The version of the catalog at which it was judged.
        version: u64,
        /// The kind of reason.
        rejection: Rejection,
        /// The reason in words.
        message: String,
    },
}

impl Outcome {
    /// The version of the catalog after the command. A node whose copy has reached that version sees the objects of the
    /// outcome.
    pub fn version(&self) -> u64 {
        match self {
            Outcome::Applied { version }
            | Outcome::Registered { version, .. }
            | Outcome::Unchanged { version }
            | Outcome::Rejected { version, .. } => *version,
        }
    }

    /// The outcome as bytes for the reply.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("outcomes have string keys")
    }

    /// Decodes an outcome.
    pub fn decode(bytes: &[u8]) -> Result<Self, EncodedCommandError> {
        serde_json::from_slice(bytes).map_err(|error| EncodedCommandError::Malformed(error.to_string()))
    }
}
