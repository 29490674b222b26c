//! The encoded form of one write to one tablet, as it stands in the Raft log, and the seam through which
//! read-dependent writes are evaluated when they are applied.
//!
//! A mutation is either *blind* (a list of row writes that need no read) or *evaluated* (a program, opaque here, that
//! reads the tablet at apply time: conditional updates, range deletions, list updates by index). Evaluating at apply keeps a
//! conditional write to one Raft round and makes the outcome a function of the log alone, the same on every replica.
//!
//! Layout, integers little-endian, lengths LEB128:
//!
//! ```text
//! mutation := flags u8 (EVALUATED 1, EXPLICIT 2, DELETION 4, TIME 8, REQUEST 16, STEP 32) · stamp i64
//!           · [explicit i64, if flags & EXPLICIT] · [grace u32, if flags & TIME] · body
//! body     := program bytes, if flags & EVALUATED
//!           | a request to the tablet's leader, if flags & REQUEST: it is answered, and is not in the log
//!           | steps of transactions, if flags & STEP
//!           | operation*
//! operation:= kind u8 · key length · key · value length · value
//! ```
//!
//! `stamp` is the write's timestamp in microseconds. The leader sets it when it appends the mutation to the log, so
//! that stamps follow log order. An operation whose kind has [`STAMPED`] carries a value with a *stamp slot*: its bytes
//! 1..9 are set to the same stamp. An operation whose kind has [`UNPLACED`] carries list elements with placeholder
//! paths; each replica replaces them by the stamp when it applies the mutation ([`Evaluator::place`]). `explicit` is
//! the greatest timestamp that the client itself gave (`USING TIMESTAMP`). The tablet remembers the greatest one ever
//! applied, because a whole-row write may replace the stored row only if it is newer than that. `DELETION` says that
//! the mutation only deletes, so that it is accepted even when the disk is full. `TIME` marks a leader's own mutation
//! ([`time_passes`]): it writes nothing, and puts the current time and the table's `gc_grace_seconds` into the log.
//! `REQUEST`, beside which only `DELETION` stands, and `STEP`, which stands alone, belong to transactions, whose encodings
//! are those of the `transact` crate.

use crate::bytes::{Malformed, Reader, put_slice};
use crate::limits;
use crate::program::{ProvenProgram, Target, Unprovable};
use crate::row_index::is_of_rows;
use std::fmt;

mod evaluator;

pub use evaluator::{
    Effect, EvaluationContext, EvaluationFailed, Evaluator, Growth, SeeTarget, TabletChanges, TabletView, seconds,
};

const EVALUATED: u8 = 1;
const EXPLICIT: u8 = 2;
const DELETION: u8 = 4;
const TIME: u8 = 8;
const REQUEST: u8 = 16;
const STEP: u8 = 32;
const STAMP_AT: usize = 1;
const HEADER_BYTES: usize = 9;

/// Bit of an operation's kind: the value has a stamp slot in its bytes 1..9.
pub const STAMPED: u8 = 0x80;
/// The least length of a value that has a stamp slot.
pub const LEAST_STAMPED_BYTES: usize = HEADER_BYTES;
/// Bit of an operation's kind: the value has elements of lists whose places the stamp decides ([`Evaluator::place`]).
pub const UNPLACED: u8 = 0x40;

/// The effect of an operation on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// The value is the whole row, written with a server timestamp: it replaces what is stored, unless the tablet holds a greater
    /// explicit timestamp; then it is merged.
    Overwrite,
    /// The value is merged with what is stored.
    Merge,
}

/// One decoded operation of a blind mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The effect.
    pub kind: OperationKind,
    /// The row's key.
    pub key: &'a [u8],
    /// The packed row, or the part of it to merge.
    pub value: &'a [u8],
    /// Whether the value has list elements with placeholder paths.
    pub is_unplaced: bool,
}

