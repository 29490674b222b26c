//! What the leaders of tablets ask each other about transactions that their coordinators have left unfinished.

use diorite_base::TabletId;
use diorite_transact::step::Ending;
use diorite_transact::{Home, Participant, TransactionId};

/// What the leader of a tablet asks of another tablet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerCall {
    /// What has become of a transaction that is prepared here. [`crate::Core::transaction_learned`] takes the answer.
    Ask {
        /// Where the home is found.
        home: Home,
        /// The transaction.
        id: TransactionId,
        /// The stamp of the prepare, microseconds.
        prepared_us: i64,
    },
    /// To finish. [`crate::Core::transaction_finished`] takes the answer.
    Finish {
        /// The tablet.
        participant: Participant,
        /// The transaction.
        id: TransactionId,
        /// How it has ended.
        ending: Ending,
    },
}

/// Reaches the leaders of other tablets.
pub trait TransactionPeers: Send + Sync + 'static {
    /// Sends a call for the tablet that is led here. It may get lost: it is repeated. Must not wait.
    fn call(&self, tablet: TabletId, call: PeerCall);
}
