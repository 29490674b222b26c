//! One asking process: its requests in progress here, and the answers that are gathered for it.
//!
//! Always true: requests in progress are bounded by count and bytes, and charged to the node's account of requests
//! before they begin; a slot is free again once its request is answered, or has panicked. Answers that find no connection
//! wait for the next one, bounded and charged.

use super::counters::RouteCounters;
use super::fetch_wire::FetchRef;
use super::gathering::Gathering;
use super::options::RouteLimits;
use super::read::{self, Aggregation, Look};
use super::wire::{self, FrameKind};
use diorite_base::NodeId;
use diorite_base::account::{Account, Charge};
use diorite_base::limits::{self, Exceeded};
use diorite_base::write::{Completion, KvError, WriteSink};
use diorite_replica::{Leadership, Permit, TabletHandle};
use diorite_rpc::{Lane, SendError, Transport};
use parking_lot::Mutex;
use std::sync::Arc;

/// The memory of a request in progress, beside its bytes.
const OVERHEAD_BYTES: usize = 256;
/// Longer answers are sent in frames of their own.
const MAX_JOINED_BYTES: usize = 16 << 10;
/// Requests longer than this are refused if the node's account of requests is full. Shorter requests are accepted:
/// requests that hold memory on the asking node wait for them.
const MAX_SHORT_BYTES: usize = 4 << 10;
/// Short requests are charged in blocks of this size, so that few of them change the account that all connections and
/// nodes share.
const SHORT_BLOCK_BYTES: usize = 64 << 10;
/// Bytes of answers that wait for a connection. The asking node sends requests only while it receives what this node sends,
/// so these are the answers of the moment in which a connection begins or ends.
const MAX_UNCONNECTED_BYTES: usize = 1 << 20;

/// A request in progress.
#[derive(Default)]
struct Slot {
    /// The id that the asking node gave.
    id: u64,
    /// Its bytes, as counted for the limits.
    bytes: usize,
    /// The charge of a long request.
    charge: Option<Charge>,
}

/// The requests in progress. The index of a slot is the tag of its request's completion.
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    bytes: usize,
    short_bytes: usize,
    /// The charge of all short requests.
    short_charge: Option<Charge>,
    account: Arc<Account>,
}

impl Slots {
    fn new(account: &Arc<Account>) -> Self {
        let (slots, free, account) = (Vec::new(), Vec::new(), Arc::clone(account));
        Self { slots, free, bytes: 0, short_bytes: 0, short_charge: account.charge(0).ok(), account }
    }

    /// Charges the bytes that short requests hold now.
    #[inline]
    fn record_short(&mut self) {
        let blocks = self.short_bytes.next_multiple_of(SHORT_BLOCK_BYTES);
        if let Some(charge) = self.short_charge.as_mut().filter(|charge| charge.bytes() != blocks) {
            charge.record(blocks);
        }
    }

    fn begin(&mut self, id: u64, bytes: usize, limits: &RouteLimits) -> Option<u64> {
        let count = self.slots.len() - self.free.len();
        if count >= limits.requests || (self.bytes + bytes > limits.bytes && count > 0) {
            return None;
        }
        let charge = if bytes > MAX_SHORT_BYTES { Some(self.account.charge(bytes).ok()?) } else { None };
        if charge.is_none() {
            self.short_bytes += bytes;
            self.record_short();
        }
        self.bytes += bytes;
        let slot = Slot { id, bytes, charge };
        let place = self.free.pop().map_or(self.slots.len(), |place| place as usize);
        match self.slots.get_mut(place) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        Some(place as u64)
    }

    fn end(&mut self, tag: u64) -> u64 {
        let Slot { id, bytes, charge } = std::mem::take(&mut self.slots[tag as usize]);
        self.bytes -= bytes;
        if charge.is_none() {
            self.short_bytes -= bytes;
            self.record_short();
        }
        self.free.push(tag as u32);
        id
    }
}

/// State that all asking processes share.
pub(super) struct Serving {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) counters: Arc<RouteCounters>,
    pub(super) limits: RouteLimits,
    pub(super) account: Arc<Account>,
}

/// One asking process.
pub(super) struct Served {
    pub(super) node: NodeId,
    pub(super) incarnation: u64,
    serving: Arc<Serving>,
    in_flight: Mutex<Slots>,
    /// The frame of answers that is being gathered; empty if there is none.
    gathered: Mutex<Vec<u8>>,
    unconnected: Mutex<Unconnected>,
}

/// Answers that could not be sent, as there was no connection to the asking node.
#[derive(Default)]
struct Unconnected {
    /// Empty if there are none.
    frame: Vec<u8>,
    charge: Option<Charge>,
}

