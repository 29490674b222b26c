//! Routing of requests for tablets, as inputs → steps.
//!
//! ```text
//! a request ────────────▶ Routing::direct ──── leader known ──▶ InFlight (one per node) ──▶ the node
//!                              │ unknown                            │ answered, refused, lost, timed out
//!                              ▼                                    ▼
//! time, catalog, nodes ─▶ parked, by tablet ◀── step: park ── Routing::failed, again
//!                              └── look: all, or one as a probe ──▶ step: send, serve here, fail
//! ```
//!
//! [`Routing`] knows leaders and holds the requests that wait for one; an [`InFlight`] holds those that one node was
//! sent. `diorite_node::route` gives each of them a lock, and owns the sockets and the clock; [`Machine`] combines them
//! for one thread, for tests and the simulation.
//!
//! Always true: each request has one owner, and ends once. A node never forwards a request that it received from
//! another node. A request that was sent ([`Sent`]) may have been carried out; it becomes a [`Request`] that can be
//! sent again only if it was refused or is a read. All waiting is bounded, and ends at the deadline: with
//! [`Unavailable`](diorite_base::write::KvError::Unavailable) if the request was certainly not carried out, with
//! [`Timeout`](diorite_base::write::KvError::Timeout) if that is unknown. The same inputs give the same steps.
//! Left out: the bytes of requests, and how they are carried out.

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
pub use flight::{Disconnected, Due, InFlight, Limits};
pub use machine::{Machine, Message, Output};
pub use request::{Asked, Request, Sent, Timeouts, Work};
pub use step::{Step, Target, Way};
pub use view::{Local, View};
