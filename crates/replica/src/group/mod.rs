//! One tablet's Raft group on this node: leadership, lease and members; proposing and applying.
//!
//! The modules, lowest layer first: the parts of a group (`lease`, `handle`, `waiters`, `promise`, `wire`, `merge`,
//! `split`, `row_sizes`), the replica (`replica`, `apply`), the requests of groups to their store thread (`turn`), and the work of a
//! replica: `writes`, `members`, `election`, `suspects`, `advance`, `receive`.

pub(crate) mod advance;
mod appended;
pub(crate) mod apply;
pub(crate) mod catch_up;
pub(crate) mod checks;
pub(crate) mod describe;
pub(crate) mod election;
pub(crate) mod entry;
pub(crate) mod handle;
pub(crate) mod horizon;
pub(crate) mod index_notes;
mod indexed;
pub(crate) mod lease;
pub(crate) mod measuring;
pub(crate) mod members;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod misses;
pub(crate) mod outcomes;
pub(crate) mod peer_calls;
pub(crate) mod pins;
pub(crate) mod prepared;
pub(crate) mod promise;
pub(crate) mod proposal;
pub(crate) mod receive;
pub(crate) mod recover;
pub(crate) mod replica;
pub(crate) mod roles;
pub(crate) mod row_sizes;
pub(crate) mod samples;
pub(crate) mod sealed;
pub(crate) mod split;
pub(crate) mod stale;
pub(crate) mod standings;
pub(crate) mod suspects;
pub(crate) mod timing;
pub(crate) mod transact;
pub(crate) mod transacted;
pub(crate) mod transactions;
pub(crate) mod turn;
pub(crate) mod view;
pub(crate) mod waiters;
pub(crate) mod wanted;
pub(crate) mod wire;
pub(crate) mod writes;
