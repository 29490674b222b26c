//! The names of a transaction and of the tablets that take part in it, and their encodings.
//!
//! Always true: a value has one encoding. An id is issued by the leader of the home tablet in the term that the id
//! names, once. A prepare is named by the id *and* its stamp: a repeated message may prepare the same transaction again
//! after its first prepare has been finished, and the two must not be confused.

use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::{TableId, TabletId};
use std::fmt;

/// A transaction. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionId {
    /// The home tablet, which decides.
    pub tablet: TabletId,
    /// The term of the home's leader that issued the id. Only that leader may commit it.
    pub term: u64,
    /// Counts the reservations of that leader.
    pub number: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tablet, self.term, self.number)
    }
}

impl TransactionId {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.tablet.0);
        put_varint(out, self.term);
        put_varint(out, self.number);
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            tablet: TabletId(reader.shortest_varint()?),
            term: reader.shortest_varint()?,
            number: reader.shortest_varint()?,
        })
    }
}

/// Where a transaction's home is found, also after the home tablet was split: by a key of its table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// The home tablet's table.
    pub table: TableId,
    /// The beginning of a key that the transaction reserves there.
    pub key: Vec<u8>,
    /// Whether readers of what is prepared ask there what has become of it. Those of tables without transactions read
    /// what was there before, until the transaction has finished.
    pub tells_readers: bool,
}

impl Home {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.table.0);
        put_slice(out, &self.key);
        out.push(u8::from(self.tells_readers));
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (table, key) = (TableId(reader.shortest_varint()?), reader.shortest_slice()?.to_vec());
        let tells_readers = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        Ok(Self { table, key, tells_readers })
    }
}

/// A tablet other than the home that takes part in a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Participant {
    /// The tablet's table.
    pub table: TableId,
    /// The tablet, when the transaction began.
    pub tablet: TabletId,
    /// The beginning of a key that the transaction locks there, by which the tablet is found after a split.
    pub key: Vec<u8>,
}

/// A participant that has prepared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepared {
    /// The tablet.
    pub participant: Participant,
    /// The stamp of the prepare, microseconds. The commit is stamped above it, and covers no other prepare.
    pub stamp_us: i64,
}

impl Prepared {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.participant.table.0);
        put_varint(out, self.participant.tablet.0);
        put_slice(out, &self.participant.key);
        out.extend_from_slice(&self.stamp_us.to_le_bytes());
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let participant = Participant {
            table: TableId(reader.shortest_varint()?),
            tablet: TabletId(reader.shortest_varint()?),
            key: reader.shortest_slice()?.to_vec(),
        };
        Ok(Self { participant, stamp_us: reader.i64()? })
    }
}
