//! The ledger of one pass: what nodes hold, receive and send once all actions decided so far are carried out.
//!
//! Always true: loads count the replicas that tablets are to have (`replicas`), never those that are leaving; each
//! action changes the loads at once, so that the next one sees it. A tablet gets at most one action per pass, so the
//! view's own lists stay valid for every tablet that a rule may still change. A rule asks here whether a copy may start
//! ([`Ledger::pick`], [`Ledger::sources`]) and records its action ([`Ledger::place`], [`Ledger::lead`]).

use super::holdings::{Node, Pipe, Scope, Standing, Table, Tablet, Zone};
use super::names::{Names, new_node, new_zones};
use super::ranking::{Entry, Measure, Ranking};
use super::view::{Action, NodeState, Reason, Stalled, TabletView, View};
use crate::catalog::Replication;
use diorite_base::NodeId;

/// The bytes that a replica counts for in addition to its own, so that empty tablets are spread too, and small ones are
/// not moved for a few bytes.
pub(super) const BYTES_PER_REPLICA: u64 = 16 << 20;

/// The weights of the three parts of the sum over nodes: squared bytes, squared count, and squared bytes per table. A
/// table of which one node has two average tablets more than another is evened out although that makes bytes uneven by
/// as much: the sweep by bytes then exchanges another table's tablet for it. Counts weigh little, so that tablets of
/// unequal size end up even by bytes.
const BYTES_WEIGHT: f64 = 1.0;

const COUNT_WEIGHT: f64 = 0.1;

const TABLE_WEIGHT: f64 = 1.5;

/// How many of a zone's least loaded nodes are compared for a replica.
pub(super) const CANDIDATES: usize = 4;

/// Whether copies are held to the limits, or all wanted copies are started at once, to count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    Limited,
    AllAtOnce,
}

/// The requirements for a node.
pub(super) struct Wish<'n> {
    /// It is none of these.
    pub taken: &'n [u32],
    /// The replicas that stay, which decide between zones.
    pub staying: &'n [u32],
    pub scope: Scope,
    /// The most of `staying` that may be in the node's zone.
    pub most_in_zone: u32,
}

/// The result of a search for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// This one.
    Node(u32),
    /// There is a node, but it is busy.
    Wait,
    /// All possible nodes have a replica already.
    TooFewNodes,
    /// None of the possible nodes has space.
    NoRoom,
}

