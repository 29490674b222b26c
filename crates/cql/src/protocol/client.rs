//! The client's side: requests are encoded, responses decoded. Integration tests and load tools speak to a server with it.
//!
//! Always true: it shares [`super::wire`] with the server's side but none of its layouts, so that a round trip checks
//! one against the other. Left out: the other parts of a driver (connections, retries, value codecs). Decoded responses
//! own their parts, which is convenient and not fast.

use super::consistency::Consistency;
use super::envelope::{Envelope, HEADER_BYTES, Header, Opcode, Role, flags};
use super::request::BatchKind;
use super::values::Value;
use super::version::Version;
use super::wire;

mod decode;

pub use decode::{ClientMetadata, ClientPrepared, ClientResponse, ClientRows, DecodedResponse, decode_response};

/// A request to be encoded.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientRequest<'a> {
    /// STARTUP
    Startup(&'a [(&'a str, &'a str)]),
    /// OPTIONS
    Options,
    /// AUTH_RESPONSE
    AuthResponse(Option<&'a [u8]>),
    /// REGISTER
    Register(&'a [&'a str]),
    /// QUERY
    Query {
        /// The CQL text
        statement: &'a str,
        /// How to run it
        parameters: Parameters<'a>,
    },
    /// PREPARE
    Prepare {
        /// The CQL text
        statement: &'a str,
        /// The keyspace to resolve names in (v5)
        keyspace: Option<&'a str>,
    },
    /// EXECUTE
    Execute {
        /// The prepared id
        id: &'a [u8],
        /// The result columns that are known (v5, which always has them)
        result_metadata_id: &'a [u8],
        /// How to run it
        parameters: Parameters<'a>,
    },
    /// BATCH
    Batch {
        /// Its kind
        kind: BatchKind,
        /// Its statements
        statements: &'a [ClientBatchStatement<'a>],
        /// How to run it; of this, a batch has no values, paging or `skip_metadata`
        parameters: Parameters<'a>,
    },
}

/// A statement of a batch: text or prepared id, with its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientBatchStatement<'a> {
    /// CQL text
    Text(&'a str, &'a [Value<'a>]),
    /// A prepared id
    Prepared(&'a [u8], &'a [Value<'a>]),
}

/// Values to be bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum BoundValues<'a> {
    /// No values, and no flag for them
    #[default]
    None,
    /// By position
    Positional(&'a [Value<'a>]),
    /// By name
    Named(&'a [(&'a str, Value<'a>)]),
}

/// How to run a statement. Fields that a version does not have are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parameters<'a> {
    /// The consistency level
    pub consistency: Consistency,
    /// The bound values
    pub values: BoundValues<'a>,
    /// The result's columns are known
    pub skip_metadata: bool,
    /// The most rows of a page
    pub page_size: Option<i32>,
    /// Where the page begins
    pub paging_state: Option<&'a [u8]>,
    /// The level of the conditional phase
    pub serial_consistency: Option<Consistency>,
    /// The timestamp of the write, in microseconds
    pub default_timestamp_us: Option<i64>,
    /// The keyspace to resolve names in (v5)
    pub keyspace: Option<&'a str>,
    /// The current time (v5)
    pub now_in_seconds: Option<i32>,
}

/// The envelope of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The version of the connection
    pub version: Version,
    /// The stream to be answered on
    pub stream: i16,
    /// Whether to ask for a trace
    pub wants_tracing: bool,
    /// For the server's extensions (v4)
    pub custom_payload: &'a [(&'a str, &'a [u8])],
}

impl RequestHead<'_> {
    /// A request without extras.
    pub fn new(version: Version, stream: i16) -> Self {
        Self { version, stream, wants_tracing: false, custom_payload: &[] }
    }
}

/// Appends a request.
pub fn encode_request(out: &mut Vec<u8>, head: &RequestHead<'_>, request: &ClientRequest<'_>) {
    let RequestHead { version, stream, wants_tracing, custom_payload } = *head;
    let start = out.len();
    let has_payload = version >= Version::V4 && !custom_payload.is_empty();
    let bits = if wants_tracing { flags::TRACING } else { 0 } | if has_payload { flags::CUSTOM_PAYLOAD } else { 0 };
    let header = Header { version, flags: bits, stream, opcode: request.opcode() as u8, body_bytes: 0 };
    header.encode(out, Role::Client);
    if has_payload {
        wire::put_count(out, custom_payload.len());
        for (key, value) in custom_payload {
            wire::put_string(out, key);
            wire::put_bytes(out, value);
        }
    }
    request.encode_body(out, version);
    let body_bytes = (out.len() - start - HEADER_BYTES) as u32;
    out[start + HEADER_BYTES - 4..start + HEADER_BYTES].copy_from_slice(&body_bytes.to_be_bytes());
}

