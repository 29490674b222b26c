//! The network between nodes: one connection per pair, direction and lane, as in production, with its faults.
//!
//! Always true: as long as a connection lives, its frames arrive in the order in which they were sent, each once. When
//! it is cut, frames under way are lost, or arrive late, after frames of the next connection: TCP allows no other
//! reordering. Frames of different lanes overtake one another freely.

use crate::clock::TrueTime;
use crate::dice::Dice;
use diorite_base::NodeId;
use diorite_rpc::{Lane, SendError, Transport};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const US: u64 = 1_000;

/// The most frames that wait for a partition to end on one connection.
const STALLED_FRAMES: usize = 10_000;

/// A one-way connection.
pub type Link = (NodeId, NodeId, Lane);

/// A frame under way.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Its connection.
    pub link: Link,
    /// The number of the connection in the sequence of connections of its lane.
    generation: u64,
    /// The number of the sender's process.
    life: u64,
    /// The bytes.
    pub frame: Vec<u8>,
}

/// How the network behaves when nothing in particular goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Frames usually take up to this long, microseconds.
    pub usual_us: u64,
    /// In this many of 1,000 cases they take up to `slow_us`.
    pub slow_permille: u64,
    /// See `slow_permille`; microseconds.
    pub slow_us: u64,
    /// In this many of 100,000 cases the connection breaks when a frame is sent.
    pub breaks: u64,
}

#[derive(Default)]
struct Connection {
    generation: u64,
    /// Frames of earlier connections than this are lost.
    oldest_alive: u64,
    /// The sender knows that it is not connected until then.
    down_until_ns: u64,
    last_arrival_ns: u64,
    /// Frames that arrived at a partition.
    stalled: Vec<Parcel>,
    /// The last of them that the receiver has processed.
    opened: Option<u64>,
}

struct State {
    weather: Weather,
    dice: Dice,
    connections: BTreeMap<Link, Connection>,
    /// Directed pairs between which nothing passes.
    blocked: BTreeSet<(NodeId, NodeId)>,
    /// Whether frames that meet a partition wait for its end, like those of a TCP connection that survives it.
    blocks_stall: bool,
    under_way: Vec<(u64, Parcel)>,
    /// How many processes of each node have ended.
    ended: BTreeMap<NodeId, u64>,
    /// Of each pair, the newest process of the first that the second has received something from.
    newest: BTreeMap<(NodeId, NodeId), u64>,
}

/// The network of one cluster. Clones share it.
#[derive(Clone)]
pub struct Network {
    time: TrueTime,
    state: Arc<Mutex<State>>,
}

impl Network {
    /// A network without a fault beyond its weather.
    pub fn new(time: TrueTime, weather: Weather, dice: Dice) -> Self {
        let state = State {
            weather,
            dice,
            connections: BTreeMap::new(),
            blocked: BTreeSet::new(),
            blocks_stall: false,
            under_way: Vec::new(),
            ended: BTreeMap::new(),
            newest: BTreeMap::new(),
        };
        Self { time, state: Arc::new(Mutex::new(state)) }
    }

    /// The end of `node`.
    pub fn port(&self, node: NodeId) -> Arc<Port> {
        Arc::new(Port { node, network: self.clone(), departs_ns: AtomicU64::new(0) })
    }

    /// The frames that were sent since the last call, each with its time of arrival.
    pub fn take_under_way(&self) -> Vec<(u64, Parcel)> {
        std::mem::take(&mut self.state.lock().under_way)
    }

    /// The frame arrives. `None` if it is lost or delayed on the way.
    pub fn arrive(&self, parcel: Parcel) -> Option<Parcel> {
        let state = &mut *self.state.lock();
        let connection = state.connections.entry(parcel.link).or_default();
        if parcel.generation < connection.oldest_alive {
            return None;
        }
        let pair = (parcel.link.0, parcel.link.1);
        if !state.blocked.contains(&pair) {
            // A node that accepts a process closes the connections of the former one.
            let newest = state.newest.entry(pair).or_default();
            *newest = parcel.life.max(*newest);
            return Some(parcel).filter(|parcel| parcel.life == *newest);
        }
        if state.blocks_stall && connection.stalled.len() < STALLED_FRAMES {
            connection.stalled.push(parcel);
        } else {
            connection.cut(true);
        }
        None
    }

