//! The progress of a write to several tablets, and the client's error when it fails.
//!
//! Always true: no answer denies an effect that a part had or may have had. The errors which promise that nothing was done (`Unavailable`, `Overloaded`, `Invalid` and
//! the like) are given only while no part of the write has taken effect or may have; from then on every failure is a `WriteTimeout`, with the counts of
//! the part that the fewest replicas hold. A [`Failure`] becomes an answer in [`Progress::answer`] and nowhere else. Left out: sending the parts
//! (the engine), and which errors of a tablet are certain ([`KvError::is_refusal`]).

use crate::budget::Budget;
use crate::error::kv_error;
use crate::kv::{Kv, KvError};
use diorite_base::{GroupId, TabletId};
use diorite_cql::protocol::{Consistency, CqlError, ErrorKind, WriteType};
use parking_lot::Mutex;
use std::sync::Arc;

/// Why a write failed. The answer depends also on the parts that took effect before.
#[derive(Debug)]
pub enum Failure {
    /// A tablet has refused its part, or the outcome of the part is unknown.
    Tablet(TabletId, KvError),
    /// The rest of the statement is impossible.
    Statement(CqlError),
}

impl From<CqlError> for Failure {
    fn from(error: CqlError) -> Self {
        Self::Statement(error)
    }
}

/// The means to carry out a write.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// The work of making its mutations, in bytes.
    pub work: usize,
    /// Whether it is a batch.
    pub is_batch: bool,
    /// When the request arrived, on the monotonic clock.
    pub arrived_ns: u64,
    /// The budget of the request. Its parts end with it.
    pub budget: &'a Arc<Budget>,
    /// How far it has got.
    pub progress: &'a Progress,
}

/// The progress of the parts of a write. Clones share it: when a request is ended, one of them shows how far it had
/// got.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<Counts>>);

#[derive(Debug, Clone, Copy)]
struct Counts {
    write_type: WriteType,
    /// Parts that were to be written, whether they were sent or not.
    parts: usize,
    /// Parts that were sent.
    sent: usize,
    /// Parts that were answered.
    answered: usize,
    /// Parts that have taken effect.
    done: usize,
    /// Parts that failed, and may have taken effect.
    unknown: usize,
    /// Replicas that hold the part that the fewest hold, and how many must.
    fewest: Option<(u32, u32)>,
}

impl Default for Counts {
    fn default() -> Self {
        Self { write_type: WriteType::Simple, parts: 0, sent: 0, answered: 0, done: 0, unknown: 0, fewest: None }
    }
}

impl Progress {
    /// Nothing has been done yet of a write of this type.
    pub fn start(&self, write_type: WriteType) {
        *self.0.lock() = Counts { write_type, ..Counts::default() };
    }

    /// Begins a statement. Failures count as those of a conditional write (CAS) while nothing else has taken effect.
    pub fn begin(&self, is_conditional: bool) {
        let mut counts = self.0.lock();
        if is_conditional && counts.done == 0 {
            counts.write_type = WriteType::Cas;
        }
    }

    /// A part is to be written.
    pub fn add_part(&self) {
        self.0.lock().parts += 1;
    }

    /// A part is about to be sent.
    pub fn send(&self) {
        self.0.lock().sent += 1;
    }

    /// A tablet has answered: its part has taken effect, unless the answer is a program's refusal.
    pub fn answered(&self, is_refusal: bool) {
        let mut counts = self.0.lock();
        counts.answered += 1;
        counts.done += usize::from(!is_refusal);
    }

    /// A part has answered that nothing was done, as far as can be read of the answer.
    pub fn doubt(&self) {
        self.0.lock().unknown += 1;
    }

    /// A part has failed.
    pub fn failed<K: Kv>(&self, kv: &K, tablet: TabletId, error: &KvError) {
        let mut counts = self.0.lock();
        counts.answered += 1;
        counts.unknown += usize::from(!error.is_refusal());
        let known = match error {
            KvError::Timeout(waited) => (waited.received, waited.required),
            _ => (0, 0),
        };
        // The leader's count of voters is newer than this node's catalog.
        let known = if known.1 > 0 { known } else { (known.0, kv.replicas(tablet).required) };
        counts.fewest = counts.fewest.min(Some(known)).or(Some(known));
    }

    /// A part was refused because its tablet does not exist any more, or maintains more, and is about to be planned again.
    pub fn replanned(&self) {
        let mut counts = self.0.lock();
        counts.parts -= 1;
        counts.sent -= 1;
    }

    /// Whether it is certain that no part has taken effect, or may have.
    pub fn is_certain(&self) -> bool {
        self.0.lock().is_certain()
    }

    /// The only way from a failure to an answer.
    pub fn answer<K: Kv>(&self, kv: &K, failure: Failure) -> CqlError {
        let counts = *self.0.lock();
        let is_certain = counts.is_certain();
        match failure {
            Failure::Statement(error) if is_certain => error,
            // There is only one part: its error is the answer, a `WriteTimeout` if the outcome is not known.
            Failure::Tablet(tablet, error) if is_certain || counts.parts <= 1 => {
                kv_error(&error, Some(counts.write_type), kv.replicas(tablet))
            }
            Failure::Tablet(_, error) => counts.in_part(kv, &error),
            Failure::Statement(error) => counts.in_part(kv, &error),
        }
    }

    /// The answer to a write that was ended, for this reason; `None` if nothing of it was sent.
    pub fn ended<K: Kv>(&self, kv: &K, reason: &str) -> Option<CqlError> {
        let mut counts = *self.0.lock();
        let waiting = counts.sent.saturating_sub(counts.answered);
        counts.unknown += waiting;
        if waiting > 0 {
            // The outcomes of the parts without an answer are unknown.
            counts.fewest = counts.fewest.map(|(_, required)| (0, required));
        }
        (counts.done + counts.unknown > 0).then(|| counts.in_part(kv, &reason))
    }
}

impl Counts {
    fn is_certain(&self) -> bool {
        self.done == 0 && self.unknown == 0
    }

    fn in_part<K: Kv>(&self, kv: &K, error: &dyn std::fmt::Display) -> CqlError {
        let fewest = self.fewest.unwrap_or_else(|| (0, kv.replicas(TabletId(GroupId::CATALOG.0)).required));
        let count = |replicas: u32| i32::try_from(replicas).unwrap_or(i32::MAX);
        let required = count(fewest.1);
        // Clients expect fewer responses than were required, as Cassandra reports a timeout.
        let received = count(fewest.0).min(required - 1).max(0);
        let (consistency, write_type) = (Consistency::Quorum, self.write_type);
        let kind = ErrorKind::WriteTimeout { consistency, received, required, write_type, contentions: 0 };
        let (done, unknown) = (self.done, self.unknown);
        let what = match (done, unknown) {
            (0, _) => format!("{unknown} of {} parts of the write may have taken effect", self.parts),
            (_, 0) => format!("{done} of {} parts of the write have taken effect", self.parts),
            _ => format!("{done} of {} parts of the write have taken effect, {unknown} may have", self.parts),
        };
        CqlError::new(kind, format!("Operation timed out - received only {received} responses. ({what}: {error})"))
    }
}
