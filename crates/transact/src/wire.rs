//! The bytes of what the leader of a tablet is asked about transactions, and of its answers.
//!
//! ```text
//! call   := 1 reserve · attempt varint · [wait] · program slice
//!         | 2 prepare · id · home · [wait] · program slice
//!         | 3 commit  · id · list<prepared> · [attempt varint · program slice]
//!         | 4 release · id
//!         | 5 status  · id · [of: tablet varint · stamp i64] · [stamp of the read i64]
//!         | 6 finish  · id · ending
//!         | 7 forget  · list<id>
//!         | 8 pin     · stamp i64 · targets
//!         | 9 unpin   · pin u64
//! answer := 0 done
//!         | 1 reserved · id · attempt          | 2 not reserved · attempt · refusal · reply slice
//!         | 3 prepared · id · stamp i64        | 4 not prepared · id · refusal · reply slice
//!         | 5 committed · id · stamp i64 · [number varint]
//!         | 6 lost · id
//!         | 7 status · id · (0 aborted | 1 not yet | 2 committed · stamp i64)
//!         | 8 finished · id
//!         | 9 pinned · pin u64 · lease varint · list<id · stamp i64 · home>
//!         | 10 too late · stamp i64
//! ```
//!
//! `[x]` is a byte, 0 or 1, and then x if it is 1. The other parts are as in [`crate::step`]. A wait is a number of
//! nanoseconds, varint. A call takes the way of a write ([`diorite_base::mutation::Mutation::request`]).
//!
//! Always true: decoding bounds what it allocates by the input; what has been decoded is encoded to the same bytes.
//! Left out: the targets of a program, which the leader determines itself.

use crate::ids::{Home, Prepared, TransactionId};
use crate::message::{HomePart, Program, Refusal, Reply, Request, Status};
use crate::snapshot::Staged;
use crate::step::{Ending, MAX_FORGOTTEN, MAX_PARTICIPANTS, MAX_ROWS, list};
use crate::targets::Targets;
use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::mutation::Mutation;

/// The most prepares that an answer lists.
const MAX_STAGED: usize = 100_000;

/// A snapshot of a tablet that its leader keeps for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinId(pub u64);

/// What the leader of a tablet is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Of the protocol of transactions. Targets are not sent.
    Request(Request),
    /// To keep a snapshot of the tablet as of this stamp, microseconds. The answer lists the prepares of these targets.
    Pin(i64, Targets),
    /// To forget a snapshot.
    Unpin(PinId),
}

/// The answer of the leader of a tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To what has no other answer.
    Done,
    /// Of the protocol of transactions.
    Reply {
        /// The reply.
        reply: Reply,
        /// For [`Refusal::ConditionFailed`]: the reply of the program.
        of_program: Vec<u8>,
    },
    /// The snapshot is kept.
    Pinned {
        /// Its name on the node that has answered.
        pin: PinId,
        /// How long the lease lasts at least, nanoseconds, from when this was answered.
        lease_ns: u64,
        /// The prepares in it.
        staged: Vec<Staged>,
    },
    /// The tablet has stamped above the stamp: this is its newest stamp, microseconds.
    TooLate(i64),
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn option<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => read(reader).map(Some),
        _ => Err(Malformed),
    }
}

fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn attempt(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    u32::try_from(reader.shortest_varint()?).map_err(|_| Malformed)
}

impl Call {
    /// The program of an encoded call, if it has one.
    pub fn program_of(call: &[u8]) -> Option<Program> {
        match Self::decode(call) {
            Ok(Self::Request(
                Request::Reserve { program, .. }
                | Request::Prepare { program, .. }
                | Request::Commit { part: Some(HomePart { program, .. }), .. },
            )) => Some(program),
            _ => None,
        }
    }

    /// The encoded form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request(request) => put_request(out, request),
            Self::Pin(at_us, targets) => {
                out.push(8);
                put_i64(out, *at_us);
                targets.encode(out);
            }
            Self::Unpin(pin) => {
                out.push(9);
                out.extend_from_slice(&pin.0.to_le_bytes());
            }
        }
    }

    /// As a write that takes it to the leader of a tablet.
    pub fn to_mutation(&self) -> Mutation {
        // Names and keys, beside a program.
        const OTHER_BYTES: usize = 160;
        let program_bytes = match self {
            Self::Request(
                Request::Reserve { program, .. }
                | Request::Prepare { program, .. }
                | Request::Commit { part: Some(HomePart { program, .. }), .. },
            ) => program.0.len(),
            Self::Request(_) | Self::Pin(..) | Self::Unpin(_) => 0,
        };
        Mutation::request_of(program_bytes + OTHER_BYTES, |out| self.put(out))
    }

    /// Decodes what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// Nothing encodes to these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let call = match reader.u8()? {
            8 => Self::Pin(reader.i64()?, Targets::decode(&mut reader, MAX_ROWS)?),
            9 => Self::Unpin(PinId(reader.u64()?)),
            kind => Self::Request(request(kind, &mut reader)?),
        };
        if reader.is_empty() { Ok(call) } else { Err(Malformed) }
    }
}

