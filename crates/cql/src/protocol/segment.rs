//! v5's segments: up to 128 KiB of envelopes between a header with a CRC24 and a trailer with a CRC32.
//!
//! Always true: a length is believed only after its CRC24 matched, a payload only after its CRC32 did. The checksums are the published ones;
//! every single flipped bit is noticed. Left out: which envelopes a payload holds ([`super::framing`]).

use super::compression;
use lz4_flex::block::CompressTable;
use thiserror::Error;

/// The most a payload holds, in bytes, compressed or not.
pub const MAX_PAYLOAD_BYTES: usize = (1 << 17) - 1;
/// The size of the trailer, in bytes.
pub const TRAILER_BYTES: usize = 4;

const CRC24_BYTES: usize = 3;
const CRC24_INITIAL: u32 = 0x0087_5060;
const CRC24_POLYNOMIAL: u32 = 0x0197_4F0B;
/// The initial bytes of every payload's CRC32, so that a payload of zeros has no CRC of zero.
const CRC32_PREFIX: [u8; 4] = [0xFA, 0x2D, 0x55, 0xCA];

/// The two layouts of a segment's header; which one is used was agreed in STARTUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// 17 bits length, 1 bit "self-contained"
    Uncompressed,
    /// 17 bits compressed length, 17 bits uncompressed length, 1 bit "self-contained"
    Compressed,
}

/// A segment that was damaged on its way, or never was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// The header's CRC24 differs.
    #[error("the checksum of a segment header does not match")]
    HeaderChecksum,
    /// The payload's CRC32 differs.
    #[error("the checksum of a segment payload does not match")]
    PayloadChecksum,
    /// The payload does not decompress to the length its header gives.
    #[error("a segment payload does not decompress")]
    Decompression,
}

impl Layout {
    /// The size of the header's fields without their checksum.
    const fn field_bytes(self) -> usize {
        match self {
            Layout::Uncompressed => 3,
            Layout::Compressed => 5,
        }
    }

    /// The size of a header, in bytes.
    pub const fn header_bytes(self) -> usize {
        self.field_bytes() + CRC24_BYTES
    }
}

/// A header whose checksum matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The payload's size on the wire.
    pub payload_bytes: usize,
    /// The decompressed size; `None` when it is not compressed.
    pub decompressed_bytes: Option<usize>,
    /// Whether the payload holds whole envelopes, not a part of a large one.
    pub is_self_contained: bool,
}

impl SegmentHeader {
    /// Reads a header; `None` when there are too few bytes.
    #[inline]
    pub fn decode(bytes: &[u8], layout: Layout) -> Result<Option<SegmentHeader>, SegmentError> {
        let Some(header) = bytes.get(..layout.header_bytes()) else { return Ok(None) };
        let (fields, checksum) = header.split_at(layout.field_bytes());
        if crc24(fields).to_le_bytes()[..CRC24_BYTES] != *checksum {
            return Err(SegmentError::HeaderChecksum);
        }
        let mut bits = [0u8; 8];
        bits[..fields.len()].copy_from_slice(fields);
        let bits = u64::from_le_bytes(bits);
        let length_at = |shift: u32| (bits >> shift) as usize & MAX_PAYLOAD_BYTES;
        Ok(Some(match layout {
            Layout::Uncompressed => SegmentHeader {
                payload_bytes: length_at(0),
                decompressed_bytes: None,
                is_self_contained: bits >> 17 & 1 != 0,
            },
            Layout::Compressed => SegmentHeader {
                payload_bytes: length_at(0),
                decompressed_bytes: Some(length_at(17)).filter(|&length| length > 0),
                is_self_contained: bits >> 34 & 1 != 0,
            },
        }))
    }

    fn write(&self, target: &mut [u8], layout: Layout) {
        assert!(self.payload_bytes <= MAX_PAYLOAD_BYTES, "segment payloads are cut to size before");
        let flag = u64::from(self.is_self_contained);
        let bits = match layout {
            Layout::Uncompressed => self.payload_bytes as u64 | flag << 17,
            Layout::Compressed => {
                self.payload_bytes as u64 | (self.decompressed_bytes.unwrap_or(0) as u64) << 17 | flag << 34
            }
        };
        let (fields, checksum) = target.split_at_mut(layout.field_bytes());
        fields.copy_from_slice(&bits.to_le_bytes()[..fields.len()]);
        checksum.copy_from_slice(&crc24(fields).to_le_bytes()[..CRC24_BYTES]);
    }

