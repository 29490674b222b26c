//! What the leaders of tablets ask each other about transactions that their coordinators have left unfinished.
//!
//! Always true: a call may get lost; whoever makes it repeats it. Left out: which tablet answers it by now (the query
//! layer, which knows the catalog), and how it gets there (the node).

use crate::message::Status;
use crate::step::Ending;
use crate::{Home, Participant, TransactionId};
use diorite_base::TabletId;

/// What the leader of a tablet asks of another tablet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerCall {
    /// What has become of a transaction that is prepared here.
    Ask {
        /// Where the home is found.
        home: Home,
        /// The transaction.
        id: TransactionId,
        /// The stamp of the prepare, microseconds.
        prepared_us: i64,
    },
    /// To finish.
    Finish {
        /// The tablet.
        participant: Participant,
        /// The transaction.
        id: TransactionId,
        /// How it has ended.
        ending: Ending,
    },
}

/// What the leader that has made a call learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerResult {
    /// What has become of a transaction whose prepare has this stamp.
    Learned(TransactionId, i64, Status),
    /// A participant has finished.
    Finished(TransactionId, TabletId),
}