impl Unconnected {
    /// Adds the answers of a frame; drops them if there are too many.
    fn add(&mut self, frame: &[u8], account: &Arc<Account>) {
        let answers = if self.frame.is_empty() { frame } else { frame.get(wire::HEAD_BYTES..).unwrap_or_default() };
        let bytes = self.frame.len() + answers.len();
        if bytes > MAX_UNCONNECTED_BYTES {
            return;
        }
        let Ok(charge) = account.charge(bytes) else { return };
        self.charge = Some(charge);
        self.frame.extend_from_slice(answers);
    }
}

impl Served {
    pub(super) fn new(node: NodeId, incarnation: u64, serving: Arc<Serving>) -> Self {
        let in_flight = Mutex::new(Slots::new(&serving.account));
        let (gathered, unconnected) = (Mutex::default(), Mutex::default());
        Self { node, incarnation, serving, in_flight, gathered, unconnected }
    }

    /// Takes the answers that are being gathered.
    pub(super) fn take_gathered(&self) -> Vec<u8> {
        std::mem::take(&mut *self.gathered.lock())
    }

    /// Adds answers to those that are sent with the next frame.
    pub(super) fn gather(&self, mut frame: Vec<u8>) {
        let mut gathered = self.gathered.lock();
        if gathered.is_empty() {
            *gathered = frame;
        } else {
            drop(gathered);
            self.send(&mut frame);
        }
    }

    /// Adds a frame of answers to the gathered ones, to be sent with them.
    fn join(&self, mut frame: Vec<u8>) {
        if frame.is_empty() {
            return;
        }
        let mut gathered = self.gathered.lock();
        if gathered.is_empty() {
            *gathered = frame;
        } else if gathered.len() + frame.len() <= self.serving.limits.frame_bytes {
            gathered.extend_from_slice(&frame[wire::HEAD_BYTES..]);
        } else {
            std::mem::swap(&mut *gathered, &mut frame);
            drop(gathered);
            self.send(&mut frame);
        }
    }

    /// The tag of a request that may begin; `None` if too many are in progress.
    pub(super) fn begin(&self, id: u64, bytes: usize) -> Option<u64> {
        let Serving { limits, counters, .. } = &*self.serving;
        let tag = self.in_flight.lock().begin(id, OVERHEAD_BYTES + bytes, limits);
        if tag.is_none() {
            RouteCounters::add(&counters.overloaded, 1);
        }
        tag
    }

    /// Ends a request and returns its id.
    pub(super) fn end(&self, tag: u64) -> u64 {
        self.in_flight.lock().end(tag)
    }

    /// Sends and empties a frame of answers, at the latest with the next connection. If too much waits for the asking
    /// node, its requests end at their deadlines.
    pub(super) fn send(&self, frame: &mut Vec<u8>) {
        let Serving { transport, counters, .. } = &*self.serving;
        if !frame.is_empty() {
            RouteCounters::add(&counters.answer_frames, 1);
            match transport.send(self.node, Lane::Requests, frame) {
                Ok(()) => RouteCounters::add(&counters.sent_bytes, frame.len() as u64),
                Err(SendError::Down) => {
                    let mut unconnected = self.unconnected.lock();
                    unconnected.add(frame, &self.serving.account);
                    // The connection may have begun since.
                    self.try_kept(&mut unconnected);
                }
                Err(SendError::Full) => {}
            }
        }
        frame.clear();
    }

    /// A connection to the asking node has begun: sends the answers that wait for it.
    pub(super) fn send_kept(&self) {
        self.try_kept(&mut self.unconnected.lock());
    }

    /// Each caller holds the lock from before it tries: whatever comes to wait before a connection begins is sent once it
    /// has begun.
    fn try_kept(&self, unconnected: &mut Unconnected) {
        if unconnected.frame.is_empty() {
            return;
        }
        if self.serving.transport.send(self.node, Lane::Requests, &unconnected.frame) != Err(SendError::Down) {
            *unconnected = Unconnected::default();
        }
    }

    /// Appends an answer of about this many bytes. A long answer is sent in a frame of its own, so that its failure
    /// does not affect others. An answer that does not fit a frame is replaced by an error.
    pub(super) fn put(&self, frame: &mut Vec<u8>, id: u64, bytes: usize, put: impl FnOnce(&mut Vec<u8>)) {
        if bytes <= MAX_JOINED_BYTES {
            return put(self.answers(frame));
        }
        let mut own = Vec::new();
        if let Err(exceeded) = check_answer(bytes).and_then(|()| {
            put(self.answers(&mut own));
            check_answer(own.len())
        }) {
            // This error never hides a change: a write that took effect has a short answer.
            return wire::put_failed(self.answers(frame), id, &KvError::TooLarge(exceeded.to_string()));
        }
        self.send(&mut own);
    }

