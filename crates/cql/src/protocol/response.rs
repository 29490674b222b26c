//! Responses, appended to a caller's buffer.
//!
//! Always true: nothing is allocated on the way. Left out: how a message is framed ([`super::reply`]), and compression and
//! segments, which [`super::framing::Outbound`] adds afterwards.

pub use super::reply::{
    Extras, FrameStart, ReplyHead, begin_frame, begin_result, encode_error, end_frame, result_kind,
};

use super::envelope::Opcode;
use super::event::{Event, SchemaChange};
use super::rows::{BindMarkers, ResultMetadata, Rows, SendMetadata};
use super::version::Version;
use super::wire;
use std::sync::Arc;

/// The CQL version for clients.
pub const CQL_VERSION: &str = "3.4.7";

/// Scylla's extension by which a driver learns the leader of a tablet: offered in SUPPORTED, and requested at STARTUP.
pub const TABLETS_ROUTING: &str = "TABLETS_ROUTING_V1";

/// The content of SUPPORTED.
pub const SUPPORTED_OPTIONS: &[(&str, &[&str])] = &[
    ("PROTOCOL_VERSIONS", &["3/v3", "4/v4", "5/v5"]),
    ("COMPRESSION", &["lz4", "snappy"]),
    ("CQL_VERSION", &[CQL_VERSION]),
    (TABLETS_ROUTING, &[""]),
];

/// READY
pub fn encode_ready(out: &mut Vec<u8>, head: &ReplyHead<'_>) {
    let start = begin_frame(out, head, Opcode::Ready);
    end_frame(out, start);
}

/// AUTHENTICATE, with the class name that drivers choose their authenticator by.
pub fn encode_authenticate(out: &mut Vec<u8>, head: &ReplyHead<'_>, authenticator: &str) {
    let start = begin_frame(out, head, Opcode::Authenticate);
    wire::put_string(out, authenticator);
    end_frame(out, start);
}

/// AUTH_CHALLENGE
pub fn encode_auth_challenge(out: &mut Vec<u8>, head: &ReplyHead<'_>, token: Option<&[u8]>) {
    let start = begin_frame(out, head, Opcode::AuthChallenge);
    wire::put_optional_bytes(out, token);
    end_frame(out, start);
}

/// AUTH_SUCCESS
pub fn encode_auth_success(out: &mut Vec<u8>, head: &ReplyHead<'_>, token: Option<&[u8]>) {
    let start = begin_frame(out, head, Opcode::AuthSuccess);
    wire::put_optional_bytes(out, token);
    end_frame(out, start);
}

/// SUPPORTED
pub fn encode_supported(out: &mut Vec<u8>, head: &ReplyHead<'_>, options: &[(&str, &[&str])]) {
    let start = begin_frame(out, head, Opcode::Supported);
    wire::put_count(out, options.len());
    for (key, values) in options {
        wire::put_string(out, key);
        wire::put_string_list(out, values);
    }
    end_frame(out, start);
}

/// EVENT, on the stream reserved for it.
pub fn encode_event(out: &mut Vec<u8>, version: Version, event: &Event) {
    let start = begin_frame(out, &ReplyHead::new(version, -1), Opcode::Event);
    event.encode(out, version);
    end_frame(out, start);
}

/// RESULT Void
#[inline]
pub fn encode_void(out: &mut Vec<u8>, head: &ReplyHead<'_>) {
    let start = begin_result(out, head, result_kind::VOID);
    end_frame(out, start);
}

/// A prepared statement, for its client.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The id for EXECUTE
    pub id: Vec<u8>,
    /// Its bind markers
    pub markers: BindMarkers,
    /// The columns of its result; empty for a statement without one
    pub result: Arc<ResultMetadata>,
}

/// The result of executing a statement.
#[derive(Clone, Debug)]
pub enum Response {
    /// No content
    Void,
    /// A page of rows
    Rows(Rows),
    /// The session uses this keyspace from now on
    SetKeyspace(String),
    /// The schema changed
    SchemaChange(SchemaChange),
    /// A statement was prepared
    Prepared(Arc<Prepared>),
}

impl Response {
    /// Appends the RESULT. `skip_metadata` and `known_metadata_id` are the request's (see [`ResultMetadata::to_send`]).
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        head: &ReplyHead<'_>,
        skip_metadata: bool,
        known_metadata_id: Option<&[u8]>,
    ) {
        match self {
            Response::Void => encode_void(out, head),
            Response::Rows(rows) => {
                rows.encode(out, head, rows.metadata.to_send(skip_metadata, known_metadata_id));
            }
            Response::SetKeyspace(keyspace) => {
                let start = begin_result(out, head, result_kind::SET_KEYSPACE);
                wire::put_string(out, keyspace);
                end_frame(out, start);
            }
            Response::SchemaChange(change) => {
                let start = begin_result(out, head, result_kind::SCHEMA_CHANGE);
                change.encode(out, head.version);
                end_frame(out, start);
            }
            Response::Prepared(prepared) => {
                let start = begin_result(out, head, result_kind::PREPARED);
                wire::put_short_bytes(out, &prepared.id);
                if head.version >= Version::V5 {
                    wire::put_short_bytes(out, prepared.result.id());
                }
                prepared.markers.encode(out, head.version);
                prepared.result.encode(out, head.version, SendMetadata::Full, None);
                end_frame(out, start);
            }
        }
    }
}