fn put_request(out: &mut Vec<u8>, request: &Request) {
    let put_wait = |out: &mut Vec<u8>, wait_ns: Option<u64>| put_option(out, wait_ns, put_varint);
    match request {
        Request::Reserve { attempt, targets: _, program, wait_ns } => {
            out.push(1);
            put_varint(out, (*attempt).into());
            put_wait(out, *wait_ns);
            put_slice(out, &program.0);
        }
        Request::Prepare { id, home, targets: _, program, wait_ns } => {
            out.push(2);
            id.encode(out);
            home.encode(out);
            put_wait(out, *wait_ns);
            put_slice(out, &program.0);
        }
        Request::Commit { id, prepared, part } => {
            out.push(3);
            id.encode(out);
            put_varint(out, prepared.len() as u64);
            prepared.iter().for_each(|prepared| prepared.encode(out));
            put_option(out, part.as_ref(), |out, HomePart { attempt, targets: _, program }| {
                put_varint(out, (*attempt).into());
                put_slice(out, &program.0);
            });
        }
        Request::Release(id) => {
            out.push(4);
            id.encode(out);
        }
        Request::Status { id, of, at_us } => {
            out.push(5);
            id.encode(out);
            put_option(out, *of, |out, (tablet, stamp_us)| {
                put_varint(out, tablet.0);
                put_i64(out, stamp_us);
            });
            put_option(out, *at_us, put_i64);
        }
        Request::Finish { id, ending } => {
            out.push(6);
            id.encode(out);
            ending.encode(out);
        }
        Request::Forget(ids) => {
            out.push(7);
            put_varint(out, ids.len() as u64);
            ids.iter().for_each(|id| id.encode(out));
        }
    }
}

fn request(kind: u8, reader: &mut Reader<'_>) -> Result<Request, Malformed> {
    let targets = Targets::default();
    let program = |reader: &mut Reader<'_>| reader.shortest_slice().map(|program| Program(program.to_vec()));
    let wait = |reader: &mut Reader<'_>| option(reader, |reader| reader.shortest_varint());
    Ok(match kind {
        1 => {
            let (attempt, wait_ns) = (attempt(reader)?, wait(reader)?);
            Request::Reserve { attempt, targets, program: program(reader)?, wait_ns }
        }
        2 => {
            let (id, home) = (TransactionId::decode(reader)?, Home::decode(reader)?);
            let wait_ns = wait(reader)?;
            Request::Prepare { id, home, targets, program: program(reader)?, wait_ns }
        }
        3 => Request::Commit {
            id: TransactionId::decode(reader)?,
            prepared: list(reader, MAX_PARTICIPANTS, Prepared::decode)?,
            part: option(reader, |reader| {
                Ok(HomePart { attempt: attempt(reader)?, targets: Targets::default(), program: program(reader)? })
            })?,
        },
        4 => Request::Release(TransactionId::decode(reader)?),
        5 => Request::Status {
            id: TransactionId::decode(reader)?,
            of: option(reader, |reader| Ok((TabletId(reader.shortest_varint()?), reader.i64()?)))?,
            at_us: option(reader, |reader| reader.i64())?,
        },
        6 => Request::Finish { id: TransactionId::decode(reader)?, ending: Ending::decode(reader)? },
        7 => Request::Forget(list(reader, MAX_FORGOTTEN, TransactionId::decode)?),
        _ => return Err(Malformed),
    })
}

impl Answer {
    /// The answer that is this reply.
    pub fn plain(reply: Reply) -> Self {
        Self::Reply { reply, of_program: Vec::new() }
    }

