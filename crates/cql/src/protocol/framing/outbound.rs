//! The sending half of a connection (see [`super`]).
//!
//! Always true: committed bytes are whole messages; wire bytes come in the order of the commits. The parent module
//! lists what is left out.

use crate::protocol::compression::{Compression, Compressor};
use crate::protocol::envelope::{HEADER_BYTES, flags};
use crate::protocol::segment::{self, Layout, MAX_PAYLOAD_BYTES};
use crate::protocol::version::Version;
use lz4_flex::block::CompressTable;
use std::fmt;

/// Bodies below this size are not worth compressing, in bytes.
const COMPRESSION_THRESHOLD_BYTES: usize = 512;
/// Above this capacity an empty buffer is given back.
const MAX_IDLE_BUFFER_BYTES: usize = 256 << 10;

/// Turns encoded messages into wire bytes.
#[derive(Debug)]
pub struct Outbound {
    framing: Framing,
    /// Wire bytes; in an open segment also messages that were encoded in place.
    out: Vec<u8>,
    /// `out[..sent]` has been sent.
    sent: usize,
    /// Messages that are not in their wire form yet: about to be compressed, or too long for the open segment.
    staging: Vec<u8>,
}

enum Framing {
    Plain,
    CompressedBodies(Compressor),
    Segments { open: Option<OpenSegment> },
    CompressedSegments(Box<CompressTable>),
}

/// A segment that messages are being encoded into.
#[derive(Clone, Copy, Debug)]
struct OpenSegment {
    header_at: usize,
    /// Where the messages that are not committed begin.
    committed: usize,
}

impl fmt::Debug for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Framing::Plain => "Plain",
            Framing::CompressedBodies(_) => "CompressedBodies",
            Framing::Segments { .. } => "Segments",
            Framing::CompressedSegments(_) => "CompressedSegments",
        })
    }
}

impl Default for Outbound {
    fn default() -> Self {
        Self::new()
    }
}

impl Outbound {
    /// The sending half of a fresh connection.
    pub fn new() -> Self {
        Self { framing: Framing::Plain, out: Vec::new(), sent: 0, staging: Vec::new() }
    }

    /// STARTUP has been answered and the answer committed: later messages use this version and compression.
    pub fn start(&mut self, version: Version, compression: Option<Compression>) {
        assert!(compression.is_none_or(|compression| compression.is_in(version)), "STARTUP checked the compression");
        self.framing = match (version >= Version::V5, compression) {
            (false, None) => Framing::Plain,
            (false, Some(compression)) => Framing::CompressedBodies(Compressor::new(compression)),
            (true, None) => Framing::Segments { open: None },
            (true, Some(_)) => Framing::CompressedSegments(Box::new(CompressTable::small())),
        };
    }

