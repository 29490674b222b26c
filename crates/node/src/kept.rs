//! The requests of a connection's submitted writes, for those that a tablet refuses because of how they were planned.
//!
//! Always true: a request is kept from when its write was submitted until that is answered, and its bytes are part of the
//! charge for the write; nothing is allocated for a short one while there is a reused buffer, of which there are few.
//! Left out: carrying a request out again ([`crate::requests`]).

use ahash::AHashMap;
use diorite_cql::protocol::Envelope;
use std::collections::hash_map::Entry;

/// The most reused buffers, and the capacity up to which a buffer is reused.
const MAX_SPARE: usize = 16;
const MAX_SPARE_BYTES: usize = 512;
/// Places for requests that remain after a burst.
const FEW: usize = 64;

/// See the top of this module.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// By their streams: the flags of the header, and the body. Empty: another request with the same stream is in flight, so
    /// that it is not known which of them an answer is for.
    requests: AHashMap<i16, Vec<u8>>,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

impl Kept {
    /// Keeps the request of a write that was submitted.
    pub(crate) fn keep(&mut self, envelope: &Envelope<'_>) {
        let place = match self.requests.entry(envelope.stream) {
            Entry::Occupied(mut other) => return other.get_mut().clear(),
            Entry::Vacant(place) => place,
        };
        let mut kept = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= kept.capacity();
        kept.reserve_exact(1 + envelope.body.len());
        kept.push(envelope.flags);
        kept.extend_from_slice(envelope.body);
        place.insert(kept);
    }

    /// The request of a write that is answered; empty if it is not known. [`Self::reuse`] takes the buffer back.
    pub(crate) fn remove(&mut self, stream: i16) -> Vec<u8> {
        let kept = self.requests.remove(&stream).unwrap_or_default();
        if self.requests.is_empty() && self.requests.capacity() > 2 * FEW {
            self.requests.shrink_to(FEW);
        }
        kept
    }

    /// Keeps a small buffer for the next request.
    pub(crate) fn reuse(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 || buffer.capacity() > MAX_SPARE_BYTES || self.spare.len() == MAX_SPARE {
            return;
        }
        buffer.clear();
        self.spare_bytes += buffer.capacity();
        self.spare.push(buffer);
    }

    /// The memory of the reused buffers, bytes.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.spare_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_cql::protocol::{Opcode, Version};

    fn keep(kept: &mut Kept, stream: i16, body: &[u8]) {
        kept.keep(&Envelope { version: Version::V5, flags: 4, stream, opcode: Opcode::Execute, body });
    }

    #[test]
    fn a_request_is_kept_until_its_write_is_answered() {
        let mut kept = Kept::default();
        keep(&mut kept, 1, b"one");
        keep(&mut kept, 2, b"two");
        assert_eq!((kept.remove(2), kept.remove(1)), (b"\x04two".to_vec(), b"\x04one".to_vec()));
        assert!(kept.remove(1).is_empty() && kept.remove(3).is_empty());
    }

    /// The second one would be carried out twice.
    #[test]
    fn of_two_requests_with_one_stream_none_is_known() {
        let mut kept = Kept::default();
        keep(&mut kept, 1, b"one");
        keep(&mut kept, 1, b"another");
        assert!(kept.remove(1).is_empty() && kept.remove(1).is_empty());
    }

    #[test]
    fn small_buffers_are_reused_and_counted() {
        let mut kept = Kept::default();
        for stream in 0..100 {
            keep(&mut kept, stream, &[7; 60]);
        }
        keep(&mut kept, 100, &[7; 60_000]);
        assert_eq!(kept.spare_bytes(), 0);
        for stream in 0..=100 {
            let request = kept.remove(stream);
            assert!(request.len() > 60);
            kept.reuse(request);
        }
        let spare_bytes = kept.spare_bytes();
        assert!((MAX_SPARE * 61..=MAX_SPARE * MAX_SPARE_BYTES).contains(&spare_bytes), "{spare_bytes}");
        for stream in 0..16 {
            keep(&mut kept, stream, &[8; 60]);
        }
        assert_eq!(kept.spare_bytes(), 0, "all are in use");
        assert_eq!(kept.remove(5), [&[4][..], &[8; 60]].concat());
    }
}
