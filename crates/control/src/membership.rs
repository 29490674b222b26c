//! Membership, as one node decides about it: who may join, which nodes it admits, how it reacts to being refused, where
//! its heartbeats go, and when it is ready.
//!
//! Left out: connections (`diorite_rpc`), questions and answers on the wire (the node's), and what operators change ([`crate::changes`]).

mod admission;
mod contacts;
mod gate;
mod readiness;

pub use admission::{Admission, Refused, Report as AdmissionReport};
pub use contacts::{Contacts, Encounters, addresses};
pub use gate::{
    Certified, Covers, Dialler, FIRST_NODE, NotJoining, ReplicationFactorDiffers, Shown, Welcome, admit,
    check_replication_factor, joining, registering, returning, unrecorded, welcome, whereabouts,
};
pub use readiness::{COPY_TIMEOUT, Facts, RETRY, Readiness, Ready, STEP, Step};

use std::fmt;

/// Why a node is not admitted, or may not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// It asks for another cluster, or has other facts about this one.
    Cluster,
    /// Its identity, or its address, belongs to another node.
    Duplicate,
    /// It is not known here; that may pass.
    Unknown,
    /// It was a member and has been removed, for ever.
    Removed,
    /// Its program does not know the level of the cluster.
    Level,
    /// Its certificate does not cover an address that belongs to the node that it claims to be.
    Address,
}

/// A refusal, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of reason.
    pub kind: RefusalKind,
    /// The reason.
    pub reason: String,
}

impl Refusal {
    /// A refusal for this reason.
    pub fn new(kind: RefusalKind, reason: impl fmt::Display) -> Self {
        Self { kind, reason: reason.to_string() }
    }

    fn not_yet(why: impl fmt::Display) -> Self {
        Self::new(RefusalKind::Unknown, format_args!("no node can join at the moment: {why}"))
    }
}
