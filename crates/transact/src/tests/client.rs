//! Those who ask in the model: coordinators of transactions, writers of one row, readers of one row.

use crate::coordinator::{Coordinator, Outcome, Plan};
use crate::ids::TransactionId;
use crate::leader::Known;
use crate::message::{HomePart, Reply, Request};
use crate::planted::Planted;
use crate::step::Ending;
use crate::timing::Timing;
use diorite_base::TabletId;
use std::sync::Arc;

/// A request that a coordinator waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outstanding {
    pub to: TabletId,
    pub request: Request,
    /// No answer will come, so that waiting in vain is no fault of its own.
    pub is_lost: bool,
}

/// A coordinator, and its client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub plan: Arc<Plan>,
    /// It begins with the number that the answer to another one's commit brings.
    pub is_next: bool,
    pub coordinator: Option<Coordinator>,
    pub has_started: bool,
    pub outcome: Option<Outcome>,
    pub outstanding: Vec<Outstanding>,
}

impl Client {
    pub fn new(plan: Arc<Plan>, timing: Timing, planted: Planted, in_advance: Option<TransactionId>) -> Self {
        let mut coordinator = Coordinator::new(Arc::clone(&plan), timing, in_advance);
        coordinator.plant(planted);
        Self {
            plan,
            is_next: false,
            coordinator: Some(coordinator),
            has_started: false,
            outcome: None,
            outstanding: Vec::new(),
        }
    }

    /// It begins when it is given an id.
    pub fn next(plan: Arc<Plan>) -> Self {
        Self { plan, is_next: true, coordinator: None, has_started: false, outcome: None, outstanding: Vec::new() }
    }

    /// Whether it waits for an answer to a request.
    pub fn sends(&mut self, to: TabletId, request: &Request) {
        let is_answered = match request {
            Request::Finish { ending, .. } => *ending != Ending::Aborted,
            Request::Release(_) | Request::Forget(_) => false,
            _ => true,
        };
        if is_answered {
            self.outstanding.push(Outstanding { to, request: request.clone(), is_lost: false });
        }
    }

    /// Ends the waits that a reply answers.
    pub fn receives(&mut self, from: TabletId, reply: &Reply) {
        self.outstanding.retain(|waits| waits.to != from || !is_answer(reply, &waits.request));
    }
}

/// Whether a reply of the tablet that was asked answers the request.
pub fn is_answer(reply: &Reply, request: &Request) -> bool {
    match (reply, request) {
        (
            Reply::Reserved { attempt: of, .. } | Reply::NotReserved { attempt: of, .. },
            Request::Reserve { attempt, .. },
        )
        | (Reply::NotReserved { attempt: of, .. }, Request::Commit { part: Some(HomePart { attempt, .. }), .. }) => {
            of == attempt
        }
        (Reply::Prepared { id, .. } | Reply::NotPrepared { id, .. }, Request::Prepare { id: of, .. })
        | (Reply::Committed { id, .. } | Reply::Lost(id), Request::Commit { id: of, .. })
        | (Reply::Status { id, .. }, Request::Status { id: of, .. })
        | (Reply::Finished(id), Request::Finish { id: of, .. }) => id == of,
        _ => false,
    }
}

/// A writer of one row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Writer {
    pub tablet: usize,
    pub key: u8,
    pub value: i8,
    pub stage: WriterStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriterStage {
    New,
    Waits,
    Written,
    /// Not accepted, refused, or the leader is gone.
    Ended,
}

/// A reader of one row. It looks at the lock and reads the row at different moments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    pub tablet: usize,
    pub key: u8,
    pub stage: ReaderStage,
    /// The stamp that the result must not be below: what was acknowledged or read before it began.
    pub at_least_us: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReaderStage {
    New,
    Looks(Option<Known>),
    Asks {
        id: TransactionId,
        prepared_us: i64,
    },
    /// The lock has been looked at in this term.
    Reads {
        term: u64,
    },
    /// The row has been read before the lock was looked at: a bug.
    HasRead {
        term: u64,
        stamp_us: i64,
    },
    Ended,
}
