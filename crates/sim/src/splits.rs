//! Splits of tablets, as a catalog would ask for them and hear of them, and which tablet has which keys.
//!
//! Always true: a tablet that is to be split does not move, nor do its children until they are settled; the ranges of all tablets of a root that are served
//! cover its keys, each once. Nobody waits for nodes to prepare, or for all replicas of the children to begin: whatever the order, it has to be right.

use crate::client::COUNTER;
use crate::cluster::{Cluster, Event, Phase};
use crate::dice::Dice;
use crate::node::Setting;
use crate::placement::{Placement, Planned};
use crate::process::{Command, Step};
use crate::program;
use diorite_base::{NodeId, TabletId};
use diorite_replica::{Permit, Split, SplitMark};

/// Of how many of 1,000 seeds tablets are split.
const SHARE: u64 = 400;

/// Inserts come in two halves, the second from here on.
pub const SECOND_INSERTS: u64 = 1_000_000;

/// Where tablets are split: each part has keys that clients write.
const CUTS: [u64; 4] = [1, COUNTER, COUNTER + 1, SECOND_INSERTS];

/// The keys of a tablet: those of `root`, a tablet of the beginning, from `start` until before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Whose.
    pub root: TabletId,
    /// The first.
    pub start: u64,
    /// The first that is not.
    pub end: u64,
}

impl KeyRange {
    /// All keys of a tablet of the beginning.
    pub fn all(root: TabletId) -> Self {
        Self { root, start: 0, end: u64::MAX }
    }

    /// Whether the key is one of them.
    pub fn contains(&self, key: u64) -> bool {
        (self.start..self.end).contains(&key)
    }

    /// Whether there is a key that both have.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.root == other.root && self.start < other.end && other.start < self.end
    }
}

/// What happens to splits beside what nodes do.
#[derive(Clone, Debug)]
pub enum SplitEvent {
    /// The catalog wants a tablet to be split.
    Begin,
    /// The catalog hears that a tablet was split.
    Serve(SplitMark),
}

/// Decides what is split, and when.
pub struct Splits {
    pub(crate) dice: Dice,
    /// Whether anything is.
    is_on: bool,
    next_tablet: u64,
}

impl Splits {
    /// None, or some, by the dice. `first_tablet`: the number of the first child.
    pub fn new(mut dice: Dice, first_tablet: u64, allowed: bool) -> Self {
        let is_on = dice.chance(SHARE) && allowed;
        Self { dice, is_on, next_tablet: first_tablet }
    }
}

impl Setting {
    /// The tablets that requests go to, in order.
    pub fn served(&self) -> Vec<TabletId> {
        self.tablets.iter().filter(|(_, placement)| placement.is_served()).map(|(tablet, _)| *tablet).collect()
    }

    /// The tablets that requests for a root's keys go to.
    pub fn served_of(&self, root: TabletId) -> Vec<TabletId> {
        self.served().into_iter().filter(|tablet| self.ranges[tablet].root == root).collect()
    }

    /// Who waits for it in the catalog: tablets that are being split, and are not gone yet.
    pub fn are_splits_done(&self) -> bool {
        self.tablets.values().all(|placement| placement.is_dropped || !placement.is_splitting())
    }
}

impl Cluster {
    /// Begins to split tablets, if this run does.
    pub fn begin_splits(&mut self) {
        if self.splits.is_on {
            let at_ns = self.splits.dice.milliseconds(200, 2_500);
            self.queue.schedule(at_ns, Event::Split(SplitEvent::Begin));
        }
    }

    /// Something happens to splits.
    pub fn split_event(&mut self, event: SplitEvent) {
        match event {
            SplitEvent::Begin if self.phase == Phase::Chaos => {
                self.begin_split();
                let next_ns = self.now_ns() + self.splits.dice.milliseconds(100, 1_500);
                self.queue.schedule(next_ns, Event::Split(SplitEvent::Begin));
            }
            SplitEvent::Begin => {}
            SplitEvent::Serve(mark) => self.serve_split(&mark),
        }
    }

    /// Wants a tablet to be split, if one is where it is wanted.
    fn begin_split(&mut self) {
        let served = self.setting.served();
        let tablet = *self.splits.dice.pick(&served);
        let range = self.setting.ranges[&tablet];
        let cuts: Vec<u64> = CUTS.into_iter().filter(|cut| *cut > range.start && *cut < range.end).collect();
        if !self.is_at_rest(tablet) || cuts.is_empty() {
            return;
        }
        let placement = &self.setting.tablets[&tablet];
        let cut = *self.splits.dice.pick(&cuts);
        let children = [0, 1].map(|at| TabletId(self.splits.next_tablet + at));
        self.splits.next_tablet += 2;
        // Those who hold it now: a replica that begins with nothing must not take a former set of members for its own.
        let founders = placement.members.voters.clone();
        let parts = [KeyRange { end: cut, ..range }, KeyRange { start: cut, ..range }];
        for (child, part) in children.into_iter().zip(parts) {
            self.setting.founders.insert(child, founders.clone());
            self.setting.ranges.insert(child, part);
            for node in self.scenario.nodes.clone() {
                let at_ns = self.now_ns() + self.splits.dice.range(1, self.scenario.flush_every_ns);
                self.schedule(at_ns, node, Step::Flush(child));
            }
        }
        if let Some(placement) = self.setting.tablets.get_mut(&tablet) {
            let split = Split { boundary: program::key(cut).to_vec(), children };
            placement.version += 1;
            placement.split = Some(Planned { split, is_served: false });
        }
        self.announce(tablet);
    }

