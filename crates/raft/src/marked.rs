//! Entries of the log that carry a mark, by which replicas tell them from all others, and the gate before them.
//!
//! Always true: what a [`ProvenPayload`] holds decodes to what was encoded, and is no longer than its kind may be. What is in the log is decoded by every
//! replica, now and whenever it replays: one that cannot be decoded would stop the group for ever, on all of them.
//! Left out: entries without a mark. They hold mutations, which have a gate of their own.

use thiserror::Error;

/// What an entry with a mark says.
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
    /// Replicas would read nothing, or something else.
    #[error("an entry that replicas could not read is refused")]
    Unreadable,
}

/// An entry with a mark that replicas can decode. There is no other way to propose one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenPayload {
    mark: &'static [u8],
    bytes: Vec<u8>,
}

impl ProvenPayload {
    /// Encodes it and reads it again.
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

    /// Reads back as no more than 7.
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
