//! The balancer: the placement of replicas and preferred leaders, as a pure function of the state of the cluster.
//!
//! [`balance`] turns a [`View`] into [`Action`]s, a few at a time: the caller carries them out, and calls it again with
//! a new view, until there are none. [`progress()`] says how much work that is. The catalog's leader runs it on the
//! live cluster, `diorite plan` on an imagined one, tests on a thousand nodes.
//!
//! The rules, in order, one module each: `repair` (lost, missing and surplus replicas), `zones` (replicas that share a zone and need not),
//! `drain` (nodes to be emptied), `spread` (bytes and replicas per node, in proportion to the disks, as a whole and per table), `leaders`.
//!
//! Always true:
//! - It is a function of the view: no clock, no randomness, no state. Equal views give equal actions.
//! - It terminates. Every action of `spread` reduces a sum of squares, every one of `zones` and `drain` the number of
//!   misplaced replicas, and no later rule undoes an action of an earlier one.
//! - One change at a time per tablet: a tablet whose members are changing is left alone, unless the node that it was
//!   being copied to is lost. A tablet that is being split or merged is left alone until that has ended.
//! - No action leaves a tablet with fewer live voters or fewer zones than before it was carried out; a group without a
//!   quorum is left alone.
//! - Nothing is placed on a node that is suspect, dead or draining, on a failed disk, or beyond a disk's soft limit; no
//!   node receives or sends more replicas at once than [`Limits`] allow.
//! - While a repair waits for a busy node, no replica moves for a lesser reason.
//!
//! Left out: which disk of a node a replica goes to (the node chooses by free bytes, then by count); moves between the
//! disks of one node; load other than bytes and counts.

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

/// The next actions. Empty: there are none, or none until something that is under way has ended.
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
