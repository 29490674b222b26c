//! The frame of a response: header, extras and length around a body; and the one response that every part may give, an error.
//!
//! Always true: a message is written in place and its length patched at the end; nothing is allocated on the way. A body over
//! the protocol's limit is taken back and answered as an error instead.

use super::envelope::{FrameError, HEADER_BYTES, Header, Opcode, PROTOCOL_MAX_BODY_BYTES, Role, flags};
use super::error::CqlError;
use super::version::Version;
use super::wire;

/// The kinds of RESULT.
pub mod result_kind {
    /// No content
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

/// The extras of a response. Warnings and payload are left out before v4, which has no place for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// The id of the trace, when the request asked for one
    pub tracing_id: Option<[u8; 16]>,
    /// For people
    pub warnings: &'a [String],
    /// For a driver's extensions
    pub custom_payload: &'a [(String, Vec<u8>)],
}

/// The destination of a response.
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

impl FrameError {
    /// Appends the ERROR to answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_error(out, &ReplyHead::new(self.version, self.stream.unwrap_or(0)), &self.error);
    }
}
