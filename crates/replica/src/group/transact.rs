//! What a replica does for transactions over several tablets.
//!
//! ```text
//! calls, writes ─▶ admit ─▶ Leader ─▶ run ─▶ steps to propose, answers, questions to other tablets
//! applied steps ─▶ Records (every replica) ─▶ after_apply ─▶ Leader
//! ```
//!
//! Always true: a tablet that no transaction has touched pays for none of this but one look per turn. Steps are
//! proposed in the order in which the leader wants them; one that cannot be proposed now stays first. A program is
//! evaluated once nothing that it reads is in flight: writes that the leader has admitted are known by their keys, and
//! those that it has not seen by the log's index. Left out: the protocol itself ([`diorite_transact`]), and how other
//! tablets are reached ([`crate::TransactionPeers`]).

mod calls;
mod ending;
mod leading;
mod notices;
mod pinning;
mod run;

pub(crate) use calls::{adds_data, admit};
pub(crate) use ending::{holds_promises, may_end, release_if_due};
pub(crate) use leading::{has_steps, has_transactions, stop_leading_transactions};
pub(crate) use notices::{after_apply, sweep_transactions, transaction_finished, transaction_learned};
pub(crate) use run::{note_written, propose_steps};
