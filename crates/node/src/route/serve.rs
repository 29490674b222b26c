//! The serving side: carries out requests of other nodes for tablets that this node leads.
//!
//! Always true: nothing waits here: reads from memory are answered at once, the answers of a frame together; reads that need the disk run
//! where waiting is allowed; writes go to the store, which reports the outcomes of a turn together. A request for a tablet that is not led
//! here is refused, never forwarded. Requests in flight are bounded by count and bytes per asking node.

use super::read::{self, Folding, Look};
use super::wire::{self, FetchRef, FrameKind, OperationRef, RequestRef};
use super::{RouteCounters, RouteLimits, Router};
use ahash::AHashMap;
use diorite_base::account::{Account, Charge};
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::mutation::Mutation;
use diorite_base::program::{ProvenProgram, Target};
use diorite_base::write::{Completion, KvError, WriteSink};
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_cluster::catalog::Command;
use diorite_query::kv::{Fetch, FetchRows};
use diorite_query::program::Program;
use diorite_replica::{Leadership, MergeStep, NO_DEADLINE, Permit, TabletHandle};
use diorite_rpc::{Lane, Transport};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// What a request costs beside its bytes while it is worked on.
const OVERHEAD_BYTES: usize = 256;
/// Longer answers are not copied into a frame with others.
const MAX_JOINED_BYTES: usize = 16 << 10;
/// Longer requests are charged to the node's account of requests.
const MAX_FREE_BYTES: usize = 4 << 10;

/// Requests that are being worked on, by the token that names them below.
#[derive(Default)]
struct InFlight {
    /// The id that the asker gave, the bytes that count for it, and what they are charged to.
    slots: Vec<(u64, usize, Option<Charge>)>,
    free: Vec<u32>,
    bytes: usize,
}

impl InFlight {
    fn begin(&mut self, id: u64, bytes: usize, limits: &RouteLimits, account: &Arc<Account>) -> Option<u64> {
        let count = self.slots.len() - self.free.len();
        if count >= limits.requests || (self.bytes + bytes > limits.bytes && count > 0) {
            return None;
        }
        // What is short is bounded by how many there may be.
        let charge = if bytes > MAX_FREE_BYTES { Some(account.charge(bytes).ok()?) } else { None };
        self.bytes += bytes;
        let token = self.free.pop().map_or(self.slots.len(), |token| token as usize);
        if token == self.slots.len() {
            self.slots.push((id, bytes, charge));
        } else {
            self.slots[token] = (id, bytes, charge);
        }
        Some(token as u64)
    }

    fn end(&mut self, token: u64) -> u64 {
        let (id, bytes, _charge) = std::mem::take(&mut self.slots[token as usize]);
        self.bytes -= bytes;
        self.free.push(token as u32);
        id
    }
}

/// One asking process: where its answers go, and what it has in flight here.
pub(super) struct Served {
    pub(super) node: NodeId,
    incarnation: u64,
    transport: Arc<dyn Transport>,
    counters: Arc<RouteCounters>,
    limits: RouteLimits,
    account: Arc<Account>,
    in_flight: Mutex<InFlight>,
    /// The frame of answers that is being gathered; empty if there is none.
    gathered: Mutex<Vec<u8>>,
}

impl Served {
    /// Takes the answers that are being gathered.
    pub(super) fn take_gathered(&self) -> Vec<u8> {
        std::mem::take(&mut *self.gathered.lock())
    }

    /// Has answers wait for company.
    fn gather(&self, mut frame: Vec<u8>) {
        let mut gathered = self.gathered.lock();
        if gathered.is_empty() {
            *gathered = frame;
        } else {
            drop(gathered);
            self.send(&mut frame);
        }
    }

    /// Adds a frame of answers to those that are being gathered, which then leave together. A long one leaves at once.
    fn join(&self, mut frame: Vec<u8>) {
        if frame.len() > MAX_JOINED_BYTES {
            return self.send(&mut frame);
        }
        let mut gathered = self.gathered.lock();
        if gathered.is_empty() {
            *gathered = frame;
        } else if gathered.len() + frame.len() <= self.limits.frame_bytes {
            let mut head = Vec::new();
            wire::put_frame(&mut head, FrameKind::Answers, self.incarnation);
            gathered.extend_from_slice(&frame[head.len()..]);
        } else {
            std::mem::swap(&mut *gathered, &mut frame);
            drop(gathered);
            self.send(&mut frame);
        }
    }

