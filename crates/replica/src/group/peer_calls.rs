//! How a tablet reaches the leaders of others, about transactions that their coordinators have left unfinished.

use diorite_base::TabletId;
use diorite_transact::peer::PeerCall;

/// Reaches the leaders of other tablets. [`crate::Core::transaction_learned`] and [`crate::Core::transaction_finished`]
/// take what comes of it.
pub trait TransactionPeers: Send + Sync + 'static {
    /// Sends a call for the tablet that is led here. It may get lost: it is repeated. Must not wait.
    fn call(&self, tablet: TabletId, call: PeerCall);
}
