//! The messages that a connection has read: answered at once, submitted to the store, or made into futures that the
//! connection runs.
//!
//! Always true: the memory of a request beside the input buffer is charged to the connection's account before it is
//! allocated, and refused with a reason if it does not fit; before a client has logged in, only the login may cost more
//! than its message. Left out: reading and writing ([`crate::connection`]).

use crate::answer::{Answer, Next, Outcome};
use crate::kept::Kept;
use crate::login;
use crate::shared::Shared;
use crate::timing::{Taken, tag_of};
use diorite_base::account::{Account, Meter};
use diorite_base::limits::MAX_REQUEST_MEMORY_BYTES;
use diorite_base::write::WriteSink;
use diorite_cql::protocol::request::Startup;
use diorite_cql::protocol::response::{self, ReplyHead, TABLETS_ROUTING};
use diorite_cql::protocol::{CqlError, Envelope, Message, Opcode, Outbound, Request};
use diorite_query::activity::Note;
use diorite_query::budget::Budget;
use diorite_query::engine::{ExecuteNow, OwnedRequest, ReplyTo};
use diorite_query::trace::{MAX_TRACE_BYTES, Tracing};
use diorite_query::{Operation, Session};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The memory of a request in progress, beside its body.
const REQUEST_BYTES: usize = 2 << 10;
/// Longer requests take the general path, which lets other tasks run in between.
const MAX_SHORT_BYTES: usize = 64 << 10;

/// How far a client has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has not sent STARTUP.
    New,
    /// It has to log in.
    Guest,
    /// Its password is being checked.
    LoggingIn,
    /// Its requests are carried out.
    Served,
}

/// How far the client has got.
pub(crate) fn standing(started: bool, is_logging_in: bool, session: &Session) -> Standing {
    match (started, session.is_open() || session.role().is_some()) {
        (false, _) => Standing::New,
        (true, true) if !is_logging_in => Standing::Served,
        (true, _) if is_logging_in => Standing::LoggingIn,
        (true, _) => Standing::Guest,
    }
}

/// The parts of a connection that taking a request needs while the request borrows from the input.
pub(crate) struct Requests<'c> {
    pub(crate) shared: &'c Arc<Shared>,
    pub(crate) session: &'c Arc<Session>,
    pub(crate) sink: &'c Arc<dyn WriteSink>,
    /// The charge for writes that are submitted to the store.
    pub(crate) writes: &'c Meter,
    pub(crate) outbound: &'c mut Outbound,
    pub(crate) submitted: &'c mut usize,
    /// The requests of writes that are submitted to the store.
    pub(crate) kept: &'c mut Kept,
    pub(crate) taken: &'c mut Taken,
    pub(crate) client: Option<SocketAddr>,
    /// When the requests were read, on the monotonic clock.
    pub(crate) arrived_ns: u64,
    pub(crate) standing: Standing,
    /// The account for requests.
    pub(crate) account: &'c Arc<Account>,
}

