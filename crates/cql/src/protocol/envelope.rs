//! Envelopes: the 9-byte header that precedes every message, in all versions.
//!
//! Always true: a header is judged before anything of its body is buffered, and an [`Envelope`] borrows its body. A
//! [`FrameError`] holds the answer, its stream, and whether the connection can continue. Left out: how envelopes are
//! found in a byte stream ([`super::framing`]), and the content of bodies.

use super::error::CqlError;
use super::version::Version;

/// The size of a header, in bytes.
pub const HEADER_BYTES: usize = 9;

/// The protocol's own limit on a body, in bytes. A longer one cannot be meant.
pub const PROTOCOL_MAX_BODY_BYTES: usize = 256 << 20;

const DIRECTION: u8 = 0x80;

/// Bits of a header's flags.
pub mod flags {
    /// The body is compressed (before v5).
    pub const COMPRESSED: u8 = 0x01;
    /// A request asks for tracing; a response begins with a tracing id.
    pub const TRACING: u8 = 0x02;
    /// The body begins with a custom payload (v4).
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// A response carries warnings (v4).
    pub const WARNING: u8 = 0x08;
    /// The client opts in to a version that is not final.
    pub const BETA: u8 = 0x10;
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Response
    Error = 0x00,
    /// Request
    Startup = 0x01,
    /// Response
    Ready = 0x02,
    /// Response
    Authenticate = 0x03,
    /// Request
    Options = 0x05,
    /// Response
    Supported = 0x06,
    /// Request
    Query = 0x07,
    /// Response
    Result = 0x08,
    /// Request
    Prepare = 0x09,
    /// Request
    Execute = 0x0A,
    /// Request
    Register = 0x0B,
    /// Response
    Event = 0x0C,
    /// Request
    Batch = 0x0D,
    /// Response
    AuthChallenge = 0x0E,
    /// Request
    AuthResponse = 0x0F,
    /// Response
    AuthSuccess = 0x10,
}

impl Opcode {
    /// Every opcode.
    pub const ALL: [Opcode; 16] = [
        Opcode::Error,
        Opcode::Startup,
        Opcode::Ready,
        Opcode::Authenticate,
        Opcode::Options,
        Opcode::Supported,
        Opcode::Query,
        Opcode::Result,
        Opcode::Prepare,
        Opcode::Execute,
        Opcode::Register,
        Opcode::Event,
        Opcode::Batch,
        Opcode::AuthChallenge,
        Opcode::AuthResponse,
        Opcode::AuthSuccess,
    ];

    /// The opcode with this code.
    #[inline]
    pub fn from_code(code: u8) -> Option<Opcode> {
        Some(match code {
            0x00 => Opcode::Error,
            0x01 => Opcode::Startup,
            0x02 => Opcode::Ready,
            0x03 => Opcode::Authenticate,
            0x05 => Opcode::Options,
            0x06 => Opcode::Supported,
            0x07 => Opcode::Query,
            0x08 => Opcode::Result,
            0x09 => Opcode::Prepare,
            0x0A => Opcode::Execute,
            0x0B => Opcode::Register,
            0x0C => Opcode::Event,
            0x0D => Opcode::Batch,
            0x0E => Opcode::AuthChallenge,
            0x0F => Opcode::AuthResponse,
            0x10 => Opcode::AuthSuccess,
            _ => return None,
        })
    }

    /// Whether clients send it.
    #[inline]
    pub fn is_request(self) -> bool {
        matches!(
            self,
            Opcode::Startup
                | Opcode::Options
                | Opcode::Query
                | Opcode::Prepare
                | Opcode::Execute
                | Opcode::Register
                | Opcode::Batch
                | Opcode::AuthResponse
        )
    }

