//! The remaining work, for operators.
//!
//! Always true: it is computed by the rules that decide, with the limits lifted, so it is the work that will be done if
//! nothing else happens. Copies under way count with their remaining bytes.

use super::holdings::Standing;
use super::ledger::{Copies, Ledger};
use super::view::{Action, NodeState, Reason, Stalled, TabletView, View};
use diorite_base::{NodeId, TabletId};
use serde::Serialize;
use std::collections::BTreeSet;

/// The most stalled tablets that are listed; beyond them only their number is reported.
pub const LISTED_STALLED: usize = 100;

/// The activities of the balancer; of several, the most urgent is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Tablets get missing replicas.
    Repairing,
    /// Switched off, and nothing is to be repaired.
    Paused,
    /// Nodes are being emptied.
    Draining,
    /// Replicas or leaders move to where they are better placed.
    Balancing,
    /// Everything is in its place, or cannot get there.
    Idle,
}

/// The remaining work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The most urgent activity.
    pub activity: Activity,
    /// Bytes to be copied, of copies under way and of those to come.
    pub bytes_left: u64,
    /// Replicas to be copied, under way and to come.
    pub copies_left: u64,
    /// Preferred leaders to be changed.
    pub leader_changes_left: u64,
    /// The time that this takes if every node uses its whole rate; `None` if the rate is 0 and there is something to
    /// copy.
    pub eta_seconds: Option<u64>,
    /// Tablets whose members are changing right now.
    pub changing: u64,
    /// Tablets with fewer live replicas than wanted.
    pub under_replicated: u64,
    /// Tablets that no node is known to lead.
    pub leaderless: u64,
    /// Tablets that cannot get their wanted replicas, with reasons; the first [`LISTED_STALLED`] of them.
    #[serde(rename = "stuck")]
    pub stalled: Vec<Stalled>,
    /// How many there are in all.
    #[serde(rename = "stuck_total")]
    pub stalled_total: u64,
    /// The remaining copies of each node that receives or sends any.
    pub nodes: Vec<NodeProgress>,
}

impl Progress {
    /// How many tablets cannot get their wanted replicas and are not listed.
    pub fn unlisted_stalled(&self) -> u64 {
        let listed: BTreeSet<TabletId> = self.stalled.iter().map(Stalled::tablet).collect();
        self.stalled_total.saturating_sub(listed.len() as u64)
    }
}

/// The copies that one node still has to receive and send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeProgress {
    /// The node.
    pub node: NodeId,
    /// Bytes to be copied to it.
    pub receives_bytes: u64,
    /// Bytes to be copied from it, as far as can be foreseen.
    pub sends_bytes: u64,
}

/// Computes the remaining work, and how long it will take.
pub fn progress(view: &View) -> Progress {
    let mut ledger = Ledger::new(view, Copies::AllAtOnce);
    super::apply_rules(&mut ledger);
    let nodes = ledger.nodes.iter().filter(|node| node.pipes.receiving.copies > 0 || node.pipes.sending.copies > 0);
    let nodes: Vec<NodeProgress> = nodes
        .map(|node| NodeProgress {
            node: node.id,
            receives_bytes: node.pipes.receiving.bytes,
            sends_bytes: node.pipes.sending.bytes,
        })
        .collect();
    let bytes_left = nodes.iter().map(|node| node.receives_bytes).sum();
    let busiest = nodes.iter().map(|node| node.receives_bytes.max(node.sends_bytes)).max().unwrap_or(0);
    let rate = view.limits.bytes_per_second;
    let under_replicated = (0..ledger.tablets.len() as u32).filter(|tablet| is_short(&ledger, *tablet)).count() as u64;
    let stalled: BTreeSet<Stalled> = ledger.stalled.iter().copied().collect();
    let leads = ledger.actions.iter().filter(|action| matches!(action, Action::Lead { .. })).count() as u64;
    let copies: u32 = ledger.nodes.iter().map(|node| node.pipes.receiving.copies).sum();
    Progress {
        activity: activity(&ledger),
        bytes_left,
        copies_left: u64::from(copies),
        leader_changes_left: leads,
        eta_seconds: if rate == 0 { (busiest == 0).then_some(0) } else { Some(busiest.div_ceil(rate)) },
        changing: view.tablets.iter().filter(|tablet| tablet.is_changing()).count() as u64,
        under_replicated,
        leaderless: view.tablets.iter().filter(|tablet| tablet.leader.is_none()).count() as u64,
        stalled: stalled.iter().copied().take(LISTED_STALLED).collect(),
        stalled_total: stalled.iter().map(Stalled::tablet).collect::<BTreeSet<TabletId>>().len() as u64,
        nodes,
    }
}