    /// The buffer to append whole messages to, followed by [`Outbound::commit`].
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        match &mut self.framing {
            Framing::Plain => &mut self.out,
            Framing::Segments { open } => {
                if open.is_none() {
                    let header_at = segment::open(&mut self.out);
                    *open = Some(OpenSegment { header_at, committed: self.out.len() });
                }
                &mut self.out
            }
            Framing::CompressedBodies(_) | Framing::CompressedSegments(_) => &mut self.staging,
        }
    }

    /// Commits the bytes that were appended to [`Outbound::buffer`] since the last commit.
    #[inline]
    pub fn commit(&mut self) {
        match &mut self.framing {
            Framing::Plain => {}
            Framing::Segments { .. } => self.commit_to_segment(),
            Framing::CompressedBodies(compressor) => {
                for message in messages(&self.staging) {
                    put_compressed_body(&mut self.out, compressor, message);
                }
                self.staging.clear();
            }
            // A segment compresses better the fuller it is: compress when it is full or about to be sent.
            Framing::CompressedSegments(_) => {
                if self.staging.len() > MAX_PAYLOAD_BYTES {
                    self.flush_compressed_segments();
                }
            }
        }
    }

    /// The next bytes to send.
    #[inline]
    pub fn wire_bytes(&mut self) -> &[u8] {
        match &mut self.framing {
            Framing::Plain | Framing::CompressedBodies(_) => {}
            Framing::Segments { open } => {
                if let Some(open) = open.take() {
                    segment::close(&mut self.out, open.header_at, true);
                }
            }
            Framing::CompressedSegments(_) => self.flush_compressed_segments(),
        }
        &self.out[self.sent..]
    }

    /// The first `count` of [`Outbound::wire_bytes`] have been sent.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.out.len(), "no more can be sent than there is");
        let has_open_segment = matches!(self.framing, Framing::Segments { open: Some(_) });
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            release_if_large(&mut self.out);
            release_if_large(&mut self.staging);
        } else if self.sent > MAX_IDLE_BUFFER_BYTES && self.sent > self.out.len() / 2 && !has_open_segment {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// How much is waiting to be sent, in bytes.
    pub fn pending_bytes(&self) -> usize {
        self.out.len() - self.sent + self.staging.len()
    }

    /// Whether nothing is waiting to be sent.
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0
    }

    /// Memory of the buffers.
    #[inline]
    pub fn capacity_bytes(&self) -> usize {
        self.out.capacity() + self.staging.capacity()
    }

    /// Gives back buffers that hold nothing.
    pub fn release_memory(&mut self) {
        if self.is_empty() {
            self.sent = 0;
            self.out = Vec::new();
            self.staging = Vec::new();
        }
    }

    /// Messages were encoded into the open segment. Those that fit stay; the first that does not, and all after it,
    /// move on.
    #[inline]
    fn commit_to_segment(&mut self) {
        let Framing::Segments { open: Some(open) } = &mut self.framing else { return };
        let payload_at = open.header_at + Layout::Uncompressed.header_bytes();
        if self.out.len() - payload_at <= MAX_PAYLOAD_BYTES {
            open.committed = self.out.len();
        } else {
            self.split_open_segment();
        }
    }

    fn split_open_segment(&mut self) {
        let Framing::Segments { open } = &mut self.framing else { return };
        let Some(OpenSegment { mut header_at, committed }) = open.take() else { return };
        self.staging.extend_from_slice(&self.out[committed..]);
        self.out.truncate(committed);
        for message in messages(&self.staging) {
            let payload_bytes = self.out.len() - header_at - Layout::Uncompressed.header_bytes();
            if payload_bytes + message.len() > MAX_PAYLOAD_BYTES {
                segment::close(&mut self.out, header_at, true);
                if message.len() > MAX_PAYLOAD_BYTES {
                    message.chunks(MAX_PAYLOAD_BYTES).for_each(|part| segment::put(&mut self.out, part, false));
                }
                header_at = segment::open(&mut self.out);
            }
            if message.len() <= MAX_PAYLOAD_BYTES {
                self.out.extend_from_slice(message);
            }
        }
        self.staging.clear();
        *open = Some(OpenSegment { header_at, committed: self.out.len() });
    }

    fn flush_compressed_segments(&mut self) {
        let Framing::CompressedSegments(table) = &mut self.framing else { return };
        let mut payload = 0..0;
        for message in messages(&self.staging) {
            if payload.len() + message.len() > MAX_PAYLOAD_BYTES {
                put_compressed_segment(&mut self.out, table, &self.staging[payload.clone()]);
                payload.start = payload.end;
            }
            payload.end += message.len();
            if message.len() > MAX_PAYLOAD_BYTES {
                for part in message.chunks(MAX_PAYLOAD_BYTES) {
                    segment::put_compressed(&mut self.out, table, part, false);
                }
                payload.start = payload.end;
            }
        }
        put_compressed_segment(&mut self.out, table, &self.staging[payload]);
        self.staging.clear();
    }
}

fn put_compressed_segment(out: &mut Vec<u8>, table: &mut CompressTable, payload: &[u8]) {
    if !payload.is_empty() {
        segment::put_compressed(out, table, payload, true);
    }
}

/// Cuts a buffer into the whole messages it holds.
fn messages(mut buffer: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let header = buffer.first_chunk::<HEADER_BYTES>()?;
        let body_bytes = u32::from_be_bytes([header[5], header[6], header[7], header[8]]) as usize;
        let (message, rest) = buffer.split_at(HEADER_BYTES + body_bytes);
        buffer = rest;
        Some(message)
    })
}

/// Appends a message, its body compressed where that makes it smaller.
fn put_compressed_body(out: &mut Vec<u8>, compressor: &mut Compressor, message: &[u8]) {
    let (header, body) = message.split_at(HEADER_BYTES);
    let start = out.len();
    out.extend_from_slice(header);
    if body.len() < COMPRESSION_THRESHOLD_BYTES || !compressor.compress_body(body, out) {
        return out.extend_from_slice(body);
    }
    let body_bytes = out.len() - start - HEADER_BYTES;
    out[start + 1] |= flags::COMPRESSED;
    out[start + HEADER_BYTES - 4..start + HEADER_BYTES].copy_from_slice(&(body_bytes as u32).to_be_bytes());
}

fn release_if_large(buffer: &mut Vec<u8>) {
    if buffer.is_empty() && buffer.capacity() > MAX_IDLE_BUFFER_BYTES {
        *buffer = Vec::new();
    }
}
