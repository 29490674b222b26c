//! What coordinators and the leaders of tablets send each other.
//!
//! Always true: a message may be lost, late or repeated; only its late effect on time is bounded, where
//! [`crate::timing`] says so. Left out: the encoding in frames, and the content of programs and conditions, which
//! belong to the query layer.

use crate::ids::{Home, Prepared, TransactionId};
use crate::step::Ending;
use crate::targets::Targets;
use diorite_base::TabletId;

/// The writes of a transaction to one tablet, before they are evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Program(pub Vec<u8>);

/// The part of a transaction in its home, if it is committed without a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HomePart {
    /// The attempt of the coordinator, which comes back in a refusal.
    pub attempt: u32,
    /// What is locked.
    pub targets: Targets,
    /// What is written.
    pub program: Program,
}

/// A question to the leader of a tablet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// To the home: lock rows in memory, evaluate, issue an id. It waits while something is held.
    Reserve {
        /// The attempt of the coordinator, which comes back in the reply.
        attempt: u32,
        /// What is locked.
        targets: Targets,
        /// What is written.
        program: Program,
        /// How long it may wait, nanoseconds; none if it may not.
        wait_ns: Option<u64>,
    },
    /// To a participant: lock and stage rows.
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// Where its outcome is found.
        home: Home,
        /// What is locked.
        targets: Targets,
        /// What is written.
        program: Program,
        /// How long it may wait, nanoseconds; none if it may not.
        wait_ns: Option<u64>,
    },
    /// To the home: commit.
    Commit {
        /// The transaction.
        id: TransactionId,
        /// The participants, with the prepares that are covered.
        prepared: Vec<Prepared>,
        /// For an id that was issued in advance: rows are locked and evaluated now. It does not wait.
        part: Option<HomePart>,
    },
    /// To the home: the reservation is given up. Not answered.
    Release(TransactionId),
    /// To the home: what has become of a transaction?
    Status {
        /// The transaction.
        id: TransactionId,
        /// The tablet and the stamp of the prepare that the asker has met; none if the coordinator asks.
        of: Option<(TabletId, i64)>,
        /// The stamp as of which a read asks, microseconds: "not yet" then holds for that stamp for ever.
        at_us: Option<i64>,
    },
    /// To a participant: a transaction has ended.
    Finish {
        /// The transaction.
        id: TransactionId,
        /// How it has ended.
        ending: Ending,
    },
    /// To the home: all participants of these transactions have finished. Not answered.
    Forget(Vec<TransactionId>),
}

/// What a home knows about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Committed at this stamp, microseconds.
    Committed(i64),
    /// Not committed when this was said.
    NotYet,
    /// Not committed, now and for ever; or committed and forgotten, which those that hold a prepare that the commit
    /// covers cannot meet.
    Aborted,
}

/// An answer of the leader of a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// To [`Request::Reserve`].
    Reserved {
        /// The id.
        id: TransactionId,
        /// The coordinator's attempt.
        attempt: u32,
    },
    /// To [`Request::Reserve`], and to [`Request::Commit`] without a reservation: nothing was done, nor will be.
    NotReserved {
        /// The coordinator's attempt.
        attempt: u32,
        /// Why.
        refusal: Refusal,
    },
    /// To [`Request::Prepare`]: it is applied.
    Prepared {
        /// The transaction.
        id: TransactionId,
        /// The stamp, microseconds.
        stamp_us: i64,
    },
    /// To [`Request::Prepare`]: nothing was done.
    NotPrepared {
        /// The transaction.
        id: TransactionId,
        /// Why.
        refusal: Refusal,
    },
    /// To [`Request::Commit`]: it is applied.
    Committed {
        /// The transaction.
        id: TransactionId,
        /// The stamp, microseconds.
        committed_us: i64,
        /// Issued in advance: the number, in the same tablet and term, of a transaction that the asker may begin.
        next: Option<u64>,
    },
    /// To [`Request::Commit`]: this transaction has no reservation here and no outcome.
    Lost(TransactionId),
    /// To [`Request::Status`].
    Status {
        /// The transaction.
        id: TransactionId,
        /// What is known.
        status: Status,
    },
    /// To [`Request::Finish`]: the prepare is no longer in force.
    Finished(TransactionId),
}

/// Why a tablet has locked nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// Something is held by others, or was until the end of the wait.
    Held,
    /// A condition is not satisfied.
    ConditionFailed,
    /// The replica does not lead, or cannot answer yet, or the table of locks is full.
    Unavailable,
}
