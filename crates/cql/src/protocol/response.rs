//! Responses, appended to a caller's buffer.
//!
//! Always true: a message is written in place and its length patched at the end; nothing is allocated on the way. A body over
//! the protocol's limit is taken back and answered as an error instead. Left out: compression and segments, which
//! [`super::framing::Outbound`] adds afterwards.

use super::envelope::{HEADER_BYTES, Header, Opcode, PROTOCOL_MAX_BODY_BYTES, Role, flags};
use super::error::CqlError;
use super::event::{Event, SchemaChange};
use super::rows::{BindMarkers, ResultMetadata, Rows, SendMetadata};
use super::version::Version;
use super::wire;
use std::sync::Arc;

/// The kinds of RESULT.
pub mod result_kind {
    /// Nothing to tell
    pub const VOID: i32 = 1;
    /// Rows
    pub const ROWS: i32 = 2;
    /// The session's keyspace changed
    pub const SET_KEYSPACE: i32 = 3;
    /// A statement was prepared
    pub const PREPARED: i32 = 4;
    /// The schema changed
    pub const SCHEMA_CHANGE: i32 = 5;
}

/// The version of CQL that clients are told.
pub const CQL_VERSION: &str = "3.4.7";

/// Scylla's extension by which a driver learns who leads which tablet: in SUPPORTED, and asked for at STARTUP.
pub const TABLETS_ROUTING: &str = "TABLETS_ROUTING_V1";

/// What SUPPORTED tells every client.
pub const SUPPORTED_OPTIONS: &[(&str, &[&str])] = &[
    ("PROTOCOL_VERSIONS", &["3/v3", "4/v4", "5/v5"]),
    ("COMPRESSION", &["lz4", "snappy"]),
    ("CQL_VERSION", &[CQL_VERSION]),
    (TABLETS_ROUTING, &[""]),
];

/// What a response can carry besides its message. Warnings and payload are left out before v4, which has no place for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// The id of the trace, when the request asked for one
    pub tracing_id: Option<[u8; 16]>,
    /// For people
    pub warnings: &'a [String],
    /// For a driver's extensions
    pub custom_payload: &'a [(String, Vec<u8>)],
}

/// Where a response goes.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHead<'a> {
    /// The version of the connection
    pub version: Version,
    /// The stream of the request
    pub stream: i16,
    /// Usually none
    pub extras: Extras<'a>,
}

impl ReplyHead<'_> {
    /// A reply without extras.
    #[inline]
    pub fn new(version: Version, stream: i16) -> Self {
        Self { version, stream, extras: Extras::default() }
    }
}

/// A message that has been begun and not ended.
#[derive(Debug)]
#[must_use = "a message without an end corrupts the connection"]
pub struct FrameStart {
    offset: usize,
    version: Version,
    stream: i16,
}

impl FrameStart {
    /// Where its header is in the buffer.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// Writes the header (length to follow) and the extras.
#[inline]
pub fn begin_frame(out: &mut Vec<u8>, head: &ReplyHead<'_>, opcode: Opcode) -> FrameStart {
    let ReplyHead { version, stream, extras } = *head;
    let offset = out.len();
    Header { version, flags: 0, stream, opcode: opcode as u8, body_bytes: 0 }.encode(out, Role::Server);
    let mut bits = 0;
    if let Some(id) = extras.tracing_id {
        bits |= flags::TRACING;
        out.extend_from_slice(&id);
    }
    if version >= Version::V4 && !extras.warnings.is_empty() {
        bits |= flags::WARNING;
        wire::put_string_list(out, extras.warnings);
    }
    if version >= Version::V4 && !extras.custom_payload.is_empty() {
        bits |= flags::CUSTOM_PAYLOAD;
        wire::put_count(out, extras.custom_payload.len());
        for (key, value) in extras.custom_payload {
            wire::put_string(out, key);
            wire::put_bytes(out, value);
        }
    }
    out[offset + 1] = bits;
    FrameStart { offset, version, stream }
}

/// Patches the length. A body that no client would accept becomes an error.
#[inline]
pub fn end_frame(out: &mut Vec<u8>, start: FrameStart) {
    let body_bytes = out.len() - start.offset - HEADER_BYTES;
    if body_bytes > PROTOCOL_MAX_BODY_BYTES {
        out.truncate(start.offset);
        let error = CqlError::invalid(format!(
            "the result of {body_bytes} bytes is over the protocol's limit of {PROTOCOL_MAX_BODY_BYTES}, ask for smaller pages"
        ));
        return encode_error(out, &ReplyHead::new(start.version, start.stream), &error);
    }
    let length_at = start.offset + HEADER_BYTES - 4;
    out[length_at..length_at + 4].copy_from_slice(&(body_bytes as u32).to_be_bytes());
}

/// Writes the header, the extras and the kind of a RESULT.
#[inline]
pub fn begin_result(out: &mut Vec<u8>, head: &ReplyHead<'_>, kind: i32) -> FrameStart {
    let start = begin_frame(out, head, Opcode::Result);
    wire::put_i32(out, kind);
    start
}

/// ERROR
pub fn encode_error(out: &mut Vec<u8>, head: &ReplyHead<'_>, error: &CqlError) {
    let start = begin_frame(out, head, Opcode::Error);
    error.encode_body(out, head.version);
    end_frame(out, start);
}

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

/// A prepared statement, as its client is told it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What EXECUTE names it by
    pub id: Vec<u8>,
    /// Its bind markers
    pub markers: BindMarkers,
    /// The columns of its result; empty for a statement without one
    pub result: Arc<ResultMetadata>,
}

/// What executing a statement gives.
#[derive(Clone, Debug)]
pub enum Response {
    /// Nothing to tell
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