    fn begin(&self, id: u64, bytes: usize) -> Option<u64> {
        let token = self.in_flight.lock().begin(id, OVERHEAD_BYTES + bytes, &self.limits, &self.account);
        if token.is_none() {
            RouteCounters::add(&self.counters.overloaded, 1);
        }
        token
    }

    /// Sends and empties a frame of answers. If it cannot be sent the asker's deadline tells it.
    pub(super) fn send(&self, frame: &mut Vec<u8>) {
        if !frame.is_empty() && self.transport.send(self.node, Lane::Requests, frame).is_ok() {
            RouteCounters::add(&self.counters.answer_frames, 1);
            RouteCounters::add(&self.counters.sent_bytes, frame.len() as u64);
        }
        frame.clear();
    }

    /// The frame to which an answer may be appended.
    fn answers<'f>(&self, frame: &'f mut Vec<u8>) -> &'f mut Vec<u8> {
        if frame.len() >= self.limits.frame_bytes {
            self.send(frame);
        }
        if frame.is_empty() {
            wire::put_frame(frame, FrameKind::Answers, self.incarnation);
        }
        frame
    }
}

impl WriteSink for Served {
    fn complete(&self, done: &mut Vec<Completion>) {
        let mut frame = Vec::with_capacity(32 + done.len() * 8);
        let ids: Vec<u64> = {
            let mut in_flight = self.in_flight.lock();
            done.iter().map(|(token, _)| in_flight.end(*token)).collect()
        };
        for ((_, outcome), id) in done.drain(..).zip(ids) {
            match outcome {
                Ok(reply) => wire::put_written(self.answers(&mut frame), id, &reply),
                Err(error) => {
                    if let KvError::NotLeader { .. } = error {
                        RouteCounters::add(&self.counters.refused_not_leader, 1);
                    }
                    wire::put_failed(self.answers(&mut frame), id, &error);
                }
            }
        }
        self.send(&mut frame);
    }
}

/// A read that waits for the disk. Its place is given back even if the read panics.
struct DiskRead {
    router: Weak<Router>,
    served: Arc<Served>,
    folding: Arc<Folding>,
    token: Option<u64>,
}

impl DiskRead {
    fn answer(mut self, handle: &TabletHandle, request: &FetchRef<'_>, look: &Look) {
        let outcome = read::read(handle, Permit::Lease, request, look, &self.folding);
        let Some(token) = self.token.take() else { return };
        let id = self.served.in_flight.lock().end(token);
        let mut frame = Vec::new();
        let out = self.served.answers(&mut frame);
        match outcome {
            Ok(read::Outcome::Found(parts)) => wire::put_fetched(out, id, &parts),
            Ok(_) => wire::put_failed(out, id, &KvError::Storage("a read found no answer".to_owned())),
            Err(error) => wire::put_failed(out, id, &as_refusal(handle, error, &self.served.counters)),
        }
        match self.router.upgrade() {
            Some(router) => {
                self.served.join(frame);
                router.has_frames.store(true, Ordering::SeqCst);
                router.send_soon();
            }
            None => self.served.send(&mut frame),
        }
    }
}

impl Drop for DiskRead {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.served.in_flight.lock().end(token);
        }
    }
}

/// How much memory a read from disk takes, as far as that is known before: the keys that it names, and the piece that it asks for.
fn expected_bytes(fetch: &Fetch) -> usize {
    let task = fetch.fold.as_ref().map_or(0, Vec::len);
    task + match &fetch.rows {
        FetchRows::Nothing | FetchRows::One(_) => 0,
        FetchRows::Range(range) => range.max_bytes.min(EXPECTED_PIECE_BYTES),
        FetchRows::Several(several) => several.spans.len() + several.max_bytes.min(EXPECTED_PIECE_BYTES),
    }
}

/// What a piece of a range takes until it is known: most are shorter than they may be.
const EXPECTED_PIECE_BYTES: usize = 64 << 10;

