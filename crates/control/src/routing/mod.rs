//! Where a request for a tablet goes: as inputs → steps.
//!
//! ```text
//! a request ────────────▶ Routing::direct ──── leader known ──▶ InFlight (one per node) ──▶ the node
//!                              │ unknown                            │ answered, refused, lost, timed out
//!                              ▼                                    ▼
//! time, catalog, nodes ─▶ parked, by tablet ◀── step: park ── Routing::failed, again
//!                              └── look: all, or one as a probe ──▶ step: send, serve here, fail
//! ```
//!
//! [`Routing`] knows leaders and keeps the requests that wait for one; an [`InFlight`] keeps those that one node was asked. `diorite_node::route` gives each of
//! them a lock, the sockets and the clock; [`Machine`] composes them for one thread, for tests and the simulation.
//!
//! Always true: each request has one owner, and ends once. A request is never forwarded by the node that received it from another. What may have been
//! carried out ([`Sent`]) becomes a [`Request`] that can be sent again only if it was refused or is a read. Everything that waits is bounded, and ends at its
//! deadline: as [`Unavailable`](diorite_base::write::KvError::Unavailable) if it was certainly not carried out, as
//! [`Timeout`](diorite_base::write::KvError::Timeout) if that is not known. The same inputs give the same steps.
//! Left out: the bytes of requests, and what carrying one out means.

mod decide;
mod flight;
mod leaders;
mod machine;
mod parked;
mod request;
mod step;
#[cfg(test)]
mod tests;
mod view;

pub use decide::Routing;
pub use flight::{Due, InFlight, Limits};
pub use machine::{Machine, Message, Output};
pub use request::{Asked, Request, Sent, Timeouts, Work};
pub use step::{Step, Target, Way};
pub use view::{Local, View};
