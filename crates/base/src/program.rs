//! The check that programs must pass before they reach the log: a program that replicas evaluate becomes part of a
//! [`Mutation`](crate::mutation::Mutation) only as a [`ProvenProgram`], which was encoded, decoded and encoded again to
//! the same bytes, and is within the limits.
//!
//! Every replica decodes what is in the log, now and at each replay: a program that cannot be decoded would stop the
//! tablet for ever, on all replicas. The type system enforces the check for programs of this node and of other nodes
//! alike: there is no other way to a mutation with a program.
//!
//! Always true: the bytes of a [`ProvenProgram`] can be decoded. Left out: other content of the log. Row writes
//! ([`crate::mutation::Mutation::push`]) have no structure that could exceed a limit; the entries that split a tablet
//! or open it again have the same check in `diorite_raft` (`ProvenPayload`).

use crate::level::Level;
use crate::limits::{self, Exceeded};
use std::fmt;
use thiserror::Error;

/// The kind of tablets that evaluate a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Those that hold rows.
    Rows,
    /// The catalog's tablet.
    Catalog,
}

/// A program that replicas evaluate.
pub trait LoggedProgram: Sized {
    /// The kind of tablets that evaluate it.
    const TARGET: Target;
    /// Why bytes cannot be decoded as a program.
    type Error: fmt::Display;
    /// Checks that the program is within the limits; the error names the limit that it exceeds.
    fn check(&self) -> Result<(), Exceeded>;
    /// The encoded form.
    fn encode(&self) -> Vec<u8>;
    /// Decodes the encoded form, as replicas do.
    fn decode(bytes: &[u8]) -> Result<Self, Self::Error>;
}

/// Why a program may not be proposed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unprovable {
    /// It is over a limit.
    #[error(transparent)]
    Exceeds(#[from] Exceeded),
    /// The cluster is not at the level that has it: nodes may still go back to programs that could not apply it.
    #[error("this needs level {needed}, and the cluster is at level {level} (diorite admin upgrade status)")]
    Early {
        /// The lowest level that has it.
        needed: Level,
        /// The level of the cluster.
        level: Level,
    },
    /// Replicas could not decode it.
    #[error("a write that replicas could not read is refused: {0}")]
    Unreadable(String),
}

/// A program that replicas can decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenProgram {
    bytes: Vec<u8>,
    target: Target,
}

impl ProvenProgram {
    /// Encodes a program, and decodes it again.
    pub fn new<P: LoggedProgram>(program: &P) -> Result<Self, Unprovable> {
        program.check()?;
        let bytes = program.encode();
        check_bytes(&bytes)?;
        match P::decode(&bytes) {
            Ok(read) if read.encode() == bytes => Ok(Self { bytes, target: P::TARGET }),
            Ok(_) => Err(Unprovable::Unreadable("decoding gives a different program".to_owned())),
            Err(error) => Err(Unprovable::Unreadable(error.to_string())),
        }
    }

    /// Accepts a program that another node has encoded, if it decodes and is within the limits of this node.
    pub fn read<P: LoggedProgram>(bytes: &[u8]) -> Result<Self, Unprovable> {
        decode::<P>(bytes)?;
        Ok(Self { bytes: bytes.to_vec(), target: P::TARGET })
    }

    /// The encoded form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoded form, alone.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The kind of tablets that evaluate it.
    pub fn target(&self) -> Target {
        self.target
    }
}

/// Decodes a program that another node has encoded, if it is within the limits of this node.
pub fn decode<P: LoggedProgram>(bytes: &[u8]) -> Result<P, Unprovable> {
    check_bytes(bytes)?;
    let program = P::decode(bytes).map_err(|error| Unprovable::Unreadable(error.to_string()))?;
    program.check()?;
    Ok(program)
}

fn check_bytes(bytes: &[u8]) -> Result<(), Exceeded> {
    limits::check(&limits::MUTATION_BYTES, bytes.len(), || "a write".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose encoding contains more than decoding returns.
    #[derive(Debug, PartialEq)]
    struct Depth(u8);

    impl LoggedProgram for Depth {
        const TARGET: Target = Target::Rows;
        type Error = String;

        fn check(&self) -> Result<(), Exceeded> {
            limits::check(&limits::NESTING, usize::from(self.0), || "a depth".to_owned())
        }

        fn encode(&self) -> Vec<u8> {
            vec![self.0]
        }

        fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
            match bytes {
                [depth @ 0..=50] => Ok(Self(*depth)),
                [51] => Ok(Self(50)),
                [depth @ 101..=110] => Ok(Self(*depth)),
                _ => Err("too deep".to_owned()),
            }
        }
    }

    #[test]
    fn only_what_reads_back_as_it_was_is_proven() {
        assert!(ProvenProgram::new(&Depth(50)).is_ok());
        let error = |depth| ProvenProgram::new(&Depth(depth)).expect_err("unprovable");
        assert!(matches!(error(51), Unprovable::Unreadable(_)), "another one");
        assert!(matches!(error(52), Unprovable::Unreadable(_)), "none");
        assert!(matches!(error(101), Unprovable::Exceeds(_)), "over the limit");
        assert!(ProvenProgram::read::<Depth>(&[7]).is_ok());
        assert!(ProvenProgram::read::<Depth>(&[70]).is_err());
        let read = ProvenProgram::read::<Depth>(&[105]);
        assert!(matches!(read, Err(Unprovable::Exceeds(_))), "another node has other limits");
    }
}