    /// The encoded form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Done => out.push(0),
            Self::Reply { reply, of_program } => put_reply(&mut out, reply, of_program),
            Self::Pinned { pin, lease_ns, staged } => {
                out.push(9);
                out.extend_from_slice(&pin.0.to_le_bytes());
                put_varint(&mut out, *lease_ns);
                put_varint(&mut out, staged.len() as u64);
                for staged in staged {
                    staged.id.encode(&mut out);
                    put_i64(&mut out, staged.prepared_us);
                    staged.home.encode(&mut out);
                }
            }
            Self::TooLate(newest_us) => {
                out.push(10);
                put_i64(&mut out, *newest_us);
            }
        }
        out
    }

    /// Decodes what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// Nothing encodes to these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let answer = match reader.u8()? {
            0 => Self::Done,
            9 => Self::Pinned {
                pin: PinId(reader.u64()?),
                lease_ns: reader.shortest_varint()?,
                staged: list(&mut reader, MAX_STAGED, |reader| {
                    let (id, prepared_us) = (TransactionId::decode(reader)?, reader.i64()?);
                    Ok(Staged { id, prepared_us, home: Home::decode(reader)? })
                })?,
            },
            10 => Self::TooLate(reader.i64()?),
            kind => reply(kind, &mut reader)?,
        };
        if reader.is_empty() { Ok(answer) } else { Err(Malformed) }
    }
}

fn put_refusal(out: &mut Vec<u8>, refusal: Refusal, of_program: &[u8]) {
    out.push(match refusal {
        Refusal::Held => 0,
        Refusal::ConditionFailed => 1,
        Refusal::Unavailable => 2,
    });
    put_slice(out, of_program);
}

fn refusal(reader: &mut Reader<'_>) -> Result<Refusal, Malformed> {
    match reader.u8()? {
        0 => Ok(Refusal::Held),
        1 => Ok(Refusal::ConditionFailed),
        2 => Ok(Refusal::Unavailable),
        _ => Err(Malformed),
    }
}

fn put_reply(out: &mut Vec<u8>, reply: &Reply, of_program: &[u8]) {
    match reply {
        Reply::Reserved { id, attempt } => {
            out.push(1);
            id.encode(out);
            put_varint(out, (*attempt).into());
        }
        Reply::NotReserved { attempt, refusal } => {
            out.push(2);
            put_varint(out, (*attempt).into());
            put_refusal(out, *refusal, of_program);
        }
        Reply::Prepared { id, stamp_us } => {
            out.push(3);
            id.encode(out);
            put_i64(out, *stamp_us);
        }
        Reply::NotPrepared { id, refusal } => {
            out.push(4);
            id.encode(out);
            put_refusal(out, *refusal, of_program);
        }
        Reply::Committed { id, committed_us, next } => {
            out.push(5);
            id.encode(out);
            put_i64(out, *committed_us);
            put_option(out, *next, put_varint);
        }
        Reply::Lost(id) => {
            out.push(6);
            id.encode(out);
        }
        Reply::Status { id, status } => {
            out.push(7);
            id.encode(out);
            match status {
                Status::Aborted => out.push(0),
                Status::NotYet => out.push(1),
                Status::Committed(committed_us) => {
                    out.push(2);
                    put_i64(out, *committed_us);
                }
            }
        }
        Reply::Finished(id) => {
            out.push(8);
            id.encode(out);
        }
    }
}

fn reply(kind: u8, reader: &mut Reader<'_>) -> Result<Answer, Malformed> {
    let mut of_program = Vec::new();
    let reply = match kind {
        1 => Reply::Reserved { id: TransactionId::decode(reader)?, attempt: attempt(reader)? },
        2 => {
            let (attempt, refusal) = (attempt(reader)?, refusal(reader)?);
            of_program = reader.shortest_slice()?.to_vec();
            Reply::NotReserved { attempt, refusal }
        }
        3 => Reply::Prepared { id: TransactionId::decode(reader)?, stamp_us: reader.i64()? },
        4 => {
            let (id, refusal) = (TransactionId::decode(reader)?, refusal(reader)?);
            of_program = reader.shortest_slice()?.to_vec();
            Reply::NotPrepared { id, refusal }
        }
        5 => Reply::Committed {
            id: TransactionId::decode(reader)?,
            committed_us: reader.i64()?,
            next: option(reader, |reader| reader.shortest_varint())?,
        },
        6 => Reply::Lost(TransactionId::decode(reader)?),
        7 => {
            let id = TransactionId::decode(reader)?;
            let status = match reader.u8()? {
                0 => Status::Aborted,
                1 => Status::NotYet,
                2 => Status::Committed(reader.i64()?),
                _ => return Err(Malformed),
            };
            Reply::Status { id, status }
        }
        8 => Reply::Finished(TransactionId::decode(reader)?),
        _ => return Err(Malformed),
    };
    Ok(Answer::Reply { reply, of_program })
}

#[cfg(test)]
pub(crate) mod tests;
