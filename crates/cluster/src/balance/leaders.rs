//! Leaders: off draining nodes and nodes that are to lead nothing, into the preferred zones, and evenly over nodes, in
//! total and for each table.
//!
//! Always true: only a live voter that stays becomes the preferred leader. A suspect node stays preferred, as it may be
//! back in a moment and others lead meanwhile. Each change reduces the sum over nodes of squared numbers of leaders or,
//! that being equal, the same sum for the table, so the rule terminates. Where no single change helps, a chain of
//! changes does: the node with the most leaders passes one to a node that passes another one on.
//!
//! Leaders use processors, not disks, so nodes with unequal disks lead equally many tablets, as far as they have
//! replicas.

use super::ledger::Ledger;
use super::view::{NodeState, Reason};
use std::collections::BTreeSet;

/// The most chains that are searched for in one pass.
const CHAINS: usize = 64;

pub(super) fn run(ledger: &mut Ledger<'_>) {
    let mut budget = ledger.view.limits.leader_changes as usize;
    leave(ledger, &mut budget);
    let mut choices = choices(ledger);
    level(ledger, &mut choices, &mut budget);
    chains(ledger, &mut choices, &mut budget);
}

/// The replicas that may lead the tablet instead of the first: live voters, in preferred zones if there are any.
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

/// Moves leaders off draining nodes first, then into preferred zones.
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

/// For each node, the tablets whose leadership it could transfer, each with a node that could take it. The candidates
/// are fixed for the pass; how many tablets they lead is not.
type Choices = Vec<Vec<(u32, u32)>>;

fn choices(ledger: &Ledger<'_>) -> Choices {
    let mut choices = vec![Vec::new(); ledger.nodes.len()];
    for tablet in 0..ledger.tablets.len() as u32 {
        let state = &ledger.tablets[tablet as usize];
        let first = ledger.replicas(tablet).first().filter(|_| !state.is_done && !state.view.is_changing());
        if let Some(first) = first.filter(|first| ledger.nodes[**first as usize].state == NodeState::Live) {
            let others = candidates(ledger, tablet).filter(|node| node != first);
            choices[*first as usize].extend(others.map(|to| (tablet, to)));
        }
    }
    choices
}

/// Single changes, from the nodes with the most leaders.
fn level(ledger: &mut Ledger<'_>, choices: &mut Choices, budget: &mut usize) {
    let mut most: BTreeSet<(u32, u32)> =
        (0..ledger.nodes.len() as u32).map(|node| (leaders(ledger, node), node)).collect();
    while let Some((_, from)) = most.pop_last() {
        if *budget == 0 {
            return;
        }
        let Some((tablet, to)) = best_change(ledger, &choices[from as usize], from) else { continue };
        if most.remove(&(leaders(ledger, to), to)) {
            most.insert((leaders(ledger, to) + 1, to));
        }
        transfer(ledger, choices, tablet, from, to);
        most.insert((leaders(ledger, from), from));
        *budget -= 1;
    }
}

fn transfer(ledger: &mut Ledger<'_>, choices: &mut Choices, tablet: u32, from: u32, to: u32) {
    ledger.lead(tablet, to, Reason::Leaders);
    choices[from as usize].retain(|(other, _)| *other != tablet);
}

/// The change that evens out most: to a node that leads at least two fewer, or one fewer if that is better for the
/// table.
fn best_change(ledger: &Ledger<'_>, choices: &[(u32, u32)], from: u32) -> Option<(u32, u32)> {
    let here = leaders(ledger, from);
    let mut best: Option<((u32, i64), u32, u32)> = None;
    for (tablet, to) in choices.iter().copied() {
        let difference = here.saturating_sub(leaders(ledger, to));
        if difference == 0 || best.is_some_and(|((most, _), ..)| difference < most) {
            continue;
        }
        let table = &ledger.tables[ledger.tablets[tablet as usize].table as usize];
        let of_table = i64::from(table.share(from).leaders) - i64::from(table.share(to).leaders);
        let is_better = difference >= 2 || of_table >= 2;
        if is_better && best.is_none_or(|(worth, ..)| (difference, of_table) > worth) {
            best = Some(((difference, of_table), tablet, to));
        }
    }
    best.map(|(_, tablet, to)| (tablet, to))
}

/// Where no single change helps: the shortest chains of changes from nodes that lead most to ones that lead at least two fewer.
fn chains(ledger: &mut Ledger<'_>, choices: &mut Choices, budget: &mut usize) {
    let mut search = Search { came_by: vec![None; ledger.nodes.len()], is_spent: vec![false; ledger.nodes.len()] };
    for _ in 0..CHAINS {
        // A chain has at least two changes.
        let found = if *budget < 2 { None } else { search.next_chain(ledger, choices) };
        let Some(chain) = found.filter(|chain| chain.len() <= *budget) else { return };
        *budget -= chain.len();
        for (tablet, from, to) in chain {
            transfer(ledger, choices, tablet, from, to);
        }
    }
}

/// The search for chains in one pass.
struct Search {
    /// For the nodes reached from the present start: by which tablet, and from which node.
    came_by: Vec<Option<(u32, u32)>>,
    /// Nodes that were searched without success: every node reachable from them leads at most one fewer than the start
    /// did, or more. That remains so, as later starts lead no more than that one, and chains go through none of these
    /// nodes and only remove choices.
    is_spent: Vec<bool>,
}

impl Search {
    fn next_chain(&mut self, ledger: &Ledger<'_>, choices: &Choices) -> Option<Vec<(u32, u32, u32)>> {
        let able = |node: &u32| {
            let node = &ledger.nodes[*node as usize];
            node.state == NodeState::Live && node.may_lead
        };
        let mut starts: Vec<u32> = (0..ledger.nodes.len() as u32).filter(able).collect();
        let fewest = starts.iter().map(|node| leaders(ledger, *node)).min()?;
        starts.retain(|node| leaders(ledger, *node) >= fewest + 2 && !self.is_spent[*node as usize]);
        starts.sort_by_key(|node| std::cmp::Reverse(leaders(ledger, *node)));
        starts.into_iter().find_map(|start| self.chain_from(ledger, choices, start))
    }

    fn chain_from(&mut self, ledger: &Ledger<'_>, choices: &Choices, start: u32) -> Option<Vec<(u32, u32, u32)>> {
        if self.is_spent[start as usize] {
            return None;
        }
        let most = leaders(ledger, start).checked_sub(2)?;
        let mut reached = vec![start];
        let mut at = 0;
        while let Some(from) = reached.get(at).copied() {
            at += 1;
            for (tablet, to) in choices[from as usize].iter().copied() {
                if to == start || self.is_spent[to as usize] || self.came_by[to as usize].is_some() {
                    continue;
                }
                self.came_by[to as usize] = Some((tablet, from));
                reached.push(to);
                if leaders(ledger, to) <= most {
                    let chain = self.trace(start, to);
                    reached.into_iter().for_each(|node| self.came_by[node as usize] = None);
                    return Some(chain);
                }
            }
        }
        for node in reached {
            self.came_by[node as usize] = None;
            self.is_spent[node as usize] = true;
        }
        None
    }

    fn trace(&self, start: u32, end: u32) -> Vec<(u32, u32, u32)> {
        let mut chain = Vec::new();
        let mut at = end;
        while at != start {
            let (tablet, from) = self.came_by[at as usize].expect("every node of the chain was reached");
            chain.push((tablet, from, at));
            at = from;
        }
        chain
    }
}