/// See the top of this module.
pub(super) struct Ledger<'a> {
    pub view: &'a View,
    pub nodes: Vec<Node>,
    pub zones: Vec<Zone>,
    pub tablets: Vec<Tablet<'a>>,
    pub tables: Vec<Table>,
    pub ranking: Ranking,
    /// The average load of the nodes that accept replicas: equal by bytes and by count, as both are in average
    /// replicas.
    pub mean_load: f64,
    pub actions: Vec<Action>,
    pub stalled: Vec<Stalled>,
    copies: Copies,
    data_centers: Vec<&'a str>,
    members: Vec<u32>,
    mean_size: f64,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(view: &'a View, copies: Copies) -> Self {
        let mut names = Names::new(view);
        let nodes: Vec<Node> = names.nodes.iter().map(|node| new_node(node, &names)).collect();
        let zones = new_zones(view, &names, &nodes);
        let sizes = view.tablets.iter().map(|tablet| {
            let replicas = tablet.replicas.len() as f64;
            (replicas * effective_bytes(tablet), replicas)
        });
        let (bytes, replicas) = sizes.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut ledger = Self {
            view,
            ranking: Ranking::new(zones.len(), nodes.len()),
            nodes,
            zones,
            tablets: Vec::with_capacity(view.tablets.len()),
            tables: std::iter::repeat_with(Table::default).take(names.tables.len()).collect(),
            mean_load: 0.0,
            actions: Vec::new(),
            stalled: Vec::new(),
            copies,
            data_centers: std::mem::take(&mut names.data_centers),
            members: Vec::with_capacity(view.tablets.len() * 3),
            mean_size: if replicas > 0.0 { bytes / replicas } else { 1.0 },
        };
        ledger.enter_tablets(&names);
        let accepting = || ledger.nodes.iter().filter(|node| node.accepts);
        let weight: f64 = accepting().map(|node| node.weight).sum();
        let load: f64 = accepting().map(|node| node.bytes).sum();
        ledger.mean_load = if weight > 0.0 { load / weight } else { 0.0 };
        (0..ledger.nodes.len() as u32).for_each(|node| ledger.rank(node));
        ledger
    }

    fn enter_tablets(&mut self, names: &Names<'a>) {
        let mut tablets: Vec<&TabletView> = self.view.tablets.iter().collect();
        tablets.sort_by_key(|tablet| tablet.id);
        for (at, tablet) in tablets.into_iter().enumerate() {
            let (first, count) = (self.members.len() as u32, tablet.replicas.len() as u32);
            let table = names.tables.binary_search(&tablet.table).expect("tables come from the tablets") as u32;
            let size = effective_bytes(tablet) / self.mean_size;
            self.tables[table as usize].tablets.push(at as u32);
            for (rank, replica) in tablet.replicas.iter().enumerate() {
                let node = names.node(*replica);
                self.members.push(node);
                self.nodes[node as usize].tablets.push(at as u32);
                self.add_load(node, table, size, 1);
                if rank == 0 {
                    self.add_leader(node, table, 1);
                }
            }
            self.tablets.push(Tablet { view: tablet, table, size, is_done: tablet.is_reshaping, first, count });
            self.enter_arrivals(at as u32);
        }
    }

    /// Enters copies under way at both ends. If the sender is not known, it is guessed in the way in which one is
    /// chosen for a new copy.
    fn enter_arrivals(&mut self, tablet: u32) {
        let view = self.tablets[tablet as usize].view;
        for arrival in &view.arriving {
            let Some(to) = self.node_index(arrival.node) else { continue };
            self.nodes[to as usize].pipes.receiving.add(arrival.bytes_left);
            self.nodes[to as usize].reserve(arrival.bytes_left);
            let from = arrival.from.and_then(|from| self.node_index(from));
            if let Some(from) = from.or_else(|| self.quietest_voter(tablet, &[])) {
                self.nodes[from as usize].pipes.sending.add(arrival.bytes_left);
            }
        }
    }

    /// The nodes of the tablet's replicas, the preferred leader first.
    pub(super) fn replicas(&self, tablet: u32) -> &[u32] {
        let Tablet { first, count, .. } = self.tablets[tablet as usize];
        &self.members[first as usize..(first + count) as usize]
    }

    pub(super) fn node_index(&self, id: NodeId) -> Option<u32> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok().map(|at| at as u32)
    }

    /// The state of the replica on `node`.
    pub(super) fn standing(&self, tablet: u32, node: u32) -> Standing {
        let (tablet, node) = (self.tablets[tablet as usize].view, &self.nodes[node as usize]);
        let disk = if tablet.disks.is_empty() { None } else { tablet.disk_on(node.id) };
        if disk.is_some_and(|disk| node.disks.failed.get(disk).copied().unwrap_or(false)) {
            return Standing::Lost;
        }
        match node.state {
            NodeState::Live => Standing::Live,
            NodeState::Draining => Standing::Draining,
            NodeState::Suspect => Standing::Suspect,
            NodeState::Dead => Standing::Lost,
        }
    }

    /// Whether the tablet may be changed for balance: nothing is under way, every replica answers, and it has no action
    /// yet.
    pub(super) fn may_change(&self, tablet: u32) -> bool {
        let state = &self.tablets[tablet as usize];
        !state.is_done
            && !state.view.is_changing()
            && self
                .replicas(tablet)
                .iter()
                .all(|node| matches!(self.standing(tablet, *node), Standing::Live | Standing::Draining))
    }

    /// As [`Self::may_change`], and no replica is on a draining node, as its next place is not known yet.
    pub(super) fn is_at_rest(&self, tablet: u32) -> bool {
        self.may_change(tablet)
            && self.replicas(tablet).iter().all(|node| self.standing(tablet, *node) == Standing::Live)
    }

    /// Whether a voter could lead: its node answers, stays, and has the data.
    pub(super) fn can_lead(&self, tablet: u32, node: u32) -> bool {
        self.standing(tablet, node) == Standing::Live
            && self.nodes[node as usize].may_lead
            && !self.tablets[tablet as usize].view.is_arriving(self.nodes[node as usize].id)
    }

    /// Voters that answer, and all voters.
    pub(super) fn voters(&self, tablet: u32) -> (u32, u32) {
        let view = self.tablets[tablet as usize].view;
        view.voters().fold((0, 0), |(live, all), voter| {
            let answers = self
                .node_index(voter)
                .is_some_and(|node| matches!(self.standing(tablet, node), Standing::Live | Standing::Draining));
            (live + u32::from(answers), all + 1)
        })
    }

    /// The parts of a tablet's replication: number of replicas, and nodes.
    pub(super) fn scopes(&self, tablet: u32) -> Vec<(Scope, u32)> {
        match &*self.tablets[tablet as usize].view.wanted {
            Replication::Anywhere(wanted) => vec![(Scope::Anywhere, *wanted)],
            Replication::PerDataCenter(wanted) => {
                wanted.iter().map(|(name, wanted)| (self.scope_of(name), *wanted)).collect()
            }
        }
    }

    fn scope_of(&self, data_center: &str) -> Scope {
        let found = self.data_centers.binary_search(&data_center);
        found.map_or(Scope::Nowhere, |at| Scope::DataCenter(at as u32))
    }

    /// The part of the replication that a moving replica on `node` belongs to.
    pub(super) fn scope_at(&self, tablet: u32, node: u32) -> Scope {
        match &*self.tablets[tablet as usize].view.wanted {
            Replication::Anywhere(_) => Scope::Anywhere,
            Replication::PerDataCenter(_) => Scope::DataCenter(self.zone_of(node).data_center),
        }
    }

    pub(super) fn zone_of(&self, node: u32) -> &Zone {
        &self.zones[self.nodes[node as usize].zone as usize]
    }

    pub(super) fn is_in_scope(&self, zone: u32, scope: Scope) -> bool {
        match scope {
            Scope::Anywhere => true,
            Scope::DataCenter(wanted) => self.zones[zone as usize].data_center == wanted,
            Scope::Nowhere => false,
        }
    }

    /// How many of `nodes` are in the zone.
    pub(super) fn count_in_zone(&self, nodes: &[u32], zone: u32) -> u32 {
        nodes.iter().filter(|node| self.nodes[**node as usize].zone == zone).count() as u32
    }

    /// Whether a node has space for the tablet within its soft limits.
    pub(super) fn has_room(&self, tablet: u32, node: u32) -> bool {
        self.nodes[node as usize].has_room(self.tablets[tablet as usize].view.bytes)
    }

    /// Finds a node for one more replica: in the zone with the fewest of the `staying` replicas, at most `most_in_zone`
    /// of them; there the least loaded; never one of `taken`. A better zone that is busy is waited for, one that is
    /// full is not.
    pub(super) fn pick(&self, tablet: u32, wish: &Wish<'_>) -> Pick {
        let Wish { taken, staying, scope, most_in_zone } = *wish;
        let in_scope = (0..self.zones.len() as u32)
            .filter(|zone| self.zones[*zone as usize].accepting > 0 && self.is_in_scope(*zone, scope));
        let mut zones: Vec<(u32, u32)> = in_scope
            .map(|zone| (self.count_in_zone(staying, zone), zone))
            .filter(|(count, _)| *count <= most_in_zone)
            .collect();
        zones.sort_unstable();
        let mut outcome = Pick::TooFewNodes;
        for group in zones.chunk_by(|a, b| a.0 == b.0) {
            let free = |node: &u32| !taken.contains(node) && self.has_room(tablet, *node);
            let open = group.iter().flat_map(|(_, zone)| {
                self.ranking.open(*zone, Measure::Bytes).map(|(_, node)| node).filter(free).take(CANDIDATES)
            });
            let best = open.min_by(|a, b| self.cost(tablet, *a).total_cmp(&self.cost(tablet, *b)).then(a.cmp(b)));
            if let Some(node) = best {
                return Pick::Node(node);
            }
            let mut able = group.iter().flat_map(|(_, zone)| self.ranking.accepting(*zone, Measure::Bytes));
            if able.clone().any(|(_, node)| free(&node)) {
                return Pick::Wait;
            }
            if able.any(|(_, node)| !taken.contains(&node)) {
                outcome = Pick::NoRoom;
            }
        }
        outcome
    }

    /// The increase of the sum of squares with the tablet on `node`.
    pub(super) fn cost(&self, tablet: u32, node: u32) -> f64 {
        let state = &self.tablets[tablet as usize];
        let share = self.tables[state.table as usize].share(node).size;
        let node = &self.nodes[node as usize];
        let squares = |load: f64, size: f64| (2.0 * load * size + size * size) / node.weight;
        BYTES_WEIGHT * squares(node.bytes, state.size)
            + COUNT_WEIGHT * squares(f64::from(node.replicas), 1.0)
            + TABLE_WEIGHT * squares(share, state.size)
    }

    /// The decrease of the sum of squares without the tablet on `node`.
    fn relief(&self, tablet: u32, node: u32) -> f64 {
        let state = &self.tablets[tablet as usize];
        let share = self.tables[state.table as usize].share(node).size;
        let node = &self.nodes[node as usize];
        let squares = |load: f64, size: f64| (2.0 * load * size - size * size) / node.weight;
        BYTES_WEIGHT * squares(node.bytes, state.size)
            + COUNT_WEIGHT * squares(f64::from(node.replicas), 1.0)
            + TABLE_WEIGHT * squares(share, state.size)
    }

    /// The decrease of the sum of squares if the tablet moves.
    pub(super) fn gain(&self, tablet: u32, from: u32, to: u32) -> f64 {
        self.relief(tablet, from) - self.cost(tablet, to)
    }

    /// How much fuller the disk of a replica is than its node, from -1 to 1.
    pub(super) fn disk_excess(&self, tablet: u32, node: u32) -> f64 {
        let node = &self.nodes[node as usize];
        let disk = self.tablets[tablet as usize].view.disk_on(node.id);
        disk.and_then(|disk| node.disks.excess.get(disk)).copied().unwrap_or(0.0)
    }

    /// The voters that send the copies for `count` new replicas; `None` if they are too busy.
    pub(super) fn sources(&self, tablet: u32, count: usize) -> Option<Vec<u32>> {
        let mut chosen = Vec::with_capacity(count);
        for _ in 0..count {
            let from = self.quietest_voter(tablet, &chosen)?;
            let sending = self.sending_with(tablet, from, &chosen);
            if self.copies == Copies::Limited && !sending.is_open(self.view.limits.sending_per_node, &self.view.limits)
            {
                return None;
            }
            chosen.push(from);
        }
        Some(chosen)
    }

    /// The voter that sends the fewest copies; a leader only if no other sends as few.
    fn quietest_voter(&self, tablet: u32, chosen: &[u32]) -> Option<u32> {
        let view = self.tablets[tablet as usize].view;
        let live = view
            .voters()
            .filter_map(|voter| self.node_index(voter))
            .filter(|node| self.nodes[*node as usize].answers() && self.standing(tablet, *node) != Standing::Lost);
        live.min_by_key(|node| {
            let Pipe { copies, bytes } = self.sending_with(tablet, *node, chosen);
            let id = self.nodes[*node as usize].id;
            (copies, view.leader == Some(id), bytes, view.turn(id))
        })
    }

    /// The copies that a node sends, including those of this tablet that it has been chosen for.
    fn sending_with(&self, tablet: u32, node: u32, chosen: &[u32]) -> Pipe {
        let mut sending = self.nodes[node as usize].pipes.sending;
        let again = chosen.iter().filter(|other| **other == node);
        again.for_each(|_| sending.add(self.tablets[tablet as usize].view.bytes));
        sending
    }

    /// Places the tablet's replicas on `wanted`, which is reordered to begin with a node that can lead.
    pub(super) fn place(&mut self, tablet: u32, mut wanted: Vec<u32>, sources: &[u32], reason: Reason) {
        self.put_leader_first(tablet, &mut wanted);
        let state = &mut self.tablets[tablet as usize];
        state.is_done = true;
        let (view, table, size) = (state.view, state.table, state.size);
        let before = self.replicas(tablet).to_vec();
        if before.first() != wanted.first() {
            before.first().into_iter().for_each(|node| self.add_leader(*node, table, -1));
            wanted.first().into_iter().for_each(|node| self.add_leader(*node, table, 1));
        }
        for node in before.iter().filter(|node| !wanted.contains(node)) {
            self.add_load(*node, table, size, -1);
            self.rank(*node);
        }
        for node in wanted.iter().filter(|node| !before.contains(node)) {
            self.add_load(*node, table, size, 1);
            let state = &mut self.nodes[*node as usize];
            if !view.leaving.contains(&state.id) {
                state.pipes.receiving.add(view.bytes);
                state.reserve(view.bytes);
            }
            self.rank(*node);
        }
        sources.iter().for_each(|from| self.nodes[*from as usize].pipes.sending.add(view.bytes));
        let replicas = wanted.iter().map(|node| self.nodes[*node as usize].id).collect();
        self.actions.push(Action::Place { tablet: view.id, replicas, reason });
    }

    /// If the first node cannot lead, moves one to the front that can: the one with the fewest leaders.
    fn put_leader_first(&self, tablet: u32, wanted: &mut [u32]) {
        let before = self.replicas(tablet);
        let able = |node: u32| before.contains(&node) && self.can_lead(tablet, node);
        if wanted.first().is_some_and(|first| able(*first)) {
            return;
        }
        let ables = wanted.iter().enumerate().filter(|(_, node)| able(**node));
        let best = ables.min_by_key(|(at, node)| {
            let is_outside = !self.zone_of(**node).is_preferred;
            (is_outside, self.nodes[**node as usize].leaders, *at)
        });
        if let Some((at, _)) = best {
            wanted[..=at].rotate_right(1);
        }
    }

    /// Changes the preferred leader.
    pub(super) fn lead(&mut self, tablet: u32, leader: u32, reason: Reason) {
        let state = &mut self.tablets[tablet as usize];
        state.is_done = true;
        let (id, table) = (state.view.id, state.table);
        if let Some(before) = self.replicas(tablet).first().copied() {
            self.add_leader(before, table, -1);
        }
        self.add_leader(leader, table, 1);
        self.actions.push(Action::Lead { tablet: id, leader: self.nodes[leader as usize].id, reason });
    }

    fn add_load(&mut self, node: u32, table: u32, size: f64, sign: i32) {
        let share = self.tables[table as usize].share_mut(node);
        share.replicas = share.replicas.saturating_add_signed(sign);
        share.size = (share.size + size * f64::from(sign)).max(0.0);
        let state = &mut self.nodes[node as usize];
        state.replicas = state.replicas.saturating_add_signed(sign);
        // The sum of many fractional sizes: rounding must not make a load negative.
        state.bytes = (state.bytes + size * f64::from(sign)).max(0.0);
    }

    fn add_leader(&mut self, node: u32, table: u32, sign: i32) {
        let share = self.tables[table as usize].share_mut(node);
        share.leaders = share.leaders.saturating_add_signed(sign);
        let state = &mut self.nodes[node as usize];
        state.leaders = state.leaders.saturating_add_signed(sign);
    }

    fn rank(&mut self, node: u32) {
        let state = &self.nodes[node as usize];
        if !state.accepts {
            return;
        }
        let limits = &self.view.limits;
        let is_open =
            self.copies == Copies::AllAtOnce || state.pipes.receiving.is_open(limits.arriving_per_node, limits);
        let loads = [state.load(Measure::Bytes), state.load(Measure::Count)];
        let entry = Entry { zone: state.zone, loads, is_open };
        self.ranking.enter(node, entry);
    }
}

fn effective_bytes(tablet: &TabletView) -> f64 {
    tablet.bytes.saturating_add(BYTES_PER_REPLICA) as f64
}