/// A replica that may not serve says who does.
fn as_refusal(handle: &TabletHandle, error: KvError, counters: &RouteCounters) -> KvError {
    match error {
        KvError::Unavailable(_) | KvError::NotLeader { .. } => {
            RouteCounters::add(&counters.refused_not_leader, 1);
            let leader = match handle.leadership() {
                Leadership::Elsewhere(node) => Some(node),
                Leadership::Here | Leadership::Unknown => None,
            };
            KvError::NotLeader { tablet: handle.id(), leader }
        }
        error => error,
    }
}

/// Which replicas evaluate what is written to a tablet.
pub(super) fn target_of(tablet: TabletId) -> Target {
    if tablet.0 == GroupId::CATALOG.0 { Target::Catalog } else { Target::Rows }
}

/// A write that came from another node, if the tablet's replicas can apply it. What cannot be applied must not reach the log: replicas stop at it.
pub(super) fn checked(tablet: TabletId, bytes: &[u8]) -> Result<Mutation, KvError> {
    let target = target_of(tablet);
    let prove = |program: &[u8]| match target {
        Target::Catalog => ProvenProgram::read::<Command>(program),
        Target::Rows => ProvenProgram::read::<MergeStep>(program).or_else(|_| ProvenProgram::read::<Program>(program)),
    };
    let mutation = Mutation::decode(bytes.to_vec(), prove)?;
    mutation.check_for(target)?;
    Ok(mutation)
}

impl Router {
    fn served(&self, from: NodeId, incarnation: u64) -> Arc<Served> {
        if let Some(served) = self.served.load().get(&from).filter(|served| served.incarnation == incarnation) {
            return Arc::clone(served);
        }
        let fresh = Arc::new(Served {
            node: from,
            incarnation,
            transport: Arc::clone(&self.transport),
            counters: Arc::clone(&self.counters),
            limits: self.options.limits,
            account: Arc::clone(&self.options.account),
            in_flight: Mutex::default(),
            gathered: Mutex::default(),
        });
        // Frames of one node arrive one after the other, so nobody else makes another for it now.
        self.served.rcu(|served| {
            let mut served = AHashMap::clone(served);
            served.insert(from, Arc::clone(&fresh));
            served
        });
        fresh
    }

    /// Whether the outcome of a write goes to another node.
    pub(super) fn is_of_other_node(&self, sink: &Arc<dyn WriteSink>) -> bool {
        self.served.load().values().any(|served| std::ptr::addr_eq(Arc::as_ptr(served), Arc::as_ptr(sink)))
    }

    /// Takes a frame of requests.
    pub(super) fn serve(&self, from: NodeId, incarnation: u64, mut items: Reader<'_>) -> Result<(), Malformed> {
        let served = self.served(from, incarnation);
        let sink: Arc<dyn WriteSink> = Arc::clone(&served) as Arc<dyn WriteSink>;
        let (mut frame, mut count, mut writes) = (served.take_gathered(), 0, 0);
        let mut decoded = Ok(());
        while !items.is_empty() {
            let request = match wire::read_request(&mut items) {
                Ok(request) => request,
                Err(malformed) => {
                    decoded = Err(malformed);
                    break;
                }
            };
            count += 1;
            let outcome = match request.operation {
                OperationRef::Fetch(fetch) => self.serve_fetch(&served, request, &fetch, &mut frame),
                OperationRef::Write(mutation, left_ms) => {
                    writes += 1;
                    self.serve_write(&served, &sink, request, (mutation, left_ms))
                }
            };
            if let Err(error) = outcome {
                wire::put_failed(served.answers(&mut frame), request.id, &error);
            }
        }
        if writes > 0 {
            self.store.kick();
        }
        if !frame.is_empty() {
            served.gather(frame);
            self.has_frames.store(true, Ordering::SeqCst);
            self.send_soon();
        }
        RouteCounters::add(&self.counters.received, count);
        decoded
    }

    /// The replica of a tablet, or why there is none here.
    fn replica(&self, tablet: TabletId) -> Result<Arc<TabletHandle>, KvError> {
        self.store.handle(tablet).ok_or_else(|| {
            if self.catalogs.catalog().placement(tablet).is_none() {
                return KvError::NoSuchTablet(tablet);
            }
            RouteCounters::add(&self.counters.refused_not_leader, 1);
            let leader = self.leaders.get(tablet).map(|learned| learned.node);
            KvError::NotLeader { tablet, leader }
        })
    }