    /// The frame to which an answer may be appended.
    pub(super) fn answers<'f>(&self, frame: &'f mut Vec<u8>) -> &'f mut Vec<u8> {
        if frame.len() >= self.serving.limits.frame_bytes {
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
            done.iter().map(|(tag, _)| in_flight.end(*tag)).collect()
        };
        for ((_, outcome), id) in done.drain(..).zip(ids) {
            match outcome {
                Ok(reply) => self.put(&mut frame, id, reply.len(), |out| wire::put_written(out, id, &reply)),
                Err(error) => {
                    if let KvError::NotLeader { .. } = error {
                        RouteCounters::add(&self.serving.counters.refused_not_leader, 1);
                    }
                    wire::put_failed(self.answers(&mut frame), id, &error);
                }
            }
        }
        self.send(&mut frame);
    }
}

fn check_answer(bytes: usize) -> Result<(), Exceeded> {
    limits::check(&limits::NODE_FRAME_BYTES, bytes, || "an answer to another node".to_owned())
}

/// A read that waits for the disk. Its slot is free again even if the read panics.
pub(super) struct DiskRead {
    pub(super) served: Arc<Served>,
    pub(super) gathering: Arc<Gathering>,
    pub(super) aggregation: Arc<Aggregation>,
    pub(super) tag: Option<u64>,
}

impl DiskRead {
    /// Reads and answers; if `begun` is an error, answers with that.
    pub(super) fn answer(
        mut self,
        begun: Result<(), KvError>,
        handle: &TabletHandle,
        request: &FetchRef<'_>,
        look: &Look<'_>,
    ) {
        let outcome = begun.and_then(|()| read::read(handle, Permit::Lease, request, look, &self.aggregation));
        let Some(tag) = self.tag.take() else { return };
        let id = self.served.end(tag);
        let mut frame = Vec::new();
        let served = &self.served;
        match outcome {
            Ok(read::Outcome::Found(parts)) => {
                served.put(&mut frame, id, parts.size_bytes(), |out| wire::put_fetched(out, id, &parts));
            }
            Ok(_) => {
                let error = KvError::Storage("a read found no answer".to_owned());
                wire::put_failed(served.answers(&mut frame), id, &error);
            }
            Err(error) => {
                let error = as_refusal(handle, error, &served.serving.counters);
                wire::put_failed(served.answers(&mut frame), id, &error);
            }
        }
        served.join(frame);
        self.gathering.added();
        self.gathering.leave_soon();
    }
}

impl Drop for DiskRead {
    fn drop(&mut self) {
        if let Some(tag) = self.tag {
            self.served.end(tag);
        }
    }
}