    /// The size of the whole segment.
    pub fn segment_bytes(&self, layout: Layout) -> usize {
        layout.header_bytes() + self.payload_bytes + TRAILER_BYTES
    }
}

/// Compares a payload with its trailer.
#[inline]
pub(super) fn check_payload(payload: &[u8], trailer: &[u8]) -> Result<(), SegmentError> {
    if crc32(payload).to_le_bytes() == *trailer { Ok(()) } else { Err(SegmentError::PayloadChecksum) }
}

/// Makes room for a header at the end of `out`; the payload is appended next, then [`close`]d.
#[inline]
pub(super) fn open(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; Layout::Uncompressed.header_bytes()]);
    start
}

/// Completes the uncompressed segment that was opened at `start`. One without a payload is taken back.
#[inline]
pub(super) fn close(out: &mut Vec<u8>, start: usize, is_self_contained: bool) {
    let payload_at = start + Layout::Uncompressed.header_bytes();
    let payload_bytes = out.len() - payload_at;
    if payload_bytes == 0 {
        return out.truncate(start);
    }
    let header = SegmentHeader { payload_bytes, decompressed_bytes: None, is_self_contained };
    header.write(&mut out[start..payload_at], Layout::Uncompressed);
    let checksum = crc32(&out[payload_at..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Appends a segment with this payload.
pub(super) fn put(out: &mut Vec<u8>, payload: &[u8], is_self_contained: bool) {
    let start = open(out);
    out.extend_from_slice(payload);
    close(out, start, is_self_contained);
}

/// Appends a segment with this payload, compressed where that makes it smaller.
pub(super) fn put_compressed(out: &mut Vec<u8>, table: &mut CompressTable, payload: &[u8], is_self_contained: bool) {
    const LAYOUT: Layout = Layout::Compressed;
    let start = out.len();
    let payload_at = start + LAYOUT.header_bytes();
    out.resize(payload_at, 0);
    let is_compressed = compression::compress_lz4(table, payload, out);
    if !is_compressed {
        out.extend_from_slice(payload);
    }
    let header = SegmentHeader {
        payload_bytes: out.len() - payload_at,
        decompressed_bytes: is_compressed.then_some(payload.len()),
        is_self_contained,
    };
    header.write(&mut out[start..payload_at], LAYOUT);
    let checksum = crc32(&out[payload_at..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// The header's checksum.
fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_INITIAL, |crc, &byte| {
        let index = (crc >> 16) as u8 ^ byte;
        (crc << 8 & 0x00FF_FFFF) ^ CRC24_TABLE[usize::from(index)]
    })
}

const CRC24_TABLE: [u32; 256] = crc24_table();

const fn crc24_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = (index as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// The payload's checksum.
#[inline]
fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&CRC32_PREFIX);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The algorithm as the specification writes it, bit by bit.
    fn crc24_by_bit(bytes: &[u8]) -> u32 {
        bytes.iter().fold(CRC24_INITIAL, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte) << 16, |crc, _| {
                let shifted = crc << 1;
                if shifted & 0x0100_0000 != 0 { shifted ^ CRC24_POLYNOMIAL } else { shifted }
            })
        })
    }

    #[test]
    fn the_table_gives_the_specified_checksum() {
        for sample in [[0u8; 5], [0xFF; 5], [1, 2, 3, 4, 5], *b"\x80\x00\x7F\xAA\x55"] {
            assert_eq!(crc24(&sample), crc24_by_bit(&sample));
            assert_eq!(crc24(&sample[..3]), crc24_by_bit(&sample[..3]));
        }
    }

    #[test]
    fn an_empty_payload_has_the_checksum_of_the_prefix() {
        assert_eq!(crc32(b""), crc32fast::hash(&CRC32_PREFIX));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        for layout in [Layout::Uncompressed, Layout::Compressed] {
            let decompressed_bytes = (layout == Layout::Compressed).then_some(777);
            let header = SegmentHeader { payload_bytes: 4711, decompressed_bytes, is_self_contained: true };
            let mut bytes = [0; 8];
            let bytes = &mut bytes[..layout.header_bytes()];
            header.write(bytes, layout);
            assert_eq!(SegmentHeader::decode(bytes, layout), Ok(Some(header)));
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(SegmentHeader::decode(bytes, layout), Err(SegmentError::HeaderChecksum));
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
