//! Repair: tablets get missing replicas, and lose surplus ones.
//!
//! Always true: the tablets with the fewest live replicas come first. A lost replica is dropped in the same change in
//! which it is replaced, or kept until there is a node for its successor, since it may yet come back. A live replica is
//! never dropped while the tablet has a lost one, or is short of replicas anywhere. A group without a quorum is left
//! alone, and no repair leads to a group without one. A replica on a suspect node is neither lost nor replaced.
//!
//! A tablet whose members are changing waits, unless the node that it is copied to is lost, or half of those that are to
//! stay: the change cannot end then. Other nodes take their places, preferably members that were about to leave and have
//! the data.

use super::holdings::{Scope, Standing};
use super::ledger::{Ledger, Pick, Wish};
use super::ranking::Measure;
use super::view::{NodeState, Reason, Stalled};
use crate::catalog::Replication;
use std::cmp::Reverse;

/// The plan for one tablet.
#[derive(Default)]
struct Repair {
    /// Replicas that stay or come, in order.
    wanted: Vec<u32>,
    /// Those of them that need a copy.
    copies: usize,
    /// Whether some part of the replication stays short.
    is_short: bool,
    /// Whether it waits for a busy node.
    waits: bool,
    stalled: Option<Stalled>,
}

/// Returns whether some tablet waits for nodes that are busy.
pub(super) fn run(ledger: &mut Ledger<'_>) -> bool {
    let mut broken: Vec<(u32, u32)> = (0..ledger.tablets.len() as u32)
        .filter(|tablet| needs_repair(ledger, *tablet))
        .map(|tablet| (ledger.voters(tablet).0, tablet))
        .collect();
    broken.sort_unstable();
    let mut waits = false;
    for (live, tablet) in broken {
        let (_, voters) = ledger.voters(tablet);
        if !has_quorum(ledger, tablet) {
            let id = ledger.tablets[tablet as usize].view.id;
            ledger.stalled.push(Stalled::NoQuorum { tablet: id, live, voters });
            continue;
        }
        // What is being split or merged keeps its placement until that has ended.
        if !ledger.tablets[tablet as usize].is_done {
            waits |= repair(ledger, tablet);
        }
    }
    waits
}

fn needs_repair(ledger: &Ledger<'_>, tablet: u32) -> bool {
    let view = ledger.tablets[tablet as usize].view;
    let is_lost = |node: &u32| ledger.standing(tablet, *node) == Standing::Lost;
    if view.is_changing() {
        let mut arrivals = view.arriving.iter().filter_map(|arrival| ledger.node_index(arrival.node));
        let replicas = ledger.replicas(tablet);
        let cannot_end = 2 * replicas.iter().filter(|node| is_lost(node)).count() >= replicas.len();
        return cannot_end || arrivals.any(|node| is_lost(&node)) || !has_quorum(ledger, tablet);
    }
    let replicas = ledger.replicas(tablet);
    replicas.iter().any(is_lost)
        || view.wanted.total() as usize != replicas.len()
        || !matches_scopes(ledger, tablet)
        || !has_quorum(ledger, tablet)
}

fn has_quorum(ledger: &Ledger<'_>, tablet: u32) -> bool {
    let (live, voters) = ledger.voters(tablet);
    live > voters / 2
}

/// Whether every part of the replication has exactly the wanted number.
fn matches_scopes(ledger: &Ledger<'_>, tablet: u32) -> bool {
    if matches!(&*ledger.tablets[tablet as usize].view.wanted, Replication::Anywhere(_)) {
        return true;
    }
    let replicas = ledger.replicas(tablet);
    ledger.scopes(tablet).iter().all(|(scope, wanted)| {
        let in_scope = replicas.iter().filter(|node| is_in_scope(ledger, **node, *scope));
        in_scope.count() == *wanted as usize
    })
}

fn is_in_scope(ledger: &Ledger<'_>, node: u32, scope: Scope) -> bool {
    let zone = ledger.nodes[node as usize].zone;
    match scope {
        Scope::Anywhere => true,
        // A node that is no longer a member is in no data centre.
        _ => (zone as usize) < ledger.zones.len() && ledger.is_in_scope(zone, scope),
    }
}

/// Returns whether the tablet waits for nodes that are busy.
fn repair(ledger: &mut Ledger<'_>, tablet: u32) -> bool {
    let before = ledger.replicas(tablet).to_vec();
    let is_lost = |ledger: &Ledger<'_>, node: u32| ledger.standing(tablet, node) == Standing::Lost;
    let had_lost = before.iter().any(|node| is_lost(ledger, *node));
    let mut plan =
        Repair { wanted: before.iter().copied().filter(|node| !is_lost(ledger, *node)).collect(), ..Repair::default() };
    fill_scopes(ledger, tablet, &before, &mut plan);
    if let Some(stalled) = plan.stalled {
        ledger.stalled.push(stalled);
    }
    if plan.waits {
        return true;
    }
    let Some(sources) = ledger.sources(tablet, plan.copies) else { return true };
    let has_new = plan.wanted.iter().any(|node| !before.contains(node));
    if plan.is_short {
        keep_lost(ledger, tablet, &before, &mut plan.wanted);
    } else {
        drop_surplus(ledger, tablet, &mut plan.wanted);
    }
    let is_same = plan.wanted.len() == before.len() && plan.wanted.iter().all(|node| before.contains(node));
    // Without a majority that answers the group could not change again: it waits until suspect nodes answer or are lost.
    let has_majority = 2 * answering(ledger, tablet, &plan.wanted) > plan.wanted.len();
    if is_same || !has_majority {
        return false;
    }
    let reason = match (had_lost, has_new) {
        (true, _) => Reason::Lost,
        (false, true) => Reason::Missing,
        (false, false) => Reason::Surplus,
    };
    ledger.place(tablet, plan.wanted, &sources, reason);
    false
}

