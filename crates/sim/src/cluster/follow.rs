//! The shell of the catalog's follower: nodes start, carry out the actions of their control plane, and stop.

use crate::cluster::{Cluster, Event};
use crate::life::{Life, PeerChange, members};
use crate::node::Node;
use crate::step::Step;
use diorite_base::NodeId;
use diorite_control::follower::{Action, Leftovers, openings_at_start};
use diorite_control::membership::{Dialler, Readiness, admit};
use diorite_control::peers::{DOWN_AFTER, Notice};
use diorite_control::replicas::CATALOG_TABLET;
use std::sync::Arc;

const MS: u64 = 1_000_000;

impl Cluster {
    /// Lets a node go on to the newest snapshot that it knows, after a moment, unless that is scheduled.
    pub fn follow_soon(&mut self, id: NodeId, longest_ms: u64) {
        let at_ns = self.now_ns() + self.dice.milliseconds(0, longest_ms.max(1));
        let Some(life) = self.life(id).filter(|life| !life.follows) else { return };
        life.follows = true;
        self.schedule(at_ns, id, Step::Follow);
    }

    /// Takes in the newest snapshot of a node's copy of the catalog.
    pub fn catalog_changed(&mut self, id: NodeId) {
        let Some(catalog) = self.life(id).map(|life| life.copy.current()) else { return };
        self.learn(id, &catalog);
        self.follow_soon(id, 2);
    }

    /// A node carries out the next action.
    pub fn follow(&mut self, id: NodeId) {
        let Some(life) = self.life(id) else { return };
        life.follows = false;
        if !life.has_started {
            // A copy of the catalog that was lost and is incomplete knows less than the disk holds: no action is taken
            // on it.
            let is_whole = life.core().describe(CATALOG_TABLET).is_some_and(|state| !state.is_recovering);
            if !is_whole {
                return self.follow_soon(id, 50);
            }
            self.start_following(id);
        } else {
            let newest = life.newest();
            let Some(action) = life.decide(id, |control, local| control.follower.next(&newest, local)) else { return };
            self.carry_out(id, action);
        }
        self.after_core(id);
        let longest_ms = if self.dice.chance(50) { 100 } else { 2 };
        self.follow_soon(id, longest_ms);
    }

    /// Opens what the node's copy of the catalog places on it.
    fn start_following(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(life) = node.life.as_mut() else { return };
        let catalog = life.newest();
        let leftovers = Leftovers::new(&catalog, id);
        let removed = node.disks.remove_leftovers(
            &life.logs,
            |tablet| leftovers.was_dropped(tablet),
            |tablet| leftovers.has_moved(tablet),
        );
        if !removed {
            return;
        }
        for opening in openings_at_start(&catalog, id, |tablet| node.disks.has_files(tablet)) {
            node.open(&opening);
        }
        let now_ns = self.setting.time.now_ns();
        let version = catalog.version();
        self.trace.event(now_ns, id.0, "follow", &version.to_le_bytes(), || format!("from version {version}"));
        let joined = node.joined.version.filter(|_| node.lives == 1);
        let control = self.setting.control;
        let Some(life) = node.life.as_mut() else { return };
        life.has_started = true;
        let local_ns = diorite_base::Clock::monotonic_ns(&*life.clock);
        life.control.readiness = Some(match joined {
            Some(version) => Readiness::joined(version, local_ns),
            None => Readiness::returning(local_ns, control),
        });
        for action in life.control.follower.start(&catalog) {
            self.carry_out(id, action);
        }
        self.begin_duties(id);
    }