impl ClientRequest<'_> {
    /// Its opcode.
    pub fn opcode(&self) -> Opcode {
        match self {
            ClientRequest::Startup(_) => Opcode::Startup,
            ClientRequest::Options => Opcode::Options,
            ClientRequest::AuthResponse(_) => Opcode::AuthResponse,
            ClientRequest::Register(_) => Opcode::Register,
            ClientRequest::Query { .. } => Opcode::Query,
            ClientRequest::Prepare { .. } => Opcode::Prepare,
            ClientRequest::Execute { .. } => Opcode::Execute,
            ClientRequest::Batch { .. } => Opcode::Batch,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            ClientRequest::Startup(options) => {
                wire::put_count(out, options.len());
                for (key, value) in *options {
                    wire::put_string(out, key);
                    wire::put_string(out, value);
                }
            }
            ClientRequest::Options => {}
            ClientRequest::AuthResponse(token) => wire::put_optional_bytes(out, *token),
            ClientRequest::Register(events) => wire::put_string_list(out, events),
            ClientRequest::Query { statement, parameters } => {
                wire::put_long_string(out, statement);
                parameters.encode(out, version);
            }
            ClientRequest::Prepare { statement, keyspace } => {
                wire::put_long_string(out, statement);
                if version >= Version::V5 {
                    wire::put_i32(out, i32::from(keyspace.is_some()));
                    keyspace.iter().for_each(|keyspace| wire::put_string(out, keyspace));
                }
            }
            ClientRequest::Execute { id, result_metadata_id, parameters } => {
                wire::put_short_bytes(out, id);
                if version >= Version::V5 {
                    wire::put_short_bytes(out, result_metadata_id);
                }
                parameters.encode(out, version);
            }
            ClientRequest::Batch { kind, statements, parameters } => {
                out.push(*kind as u8);
                wire::put_count(out, statements.len());
                statements.iter().for_each(|statement| statement.encode(out));
                wire::put_u16(out, parameters.consistency.code());
                let tail = Parameters {
                    values: BoundValues::None,
                    skip_metadata: false,
                    page_size: None,
                    paging_state: None,
                    ..*parameters
                };
                put_flags(out, version, tail.flags(version));
                tail.encode_tail(out, version);
            }
        }
    }
}

impl ClientBatchStatement<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let values = match self {
            ClientBatchStatement::Text(text, values) => {
                out.push(0);
                wire::put_long_string(out, text);
                values
            }
            ClientBatchStatement::Prepared(id, values) => {
                out.push(1);
                wire::put_short_bytes(out, id);
                values
            }
        };
        wire::put_count(out, values.len());
        values.iter().for_each(|value| put_value(out, *value));
    }
}

impl Parameters<'_> {
    fn flags(&self, version: Version) -> u32 {
        let is_v5 = version >= Version::V5;
        let conditions = [
            (!matches!(self.values, BoundValues::None), 0x01),
            (self.skip_metadata, 0x02),
            (self.page_size.is_some(), 0x04),
            (self.paging_state.is_some(), 0x08),
            (self.serial_consistency.is_some(), 0x10),
            (self.default_timestamp_us.is_some(), 0x20),
            (matches!(self.values, BoundValues::Named(_)), 0x40),
            (self.keyspace.is_some() && is_v5, 0x80),
            (self.now_in_seconds.is_some() && is_v5, 0x100),
        ];
        conditions.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum()
    }

    fn encode(&self, out: &mut Vec<u8>, version: Version) {
        wire::put_u16(out, self.consistency.code());
        put_flags(out, version, self.flags(version));
        match self.values {
            BoundValues::None => {}
            BoundValues::Positional(values) => {
                wire::put_count(out, values.len());
                values.iter().for_each(|value| put_value(out, *value));
            }
            BoundValues::Named(values) => {
                wire::put_count(out, values.len());
                for (name, value) in values {
                    wire::put_string(out, name);
                    put_value(out, *value);
                }
            }
        }
        if let Some(page_size) = self.page_size {
            wire::put_i32(out, page_size);
        }
        if let Some(paging_state) = self.paging_state {
            wire::put_bytes(out, paging_state);
        }
        self.encode_tail(out, version);
    }

    /// Encodes the fields that a batch has too.
    fn encode_tail(&self, out: &mut Vec<u8>, version: Version) {
        if let Some(level) = self.serial_consistency {
            wire::put_u16(out, level.code());
        }
        if let Some(timestamp_us) = self.default_timestamp_us {
            wire::put_i64(out, timestamp_us);
        }
        if version >= Version::V5 {
            self.keyspace.iter().for_each(|keyspace| wire::put_string(out, keyspace));
            self.now_in_seconds.iter().for_each(|&now| wire::put_i32(out, now));
        }
    }
}

fn put_flags(out: &mut Vec<u8>, version: Version, bits: u32) {
    if version >= Version::V5 {
        out.extend_from_slice(&bits.to_be_bytes());
    } else {
        out.push(bits as u8);
    }
}

fn put_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Set(bytes) => wire::put_bytes(out, bytes),
        Value::Null => wire::put_i32(out, -1),
        Value::Unset => wire::put_i32(out, -2),
    }
}

/// Whether a response refuses the version: drivers then connect again with a lower one.
pub fn is_unsupported_version(envelope: &Envelope<'_>) -> bool {
    const SIGN: &[u8] = b"unsupported protocol version";
    envelope.opcode == Opcode::Error && envelope.body.windows(SIGN.len()).any(|window| window == SIGN)
}