/// Adds to the plan what each part of the replication lacks.
fn fill_scopes(ledger: &Ledger<'_>, tablet: u32, before: &[u32], plan: &mut Repair) {
    let view = ledger.tablets[tablet as usize].view;
    let leaving: Vec<u32> = view.leaving.iter().filter_map(|node| ledger.node_index(*node)).collect();
    let mut taken: Vec<u32> = before.iter().chain(&leaving).copied().collect();
    for (scope, wanted) in ledger.scopes(tablet) {
        let has = |plan: &Repair| plan.wanted.iter().filter(|node| is_in_scope(ledger, **node, scope)).count();
        let back = leaving.iter().copied().filter(|node| {
            is_in_scope(ledger, *node, scope)
                && !plan.wanted.contains(node)
                && ledger.standing(tablet, *node) == Standing::Live
        });
        let back: Vec<u32> = back.take((wanted as usize).saturating_sub(has(plan))).collect();
        plan.wanted.extend(back);
        for _ in has(plan)..wanted as usize {
            let wish = Wish { taken: &taken, staying: &plan.wanted, scope, most_in_zone: u32::MAX };
            match ledger.pick(tablet, &wish) {
                Pick::Node(node) => {
                    plan.wanted.push(node);
                    taken.push(node);
                    plan.copies += 1;
                }
                Pick::Wait => {
                    plan.waits = true;
                    return;
                }
                Pick::TooFewNodes => {
                    plan.is_short = true;
                    let scopes = ledger.scopes(tablet);
                    let is_placed = |node: &&u32| scopes.iter().any(|(scope, _)| is_in_scope(ledger, **node, *scope));
                    let has = plan.wanted.iter().filter(is_placed).count() as u32;
                    let wanted = view.wanted.total();
                    plan.stalled = Some(Stalled::TooFewNodes { tablet: view.id, wanted, has });
                    break;
                }
                Pick::NoRoom => {
                    plan.is_short = true;
                    plan.stalled = Some(Stalled::NoRoom { tablet: view.id, bytes: view.bytes });
                    break;
                }
            }
        }
    }
}

/// Keeps lost replicas, as the last, as long as the tablet has too few without them, and the others are a majority with
/// them: a lost node that was to be a voter is none yet, and must not become one that a quorum needs.
fn keep_lost(ledger: &Ledger<'_>, tablet: u32, before: &[u32], wanted: &mut Vec<u32>) {
    let total = ledger.tablets[tablet as usize].view.wanted.total() as usize;
    let most = total.min((2 * answering(ledger, tablet, wanted)).saturating_sub(1));
    let room = most.saturating_sub(wanted.len());
    let lost = before.iter().copied().filter(|node| ledger.standing(tablet, *node) == Standing::Lost);
    wanted.extend(lost.take(room));
}

/// How many of these nodes answer.
fn answering(ledger: &Ledger<'_>, tablet: u32, nodes: &[u32]) -> usize {
    let answers = |node: &&u32| matches!(ledger.standing(tablet, **node), Standing::Live | Standing::Draining);
    nodes.iter().filter(answers).count()
}

/// Drops surplus replicas: first outside the data centres of the replication, then on draining nodes, then from the
/// zones with the most replicas, from the most loaded nodes. Nothing is dropped while a replica's node is suspect: it
/// is not known yet which replica will be lost.
fn drop_surplus(ledger: &Ledger<'_>, tablet: u32, wanted: &mut Vec<u32>) {
    if wanted.iter().any(|node| ledger.standing(tablet, *node) == Standing::Suspect) {
        return;
    }
    let scopes = ledger.scopes(tablet);
    if scopes.iter().all(|(_, wanted)| *wanted == 0) {
        return;
    }
    let is_placed = |node: u32| scopes.iter().any(|(scope, _)| is_in_scope(ledger, node, *scope));
    wanted.retain(|node| is_placed(*node));
    for (scope, most) in scopes {
        loop {
            let here: Vec<u32> = wanted.iter().copied().filter(|node| is_in_scope(ledger, *node, scope)).collect();
            if here.len() <= most as usize {
                break;
            }
            let worst = here.iter().copied().max_by(|a, b| {
                let rank = |node: u32| {
                    let state = &ledger.nodes[node as usize];
                    let is_draining = state.state == NodeState::Draining;
                    (is_draining, ledger.count_in_zone(&here, state.zone), wanted.first() != Some(&node))
                };
                let load = |node: u32| ledger.nodes[node as usize].load(Measure::Bytes);
                rank(*a).cmp(&rank(*b)).then(load(*a).total_cmp(&load(*b))).then(Reverse(a).cmp(&Reverse(b)))
            });
            wanted.retain(|node| Some(*node) != worst);
        }
    }
}
