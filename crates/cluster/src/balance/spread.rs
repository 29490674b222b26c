//! Spread: nodes fill in proportion to their disks, by bytes and by number of replicas, in total and for each table.
//!
//! The rule reduces a sum over nodes: squared bytes, squared number of replicas, and squared bytes of each table, each
//! divided by the node's weight (see `Ledger::gain`). Three sweeps look for moves that do so: from the most to the
//! least loaded nodes by bytes, by count, and for each table.
//!
//! Always true:
//! - Every move reduces the sum, so the rule terminates, and no move is undone while the view stays as it is.
//! - A move needs a difference between its two nodes that is worth the copy: [`TOLERANCE`] ([`COUNT_TOLERANCE`]) of the
//!   average load, and more than the replica itself accounts for. Sizes may vary within that without any move.
//! - Tablets with a replica on a suspect or draining node do not move.
//! - A move never takes a replica to a zone that then holds more of the tablet's replicas than the zone it came from
//!   held.
//! - If the least loaded node is busy, only a node with less than half of the difference to the most loaded one may
//!   take its place: others would have to pass the replica on.
//! - Among moves that are about as good, those from the fuller disks of a node come first.

use super::holdings::Share;
use super::ledger::{CANDIDATES, Ledger};
use super::ranking::{Measure, key};
use super::view::{NodeState, Reason};
use std::collections::BTreeSet;

/// Differences in bytes between two nodes below this share of the average load are ignored. Five times that is what an
/// operator may notice as uneven.
const TOLERANCE: f64 = 0.02;

/// The same for numbers of replicas, which differ where sizes do: nodes that are even by bytes are not made uneven for
/// their counts.
const COUNT_TOLERANCE: f64 = 0.1;

/// The least reduction of the sum of squares that is worth a copy. With average replicas on average nodes, moving one
/// to a node with two fewer reduces it by more than 5.
const LEAST_GAIN: f64 = 0.5;

/// How many possible moves off a node are compared.
const COMPARED: usize = 64;

/// How many zones are considered for moves off a node: its own and the least loaded.
const ZONES: usize = 16;

/// How much the fill level of its disk, relative to its node, may add to the gain of a move, as a share of the gain.
const DISK_WEIGHT: f64 = 0.5;

/// A possible move.
#[derive(Clone, Copy)]
struct Move {
    tablet: u32,
    from: u32,
    to: u32,
    worth: f64,
}

pub(super) fn run(ledger: &mut Ledger<'_>) {
    level(ledger, Measure::Bytes);
    level(ledger, Measure::Count);
    level_tables(ledger);
}

/// Moves replicas from the most to the least loaded nodes.
fn level(ledger: &mut Ledger<'_>, by: Measure) {
    let mut fullest: BTreeSet<(u64, u32)> = (0..ledger.nodes.len() as u32)
        .filter(|node| ledger.nodes[*node as usize].state == NodeState::Live)
        .map(|node| (key(ledger.nodes[node as usize].load(by)), node))
        .collect();
    while let Some((_, from)) = fullest.pop_last() {
        if !ledger.ranking.is_any_open() {
            return;
        }
        let Some(found) = best_move(ledger, from, by) else { continue };
        let before = key(ledger.nodes[found.to as usize].load(by));
        if carry_out(ledger, found, reason(by)) {
            if fullest.remove(&(before, found.to)) {
                fullest.insert((key(ledger.nodes[found.to as usize].load(by)), found.to));
            }
            fullest.insert((key(ledger.nodes[from as usize].load(by)), from));
        }
    }
}

fn reason(by: Measure) -> Reason {
    match by {
        Measure::Bytes => Reason::Bytes,
        Measure::Count => Reason::Count,
    }
}

fn carry_out(ledger: &mut Ledger<'_>, Move { tablet, from, to, .. }: Move, reason: Reason) -> bool {
    let Some(sources) = ledger.sources(tablet, 1) else { return false };
    let replicas = ledger.replicas(tablet).iter().copied();
    let wanted = replicas.filter(|node| *node != from).chain([to]).collect();
    ledger.place(tablet, wanted, &sources, reason);
    true
}

/// A zone to which replicas may move: the least load of its nodes, and of its open nodes.
struct Target {
    zone: u32,
    least: f64,
    least_open: f64,
}

impl Target {
    /// The greatest load with which a node may receive something from one that has `load`.
    fn ceiling(&self, load: f64) -> f64 {
        (load + self.least) / 2.0
    }
}

