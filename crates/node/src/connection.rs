//! One client connection: a task that reads the available bytes, answers every complete request into one buffer and
//! writes once.
//!
//! Always true: point reads from memory are answered as they are decoded; single-row writes are handed to the store and answered when
//! it reports them, many per wake-up; everything else runs as a future of this task, and so do such writes that a tablet has refused
//! because of how they were planned. Replies leave in the order in which they are
//! ready, as streams allow. Reading stops while too much is in flight or the client does not read, so memory per connection is
//! bounded; an unfinished message and an unread reply are given a bounded time.

use crate::answer::{ANSWERS_AT_ONCE, Answer, Next, Outcome, Running, finished};
use crate::buffers::{ALLOWANCE_BYTES, Buffers};
use crate::catalog::next_event;
use crate::inbox::Inbox;
use crate::kept::Kept;
use crate::login;
use crate::requests::{Requests, Standing, standing, take_turn};
use crate::shared::Shared;
use crate::socket::{Socket, TLS_RECORD_BYTES};
use crate::timing::{ReadsOfStatement, Taken, age_us, consistency_of};
use diorite_base::account::{Account, Refused};
use diorite_base::limits::MAX_FRAME_BYTES;
use diorite_base::write::{Completion, KvError, WriteSink};
use diorite_cql::protocol::envelope::Role;
use diorite_cql::protocol::event::EventSet;
use diorite_cql::protocol::response::{self, ReplyHead};
use diorite_cql::protocol::{Compression, Envelope, Event, FrameError, Inbound, Opcode, Outbound, Version};
use diorite_query::activity::Done;
use diorite_query::budget::refused as refused_error;
use diorite_query::engine::{Reply, held_bytes_of, slot_of, submitted_error};
use diorite_query::kv::Kv;
use diorite_query::{Operation, Session};
use futures::stream::FuturesUnordered;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::broadcast;

/// Requests of one connection that may be in flight; past that nothing more is read from it.
const MAX_IN_FLIGHT: usize = 4_096;
/// Requests of one connection that run as futures at a time.
const MAX_RUNNING: usize = 512;
/// Unsent reply bytes past which nothing more is read.
const MAX_UNSENT_BYTES: usize = 4 << 20;
/// How long an unfinished message, an unread reply or a missing STARTUP is waited for.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest message of a client that has not logged in: credentials are short.
const MAX_BODY_BYTES_BEFORE_LOGIN: usize = 64 << 10;
/// The most bytes that are written before other tasks have a turn: one or two system calls, a fraction of a
/// millisecond.
const MAX_WRITTEN_AT_ONCE: usize = 512 << 10;
/// The cost of one round (one read, its replies, one write) in the units of which the runtime gives a task 128 per
/// turn: after a few rounds in a row other tasks have a turn, and the system is asked which other sockets are ready.
const UNITS_PER_ROUND: usize = 32;
/// If the replies together are longer than this, they are encoded on a thread for long work.
const LARGE_REPLY_BYTES: usize = 512 << 10;

/// How often a client may try to log in before it has to connect anew.
const MAX_LOGINS: u32 = 3;

