//! The engine: takes requests of a connection, finds or makes their plans, and has them executed.
//!
//! [`QueryEngine::execute_now`] ([`point`]) is tried first for EXECUTE; what it declines, and all other requests, come to
//! [`QueryEngine::answer`].
//!
//! Always true: a request is executed against the newest catalog this node has when it begins; a request's future owns all it needs. What
//! was refused because its tablets are gone (`TRUNCATE` came between) is carried out once more with the current ones, and a write that
//! was refused because its table has changed is planned again ([`again`]); a failed write is answered by [`crate::exec::parts`] alone. Left out: encoding answers (the node), other retries (the client's: what may be retried says so by its error).

mod again;
mod answer;
mod batch;
mod checked;
mod compared;
mod covering;
mod ends;
mod explain;
mod in_advance;
mod long;
mod outcomes;
mod point;
mod point_view;
mod refused;
mod request;
mod row;
mod snapshot;
mod state;
mod statement;
mod submitted;
mod traced;
mod transaction;
mod unique;
mod write;

pub use self::checked::Checked;
pub use self::compared::{Comparison, RowComparer};
#[cfg(test)]
pub(crate) use self::long::{LONG_BYTES, planning_work};
pub use self::outcomes::TransactionOutcomes;
pub use self::point::{ExecuteNow, ReplyTo, held_bytes_of, slot_of, write_type_of};
pub use self::request::{Answered, OwnedRequest, Reply};
pub use self::state::{EngineConfig, QueryEngine};
pub use self::submitted::submitted_error;
