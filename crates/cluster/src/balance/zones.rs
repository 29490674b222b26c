//! Zones: the replicas of a tablet are in as many zones as there are, and as evenly as can be.
//!
//! Always true: a replica moves only from a zone into one that holds at least two fewer of the tablet's replicas, so the number of zones that hold
//! one never falls. Two replicas of a tablet in one zone are fine where there is no further zone with room (3 replicas in 2 zones: 2 and 1).
//! Only tablets that may be changed are touched.

use super::holdings::Standing;
use super::ledger::{Ledger, Pick, Wish};
use super::ranking::Measure;
use super::view::Reason;

pub(super) fn run(ledger: &mut Ledger<'_>) {
    for tablet in 0..ledger.tablets.len() as u32 {
        if shares_a_zone(ledger, tablet) && ledger.may_change(tablet) {
            spread(ledger, tablet);
        }
    }
}

fn shares_a_zone(ledger: &Ledger<'_>, tablet: u32) -> bool {
    let replicas = ledger.replicas(tablet);
    let zone = |node: &u32| ledger.nodes[*node as usize].zone;
    replicas.iter().enumerate().any(|(at, node)| replicas[..at].iter().any(|other| zone(other) == zone(node)))
}

fn spread(ledger: &mut Ledger<'_>, tablet: u32) {
    let replicas = ledger.replicas(tablet).to_vec();
    // Replicas on draining nodes leave anyway: they neither count for their zone nor move because of it.
    let staying: Vec<u32> =
        replicas.iter().copied().filter(|node| ledger.standing(tablet, *node) == Standing::Live).collect();
    let crowd = |node: u32| ledger.count_in_zone(&staying, ledger.nodes[node as usize].zone);
    let from = staying.iter().copied().max_by(|a, b| {
        let rank = |node: u32| (crowd(node), replicas.first() != Some(&node));
        let load = |node: u32| ledger.nodes[node as usize].load(Measure::Bytes);
        rank(*a).cmp(&rank(*b)).then(load(*a).total_cmp(&load(*b))).then(b.cmp(a))
    });
    let Some(from) = from else { return };
    let count = crowd(from);
    if count < 2 {
        return;
    }
    let rest: Vec<u32> = staying.iter().copied().filter(|node| *node != from).collect();
    let scope = ledger.scope_at(tablet, from);
    let wish = Wish { taken: &replicas, staying: &rest, scope, most_in_zone: count - 2 };
    let Pick::Node(to) = ledger.pick(tablet, &wish) else { return };
    let Some(sources) = ledger.sources(tablet, 1) else { return };
    let wanted = replicas.into_iter().filter(|node| *node != from).chain([to]).collect();
    ledger.place(tablet, wanted, &sources, Reason::Zones);
}
