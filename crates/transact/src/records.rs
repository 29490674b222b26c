//! What a tablet's log says about transactions: the prepares that lock rows here, and the outcomes of transactions
//! whose home is here.
//!
//! ```text
//! key   := 00×8 · 01 · id      prepared   value := 00 · version u8 (1) · stamp i64 · body of the prepare
//!        | 00×8 · 02 · id      outcome    value := 00 · version u8 (1) · stamp i64 · list<prepared>
//! ```
//!
//! No row's key begins with eight zero bytes, and the first byte of a value marks it as no row.
//!
//! Always true: [`Records::apply`] is a function of the records and the entry, the same on every replica, and
//! [`Records::load`] of what it has stored gives the same records. A prepare that is there and a record that is gone
//! are left alone: every step may be repeated. Left out: what a row is. Rows are written by whoever carries out
//! [`Effect::Write`].

use crate::ids::{Home, Prepared, TransactionId};
use crate::step::{Commit, Ending, MAX_PARTICIPANTS, Operation, Prepare, Step};
use crate::targets::Targets;
use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader, put_varint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How the keys of records begin: no row has the smallest token.
pub const KEY_PREFIX: [u8; 8] = [0; 8];
const PREPARED: u8 = 1;
const OUTCOME: u8 = 2;
/// The format of no row: compaction and merges leave such a value alone.
const NO_ROW: u8 = 0;
const VERSION: u8 = 1;

/// The keys of prepares, from the first to the second, exclusive.
pub fn prepared_range() -> (Vec<u8>, Vec<u8>) {
    let key = |kind: u8| [&KEY_PREFIX[..], &[kind]].concat();
    (key(PREPARED), key(PREPARED + 1))
}

/// The programs that a stored prepare stages.
///
/// # Errors
/// If the value is none.
pub fn prepared_programs(value: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut value = Reader::new(value);
    if (value.u8()?, value.u8()?) != (NO_ROW, VERSION) {
        return Err(Malformed);
    }
    let _stamp_us = value.i64()?;
    let prepare = Prepare::decode(&mut value)?;
    Ok(prepare.operations.iter().map(|operation| operation.program.clone()).collect())
}

/// A prepare in force: its rows are locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreparedRecord {
    /// What was prepared.
    pub prepare: Prepare,
    /// The stamp of its entry, microseconds.
    pub stamp_us: i64,
}

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutcomeRecord {
    /// The stamp of the commit, microseconds.
    pub committed_us: i64,
    /// The prepares that it covers.
    pub prepared: Vec<Prepared>,
}

impl OutcomeRecord {
    /// Whether the commit covers the prepare with this stamp in a tablet.
    pub fn covers(&self, tablet: TabletId, stamp_us: i64) -> bool {
        self.prepared.iter().any(|it| it.participant.tablet == tablet && it.stamp_us == stamp_us)
    }
}

/// What applying a step does to the tablet's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Store a record.
    Put {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// Remove a record. It was put once.
    Remove {
        /// Its key.
        key: Vec<u8>,
    },
    /// Write rows.
    Write {
        /// Their stamp, microseconds.
        stamp_us: i64,
        /// The rows.
        operations: Arc<[Operation]>,
    },
}

/// See the top of this module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Records {
    /// Shared with the snapshots of readers.
    prepared: BTreeMap<TransactionId, Arc<PreparedRecord>>,
    /// The seconds as of which the programs that are prepared read, each with its transaction.
    seconds: BTreeSet<(u32, TransactionId)>,
    outcomes: BTreeMap<TransactionId, OutcomeRecord>,
}

fn key(kind: u8, id: &TransactionId) -> Vec<u8> {
    let mut key = KEY_PREFIX.to_vec();
    key.push(kind);
    id.encode(&mut key);
    key
}

fn value(stamp_us: i64) -> Vec<u8> {
    let mut value = vec![NO_ROW, VERSION];
    value.extend_from_slice(&stamp_us.to_le_bytes());
    value
}

impl Records {
    /// Whether the key is that of a record.
    pub fn is_record(key: &[u8]) -> bool {
        key.strip_prefix(&KEY_PREFIX).is_some_and(|rest| matches!(rest.first(), Some(&(PREPARED | OUTCOME))))
    }

    /// About the bytes of the programs that are prepared.
    pub fn staged_bytes(&self) -> usize {
        let operations = self.prepared.values().flat_map(|record| record.prepare.operations.iter());
        operations.map(|operation| operation.program.len()).sum()
    }

    /// Where the keys of records end, exclusive.
    pub fn end_of_keys() -> Vec<u8> {
        [&KEY_PREFIX[..], &[OUTCOME + 1]].concat()
    }

    /// Whether nothing is prepared, and no outcome is kept.
    pub fn is_empty(&self) -> bool {
        self.prepared.is_empty() && self.outcomes.is_empty()
    }