/// The zones with nodes to which a move off a node of that load could help, its own among them.
fn targets(ledger: &Ledger<'_>, from: u32, load: f64, by: Measure) -> Vec<Target> {
    let home = ledger.nodes[from as usize].zone;
    let mut targets: Vec<Target> = (0..ledger.zones.len() as u32)
        .filter_map(|zone| {
            let (least, _) = ledger.ranking.accepting(zone, by).next()?;
            let (least_open, _) = ledger.ranking.open(zone, by).next()?;
            Some(Target { zone, least, least_open })
        })
        .filter(|target| target.least_open <= target.ceiling(load) && is_worth_it(ledger, load, target.least_open, by))
        .collect();
    targets.sort_by(|a, b| {
        (a.zone != home).cmp(&(b.zone != home)).then(a.least.total_cmp(&b.least)).then(a.zone.cmp(&b.zone))
    });
    targets.truncate(ZONES);
    targets
}

fn is_worth_it(ledger: &Ledger<'_>, from: f64, to: f64, by: Measure) -> bool {
    let tolerance = match by {
        Measure::Bytes => TOLERANCE,
        Measure::Count => COUNT_TOLERANCE,
    };
    from - to > tolerance * ledger.mean_load
}

/// The best of the first possible moves off a node.
fn best_move(ledger: &Ledger<'_>, from: u32, by: Measure) -> Option<Move> {
    let load = ledger.nodes[from as usize].load(by);
    let targets = targets(ledger, from, load, by);
    if targets.is_empty() {
        return None;
    }
    let mut best: Option<Move> = None;
    let mut compared = 0;
    for tablet in ledger.nodes[from as usize].tablets.iter().copied() {
        if compared >= COMPARED {
            break;
        }
        if !ledger.is_at_rest(tablet) || ledger.sources(tablet, 1).is_none() {
            continue;
        }
        for target in targets.iter().filter(|target| is_zone_free(ledger, tablet, from, target.zone)) {
            let ceiling = target.ceiling(load);
            let open = ledger.ranking.open(target.zone, by);
            let worthy = open.take_while(|(there, _)| *there <= ceiling && is_worth_it(ledger, load, *there, by));
            let able = worthy.filter(|(_, node)| can_hold(ledger, tablet, *node));
            for (there, to) in able.take(CANDIDATES) {
                let size = size_by(ledger, tablet, by);
                let eases = load - there > size * (1.0 / weight(ledger, from) + 1.0 / weight(ledger, to)) / 2.0;
                let gain = ledger.gain(tablet, from, to);
                if !eases || gain < LEAST_GAIN {
                    continue;
                }
                compared += 1;
                let worth = gain * (1.0 + DISK_WEIGHT * ledger.disk_excess(tablet, from));
                if best.is_none_or(|best| worth > best.worth) {
                    best = Some(Move { tablet, from, to, worth });
                }
            }
        }
    }
    best
}

fn size_by(ledger: &Ledger<'_>, tablet: u32, by: Measure) -> f64 {
    match by {
        Measure::Bytes => ledger.tablets[tablet as usize].size,
        Measure::Count => 1.0,
    }
}

fn weight(ledger: &Ledger<'_>, node: u32) -> f64 {
    ledger.nodes[node as usize].weight
}

fn can_hold(ledger: &Ledger<'_>, tablet: u32, node: u32) -> bool {
    !ledger.replicas(tablet).contains(&node) && ledger.has_room(tablet, node)
}

/// Whether zones are used as well with a replica in `to` instead of on `from`, and the replication allows it there.
fn is_zone_free(ledger: &Ledger<'_>, tablet: u32, from: u32, to: u32) -> bool {
    let home = ledger.nodes[from as usize].zone;
    if to == home {
        return true;
    }
    let replicas = ledger.replicas(tablet);
    ledger.is_in_scope(to, ledger.scope_at(tablet, from))
        && ledger.count_in_zone(replicas, to) < ledger.count_in_zone(replicas, home)
}

/// Moves replicas of each table from the nodes with the most of it to those with the least.
fn level_tables(ledger: &mut Ledger<'_>) {
    for table in 0..ledger.tables.len() as u32 {
        if !ledger.ranking.is_any_open() {
            return;
        }
        level_table(ledger, table);
    }
}

/// A zone's nodes by their share of one table; among equals the least loaded first.
type Shares = BTreeSet<(u64, u64, u32)>;

