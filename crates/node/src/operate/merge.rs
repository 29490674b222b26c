//! Merges tablets into their neighbours: does what [`MergeDriver`] says.
//!
//! Always true: a merge that breaks off is begun again from the start, by whoever leads the tablet then, or holds it, once it is closed.
//! Left out: which tablets are merged ([`super::shrink`], and operators).

use super::Operations;
use super::growth::Tokens;
use crate::membership::pause;
use diorite_base::TabletId;
use diorite_base::random::SplitMix64;
use diorite_base::write::KvError;
use diorite_cluster::catalog::{Command, Merge};
use diorite_replica::{
    CLOSED, Closing, KeyRange, Leadership, MergeAction, MergeDriver, MergeReply, MergeStep, Part, Superseded,
    TabletHandle,
};
use diorite_storage::StorageError;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether there is something to merge.
const INTERVAL: Duration = Duration::from_millis(250);
/// A part is complete when it has this many bytes.
const PART_BYTES: usize = 512 << 10;
/// How often a step is tried until the merge is begun anew.
const TRIES: u32 = 5;

/// Why a merge breaks off.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Write(#[from] KvError),
    #[error("its rows cannot be read: {0}")]
    Read(String),
    #[error(transparent)]
    Superseded(#[from] Superseded),
    #[error("its tablet is elsewhere now")]
    Gone,
}

impl From<StorageError> for Broken {
    fn from(error: StorageError) -> Self {
        Broken::Read(error.to_string())
    }
}

impl Operations {
    pub(super) async fn keep_merging(&self) {
        loop {
            pause(INTERVAL).await;
            let Some((tablet, into)) = self.next_merge() else { continue };
            match self.merge(tablet, into).await {
                Ok(parts) => {
                    tracing::info!(event = "merge", %tablet, %into, parts, "a tablet was merged into its neighbour")
                }
                Err(error) => tracing::info!(%tablet, %into, %error, "a merge broke off; trying again"),
            }
        }
    }

    /// A merge that this node is to carry out.
    fn next_merge(&self) -> Option<(TabletId, TabletId)> {
        let catalog = self.catalog.served();
        let asked = catalog.tablets_on(self.node).filter_map(|(tablet, placement)| match placement.merge {
            Some(Merge::Into(into)) => Some((tablet, into, placement)),
            _ => None,
        });
        asked
            .filter(|(tablet, _, placement)| {
                let Some(handle) = self.store.handle(*tablet) else { return false };
                let is_up = |node: &&diorite_base::NodeId| **node == self.node || self.store.liveness().is_up(**node);
                let is_first = placement.replicas.iter().find(is_up) == Some(&self.node);
                handle.leadership() == Leadership::Here || (is_closed(&handle) && is_first)
            })
            .map(|(tablet, into, _)| (tablet, into))
            .next()
    }

    async fn merge(&self, from: TabletId, into: TabletId) -> Result<u64, Broken> {
        let catalog = self.catalog.served();
        let range = Tokens::of(&catalog, from).ok_or(Broken::Gone)?.keys();
        let handle = self.store.handle(from).ok_or(Broken::Gone)?;
        let (mut driver, mut action) = MergeDriver::begin(from, into, range, &mut SplitMix64::from_entropy());
        loop {
            action = match action {
                MergeAction::Write(tablet, step) => driver.written(self.write_step(tablet, &step).await?)?,
                MergeAction::Read(range) => {
                    let part = self.read_part(Arc::clone(&handle), range.clone()).await?;
                    driver.read(range, part)
                }
                MergeAction::Close => driver.closed(self.close_tablet(&handle).await?),
                MergeAction::Serve => break,
            };
        }
        self.catalog.propose(&Command::ServeMerge { tablet: from, into }).await?;
        self.catalog.wait_until_served(self.catalog.current().version()).await?;
        Ok(driver.parts())
    }

    /// Writes a step to a tablet until its outcome is known.
    async fn write_step(&self, tablet: TabletId, step: &MergeStep) -> Result<MergeReply, Broken> {
        let mut tries = 0;
        loop {
            match self.router.write(tablet, step.mutation()).await {
                Ok(reply) => {
                    return MergeReply::decode(&reply).map_err(|_| Broken::Read("a reply is malformed".to_owned()));
                }
                Err(KvError::Timeout(_) | KvError::Unavailable(_) | KvError::Overloaded(_)) if tries < TRIES => {
                    tries += 1;
                    pause(INTERVAL).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn read_part(&self, handle: Arc<TabletHandle>, range: KeyRange) -> Result<Part, Broken> {
        let read = self.runtime.spawn_blocking(move || Part::read(&**handle.data(), &range, PART_BYTES)).await;
        Ok(read.map_err(|_| Broken::Read("the node is shutting down".to_owned()))??)
    }

    /// Ends the tablet; from here on its rows stay as they are.
    async fn close_tablet(&self, handle: &TabletHandle) -> Result<Closing, Broken> {
        for _ in 0..=TRIES {
            if is_closed(handle) {
                return Ok(Closing::from(&handle.data().applied_state()?));
            }
            match self.write_step(handle.id(), &MergeStep::Close).await {
                // Closed before, or by this; it is seen here as soon as it is applied here.
                Ok(_) | Err(Broken::Write(KvError::NoSuchTablet(_))) => {}
                Err(error) => return Err(error),
            }
            if !is_closed(handle) {
                pause(INTERVAL).await;
            }
        }
        Err(Broken::Gone)
    }
}

fn is_closed(handle: &TabletHandle) -> bool {
    handle.flags() & CLOSED != 0
}