/// A mutation under construction or on its way to the log. Each one can be applied by replicas: its operations are
/// complete, and its program, if it has one, was proven to decode.
#[derive(Clone, PartialEq, Eq)]
pub struct Mutation {
    bytes: Vec<u8>,
    target: Target,
}

impl fmt::Debug for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutation({} bytes)", self.bytes.len())
    }
}

impl Mutation {
    /// An empty blind mutation; `explicit_us` as described at the top of this module.
    pub fn blind(explicit_us: Option<i64>) -> Self {
        Self::with_header(0, explicit_us, 384)
    }

    /// A mutation whose effect `program` decides when it is applied.
    pub fn evaluated(explicit_us: Option<i64>, program: &ProvenProgram) -> Self {
        let bytes = program.as_bytes();
        let mut mutation = Self::with_header(EVALUATED, explicit_us, HEADER_BYTES + 8 + bytes.len());
        mutation.target = program.target();
        mutation.bytes.extend_from_slice(bytes);
        mutation
    }

    /// A request to the tablet's leader, which checks and answers it. It takes the way of a write, and is not logged.
    pub fn request(request: &[u8]) -> Self {
        Self::request_of(request.len(), |bytes| bytes.extend_from_slice(request))
    }

    /// As [`Self::request`], for a request of about `size_bytes` that `append` writes behind the header.
    pub fn request_of(size_bytes: usize, append: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut mutation = Self::with_header(REQUEST, None, HEADER_BYTES + size_bytes);
        append(&mut mutation.bytes);
        assert!(mutation.bytes.first() == Some(&REQUEST), "a request is added to the header");
        mutation
    }

    /// Decodes a mutation that another node sent. Refuses it unless [`Self::blind`] or [`Self::evaluated`] could have
    /// made it. `prove` checks its program, if it has one.
    pub fn decode(
        bytes: Vec<u8>,
        prove: impl FnOnce(&[u8]) -> Result<ProvenProgram, Unprovable>,
    ) -> Result<Self, Unprovable> {
        limits::check(&limits::MUTATION_BYTES, bytes.len(), || "a write".to_owned())?;
        let target = Self::check_received(&bytes, prove)?;
        Ok(Self { bytes, target })
    }

    fn check_received(
        bytes: &[u8],
        prove: impl FnOnce(&[u8]) -> Result<ProvenProgram, Unprovable>,
    ) -> Result<Target, Unprovable> {
        let malformed = |error: Malformed| Unprovable::Unreadable(error.to_string());
        let read = MutationRef::decode(bytes).map_err(malformed)?;
        if read.gc_grace_s.is_some() {
            return Err(malformed(Malformed));
        }
        let mut operations = match read.body() {
            Body::Blind(operations) => operations,
            Body::Evaluated(program) => return prove(program).map(|proven| proven.target()),
            Body::Request(_) => return Ok(Target::Rows),
            // Only leaders make steps.
            Body::Step(_) => return Err(malformed(Malformed)),
        };
        while !operations.reader.is_empty() {
            let is_stamped = operations.reader.rest()[0] & STAMPED != 0;
            let operation = operations.read().map_err(malformed)?;
            let has_slot = !is_stamped || operation.value.len() >= LEAST_STAMPED_BYTES;
            if !has_slot || !is_of_rows(operation.key) {
                return Err(malformed(Malformed));
            }
        }
        Ok(Target::Rows)
    }

    /// Checks that it may be proposed to a tablet of this kind: its program, if any, must be for that kind, and its
    /// size within the limit of a write.
    #[inline]
    pub fn check_for(&self, target: Target) -> Result<(), Unprovable> {
        if self.target != target {
            return Err(Unprovable::Unreadable(format!("it is for {:?}, not for {target:?}", self.target)));
        }
        Ok(limits::check(&limits::MUTATION_BYTES, self.bytes.len(), || "a write".to_owned())?)
    }

