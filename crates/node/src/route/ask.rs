//! The asking side: takes requests of this node's clients, and carries them out on this node or sends them to the
//! tablet's leader.

use super::checked::target_of;
use super::counters::RouteCounters;
use super::fetch_wire::FetchRef;
use super::read::{self, Aggregation, Look};
use super::request::{Work, Write};
use super::router::Router;
use super::until::Until;
use diorite_base::TabletId;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, Waited, WriteReply, WriteSink};
use diorite_control::routing::{Asked, Step};
use diorite_query::kv::{Fetch, Fetched, Now};
use diorite_replica::{Leadership, NO_DEADLINE, Permit, TabletHandle};
use diorite_storage::PinnedValue;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Whether a read that failed with this error may be tried on another node: its replica has just ceased to lead.
pub(super) fn is_refusal(error: &KvError) -> bool {
    matches!(error, KvError::NotLeader { .. } | KvError::Unavailable(_))
}

impl Router {
    /// Reads a key of a tablet that this node leads, if the data is in memory. Where it hardly ever is, most keys are not
    /// looked up.
    #[inline]
    pub(crate) fn get_now(&self, tablet: TabletId, key: &[u8]) -> Result<Now<Option<PinnedValue>>, KvError> {
        let tablets = self.store.tablets();
        // The tablet may be on another node.
        let Some(handle) = tablets.get(&tablet).filter(|handle| handle.misses().wants_look()) else {
            return Ok(Now::WouldBlock);
        };
        match handle.get_cached(Permit::Lease, key) {
            Ok(Some(found)) => {
                handle.misses().note(true);
                RouteCounters::add(&self.counters.local, 1);
                Ok(Now::Ready(found))
            }
            Ok(None) => {
                handle.misses().note(false);
                Ok(Now::WouldBlock)
            }
            Err(error) if is_refusal(&error) => Ok(Now::WouldBlock),
            Err(error) => Err(error),
        }
    }

    /// Reads a key of a tablet that this node leads, from disk; `None` if this node does not lead the tablet. A read
    /// whose `deadline_ns` has passed before it begins is not carried out.
    pub(crate) async fn get_here(
        &self,
        tablet: TabletId,
        key: Vec<u8>,
        deadline_ns: Option<u64>,
    ) -> Result<Option<Option<PinnedValue>>, KvError> {
        let handle = self.store.handle(tablet).filter(|handle| handle.leadership() == Leadership::Here);
        let Some(handle) = handle else { return Ok(None) };
        let disk = handle.disk();
        // No `Until`, which shares two more counts of references with all threads: one row is no long read.
        let read = move || match handle.is_past(deadline_ns) {
            true => Err(KvError::Timeout(Waited::in_vain(0))),
            false => handle.get(Permit::Lease, &key),
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

    /// Reads a tablet that this node leads, if the data is in memory and not much.
    pub(crate) fn fetch_now(&self, tablet: TabletId, fetch: &Fetch) -> Result<Now<Fetched>, KvError> {
        let tablets = self.store.tablets();
        let Some(handle) = tablets.get(&tablet).filter(|_| !fetch.needs_disk) else { return Ok(Now::WouldBlock) };
        let look = Look::Memory(&self.options.account);
        match read::read(handle, Permit::Lease, &FetchRef::from(fetch), &look, &self.aggregation) {
            Ok(read::Outcome::Found(parts)) => {
                RouteCounters::add(&self.counters.local, 1);
                Ok(Now::Ready(parts.into_fetched()))
            }
            Ok(read::Outcome::NotInMemory | read::Outcome::Long) => Ok(Now::WouldBlock),
            Err(error) if is_refusal(&error) => Ok(Now::WouldBlock),
            Err(error) => Err(error),
        }
    }

    /// Reads on the node that leads the tablet. A request for another node is sent with the next
    /// [`Router::send_gathered`] (or [`Router::kick`]).
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
        self.ask(tablet, Work::Fetch { fetch, answer }, until_ns)?;
        answered.await.unwrap_or(Err(KvError::Unavailable(tablet)))
    }

    /// The permit for a read of this node's replica, if the read may use that replica.
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
        // `needs_disk` was found on a leader's replica. A follower's memory may still have the data.
        if !fetch.needs_disk || permit != Permit::Lease {
            match read::read(
                &handle,
                permit,
                &FetchRef::from(fetch),
                &Look::Memory(&self.options.account),
                &self.aggregation,
            )? {
                read::Outcome::Found(parts) => return Ok(parts.into_fetched()),
                read::Outcome::Long => {
                    RouteCounters::add(&self.counters.long_reads, 1);
                    let work = move || fetch_anywhere(&handle, permit, fetch, &look, &self.aggregation);
                    return self.threads.aside.compute(work).await?;
                }
                read::Outcome::NotInMemory => {}
            }
        }
        let (fetch, aggregation) = (fetch.clone(), Arc::clone(&self.aggregation));
        let disk = handle.disk();
        self.threads.disk.read(disk, move || fetch_anywhere(&handle, permit, &fetch, &look, &aggregation)).await?
    }

