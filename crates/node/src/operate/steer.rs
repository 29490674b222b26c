//! The shell of [`diorite_control::steering`]: its ticks, its proposals, and threads for long decisions.

use super::{Known, Operations};
use crate::pause::pause;
use diorite_cluster::catalog::{Catalog, Outcome};
use diorite_control::steering::{self, Because, Event, Moment, Proposal, Task};
use std::sync::Arc;

impl Operations {
    pub(super) async fn keep_steering(self: &Arc<Self>) {
        loop {
            pause(steering::INTERVAL).await;
            let mut event = Some(Event::Tick);
            while let Some(happened) = event {
                let task = self.steer(happened);
                event = self.carry_out_task(task).await;
            }
        }
    }

    fn steer(&self, event: Event) -> Task<super::report::Details> {
        let catalog = self.catalog.current();
        let is_up = |node| self.is_up(node);
        let moment = Moment {
            now_ns: self.clock.monotonic_ns(),
            wall_ms: self.clock.wall_us() / 1_000,
            leads: self.leads(),
            catalog: &catalog,
            is_up: &is_up,
        };
        self.steering.lock().on(event, &moment)
    }

    /// Carries out a task. Returns the resulting event; none if the task continues with the next tick.
    async fn carry_out_task(self: &Arc<Self>, task: Task<super::report::Details>) -> Option<Event> {
        match task {
            Task::Rest => None,
            Task::Retire => {
                *self.summary.lock() = None;
                None
            }
            Task::Summarize => {
                let operations = Arc::clone(self);
                if let Ok(summary) = self.runtime.spawn_blocking(move || operations.summarize()).await {
                    *self.summary.lock() = Some(Arc::new(summary));
                }
                Some(Event::Summarized)
            }
            Task::Propose(proposal) => Some(Event::Proposed(self.propose_for(&proposal).await)),
            Task::Decide(deciding) => match self.runtime.spawn_blocking(move || deciding.decide()).await {
                Ok(decision) => Some(Event::Decided(decision)),
                Err(error) => {
                    tracing::error!(%error, "the balancer panicked");
                    None
                }
            },
        }
    }

    async fn propose_for(&self, Proposal { command, because }: &Proposal) -> Option<Outcome> {
        match because {
            Because::Silence(silence) => {
                let silent_s = silence.map(|silence| silence.as_secs());
                tracing::warn!(event = "node", ?command, silent_s, "a node changes its state");
            }
            Because::Balance(action) => {
                tracing::info!(event = "move", tablet = %action.tablet(), reason = %action.reason(), ?action, "balancing");
            }
            Because::Undecided => tracing::info!(
                event = "login",
                ?command,
                "the nodes' --auth becomes a property of the cluster; diorite admin auth changes it from now on"
            ),
            Because::Upgraded => {
                tracing::info!(event = "upgrade", ?command, "all nodes have known the next level for long enough")
            }
            Because::Small => tracing::info!(event = "merge", ?command, "two tablets have become small"),
        }
        if let Err(failure) = self.agree_unless_held(command).await {
            tracing::warn!(why = failure.message, "the level of the cluster is not raised yet");
            return None;
        }
        match self.catalog.propose(command).await {
            Ok(outcome) => {
                if let Outcome::Rejected { message, .. } = &outcome {
                    tracing::debug!(message, "the catalog has moved on");
                }
                Some(outcome)
            }
            Err(error) => {
                tracing::warn!(%error, ?command, "a command could not be proposed to the catalog; trying again");
                None
            }
        }
    }

    /// The state of the cluster as known to this node.
    pub(super) fn known(&self, catalog: &Catalog) -> Known {
        let is_up = |node| self.is_up(node);
        self.steering.lock().known(catalog, self.clock.monotonic_ns(), &is_up)
    }
}