    fn with_header(flags: u8, explicit_us: Option<i64>, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(flags | if explicit_us.is_some() { EXPLICIT } else { 0 });
        bytes.extend_from_slice(&[0; 8]);
        if let Some(explicit_us) = explicit_us {
            bytes.extend_from_slice(&explicit_us.to_le_bytes());
        }
        Self { bytes, target: Target::Rows }
    }

    /// Makes room for operations on rows, given the number of them and the bytes of their keys and values.
    pub fn reserve(&mut self, rows: usize, bytes: usize) {
        // A kind, and two lengths.
        const ROW_BYTES: usize = 1 + 2 * 5;
        self.bytes.reserve(rows * ROW_BYTES + bytes);
    }

    /// Adds an operation to a blind mutation. `stamped`: the value has a stamp slot.
    pub fn push(&mut self, kind: OperationKind, stamped: bool, key: &[u8], value: &[u8]) {
        self.push_marked(kind, if stamped { STAMPED } else { 0 }, key, value);
    }

    /// As [`Self::push`]. `unplaced`: the value has list elements with placeholder paths.
    pub fn push_row(&mut self, kind: OperationKind, stamped: bool, unplaced: bool, key: &[u8], value: &[u8]) {
        self.push_marked(kind, if unplaced { UNPLACED } else { 0 } | if stamped { STAMPED } else { 0 }, key, value);
    }

    fn push_marked(&mut self, kind: OperationKind, marks: u8, key: &[u8], value: &[u8]) {
        let stamped = marks & STAMPED != 0;
        assert!(self.bytes[0] & (EVALUATED | REQUEST) == 0, "operations belong to blind mutations");
        assert!(!stamped || value.len() >= LEAST_STAMPED_BYTES, "a stamped value has room for its stamp");
        let kind = match kind {
            OperationKind::Overwrite => 1,
            OperationKind::Merge => 2,
        };
        self.bytes.push(kind | marks);
        put_slice(&mut self.bytes, key);
        put_slice(&mut self.bytes, value);
    }

    /// Marks the mutation as one that only deletes.
    pub fn mark_deletion(&mut self) {
        self.bytes[0] |= DELETION;
    }

    /// Whether the mutation only deletes.
    pub fn is_deletion(&self) -> bool {
        self.bytes[0] & DELETION != 0
    }

    /// The encoded size.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The encoded form, with the current stamp.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes `stamp_us` into the header and every stamp slot.
    pub fn stamp(&mut self, stamp_us: i64) {
        let stamp = stamp_us.to_le_bytes();
        self.bytes[STAMP_AT..HEADER_BYTES].copy_from_slice(&stamp);
        if self.bytes[0] & (EVALUATED | REQUEST) != 0 {
            return;
        }
        let mut slots = Vec::new();
        let mut at = HEADER_BYTES + if self.bytes[0] & EXPLICIT != 0 { 8 } else { 0 };
        while at < self.bytes.len() {
            let mut reader = Reader::new(&self.bytes[at..]);
            let (Ok(kind), Ok(_), Ok(value)) = (reader.u8(), reader.slice(), reader.slice()) else {
                unreachable!("a mutation is built by push alone, which writes whole operations");
            };
            let next = self.bytes.len() - reader.rest().len();
            if kind & STAMPED != 0 {
                slots.push(next - value.len() + STAMP_AT);
            }
            at = next;
        }
        for slot in slots {
            self.bytes[slot..slot + 8].copy_from_slice(&stamp);
        }
    }
}

/// A mutation that writes nothing and carries the time and `gc_grace_seconds`. Only leaders propose it; one from
/// another node is refused.
pub fn time_passes(stamp_us: i64, gc_grace_s: u32) -> Vec<u8> {
    let mut bytes = vec![TIME];
    bytes.extend_from_slice(&stamp_us.to_le_bytes());
    bytes.extend_from_slice(&gc_grace_s.to_le_bytes());
    bytes
}

