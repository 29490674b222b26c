//! The asking side: sends requests, takes answers, and decides what becomes of those that were refused.

use super::parked::Release;
use super::read::{self, Folding, Look, Until};
use super::request::{Asked, Outcomes, Request, Work};
use super::serve::target_of;
use super::wire::{FetchRef, Outcome};
use super::{MAX_ATTEMPTS, Route, RouteCounters, Router};
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::mutation::{Body, Mutation, MutationRef};
use diorite_base::write::{KvError, Waited, WriteReply, WriteSink};
use diorite_base::{NodeId, TabletId};
use diorite_model::key::token_of;
use diorite_query::kv::{Fetch, Fetched, Now};
use diorite_replica::{Leadership, NO_DEADLINE, Permit, Refused, Reroute, TabletHandle};
use diorite_rpc::SendError;
use diorite_storage::PinnedValue;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

const TOO_MANY: &str = "too many requests wait for other nodes";

/// Whether a read that failed with this may be tried elsewhere: its replica just ceased to lead.
fn is_refusal(error: &KvError) -> bool {
    matches!(error, KvError::NotLeader { .. } | KvError::Unavailable(_))
}

impl Router {
    /// Reads a key of a tablet that this node leads, if memory has it.
    #[inline]
    pub(crate) fn get_now(&self, tablet: TabletId, key: &[u8]) -> Result<Now<Option<PinnedValue>>, KvError> {
        let tablets = self.store.tablets();
        // What is not here may be elsewhere.
        let Some(handle) = tablets.get(&tablet) else { return Ok(Now::WouldBlock) };
        match handle.get_cached(Permit::Lease, key) {
            Ok(Some(found)) => {
                RouteCounters::add(&self.counters.local, 1);
                Ok(Now::Ready(found))
            }
            Ok(None) => Ok(Now::WouldBlock),
            Err(error) if is_refusal(&error) => Ok(Now::WouldBlock),
            Err(error) => Err(error),
        }
    }