fn level_table(ledger: &mut Ledger<'_>, table: u32) {
    let state = &ledger.tables[table as usize];
    if state.shares.iter().all(|share| share.replicas < 2) {
        return;
    }
    let weight_of_all: f64 = ledger.nodes.iter().filter(|node| node.accepts).map(|node| node.weight).sum();
    let size: f64 = state.shares.iter().map(|share| share.size).sum();
    let tolerance = TOLERANCE * size / weight_of_all;
    let mut zones: Vec<Option<Shares>> = std::iter::repeat_with(|| None).take(ledger.zones.len()).collect();
    let least: Vec<(f64, f64)> = (0..ledger.zones.len() as u32).map(|zone| least_shares(ledger, table, zone)).collect();
    for tablet in state.tablets.clone() {
        if !ledger.is_at_rest(tablet) {
            continue;
        }
        for from in ledger.replicas(tablet).to_vec() {
            let share = ledger.tables[table as usize].share(from);
            if share.replicas < 2 || ledger.nodes[from as usize].state != NodeState::Live {
                continue;
            }
            let load = share.size / weight(ledger, from);
            let zone_count = ledger.zones.len() as u32;
            let free = |zone: &u32| is_zone_free(ledger, tablet, from, *zone);
            // While a table is levelled, only the greatest shares shrink: a move that is not worth it now will not be
            // later.
            let worthy = |zone: &u32| {
                let (least, least_open) = least[*zone as usize];
                load - least > tolerance && least_open <= (load + least) / 2.0
            };
            let found = (0..zone_count).filter(worthy).filter(free).take(ZONES).find_map(|zone| {
                let shares = zones[zone as usize].get_or_insert_with(|| shares_of(ledger, table, zone));
                table_move(ledger, shares, Move { tablet, from, to: from, worth: 0.0 }, load, tolerance)
            });
            let Some(found) = found else { continue };
            let touched = [found.from, found.to];
            touched.iter().for_each(|node| update_shares(ledger, table, &mut zones, *node, false));
            let done = carry_out(ledger, found, Reason::Table);
            touched.iter().for_each(|node| update_shares(ledger, table, &mut zones, *node, true));
            if done {
                break;
            }
        }
    }
}

/// The least share of the table on an accepting node of the zone, and on an open one.
fn least_shares(ledger: &Ledger<'_>, table: u32, zone: u32) -> (f64, f64) {
    let shares = ledger.tables[table as usize].shares.iter();
    let here = shares.filter(|share| {
        let node = &ledger.nodes[share.node as usize];
        node.zone == zone && node.accepts
    });
    let of = |share: &Share| share.size / weight(ledger, share.node);
    let least = |counted: (u32, f64), share: &Share| (counted.0 + 1, counted.1.min(of(share)));
    let (holders, least_of_holders) = here.clone().fold((0, f64::INFINITY), least);
    let (open_holders, least_of_open) =
        here.filter(|share| ledger.ranking.is_open(share.node)).fold((0, f64::INFINITY), least);
    let open = ledger.ranking.open(zone, Measure::Bytes).count() as u32;
    let has_none = |holders: u32, all: u32, least: f64| if holders < all { 0.0 } else { least };
    (
        has_none(holders, ledger.zones[zone as usize].accepting, least_of_holders),
        has_none(open_holders, open, least_of_open),
    )
}

fn shares_of(ledger: &Ledger<'_>, table: u32, zone: u32) -> Shares {
    let nodes = ledger.ranking.accepting(zone, Measure::Bytes);
    nodes.map(|(_, node)| share_entry(ledger, table, node)).collect()
}

fn share_entry(ledger: &Ledger<'_>, table: u32, node: u32) -> (u64, u64, u32) {
    let share = ledger.tables[table as usize].share(node).size / weight(ledger, node);
    (key(share), key(ledger.nodes[node as usize].load(Measure::Bytes)), node)
}

/// Removes a node from its zone's list, or adds it again, around a change of its loads.
fn update_shares(ledger: &Ledger<'_>, table: u32, zones: &mut [Option<Shares>], node: u32, is_in: bool) {
    let state = &ledger.nodes[node as usize];
    if let Some(Some(shares)) = zones.get_mut(state.zone as usize).filter(|_| state.accepts) {
        let entry = share_entry(ledger, table, node);
        if is_in {
            shares.insert(entry);
        } else {
            shares.remove(&entry);
        }
    }
}

/// The first node that should get a replica of the table.
fn table_move(ledger: &Ledger<'_>, shares: &Shares, found: Move, load: f64, tolerance: f64) -> Option<Move> {
    let Move { tablet, from, .. } = found;
    let ceiling = (load + f64::from_bits(shares.first()?.0)) / 2.0;
    let worthy = shares.iter().map(|(there, _, node)| (f64::from_bits(*there), *node)).take_while(|(there, to)| {
        let size = ledger.tablets[tablet as usize].size;
        let own_weight = size * (1.0 / weight(ledger, from) + 1.0 / weight(ledger, *to)) / 2.0;
        *there <= ceiling && load - there > tolerance.max(own_weight)
    });
    let able = worthy.filter(|(_, node)| ledger.ranking.is_open(*node) && can_hold(ledger, tablet, *node));
    let gains = able.take(CANDIDATES).filter(|(_, to)| ledger.gain(tablet, from, *to) >= LEAST_GAIN);
    let to = gains.map(|(_, to)| to).next()?;
    ledger.sources(tablet, 1)?;
    Some(Move { to, ..found })
}