/// A mutation with steps of transactions. Only leaders propose it; one from another node is refused.
pub fn step(stamp_us: i64, steps: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + steps.len());
    bytes.push(STEP);
    bytes.extend_from_slice(&stamp_us.to_le_bytes());
    bytes.extend_from_slice(steps);
    bytes
}

/// A mutation decoded from the log.
#[derive(Clone, Copy, Debug)]
pub struct MutationRef<'a> {
    flags: u8,
    /// The write's timestamp, microseconds.
    pub stamp_us: i64,
    /// The greatest client-given timestamp in it, microseconds.
    pub explicit_us: Option<i64>,
    /// `gc_grace_seconds` of the table, in a mutation made by [`time_passes`].
    pub gc_grace_s: Option<u32>,
    body: &'a [u8],
}

/// The content of a mutation.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// Row writes, to be applied in order.
    Blind(Operations<'a>),
    /// A program for the [`Evaluator`].
    Evaluated(&'a [u8]),
    /// A request to the leader.
    Request(&'a [u8]),
    /// Steps of transactions.
    Step(&'a [u8]),
}

impl<'a> MutationRef<'a> {
    /// Decodes the header of an encoded mutation.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        if flags & !(EVALUATED | EXPLICIT | DELETION | TIME | REQUEST | STEP) != 0 {
            return Err(Malformed);
        }
        if flags & STEP != 0 && flags != STEP || flags & REQUEST != 0 && flags & !DELETION != REQUEST {
            return Err(Malformed);
        }
        let stamp_us = reader.i64()?;
        let explicit_us = if flags & EXPLICIT != 0 { Some(reader.i64()?) } else { None };
        let gc_grace_s = if flags & TIME != 0 { Some(reader.u32()?) } else { None };
        Ok(Self { flags, stamp_us, explicit_us, gc_grace_s, body: reader.rest() })
    }

    /// Whether it must read the tablet to be applied.
    pub fn is_evaluated(&self) -> bool {
        self.flags & EVALUATED != 0
    }

    /// The content.
    pub fn body(&self) -> Body<'a> {
        match self.flags & (EVALUATED | REQUEST | STEP) {
            EVALUATED => Body::Evaluated(self.body),
            REQUEST => Body::Request(self.body),
            STEP => Body::Step(self.body),
            _ => Body::Blind(Operations { reader: Reader::new(self.body) }),
        }
    }
}

/// Iterates over a blind mutation's operations; ends after the first malformed one, which it returns.
#[derive(Clone, Copy, Debug)]
pub struct Operations<'a> {
    reader: Reader<'a>,
}

impl<'a> Operations<'a> {
    fn read(&mut self) -> Result<Operation<'a>, Malformed> {
        let kind = self.reader.u8()?;
        let is_unplaced = kind & UNPLACED != 0;
        let kind = match kind & !(STAMPED | UNPLACED) {
            1 => OperationKind::Overwrite,
            2 => OperationKind::Merge,
            _ => return Err(Malformed),
        };
        Ok(Operation { kind, key: self.reader.slice()?, value: self.reader.slice()?, is_unplaced })
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let operation = self.read();
        if operation.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(operation)
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::LoggedProgram;
    use proptest::prelude::*;

    #[test]
    fn stamping_reaches_the_header_and_every_slot() {
        let mut mutation = Mutation::blind(Some(5));
        mutation.push(OperationKind::Overwrite, true, b"key", &[7; 12]);
        mutation.push(OperationKind::Merge, false, b"other", &[8; 12]);
        mutation.stamp(0x0102_0304);
        let read = MutationRef::decode(mutation.as_bytes()).expect("own encoding");
        assert_eq!((read.stamp_us, read.explicit_us), (0x0102_0304, Some(5)));
        let Body::Blind(operations) = read.body() else { panic!("blind") };
        let operations: Vec<_> = operations.map(|operation| operation.expect("own encoding")).collect();
        assert_eq!(operations[0].value[1..9], 0x0102_0304i64.to_le_bytes());
        assert_eq!((operations[0].value[0], operations[0].value[9]), (7, 7));
        assert_eq!(operations[1].value, &[8; 12]);
    }

