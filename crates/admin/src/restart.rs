//! What `diorite admin restart-plan` takes, and the question that it asks. The plan is made by the node that is asked
//! (`diorite_control::restart`).
//!
//! Always true: a node whose process began after the restart did is not named as one to restart, however long the question
//! and its answer take. In return, a node whose process began before the restart did, by less than they took, may count as
//! restarted.

use crate::api::RestartPlan;

/// Arguments of `restart-plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct RestartArguments {
    /// When the restart of the cluster began, in seconds since 1970 (`date +%s`), by this machine's clock. Nodes whose
    /// process began later have been restarted. Not given: none has.
    #[arg(long, value_name = "SECONDS")]
    pub begun: Option<u64>,
    /// Wait until the next node may be restarted, or until all have been and the last one has recovered.
    #[arg(long)]
    pub wait: bool,
    /// Print only the id of the next node; ends with code 3 once all have been restarted.
    #[arg(long, conflicts_with = "json")]
    pub next: bool,
}

/// Asks for the plan; `elapsed_ms` is the time since the restart began, now; 0 if it has not.
///
/// The nodes say how long their processes have run some time after the question was written: a process that is younger
/// than the restart may then have run for longer than the question says. If that may be so of a node, the plan is asked
/// for again, with what the last answer took added to the time.
pub(crate) fn plan<E>(
    mut ask: impl FnMut(u64) -> Result<RestartPlan, E>,
    mut elapsed_ms: impl FnMut() -> u64,
) -> Result<RestartPlan, E> {
    let mut delay_ms = 0;
    loop {
        let asked_ms = elapsed_ms();
        let plan = ask(asked_ms.saturating_add(delay_ms))?;
        let answered_ms = elapsed_ms();
        if !plan.is_doubtful(answered_ms) {
            return Ok(plan);
        }
        // There is a doubt only if this answer took longer than all before it, so this ends.
        delay_ms = delay_ms.max(answered_ms.saturating_sub(asked_ms));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::api::NodeTurn;
    use diorite_base::NodeId;
    use std::cell::Cell;

    /// The plan of one node whose process began at `began_ms`, by a node that is asked at `now_ms`; times are since the
    /// restart began.
    fn of_one(began_ms: i64, now_ms: u64, elapsed_ms: u64) -> RestartPlan {
        let uptime_ms = (now_ms as i64 - began_ms) as u64;
        let is_restarted = uptime_ms < elapsed_ms;
        let turn = if is_restarted { "restarted" } else { "next" }.to_owned();
        let (node, address, zone) = (NodeId(1), "127.0.0.1:7100".to_owned(), "a".to_owned());
        let nodes = vec![NodeTurn { node, address, zone, turn, uptime_ms: Some(uptime_ms) }];
        let next = (!is_restarted).then_some(node);
        RestartPlan { nodes, next, may_go: next.is_some(), waits_for: Vec::new(), interrupted: Vec::new() }
    }

    /// The node that is named if questions, and then answers, take so long.
    fn named(began_ms: i64, delays_ms: &[u64]) -> Option<NodeId> {
        let (now_ms, mut delays) = (Cell::new(5_000), delays_ms.iter().chain(std::iter::repeat(&1)));
        let ask = |elapsed_ms| {
            let delay_ms = *delays.next().unwrap();
            now_ms.set(now_ms.get() + delay_ms);
            let plan = of_one(began_ms, now_ms.get(), elapsed_ms);
            now_ms.set(now_ms.get() + delay_ms);
            Ok::<_, ()>(plan)
        };
        plan(ask, || now_ms.get()).unwrap().next
    }

    #[test]
    fn a_node_that_was_restarted_is_not_named_however_long_answers_take() {
        for delays_ms in [&[][..], &[3_000], &[10, 200, 3_000], &[3_000, 10]] {
            assert_eq!(named(1, delays_ms), None, "restarted at once, {delays_ms:?}");
            assert_eq!(named(4_999, delays_ms), None, "restarted just now, {delays_ms:?}");
            assert_eq!(named(-100_000, delays_ms), Some(NodeId(1)), "not restarted, {delays_ms:?}");
        }
    }

    #[test]
    fn before_the_restart_has_begun_no_node_counts_as_restarted() {
        let ask = |elapsed_ms| Ok::<_, ()>(of_one(0, 7, elapsed_ms));
        assert_eq!(plan(ask, || 0).unwrap().next, Some(NodeId(1)));
    }
}