/// A client connection.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    socket: Socket,
    inbound: Inbound,
    outbound: Outbound,
    session: Arc<Session>,
    inbox: Arc<Inbox>,
    sink: Arc<dyn WriteSink>,
    /// Writes handed to the store and not answered yet, and their requests.
    submitted: usize,
    kept: Kept,
    running: FuturesUnordered<Running>,
    /// Answers that are done, to be written with one system call.
    finished: Vec<Answer>,
    done: Vec<Completion>,
    version: Version,
    started: bool,
    registered: EventSet,
    events: Option<broadcast::Receiver<Arc<Event>>>,
    /// Since when, on the monotonic clock, the client has owed something without any progress: the rest of a message, a read of its
    /// replies, its STARTUP. Single bytes of a message are no progress, or a peer that sends one now and then would be waited for forever.
    stalled_since_ns: Option<u64>,
    /// How often the client tried to log in.
    logins: u32,
    /// Its password is being checked.
    is_logging_in: bool,
    /// When the requests that are in the input buffer were read, on the monotonic clock.
    arrived_ns: u64,
    /// Statistics of the requests that are being read.
    taken: Taken,
    client: Option<SocketAddr>,
    /// The account for its requests.
    account: Arc<Account>,
    /// The memory of the buffers, with its charge.
    buffers: Buffers,
    closing: bool,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, session: Arc<Session>, socket: Socket, client: Option<SocketAddr>) -> Self {
        let account = shared.account.child("one connection", shared.connection_limit_bytes);
        let inbox = Arc::new(Inbox::new(&account));
        Self {
            buffers: Buffers::new(&account),
            account,
            session,
            shared,
            socket,
            inbound: Inbound::new(Role::Server),
            outbound: Outbound::new(),
            sink: Arc::clone(&inbox) as Arc<dyn WriteSink>,
            inbox,
            submitted: 0,
            kept: Kept::default(),
            running: FuturesUnordered::new(),
            finished: Vec::new(),
            done: Vec::new(),
            version: Version::HIGHEST,
            started: false,
            registered: EventSet::default(),
            events: None,
            stalled_since_ns: None,
            logins: 0,
            is_logging_in: false,
            arrived_ns: 0,
            taken: Taken::default(),
            client,
            closing: false,
        }
    }

    /// Serves the client until either side closes.
    pub(crate) async fn serve(mut self) -> io::Result<()> {
        loop {
            self.answer_requests();
            self.answer_completions();
            if !self.running.is_empty() {
                self.gather_answers().await;
            }
            match self.flush()? {
                true => tokio::task::yield_now().await,
                false => take_turn(UNITS_PER_ROUND).await,
            }
            self.tell_buffers();
            if self.closing && self.outbound.is_empty() && self.running.is_empty() && !self.socket.has_unsent() {
                return Ok(());
            }
            if !self.wait().await? {
                return Ok(());
            }
        }
    }

    /// Starts requests that run as futures, and collects finished answers. Replies that are ready wait until every task
    /// that can run has run: some of these tasks receive the answers of other nodes, and coalesced replies cost one
    /// system call.
    async fn gather_answers(&mut self) {
        finished(&mut self.running, &mut self.finished, false).await;
        self.answer_finished().await;
        if !self.running.is_empty() && !self.outbound.is_empty() {
            self.shared.kv.router.send_soon();
            tokio::task::yield_now().await;
            finished(&mut self.running, &mut self.finished, false).await;
            self.answer_finished().await;
            self.answer_completions();
        }
    }

    /// The memory of the buffers, bytes.
    fn capacity_bytes(&self) -> usize {
        self.inbound.capacity_bytes()
            + self.outbound.capacity_bytes()
            + self.socket.held_bytes()
            + self.kept.spare_bytes()
    }

    /// Sets the charge to the size of the buffers.
    #[inline]
    fn tell_buffers(&mut self) {
        self.buffers.record(self.capacity_bytes());
    }

    /// Whether the client has completed the handshake, including the login.
    fn is_served(&self) -> bool {
        standing(self.started, self.is_logging_in, &self.session) == Standing::Served
    }

    /// Whether more requests may be read.
    fn has_room(&self) -> bool {
        !self.closing
            && self.submitted + self.running.len() < MAX_IN_FLIGHT
            && self.running.len() < MAX_RUNNING
            && self.outbound.pending_bytes() < MAX_UNSENT_BYTES
    }

    /// Waits until something happens and handles it; false when the client has closed the connection.
    async fn wait(&mut self) -> io::Result<bool> {
        let mut interest = None;
        if self.has_room() {
            interest = Some(Interest::READABLE);
        }
        if !self.outbound.is_empty() || self.socket.has_unsent() {
            interest = Some(interest.map_or(Interest::WRITABLE, |interest| interest | Interest::WRITABLE));
        }
        // An idle client is waited for without limit, one that owes something is not.
        let is_stalled = !self.is_served() || !self.outbound.is_empty() || (self.has_room() && !self.inbound.is_idle());
        let timeout_left = if is_stalled { self.timeout_left() } else { PROGRESS_TIMEOUT };
        if !is_stalled {
            self.stalled_since_ns = None;
        } else if timeout_left.is_zero() {
            return Ok(false);
        }
        let socket = &self.socket;
        let ready = async move {
            match interest {
                Some(interest) => socket.ready(interest).await.map(Some),
                None => std::future::pending().await,
            }
        };
        let event = next_event(&mut self.events);
        #[allow(clippy::disallowed_methods, reason = "the connection's timeout is a shell's timer")]
        let timeout = tokio::time::sleep(timeout_left);
        tokio::select! {
            biased;
            () = self.inbox.arrived(), if self.submitted > 0 => {}
            () = finished(&mut self.running, &mut self.finished, true) => self.answer_finished().await,
            ready = ready => {
                if ready?.is_some_and(|ready| ready.is_readable()) {
                    return self.read();
                }
            }
            event = event => self.tell(&event),
            () = timeout, if is_stalled => return Ok(false),
            // This branch is the last: by now every request has run as far as it can, so that their requests to other
            // nodes are sent together.
            () = self.shared.kv.router.gathered() => {}
        }
        Ok(true)
    }

    /// How much longer a client that owes something is waited for.
    fn timeout_left(&mut self) -> Duration {
        let now_ns = self.shared.kv.clock.monotonic_ns();
        let since_ns = *self.stalled_since_ns.get_or_insert(now_ns);
        PROGRESS_TIMEOUT.saturating_sub(Duration::from_nanos(now_ns.saturating_sub(since_ns)))
    }

    /// Reads once; false when the client has closed its side.
    fn read(&mut self) -> io::Result<bool> {
        if !self.has_room() {
            return Ok(true);
        }
        let room = match self.buffers.admit(self.capacity_bytes() + self.inbound.growth_bytes()) {
            Ok(()) => Some(self.inbound.input()),
            Err(refused) if self.refuse_unfinished(refused) => return Ok(true),
            // The allowance of every connection is enough for short messages.
            Err(_) => self.inbound.input_within(ALLOWANCE_BYTES),
        };
        // Without space for the rest of a segment the connection has to end.
        let Some(room) = room else { return Ok(false) };
        match self.socket.try_read(room) {
            Ok(0) => Ok(false),
            Ok(_) => {
                self.arrived_ns = self.shared.kv.clock.monotonic_ns();
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Refuses the message that is being received, since there is no memory for its rest, and drops the bytes received
    /// so far. Returns false if there is no such message.
    fn refuse_unfinished(&mut self, refused: Refused) -> bool {
        let Some(error) = self.inbound.refuse_unfinished(refused_error(refused)) else { return false };
        self.shared.counters.overloaded.fetch_add(1, Ordering::Relaxed);
        error.encode(self.outbound.buffer());
        self.outbound.commit();
        self.tell_buffers();
        true
    }

    /// Writes as much as the socket takes; true if it has taken so much that other tasks should have a turn.
    fn flush(&mut self) -> io::Result<bool> {
        let mut written = 0;
        loop {
            let bytes = self.outbound.wire_bytes();
            if bytes.is_empty() {
                self.socket.flush()?;
                return Ok(written > MAX_WRITTEN_AT_ONCE);
            }
            if written > MAX_WRITTEN_AT_ONCE {
                return Ok(true);
            }
            let most = bytes.len().min(MAX_WRITTEN_AT_ONCE);
            let most = self.may_write(most);
            match self.socket.try_write(&self.outbound.wire_bytes()[..most]) {
                Ok(count) => {
                    written += count;
                    self.outbound.advance(count);
                    self.stalled_since_ns = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// How many of `bytes` may be written now. The copy that TLS makes is charged before; if that charge is refused,
    /// one record at a time is written.
    fn may_write(&mut self, bytes: usize) -> usize {
        let copied = self.socket.copied_bytes(bytes);
        if copied == 0 || self.buffers.admit(self.capacity_bytes() + copied).is_ok() {
            return bytes;
        }
        if self.socket.has_unsent() { 0 } else { bytes.min(TLS_RECORD_BYTES) }
    }

    /// Takes every complete request, as long as there is room.
    fn answer_requests(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        while self.has_room() {
            let next = match self.inbound.next() {
                Ok(None) => break,
                Ok(Some(envelope)) => {
                    let standing = standing(self.started, self.is_logging_in, &self.session);
                    let mut requests = Requests {
                        shared: &self.shared,
                        session: &self.session,
                        sink: &self.sink,
                        writes: &self.inbox.meter,
                        outbound: &mut self.outbound,
                        submitted: &mut self.submitted,
                        kept: &mut self.kept,
                        taken: &mut taken,
                        client: self.client,
                        arrived_ns: self.arrived_ns,
                        standing,
                        account: &self.account,
                    };
                    let before = *requests.submitted;
                    let next = requests.take(&envelope);
                    taken.writes |= self.submitted != before;
                    next
                }
                Err(error) => self.refuse(&error),
            };
            self.stalled_since_ns = None;
            match next {
                Next::Nothing => {}
                Next::Start(version, compression, stream) => self.start(version, compression, stream),
                Next::Register(events) => self.register(events),
                Next::Run(running) => self.running.push(running),
                Next::LogIn(running) => {
                    self.is_logging_in = true;
                    self.logins += 1;
                    // A client that sends more attempts before it has the answers is disconnected.
                    self.closing |= self.logins > MAX_LOGINS;
                    self.running.push(running);
                }
                Next::Close => self.closing = true,
            }
        }
        if taken.writes {
            self.shared.kv.kick();
        }
        self.observe(&taken);
        taken.clear();
        self.taken = taken;
        if self.inbound.is_idle() && self.submitted == 0 && self.running.is_empty() {
            self.inbound.release_memory();
            self.outbound.release_memory();
        }
        self.inbound.release_done();
    }

    /// Records the durations of requests that were answered at once. All share one clock read.
    fn observe(&self, taken: &Taken) {
        if taken.executes > 0 {
            self.shared.counters.executes.add(taken.executes);
        }
        if taken.reads.is_empty() {
            return;
        }
        let now_ns = self.shared.kv.clock.monotonic_ns();
        let elapsed_ns = now_ns - self.arrived_ns;
        for &ReadsOfStatement { slot, count, rows } in &taken.reads {
            let done = Done { elapsed_ns, count, rows, errors: 0, now_ns };
            self.shared.observe(Operation::Read, slot, &done, self.client);
        }
    }

    /// Answers a message that could not be decoded.
    fn refuse(&mut self, error: &FrameError) -> Next {
        self.shared.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
        error.encode(self.outbound.buffer());
        self.outbound.commit();
        if error.is_fatal { Next::Close } else { Next::Nothing }
    }

    /// Answers STARTUP: the answer is the last message in the plain framing.
    fn start(&mut self, version: Version, compression: Option<Compression>, stream: i16) {
        let head = ReplyHead::new(version, stream);
        let shown = self.socket.certificate();
        let certified = login::by_certificate(&self.shared.access, &self.session, self.client, shown);
        let is_let_in = self.session.is_open() || matches!(certified, Some(Ok(())));
        self.closing |= matches!(certified, Some(Err(_)));
        match certified {
            Some(Err(error)) => response::encode_error(self.outbound.buffer(), &head, &error),
            _ if is_let_in => response::encode_ready(self.outbound.buffer(), &head),
            _ => response::encode_authenticate(self.outbound.buffer(), &head, login::AUTHENTICATOR),
        }
        self.outbound.commit();
        self.inbound.start(version, compression);
        if !is_let_in {
            // Before the login, messages are short.
            self.inbound.set_max_body_bytes(MAX_BODY_BYTES_BEFORE_LOGIN);
        }
        self.outbound.start(version, compression);
        self.version = version;
        self.started = true;
    }

    fn register(&mut self, events: EventSet) {
        self.registered.extend(events);
        if self.events.is_none() {
            self.events = Some(self.shared.kv.catalog.events());
        }
    }

    /// Answers the writes that the store has reported.
    fn answer_completions(&mut self) {
        if self.submitted == 0 {
            return;
        }
        self.inbox.take(&mut self.done);
        if self.done.is_empty() {
            return;
        }
        self.submitted -= self.done.len();
        self.inbox.meter.give(self.done.iter().map(|(tag, _)| held_bytes_of(*tag)).sum());
        let now_ns = self.shared.kv.clock.monotonic_ns();
        // Writes of a statement that were read together are mostly reported together, and are then recorded together.
        let (mut slot, mut done) = (0, Done { elapsed_ns: 0, count: 0, rows: 0, errors: 0, now_ns });
        let mut completed = std::mem::take(&mut self.done);
        for (tag, outcome) in completed.drain(..) {
            let (stream, kept) = (tag as u16 as i16, self.kept.remove(tag as u16 as i16));
            let is_of_plan = outcome.as_ref().is_err_and(KvError::is_of_plan);
            let elapsed_ns = u64::from(age_us(tag, now_ns)) * 1_000;
            if is_of_plan && self.carry_out_again(stream, &kept, now_ns.saturating_sub(elapsed_ns)) {
                continue;
            }
            self.kept.reuse(kept);
            if (slot_of(tag), elapsed_ns) != (slot, done.elapsed_ns) {
                self.shared.observe(Operation::Write, slot, &done, self.client);
                slot = slot_of(tag);
                done = Done { elapsed_ns, count: 0, rows: 0, errors: 0, now_ns };
            }
            done.count += 1;
            done.errors += u64::from(outcome.is_err());
            let head = ReplyHead::new(self.version, stream);
            let asked = consistency_of(tag);
            match outcome {
                Ok(_) => response::encode_void(self.outbound.buffer(), &head),
                Err(error) => {
                    let error = submitted_error(&self.shared.engine, tag, &error, asked);
                    response::encode_error(self.outbound.buffer(), &head, &error);
                }
            }
            self.outbound.commit();
        }
        self.shared.observe(Operation::Write, slot, &done, self.client);
        // The memory that a burst needed is freed.
        completed.shrink_to(ANSWERS_AT_ONCE);
        self.done = completed;
    }

    /// Carries out a write by the general path that its tablet has refused because of its plan; false if its request is not
    /// known. It stays in flight, so there may be more of them than other requests that run as futures.
    fn carry_out_again(&mut self, stream: i16, kept: &[u8], arrived_ns: u64) -> bool {
        let Some((flags, body)) = kept.split_first() else { return false };
        let envelope = Envelope { version: self.version, flags: *flags, stream, opcode: Opcode::Execute, body };
        let mut requests = Requests {
            shared: &self.shared,
            session: &self.session,
            sink: &self.sink,
            writes: &self.inbox.meter,
            outbound: &mut self.outbound,
            submitted: &mut self.submitted,
            kept: &mut self.kept,
            taken: &mut self.taken,
            client: self.client,
            arrived_ns,
            standing: Standing::Served,
            account: &self.account,
        };
        if let Next::Run(running) = requests.run_again(&envelope) {
            self.running.push(running);
        }
        true
    }

    async fn answer_finished(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        // Bytes encoded on this thread without letting other tasks run.
        let mut encoded_bytes = 0;
        for answer in finished.drain(..) {
            self.observe_answer(&answer);
            encoded_bytes += match &answer.outcome {
                Ok(Outcome::Reply(reply)) => reply.body_bytes(),
                _ => 0,
            };
            match &answer.outcome {
                Ok(Outcome::Reply(reply)) if encoded_bytes > LARGE_REPLY_BYTES => {
                    encoded_bytes = 0;
                    self.answer_at_length(&answer, reply).await;
                }
                _ => {
                    self.encode_answer(&answer);
                    self.outbound.commit();
                }
            }
            self.tell_buffers();
        }
        self.finished = finished;
    }

    fn encode_answer(&mut self, answer: &Answer) {
        let mut head = ReplyHead::new(self.version, answer.stream);
        head.extras.tracing_id = answer.tracing_id;
        let out = self.outbound.buffer();
        match &answer.outcome {
            Ok(Outcome::Reply(reply)) => {
                head.extras.warnings = &reply.warnings;
                head.extras.custom_payload = &reply.custom_payload;
                reply.encode(out, &head);
            }
            Ok(Outcome::LoggedIn) => {
                self.is_logging_in = false;
                response::encode_auth_success(out, &head, None);
                self.inbound.set_max_body_bytes(MAX_FRAME_BYTES);
            }
            Err(error) => {
                response::encode_error(out, &head, error);
                // Before the login nothing else runs.
                self.is_logging_in = false;
                self.closing |= self.logins >= MAX_LOGINS && !self.session.is_open() && self.session.role().is_none();
            }
        }
    }

    /// Encodes a large reply on a thread for long work, after its memory has been charged.
    async fn answer_at_length(&mut self, answer: &Answer, reply: &Reply) {
        // The reply is encoded as a message, and copied where it is compressed or cut into segments. The request holds
        // the rows until then.
        let wanted = self.capacity_bytes() + reply.body_bytes().saturating_mul(2);
        // A write that took effect is not refused afterwards.
        let is_read = matches!(answer.note.operation, Operation::Read | Operation::Scan | Operation::Aggregate);
        if let Err(refused) = self.buffers.admit(wanted)
            && is_read
        {
            self.shared.counters.overloaded.fetch_add(1, Ordering::Relaxed);
            let error = refused_error(refused);
            response::encode_error(self.outbound.buffer(), &ReplyHead::new(self.version, answer.stream), &error);
            return self.outbound.commit();
        }
        let shared = Arc::clone(&self.shared);
        let encode = || {
            self.encode_answer(answer);
            self.outbound.commit();
        };
        shared.kv.aside.finish(encode).await;
        self.tell_buffers();
    }

    /// Records a request that ran as a future.
    fn observe_answer(&self, answer: &Answer) {
        let now_ns = self.shared.kv.clock.monotonic_ns();
        let (rows, error) = match &answer.outcome {
            Ok(Outcome::Reply(reply)) => (reply.row_count(), None),
            Ok(Outcome::LoggedIn) => (0, None),
            Err(error) => (0, Some(error)),
        };
        let errors = u64::from(error.is_some());
        let done = Done { elapsed_ns: now_ns - answer.arrived_ns, count: 1, rows, errors, now_ns };
        self.shared.observe_one(&answer.note, &done, self.client, error);
    }

    fn tell(&mut self, event: &Event) {
        if !self.registered.contains(event.event_type()) {
            return;
        }
        response::encode_event(self.outbound.buffer(), self.version, event);
        self.outbound.commit();
    }
}
