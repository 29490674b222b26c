//! The receiving half of a connection (see [`super`]).
//!
//! Always true: after a fatal error nothing more is read. The parent module lists what is left out.

use crate::protocol::compression::{self, Compression, DecompressError};
use crate::protocol::envelope::{Envelope, FrameError, HEADER_BYTES, Header, Opcode, Role, flags};
use crate::protocol::error::CqlError;
use crate::protocol::segment::{self, Layout, SegmentHeader, TRAILER_BYTES};
use crate::protocol::version::Version;
use diorite_base::limits::MAX_FRAME_BYTES;
use std::fmt;
use std::ops::Range;

/// The largest body before STARTUP was answered: nothing that is legal then is longer.
const MAX_BODY_BYTES_BEFORE_STARTUP: usize = 64 << 10;
/// The room that a fresh connection reads into.
const FIRST_READ_BYTES: usize = 4 << 10;
/// Where the room for reading stops doubling.
const MAX_READ_BYTES: usize = 64 << 10;
/// Above this capacity an empty buffer is given back.
const MAX_IDLE_BUFFER_BYTES: usize = 256 << 10;

/// Cassandra's text.
fn too_big(length: usize, limit: usize) -> CqlError {
    CqlError::invalid(format!("Request is too big: length {length} exceeds maximum allowed length {limit}."))
}

/// Finds envelopes in received bytes.
pub struct Inbound {
    role: Role,
    max_body_bytes: usize,
    /// The version of the first message; all others must have it.
    version: Option<Version>,
    compression: Option<Compression>,
    /// Set when the connection speaks in segments.
    layout: Option<Layout>,
    is_dead: bool,
    input: Vec<u8>,
    /// `input[..position]` is done with.
    position: usize,
    /// The rest of the current segment, in `input` if it is not compressed, otherwise in `scratch`.
    payload: Payload,
    scratch: Vec<u8>,
    /// Parts of a message that is larger than a segment.
    parts: Vec<u8>,
    /// `parts` is a whole message, which has been handed out.
    are_parts_done: bool,
    /// The rest of a refused message, which is not kept.
    skip_bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Payload {
    is_in_scratch: bool,
    range: Range<usize>,
}

/// Where the body of a found message is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Input(usize),
    Scratch(usize),
    Parts,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    header: Header,
    opcode: Opcode,
    place: Place,
    body_bytes: usize,
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("role", &self.role)
            .field("version", &self.version)
            .field("compression", &self.compression)
            .field("layout", &self.layout)
            .field("unread_bytes", &(self.input.len() - self.position))
            .finish_non_exhaustive()
    }
}

