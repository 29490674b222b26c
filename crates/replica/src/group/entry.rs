//! A log entry's payload: the mutations of one turn of one tablet.
//!
//! Layout: version u8 (1), then per mutation a varint length and its bytes. An evaluated mutation has an entry of its
//! own, so that an entry is always applied in one atomic batch. An empty payload is the entry that a new leader
//! appends.

use diorite_base::bytes::{Malformed, Reader, put_slice};
use diorite_base::mutation::{Mutation, MutationRef, time_passes};

const VERSION: u8 = 1;

/// Builds payloads from stamped mutations.
#[derive(Default)]
pub(crate) struct Payload {
    bytes: Vec<u8>,
    /// The `gc_grace_seconds` that it carries.
    grace_s: Option<u32>,
    /// About the bytes of index entries that follow from it, and no fewer.
    index_bytes: usize,
}

impl Payload {
    /// Adds a mutation, from which so many bytes of index entries follow.
    pub(crate) fn push(&mut self, mutation: &Mutation, index_bytes: usize) {
        self.push_bytes(mutation.as_bytes());
        self.index_bytes += index_bytes;
    }

    /// The bytes of index entries that follow from it.
    pub(crate) fn index_bytes(&self) -> usize {
        self.index_bytes
    }

    /// Adds the leader's own mutation that carries the time, which may share an entry with any other.
    pub(crate) fn push_time(&mut self, stamp_us: i64, gc_grace_s: u32) {
        self.push_bytes(&time_passes(stamp_us, gc_grace_s));
        self.grace_s = Some(gc_grace_s);
    }

    /// Adds steps of transactions, which have an entry of their own.
    pub(crate) fn push_steps(&mut self, steps: &[u8]) {
        self.push_bytes(steps);
    }

    /// The `gc_grace_seconds` that it carries, if any.
    pub(crate) fn grace_s(&self) -> Option<u32> {
        self.grace_s
    }

    fn push_bytes(&mut self, mutation: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.reserve(mutation.len() + 64);
            self.bytes.push(VERSION);
        }
        put_slice(&mut self.bytes, mutation);
    }

    /// The encoded size so far.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the payload, and leaves an empty one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }
}

/// The mutations of a payload.
pub(crate) fn mutations(payload: &[u8]) -> Result<Mutations<'_>, Malformed> {
    let mut reader = Reader::new(payload);
    if !payload.is_empty() && reader.u8()? != VERSION {
        return Err(Malformed);
    }
    Ok(Mutations { reader })
}

/// Iterates over a payload; ends after the first malformed mutation.
pub(crate) struct Mutations<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for Mutations<'a> {
    type Item = Result<MutationRef<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let next = self.reader.slice().and_then(MutationRef::decode);
        if next.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(next)
    }
}
