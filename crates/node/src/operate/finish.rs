//! Carries out due splits, and reports to the catalog which groups match it, so that replicas which are no longer
//! needed are removed ([`diorite_control::splitting`]).

use super::Operations;
use super::growth;
use crate::pause::pause;
use diorite_cluster::catalog::Command;
use diorite_control::load::Loads;
use diorite_control::splitting::INTERVAL;
use std::sync::Arc;

/// Sizes and loads are checked once in this many rounds.
const GROWTH_ROUNDS: u64 = 8;

impl Operations {
    pub(super) async fn keep_finishing(&self) {
        let mut loads = Loads::default();
        for round in 0u64.. {
            if round % GROWTH_ROUNDS == 0 {
                loads = self.split_grown(loads).await;
            }
            let catalog = Arc::clone(&self.catalog);
            let look = move || {
                catalog.advance_splits();
                catalog.finished_tablets()
            };
            let finished = self.runtime.spawn_blocking(look).await.unwrap_or_else(|error| {
                tracing::error!(%error, "splitting a tablet panicked");
                None
            });
            if let Some(command) = finished {
                self.tell_finished(&command).await;
            }
            pause(INTERVAL).await;
        }
    }

    async fn tell_finished(&self, command: &Command) {
        let Command::FinishMoves { tablets } = command else { return };
        match self.catalog.propose(command).await {
            Ok(_) => tablets.iter().for_each(|finished| {
                tracing::info!(event = "move", tablet = %finished.tablet, voters = ?finished.voters, "replicas are in place");
            }),
            Err(error) => {
                tracing::info!(%error, "could not report complete moves to the catalog; trying again");
            }
        }
    }

    /// Proposes the split of a tablet that is too large or too loaded. Returns the loads measured now.
    async fn split_grown(&self, mut loads: Loads) -> Loads {
        let settings = self.catalog.served().identity().settings.clone();
        if settings.balancing_is_paused {
            return Loads::default();
        }
        let (store, served, now_ns) = (Arc::clone(&self.store), self.catalog.served(), self.clock.monotonic_ns());
        let look = move || {
            let command = growth::look(&store, &served, &settings, &mut loads, now_ns).command;
            (command, loads)
        };
        let (command, loads) = self.runtime.spawn_blocking(look).await.unwrap_or_else(|error| {
            tracing::error!(%error, "looking for tablets to split panicked");
            Default::default()
        });
        if let Some(command) = command
            && let Err(error) = self.catalog.propose(&command).await
        {
            tracing::info!(%error, ?command, "could not propose a split; trying again");
        }
        loads
    }
}
