//! The serving side: carries out requests of other nodes for tablets that this node leads.
//!
//! Always true: nothing waits here. Reads from memory are answered at once, the answers of a frame together; reads that
//! need the disk run on threads that may wait; writes go to the store, which reports the outcomes of a turn together. A
//! request for a tablet that this node does not lead is refused, never forwarded. Requests in flight are bounded by
//! count and bytes per asking node.

use super::checked::checked;
use super::counters::RouteCounters;
use super::fetch_wire::FetchRef;
use super::read::{self, Look};
use super::router::Router;
use super::served::{DiskRead, Served, as_refusal};
use super::wire::{self, OperationRef, RequestRef};
use crate::turns::{Caller, Client};
use ahash::AHashMap;
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::write::{KvError, WriteSink};
use diorite_base::{NodeId, TabletId};
use diorite_query::kv::{Fetch, FetchRows};
use diorite_replica::{Leadership, NO_DEADLINE, Permit, TabletHandle};
use std::sync::Arc;

/// The memory that a read from disk is expected to take: the keys that the request names, and the range that it asks
/// for.
fn expected_bytes(fetch: &Fetch) -> usize {
    let task = fetch.aggregate.as_ref().map_or(0, Vec::len);
    task + match &fetch.rows {
        FetchRows::Nothing | FetchRows::One(_) => 0,
        FetchRows::Range(range) => range.max_bytes.min(EXPECTED_PIECE_BYTES),
        FetchRows::Several(several) => several.spans.len() + several.max_bytes.min(EXPECTED_PIECE_BYTES),
        FetchRows::Index(scan) => scan.spans.len() + scan.max_bytes.min(EXPECTED_PIECE_BYTES),
    }
}

/// The memory charged for a range until its size is known: most ranges are shorter than requests allow.
const EXPECTED_PIECE_BYTES: usize = 64 << 10;

/// A write received from another node.
struct ReceivedWrite<'a> {
    /// An encoded mutation.
    mutation: &'a [u8],
    /// How much longer the write may take, milliseconds, if that is less than the usual timeout.
    left_ms: Option<u64>,
}

impl Router {
    fn served(&self, from: NodeId, incarnation: u64) -> Arc<Served> {
        if let Some(served) = self.nodes.served.load().get(&from).filter(|served| served.incarnation == incarnation) {
            return Arc::clone(served);
        }
        let fresh = Arc::new(Served::new(from, incarnation, Arc::clone(&self.nodes.serving)));
        // Frames of one node are handled one after the other, so no other thread adds this node now.
        self.nodes.served.rcu(|served| {
            let mut served = AHashMap::clone(served);
            served.insert(from, Arc::clone(&fresh));
            served
        });
        fresh
    }

    /// Whether the outcome of a write goes to another node.
    pub(super) fn is_of_other_node(&self, sink: &Arc<dyn WriteSink>) -> bool {
        self.nodes.served.load().values().any(|served| std::ptr::addr_eq(Arc::as_ptr(served), Arc::as_ptr(sink)))
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
                    self.serve_write(&served, &sink, request, &ReceivedWrite { mutation, left_ms })
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
            self.nodes.gathering.added();
            self.send_soon();
        }
        RouteCounters::add(&self.counters().received, count);
        decoded
    }

    /// The replica of a tablet, or why there is none here.
    fn replica(&self, tablet: TabletId) -> Result<Arc<TabletHandle>, KvError> {
        self.store.handle(tablet).ok_or_else(|| {
            if self.catalogs.catalog().placement(tablet).is_none() {
                return KvError::NoSuchTablet(tablet);
            }
            RouteCounters::add(&self.counters().refused_not_leader, 1);
            let leader = self.routing.read().learned(tablet);
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
        if fetch.aggregate.is_some() {
            RouteCounters::add(&self.counters().aggregates, 1);
        }
        let refusal = |error| as_refusal(&handle, error, self.counters());
        let found = read::read(&handle, Permit::Lease, fetch, &Look::Memory(&self.options.account), &self.aggregation)
            .map_err(refusal)?;
        let is_long = match found {
            read::Outcome::Found(parts) => {
                let id = request.id;
                served.put(frame, id, parts.size_bytes(), |out| wire::put_fetched(out, id, &parts));
                return Ok(());
            }
            read::Outcome::Long => true,
            read::Outcome::NotInMemory => false,
        };
        // The asking node waits no longer than this.
        let most_ms = self.options.timeouts.read.as_millis() as u64;
        let left_ns = fetch.left_ms.unwrap_or(most_ms).min(most_ms).saturating_mul(1_000_000);
        let look = self.look_until(Some(self.clock.monotonic_ns().saturating_add(left_ns)));
        let fetch = fetch.to_fetch();
        let tag = served.begin(request.id, expected_bytes(&fetch)).ok_or(KvError::Overloaded(""))?;
        let (served, gathering) = (Arc::clone(served), Arc::clone(&self.nodes.gathering));
        let disk_read = DiskRead { served, gathering, aggregation: Arc::clone(&self.aggregation), tag: Some(tag) };
        let disk = handle.disk();
        let asker = Caller { client: Client::Node(disk_read.served.node), connection: disk_read.served.incarnation };
        let work = move |begun| disk_read.answer(begun, &handle, &FetchRef::from(&fetch), &look);
        if is_long {
            RouteCounters::add(&self.counters().long_reads, 1);
            return self.threads.aside.compute_later(asker, work);
        }
        self.threads.disk.begin(disk, move || work(Ok(())))
    }

    fn serve_write(
        &self,
        served: &Arc<Served>,
        sink: &Arc<dyn WriteSink>,
        request: RequestRef<'_>,
        write: &ReceivedWrite<'_>,
    ) -> Result<(), KvError> {
        let tablet = request.tablet;
        let handle = self.replica(tablet)?;
        if handle.leadership() != Leadership::Here {
            return Err(as_refusal(&handle, KvError::Unavailable(tablet), self.counters()));
        }
        let mutation = checked(tablet, write.mutation)?;
        let tag = served.begin(request.id, mutation.size_bytes()).ok_or(KvError::Overloaded(""))?;
        // The asking node waits no longer than this.
        let deadline_ns = write.left_ms.map_or(NO_DEADLINE, |left_ms| {
            self.store_deadline(self.clock.monotonic_ns().saturating_add(left_ms.saturating_mul(1_000_000)))
        });
        self.store.submit_until(tablet, mutation, sink, tag, deadline_ns).map_err(|error| {
            served.end(tag);
            as_refusal(&handle, error, self.counters())
        })
    }
}