impl Requests<'_> {
    /// Handles a message: answers it, submits it, or makes a future of it.
    pub(crate) fn take(&mut self, envelope: &Envelope<'_>) -> Next {
        let message = match Message::decode(envelope) {
            Ok(message) => message,
            Err(error) => return self.fail(envelope, &error),
        };
        match &message.request {
            Request::Execute(execute)
                if self.standing == Standing::Served
                    && !message.wants_tracing
                    && envelope.body.len() <= MAX_SHORT_BYTES =>
            {
                self.taken.executes += 1;
                let reply = ReplyTo {
                    version: envelope.version,
                    stream: envelope.stream,
                    sink: self.sink,
                    meter: self.writes,
                    kept_bytes: envelope.body.len(),
                    token: tag_of(envelope.stream, execute.parameters.consistency, self.arrived_ns),
                };
                let step = self.shared.engine.execute_now(self.session, execute, reply, self.outbound.buffer());
                match step {
                    ExecuteNow::Replied { slot, rows } => {
                        self.taken.count_read(slot, rows);
                        self.outbound.commit();
                    }
                    ExecuteNow::Refused => self.outbound.commit(),
                    ExecuteNow::Submitted => {
                        *self.submitted += 1;
                        self.kept.keep(envelope);
                    }
                    ExecuteNow::NeedsWait => return self.run(envelope, &message, false),
                    ExecuteNow::NeedsDisk => return self.run(envelope, &message, true),
                }
                Next::Nothing
            }
            Request::Startup(startup) if self.standing == Standing::New => self.startup(envelope, startup),
            Request::Options => {
                let head = ReplyHead::new(envelope.version, envelope.stream);
                response::encode_supported(self.outbound.buffer(), &head, response::SUPPORTED_OPTIONS);
                self.outbound.commit();
                Next::Nothing
            }
            Request::AuthResponse(token) if self.standing == Standing::Guest => {
                self.log_in(envelope, token.unwrap_or_default())
            }
            Request::Register(events) if self.standing == Standing::Served => {
                response::encode_ready(self.outbound.buffer(), &ReplyHead::new(envelope.version, envelope.stream));
                self.outbound.commit();
                Next::Register(*events)
            }
            Request::Query(_) | Request::Prepare(_) | Request::Execute(_) | Request::Batch(_)
                if self.standing == Standing::Served =>
            {
                self.run(envelope, &message, false)
            }
            _ => {
                let name = envelope.opcode.name();
                let order = match self.standing {
                    Standing::New => "before STARTUP",
                    Standing::Guest => "before the client has logged in",
                    Standing::LoggingIn => "while the client logs in",
                    Standing::Served => "after STARTUP",
                };
                self.fail(envelope, &CqlError::protocol(format!("unexpected {name} message {order}")))
            }
        }
    }

    /// Carries out an EXECUTE whose write was submitted, and refused because of how it was planned: it is planned again.
    pub(crate) fn run_again(&mut self, envelope: &Envelope<'_>) -> Next {
        match Message::decode(envelope) {
            Ok(message) => self.run(envelope, &message, false),
            Err(error) => self.fail(envelope, &error),
        }
    }

    fn fail(&mut self, envelope: &Envelope<'_>, error: &CqlError) -> Next {
        self.shared.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
        let head = ReplyHead::new(envelope.version, envelope.stream);
        response::encode_error(self.outbound.buffer(), &head, error);
        self.outbound.commit();
        Next::Nothing
    }

    fn startup(&mut self, envelope: &Envelope<'_>, startup: &Startup<'_>) -> Next {
        let checked = startup.check_cql_version().and_then(|()| startup.compression(envelope.version));
        match checked {
            Ok(compression) => {
                if startup.options.get(TABLETS_ROUTING).is_some() {
                    self.session.set_learns_tablets();
                }
                Next::Start(envelope.version, compression, envelope.stream)
            }
            Err(error) => self.fail(envelope, &error),
        }
    }

    /// Checks a password, as a future: it takes tens of milliseconds.
    fn log_in(&mut self, envelope: &Envelope<'_>, token: &[u8]) -> Next {
        let (stream, session, arrived_ns) = (envelope.stream, Arc::clone(self.session), self.arrived_ns);
        let budget = Arc::new(Budget::new(Meter::new(self.account, MAX_REQUEST_MEMORY_BYTES), u64::MAX));
        // The charge covers the message, and the credentials that are copied from it.
        if let Err(error) = budget.take(2 * token.len() + REQUEST_BYTES) {
            self.shared.counters.overloaded.fetch_add(1, Ordering::Relaxed);
            return self.fail(envelope, &error);
        }
        let client = self.client.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.ip());
        let checking = login::log_in(self.shared.access.clone(), session, client, token.to_vec());
        Next::LogIn(Box::pin(async move {
            let outcome = checking.await.map(|()| Outcome::LoggedIn);
            let note = Note { operation: Operation::Access, statement: None };
            Answer { stream, tracing_id: None, note, arrived_ns, outcome, _held: Some(budget) }
        }))
    }

    fn begin_trace(&self, message: &Message<'_>) -> Tracing {
        let traces = self.shared.engine.traces();
        traces.begin(&message.request, self.client, self.arrived_ns, Arc::clone(&self.shared.kv.clock))
    }

    /// Makes a future of a request that may have to wait. It owns a copy of the body, as the input buffer is reused.
    fn run(&mut self, envelope: &Envelope<'_>, message: &Message<'_>, needs_disk: bool) -> Next {
        let counter = match envelope.opcode {
            Opcode::Query => &self.shared.counters.queries,
            Opcode::Prepare => &self.shared.counters.prepares,
            Opcode::Batch => &self.shared.counters.batches,
            _ => &self.shared.counters.executes_waiting,
        };
        counter.add(1);
        let deadline_ns = self.arrived_ns.saturating_add(self.shared.limits.request_timeout_ns);
        let mut budget = Budget::new(Meter::new(self.account, MAX_REQUEST_MEMORY_BYTES), deadline_ns);
        let mut held_bytes = envelope.body.len() + REQUEST_BYTES;
        if message.wants_tracing {
            budget = budget.traced(self.begin_trace(message));
            held_bytes += MAX_TRACE_BYTES;
        }
        let budget = Arc::new(budget);
        // The charge comes before the body is copied.
        if let Err(error) = budget.take(held_bytes) {
            self.shared.counters.overloaded.fetch_add(1, Ordering::Relaxed);
            return self.fail(envelope, &error);
        }
        let (stream, arrived_ns, bytes) = (envelope.stream, self.arrived_ns, envelope.body.len());
        let tracing_id = budget.trace().map(|trace| trace.id().into_bytes());
        let request = OwnedRequest {
            opcode: envelope.opcode,
            version: envelope.version,
            flags: envelope.flags,
            body: envelope.body.to_vec(),
            needs_disk,
            client: self.client,
            arrived_ns,
            budget: Arc::clone(&budget),
        };
        // The semaphore is closed only when the node has stopped, and then no client waits for the answer.
        let turn = Arc::clone(&self.shared.turns).acquire_owned();
        let (engine, session) = (Arc::clone(&self.shared.engine), Arc::clone(self.session));
        Next::Run(Box::pin(async move {
            take_turns(bytes).await;
            // Made here, as moving its many bytes into this future takes time.
            let answered = engine.answer_in_turn(session, request, turn).await;
            let outcome = answered.outcome.map(Outcome::Reply);
            Answer { stream, tracing_id, note: answered.note, arrived_ns, outcome, _held: Some(budget) }
        }))
    }
}