    /// Any bytes except the empty string.
    #[derive(Debug, PartialEq)]
    pub(super) struct Bytes(pub(super) Vec<u8>);

    impl LoggedProgram for Bytes {
        const TARGET: Target = Target::Catalog;
        type Error = String;

        fn check(&self) -> Result<(), limits::Exceeded> {
            Ok(())
        }

        fn encode(&self) -> Vec<u8> {
            self.0.clone()
        }

        fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
            if bytes.is_empty() { Err("nothing".to_owned()) } else { Ok(Self(bytes.to_vec())) }
        }
    }

    #[test]
    fn a_program_comes_back_as_it_went_in() {
        let program = ProvenProgram::new(&Bytes(b"program".to_vec())).expect("some bytes");
        let mut mutation = Mutation::evaluated(None, &program);
        mutation.stamp(9);
        let read = MutationRef::decode(mutation.as_bytes()).expect("own encoding");
        assert!(matches!(read.body(), Body::Evaluated(b"program")));
        let received = Mutation::decode(mutation.as_bytes().to_vec(), ProvenProgram::read::<Bytes>);
        assert_eq!(received.as_ref(), Ok(&mutation));
        assert!(mutation.check_for(Target::Catalog).is_ok());
        assert!(mutation.check_for(Target::Rows).is_err(), "no tablet of rows evaluates it");
    }

    #[test]
    fn what_cannot_be_read_or_is_too_large_is_no_mutation() {
        assert!(ProvenProgram::new(&Bytes(Vec::new())).is_err());
        let empty = [EVALUATED, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
        assert!(Mutation::decode(empty, ProvenProgram::read::<Bytes>).is_err());
        assert!(ProvenProgram::new(&Bytes(vec![1; limits::MAX_MUTATION_BYTES + 1])).is_err());
        let mut large = Mutation::blind(None);
        large.push(OperationKind::Merge, false, b"key", &vec![0; limits::MAX_MUTATION_BYTES]);
        let told = large.check_for(Target::Rows).expect_err("too large").to_string();
        assert!(told.contains("is over the limit of 16777216 bytes (MUTATION_BYTES)"), "{told}");
        assert!(Mutation::decode(large.as_bytes().to_vec(), ProvenProgram::read::<Bytes>).is_err());
    }

    proptest! {
        #[test]
        fn what_another_node_sends_is_stamped_or_refused(bytes: Vec<u8>, short in 0usize..20, is_stamped: bool) {
            if let Ok(mut mutation) = Mutation::decode(bytes, ProvenProgram::read::<Bytes>) {
                mutation.stamp(1);
            }
            let mut encoded = vec![0; HEADER_BYTES];
            encoded.push(1 | if is_stamped { STAMPED } else { 0 });
            put_slice(&mut encoded, b"key");
            put_slice(&mut encoded, &vec![0; short]);
            let decoded = Mutation::decode(encoded, ProvenProgram::read::<Bytes>);
            prop_assert_eq!(decoded.is_ok(), !is_stamped || short >= HEADER_BYTES);
            if let Ok(mut mutation) = decoded {
                mutation.stamp(1);
            }
        }

        #[test]
        fn no_other_node_writes_what_a_tablet_keeps_of_itself(rest in proptest::collection::vec(any::<u8>(), 0..7)) {
            let mut mutation = Mutation::blind(None);
            mutation.push(OperationKind::Merge, false, &[&[0], &rest[..]].concat(), b"value");
            prop_assert!(Mutation::decode(mutation.as_bytes().to_vec(), ProvenProgram::read::<Bytes>).is_err());
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            if let Ok(read) = MutationRef::decode(&bytes)
                && let Body::Blind(operations) = read.body()
            {
                operations.for_each(|operation| { let _ = operation; });
            }
        }
    }
}