    /// The name in the protocol's specification.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Error => "ERROR",
            Opcode::Startup => "STARTUP",
            Opcode::Ready => "READY",
            Opcode::Authenticate => "AUTHENTICATE",
            Opcode::Options => "OPTIONS",
            Opcode::Supported => "SUPPORTED",
            Opcode::Query => "QUERY",
            Opcode::Result => "RESULT",
            Opcode::Prepare => "PREPARE",
            Opcode::Execute => "EXECUTE",
            Opcode::Register => "REGISTER",
            Opcode::Event => "EVENT",
            Opcode::Batch => "BATCH",
            Opcode::AuthChallenge => "AUTH_CHALLENGE",
            Opcode::AuthResponse => "AUTH_RESPONSE",
            Opcode::AuthSuccess => "AUTH_SUCCESS",
        }
    }
}

/// Which end of a connection reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Reads requests.
    Server,
    /// Reads responses.
    Client,
}

/// A message as it came, its body no longer compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Its version.
    pub version: Version,
    /// See [`flags`].
    pub flags: u8,
    /// Which request it belongs to.
    pub stream: i16,
    /// Its kind.
    pub opcode: Opcode,
    /// Its body.
    pub body: &'a [u8],
}

/// Something that is not a message of this connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The answer.
    pub error: CqlError,
    /// The stream of the answer; `None` if the input does not show it (answer on stream 0).
    pub stream: Option<i16>,
    /// The version to answer in.
    pub version: Version,
    /// Whether the connection must be closed after the answer, because the rest cannot be understood. Otherwise the
    /// offending message is skipped and reading continues.
    pub is_fatal: bool,
}

impl FrameError {
    pub(super) fn fatal(version: Version, stream: Option<i16>, error: CqlError) -> Self {
        Self { error, stream, version, is_fatal: true }
    }
}

/// A header, as far as it can be judged on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub version: Version,
    pub flags: u8,
    pub stream: i16,
    /// Judged after the body is skippable, as an unknown opcode does not end the connection.
    pub opcode: u8,
    pub body_bytes: usize,
}

impl Header {
    /// Reads a header from the start of `bytes`; `None` if there are too few bytes.
    #[inline]
    pub fn decode(bytes: &[u8], role: Role) -> Result<Option<Header>, FrameError> {
        let Some(first) = bytes.first() else { return Ok(None) };
        let Some(version) = Version::from_number(first & !DIRECTION) else { return unsupported_version(bytes) };
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let stream = i16::from_be_bytes([header[2], header[3]]);
        let is_response = first & DIRECTION != 0;
        if is_response != (role == Role::Client) {
            let message =
                if is_response { "a response was sent to a server" } else { "a request was sent to a client" };
            return Err(FrameError::fatal(version, Some(stream), CqlError::protocol(message)));
        }
        let length = i32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        match usize::try_from(length) {
            Ok(body_bytes) if body_bytes <= PROTOCOL_MAX_BODY_BYTES => {
                Ok(Some(Header { version, flags: header[1], stream, opcode: header[4], body_bytes }))
            }
            _ => {
                let error = CqlError::protocol(format!(
                    "body length {length} is outside the protocol's 0 to {PROTOCOL_MAX_BODY_BYTES} bytes"
                ));
                Err(FrameError::fatal(version, Some(stream), error))
            }
        }
    }

    /// Appends the header.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>, role: Role) {
        // The direction is the writer's: servers write responses.
        let direction = if role == Role::Server { DIRECTION } else { 0 };
        let stream = self.stream.to_be_bytes();
        let length = (self.body_bytes as u32).to_be_bytes();
        out.extend_from_slice(&[
            self.version.number() | direction,
            self.flags,
            stream[0],
            stream[1],
            self.opcode,
            length[0],
            length[1],
            length[2],
            length[3],
        ]);
    }
}

/// Refuses a version in words that drivers look for when they negotiate down. The stream is read from where that version keeps it
/// (v1 and v2 have one byte), so four bytes are waited for.
fn unsupported_version(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
    let Some(&[first, _, high, low]) = bytes.first_chunk::<4>() else { return Ok(None) };
    let number = first & !DIRECTION;
    let stream = if number < 3 { i16::from(high as i8) } else { i16::from_be_bytes([high, low]) };
    let message =
        format!("Invalid or unsupported protocol version ({number}); supported versions are (3/v3, 4/v4, 5/v5)");
    Err(FrameError::fatal(Version::HIGHEST, Some(stream), CqlError::protocol(message)))
}
