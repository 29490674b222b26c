//! Drains: the replicas of a draining node move to other nodes.
//!
//! Always true: a replica leaves in the same change in which its successor comes; the successor is in the best
//! available zone, even if that is worse than the drained node's. A tablet without a possible node stays where it is,
//! and that is reported. Leaders leave first: the rule for leaders moves them off draining nodes at once, as that needs
//! no copy.

use super::holdings::Standing;
use super::ledger::{Ledger, Pick, Wish};
use super::view::{NodeState, Reason, Stalled};

pub(super) fn run(ledger: &mut Ledger<'_>) {
    let draining: Vec<u32> = (0..ledger.nodes.len() as u32)
        .filter(|node| ledger.nodes[*node as usize].state == NodeState::Draining)
        .collect();
    for node in draining {
        for tablet in ledger.nodes[node as usize].tablets.clone() {
            if ledger.may_change(tablet) {
                empty(ledger, tablet);
            }
        }
    }
}

/// Replaces all replicas of the tablet that are on draining nodes, as far as other nodes are available.
fn empty(ledger: &mut Ledger<'_>, tablet: u32) {
    let replicas = ledger.replicas(tablet).to_vec();
    let mut wanted: Vec<u32> =
        replicas.iter().copied().filter(|node| ledger.standing(tablet, *node) != Standing::Draining).collect();
    let mut taken = replicas.clone();
    let mut staying = Vec::new();
    let mut copies = 0;
    let going: Vec<u32> =
        replicas.iter().copied().filter(|node| ledger.standing(tablet, *node) == Standing::Draining).collect();
    for node in going {
        let view = ledger.tablets[tablet as usize].view;
        let scope = ledger.scope_at(tablet, node);
        let wish = Wish { taken: &taken, staying: &wanted, scope, most_in_zone: u32::MAX };
        match ledger.pick(tablet, &wish) {
            Pick::Node(to) => {
                wanted.push(to);
                taken.push(to);
                copies += 1;
            }
            Pick::Wait => return,
            Pick::TooFewNodes => {
                staying.push(node);
                let has = wanted.len() as u32;
                ledger.stalled.push(Stalled::TooFewNodes { tablet: view.id, wanted: view.wanted.total(), has });
            }
            Pick::NoRoom => {
                staying.push(node);
                ledger.stalled.push(Stalled::NoRoom { tablet: view.id, bytes: view.bytes });
            }
        }
    }
    if copies == 0 {
        return;
    }
    let Some(sources) = ledger.sources(tablet, copies) else { return };
    wanted.extend(staying);
    ledger.place(tablet, wanted, &sources, Reason::Drain);
}