/// Whether fewer replicas than wanted answer and have the data.
fn is_short(ledger: &Ledger<'_>, tablet: u32) -> bool {
    let view = ledger.tablets[tablet as usize].view;
    let has = ledger.replicas(tablet).iter().filter(|node| {
        matches!(ledger.standing(tablet, **node), Standing::Live | Standing::Draining)
            && !view.is_arriving(ledger.nodes[**node as usize].id)
    });
    let going = view
        .leaving
        .iter()
        .filter_map(|node| ledger.node_index(*node))
        .filter(|node| matches!(ledger.standing(tablet, *node), Standing::Live | Standing::Draining));
    has.count() + going.count() < view.wanted.total() as usize
}

fn activity(ledger: &Ledger<'_>) -> Activity {
    let is_repair = |reason: Reason| matches!(reason, Reason::Lost | Reason::Missing | Reason::Surplus);
    let is_being_repaired = |tablet: u32| {
        ledger.tablets[tablet as usize].view.is_changing() && is_short(ledger, tablet) && !has_suspect(ledger, tablet)
    };
    if ledger.actions.iter().any(|action| is_repair(action.reason()))
        || (0..ledger.tablets.len() as u32).any(is_being_repaired)
    {
        return Activity::Repairing;
    }
    if ledger.view.paused {
        return Activity::Paused;
    }
    let draining: BTreeSet<NodeId> =
        ledger.nodes.iter().filter(|node| node.state == NodeState::Draining).map(|node| node.id).collect();
    let is_left = |tablet: &TabletView| tablet.leaving.iter().any(|node| draining.contains(node));
    if ledger.actions.iter().any(|action| action.reason() == Reason::Drain) || ledger.view.tablets.iter().any(is_left) {
        return Activity::Draining;
    }
    let is_idle = ledger.actions.is_empty() && ledger.view.tablets.iter().all(|tablet| !tablet.is_changing());
    if is_idle { Activity::Idle } else { Activity::Balancing }
}

/// Whether a replica's node is silent and may yet come back, so that nothing need be changed for it.
fn has_suspect(ledger: &Ledger<'_>, tablet: u32) -> bool {
    ledger.replicas(tablet).iter().any(|node| ledger.standing(tablet, *node) == Standing::Suspect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_tablets_that_are_not_listed_are_counted() {
        let room = |tablet| Stalled::NoRoom { tablet: TabletId(tablet), bytes: 5 };
        let nodes = |tablet| Stalled::TooFewNodes { tablet: TabletId(tablet), wanted: 3, has: 2 };
        let mut progress = Progress {
            activity: Activity::Idle,
            bytes_left: 0,
            copies_left: 0,
            leader_changes_left: 0,
            eta_seconds: None,
            changing: 0,
            under_replicated: 205,
            leaderless: 0,
            stalled: vec![nodes(1), room(1), room(2)],
            stalled_total: 205,
            nodes: Vec::new(),
        };
        assert_eq!(progress.unlisted_stalled(), 203);
        progress.stalled_total = 2;
        assert_eq!(progress.unlisted_stalled(), 0);
    }
}
