//! Routing, by scripts that are read as text, and by random schedules.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod random;
mod script;

use super::{Limits, Local, Timeouts, View, Work};
use diorite_base::{NodeId, TabletId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The node whose routing is tested.
const HERE: NodeId = NodeId(1);

const LIMITS: Limits = Limits { requests: 100, bytes: 10_000 };

const TIMEOUTS: Timeouts =
    Timeouts { read: Duration::from_secs(5), write: Duration::from_secs(2), missing: Duration::from_secs(1) };

/// A request with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ask {
    name: String,
    is_read: bool,
    /// Its child tablet, once its tablet is split.
    half: usize,
}

impl Work for Ask {
    fn is_read(&self) -> bool {
        self.is_read
    }

    fn size_bytes(&self) -> usize {
        100
    }
}

/// What this node's catalog and replicas say, beside what routing has learned.
#[derive(Debug, Default)]
struct Known {
    up: BTreeSet<NodeId>,
    local: BTreeMap<TabletId, Local>,
    holders: BTreeMap<TabletId, Vec<NodeId>>,
    /// Tablets that their children have replaced.
    split: BTreeSet<TabletId>,
    new_children: BTreeSet<TabletId>,
    /// The successors of a tablet: one, or one for each half.
    successors: BTreeMap<TabletId, Vec<TabletId>>,
}

impl View<Ask> for Known {
    fn local(&self, tablet: TabletId) -> Local {
        self.local.get(&tablet).copied().unwrap_or(Local::Absent)
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.up.contains(&node)
    }

    fn holders(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        self.holders.get(&tablet).cloned()
    }

    fn is_split(&self, tablet: TabletId) -> bool {
        self.split.contains(&tablet)
    }

    fn is_new_child(&self, tablet: TabletId) -> bool {
        self.new_children.contains(&tablet)
    }

    fn successor(&self, tablet: TabletId, work: &Ask) -> Option<TabletId> {
        let successors = self.successors.get(&tablet).filter(|_| !work.is_read)?;
        successors.get(work.half % successors.len()).copied()
    }
}
