//! Heartbeats between nodes: which nodes are up, and the support from which leases are made.
//!
//! Left out: the bytes of their frames ([`super::wire`]).

use crate::peers::clocks::{CLOCK_LIMIT_US, ClockChange, ClockWatch, Offset};
use crate::peers::wire::Frame;
use diorite_base::bytes::Malformed;
use diorite_base::{Clock, NodeId};
use diorite_raft::{Epoch, HEARTBEAT_NS, Heartbeat, SupportChange, SupportTable, Supporter};
use diorite_rpc::{Lane, Transport};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The number that a node announces before it stops.
pub const LEAVING: u64 = u64::MAX;

/// Receives changes of other nodes.
pub trait PeerListener: Send + Sync + 'static {
    /// Heartbeats of the node have begun or ceased to arrive. Must not wait.
    fn changed(&self, node: NodeId, is_up: bool);
    /// The node has announced a number, see [`Liveness::announce`]. Must not wait.
    fn announced(&self, node: NodeId, number: u64);
}

/// This node's side of the heartbeats.
pub struct Liveness {
    table: Mutex<SupportTable>,
    peers: Mutex<Vec<NodeId>>,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
    announced: AtomicU64,
    support_received: AtomicU64,
    clock_watch: ClockWatch,
    /// Some log may hold stamps up to this, microseconds, as found when its tablet was opened or this node's clock was
    /// set back.
    stamped_us: AtomicI64,
    /// Counts changes of support between nodes.
    changes: AtomicU64,
    listener: OnceLock<Arc<dyn PeerListener>>,
}

impl Liveness {
    /// A node that starts now, with an incarnation that none of its former lives had.
    pub fn new(incarnation: u64, clock: Arc<dyn Clock>, transport: Arc<dyn Transport>) -> Self {
        let table = Mutex::new(SupportTable::new(incarnation, clock.monotonic_ns()));
        Self {
            table,
            peers: Mutex::default(),
            clock,
            transport,
            announced: AtomicU64::new(0),
            support_received: AtomicU64::new(0),
            clock_watch: ClockWatch::default(),
            stamped_us: AtomicI64::new(i64::MIN),
            changes: AtomicU64::new(0),
            listener: OnceLock::new(),
        }
    }

    /// Sets the other nodes, to which heartbeats are sent.
    pub fn set_peers(&self, peers: Vec<NodeId>) {
        *self.peers.lock() = peers;
    }

    /// Sets the listener. Once.
    pub fn set_listener(&self, listener: Arc<dyn PeerListener>) {
        if self.listener.set(listener).is_err() {
            tracing::error!("changes of nodes have a listener already");
        }
    }

    /// Announces a number to every node, at once and with every heartbeat. Numbers only grow: a lesser one changes
    /// nothing.
    pub fn announce(&self, number: u64) {
        self.announced.fetch_max(number, Ordering::AcqRel);
        self.send_heartbeats(self.clock.monotonic_ns());
    }

    /// Sends heartbeats and withdraws support that has lapsed; to be called every [`HEARTBEAT_NS`], and when [`Self::next_lapse_ns`] says.
    pub fn beat(&self) -> Vec<SupportChange> {
        let now_ns = self.clock.monotonic_ns();
        self.send_heartbeats(now_ns);
        self.expire()
    }

    /// Withdraws support that has lapsed.
    pub fn expire(&self) -> Vec<SupportChange> {
        let now_ns = self.clock.monotonic_ns();
        let ((), changes) = self.change(|table| ((), table.expire(now_ns)));
        self.tell(&changes);
        changes
    }

    /// A life of a node has certainly ended: its support is withdrawn without waiting for it to lapse.
    pub fn ended(&self, node: NodeId, incarnation: u64) -> Vec<SupportChange> {
        let ((), changes) = self.change(|table| ((), table.ended(node.0, incarnation).into_iter().collect()));
        self.tell(&changes);
        changes
    }

    /// When [`Self::expire`] has work next; `None` while no node is supported.
    pub fn next_lapse_ns(&self) -> Option<u64> {
        self.table.lock().next_lapse_ns()
    }

    fn send_heartbeats(&self, now_ns: u64) {
        let announced = self.announced.load(Ordering::Acquire);
        for peer in self.peers.lock().iter() {
            let beat = self.table.lock().beat(peer.0, now_ns);
            // A node that cannot be reached receives the next heartbeat.
            let _ = self.transport.send(*peer, Lane::Control, &Frame::Beat { beat, announced }.encode());
        }
    }

    /// Takes a frame of the control lane.
    pub fn receive(&self, from: NodeId, frame: &[u8]) -> Vec<SupportChange> {
        match self.take(from, frame) {
            Ok(changes) => {
                self.tell(&changes);
                changes
            }
            Err(Malformed) => {
                tracing::warn!(%from, "a malformed frame on the control lane");
                Vec::new()
            }
        }
    }

