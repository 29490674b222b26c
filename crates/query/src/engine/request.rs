//! A request as the engine takes it, and the answer as it gives it.
//!
//! Always true: a request owns all that it needs. Left out: encoding answers into frames (the node).

use crate::activity::Note;
use crate::budget::Budget;
use crate::plan::Planned;
use crate::plan::term::Bound;
use diorite_cql::protocol::response::ReplyHead;
use diorite_cql::protocol::{CqlError, Envelope, Opcode, Response, Version};
use std::net::SocketAddr;
use std::sync::Arc;

/// A request that is executed while its connection continues to read.
#[derive(Debug, Clone)]
pub struct OwnedRequest {
    /// Its kind: QUERY, PREPARE, EXECUTE or BATCH
    pub opcode: Opcode,
    /// The version of the connection
    pub version: Version,
    /// The flags of its header, without compression
    pub flags: u8,
    /// Its body, no longer compressed
    pub body: Vec<u8>,
    /// It was just found that this node's memory does not hold its row ([`super::ExecuteNow::NeedsDisk`])
    pub needs_disk: bool,
    /// The client's address
    pub client: Option<SocketAddr>,
    /// When it arrived, on the monotonic clock
    pub arrived_ns: u64,
    /// Its budget
    pub budget: Arc<Budget>,
}

impl OwnedRequest {
    /// It as a message.
    pub(super) fn envelope(&self) -> Envelope<'_> {
        Envelope { version: self.version, flags: self.flags, stream: 0, opcode: self.opcode, body: &self.body }
    }

    /// Sets its deadline to the statement's `USING TIMEOUT`, if that is earlier.
    pub(super) fn end_in_time(&self, planned: &Planned, bound: &Bound<'_>) -> Result<(), CqlError> {
        let timeout_ns = planned.timeout.as_ref().map(|timeout| timeout.ns(bound)).transpose()?.flatten();
        timeout_ns.into_iter().for_each(|timeout_ns| self.budget.end_by(self.arrived_ns.saturating_add(timeout_ns)));
        Ok(())
    }
}

/// An answer, and how to send it.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The result.
    pub response: Response,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The result's columns may be left out.
    pub skip_metadata: bool,
    /// The columns the client knows (v5).
    pub known_metadata_id: Option<Vec<u8>>,
    /// Custom payload, for protocol extensions of drivers.
    pub custom_payload: Vec<(String, Vec<u8>)>,
}

impl Reply {
    pub(super) fn plain(response: Response) -> Self {
        Self {
            response,
            warnings: Vec::new(),
            skip_metadata: false,
            known_metadata_id: None,
            custom_payload: Vec::new(),
        }
    }

    /// Bytes of its rows.
    pub fn body_bytes(&self) -> usize {
        match &self.response {
            Response::Rows(rows) => rows.body.len(),
            _ => 0,
        }
    }

    /// Rows in it.
    pub fn row_count(&self) -> u64 {
        match &self.response {
            Response::Rows(rows) => rows.row_count as u64,
            _ => 0,
        }
    }

    /// Appends the RESULT. The caller appends warnings and payload to `head`, as it has the other extras too.
    pub fn encode(&self, out: &mut Vec<u8>, head: &ReplyHead<'_>) {
        self.response.encode(out, head, self.skip_metadata, self.known_metadata_id.as_deref());
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Answered {
    /// Its kind and its statement.
    pub note: Note,
    /// The answer.
    pub outcome: Result<Reply, CqlError>,
}
