//! Merges, as the nodes that hold the tablets carry them out: which merge is carried out here, how a merge that breaks
//! off is repeated, and how a cancelled one is undone.
//!
//! Always true: a merge that breaks off begins anew, on the node that then leads the tablet or, once the tablet is
//! sealed, on one that holds it. A merge that has broken off too often is cancelled, with the reason. The catalog
//! decides whether it is completed or cancelled; every node that holds the tablet acts on that as long as the catalog
//! remembers it, so no crash leaves a tablet sealed for ever.
//! Left out: which tablets are merged ([`crate::shrink`], and operators), and how rows are copied (`diorite_replica`'s
//! merge driver).

use crate::replicas::Replicas;
use crate::tokens::Tokens;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{CancelledMerge, Catalog, Command, Merge};
use std::collections::BTreeMap;
use std::time::Duration;

/// The pause between two checks for merges.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// How often in a row a merge may break off before it is cancelled.
const MAX_BROKEN: u32 = 8;
/// As [`MAX_BROKEN`], once the tablet is sealed: it cannot be read or written until the merge is over.
const MAX_BROKEN_SEALED: u32 = 2;
/// The longest reason that is stored with a cancelled merge, in characters.
const REASON_LENGTH: usize = 300;

/// A merge that the catalog asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The tablet that closes.
    pub tablet: TabletId,
    /// The tablet that stays.
    pub into: TabletId,
    /// The number of the merge.
    pub number: u64,
    /// Whether it was cancelled, and is to be undone.
    pub is_cancelled: bool,
}

/// Why a merge broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It could not continue here, for this reason.
    Here(String),
    /// Another node carries it out, or it is over.
    Elsewhere,
}

/// The next step of undoing a cancelled merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Open the tablet again that was to close.
    Reopen,
    /// None here: the tablet is open again, and another node leads it.
    Nothing,
    /// Remove the rows in this range from the tablet that stays, then propose [`end_cancelled`].
    Remove {
        /// The first key, and the end, exclusive.
        range: (Vec<u8>, Vec<u8>),
    },
}

/// See the top of this module.
#[derive(Debug)]
pub struct Merging {
    node: NodeId,
    /// How often in a row each merge has broken off on this node.
    broken: BTreeMap<Asked, u32>,
}

/// The merges to undo, and the one to carry out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// To undo.
    pub cancelled: Vec<Asked>,
    /// To carry out.
    pub next: Option<Asked>,
}

impl Merging {
    /// State without broken merges.
    pub fn new(node: NodeId) -> Self {
        Self { node, broken: BTreeMap::new() }
    }

    /// The merges to carry out or undo now. Of several, the one is next that has broken off least, so that a stalled
    /// merge does not keep others waiting.
    pub fn due(&mut self, served: &Catalog, replicas: &dyn Replicas) -> Due {
        let asked = asked(served, self.node);
        self.broken.retain(|merge, _| asked.contains(merge));
        let next = asked.iter().filter(|merge| !merge.is_cancelled && drives(self.node, **merge, served, replicas));
        let next = next.min_by_key(|merge| self.broken.get(merge)).copied();
        Due { cancelled: asked.into_iter().filter(|merge| merge.is_cancelled).collect(), next }
    }

    /// Forgets a merge that is over.
    pub fn done(&mut self, merge: Asked) {
        self.broken.remove(&merge);
    }

    /// Records that a merge broke off. Returns the command that cancels it, if that has happened too often.
    pub fn broke_off(&mut self, merge: Asked, why: &Broken, is_sealed: bool, wall_ms: i64) -> Option<Command> {
        let times = self.broken.entry(merge).or_insert(0);
        *times += 1;
        let limit = if is_sealed { MAX_BROKEN_SEALED } else { MAX_BROKEN };
        let Broken::Here(why) = why else { return None };
        if *times < limit {
            return None;
        }
        let reason = format!("it was interrupted {times} times, the last time because {why}")
            .chars()
            .take(REASON_LENGTH)
            .collect();
        let cancelled = CancelledMerge { reason, unix_ms: wall_ms };
        Some(Command::CancelMerge { tablet: merge.tablet, number: Some(merge.number), cancelled })
    }
}

/// The merges of closing tablets of which a node holds a replica.
fn asked(served: &Catalog, node: NodeId) -> Vec<Asked> {
    let asked = served.tablets_on(node).filter_map(|(tablet, placement)| {
        let Some(Merge::Into(into)) = placement.merge else { return None };
        let (number, is_cancelled) = (placement.merge_number, placement.is_merge_cancelled);
        Some(Asked { tablet, into, number, is_cancelled })
    });
    asked.collect()
}