    fn serve_fetch(
        &self,
        served: &Arc<Served>,
        request: RequestRef<'_>,
        fetch: &FetchRef<'_>,
        frame: &mut Vec<u8>,
    ) -> Result<(), KvError> {
        let handle = self.replica(request.tablet)?;
        if fetch.fold.is_some() {
            RouteCounters::add(&self.counters.folded, 1);
        }
        let refusal = |error| as_refusal(&handle, error, &self.counters);
        let found = read::read(&handle, Permit::Lease, fetch, &Look::Memory, &self.folding).map_err(refusal)?;
        let is_long = match found {
            read::Outcome::Found(parts) => {
                wire::put_fetched(served.answers(frame), request.id, &parts);
                return Ok(());
            }
            read::Outcome::Long => true,
            read::Outcome::NotInMemory => false,
        };
        // Nobody waits for it any longer than that.
        let most_ms = self.options.read_patience.as_millis() as u64;
        let left_ns = fetch.left_ms.unwrap_or(most_ms).min(most_ms).saturating_mul(1_000_000);
        let look = self.look_until(Some(self.clock.monotonic_ns().saturating_add(left_ns)));
        let fetch = fetch.to_fetch();
        let token = served.begin(request.id, expected_bytes(&fetch)).ok_or(KvError::Overloaded(""))?;
        let (router, served, folding) = (Weak::clone(&self.me), Arc::clone(served), Arc::clone(&self.folding));
        let disk_read = DiskRead { router, served, folding, token: Some(token) };
        let disk = handle.disk();
        let work = move || disk_read.answer(&handle, &FetchRef::from(&fetch), &look);
        if is_long {
            RouteCounters::add(&self.counters.long_reads, 1);
            drop(self.threads.aside.begin(work));
            return Ok(());
        }
        self.threads.disk.begin(disk, work)
    }

    fn serve_write(
        &self,
        served: &Arc<Served>,
        sink: &Arc<dyn WriteSink>,
        request: RequestRef<'_>,
        (mutation, left_ms): (&[u8], Option<u64>),
    ) -> Result<(), KvError> {
        let tablet = request.tablet;
        let handle = self.replica(tablet)?;
        if handle.leadership() != Leadership::Here {
            return Err(as_refusal(&handle, KvError::Unavailable(tablet), &self.counters));
        }
        let mutation = checked(tablet, mutation)?;
        let token = served.begin(request.id, mutation.size_bytes()).ok_or(KvError::Overloaded(""))?;
        // Nobody waits for it any longer than that.
        let deadline_ns = left_ms.map_or(NO_DEADLINE, |left_ms| {
            self.store_deadline(self.clock.monotonic_ns().saturating_add(left_ms.saturating_mul(1_000_000)))
        });
        self.store.submit_until(tablet, mutation, sink, token, deadline_ns).map_err(|error| {
            served.in_flight.lock().end(token);
            as_refusal(&handle, error, &self.counters)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_replica_can_apply_is_taken_from_another_node() {
        let tablet = TabletId(1_000);
        let taken = |mutation: &Mutation| checked(tablet, mutation.as_bytes()).is_ok();
        assert!(taken(&Mutation::blind(None)));
        let step = |step: MergeStep| step.mutation().expect("a small step");
        assert!(taken(&step(MergeStep::Close { tablet: TabletId(7), number: 1 })));
        let begin = step(MergeStep::Begin { from: tablet, number: 3, attempt: 7, range: (vec![1], vec![2]) });
        assert!(taken(&begin));
        let header = &begin.as_bytes()[..9];
        for program in [&b"neither a program nor a step"[..], &[]] {
            assert!(checked(tablet, &[header, program].concat()).is_err());
        }
        // A step with something behind it.
        let longer = [begin.as_bytes(), b"?"].concat();
        assert!(checked(tablet, &longer).is_err());
        // What the catalog evaluates, and it alone.
        let catalog = TabletId(GroupId::CATALOG.0);
        let command = Command::RemoveNode { node: NodeId(1) };
        let command = Mutation::evaluated(None, &ProvenProgram::new(&command).expect("a small command"));
        assert!(checked(catalog, command.as_bytes()).is_ok() && !taken(&command));
        assert!(checked(catalog, begin.as_bytes()).is_err());
        assert!(checked(catalog, Mutation::blind(None).as_bytes()).is_err());
    }
}