    /// Reads a key of a tablet that this node leads, from disk; `None` if it does not lead it. A read that has waited until `deadline_ns` is not begun.
    pub(crate) async fn get_here(
        &self,
        tablet: TabletId,
        key: Vec<u8>,
        deadline_ns: Option<u64>,
    ) -> Result<Option<Option<PinnedValue>>, KvError> {
        let handle = self.store.handle(tablet).filter(|handle| handle.leadership() == Leadership::Here);
        let Some(handle) = handle else { return Ok(None) };
        let (disk, until) = (handle.disk(), Until::new(&self.clock, deadline_ns));
        let read = move || {
            until.step()?;
            handle.get(Permit::Lease, &key)
        };
        match self.threads.disk.read(disk, read).await? {
            Ok(found) => {
                RouteCounters::add(&self.counters.local, 1);
                Ok(Some(found))
            }
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads, wherever the tablet is led. A request for another node leaves with the next [`Router::send_gathered`] (or [`Router::kick`]).
    pub(crate) async fn fetch(&self, tablet: TabletId, fetch: Fetch) -> Result<Fetched, KvError> {
        let handle = self.store.handle(tablet);
        if let Some((handle, permit)) = handle.and_then(|handle| self.permit(handle, &fetch)) {
            match self.fetch_here(handle, permit, &fetch).await {
                Err(error) if is_refusal(&error) => {}
                outcome => {
                    let served = if permit == Permit::Lease { &self.counters.local } else { &self.counters.followed };
                    RouteCounters::add(served, 1);
                    return outcome;
                }
            }
        }
        let (answer, answered) = oneshot::channel();
        let until_ns = fetch.deadline_ns;
        let work = Work::Fetch { fetch, answer };
        let limit_ns = self.options.read_patience.as_nanos() as u64;
        self.ask(Asked::new_until(tablet, work, self.clock.monotonic_ns(), limit_ns, until_ns))?;
        answered.await.unwrap_or(Err(KvError::Unavailable(tablet)))
    }

    /// What permits a read of this node's replica, if anything does.
    fn permit(&self, handle: Arc<TabletHandle>, fetch: &Fetch) -> Option<(Arc<TabletHandle>, Permit)> {
        if handle.leadership() == Leadership::Here {
            return Some((handle, Permit::Lease));
        }
        let staleness_ns = fetch.staleness_ms.map(|staleness_ms| u64::from(staleness_ms) * 1_000_000)?;
        let may = self.store.may_read_stale(&handle, staleness_ns);
        may.then_some((handle, Permit::Staleness(staleness_ns)))
    }

    async fn fetch_here(&self, handle: Arc<TabletHandle>, permit: Permit, fetch: &Fetch) -> Result<Fetched, KvError> {
        let look = self.look_until(fetch.deadline_ns);
        // Whether memory has it is known only of what is led here.
        if !fetch.needs_disk || permit != Permit::Lease {
            match read::read(&handle, permit, &FetchRef::from(fetch), &Look::Memory, &self.folding)? {
                read::Outcome::Found(parts) => return Ok(parts.into_fetched()),
                read::Outcome::Long => {
                    RouteCounters::add(&self.counters.long_reads, 1);
                    let work = move || fetch_anywhere(&handle, permit, fetch, &look, &self.folding);
                    return self.threads.aside.compute(work).await;
                }
                read::Outcome::NotInMemory => {}
            }
        }
        let (fetch, folding) = (fetch.clone(), Arc::clone(&self.folding));
        let disk = handle.disk();
        self.threads.disk.read(disk, move || fetch_anywhere(&handle, permit, &fetch, &look, &folding)).await?
    }

    /// A look on disk that ends at `deadline_ns`, if that is given.
    pub(super) fn look_until(&self, deadline_ns: Option<u64>) -> Look {
        Look::Anywhere(Until::new(&self.clock, deadline_ns))
    }

    /// Submits a write, wherever the tablet is led; its outcome goes to `sink` with `token`. [`Router::kick`] sends it on its way.
    pub(crate) fn submit(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
    ) -> Result<(), KvError> {
        let timeout = self.options.short_timeout;
        let deadline_ns = timeout.map(|timeout| self.clock.monotonic_ns() + timeout.as_nanos() as u64);
        self.submit_until(tablet, mutation, sink, token, deadline_ns)
    }

    /// The same, of a request that ends at `deadline_ns`, if that is given.
    fn submit_until(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
        deadline_ns: Option<u64>,
    ) -> Result<(), KvError> {
        if self.leads(tablet) {
            RouteCounters::add(&self.counters.local, 1);
            let deadline_ns = deadline_ns.map_or(NO_DEADLINE, |deadline_ns| self.store_deadline(deadline_ns));
            return self.store.submit_until(tablet, mutation, sink, token, deadline_ns);
        }
        mutation.check_for(target_of(tablet))?;
        self.ask(self.write_request(tablet, mutation, Arc::clone(sink), token, deadline_ns))
    }

    /// When the store ends a write of a request that ends at `deadline_ns`: a fifth of the time earlier, so that it can still say how many replicas hold it.
    pub(super) fn store_deadline(&self, deadline_ns: u64) -> u64 {
        deadline_ns - deadline_ns.saturating_sub(self.clock.monotonic_ns()) / 5
    }

    /// Writes at once, wherever the tablet is led, and waits.
    pub(crate) async fn write(&self, tablet: TabletId, mutation: Mutation) -> Result<WriteReply, KvError> {
        let writing = self.gather_write(tablet, mutation, None)?;
        self.send_gathered();
        writing.await
    }

    /// Writes and waits. A write for another node leaves with the next [`Router::send_gathered`] (or [`Router::kick`]). It ends at `deadline_ns`, if that is given, wherever
    /// it is carried out.
    pub(crate) fn gather_write(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        deadline_ns: Option<u64>,
    ) -> Result<impl Future<Output = Result<WriteReply, KvError>> + Send + use<>, KvError> {
        let (sink, outcome) = crate::awaited::one_write();
        self.submit_until(tablet, mutation, &sink, 0, deadline_ns)?;
        self.store.kick();
        drop(sink);
        // Unanswered only if the store's worker is gone. Whoever lets go of a write without a word (a store that stops) may have logged it: the outcome is unknown.
        let patience_ms = self.options.write_patience.as_millis() as u64;
        Ok(async move { outcome.await.unwrap_or(Err(KvError::Timeout(Waited::in_vain(patience_ms)))) })
    }

    fn write_request(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: Arc<dyn WriteSink>,
        token: u64,
        deadline_ns: Option<u64>,
    ) -> Request {
        let limit_ns = self.options.write_patience.as_nanos() as u64;
        let work = Work::Write { mutation, sink, token };
        Asked::new_until(tablet, work, self.clock.monotonic_ns(), limit_ns, deadline_ns)
    }

    /// Sends a new request; an error is the caller's to tell.
    fn ask(&self, request: Request) -> Result<(), KvError> {
        let sent = match self.route(request.tablet, 0, None)? {
            Route::Here => self.park(request),
            Route::Node { node, is_known } => {
                if self.parked.must_wait(request.tablet, is_known.then_some(node)) {
                    self.park(request)
                } else {
                    self.send(request, node, is_known)
                }
            }
            Route::Nobody => self.park(request),
        };
        sent.map_err(|_| self.overloaded())
    }

    fn overloaded(&self) -> KvError {
        RouteCounters::add(&self.counters.overloaded, 1);
        KvError::Overloaded(TOO_MANY)
    }

    fn park(&self, request: Request) -> Result<(), Request> {
        self.parked.add(request, &self.options.limits)?;
        self.arm();
        Ok(())
    }

    fn send(&self, mut request: Request, node: NodeId, is_known: bool) -> Result<(), Request> {
        request.is_probe = !is_known || request.rounds > 0;
        request.tell_time_left(|| self.clock.monotonic_ns());
        let peer = self.peer(node);
        let is_large = peer.add(request)?;
        self.has_frames.store(true, Ordering::SeqCst);
        if is_large {
            self.flush(&peer, None);
        }
        self.arm();
        Ok(())
    }

    /// Sends requests again that certainly had no effect, or whose effect does not matter. `named` is who leads, by the latest word.
    fn send_again(&self, request: Request, named: Option<NodeId>, outcomes: &mut Outcomes) {
        RouteCounters::add(&self.counters.retried, 1);
        let named = named.filter(|node| Some(*node) != request.refused_by && self.may_ask(*node));
        let route = match named {
            _ if self.is_split(request.tablet) => Err(KvError::NoSuchTablet(request.tablet)),
            _ if request.attempts >= MAX_ATTEMPTS => Ok(Route::Nobody),
            Some(node) => Ok(Route::Node { node, is_known: true }),
            None if self.leads(request.tablet) => Ok(Route::Here),
            None => self.route(request.tablet, request.attempts + request.rounds, request.refused_by),
        };
        let sent = match route {
            // A store that has just refused it is given time.
            Ok(Route::Here) if request.refused_by != Some(self.node) => {
                self.carry_out(request, outcomes);
                Ok(())
            }
            Ok(Route::Node { node, is_known }) => self.send(request, node, is_known),
            Ok(Route::Here | Route::Nobody) => self.park(request),
            Err(error) => {
                match self.heir(request.tablet, &request.work) {
                    Some(heir) => self.send_to_heir(request, heir, outcomes),
                    None => outcomes.fail(request, error),
                }
                Ok(())
            }
        };
        if let Err(request) = sent {
            outcomes.fail(request, self.overloaded());
        }
    }

    /// The tablet that a write for one that was split, or truncated, belongs to now. What was planned for several partitions has to be planned again.
    fn heir(&self, tablet: TabletId, work: &Work) -> Option<TabletId> {
        let Work::Write { mutation, .. } = work else { return None };
        let catalog = self.catalogs.catalog();
        let entry = catalog.table_of(tablet)?;
        let read = MutationRef::decode(mutation.as_bytes()).ok()?;
        let Body::Blind(operations) = read.body() else { return None };
        let mut heir = None;
        for operation in operations {
            let at = entry.tablet_of(token_of(operation.ok()?.key).ok()?);
            if heir.replace(at).is_some_and(|before| before != at) {
                return None;
            }
        }
        heir.filter(|heir| *heir != tablet)
    }

    fn send_to_heir(&self, mut request: Request, heir: TabletId, outcomes: &mut Outcomes) {
        (request.tablet, request.attempts, request.rounds) = (heir, 0, 0);
        (request.refused_by, request.missing_since_ns) = (None, None);
        self.send_again(request, None, outcomes);
    }

    /// Carries out here what was to be sent elsewhere.
    fn carry_out(&self, request: Request, outcomes: &mut Outcomes) {
        let tablet = request.tablet;
        let Some(handle) = self.store.handle(tablet) else {
            // It is being opened, or is on its way between two disks.
            let is_placed = self.catalogs.catalog().placement(tablet).is_some();
            let parked = if is_placed { self.park(request) } else { Err(request) };
            if let Err(request) = parked {
                outcomes.fail(request, KvError::NoSuchTablet(tablet));
            }
            return;
        };
        RouteCounters::add(&self.counters.local, 1);
        match request.work {
            Work::Write { mutation, sink, token } => {
                let deadline_ns = self.store_deadline(request.deadline_ns);
                if let Err(error) = self.store.submit_until(tablet, mutation, &sink, token, deadline_ns) {
                    outcomes.written(sink, token, Err(error));
                }
            }
            Work::Fetch { .. } => {
                let Some(router) = self.me.upgrade() else { return };
                // A request that finds no place here is dropped, and whoever asked is told that it was: a read changes nothing.
                let begun = self.threads.disk.begin(handle.disk(), move || router.carry_out_fetch(&handle, request));
                if begun.is_err() {
                    RouteCounters::add(&self.counters.overloaded, 1);
                }
            }
        }
    }

    fn carry_out_fetch(&self, handle: &TabletHandle, mut request: Request) {
        let Work::Fetch { fetch, .. } = &request.work else { return };
        let mut outcomes = Outcomes::default();
        let look = self.look_until(Some(request.deadline_ns));
        match fetch_anywhere(handle, Permit::Lease, fetch, &look, &self.folding) {
            Err(error) if is_refusal(&error) => {
                request.refused(self.node);
                self.send_again(request, None, &mut outcomes);
            }
            outcome => {
                if let Work::Fetch { answer, .. } = request.work {
                    // Who asked may be gone.
                    let _ = answer.send(outcome);
                }
            }
        }
        outcomes.deliver();
        self.kick();
    }

    /// Sends requests again, by what is known now.
    pub(super) fn retry(&self, requests: Vec<Request>) {
        let mut outcomes = Outcomes::default();
        for mut request in requests {
            // Once is enough: whoever does not answer twice is not asked a third time before the deadline.
            request.resend_ns = u64::MAX;
            self.send_again(request, None, &mut outcomes);
        }
        outcomes.deliver();
    }

    /// Frames that the transport did not take.
    pub(super) fn not_sent(&self, requests: Vec<Request>, error: SendError) {
        let mut outcomes = Outcomes::default();
        for request in requests {
            let parked = if error == SendError::Down { self.park(request) } else { Err(request) };
            if let Err(request) = parked {
                outcomes.fail(request, self.overloaded());
            }
        }
        outcomes.deliver();
    }

    /// Ends requests whose deadline has passed.
    pub(super) fn expire(&self, requests: Vec<Request>, was_sent: bool) {
        RouteCounters::add(&self.counters.timed_out, requests.len() as u64);
        let mut outcomes = Outcomes::default();
        for request in requests {
            let error = if was_sent {
                let patience = if request.is_read() { self.options.read_patience } else { self.options.write_patience };
                KvError::Timeout(Waited::in_vain(patience.as_millis() as u64))
            } else {
                KvError::Unavailable(request.tablet)
            };
            outcomes.fail(request, error);
        }
        outcomes.deliver();
    }

    /// Sends what waits for leaders that are known by now, and a probe for each that is not.
    pub(super) fn look_for_leaders(&self) {
        for (tablet, refused_by) in self.parked.tablets() {
            let release = match self.route(tablet, 0, None) {
                _ if self.is_split(tablet) => Release::All,
                Ok(Route::Here) | Err(_) => Release::All,
                Ok(Route::Node { node, is_known: true }) if Some(node) != refused_by => Release::All,
                Ok(Route::Node { .. }) => Release::One,
                Ok(Route::Nobody) => continue,
            };
            self.release(tablet, release);
        }
    }

    fn release(&self, tablet: TabletId, release: Release) {
        let mut outcomes = Outcomes::default();
        for request in self.parked.release(tablet, release) {
            self.send_again(request, None, &mut outcomes);
        }
        outcomes.deliver();
    }

    /// Takes a frame of answers.
    pub(super) fn take_answers(&self, from: NodeId, incarnation: u64, mut items: Reader<'_>) -> Result<(), Malformed> {
        let Some(peer) = self.peers.load().get(&from).cloned() else { return Ok(()) };
        let mut answered = Vec::new();
        let decoded = peer.answered(incarnation, &mut items, &mut answered);
        let mut outcomes = Outcomes::default();
        for (request, outcome) in answered {
            self.take_answer(from, request, outcome, &mut outcomes);
        }
        outcomes.deliver();
        self.send_soon();
        decoded
    }

    fn take_answer(&self, from: NodeId, request: Request, outcome: Outcome, outcomes: &mut Outcomes) {
        let (tablet, is_probe) = (request.tablet, request.is_probe);
        let request = *request;
        match (request.work, outcome) {
            (Work::Fetch { answer, .. }, Outcome::Fetched(fetched)) => {
                // Who asked may be gone.
                let _ = answer.send(Ok(fetched));
            }
            (Work::Write { sink, token, .. }, Outcome::Written(reply)) => outcomes.written(sink, token, Ok(reply)),
            (work, Outcome::Failed(error)) => {
                return self.take_failure(from, Box::new(Asked { work, ..request }), error, outcomes);
            }
            (work, Outcome::Fetched(_) | Outcome::Written(_)) => {
                let error = KvError::Storage(format!("{from} gave an answer to another question"));
                return outcomes.fail(Box::new(Asked { work, ..request }), error);
            }
        }
        if is_probe {
            self.leaders.learn(tablet, from, self.clock.monotonic_ns());
            self.release(tablet, Release::All);
        }
    }

    fn take_failure(&self, from: NodeId, mut request: Request, error: KvError, outcomes: &mut Outcomes) {
        let now_ns = self.clock.monotonic_ns();
        let tablet = request.tablet;
        match error {
            KvError::NotLeader { leader, .. } => {
                match leader.filter(|leader| *leader != from) {
                    Some(leader) if leader != self.node => self.leaders.learn(tablet, leader, now_ns),
                    _ => self.leaders.forget(tablet, from),
                }
                request.refused(from);
                self.send_again(request, leader, outcomes);
            }
            KvError::NoSuchTablet(_) => {
                self.leaders.forget(tablet, from);
                let since_ns = *request.missing_since_ns.get_or_insert(now_ns);
                if now_ns - since_ns >= self.options.missing_patience.as_nanos() as u64 && !self.is_coming(tablet) {
                    return outcomes.fail(request, error);
                }
                request.refused(from);
                self.send_again(request, None, outcomes);
            }
            KvError::Unavailable(_) if request.is_read() => {
                request.refused(from);
                self.send_again(request, None, outcomes);
            }
            error => outcomes.fail(request, error),
        }
    }
}

impl Reroute for Router {
    fn reroute(&self, refused: &mut Vec<Refused>) {
        let mut outcomes = Outcomes::default();
        for Refused { tablet, mutation, sink, token, deadline_ns, leader } in refused.drain(..) {
            if self.is_of_other_node(&sink) {
                // It took its hop: the node that asked tries again.
                outcomes.written(sink, token, Err(KvError::NotLeader { tablet, leader }));
                continue;
            }
            let deadline_ns = Some(deadline_ns).filter(|deadline_ns| *deadline_ns != NO_DEADLINE);
            let mut request = self.write_request(tablet, mutation, sink, token, deadline_ns);
            request.refused(self.node);
            self.send_again(request, leader, &mut outcomes);
        }
        outcomes.deliver();
        self.send_gathered();
    }
}

/// Reads where waiting is allowed.
fn fetch_anywhere(
    handle: &TabletHandle,
    permit: Permit,
    fetch: &Fetch,
    look: &Look,
    folding: &Folding,
) -> Result<Fetched, KvError> {
    Ok(match read::read(handle, permit, &FetchRef::from(fetch), look, folding)? {
        read::Outcome::Found(parts) => parts.into_fetched(),
        read::Outcome::NotInMemory | read::Outcome::Long => Fetched::default(),
    })
}
