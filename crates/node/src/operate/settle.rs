//! Tells the catalog that groups have become what it wants, so that replicas which are no longer needed go; and splits what is to be split.
//!
//! Always true: only the node that leads a tablet tells of it, and only of what its group has committed; what the catalog wants meanwhile
//! decides whether it counts.

use super::Operations;
use super::growth;
use crate::membership::pause;
use diorite_base::TabletId;
use diorite_cluster::catalog::{Command, SettledTablet};
use diorite_control::load::Loads;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How often moving tablets are looked at.
const INTERVAL: Duration = Duration::from_millis(250);
/// Every how many such looks sizes and loads are looked at.
const GROWTH_ROUNDS: u64 = 8;
/// Tablets that are told of at a time.
const AT_ONCE: usize = 1_000;

impl Operations {
    pub(super) async fn keep_settling(&self) {
        let mut loads = Loads::default();
        for round in 0u64.. {
            if round % GROWTH_ROUNDS == 0 {
                loads = self.split_grown(loads).await;
            }
            let catalog = Arc::clone(&self.catalog);
            let split = move || {
                catalog.split_next();
                catalog.begun_children()
            };
            let begun = self.runtime.spawn_blocking(split).await.unwrap_or_else(|error| {
                tracing::error!(%error, "splitting a tablet panicked");
                BTreeSet::new()
            });
            let tablets = self.settled(&begun);
            if !tablets.is_empty() {
                let told = tablets.clone();
                match self.catalog.propose(&Command::Settle { tablets }).await {
                    Ok(_) => told.iter().for_each(|settled| {
                        tracing::info!(event = "move", tablet = %settled.tablet, voters = ?settled.voters, "replicas are in place");
                    }),
                    Err(error) => {
                        tracing::info!(%error, "could not tell the catalog that replicas have arrived; trying again");
                    }
                }
            }
            pause(INTERVAL).await;
        }
    }

    /// Asks for a tablet that has grown too large, or has too much to do, to be split. Returns what is known of loads now.
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
            tracing::info!(%error, ?command, "could not ask for a split; trying again");
        }
        loads
    }

    /// Tablets led here whose groups are as wanted while the catalog believes them to be moving.
    fn settled(&self, begun: &BTreeSet<TabletId>) -> Vec<SettledTablet> {
        let catalog = self.catalog.served();
        let moving =
            catalog.tablets_on(self.node).filter(|(_, placement)| placement.is_moving() || placement.origin.is_some());
        let due = moving.filter(|(tablet, placement)| placement.origin.is_none() || begun.contains(tablet));
        let settled =
            due.filter_map(|(tablet, _)| Some(SettledTablet { tablet, voters: self.store.committed_voters(tablet)? }));
        settled.take(AT_ONCE).collect()
    }
}
