//! A real `diorite start` process, as an operator and as a hostile client meet it: killed under load, started where it must not start,
//! out of disk, and fed with what is not CQL.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a test drives another process and waits for it")]

mod client;
mod disk;
mod hostile;
mod kill;
mod metrics;
mod refusals;
mod server;
