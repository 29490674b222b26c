//! What the catalog answers to a command.
//!
//! Always true: an outcome names the version of the catalog that it was judged by.

use super::command::EncodedCommandError;
use diorite_base::NodeId;
use serde::{Deserialize, Serialize};

/// Why a command was turned down.
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
    /// Something else changed the object meanwhile: derive the command again from the current catalog.
    Conflict,
    /// Other objects depend on it.
    InUse,
    /// The command asks for something impossible.
    Invalid,
}

/// The catalog's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Done; `version` is the catalog's from then on.
    Applied {
        /// The catalog's version that includes it.
        version: u64,
    },
    /// The node is a member under this id.
    Registered {
        /// Its id.
        node: NodeId,
        /// The catalog's version that includes it.
        version: u64,
    },
    /// Nothing to do: the object was already there (`IF NOT EXISTS`), already gone (`IF EXISTS`), or already so.
    Unchanged {
        /// The catalog's version that says so.
        version: u64,
    },
    /// Turned down; nothing changed.
    Rejected {
        /// The catalog's version that it was judged by.
        version: u64,
        /// What sort of reason.
        rejection: Rejection,
        /// The reason in words.
        message: String,
    },
}

impl Outcome {
    /// The catalog's version after the command. A node whose copy has reached it sees what the outcome speaks of.
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

    /// Reads an outcome back.
    pub fn decode(bytes: &[u8]) -> Result<Self, EncodedCommandError> {
        serde_json::from_slice(bytes).map_err(|error| EncodedCommandError::Malformed(error.to_string()))
    }
}