/// The error of a replica that does not lead, with the leader's id.
pub(super) fn as_refusal(handle: &TabletHandle, error: KvError, counters: &RouteCounters) -> KvError {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::route::RouteOptions;
    use crate::route::wire::Outcome;
    use diorite_base::TabletId;
    use diorite_rpc::MAX_FRAME_BYTES;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Keeps the frames that are sent, and takes none that the network would not.
    #[derive(Default)]
    struct Sent(Mutex<Vec<Vec<u8>>>);

    impl Transport for Sent {
        fn send(&self, _: NodeId, _: Lane, frame: &[u8]) -> Result<(), SendError> {
            if frame.len() > MAX_FRAME_BYTES {
                return Err(SendError::Full);
            }
            self.0.lock().push(frame.to_vec());
            Ok(())
        }
    }

    fn served(sent: &Arc<Sent>) -> Served {
        let transport = Arc::clone(sent) as Arc<dyn Transport>;
        let (account, limits) = (Account::root("all requests", usize::MAX), RouteOptions::default().limits);
        let serving = Serving { transport, counters: Arc::default(), limits, account };
        Served::new(NodeId(2), 7, Arc::new(serving))
    }

    /// Takes frames after so many that find no connection.
    #[derive(Default)]
    struct Connecting {
        sent: Sent,
        refuses: AtomicUsize,
    }

    impl Transport for Connecting {
        fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError> {
            match self.refuses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
                Ok(_) => Err(SendError::Down),
                Err(_) => self.sent.send(to, lane, frame),
            }
        }
    }

    fn outcomes(sent: &Sent) -> Vec<Vec<(u64, Outcome)>> {
        let read = |frame: &Vec<u8>| {
            let (.., mut items) = wire::read_frame(frame).unwrap();
            let mut outcomes = Vec::new();
            while !items.is_empty() {
                outcomes.push(wire::read_answer(&mut items, |_| TabletId(1)).unwrap());
            }
            outcomes
        };
        sent.0.lock().iter().map(read).collect()
    }

    /// The answers of other clients are in the same call of the sink.
    #[test]
    fn an_answer_that_no_frame_can_hold_is_refused_and_those_beside_it_arrive() {
        for (length, is_sent) in [(1 << 20, true), (MAX_FRAME_BYTES - 5, false), (MAX_FRAME_BYTES + (1 << 20), false)] {
            let sent: Arc<Sent> = Arc::default();
            let served = served(&sent);
            let tags: Vec<u64> = (10..13).map(|id| served.begin(id, 100).unwrap()).collect();
            let outcomes_of = |length: usize| vec![1u8; length];
            let mut done: Vec<Completion> =
                tags.iter().zip([10, length, 20]).map(|(tag, length)| (*tag, Ok(outcomes_of(length)))).collect();
            served.complete(&mut done);
            let frames = outcomes(&sent);
            let mut answers: Vec<(u64, Outcome)> = frames.into_iter().flatten().collect();
            answers.sort_by_key(|(id, _)| *id);
            assert_eq!(answers.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [10, 11, 12], "{length}");
            let is_written =
                |at: usize, length| matches!(&answers[at].1, Outcome::Written(reply) if reply.len() == length);
            assert!(is_written(0, 10) && is_written(2, 20), "{length}");
            assert_eq!(is_written(1, length), is_sent, "{length}");
            if !is_sent {
                let Outcome::Failed(KvError::TooLarge(why)) = &answers[1].1 else { panic!("{length}") };
                assert!(why.contains("(NODE_FRAME_BYTES)"), "{why}");
            }
        }
    }

    /// The asking node accepts a connection a moment before the connection can be used.
    #[test]
    fn answers_without_a_connection_wait_for_it_bounded_and_charged() {
        let transport: Arc<Connecting> = Arc::default();
        let account = Account::root("all requests", usize::MAX);
        let serving = Serving {
            transport: Arc::clone(&transport) as Arc<dyn Transport>,
            counters: Arc::default(),
            limits: RouteOptions::default().limits,
            account: Arc::clone(&account),
        };
        let served = Served::new(NodeId(2), 7, Arc::new(serving));
        let answer = |id, bytes| {
            let mut frame = Vec::new();
            wire::put_frame(&mut frame, FrameKind::Answers, 7);
            wire::put_written(&mut frame, id, &vec![1; bytes]);
            served.send(&mut frame);
        };
        let ids = || -> Vec<Vec<u64>> {
            outcomes(&transport.sent).iter().map(|frame| frame.iter().map(|(id, _)| *id).collect()).collect()
        };
        transport.refuses.store(usize::MAX, Ordering::Relaxed);
        answer(1, 10);
        answer(2, 20);
        answer(3, MAX_UNCONNECTED_BYTES);
        assert!(ids().is_empty());
        assert!(account.used_bytes() > 30);
        transport.refuses.store(0, Ordering::Relaxed);
        served.send_kept();
        served.send_kept();
        assert_eq!(ids(), [vec![1, 2]], "in one frame, once, without what is too much");
        assert_eq!(account.used_bytes(), 0);
        // The connection begins after it was not there, and before the answer waits for it.
        transport.refuses.store(1, Ordering::Relaxed);
        answer(4, 10);
        assert_eq!(ids(), [vec![1, 2], vec![4]]);
        assert_eq!(account.used_bytes(), 0);
    }

    #[test]
    fn a_long_answer_is_in_no_frame_with_others() {
        let sent: Arc<Sent> = Arc::default();
        let served = served(&sent);
        let mut frame = Vec::new();
        for id in 0..4 {
            let bytes = if id == 2 { MAX_JOINED_BYTES + 1 } else { 10 };
            served.put(&mut frame, id, bytes, |out| wire::put_written(out, id, &vec![1; bytes]));
        }
        served.send(&mut frame);
        let ids: Vec<Vec<u64>> =
            outcomes(&sent).iter().map(|frame| frame.iter().map(|(id, _)| *id).collect()).collect();
        assert_eq!(ids, [vec![2], vec![0, 1, 3]]);
    }

    #[test]
    fn requests_of_other_nodes_are_charged_and_only_long_ones_refused() {
        let account = Account::root("all requests", 1 << 20);
        let limits = RouteOptions::default().limits;
        let mut slots = Slots::new(&account);
        let short: Vec<u64> = (0..600).map(|id| slots.begin(id, 2_000, &limits).unwrap()).collect();
        assert!(account.used_bytes() >= 600 * 2_000, "more than the limit, and what is there counts");
        assert_eq!(slots.begin(600, 100_000, &limits), None);
        let ended = short.into_iter().map(|tag| slots.end(tag)).count();
        assert_eq!(ended, 600);
        assert_eq!(account.used_bytes(), 0);
        let long = slots.begin(601, 100_000, &limits).unwrap();
        assert_eq!(account.used_bytes(), 100_000);
        assert_eq!(slots.end(long), 601);
        assert_eq!(account.used_bytes(), 0);
    }
}