/// After requests of this many bytes, a task lets other tasks run.
const BYTES_PER_TURN: usize = 32 << 10;
/// The work that the runtime gives a task in one turn, in the runtime's units.
const UNITS_PER_TURN: usize = 128;

/// Charges the task for work that the runtime does not measure. If its turn is over with that, other tasks run first.
pub(crate) async fn take_turn(units: usize) {
    for _ in 0..units {
        tokio::task::coop::consume_budget().await;
    }
}

/// Charges the task of a connection for a request by its length, so that a burst of a client's requests is not
/// processed without a pause. Short requests cost nothing.
async fn take_turns(bytes: usize) {
    take_turn((bytes / (BYTES_PER_TURN / UNITS_PER_TURN)).min(UNITS_PER_TURN)).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use futures::StreamExt;
    use futures::stream::FuturesUnordered;
    use std::sync::atomic::AtomicUsize;

    /// How many of 64 requests of this length, which came together, are begun before another task has its turn, at most.
    async fn begun_in_one_turn(bytes: usize) -> usize {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let connection = tokio::spawn(async move {
            let request = |_| {
                let begun = Arc::clone(&counted);
                async move {
                    take_turns(bytes).await;
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            };
            (0..64).map(request).collect::<FuturesUnordered<_>>().count().await
        });
        let (mut most, mut before) = (0, 0);
        while before < 64 {
            tokio::task::yield_now().await;
            let now = begun.load(Ordering::Relaxed);
            most = most.max(now - before);
            before = now;
        }
        assert_eq!(connection.await.unwrap(), 64);
        most
    }

    #[tokio::test]
    async fn long_requests_that_came_together_take_turns_with_other_tasks() {
        assert_eq!(begun_in_one_turn(100).await, 64, "short ones cost nothing");
        for bytes in [8 << 10, 16 << 10, BYTES_PER_TURN] {
            let most = begun_in_one_turn(bytes).await;
            assert!(most * bytes <= BYTES_PER_TURN, "{most} of {bytes} bytes");
        }
        assert!(begun_in_one_turn(16 << 20).await <= 1);
    }
}