    /// Whether a parcel is the first of its connection, so that the receiver has to admit the sender.
    pub fn is_new(&self, parcel: &Parcel) -> bool {
        let state = &mut *self.state.lock();
        let connection = state.connections.entry(parcel.link).or_default();
        let is_new = connection.opened != Some(parcel.generation);
        connection.opened = Some(parcel.generation);
        is_new
    }

    /// A node has nothing to do with another any more: their connections end.
    pub fn part_from(&self, one: NodeId, other: NodeId) {
        let state = &mut *self.state.lock();
        for (link, connection) in &mut state.connections {
            if (link.0, link.1) == (one, other) || (link.0, link.1) == (other, one) {
                connection.cut(true);
            }
        }
    }

    /// Whether nothing passes from one node to another now.
    pub fn is_blocked(&self, from: NodeId, to: NodeId) -> bool {
        self.state.lock().blocked.contains(&(from, to))
    }

    /// Parts the network between these directed pairs, instead of where it was parted before.
    pub fn block(&self, pairs: impl IntoIterator<Item = (NodeId, NodeId)>, stall: bool) {
        self.heal();
        let mut state = self.state.lock();
        state.blocked = pairs.into_iter().collect();
        state.blocks_stall = stall;
    }

    /// Ends the partition; the frames that it delayed arrive now.
    pub fn heal(&self) {
        let now_ns = self.time.now_ns();
        let state = &mut *self.state.lock();
        state.blocked.clear();
        for connection in state.connections.values_mut() {
            state.under_way.extend(connection.stalled.drain(..).map(|parcel| (now_ns, parcel)));
            connection.last_arrival_ns = connection.last_arrival_ns.max(now_ns);
        }
    }

    /// Cuts all connections between two nodes, in both directions.
    pub fn cut(&self, one: NodeId, other: NodeId) {
        let state = &mut *self.state.lock();
        for (link, connection) in &mut state.connections {
            if (link.0, link.1) == (one, other) || (link.0, link.1) == (other, one) {
                connection.cut(state.dice.chance(700));
                connection.down_until_ns = self.time.now_ns() + state.dice.milliseconds(0, 300);
            }
        }
    }

    /// The process of `node` has ended: frames on their way to it are lost, frames that it has sent still arrive.
    pub fn end(&self, node: NodeId) {
        let state = &mut *self.state.lock();
        *state.ended.entry(node).or_default() += 1;
        for (link, connection) in &mut state.connections {
            if link.1 == node {
                connection.cut(true);
            } else if link.0 == node {
                connection.cut(false);
                connection.down_until_ns = 0;
            }
        }
    }

    /// Ends all faults of the network.
    pub fn set_weather(&self, weather: Weather) {
        self.heal();
        self.state.lock().weather = weather;
    }

    fn send(&self, link: Link, departs_ns: u64, frame: &[u8]) -> Result<(), SendError> {
        let state = &mut *self.state.lock();
        let connection = state.connections.entry(link).or_default();
        if connection.down_until_ns > departs_ns {
            return Err(SendError::Down);
        }
        let (weather, dice) = (state.weather, &mut state.dice);
        if weather.breaks > 0 && dice.range(0, 100_000) < weather.breaks {
            connection.cut(dice.chance(700));
            if dice.chance(500) {
                connection.down_until_ns = departs_ns + dice.milliseconds(1, 200);
            }
            // The sender finds out with the next frame.
            return Ok(());
        }
        let longest_us = if dice.chance(weather.slow_permille) { weather.slow_us } else { weather.usual_us };
        let arrives_ns = departs_ns + dice.range(20, longest_us.max(21)) * US;
        connection.last_arrival_ns = connection.last_arrival_ns.max(arrives_ns);
        let life = state.ended.get(&link.0).copied().unwrap_or(0);
        let parcel = Parcel { link, generation: connection.generation, life, frame: frame.to_vec() };
        state.under_way.push((connection.last_arrival_ns, parcel));
        Ok(())
    }
}

impl Connection {
    fn cut(&mut self, lose_what_is_under_way: bool) {
        self.generation += 1;
        if lose_what_is_under_way {
            self.oldest_alive = self.generation;
            self.stalled.clear();
        } else {
            // The next connection's frames may arrive before.
            self.last_arrival_ns = 0;
        }
    }
}

