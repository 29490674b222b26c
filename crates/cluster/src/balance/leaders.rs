//! Leaders: off draining nodes and those that are to lead nothing, into the preferred zones, and evenly over nodes, as a whole and table by table.
//!
//! Always true: only a live voter that stays is made the preferred leader; a suspect node keeps its preference, as it may be back in a moment and others
//! lead meanwhile. Each change makes the sum over nodes of squared numbers of leaders smaller or, that being equal, the same sum per table, so
//! there is an end. Where no single change helps, a chain of them does: the fullest node hands a tablet to one that hands one on.
//!
//! Leaders cost processors, not disk, so nodes of unequal disks lead equally many, as far as they have replicas.

use super::ledger::Ledger;
use super::view::{NodeState, Reason};
use std::collections::{BTreeSet, VecDeque};

/// Chains that are looked for in one pass.
const CHAINS: usize = 64;

pub(super) fn run(ledger: &mut Ledger<'_>) {
    let mut budget = ledger.view.limits.leader_changes as usize;
    leave(ledger, &mut budget);
    level(ledger, &mut budget);
}

/// The replicas that may lead the tablet in place of the first: live voters, those in preferred zones if there are any.
fn candidates(ledger: &Ledger<'_>, tablet: u32) -> impl Iterator<Item = u32> {
    let able = move |node: &&u32| ledger.can_lead(tablet, **node);
    let replicas = ledger.replicas(tablet).iter();
    let has_preferred = replicas.clone().filter(able).any(|node| ledger.zone_of(*node).is_preferred);
    let wanted = move |node: &u32| !has_preferred || ledger.zone_of(*node).is_preferred;
    replicas.filter(able).copied().filter(wanted)
}

fn leaders(ledger: &Ledger<'_>, node: u32) -> u32 {
    ledger.nodes[node as usize].leaders
}

/// Off draining nodes first, then into preferred zones.
fn leave(ledger: &mut Ledger<'_>, budget: &mut usize) {
    for reason in [Reason::Drain, Reason::LeaderZone] {
        for tablet in 0..ledger.tablets.len() as u32 {
            if *budget == 0 {
                return;
            }
            let state = &ledger.tablets[tablet as usize];
            let Some(first) = ledger.replicas(tablet).first().copied() else { continue };
            let node = &ledger.nodes[first as usize];
            let must_leave = match reason {
                Reason::Drain => node.state == NodeState::Draining || (node.state == NodeState::Live && !node.may_lead),
                _ => node.state == NodeState::Live && !ledger.zone_of(first).is_preferred,
            };
            if !must_leave || state.is_done || state.view.is_changing() {
                continue;
            }
            let best = candidates(ledger, tablet).min_by_key(|node| (leaders(ledger, *node), *node));
            let helps = |node: &u32| reason == Reason::Drain || ledger.zone_of(*node).is_preferred;
            if let Some(leader) = best.filter(helps) {
                ledger.lead(tablet, leader, reason);
                *budget -= 1;
            }
        }
    }
}

/// The tablets that each node is the preferred leader of and could hand over.
fn led(ledger: &Ledger<'_>) -> Vec<Vec<u32>> {
    let mut led = vec![Vec::new(); ledger.nodes.len()];
    for tablet in 0..ledger.tablets.len() as u32 {
        let state = &ledger.tablets[tablet as usize];
        if let Some(first) = ledger.replicas(tablet).first().filter(|_| !state.is_done && !state.view.is_changing()) {
            let is_live = ledger.nodes[*first as usize].state == NodeState::Live;
            led[*first as usize].extend(is_live.then_some(tablet));
        }
    }
    led
}

