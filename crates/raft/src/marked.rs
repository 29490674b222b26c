//! Entries of the log that carry a mark, which tells them from all other entries, and the check that each must pass
//! before it is proposed.
//!
//! Always true: the bytes of a [`ProvenPayload`] decode to the value that was encoded, and are within the limit of
//! their kind. Every replica decodes what is in the log, now and at each replay: an entry that cannot be decoded would
//! stop the group for ever, on all replicas. Left out: entries without a mark. They hold mutations, which have a check
//! of their own (`base::program`).

use thiserror::Error;

/// The content of an entry with a mark.
pub trait MarkedPayload: Sized + PartialEq {
    /// The mark: the context of the entry.
    const MARK: &'static [u8];
    /// The greatest length of its encoded form.
    const MAX_BYTES: usize;
    /// The encoded form.
    fn encode(&self) -> Vec<u8>;
    /// Reads the encoded form, as replicas do.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Why an entry may not be proposed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unproven {
    /// It is too long.
    #[error("an entry of {found} bytes is over the limit of {limit} bytes")]
    TooLong {
        /// How long it is.
        found: usize,
        /// How long it may be.
        limit: usize,
    },
    /// Replicas could not decode it, or would decode something else.
    #[error("an entry that replicas could not read is refused")]
    Unreadable,
}

/// The payload of an entry with a mark that replicas can decode. Entries with marks can be proposed in no other way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenPayload {
    mark: &'static [u8],
    bytes: Vec<u8>,
}

impl ProvenPayload {
    /// Encodes the payload and checks that it decodes to the same.
    pub fn new<P: MarkedPayload>(payload: &P) -> Result<Self, Unproven> {
        let bytes = payload.encode();
        match P::decode(&bytes) {
            _ if bytes.len() > P::MAX_BYTES => Err(Unproven::TooLong { found: bytes.len(), limit: P::MAX_BYTES }),
            Some(read) if read == *payload => Ok(Self { mark: P::MARK, bytes }),
            _ => Err(Unproven::Unreadable),
        }
    }

    /// Context and data of the entry.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<u8>) {
        (self.mark.to_vec(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload of which replicas read back 7 at most.
    #[derive(Debug, PartialEq)]
    struct Number(u8);

    impl MarkedPayload for Number {
        const MARK: &'static [u8] = b"number";
        const MAX_BYTES: usize = 9;

        fn encode(&self) -> Vec<u8> {
            vec![self.0; usize::from(self.0)]
        }

        fn decode(bytes: &[u8]) -> Option<Self> {
            bytes.first().map(|first| Self((*first).min(7)))
        }
    }

    #[test]
    fn only_what_reads_back_as_it_was_and_fits_is_proven() {
        let proven = ProvenPayload::new(&Number(7)).map(ProvenPayload::into_parts);
        assert_eq!(proven, Ok((b"number".to_vec(), vec![7; 7])));
        assert_eq!(ProvenPayload::new(&Number(0)), Err(Unproven::Unreadable), "nothing");
        assert_eq!(ProvenPayload::new(&Number(8)), Err(Unproven::Unreadable), "another one");
        assert_eq!(ProvenPayload::new(&Number(10)), Err(Unproven::TooLong { found: 10, limit: 9 }));
    }
}
