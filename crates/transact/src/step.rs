//! The entries by which transactions change a tablet, and their encoding in the log.
//!
//! ```text
//! steps     := version u8 (1) · step*
//! step      := 1 prepare · id · home · list<lock> · list<operation>
//!            | 2 commit  · id · list<prepared> · list<operation>
//!            | 3 finish  · id · 0 aborted | 1 committed · stamp of the prepare i64 · stamp of the commit i64
//!            | 4 forget  · list<id>
//! id        := tablet varint · term varint · number varint
//! home      := table varint · key slice · tells readers u8 (0, 1)
//! prepared  := table varint · tablet varint · key slice · stamp of the prepare i64
//! lock      := 0 · key slice | 1 · start slice · end slice
//! operation := key slice · second u32 · program slice
//! ```
//!
//! Lists are a count and the elements, integers little-endian, lengths and counts LEB128 in the shortest form.
//!
//! Always true: decoding bounds what it allocates by the input and by the limits below; what has been decoded is
//! encoded to the same bytes. A program in a step has no conditions: they held when the rows were locked. What it
//! reads is locked, and read as of a given second, so it has one outcome, whenever and wherever it is run.
//! Left out: the stamp of the entry, which the mutation around the steps carries, and the steps of indexes, which are to
//! be steps of other kinds.

use crate::ids::{Home, Prepared, TransactionId};
use crate::targets::Targets;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use std::sync::Arc;

/// The most participants of a transaction, the home not counted.
pub const MAX_PARTICIPANTS: usize = 1_024;
/// The most rows that a transaction locks or writes in one tablet.
pub const MAX_ROWS: usize = 10_000;
/// The most transactions that one step forgets.
pub const MAX_FORGOTTEN: usize = 1_024;
const VERSION: u8 = 1;

/// What a transaction writes in a tablet. It takes effect with the stamp of the commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The first key that it writes, which is locked.
    pub key: Vec<u8>,
    /// The second as of which it reads rows.
    pub now_s: u32,
    /// A program without conditions. All that it reads and writes is locked.
    pub program: Vec<u8>,
}

/// Rows are locked and staged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepare {
    /// The transaction.
    pub id: TransactionId,
    /// Where its outcome is found.
    pub home: Home,
    /// What is locked.
    pub targets: Targets,
    /// What is staged. Shared: the entry, its record and its effect all have it.
    pub operations: Arc<[Operation]>,
}

/// The home's own rows are written, and the transaction is committed at the stamp of this entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    /// The transaction.
    pub id: TransactionId,
    /// The other participants, with the prepares that the commit covers.
    pub prepared: Vec<Prepared>,
    /// The home's own rows.
    pub operations: Arc<[Operation]>,
}

/// What has become of a transaction, for a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// It is not committed and never will be.
    Aborted,
    /// It is committed, and covers one prepare.
    Committed {
        /// The stamp of the prepare.
        prepared_us: i64,
        /// The stamp of the commit.
        committed_us: i64,
    },
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// At a participant.
    Prepare(Prepare),
    /// At home.
    Commit(Commit),
    /// At a participant: the staged rows are written or removed, the locks go.
    Finish {
        /// The transaction.
        id: TransactionId,
        /// What is to be done with the staged rows.
        ending: Ending,
    },
    /// At home: the outcomes are no longer needed.
    Forget(Vec<TransactionId>),
}

impl Step {
    /// Whether applying it runs programs, which see all that was applied before.
    pub fn runs_programs(&self) -> bool {
        match self {
            Self::Commit(_) | Self::Finish { ending: Ending::Committed { .. }, .. } => true,
            Self::Prepare(_) | Self::Finish { ending: Ending::Aborted, .. } | Self::Forget(_) => false,
        }
    }
}

fn put_operations(out: &mut Vec<u8>, operations: &[Operation]) {
    put_varint(out, operations.len() as u64);
    for operation in operations {
        put_slice(out, &operation.key);
        out.extend_from_slice(&operation.now_s.to_le_bytes());
        put_slice(out, &operation.program);
    }
}

