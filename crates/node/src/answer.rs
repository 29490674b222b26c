//! The outcome of a client's message: what its connection does next, and the answers of requests that run as futures.
//!
//! Left out: how messages are read ([`crate::requests`]), and how answers are encoded and written
//! ([`crate::connection`]).

use diorite_cql::protocol::event::EventSet;
use diorite_cql::protocol::{Compression, CqlError, Version};
use diorite_query::activity::Note;
use diorite_query::budget::Budget;
use diorite_query::engine::Reply;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Finished answers of requests that run as futures, which are collected before they are written.
pub(crate) const ANSWERS_AT_ONCE: usize = 64;

/// The answer to a request that ran as a future.
pub(crate) struct Answer {
    pub(crate) stream: i16,
    pub(crate) tracing_id: Option<[u8; 16]>,
    pub(crate) note: Note,
    /// When the request was read, on the monotonic clock.
    pub(crate) arrived_ns: u64,
    pub(crate) outcome: Result<Outcome, CqlError>,
    /// The account that the answer's memory is charged to until the answer is encoded.
    pub(crate) _held: Option<Arc<Budget>>,
}

/// The outcome of a request that ran as a future and did not fail.
pub(crate) enum Outcome {
    /// A request was carried out.
    Reply(Reply),
    /// The client has logged in.
    LoggedIn,
}

/// A request that the connection runs as a future.
pub(crate) type Running = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The next step of the connection after a decoded message, once its buffers are no longer borrowed.
pub(crate) enum Next {
    Nothing,
    Start(Version, Option<Compression>, i16),
    /// The client tries to log in.
    LogIn(Running),
    Register(EventSet),
    Run(Running),
    Close,
}

/// Takes the answers of requests that run as futures and are done: answers that another node has sent in one frame
/// reach the client in one write. Ready when there is one, or, unless it `waits`, at once.
pub(crate) async fn finished(running: &mut FuturesUnordered<Running>, answers: &mut Vec<Answer>, waits: bool) {
    std::future::poll_fn(|context| {
        while answers.len() < ANSWERS_AT_ONCE
            && let Poll::Ready(Some(answer)) = running.poll_next_unpin(context)
        {
            answers.push(answer);
        }
        if answers.is_empty() && waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}
