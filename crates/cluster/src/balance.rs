//! The balancer: which replica belongs where, as a pure function of what the cluster looks like.
//!
//! [`balance`] turns a [`View`] into [`Action`]s, a few at a time: whoever calls it carries them out, looks again, and calls it again, until there
//! is nothing left to do. [`progress()`] says how much that is. The catalog's leader runs it on the live cluster, `diorite plan` on a cluster that
//! does not exist, tests on a thousand nodes.
//!
//! The rules, in order, one module each: `repair` (lost, missing and surplus replicas), `zones` (replicas that share a zone and need not),
//! `drain` (nodes to be emptied), `spread` (bytes and replicas per node, in proportion to the disks, as a whole and per table), `leaders`.
//!
//! Always true:
//! - It is a function of the view: no clock, no randomness, no memory. Equal views give equal actions.
//! - It ends. Every action of `spread` lowers a sum of squares, every one of `zones` and `drain` the number of replicas that are in the wrong place, and
//!   no later rule undoes what an earlier one did.
//! - One change at a time per tablet: a tablet whose members are changing is left alone, unless the node that it was being copied to is lost.
//! - No action leaves a tablet with fewer live voters or fewer zones, when it is carried out, than before; without a quorum nothing is asked of a group.
//! - Nothing is placed on a node that is suspect, dead or draining, on a failed disk, or where it would pass a disk's soft limit; no node receives or
//!   sends more replicas at once than [`Limits`] allow.
//! - While a repair waits for a node that is busy, no replica moves for any lesser reason.
//!
//! Left out: which disk of a node a replica goes to (the node's choice: free bytes, then count); moves between the disks of one node; load other
//! than bytes and numbers.

mod drain;
mod holdings;
mod leaders;
mod ledger;
mod names;
mod progress;
mod ranking;
mod repair;
mod spread;
#[cfg(test)]
mod tests;
mod view;
mod zones;

pub use progress::{Activity, NodeProgress, Progress, progress};
pub use view::{Action, Arrival, DiskView, Limits, NodeState, NodeView, Reason, Stalled, TabletView, View};

use ledger::{Copies, Ledger};

/// What to do next. Empty: nothing, or nothing until something that is under way has ended.
pub fn balance(view: &View) -> Vec<Action> {
    let mut ledger = Ledger::new(view, Copies::Limited);
    apply_rules(&mut ledger);
    ledger.actions
}

/// Lets every rule add its actions to the ledger.
fn apply_rules(ledger: &mut Ledger<'_>) {
    let waits = repair::run(ledger);
    if ledger.view.paused {
        return;
    }
    if !waits {
        zones::run(ledger);
        drain::run(ledger);
        spread::run(ledger);
    }
    leaders::run(ledger);
}
