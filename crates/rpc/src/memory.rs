//! Several nodes in one process, for tests: a [`Hub`] that carries frames between them; each pair and direction can be
//! cut.
//!
//! Frames go through one queue in the order in which they were sent. With [`Delivery::AtOnce`] the sending thread
//! delivers, as threaded nodes need; with [`Delivery::Stepped`] nothing is delivered until [`Hub::deliver`] or
//! [`Hub::deliver_one`] is called, so that a single-threaded test controls each step. No threads, clocks or sockets.
//!
//! Always true: a receiver is called by one thread at a time and never from within another call of it; the queue is
//! bounded.

use crate::{Lane, MAX_FRAME_BYTES, Receiver, SendError, Transport};
use ahash::{AHashMap, AHashSet};
use diorite_base::NodeId;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Which thread delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The sending thread, before it returns (or another one that is delivering already).
    AtOnce,
    /// The caller of [`Hub::deliver`].
    Stepped,
}

struct Frame {
    from: NodeId,
    to: NodeId,
    lane: Lane,
    body: Vec<u8>,
}

#[derive(Default)]
struct State {
    receivers: AHashMap<NodeId, Arc<dyn Receiver>>,
    cut: AHashSet<(NodeId, NodeId)>,
    waiting: VecDeque<Frame>,
    waiting_bytes: usize,
    delivering: bool,
}

/// A network within a process.
pub struct Hub {
    delivery: Delivery,
    state: Mutex<State>,
}

impl Hub {
    /// A hub without nodes.
    pub fn new(delivery: Delivery) -> Arc<Self> {
        Arc::new(Self { delivery, state: Mutex::default() })
    }

    /// The transport of `node`.
    pub fn transport(self: &Arc<Self>, node: NodeId) -> Arc<MemoryTransport> {
        Arc::new(MemoryTransport { hub: Arc::clone(self), node })
    }

    /// Frames for `node` go to `receiver` from now on.
    pub fn attach(&self, node: NodeId, receiver: Arc<dyn Receiver>) {
        self.state.lock().receivers.insert(node, receiver);
    }

    /// Removes `node`, as after a crash: frames that wait for it are lost.
    pub fn detach(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.receivers.remove(&node);
        state.lose(|frame| frame.to == node);
    }

    /// Cuts the connection from `from` to `to`, in this direction only; frames under way are lost.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        let mut state = self.state.lock();
        state.cut.insert((from, to));
        state.lose(|frame| (frame.from, frame.to) == (from, to));
    }

    /// Undoes [`Hub::cut`].
    pub fn heal(&self, from: NodeId, to: NodeId) {
        self.state.lock().cut.remove(&(from, to));
    }

    /// Cuts `node` off from all others, or reconnects it, in both directions.
    pub fn isolate(&self, node: NodeId, isolated: bool) {
        let others: Vec<NodeId> = self.state.lock().receivers.keys().copied().filter(|other| *other != node).collect();
        for other in others {
            for (from, to) in [(node, other), (other, node)] {
                if isolated { self.cut(from, to) } else { self.heal(from, to) }
            }
        }
    }

    /// Delivers until no frame waits; returns the number of delivered frames.
    pub fn deliver(&self) -> usize {
        let mut delivered = 0;
        while self.deliver_one() {
            delivered += 1;
        }
        delivered
    }

    /// Delivers the frame that has waited longest; returns whether there was one. Does nothing during another delivery.
    pub fn deliver_one(&self) -> bool {
        let mut state = self.state.lock();
        if state.delivering {
            return false;
        }
        let Some(frame) = state.waiting.pop_front() else { return false };
        state.waiting_bytes -= frame.body.len();
        let receiver = state.receivers.get(&frame.to).cloned();
        state.delivering = true;
        drop(state);
        if let Some(receiver) = receiver {
            receiver.receive(frame.from, frame.lane, &frame.body);
        }
        self.state.lock().delivering = false;
        true
    }

    /// The number of frames that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

impl State {
    fn lose(&mut self, lost: impl Fn(&Frame) -> bool) {
        self.waiting.retain(|frame| !lost(frame));
        self.waiting_bytes = self.waiting.iter().map(|frame| frame.body.len()).sum();
    }
}

/// The transport of one node of a [`Hub`].
pub struct MemoryTransport {
    hub: Arc<Hub>,
    node: NodeId,
}

