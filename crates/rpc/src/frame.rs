//! Frames as bytes: length and checksum of the body, then the body.
//!
//! Always true: a length over the limit is refused before memory is allocated for it, and memory grows with the bytes
//! that have arrived, not with a claimed length.

use bytes::{Buf, BytesMut};
use diorite_base::limits;
use thiserror::Error;

/// The largest body of a frame.
pub const MAX_FRAME_BYTES: usize = limits::MAX_NODE_FRAME_BYTES;

/// Length (u32) and CRC-32 of the body (u32), both little-endian.
pub(crate) const HEADER_BYTES: usize = 8;

/// Space kept free for the next read.
const READ_BYTES: usize = 64 << 10;
/// A larger buffer is freed once it is empty.
pub(crate) const KEPT_BYTES: usize = 1 << 20;

/// The bytes are no frame: the connection is closed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum BadFrame {
    #[error("a frame of {0} bytes is over the limit of {1} bytes")]
    TooLarge(usize, usize),
    #[error("the checksum of a frame of {0} bytes is wrong")]
    Checksum(usize),
}

/// Appends `body` as a frame.
pub(crate) fn put_frame(out: &mut Vec<u8>, body: &[u8]) {
    debug_assert!(body.len() <= MAX_FRAME_BYTES, "checked by the sender");
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    out.extend_from_slice(body);
}

/// The bytes of the first of several whole frames, with its header.
pub(crate) fn framed_bytes(frames: &[u8]) -> usize {
    frames.first_chunk::<4>().map_or(frames.len(), |length| HEADER_BYTES + u32::from_le_bytes(*length) as usize)
}

/// The bodies of whole frames.
pub(crate) fn bodies(mut frames: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !frames.is_empty() {
        let (frame, rest) = frames.split_at(framed_bytes(frames).min(frames.len()));
        found.push(frame.get(HEADER_BYTES..).unwrap_or_default());
        frames = rest;
    }
    found
}

/// Bytes as they arrive, cut into frames.
pub(crate) struct Incoming {
    buffer: BytesMut,
    max_bytes: usize,
}

impl Incoming {
    /// An empty buffer; bodies may have up to `max_bytes`.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { buffer: BytesMut::new(), max_bytes }
    }

    /// The buffer to read into.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = BytesMut::new();
        }
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES / 4 {
            // Growing by the present size keeps a large frame from being moved with every read.
            self.buffer.reserve(READ_BYTES.max(self.buffer.len()));
        }
        &mut self.buffer
    }

    /// Whether the bytes so far are a prefix of `magic`, or begin with it.
    pub(crate) fn may_begin_with(&self, magic: &[u8]) -> bool {
        self.buffer.iter().zip(magic).all(|(arrived, wanted)| arrived == wanted)
    }

    /// Removes and returns the `count` bytes before the frames, once they have arrived.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let head = *self.buffer.first_chunk::<N>()?;
        self.buffer.advance(N);
        Some(head)
    }

    /// Calls `take` with the body of every complete frame, in order; returns the number of bodies and of bytes (with
    /// headers).
    pub(crate) fn each_frame(&mut self, mut take: impl FnMut(&[u8])) -> Result<(u64, u64), BadFrame> {
        let (mut frames, mut used) = (0, 0);
        while let Some(body) = complete(&self.buffer[used..], self.max_bytes)? {
            take(body);
            used += HEADER_BYTES + body.len();
            frames += 1;
        }
        self.buffer.advance(used);
        Ok((frames, used as u64))
    }

    /// Removes and returns the body of the first frame, if it is complete.
    pub(crate) fn one_frame(&mut self) -> Result<Option<Vec<u8>>, BadFrame> {
        let Some(body) = complete(&self.buffer, self.max_bytes)?.map(<[u8]>::to_vec) else { return Ok(None) };
        self.buffer.advance(HEADER_BYTES + body.len());
        Ok(Some(body))
    }

    /// The same bytes, with another limit from here on.
    pub(crate) fn with_limit(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }
}

/// The body of the first frame of `bytes`, if it is complete.
fn complete(bytes: &[u8], max_bytes: usize) -> Result<Option<&[u8]>, BadFrame> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [a, b, c, d, checksum @ ..] = *header;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > max_bytes {
        return Err(BadFrame::TooLarge(length, max_bytes));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    if crc32fast::hash(body) != u32::from_le_bytes(checksum) {
        return Err(BadFrame::Checksum(length));
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_golden::{Decoded, Golden};

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bodies.iter().for_each(|body| put_frame(&mut bytes, body));
        bytes
    }

    #[test]
    fn frames_have_their_bytes() {
        let written = [("frames", framed(&[b"hello".to_vec(), vec![], vec![7; 300]]))];
        Golden { level: diorite_base::Levels::OWN.greatest.0, format: "frames", kinds: &[] }.check(
            &written,
            |_, bytes| {
                let bodies = arrive(&mut Incoming::new(MAX_FRAME_BYTES), bytes).unwrap();
                Decoded { kinds: vec![], shown: format!("{bodies:?}"), encoded: Some(framed(&bodies)) }
            },
        );
    }

    fn arrive(incoming: &mut Incoming, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BadFrame> {
        let mut found = Vec::new();
        incoming.space().extend_from_slice(bytes);
        incoming.each_frame(|frame| found.push(frame.to_vec())).map(|_| found)
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_the_bytes_arrive() {
        let bodies: Vec<Vec<u8>> = [0, 1, 7, 300, 100_000].iter().map(|size| vec![*size as u8; *size]).collect();
        let mut bytes = Vec::new();
        bodies.iter().for_each(|body| put_frame(&mut bytes, body));
        for piece in [1, 5, 4_096, bytes.len()] {
            let mut incoming = Incoming::new(MAX_FRAME_BYTES);
            let found: Vec<_> = bytes.chunks(piece).flat_map(|chunk| arrive(&mut incoming, chunk).unwrap()).collect();
            assert_eq!(found, bodies, "in pieces of {piece}");
        }
    }

    #[test]
    fn whole_frames_have_their_bodies() {
        let written = [b"hello".to_vec(), vec![], vec![7; 300]];
        assert_eq!(bodies(&framed(&written)), written);
        assert!(bodies(&[]).is_empty());
    }

    #[test]
    fn a_length_over_the_limit_is_refused_at_once() {
        let header = [&1_001u32.to_le_bytes()[..], &[0; 4]].concat();
        let mut incoming = Incoming::new(1_000);
        assert_eq!(arrive(&mut incoming, &header), Err(BadFrame::TooLarge(1_001, 1_000)));
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, b"hello");
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(arrive(&mut Incoming::new(100), &bytes), Err(BadFrame::Checksum(5)));
    }

    #[test]
    fn a_promised_length_takes_no_memory() {
        let mut incoming = Incoming::new(MAX_FRAME_BYTES);
        let header = [&(MAX_FRAME_BYTES as u32).to_le_bytes()[..], &[0; 4]].concat();
        assert_eq!(arrive(&mut incoming, &header), Ok(vec![]));
        assert!(incoming.space().capacity() <= 2 * READ_BYTES);
    }
}