/// Whether a node is to carry out a merge: it leads the tablet that closes or, once that is sealed, is the first of its
/// nodes that are up.
fn drives(node: NodeId, merge: Asked, served: &Catalog, replicas: &dyn Replicas) -> bool {
    let Some(placement) = served.placement(merge.tablet).filter(|_| replicas.is_open(merge.tablet)) else {
        return false;
    };
    let first = placement.replicas.iter().find(|holder| **holder == node || replicas.is_up(**holder));
    replicas.leads(merge.tablet) || (replicas.is_sealed(merge.tablet) && first == Some(&node))
}

/// The next step of undoing a cancelled merge, on a node that holds the tablet that was to close: that tablet serves
/// again first, then the other removes the rows that it has taken over. `has_given_up`: this node's replica knows that
/// the merge was cancelled.
pub fn undo(merge: Asked, has_given_up: bool, served: &Catalog, replicas: &dyn Replicas) -> Option<Undo> {
    if !has_given_up {
        return Some(Undo::Reopen);
    }
    if !replicas.leads(merge.tablet) {
        return Some(Undo::Nothing);
    }
    Some(Undo::Remove { range: Tokens::of(served, merge.tablet)?.keys() })
}

/// The command that reports that a cancelled merge is undone.
pub fn end_cancelled(merge: Asked) -> Command {
    Command::EndCancelledMerge { tablet: merge.tablet, number: merge.number }
}

/// The command by which the tablet that stays takes the place of both.
pub fn serve(merge: Asked) -> Command {
    Command::ServeMerge { tablet: merge.tablet, into: merge.into, number: Some(merge.number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Local, apply, cluster};

    const A: NodeId = NodeId(1);

    fn merging() -> (Catalog, Asked, Local) {
        let mut catalog = cluster(3, 2);
        let [tablet, into] = catalog.tablets().map(|(tablet, _)| tablet).collect::<Vec<_>>()[..] else {
            panic!("there are two")
        };
        apply(&mut catalog, Command::BeginMerge { tablet, into });
        let merge = asked(&catalog, A)[0];
        let mut local = Local::default();
        local.open.insert(tablet);
        local.up.extend([A, NodeId(2), NodeId(3)]);
        (catalog, merge, local)
    }

    #[test]
    fn the_leader_carries_a_merge_out_and_once_it_is_sealed_the_first_that_is_up() {
        let (catalog, merge, mut local) = merging();
        let first = catalog.placement(merge.tablet).map_or(A, |placement| placement.replicas[0]);
        let due = |node, local: &Local| Merging::new(node).due(&catalog, local).next;
        assert_eq!(due(first, &local), None);
        local.leads.insert(merge.tablet);
        assert_eq!(due(first, &local), Some(merge));
        local.leads.clear();
        local.sealed.insert(merge.tablet);
        assert_eq!(due(first, &local), Some(merge));
        let other = [A, NodeId(2), NodeId(3)].into_iter().find(|node| *node != first).unwrap_or(A);
        assert_eq!(due(other, &local), None, "another node is first");
    }

    #[test]
    fn a_merge_that_breaks_off_again_and_again_is_cancelled() {
        let (mut catalog, merge, local) = merging();
        let mut merging = Merging::new(A);
        let why = Broken::Here("it cannot be read".to_owned());
        for _ in 1..MAX_BROKEN {
            assert_eq!(merging.broke_off(merge, &why, false, 5), None);
        }
        assert_eq!(merging.broke_off(merge, &Broken::Elsewhere, false, 5), None);
        let cancel = merging.broke_off(merge, &why, false, 5);
        let Some(command @ Command::CancelMerge { .. }) = cancel else { panic!("it is cancelled") };
        apply(&mut catalog, command);
        let due = merging.due(&catalog, &local);
        assert_eq!((due.cancelled.len(), due.next), (1, None));
    }

    #[test]
    fn a_cancelled_merge_is_undone_by_whoever_leads_the_tablet_that_stays_open() {
        let (catalog, merge, mut local) = merging();
        assert_eq!(undo(merge, false, &catalog, &local), Some(Undo::Reopen));
        assert_eq!(undo(merge, true, &catalog, &local), Some(Undo::Nothing));
        local.leads.insert(merge.tablet);
        assert!(matches!(undo(merge, true, &catalog, &local), Some(Undo::Remove { .. })));
    }
}