impl Transport for MemoryTransport {
    fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError> {
        let mut state = self.hub.state.lock();
        if state.cut.contains(&(self.node, to)) || !state.receivers.contains_key(&to) {
            return Err(SendError::Down);
        }
        if state.waiting_bytes + frame.len() > MAX_FRAME_BYTES {
            return Err(SendError::Full);
        }
        state.waiting_bytes += frame.len();
        state.waiting.push_back(Frame { from: self.node, to, lane, body: frame.to_vec() });
        drop(state);
        if self.hub.delivery == Delivery::AtOnce {
            self.hub.deliver();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the frames that it receives; answers "ping" with "pong".
    struct Node {
        transport: Arc<MemoryTransport>,
        received: Mutex<Vec<(NodeId, Vec<u8>)>>,
    }

    impl Receiver for Node {
        fn receive(&self, from: NodeId, lane: Lane, frame: &[u8]) {
            self.received.lock().push((from, frame.to_vec()));
            if frame == b"ping" {
                self.transport.send(from, lane, b"pong").unwrap();
            }
        }
    }

    fn two(delivery: Delivery) -> (Arc<Hub>, [Arc<Node>; 2]) {
        let hub = Hub::new(delivery);
        let nodes = [NodeId(1), NodeId(2)].map(|id| {
            let node = Arc::new(Node { transport: hub.transport(id), received: Mutex::default() });
            hub.attach(id, Arc::clone(&node) as Arc<dyn Receiver>);
            node
        });
        (hub, nodes)
    }

    #[test]
    fn frames_arrive_at_once_and_are_answered() {
        let (_, [a, b]) = two(Delivery::AtOnce);
        a.transport.send(NodeId(2), Lane::Raft, b"ping").unwrap();
        assert_eq!(*b.received.lock(), [(NodeId(1), b"ping".to_vec())]);
        assert_eq!(*a.received.lock(), [(NodeId(2), b"pong".to_vec())]);
    }

    #[test]
    fn nothing_moves_before_the_step() {
        let (hub, [a, b]) = two(Delivery::Stepped);
        a.transport.send_many(NodeId(2), Lane::Raft, &[b"1", b"ping"]).unwrap();
        assert!(b.received.lock().is_empty());
        assert!(hub.deliver_one());
        assert_eq!(b.received.lock().len(), 1);
        assert_eq!(hub.deliver(), 2);
        assert_eq!(*a.received.lock(), [(NodeId(2), b"pong".to_vec())]);
        assert!(!hub.deliver_one());
    }

    #[test]
    fn a_cut_goes_one_way_and_loses_what_is_under_way() {
        let (hub, [a, b]) = two(Delivery::Stepped);
        a.transport.send(NodeId(2), Lane::Raft, b"lost").unwrap();
        hub.cut(NodeId(1), NodeId(2));
        assert_eq!(a.transport.send(NodeId(2), Lane::Raft, b"no"), Err(SendError::Down));
        b.transport.send(NodeId(1), Lane::Raft, b"yes").unwrap();
        assert_eq!(hub.deliver(), 1);
        assert_eq!(*a.received.lock(), [(NodeId(2), b"yes".to_vec())]);
        hub.heal(NodeId(1), NodeId(2));
        a.transport.send(NodeId(2), Lane::Raft, b"again").unwrap();
        hub.deliver();
        assert_eq!(*b.received.lock(), [(NodeId(1), b"again".to_vec())]);
        hub.isolate(NodeId(2), true);
        assert_eq!(b.transport.send(NodeId(1), Lane::Raft, b"no"), Err(SendError::Down));
        hub.isolate(NodeId(2), false);
        assert_eq!(b.transport.send(NodeId(1), Lane::Raft, b"yes"), Ok(()));
    }

    #[test]
    fn a_node_that_is_gone_receives_nothing_until_it_is_back() {
        let (hub, [a, b]) = two(Delivery::Stepped);
        a.transport.send(NodeId(2), Lane::Control, b"lost").unwrap();
        hub.detach(NodeId(2));
        assert_eq!(a.transport.send(NodeId(2), Lane::Control, b"no"), Err(SendError::Down));
        hub.attach(NodeId(2), Arc::clone(&b) as Arc<dyn Receiver>);
        assert_eq!(hub.deliver(), 0);
    }
}
