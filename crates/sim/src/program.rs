//! The writes that simulated clients make: blind ones, and small programs that read before they write.
//!
//! A program: kind u8 (1 compare and set, 2 increment, 3 delete), key u64, then for the first what the key must hold and what it shall
//! hold, each as 0, or 1 and a u64. Integers little-endian; a stored value is eight bytes.

use diorite_base::bytes::{Malformed, Reader};
use diorite_base::limits::Exceeded;
use diorite_base::mutation::{
    EvaluationContext, EvaluationFailed, Evaluator, Mutation, OperationKind, TabletChanges, TabletView,
};
use diorite_base::program::{LoggedProgram, ProvenProgram, Target};

const COMPARE_AND_SET: u8 = 1;
const INCREMENT: u8 = 2;
const DELETE: u8 = 3;

/// The value of a key; `None` is absence.
pub type Value = Option<u64>;

/// A key as stored. Those of a tablet sort by number. The smallest token is nobody's.
pub fn key(number: u64) -> [u8; 8] {
    number.saturating_add(1).to_be_bytes()
}

/// The number of a stored key.
pub fn number_of(key: &[u8]) -> Option<u64> {
    u64::from_be_bytes(key.try_into().ok()?).checked_sub(1)
}

/// A stored value.
pub fn decode(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn put_value(out: &mut Vec<u8>, value: Value) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

fn read_value(reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    Ok(if reader.u8()? == 0 { None } else { Some(reader.u64()?) })
}

/// Replaces `number`'s value without reading it.
pub fn put(number: u64, value: u64) -> Mutation {
    let mut mutation = Mutation::blind(None);
    mutation.push(OperationKind::Overwrite, false, &key(number), &value.to_le_bytes());
    mutation
}

/// Replaces the values of several keys without reading them.
pub fn put_all(entries: &[(u64, u64)]) -> Mutation {
    let mut mutation = Mutation::blind(None);
    for (number, value) in entries {
        mutation.push(OperationKind::Overwrite, false, &key(*number), &value.to_le_bytes());
    }
    mutation
}

/// Sets `number` to `new` if it holds `expected`.
pub fn compare_and_set(number: u64, expected: Value, new: Value) -> Mutation {
    evaluated(&Program::CompareAndSet(number, expected, new))
}

/// Adds one to `number`, of which absence is 0.
pub fn increment(number: u64) -> Mutation {
    evaluated(&Program::Increment(number))
}

/// Removes `number`.
pub fn delete(number: u64) -> Mutation {
    evaluated(&Program::Delete(number))
}

fn evaluated(program: &Program) -> Mutation {
    let proven = ProvenProgram::new(program).expect("small programs are within the limits");
    Mutation::evaluated(None, &proven)
}

/// A program, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// A key, the value that it must hold, and the new value.
    CompareAndSet(u64, Value, Value),
    Increment(u64),
    Delete(u64),
}

impl Program {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (kind, number) = (reader.u8()?, reader.u64()?);
        Ok(match kind {
            COMPARE_AND_SET => Program::CompareAndSet(number, read_value(&mut reader)?, read_value(&mut reader)?),
            INCREMENT => Program::Increment(number),
            DELETE => Program::Delete(number),
            _ => return Err(Malformed),
        })
    }
}

impl LoggedProgram for Program {
    const TARGET: Target = Target::Rows;
    type Error = String;

    fn check(&self) -> Result<(), Exceeded> {
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, number) = match self {
            Program::CompareAndSet(number, ..) => (COMPARE_AND_SET, number),
            Program::Increment(number) => (INCREMENT, number),
            Program::Delete(number) => (DELETE, number),
        };
        let mut program = vec![kind];
        program.extend_from_slice(&number.to_le_bytes());
        if let Program::CompareAndSet(_, expected, new) = self {
            put_value(&mut program, *expected);
            put_value(&mut program, *new);
        }
        program
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        Self::read(bytes).map_err(|error| error.to_string())
    }
}

/// The answer to a compare and set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The key held the expected value, and holds the new one.
    Applied,
    /// The key held this instead.
    Conflict(Value),
}

/// Reads the reply to [`compare_and_set`].
pub fn verdict(reply: &[u8]) -> Option<Verdict> {
    let mut reader = Reader::new(reply);
    let applied = reader.u8().ok()? == 1;
    let found = read_value(&mut reader).ok()?;
    Some(if applied { Verdict::Applied } else { Verdict::Conflict(found) })
}

/// Carries out the programs.
#[derive(Clone, Copy, Debug)]
pub struct Programs;

impl Evaluator for Programs {
    fn evaluate(
        &self,
        program: &[u8],
        _: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        let program = Program::decode(program).map_err(EvaluationFailed)?;
        let (Program::CompareAndSet(number, ..) | Program::Increment(number) | Program::Delete(number)) = program;
        let key = key(number);
        let found = view.get(&key)?.as_deref().and_then(decode);
        let mut reply = Vec::new();
        match program {
            Program::CompareAndSet(_, expected, new) => {
                reply.push(u8::from(found == expected));
                put_value(&mut reply, found);
                match new {
                    Some(new) if found == expected => changes.put(&key, &new.to_le_bytes()),
                    None if found == expected => changes.delete(&key),
                    _ => {}
                }
            }
            Program::Increment(_) => changes.put(&key, &(found.unwrap_or(0) + 1).to_le_bytes()),
            Program::Delete(_) => changes.delete(&key),
        }
        Ok(reply)
    }
}