    /// Permits a read from disk that ends at `deadline_ns`, if that is given.
    pub(super) fn look_until(&self, deadline_ns: Option<u64>) -> Look<'static> {
        Look::Anywhere(Until::new(&self.clock, deadline_ns, &self.options.account))
    }

    /// Submits a write to the node that leads the tablet; its outcome goes to `sink` with `tag`. [`Router::kick`] sends
    /// it.
    pub(crate) fn submit(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        tag: u64,
    ) -> Result<(), KvError> {
        let timeout = self.options.short_timeout;
        let deadline_ns = timeout.map(|timeout| self.clock.monotonic_ns() + timeout.as_nanos() as u64);
        self.submit_until(tablet, mutation, sink, tag, deadline_ns)
    }

    /// As [`Self::submit`], for a request that ends at `deadline_ns`, if that is given.
    fn submit_until(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        tag: u64,
        deadline_ns: Option<u64>,
    ) -> Result<(), KvError> {
        if self.leads(tablet) {
            RouteCounters::add(&self.counters.local, 1);
            let deadline_ns = deadline_ns.map_or(NO_DEADLINE, |deadline_ns| self.store_deadline(deadline_ns));
            return self.store.submit_until(tablet, mutation, sink, tag, deadline_ns);
        }
        mutation.check_for(target_of(tablet))?;
        self.ask(tablet, Work::Write(Write { mutation, sink: Arc::clone(sink), tag }), deadline_ns)
    }

    /// The deadline of the store for a write whose request ends at `deadline_ns`: a fifth of the time earlier, so that
    /// the store can still report how many replicas hold it.
    pub(super) fn store_deadline(&self, deadline_ns: u64) -> u64 {
        deadline_ns - deadline_ns.saturating_sub(self.clock.monotonic_ns()) / 5
    }

    /// Writes at once to the node that leads the tablet, and waits for the outcome.
    pub(crate) async fn write(&self, tablet: TabletId, mutation: Mutation) -> Result<WriteReply, KvError> {
        self.write_until(tablet, mutation, None).await
    }

    /// As [`Self::write`]; the write ends at `deadline_ns`, if that is given.
    pub(crate) async fn write_until(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        deadline_ns: Option<u64>,
    ) -> Result<WriteReply, KvError> {
        let writing = self.gather_write(tablet, mutation, deadline_ns)?;
        self.send_gathered();
        writing.await
    }

    /// Writes and waits. A write for another node is sent with the next [`Router::send_gathered`] (or
    /// [`Router::kick`]). The write ends at `deadline_ns`, if that is given, on whichever node carries it out.
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
        // The outcome is missing only if the store thread has ended. A store that stops may have logged the write, so
        // the outcome is unknown.
        let timeout_ms = self.options.timeouts.write.as_millis() as u64;
        Ok(async move { outcome.await.unwrap_or(Err(KvError::Timeout(Waited::in_vain(timeout_ms)))) })
    }

    /// Sends a new request, or parks it. An error ends the request, and the caller reports it.
    fn ask(&self, tablet: TabletId, work: Work, until_ns: Option<u64>) -> Result<(), KvError> {
        let now_ns = self.clock.monotonic_ns();
        let target = self.routing.read().direct(tablet, &self.view(), now_ns)?;
        let request = Asked::new(tablet, work, now_ns, &self.options.timeouts, until_ns);
        let step = match target {
            Some(target) => Step::Send(target.node, target.mark(request)),
            None => self.routing.write().park(request),
        };
        self.perform_first(step)
    }
}

/// Reads on a thread that may wait.
pub(super) fn fetch_anywhere(
    handle: &TabletHandle,
    permit: Permit,
    fetch: &Fetch,
    look: &Look<'_>,
    aggregation: &Aggregation,
) -> Result<Fetched, KvError> {
    Ok(match read::read(handle, permit, &FetchRef::from(fetch), look, aggregation)? {
        read::Outcome::Found(parts) => {
            let mut fetched = parts.into_fetched();
            fetched.kept = look.kept(fetched.size_bytes());
            fetched
        }
        read::Outcome::NotInMemory | read::Outcome::Long => Fetched::default(),
    })
}