/// Decodes a list of at most `limit` elements.
pub(crate) fn list<T>(
    reader: &mut Reader<'_>,
    limit: usize,
    mut element: impl FnMut(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.shortest_varint()?;
    if count > limit as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| element(reader)).collect()
}

fn operation(reader: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let (key, now_s) = (reader.shortest_slice()?.to_vec(), reader.u32()?);
    Ok(Operation { key, now_s, program: reader.shortest_slice()?.to_vec() })
}

impl Prepare {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.home.encode(out);
        self.targets.encode(out);
        put_operations(out, &self.operations);
    }

    /// Decodes what [`Self::encode`] wrote. Every staged row has to be locked.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (id, home) = (TransactionId::decode(reader)?, Home::decode(reader)?);
        let targets = Targets::decode(reader, MAX_ROWS)?;
        let operations = list(reader, MAX_ROWS, operation)?;
        if operations.iter().any(|operation| !targets.contains(&operation.key)) {
            return Err(Malformed);
        }
        Ok(Self { id, home, targets, operations: operations.into() })
    }
}

impl Step {
    /// What it stages or writes.
    pub fn operations(&self) -> &[Operation] {
        match self {
            Self::Prepare(prepare) => &prepare.operations[..],
            Self::Commit(commit) => &commit.operations[..],
            Self::Finish { .. } | Self::Forget(_) => &[],
        }
    }

    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Prepare(prepare) => {
                out.push(1);
                prepare.encode(out);
            }
            Self::Commit(commit) => {
                out.push(2);
                commit.id.encode(out);
                put_varint(out, commit.prepared.len() as u64);
                commit.prepared.iter().for_each(|prepared| prepared.encode(out));
                put_operations(out, &commit.operations);
            }
            Self::Finish { id, ending } => {
                out.push(3);
                id.encode(out);
                ending.encode(out);
            }
            Self::Forget(ids) => {
                out.push(4);
                put_varint(out, ids.len() as u64);
                ids.iter().for_each(|id| id.encode(out));
            }
        }
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            1 => Self::Prepare(Prepare::decode(reader)?),
            2 => Self::Commit(Commit {
                id: TransactionId::decode(reader)?,
                prepared: list(reader, MAX_PARTICIPANTS, Prepared::decode)?,
                operations: list(reader, MAX_ROWS, operation)?.into(),
            }),
            3 => Self::Finish { id: TransactionId::decode(reader)?, ending: Ending::decode(reader)? },
            4 => Self::Forget(list(reader, MAX_FORGOTTEN, TransactionId::decode)?),
            _ => return Err(Malformed),
        })
    }
}

impl Ending {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Aborted => out.push(0),
            Self::Committed { prepared_us, committed_us } => {
                out.push(1);
                out.extend_from_slice(&prepared_us.to_le_bytes());
                out.extend_from_slice(&committed_us.to_le_bytes());
            }
        }
    }

    /// Decodes what [`Self::encode`] wrote. A commit is stamped above the prepares that it covers.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.u8()? {
            0 => Ok(Self::Aborted),
            1 => {
                let (prepared_us, committed_us) = (reader.i64()?, reader.i64()?);
                if prepared_us >= committed_us {
                    return Err(Malformed);
                }
                Ok(Self::Committed { prepared_us, committed_us })
            }
            _ => Err(Malformed),
        }
    }
}

/// Encodes the steps of one entry. They concern different rows: each sees all that was applied before the entry, and
/// nothing of the others.
pub fn encode_steps<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.push(VERSION);
    steps.into_iter().for_each(|step| step.encode(&mut out));
    out
}

/// Decodes the steps of one entry.
pub fn decode_steps(bytes: &[u8]) -> Result<Vec<Step>, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err(Malformed);
    }
    let mut steps = Vec::new();
    while !reader.is_empty() {
        steps.push(Step::decode(&mut reader)?);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests;