    fn take(&self, from: NodeId, frame: &[u8]) -> Result<Vec<SupportChange>, Malformed> {
        match Frame::decode(frame)? {
            Frame::Beat { beat, announced } => {
                // Read after the frame arrived: a pause before this point only lengthens this node's promise.
                let now_ns = self.clock.monotonic_ns();
                let (support, changes) = self.change(|table| table.on_heartbeat(from.0, beat, now_ns));
                if let Some(support) = support {
                    // The machine's clock, adopted or not.
                    let wall_us = self.clock.wall_us().saturating_add(self.clock.step_us());
                    let answer = Frame::Support { support, wall_us: Some(wall_us) };
                    // If it is lost, the next answer replaces it.
                    let _ = self.transport.send(from, Lane::Control, &answer.encode());
                }
                if let Some(listener) = self.listener.get() {
                    listener.announced(from, announced);
                }
                Ok(changes)
            }
            Frame::Support { support, wall_us } => {
                self.support_received.fetch_add(1, Ordering::Relaxed);
                let agrees_again = wall_us.is_some_and(|wall_us| self.compare_clocks(from, support.heartbeat, wall_us));
                let ((), mut changes) =
                    self.change(|table| ((), table.supported(from.0, support).into_iter().collect()));
                // Tablets that prefer that node are visited again: leadership was not transferred to it meanwhile.
                changes.extend(agrees_again.then_some(SupportChange::Received(from.0)));
                Ok(changes)
            }
        }
    }

    /// A peer's wall clock read `wall_us` between the sending of this heartbeat and now. Returns whether it was apart
    /// from this node's and no longer is.
    fn compare_clocks(&self, from: NodeId, heartbeat: Heartbeat, wall_us: i64) -> bool {
        let (now_ns, now_us) = (self.clock.monotonic_ns(), self.clock.wall_us());
        if heartbeat.incarnation != self.table.lock().incarnation() || heartbeat.sent_ns > now_ns {
            return false;
        }
        let took_us = ((now_ns - heartbeat.sent_ns) / 1_000) as i64;
        let offset = Offset::measured(wall_us, now_us, took_us);
        self.clock_watch.note_offset(from.0, now_ns, offset, self.clock.step_us())
    }

    /// Checks whether the machine's wall clock was set, and compares it with the others'; to be called every
    /// [`HEARTBEAT_NS`]. Returns whether this node's clock is off, if that has changed: then it may not lead, or may
    /// again.
    pub fn look_at_clock(&self) -> Option<bool> {
        let now_ns = self.clock.monotonic_ns();
        let ClockChange { was_set_by_us, adopt, is_off } = self.clock_watch.look(now_ns, self.clock.step_us());
        if let Some(by_us) = was_set_by_us {
            // A machine that was paused together with its clocks is set right afterwards: support may be older than it
            // seems.
            self.change(|table| (table.void_received(now_ns), Vec::new()));
            tracing::warn!(
                event = "clock",
                by_ms = by_us / 1_000,
                believed = adopt,
                "the machine's wall clock was set; leases of this node are renewed"
            );
        }
        if adopt {
            // Stamps given until now may be ahead of the newly adopted clock.
            self.note_stamped(self.clock.wall_us());
            self.clock.adopt();
        }
        match (is_off, self.clock_watch.off_us()) {
            (Some(true), others_ahead_us) => {
                let others_ahead_ms = others_ahead_us.unwrap_or(0) / 1_000;
                tracing::error!(
                    event = "clock",
                    others_ahead_ms,
                    limit_ms = CLOCK_LIMIT_US / 1_000,
                    "the clock of this node is off, by what the others say: it leads nothing until it is set right"
                );
            }
            (Some(false), _) => {
                tracing::info!(event = "clock", "the clock of this node agrees with the others' again: it may lead")
            }
            (None, _) => {}
        }
        is_off
    }

    /// How far the others' clocks are ahead, microseconds, if this node's is off, so that it leads nothing.
    pub fn clock_is_off_us(&self) -> Option<i64> {
        self.clock_watch.off_us()
    }

    /// Records that a log may hold stamps up to this, microseconds.
    pub(crate) fn note_stamped(&self, stamp_us: i64) {
        self.stamped_us.fetch_max(stamp_us, Ordering::Relaxed);
    }

    /// How far logs of tablets here are ahead of the clock, microseconds, if that is more than twice the limit between
    /// clocks: the clock was wrong when they were written, or is wrong now.
    pub fn logs_ahead_us(&self) -> Option<i64> {
        let ahead_us = self.stamped_us.load(Ordering::Relaxed).saturating_sub(self.clock.wall_us());
        (ahead_us > 2 * CLOCK_LIMIT_US).then_some(ahead_us)
    }