fn level(ledger: &mut Ledger<'_>, budget: &mut usize) {
    let mut led = led(ledger);
    let mut most: BTreeSet<(u32, u32)> =
        (0..ledger.nodes.len() as u32).map(|node| (leaders(ledger, node), node)).collect();
    while let Some((_, from)) = most.pop_last() {
        if *budget == 0 {
            return;
        }
        let Some((tablet, to)) = best_change(ledger, &led[from as usize], from) else { continue };
        if most.remove(&(leaders(ledger, to), to)) {
            most.insert((leaders(ledger, to) + 1, to));
        }
        hand_over(ledger, &mut led, tablet, from, to);
        most.insert((leaders(ledger, from), from));
        *budget -= 1;
    }
    for _ in 0..CHAINS {
        let Some(chain) = chain(ledger, &led).filter(|chain| chain.len() <= *budget) else { return };
        *budget -= chain.len();
        for (tablet, from, to) in chain {
            hand_over(ledger, &mut led, tablet, from, to);
        }
    }
}

fn hand_over(ledger: &mut Ledger<'_>, led: &mut [Vec<u32>], tablet: u32, from: u32, to: u32) {
    ledger.lead(tablet, to, Reason::Leaders);
    led[from as usize].retain(|other| *other != tablet);
}

/// The change that evens out most: to a node that leads at least two fewer, or one fewer if that is better for the table.
fn best_change(ledger: &Ledger<'_>, led: &[u32], from: u32) -> Option<(u32, u32)> {
    let mut best: Option<((u32, i64), u32, u32)> = None;
    for tablet in led.iter().copied() {
        let table = &ledger.tables[ledger.tablets[tablet as usize].table as usize];
        let here = i64::from(table.share(from).leaders);
        for to in candidates(ledger, tablet).filter(|node| *node != from) {
            let difference = leaders(ledger, from).saturating_sub(leaders(ledger, to));
            if difference == 0 {
                continue;
            }
            let of_table = here - i64::from(table.share(to).leaders);
            let is_better = difference >= 2 || of_table >= 2;
            if is_better && best.is_none_or(|(worth, ..)| (difference, of_table) > worth) {
                best = Some(((difference, of_table), tablet, to));
            }
        }
    }
    best.map(|(_, tablet, to)| (tablet, to))
}

/// The shortest chain of changes from a node that leads most to one that leads at least two fewer.
fn chain(ledger: &Ledger<'_>, led: &[Vec<u32>]) -> Option<Vec<(u32, u32, u32)>> {
    let able = |node: &u32| {
        let node = &ledger.nodes[*node as usize];
        node.state == NodeState::Live && node.may_lead
    };
    let mut starts: Vec<u32> = (0..ledger.nodes.len() as u32).filter(able).collect();
    let fewest = starts.iter().map(|node| leaders(ledger, *node)).min()?;
    starts.retain(|node| leaders(ledger, *node) >= fewest + 2);
    starts.sort_by_key(|node| std::cmp::Reverse(leaders(ledger, *node)));
    starts.into_iter().take(CANDIDATE_STARTS).find_map(|start| chain_from(ledger, led, start))
}

/// Nodes from which chains are looked for, those that lead most.
const CANDIDATE_STARTS: usize = 8;

fn chain_from(ledger: &Ledger<'_>, led: &[Vec<u32>], start: u32) -> Option<Vec<(u32, u32, u32)>> {
    let mut came_by: Vec<Option<(u32, u32)>> = vec![None; ledger.nodes.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for tablet in led[at as usize].iter().copied() {
            for to in candidates(ledger, tablet) {
                if to == start || came_by[to as usize].is_some() {
                    continue;
                }
                came_by[to as usize] = Some((tablet, at));
                if leaders(ledger, to) + 2 <= leaders(ledger, start) {
                    return Some(trace(&came_by, start, to));
                }
                queue.push_back(to);
            }
        }
    }
    None
}

fn trace(came_by: &[Option<(u32, u32)>], start: u32, end: u32) -> Vec<(u32, u32, u32)> {
    let mut chain = Vec::new();
    let mut at = end;
    while at != start {
        let (tablet, from) = came_by[at as usize].expect("every node of the chain was reached");
        chain.push((tablet, from, at));
        at = from;
    }
    chain
}