/// One node's end of the network.
pub struct Port {
    node: NodeId,
    network: Network,
    /// Frames of the core do not leave before this time.
    departs_ns: AtomicU64,
}

impl Port {
    /// Frames of the core do not leave before this true time: its thread waits for the disk until then. Heartbeats have
    /// a thread of their own.
    pub fn hold_until(&self, departs_ns: u64) {
        self.departs_ns.store(departs_ns, Ordering::Relaxed);
    }
}

impl Transport for Port {
    fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError> {
        let held_ns = if lane == Lane::Raft { self.departs_ns.load(Ordering::Relaxed) } else { 0 };
        let departs_ns = self.network.time.now_ns().max(held_ns);
        self.network.send((self.node, to, lane), departs_ns, frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::EventQueue;

    const WITHOUT_FAULTS: Weather = Weather { usual_us: 500, slow_permille: 0, slow_us: 0, breaks: 0 };
    const ONE: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);

    fn network(weather: Weather) -> (TrueTime, Network) {
        let time = TrueTime::default();
        (time.clone(), Network::new(time, weather, Dice::new(1, 1)))
    }

    fn arrivals(network: &Network) -> Vec<u8> {
        let mut under_way = network.take_under_way();
        under_way.sort_by_key(|(at_ns, _)| *at_ns);
        under_way.into_iter().filter_map(|(_, parcel)| network.arrive(parcel)).map(|parcel| parcel.frame[0]).collect()
    }

    #[test]
    fn a_lane_is_first_in_first_out_while_its_connection_lives() {
        let (_, network) = network(Weather { slow_permille: 300, slow_us: 100_000, ..WITHOUT_FAULTS });
        let port = network.port(ONE);
        for n in 0..100 {
            port.send(TWO, Lane::Raft, &[n]).expect("connected");
        }
        assert_eq!(arrivals(&network), (0..100).collect::<Vec<u8>>());
    }

    #[test]
    fn a_connection_that_breaks_loses_what_is_under_way_or_lets_it_arrive_late_but_never_twice() {
        let (time, network) =
            network(Weather { breaks: 10_000, slow_permille: 300, slow_us: 100_000, ..WITHOUT_FAULTS });
        let port = network.port(ONE);
        let (mut sent, mut found) = (0, Vec::new());
        let mut queue = EventQueue::default();
        for n in 0..=255 {
            sent += usize::from(port.send(TWO, Lane::Raft, &[n]).is_ok());
            network.take_under_way().into_iter().for_each(|(at_ns, parcel)| queue.schedule(at_ns, parcel));
            while let Some((at_ns, parcel)) = queue.next() {
                if at_ns > time.now_ns() + 10_000_000 {
                    queue.schedule(at_ns, parcel);
                    break;
                }
                found.extend(network.arrive(parcel).map(|parcel| parcel.frame[0]));
            }
            time.advance_to(time.now_ns() + 10_000_000);
        }
        assert!((100..sent).contains(&found.len()), "{} of {sent}", found.len());
        assert!(!found.is_sorted(), "some are late");
        let before = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), before, "none twice");
    }

    #[test]
    fn a_one_way_partition_holds_up_or_loses_one_direction() {
        for stall in [true, false] {
            let (_, network) = network(WITHOUT_FAULTS);
            let (one, two) = (network.port(ONE), network.port(TWO));
            network.block([(ONE, TWO)], stall);
            one.send(TWO, Lane::Raft, &[1]).expect("the sender does not know");
            two.send(ONE, Lane::Raft, &[2]).expect("not parted");
            assert_eq!(arrivals(&network), [2]);
            network.heal();
            assert_eq!(arrivals(&network), if stall { vec![1] } else { vec![] });
        }
    }

    #[test]
    fn what_a_dead_process_has_sent_arrives_and_what_was_sent_to_it_does_not() {
        let (_, network) = network(WITHOUT_FAULTS);
        network.port(ONE).send(TWO, Lane::Control, &[1]).expect("connected");
        network.port(TWO).send(ONE, Lane::Control, &[2]).expect("connected");
        network.end(ONE);
        assert_eq!(arrivals(&network), [1]);
    }
}