    /// Whether the tablet is where it is wanted, and is neither split nor merged.
    pub fn is_at_rest(&self, tablet: TabletId) -> bool {
        let placement = &self.setting.tablets[&tablet];
        let wanted = &placement.members.voters;
        let is_settled = self
            .settled(tablet)
            .is_some_and(|voters| voters.len() == wanted.len() && voters.iter().all(|voter| wanted.contains(voter)));
        is_settled && placement.leaving.is_empty() && !placement.is_reshaping()
    }

    /// The voters of a tablet, if its leader says that they are those that it has heard are wanted.
    pub fn settled(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        let running = self.nodes.values().filter(|node| !node.is_paused).filter_map(|node| node.life.as_ref());
        running.filter_map(|life| life.handles.get(&tablet)?.committed_voters()).next()
    }

    /// Lets leaders split what is to be split, and tell again what they have split.
    pub fn advance_splits(&mut self) {
        let planned = self.setting.tablets.iter().filter_map(|(tablet, placement)| {
            let planned = placement.split.as_ref().filter(|planned| !planned.is_served)?;
            Some((*tablet, planned.split.clone()))
        });
        for (tablet, split) in planned.collect::<Vec<_>>() {
            for id in self.scenario.nodes.clone() {
                let node = &self.nodes[&id];
                let handle = node.life.as_ref().and_then(|life| life.handles.get(&tablet)).cloned();
                let Some(handle) = handle.filter(|_| !node.is_paused && node.knows_split(tablet)) else { continue };
                if let Some(mark) = handle.split() {
                    if self.splits.dice.chance(300) {
                        self.serve_split(&mark);
                    }
                } else if handle.check(Permit::Lease).is_ok() && self.splits.dice.chance(250) {
                    let now_ns = self.now_ns();
                    self.trace.event(now_ns, id.0, "split", &tablet.0.to_le_bytes(), || format!("{tablet} {split:?}"));
                    self.command(id, Command::Split(tablet, split.clone()));
                }
            }
        }
    }

    /// A replica of a node has been split: its children are made a little later, and the catalog hears of it, or not.
    pub fn was_split(&mut self, node: NodeId, mark: SplitMark, leads: bool) {
        let now_ns = self.now_ns();
        self.trace
            .event(now_ns, node.0, "was split", &mark.index.to_le_bytes(), || format!("{mark:?}, leads: {leads}"));
        if leads && self.splits.dice.chance(800) {
            let heard_ns = now_ns + self.splits.dice.milliseconds(1, 200);
            self.queue.schedule(heard_ns, Event::Split(SplitEvent::Serve(mark.clone())));
        }
        let longest_ms = if self.splits.dice.chance(200) { 1_500 } else { 20 };
        let made_ns = now_ns + self.splits.dice.milliseconds(0, longest_ms);
        self.schedule(made_ns, node, Step::MakeChildren(mark));
    }

    /// The children take their parent's place.
    fn serve_split(&mut self, mark: &SplitMark) {
        let Some(parent) = self.setting.tablets.get_mut(&mark.parent) else { return };
        let Some(planned) = parent.split.as_mut().filter(|planned| !planned.is_served) else { return };
        assert!(planned.split == mark.split, "a tablet is split as was asked for");
        planned.is_served = true;
        parent.version += 1;
        let origin = Some((mark.parent, mark.index, mark.term));
        let child = Placement { version: 1, origin, split: None, ..parent.clone() };
        for tablet in mark.split.children {
            self.setting.tablets.insert(tablet, child.clone());
        }
        self.announce(mark.parent);
        for tablet in mark.split.children {
            self.announce(tablet);
        }
        self.wake_inspector(self.setting.ranges[&mark.parent].root);
    }

    /// A child does without its parent; when its sibling does too, nobody needs that.
    pub fn settle_child(&mut self, child: TabletId, voters: &[NodeId]) {
        let is_late = self.splits.dice.chance(700);
        let Some(placement) = self.setting.tablets.get_mut(&child) else { return };
        let wanted = &placement.members.voters;
        let is_wanted = wanted.len() == voters.len() && wanted.iter().all(|node| voters.contains(node));
        let Some((parent, ..)) = placement.origin.filter(|_| is_wanted && !is_late) else { return };
        placement.origin = None;
        placement.version += 1;
        self.announce(child);
        let planned = self.setting.tablets[&parent].split.as_ref();
        let children = planned.map(|planned| planned.split.children);
        let needs_it = |child: &TabletId| self.setting.tablets[child].origin.is_some_and(|(of, ..)| of == parent);
        if children.is_some_and(|children| !children.iter().any(needs_it))
            && let Some(gone) = self.setting.tablets.get_mut(&parent)
        {
            gone.is_dropped = true;
            gone.version += 1;
            self.announce(parent);
        }
    }

    /// Where a client sends what concerns a key: usually where the newest catalog says, sometimes where another did, or will.
    pub fn route(&mut self, root: TabletId, key: u64) -> TabletId {
        let holds = |tablet: &&TabletId| {
            let range = self.setting.ranges[*tablet];
            range.root == root && range.contains(key)
        };
        let all: Vec<TabletId> = self.setting.ranges.keys().filter(holds).copied().collect();
        if all.len() > 1 && self.phase == Phase::Chaos && self.splits.dice.chance(100) {
            return *self.splits.dice.pick(&all);
        }
        let served = all.iter().find(|tablet| self.setting.tablets.get(tablet).is_some_and(Placement::is_served));
        served.copied().unwrap_or(root)
    }
}