    /// Records as they were stored.
    pub fn load<'a>(stored: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, Malformed> {
        let mut records = Self::default();
        for (key, value) in stored {
            let (mut key, mut value) = (Reader::new(key), Reader::new(value));
            if key.array::<8>()? != KEY_PREFIX {
                return Err(Malformed);
            }
            let kind = key.u8()?;
            let id = TransactionId::decode(&mut key)?;
            if (value.u8()?, value.u8()?) != (NO_ROW, VERSION) || !key.is_empty() {
                return Err(Malformed);
            }
            let stamp_us = value.i64()?;
            match kind {
                PREPARED => {
                    let prepare = Prepare::decode(&mut value)?;
                    if prepare.id != id {
                        return Err(Malformed);
                    }
                    records.keep(PreparedRecord { prepare, stamp_us });
                }
                OUTCOME => {
                    let prepared = crate::step::list(&mut value, MAX_PARTICIPANTS, Prepared::decode)?;
                    records.outcomes.insert(id, OutcomeRecord { committed_us: stamp_us, prepared });
                }
                _ => return Err(Malformed),
            }
            if !value.is_empty() {
                return Err(Malformed);
            }
        }
        Ok(records)
    }

    /// Applies a step of an entry with this stamp.
    pub fn apply(&mut self, stamp_us: i64, step: &Step) -> Vec<Effect> {
        match step {
            Step::Prepare(prepare) => self.apply_prepare(stamp_us, prepare),
            Step::Commit(commit) => self.apply_commit(stamp_us, commit),
            Step::Finish { id, ending } => self.apply_finish(id, *ending),
            Step::Forget(ids) => {
                let gone = ids.iter().filter(|id| self.outcomes.remove(id).is_some());
                gone.map(|id| Effect::Remove { key: key(OUTCOME, id) }).collect()
            }
        }
    }

    fn apply_prepare(&mut self, stamp_us: i64, prepare: &Prepare) -> Vec<Effect> {
        if self.prepared.contains_key(&prepare.id) {
            return Vec::new();
        }
        let mut stored = value(stamp_us);
        prepare.encode(&mut stored);
        self.keep(PreparedRecord { prepare: prepare.clone(), stamp_us });
        vec![Effect::Put { key: key(PREPARED, &prepare.id), value: stored }]
    }

    fn apply_commit(&mut self, stamp_us: i64, commit: &Commit) -> Vec<Effect> {
        if self.outcomes.contains_key(&commit.id) {
            return Vec::new();
        }
        let mut stored = value(stamp_us);
        put_varint(&mut stored, commit.prepared.len() as u64);
        commit.prepared.iter().for_each(|prepared| prepared.encode(&mut stored));
        let outcome = OutcomeRecord { committed_us: stamp_us, prepared: commit.prepared.clone() };
        self.outcomes.insert(commit.id, outcome);
        vec![
            Effect::Put { key: key(OUTCOME, &commit.id), value: stored },
            Effect::Write { stamp_us, operations: Arc::clone(&commit.operations) },
        ]
    }

    fn apply_finish(&mut self, id: &TransactionId, ending: Ending) -> Vec<Effect> {
        if !self.is_ended_by(id, ending) {
            return Vec::new();
        }
        let Some(record) = self.prepared.remove(id) else { return Vec::new() };
        for operation in record.prepare.operations.iter() {
            self.seconds.remove(&(operation.now_s, *id));
        }
        let removed = Effect::Remove { key: key(PREPARED, id) };
        match ending {
            Ending::Aborted => vec![removed],
            Ending::Committed { committed_us, .. } => {
                let operations = Arc::clone(&record.prepare.operations);
                vec![removed, Effect::Write { stamp_us: committed_us, operations }]
            }
        }
    }

    /// Whether this ending is for the prepare that is in force here.
    pub fn is_ended_by(&self, id: &TransactionId, ending: Ending) -> bool {
        self.prepared.get(id).is_some_and(|record| match ending {
            Ending::Aborted => true,
            Ending::Committed { prepared_us, .. } => record.stamp_us == prepared_us,
        })
    }

    /// The prepare of a transaction that is in force here.
    pub fn prepared(&self, id: &TransactionId) -> Option<&PreparedRecord> {
        self.prepared.get(id).map(|record| &**record)
    }

    fn keep(&mut self, record: PreparedRecord) {
        let id = record.prepare.id;
        self.seconds.extend(record.prepare.operations.iter().map(|operation| (operation.now_s, id)));
        self.prepared.insert(id, Arc::new(record));
    }

    /// The earliest second as of which a program that is prepared reads. What expired after it has to stay readable
    /// until that program has ended.
    pub fn oldest_s(&self) -> Option<u32> {
        self.seconds.first().map(|(now_s, _)| *now_s)
    }

    /// All prepares in force.
    pub fn all_prepared(&self) -> impl Iterator<Item = (&TransactionId, &Arc<PreparedRecord>)> {
        self.prepared.iter()
    }

    /// The outcome of a transaction that was committed here and is not forgotten.
    pub fn outcome(&self, id: &TransactionId) -> Option<&OutcomeRecord> {
        self.outcomes.get(id)
    }

    /// All outcomes.
    pub fn outcomes(&self) -> impl Iterator<Item = (&TransactionId, &OutcomeRecord)> {
        self.outcomes.iter()
    }

    /// What the prepares in force lock, for [`crate::locks::Locks::rebuild`].
    pub fn locked(&self) -> impl Iterator<Item = (TransactionId, &Targets)> {
        self.prepared.iter().map(|(id, record)| (*id, &record.prepare.targets))
    }

    /// Where the outcome of a transaction that is prepared here is found.
    pub fn home(&self, id: &TransactionId) -> Option<&Home> {
        self.prepared.get(id).map(|record| &record.prepare.home)
    }
}