    /// How often the machine's wall clock was set by more than the limit since the start.
    pub fn clock_steps(&self) -> u64 {
        self.clock_watch.steps()
    }

    /// The median of how far the other nodes' clocks are ahead of this one's, microseconds; `None` if none can be
    /// asked.
    pub fn clocks_ahead_us(&self) -> Option<i64> {
        self.clock_watch.ahead_us(self.clock.monotonic_ns())
    }

    /// Whether another node's clock certainly differs from this one's by more than the limit: that node should lead
    /// nothing.
    pub(crate) fn is_clock_apart(&self, node: NodeId) -> bool {
        self.clock_watch.is_apart(node.0, self.clock.step_us())
    }

    /// Changes the table, and counts the change before it can be seen.
    fn change<T>(&self, change: impl FnOnce(&mut SupportTable) -> (T, Vec<SupportChange>)) -> (T, Vec<SupportChange>) {
        let mut table = self.table.lock();
        let (outcome, changes) = change(&mut table);
        if !changes.is_empty() {
            self.changes.fetch_add(1, Ordering::Release);
        }
        (outcome, changes)
    }

    fn tell(&self, changes: &[SupportChange]) {
        let Some(listener) = self.listener.get() else { return };
        for change in changes {
            match change {
                SupportChange::Given(node) => listener.changed(NodeId(*node), true),
                SupportChange::Withdrawn(node) => listener.changed(NodeId(*node), false),
                SupportChange::Received(_) => {}
            }
        }
    }

    /// Heartbeats that others have answered with their support.
    pub fn support_received(&self) -> u64 {
        self.support_received.load(Ordering::Relaxed)
    }

    /// Whether heartbeats of the node have arrived recently.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.given_epoch(node.0).is_some()
    }

    /// The time since the last heartbeat of the node, nanoseconds; `None` if none has arrived.
    pub fn silence_ns(&self, node: NodeId) -> Option<u64> {
        let received_ns = self.table.lock().last_heartbeat_ns(node.0)?;
        Some(self.clock.monotonic_ns().saturating_sub(received_ns))
    }

    pub(crate) fn given_epoch(&self, node: u64) -> Option<Epoch> {
        self.table.lock().given_epoch(node)
    }

    pub(crate) fn may_vote(&self) -> bool {
        self.table.lock().may_vote(self.clock.monotonic_ns())
    }

    /// The time between heartbeats, nanoseconds.
    pub const PERIOD_NS: u64 = HEARTBEAT_NS;
}

/// A copy of [`Liveness`]'s support for one thread, which needs it with every message. The shared table is read only
/// after it has changed, so that every answer equals the table's at that moment.
pub(crate) struct SupportView {
    liveness: Arc<Liveness>,
    seen: RefCell<Seen>,
}

/// The table as of one number of changes.
#[derive(Default)]
struct Seen {
    changes: Option<u64>,
    given: Vec<(u64, Epoch)>,
    received: Vec<(u64, Arc<Supporter>)>,
}

impl SupportView {
    pub(crate) fn new(liveness: Arc<Liveness>) -> Self {
        Self { liveness, seen: RefCell::default() }
    }

    /// The number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.liveness.changes.load(Ordering::Acquire)
    }

    fn look<T>(&self, at: impl FnOnce(&Seen) -> T) -> T {
        let mut seen = self.seen.borrow_mut();
        if seen.changes != Some(self.changes()) {
            let table = self.liveness.table.lock();
            seen.changes = Some(self.changes());
            seen.given = table.given_epochs().collect();
            seen.received = table.supporters().map(|(node, supporter)| (node, Arc::clone(supporter))).collect();
        }
        at(&seen)
    }

    /// The epoch under which this node supports `node` now.
    pub(crate) fn given_epoch(&self, node: u64) -> Option<Epoch> {
        self.look(|seen| seen.given.iter().find(|(other, _)| *other == node).map(|(_, epoch)| *epoch))
    }

    /// Whether heartbeats of the node have arrived recently.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.given_epoch(node.0).is_some()
    }

    /// The support of `node` in `epoch`, if that is its current one.
    pub(crate) fn supporter(&self, node: u64, epoch: Epoch) -> Option<Arc<Supporter>> {
        self.look(|seen| seen.supporter(node, epoch).cloned())
    }

    /// Whether `node` supports this one in `epoch`.
    pub(crate) fn is_supporter(&self, node: u64, epoch: Epoch) -> bool {
        self.look(|seen| seen.supporter(node, epoch).is_some())
    }
}

impl Seen {
    fn supporter(&self, node: u64, epoch: Epoch) -> Option<&Arc<Supporter>> {
        let found = self.received.iter().find(|(other, _)| *other == node);
        found.map(|(_, supporter)| supporter).filter(|supporter| supporter.epoch() == epoch)
    }
}