impl Inbound {
    /// The receiving half of a fresh connection.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            max_body_bytes: if role == Role::Server { MAX_BODY_BYTES_BEFORE_STARTUP } else { MAX_FRAME_BYTES },
            version: None,
            compression: None,
            layout: None,
            is_dead: false,
            input: Vec::new(),
            position: 0,
            payload: Payload::default(),
            scratch: Vec::new(),
            parts: Vec::new(),
            are_parts_done: false,
            skip_bytes: 0,
        }
    }

    /// STARTUP has been answered: the rest of the connection is in this version and compression, and bodies may have full size.
    /// A client before v5 says so when it has sent STARTUP, as Cassandra compresses the answer already.
    pub fn start(&mut self, version: Version, compression: Option<Compression>) {
        assert!(compression.is_none_or(|compression| compression.is_in(version)), "STARTUP checked the compression");
        self.version = Some(version);
        self.compression = compression;
        self.max_body_bytes = MAX_FRAME_BYTES;
        self.layout = (version >= Version::V5).then_some(match compression {
            Some(_) => Layout::Compressed,
            None => Layout::Uncompressed,
        });
    }

    /// Changes the largest body that is accepted.
    pub fn set_max_body_bytes(&mut self, max_body_bytes: usize) {
        self.max_body_bytes = max_body_bytes;
    }

    /// The version of the connection, once the first message has shown it.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The buffer to append received bytes to, with space for a read. Decoded bytes are dropped first, so call it once
    /// per read.
    pub fn input(&mut self) -> &mut Vec<u8> {
        let was_full = self.input.len() == self.input.capacity();
        self.drop_consumed();
        let wanted = self.wanted_capacity(was_full);
        if wanted > self.input.capacity() {
            let more = wanted - self.input.len();
            self.input.reserve_exact(more);
        }
        &mut self.input
    }

    /// Drops decoded bytes.
    fn drop_consumed(&mut self) {
        if self.position == self.input.len() {
            self.input.clear();
            if self.input.capacity() > MAX_IDLE_BUFFER_BYTES {
                self.input = Vec::new();
            }
        } else if self.position > 0 {
            self.input.drain(..self.position);
        }
        if !self.payload.is_in_scratch && !self.payload.range.is_empty() {
            let range = &self.payload.range;
            self.payload.range = range.start - self.position..range.end - self.position;
        }
        self.position = 0;
    }

    /// The capacity of the input buffer before the next read, once decoded bytes are dropped.
    fn wanted_capacity(&self, was_full: bool) -> usize {
        let capacity = self.input.capacity();
        let unread_bytes = self.input.len() - self.position;
        let room_bytes =
            if was_full { (capacity * 2).clamp(FIRST_READ_BYTES, MAX_READ_BYTES) } else { FIRST_READ_BYTES / 4 };
        if capacity.saturating_sub(unread_bytes) >= room_bytes {
            return capacity;
        }
        let comfortable = unread_bytes + room_bytes.max(FIRST_READ_BYTES).max(unread_bytes);
        // Of a long message, at most the bytes that are still missing.
        match self.unfinished_bytes() {
            Some(missing) if missing > MAX_READ_BYTES => comfortable.min(unread_bytes + missing),
            _ => comfortable.min(unread_bytes + 2 * MAX_READ_BYTES),
        }
    }

    /// How much of a message in the plain framing is missing, if its header has arrived.
    fn unfinished_bytes(&self) -> Option<usize> {
        let unread = &self.input[self.position..];
        let header = Header::decode(unread, self.role).ok().flatten().filter(|_| self.layout.is_none())?;
        (HEADER_BYTES + header.body_bytes).checked_sub(unread.len())
    }

    /// How much the buffers may grow by the next read: this must be allowed before [`Inbound::input`] is called.
    pub fn growth_bytes(&self) -> usize {
        let is_done = self.position == self.input.len();
        let input_bytes = match is_done && self.input.capacity() > MAX_IDLE_BUFFER_BYTES {
            true => 0,
            false => self.wanted_capacity(self.input.len() == self.input.capacity()) - self.input.capacity(),
        };
        let parts_bytes = match self.parts.is_empty() || self.are_parts_done {
            true => 0,
            false => self.wanted_parts(segment::MAX_PAYLOAD_BYTES).saturating_sub(self.parts.capacity()),
        };
        input_bytes + parts_bytes
    }

    /// The capacity that the parts of a large message are given before `more` bytes are added.
    fn wanted_parts(&self, more: usize) -> usize {
        let needed = self.parts.len() + more;
        if needed <= self.parts.capacity() {
            return self.parts.capacity();
        }
        let whole = match Header::decode(&self.parts, self.role) {
            Ok(Some(header)) => HEADER_BYTES + header.body_bytes,
            _ => needed,
        };
        needed.max((2 * self.parts.len()).min(whole))
    }

    /// The buffer to append received bytes to, if there is room without letting it grow beyond `limit_bytes`: where there is no memory for [`Inbound::input`].
    pub fn input_within(&mut self, limit_bytes: usize) -> Option<&mut Vec<u8>> {
        self.drop_consumed();
        let capacity = self.input.capacity();
        if capacity < limit_bytes && capacity == self.input.len() {
            self.input.reserve_exact((limit_bytes - capacity).min(FIRST_READ_BYTES));
        }
        (self.input.capacity() > self.input.len()).then_some(&mut self.input)
    }

    /// Refuses the message under way, whose rest is not kept: `None` if there is none, or nothing is known of it yet.
    pub fn refuse_unfinished(&mut self, error: CqlError) -> Option<FrameError> {
        let (header, missing) = match self.layout {
            None => {
                let missing = self.unfinished_bytes().filter(|missing| *missing > 0)?;
                let header = Header::decode(&self.input[self.position..], self.role).ok().flatten()?;
                self.input = Vec::new();
                self.position = 0;
                (header, missing)
            }
            Some(_) if self.parts.is_empty() || self.are_parts_done => return None,
            Some(_) => {
                let header = Header::decode(&self.parts, self.role).ok().flatten()?;
                let missing = (HEADER_BYTES + header.body_bytes).checked_sub(self.parts.len())?;
                self.parts = Vec::new();
                (header, missing)
            }
        };
        self.skip_bytes = missing;
        Some(FrameError { error, stream: Some(header.stream), version: header.version, is_fatal: false })
    }

    /// Gives back large buffers whose content has been dealt with.
    pub fn release_done(&mut self) {
        let is_payload_elsewhere = self.payload.is_in_scratch || self.payload.range.is_empty();
        let is_done = self.position == self.input.len() && is_payload_elsewhere;
        if is_done && self.input.capacity() > MAX_IDLE_BUFFER_BYTES {
            self.input = Vec::new();
            self.position = 0;
        }
        if self.are_parts_done {
            self.are_parts_done = false;
            self.parts = Vec::new();
        }
        if !self.payload.is_in_scratch || self.payload.range.is_empty() {
            release_if_large(&mut self.scratch);
        }
    }

    /// Whether no message is underway. While one is, the connection bounds how long it may take.
    pub fn is_idle(&self) -> bool {
        self.position == self.input.len() && (self.parts.is_empty() || self.are_parts_done) && self.skip_bytes == 0
    }

    /// Memory of the buffers.
    #[inline]
    pub fn capacity_bytes(&self) -> usize {
        self.input.capacity() + self.parts.capacity() + self.scratch.capacity()
    }

    /// Gives back buffers that hold nothing.
    pub fn release_memory(&mut self) {
        if self.is_idle() && self.payload.range.is_empty() {
            self.input = Vec::new();
            self.position = 0;
            self.parts = Vec::new();
            self.are_parts_done = false;
            self.scratch = Vec::new();
        }
    }

    /// The next message, `None` when more bytes are needed. After an error that is not fatal, go on calling.
    #[allow(clippy::should_implement_trait, reason = "the messages borrow from self, which an Iterator's may not")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Envelope<'_>>, FrameError> {
        if self.is_dead {
            return Ok(None);
        }
        if self.are_parts_done {
            self.are_parts_done = false;
            self.parts = Vec::new();
        }
        let found = match self.layout {
            None => self.find_plain(),
            Some(layout) => self.find_in_segments(layout),
        };
        match found {
            Ok(Some(found)) => Ok(Some(self.envelope(found))),
            Ok(None) => Ok(None),
            Err(mut error) => {
                error.version = self.version.unwrap_or(error.version);
                self.is_dead = error.is_fatal;
                Err(error)
            }
        }
    }

    #[inline]
    fn envelope(&self, found: Found) -> Envelope<'_> {
        let Found { header, opcode, place, body_bytes } = found;
        let body = match place {
            Place::Input(start) => &self.input[start..start + body_bytes],
            Place::Scratch(start) => &self.scratch[start..start + body_bytes],
            Place::Parts => &self.parts[HEADER_BYTES..HEADER_BYTES + body_bytes],
        };
        Envelope { version: header.version, flags: header.flags, stream: header.stream, opcode, body }
    }

    /// Decides by the header whether a message is accepted.
    #[inline]
    fn judge(&mut self, header: &Header) -> Result<Opcode, FrameError> {
        let refuse =
            |is_fatal, error| Err(FrameError { error, stream: Some(header.stream), version: header.version, is_fatal });
        let version = *self.version.get_or_insert(header.version);
        if version != header.version {
            return refuse(true, wrong_version(header.version, version));
        }
        let limit = self.max_body_bytes;
        if header.body_bytes > limit {
            let size = header.body_bytes;
            return refuse(false, too_big(size, limit));
        }
        let Some(opcode) = Opcode::from_code(header.opcode) else {
            return refuse(false, CqlError::protocol(format!("unknown opcode 0x{:02X}", header.opcode)));
        };
        if opcode.is_request() != (self.role == Role::Server) {
            return refuse(false, CqlError::protocol(format!("opcode {} goes the other way", opcode.name())));
        }
        if self.layout.is_none() && header.flags & flags::COMPRESSED != 0 && self.compression.is_none() {
            return refuse(false, CqlError::protocol("a compressed message on a connection without compression"));
        }
        Ok(opcode)
    }

    /// Messages one after another: before STARTUP is answered, and before v5.
    #[inline]
    fn find_plain(&mut self) -> Result<Option<Found>, FrameError> {
        let skipped = self.skip_bytes.min(self.input.len() - self.position);
        self.position += skipped;
        self.skip_bytes -= skipped;
        if self.skip_bytes > 0 {
            return Ok(None);
        }
        let unread = &self.input[self.position..];
        let Some(header) = Header::decode(unread, self.role)? else { return Ok(None) };
        let unread_bytes = unread.len();
        let opcode = match self.judge(&header) {
            Ok(opcode) => opcode,
            Err(error) => {
                self.position += HEADER_BYTES;
                self.skip_bytes = header.body_bytes;
                return Err(error);
            }
        };
        if unread_bytes < HEADER_BYTES + header.body_bytes {
            return Ok(None);
        }
        let start = self.position + HEADER_BYTES;
        self.position = start + header.body_bytes;
        if header.flags & flags::COMPRESSED != 0 {
            return self.decompress(header, opcode, start).map(Some);
        }
        Ok(Some(Found { header, opcode, place: Place::Input(start), body_bytes: header.body_bytes }))
    }

    fn decompress(&mut self, header: Header, opcode: Opcode, start: usize) -> Result<Found, FrameError> {
        let compression = self.compression.expect("judged before: compressed messages need a compression");
        let body = &self.input[start..start + header.body_bytes];
        release_if_large(&mut self.scratch);
        match compression.decompress_body(body, &mut self.scratch, self.max_body_bytes) {
            Ok(body_bytes) => Ok(Found { header, opcode, place: Place::Scratch(0), body_bytes }),
            Err(error) => Err(FrameError {
                error: match error {
                    DecompressError::TooLarge { claimed_bytes, limit_bytes } => too_big(claimed_bytes, limit_bytes),
                    error => CqlError::protocol(error.to_string()),
                },
                stream: Some(header.stream),
                version: header.version,
                is_fatal: false,
            }),
        }
    }

    fn fatal(&self, message: impl Into<std::borrow::Cow<'static, str>>) -> FrameError {
        FrameError::fatal(self.version.unwrap_or(Version::HIGHEST), None, CqlError::protocol(message))
    }

    fn find_in_segments(&mut self, layout: Layout) -> Result<Option<Found>, FrameError> {
        loop {
            if !self.payload.range.is_empty() {
                return self.find_in_payload().map(Some);
            }
            let Some(is_self_contained) = self.next_segment(layout)? else { return Ok(None) };
            if is_self_contained {
                if !self.parts.is_empty() || self.skip_bytes > 0 {
                    return Err(self.fatal("a large message is interrupted by another"));
                }
            } else if let Some(found) = self.collect_part()? {
                return Ok(Some(found));
            }
        }
    }

    /// Checks the next segment and makes it the current one. Returns whether it is self-contained; `None` if more bytes
    /// are needed.
    #[inline]
    fn next_segment(&mut self, layout: Layout) -> Result<Option<bool>, FrameError> {
        let unread = &self.input[self.position..];
        let header = match SegmentHeader::decode(unread, layout) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.fatal(error.to_string())),
        };
        let Some(whole) = unread.get(layout.header_bytes()..header.segment_bytes(layout)) else { return Ok(None) };
        let (payload, trailer) = whole.split_at(whole.len() - TRAILER_BYTES);
        if let Err(error) = segment::check_payload(payload, trailer) {
            return Err(self.fatal(error.to_string()));
        }
        let start = self.position + layout.header_bytes();
        self.position += header.segment_bytes(layout);
        self.payload = match header.decompressed_bytes {
            None => Payload { is_in_scratch: false, range: start..start + header.payload_bytes },
            Some(length) => {
                release_if_large(&mut self.scratch);
                let limit = segment::MAX_PAYLOAD_BYTES;
                if compression::decompress_lz4(payload, length, &mut self.scratch, limit).is_err() {
                    return Err(self.fatal(segment::SegmentError::Decompression.to_string()));
                }
                Payload { is_in_scratch: true, range: 0..length }
            }
        };
        Ok(Some(header.is_self_contained))
    }

    fn payload_bytes(&self) -> &[u8] {
        let buffer = if self.payload.is_in_scratch { &self.scratch } else { &self.input };
        &buffer[self.payload.range.clone()]
    }

    /// Takes the next message of a self-contained segment.
    #[inline]
    fn find_in_payload(&mut self) -> Result<Found, FrameError> {
        const CUT: &str = "a self-contained segment ends inside a message";
        let payload = self.payload_bytes();
        let payload_bytes = payload.len();
        let Some(header) = Header::decode(payload, self.role)? else { return Err(self.fatal(CUT)) };
        if payload_bytes < HEADER_BYTES + header.body_bytes {
            return Err(self.fatal(CUT));
        }
        let start = self.payload.range.start + HEADER_BYTES;
        self.payload.range.start = start + header.body_bytes;
        let opcode = self.judge(&header)?;
        let place = if self.payload.is_in_scratch { Place::Scratch(start) } else { Place::Input(start) };
        Ok(Found { header, opcode, place, body_bytes: header.body_bytes })
    }

    /// Adds the current segment to a message that is larger than a segment; returns it once it is complete.
    fn collect_part(&mut self) -> Result<Option<Found>, FrameError> {
        const TOO_LONG: &str = "a segment holds more than the rest of its message";
        let part_bytes = self.payload.range.len();
        if self.skip_bytes > 0 {
            self.payload = Payload::default();
            self.skip_bytes = self.skip_bytes.checked_sub(part_bytes).ok_or_else(|| self.fatal(TOO_LONG))?;
            return Ok(None);
        }
        let payload = std::mem::take(&mut self.payload);
        let buffer = if payload.is_in_scratch { &self.scratch } else { &self.input };
        let wanted = self.wanted_parts(payload.range.len());
        self.parts.reserve_exact(wanted - self.parts.len());
        self.parts.extend_from_slice(&buffer[payload.range]);
        let Some(header) = Header::decode(&self.parts, self.role)? else { return Ok(None) };
        let missing = (HEADER_BYTES + header.body_bytes).checked_sub(self.parts.len());
        let missing = missing.ok_or_else(|| self.fatal(TOO_LONG))?;
        match self.judge(&header) {
            Ok(_) if missing > 0 => Ok(None),
            Ok(opcode) => {
                self.are_parts_done = true;
                Ok(Some(Found { header, opcode, place: Place::Parts, body_bytes: header.body_bytes }))
            }
            Err(error) => {
                self.parts = Vec::new();
                self.skip_bytes = missing;
                Err(error)
            }
        }
    }
}

fn wrong_version(got: Version, expected: Version) -> CqlError {
    CqlError::protocol(format!(
        "message in version {} on a connection that began with version {}",
        got.number(),
        expected.number()
    ))
}

fn release_if_large(buffer: &mut Vec<u8>) {
    if buffer.capacity() > segment::MAX_PAYLOAD_BYTES + 1 {
        *buffer = Vec::new();
    }
}
