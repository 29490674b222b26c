//! The shell of [`diorite_control::steering`]: its ticks, its proposals, and threads for what takes its time.

use super::Operations;
use crate::pause::pause;
use diorite_cluster::catalog::Outcome;
use diorite_control::steering::{self, Because, Event, Moment, Proposal, Task};
use std::sync::Arc;

pub(super) async fn keep_steering(operations: &Arc<Operations>) {
    loop {
        pause(steering::INTERVAL).await;
        let mut event = Some(Event::Tick);
        while let Some(happened) = event {
            let task = steer(operations, happened);
            event = carry_out_task(operations, task).await;
        }
    }
}

fn steer(operations: &Operations, event: Event) -> Task<super::report::Details> {
    let catalog = operations.catalog.current();
    let is_up = |node| operations.is_up(node);
    let moment = Moment {
        now_ns: operations.clock.monotonic_ns(),
        wall_ms: operations.clock.wall_us() / 1_000,
        leads: operations.leads(),
        catalog: &catalog,
        is_up: &is_up,
    };
    operations.steering.lock().on(event, &moment)
}

/// Does what is to be done; gives what that has led to, or nothing until the next tick.
async fn carry_out_task(operations: &Arc<Operations>, task: Task<super::report::Details>) -> Option<Event> {
    match task {
        Task::Rest => None,
        Task::Retire => {
            *operations.summary.lock() = None;
            None
        }
        Task::Summarize => {
            let summarizing = Arc::clone(operations);
            if let Ok(summary) = operations.runtime.spawn_blocking(move || summarizing.summarize()).await {
                *operations.summary.lock() = Some(Arc::new(summary));
            }
            Some(Event::Summarized)
        }
        Task::Propose(proposal) => Some(Event::Proposed(propose_for(operations, &proposal).await)),
        Task::Decide(deciding) => match operations.runtime.spawn_blocking(move || deciding.decide()).await {
            Ok(decision) => Some(Event::Decided(decision)),
            Err(error) => {
                tracing::error!(%error, "the balancer panicked");
                None
            }
        },
    }
}

async fn propose_for(operations: &Operations, Proposal { command, because }: &Proposal) -> Option<Outcome> {
    match because {
        Because::Silence(silence) => {
            let silent_s = silence.map(|silence| silence.as_secs());
            tracing::warn!(event = "node", ?command, silent_s, "a node changes its state");
        }
        Because::Balance(action) => {
            tracing::info!(event = "move", tablet = %action.tablet(), reason = %action.reason(), ?action, "balancing");
        }
        Because::Small => tracing::info!(event = "merge", ?command, "two tablets have become small"),
    }
    match operations.catalog.propose(command).await {
        Ok(outcome) => {
            if let Outcome::Rejected { message, .. } = &outcome {
                tracing::debug!(message, "the catalog has moved on");
            }
            Some(outcome)
        }
        Err(error) => {
            tracing::warn!(%error, ?command, "the catalog cannot be told; trying again");
            None
        }
    }
}