    fn carry_out(&mut self, id: NodeId, action: Action) {
        let now_ns = self.now_ns();
        let syncs_late = self.scenario.sync_every_ms.is_some();
        self.trace.event(now_ns, id.0, "act", &[], || format!("{}", Brief(&action)));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(life) = node.life.as_mut() else { return };
        match action {
            Action::PersistCatalog => {
                if syncs_late {
                    node.disks.all.iter().for_each(|disk| disk.log.sync());
                }
                let handle = life.handles.get(&CATALOG_TABLET);
                if let Some(handle) = handle {
                    handle.data().flush();
                }
                let is_durable = handle.is_some();
                life.control.follower.persisted(is_durable);
            }
            Action::Open(openings) => openings.iter().for_each(|opening| node.open(opening)),
            Action::SetMembers(tablet, wanted) => life.core().set_members(tablet, members(wanted)),
            Action::PrepareSplit(tablet, _) => {
                if life.preparing.insert(tablet) {
                    self.prepare_later(id, tablet);
                }
            }
            Action::CancelSplit(tablet, children) => {
                if let Some(handle) = life.handles.get(&tablet) {
                    handle.forget_children();
                }
                life.prepared.remove(&tablet);
                life.preparing.remove(&tablet);
                for child in children {
                    node.close(child);
                }
            }
            Action::Close(tablets) => {
                for tablet in tablets {
                    if node.close(tablet) {
                        self.replicas.forget_one(id, tablet);
                    }
                }
            }
            Action::AlterTable(tablet, table) => {
                if let Some(handle) = life.handles.get(&tablet) {
                    handle.set_gc_grace_s(table.gc_grace_s);
                }
            }
            Action::MeetNodes(catalog) => {
                for other in catalog.nodes().map(|node| node.id).filter(|other| *other != id) {
                    let is_live = life.liveness().is_up(other);
                    life.control.peers.set_live(other, is_live);
                }
            }
            Action::Publish(catalog) => {
                life.liveness().announce(catalog.version());
                self.published(id);
            }
            Action::ForgetDropped => self.forget_dropped(id),
            Action::Stop => self.retire(id),
            Action::ApplySettings(catalog) => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.noted.level = node.noted.level.max(catalog.level());
                }
            }
            Action::Notify(_) => {}
        }
    }

    /// A node serves another snapshot: it keeps in touch with the members that this has, and parts from others.
    fn published(&mut self, id: NodeId) {
        let node = &self.nodes[&id];
        let Some(life) = &node.life else { return };
        if let Some(dialled) = node.keep_in_touch(&self.setting).and_then(|contacts| contacts.dialled) {
            let strangers = self.nodes.keys().copied().filter(|other| *other != id && !dialled.contains_key(other));
            for stranger in strangers.collect::<Vec<_>>() {
                self.setting.network.part_from(id, stranger);
            }
        }
        if let Err(finding) = self.schema.published(self.setting.time.now_ns(), id, life) {
            self.found = self.found.take().or(Some(finding));
        }
    }

    /// A node stops for ever: it was removed from the cluster.
    pub fn retire(&mut self, id: NodeId) {
        let now_ns = self.now_ns();
        self.trace.event(now_ns, id.0, "retire", &[], String::new);
        self.end(id, false);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_gone = true;
        }
    }

    /// Whether a node's gate lets a connection in that another opens. If not, that one is told so.
    pub fn admits(&mut self, id: NodeId, from: NodeId) -> bool {
        let (host, address) = (self.nodes[&from].description.host_id, self.nodes[&from].description.node_address());
        let Some(catalog) = self.life(id).map(|life| life.newest()) else { return false };
        match admit(&catalog, Dialler { node: from, host }, None) {
            Ok(()) => {
                if let Some(life) = self.life(id)
                    && life.control.admission.called(from, address, &catalog)
                {
                    self.nodes[&id].keep_in_touch(&self.setting);
                }
                if let Some(life) = self.life(from)
                    && life.control.admission.admitted(id)
                {
                    // Another one that heartbeats may go to.
                    self.nodes[&from].keep_in_touch(&self.setting);
                }
                true
            }
            Err(refusal) => {
                let Some(life) = self.life(from) else { return false };
                life.control.admission.refused(id, &refusal);
                if life.control.admission.verdict().is_some() {
                    self.retire(from);
                }
                false
            }
        }
    }

    /// Transports dial whoever dials them. It matters to a node that knows no member, such as the first one after its copy of the
    /// catalog was lost: those that admit it are its contacts.
    pub(crate) fn dial_back(&mut self, id: NodeId, from: NodeId) {
        let is_met = |life: &Life| life.control.admission.encounters().met.contains(&from);
        let knows_nobody = |node: &Node| {
            node.life.as_ref().is_some_and(|life| !is_met(life))
                && node.contacts(&self.setting).is_some_and(|contacts| contacts.dialled.is_none())
        };
        let can_answer =
            self.nodes.get(&from).is_some_and(Node::is_running) && !self.setting.network.is_blocked(id, from);
        if can_answer && self.nodes.get(&id).is_some_and(knows_nobody) {
            self.admits(from, id);
        }
    }

    /// Records the states of other nodes from their heartbeats.
    pub fn peers_changed(&mut self, id: NodeId) {
        let changes = self.life(id).map(|life| life.take_peer_changes()).unwrap_or_default();
        for (other, change) in changes {
            let Some(life) = self.life(id) else { return };
            let notice = match change {
                PeerChange::Live(is_live) => life.control.peers.set_live(other, is_live),
                PeerChange::Announced(announced) => life.control.peers.set_announced(other, announced),
            };
            if let PeerChange::Live(is_live) = change {
                self.router_learns(id, other, is_live);
            }
            if notice == Notice::Watch {
                let at_ns = self.now_ns() + DOWN_AFTER.as_nanos() as u64;
                self.schedule(at_ns, id, Step::StillDown(other));
            }
        }
    }

    /// Makes what will be the child tablets of a tablet, after a while.
    pub fn prepare_later(&mut self, id: NodeId, tablet: diorite_base::TabletId) {
        let longest_ms = if self.dice.chance(200) { 2_000 } else { 100 };
        let at_ns = self.now_ns() + self.dice.milliseconds(0, longest_ms);
        self.schedule(at_ns, id, Step::Prepare(tablet));
    }

    /// Takes in a snapshot that a node has applied.
    fn learn(&mut self, id: NodeId, catalog: &Arc<diorite_cluster::catalog::Catalog>) {
        if let Err(finding) = self.schema.applied(self.setting.time.now_ns(), id, catalog) {
            self.found = self.found.take().or(Some(finding));
        }
        if catalog.version() <= self.setting.newest.version() {
            return;
        }
        self.setting.newest = Arc::clone(catalog);
        let now_ns = self.now_ns();
        let version = catalog.version();
        self.trace.event(now_ns, id.0, "catalog", &version.to_le_bytes(), || describe(catalog));
        let new = self.setting.ranges.learn(catalog);
        for tablet in new {
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                let at_ns = now_ns + self.dice.range(1, self.scenario.flush_every_ns);
                self.schedule(at_ns, node, Step::Flush(tablet));
            }
        }
        self.wake_inspectors();
    }

    /// Nodes that are in the cluster, or will come back.
    pub fn present(&self) -> Vec<NodeId> {
        self.nodes.values().filter(|node| !node.is_gone).map(|node| node.id).collect()
    }

    /// A process of a node that is running and not stopped.
    pub fn running(&self, id: NodeId) -> Option<&Life> {
        self.nodes.get(&id).filter(|node| node.is_running())?.life.as_ref()
    }

    /// Schedules something for later.
    pub fn later(&mut self, after_ns: u64, event: Event) {
        let at_ns = self.now_ns() + after_ns;
        self.queue.schedule(at_ns, event);
    }

    /// A number of milliseconds, drawn, as nanoseconds.
    pub fn some_ms(&mut self, low: u64, high: u64) -> u64 {
        self.dice.range(low * MS, high * MS)
    }
}

/// An action in a few words, for traces.
struct Brief<'a>(&'a Action);

impl std::fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Action::Open(openings) => {
                let tablets: Vec<_> = openings.iter().map(|opening| opening.tablet).collect();
                write!(f, "open {tablets:?}")
            }
            Action::ApplySettings(_) => write!(f, "apply settings"),
            Action::MeetNodes(_) => write!(f, "meet nodes"),
            Action::Publish(catalog) => write!(f, "publish version {}", catalog.version()),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A snapshot in a few words, for traces.
fn describe(catalog: &diorite_cluster::catalog::Catalog) -> String {
    let nodes: Vec<_> = catalog.nodes().map(|node| format!("{}:{:?}", node.id, node.state)).collect();
    let tablets: Vec<_> = catalog
        .tablets()
        .map(|(tablet, placement)| {
            format!(
                "{tablet} on {:?} arriving {:?} leaving {:?} split {:?} origin {:?} merge {:?}",
                placement.replicas,
                placement.arriving,
                placement.leaving,
                placement.split,
                placement.origin,
                placement.merge
            )
        })
        .collect();
    format!("version {} nodes {} tablets {}", catalog.version(), nodes.join(" "), tablets.join("; "))
}
