//! Compression of message bodies (before v5) and of segment payloads (v5).
//!
//! Always true: the claimed size of a compressed body is checked against a limit, and against what its algorithm can
//! reach from the given bytes, before memory is taken. Left out: when to compress; [`super::framing::Outbound`]
//! decides.

use super::version::Version;
use lz4_flex::block::{self, CompressTable};
use std::fmt;
use thiserror::Error;

/// A compression that a client may ask for in STARTUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZ4 blocks
    Lz4,
    /// Snappy's raw format (before v5)
    Snappy,
}

/// The most that one compressed byte can become: LZ4's match lengths grow by 255 per byte; Snappy reaches less.
const MAX_EXPANSION: usize = 255;
/// Slack for inputs of a few bytes.
const MAX_EXPANSION_BASE_BYTES: usize = 64;

/// A body that does not decompress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecompressError {
    /// The bytes are not of the format.
    #[error("the compressed body is corrupt")]
    Corrupt,
    /// More than may be.
    #[error("the body decompresses to {claimed_bytes} bytes, over the limit of {limit_bytes}")]
    TooLarge {
        /// The claimed size
        claimed_bytes: usize,
        /// The limit
        limit_bytes: usize,
    },
}

impl Compression {
    /// The algorithms that a server offers.
    pub const ALL: [Compression; 2] = [Compression::Lz4, Compression::Snappy];

    /// The compression with this name, in any case.
    pub fn from_name(name: &str) -> Option<Compression> {
        Compression::ALL.into_iter().find(|compression| compression.name().eq_ignore_ascii_case(name))
    }

    /// The name in STARTUP and SUPPORTED.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Snappy => "snappy",
        }
    }

    /// Whether this version of the protocol has it.
    pub fn is_in(self, version: Version) -> bool {
        self == Compression::Lz4 || version < Version::V5
    }

    /// Decompresses a body as versions before v5 have it; returns it as a part of `scratch`, which grows and is reused.
    pub(super) fn decompress_body(
        self,
        body: &[u8],
        scratch: &mut Vec<u8>,
        limit_bytes: usize,
    ) -> Result<usize, DecompressError> {
        if body.is_empty() {
            return Ok(0);
        }
        match self {
            Compression::Lz4 => {
                let (length, block) = body.split_first_chunk::<4>().ok_or(DecompressError::Corrupt)?;
                decompress_lz4(block, u32::from_be_bytes(*length) as usize, scratch, limit_bytes)
            }
            Compression::Snappy => {
                let length = snap::raw::decompress_len(body).map_err(|_| DecompressError::Corrupt)?;
                let target = reserve(scratch, body.len(), length, limit_bytes)?;
                let written =
                    snap::raw::Decoder::new().decompress(body, target).map_err(|_| DecompressError::Corrupt)?;
                if written == length { Ok(length) } else { Err(DecompressError::Corrupt) }
            }
        }
    }
}

/// Decompresses a bare LZ4 block that must become exactly `length` bytes.
pub(super) fn decompress_lz4(
    input: &[u8],
    length: usize,
    scratch: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<usize, DecompressError> {
    let target = reserve(scratch, input.len(), length, limit_bytes)?;
    match block::decompress_into(input, target) {
        Ok(written) if written == length => Ok(length),
        _ => Err(DecompressError::Corrupt),
    }
}

fn reserve(
    scratch: &mut Vec<u8>,
    input_bytes: usize,
    claimed_bytes: usize,
    limit_bytes: usize,
) -> Result<&mut [u8], DecompressError> {
    if claimed_bytes > limit_bytes {
        return Err(DecompressError::TooLarge { claimed_bytes, limit_bytes });
    }
    if claimed_bytes > input_bytes.saturating_mul(MAX_EXPANSION).saturating_add(MAX_EXPANSION_BASE_BYTES) {
        return Err(DecompressError::Corrupt);
    }
    if scratch.len() < claimed_bytes {
        scratch.resize(claimed_bytes, 0);
    }
    Ok(&mut scratch[..claimed_bytes])
}

/// Compresses with tables that are kept between messages.
pub(super) enum Compressor {
    /// LZ4
    Lz4(Box<CompressTable>),
    /// Snappy
    Snappy(Box<snap::raw::Encoder>),
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compressor::Lz4(_) => "Lz4",
            Compressor::Snappy(_) => "Snappy",
        })
    }
}

impl Compressor {
    pub fn new(compression: Compression) -> Self {
        match compression {
            Compression::Lz4 => Compressor::Lz4(Box::new(CompressTable::small())),
            Compression::Snappy => Compressor::Snappy(Box::new(snap::raw::Encoder::new())),
        }
    }

    /// Appends the compressed form of `body` in the format of versions before v5. Returns false, and appends nothing,
    /// if that would not be smaller.
    pub fn compress_body(&mut self, body: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Compressor::Lz4(table) => {
                let start = out.len();
                out.extend_from_slice(&(body.len() as u32).to_be_bytes());
                let is_smaller = compress_lz4(table, body, out) && out.len() - start < body.len();
                if !is_smaller {
                    out.truncate(start);
                }
                is_smaller
            }
            Compressor::Snappy(encoder) => {
                append_if_smaller(body, out, snap::raw::max_compress_len(body.len()), |target| {
                    encoder.compress(body, target).ok()
                })
            }
        }
    }
}

/// Appends a bare LZ4 block if that is smaller than `input`; returns whether it did.
pub(super) fn compress_lz4(table: &mut CompressTable, input: &[u8], out: &mut Vec<u8>) -> bool {
    append_if_smaller(input, out, block::get_maximum_output_size(input.len()), |target| {
        block::compress_into_with_table(input, target, table).ok()
    })
}

fn append_if_smaller(
    input: &[u8],
    out: &mut Vec<u8>,
    room_bytes: usize,
    compress: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> bool {
    let start = out.len();
    out.resize(start + room_bytes, 0);
    let written = compress(&mut out[start..]).filter(|&written| written < input.len());
    out.truncate(start + written.unwrap_or(0));
    written.is_some()
}
