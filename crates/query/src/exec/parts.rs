//! How far a write to several tablets has got, and what the client is told when it fails.
//!
//! Always true: an answer never says less than what happened. The errors that promise that nothing was done (`Unavailable`, `Overloaded`, `Invalid` and
//! the like) are given only while no part of the write has taken effect or may have; from then on every failure is a `WriteTimeout`, with the counts of
//! the part that the fewest replicas hold. A [`Failure`] becomes an answer in [`Progress::answer`] and nowhere else. Left out: sending the parts
//! (the engine), and which errors of a tablet are certain ([`KvError::is_refusal`]).

use crate::error::kv_error;
use crate::kv::{Kv, KvError};
use crate::program::ProgramReply;
use diorite_base::{GroupId, TabletId};
use diorite_cql::protocol::{Consistency, CqlError, ErrorKind, WriteType};

/// Why a write did not come to its end. Not an answer yet: that depends on what was done before.
#[derive(Debug)]
pub enum Failure {
    /// A tablet has refused its part, or it is not known what became of it.
    Tablet(TabletId, KvError),
    /// What is left of the statement cannot be carried out.
    Statement(CqlError),
}

impl From<CqlError> for Failure {
    fn from(error: CqlError) -> Self {
        Self::Statement(error)
    }
}

/// What has become of the parts of a write.
#[derive(Debug)]
pub struct Progress {
    write_type: WriteType,
    /// Parts that were to be written, whether they were sent or not.
    parts: usize,
    /// Parts that have taken effect.
    done: usize,
    /// Parts of which that is not known.
    unknown: usize,
    /// Replicas that hold the part that the fewest hold, and how many must.
    fewest: Option<(u32, u32)>,
}

impl Progress {
    /// Nothing has been done yet.
    pub fn new(write_type: WriteType) -> Self {
        Self { write_type, parts: 0, done: 0, unknown: 0, fewest: None }
    }

    /// Begins a statement; what failed is its condition's affair as long as nothing else was written.
    pub fn begin(&mut self, is_conditional: bool) {
        if is_conditional && self.done == 0 {
            self.write_type = WriteType::Cas;
        }
    }

    /// A part is to be written.
    pub fn add_part(&mut self) {
        self.parts += 1;
    }

    /// A tablet has answered; with what its program said, if the part was one.
    pub fn answered(&mut self, reply: Option<&ProgramReply>) {
        match reply {
            None | Some(ProgramReply::Applied) => self.done += 1,
            Some(ProgramReply::Refused(_) | ProgramReply::Failed(_)) => {}
        }
    }

    /// A part has failed.
    pub fn failed<K: Kv>(&mut self, kv: &K, tablet: TabletId, error: &KvError) {
        self.unknown += usize::from(!error.is_refusal());
        let known = match error {
            KvError::Timeout(waited) => (waited.received, waited.required),
            _ => (0, 0),
        };
        // Whoever waited knows the voters better than this node's catalog.
        let known = if known.1 > 0 { known } else { (known.0, kv.replicas(tablet).required) };
        self.fewest = self.fewest.min(Some(known)).or(Some(known));
    }

    /// A part was refused because its tablet is gone, and is about to be planned again.
    pub fn replanned(&mut self) {
        self.parts -= 1;
    }

    /// The only way from a failure to an answer.
    pub fn answer<K: Kv>(&self, kv: &K, failure: Failure) -> CqlError {
        let is_certain = self.done == 0 && self.unknown == 0;
        match failure {
            Failure::Statement(error) if is_certain => error,
            // The one part there is: its error says all.
            Failure::Tablet(tablet, error) if is_certain || self.parts <= 1 => {
                kv_error(&error, Some(self.write_type), kv.replicas(tablet))
            }
            Failure::Tablet(_, error) => self.in_part(kv, &error),
            Failure::Statement(error) => self.in_part(kv, &error),
        }
    }

    fn in_part<K: Kv>(&self, kv: &K, error: &dyn std::fmt::Display) -> CqlError {
        let fewest = self.fewest.unwrap_or_else(|| (0, kv.replicas(TabletId(GroupId::CATALOG.0)).required));
        let count = |replicas: u32| i32::try_from(replicas).unwrap_or(i32::MAX);
        let required = count(fewest.1);
        // Clients are told that it was not enough, as they are by Cassandra.
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
