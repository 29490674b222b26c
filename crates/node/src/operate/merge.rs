//! Merges tablets into their neighbours: does what [`MergeDriver`] says; and undoes merges that were cancelled.
//!
//! Always true: a merge that breaks off is begun again from the start, by whoever leads the tablet then, or holds it, once it is closed. One that has broken off too often is
//! cancelled, with the reason. Whether it is served or cancelled is the catalog's to say; every node that holds the tablet acts on that for as long as the catalog remembers
//! it, so no crash leaves a tablet closed that nobody would open. Left out: which tablets are merged ([`diorite_control::shrink`], and operators).

use super::Operations;
use crate::membership::pause;
use diorite_base::TabletId;
use diorite_base::random::SplitMix64;
use diorite_base::write::KvError;
use diorite_cluster::catalog::{CancelledMerge, Command, Merge, Outcome};
use diorite_control::tokens::Tokens;
use diorite_replica::{
    CLOSED, Closing, KeyRange, Leadership, MergeAction, MergeDriver, MergeReply, MergeStep, Part, Superseded,
    TabletHandle, has_given_up,
};
use diorite_storage::StorageError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether there is something to merge.
const INTERVAL: Duration = Duration::from_millis(250);
/// A part is complete when it has this many bytes.
const PART_BYTES: usize = 512 << 10;
/// How often a step is tried until the merge is begun anew.
const TRIES: u32 = 5;
/// How often in a row a merge may break off until it is cancelled.
const MAX_BROKEN: u32 = 8;
/// The same once the tablet is closed: nobody can read or write it until the merge is over.
const MAX_BROKEN_CLOSED: u32 = 2;
/// The longest reason that is kept of a merge that was cancelled, in characters.
const REASON_LENGTH: usize = 300;

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
    #[error("the catalog refuses it: {0}")]
    Refused(String),
}

/// A merge that the catalog asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Asked {
    tablet: TabletId,
    into: TabletId,
    number: u64,
    is_cancelled: bool,
}

/// How often in a row merges have broken off on this node.
type BrokenOff = HashMap<Asked, u32>;

impl From<StorageError> for Broken {
    fn from(error: StorageError) -> Self {
        Broken::Read(error.to_string())
    }
}

impl Operations {
    pub(super) async fn keep_merging(&self) {
        let mut broken = BrokenOff::default();
        loop {
            pause(INTERVAL).await;
            let asked = self.merges_here();
            broken.retain(|merge, _| asked.contains(merge));
            for merge in asked.iter().filter(|merge| merge.is_cancelled) {
                if let Err(error) = self.undo(*merge).await {
                    tracing::info!(tablet = %merge.tablet, into = %merge.into, %error, "a merge that was cancelled cannot be undone yet; trying again");
                }
            }
            // The one that has broken off least: one that cannot go on keeps no others from it.
            let next = asked.iter().filter(|merge| !merge.is_cancelled && self.drives(**merge));
            if let Some(merge) = next.min_by_key(|merge| broken.get(merge)) {
                self.merge_once(*merge, &mut broken).await;
            }
        }
    }

    async fn merge_once(&self, merge: Asked, broken: &mut BrokenOff) {
        let Asked { tablet, into, .. } = merge;
        let error = match self.merge(merge).await {
            Ok(parts) => {
                broken.remove(&merge);
                tracing::info!(event = "merge", %tablet, %into, parts, "a tablet was merged into its neighbour");
                return;
            }
            Err(error) => error,
        };
        let times = broken.entry(merge).or_insert(0);
        *times += 1;
        let is_closed = self.store.handle(tablet).is_some_and(|handle| is_closed(&handle));
        let may_be_tried = *times < if is_closed { MAX_BROKEN_CLOSED } else { MAX_BROKEN };
        tracing::info!(%tablet, %into, %error, times, may_be_tried, "a merge broke off");
        // Others may be driving it, or it is over.
        let is_own = !matches!(error, Broken::Superseded(_) | Broken::Gone | Broken::Refused(_));
        if is_own && !may_be_tried {
            let reason: String =
                format!("it broke off {times} times, at last because {error}").chars().take(REASON_LENGTH).collect();
            tracing::warn!(event = "merge", %tablet, %into, reason, "a merge is cancelled");
            let cancelled = CancelledMerge { reason, unix_ms: self.clock.wall_us() / 1_000 };
            let command = Command::CancelMerge { tablet, number: Some(merge.number), cancelled };
            // If it does not get through, the next time that it breaks off is soon.
            let _ = self.catalog.propose(&command).await;
        }
    }

    /// The merges of tablets of which this node holds a replica, if these are to go.
    fn merges_here(&self) -> Vec<Asked> {
        let catalog = self.catalog.served();
        let asked = catalog.tablets_on(self.node).filter_map(|(tablet, placement)| {
            let Some(Merge::Into(into)) = placement.merge else { return None };
            let (number, is_cancelled) = (placement.merge_number, placement.is_merge_cancelled);
            Some(Asked { tablet, into, number, is_cancelled })
        });
        asked.collect()
    }

    /// Whether this node is to carry out a merge.
    fn drives(&self, merge: Asked) -> bool {
        let Some(handle) = self.store.handle(merge.tablet) else { return false };
        let catalog = self.catalog.served();
        let Some(placement) = catalog.placement(merge.tablet) else { return false };
        let is_up = |node: &&diorite_base::NodeId| **node == self.node || self.store.liveness().is_up(**node);
        let is_first = placement.replicas.iter().find(is_up) == Some(&self.node);
        handle.leadership() == Leadership::Here || (is_closed(&handle) && is_first)
    }

    /// Undoes a merge that was cancelled: first the tablet that was to go serves again, then the other one forgets what it has taken in. Every node that holds the tablet
    /// tries, and whoever leads it succeeds.
    async fn undo(&self, merge: Asked) -> Result<(), Broken> {
        let Asked { tablet, into, number, .. } = merge;
        let Some(handle) = self.store.handle(tablet) else { return Ok(()) };
        let looked = Arc::clone(&handle);
        let looking = self.runtime.spawn_blocking(move || has_given_up(tablet, number, looked.data()));
        if !looking.await.map_err(|_| Broken::Read("the node is shutting down".to_owned()))?? {
            self.store.reopen(tablet, number);
            return Ok(());
        }
        if handle.leadership() != Leadership::Here {
            return Ok(());
        }
        let range = Tokens::of(&self.catalog.served(), tablet).ok_or(Broken::Gone)?.keys();
        // What it replies does not matter: it has abandoned it, now or before.
        self.write_step(into, &MergeStep::Discard { from: tablet, number, range }).await?;
        let outcome = self.catalog.propose(&Command::EndCancelledMerge { tablet, number }).await?;
        self.catalog.wait_until_served(outcome.version()).await?;
        tracing::info!(event = "merge", %tablet, %into, "nothing is left of a merge that was cancelled");
        Ok(())
    }

    async fn merge(&self, merge: Asked) -> Result<u64, Broken> {
        let Asked { tablet: from, into, number, .. } = merge;
        let catalog = self.catalog.served();
        let range = Tokens::of(&catalog, from).ok_or(Broken::Gone)?.keys();
        let handle = self.store.handle(from).ok_or(Broken::Gone)?;
        let (mut driver, mut action) = MergeDriver::begin(from, into, number, range, &mut SplitMix64::from_entropy());
        loop {
            action = match action {
                MergeAction::Write(tablet, step) => driver.written(self.write_step(tablet, &step).await?)?,
                MergeAction::Read(range) => {
                    let part = self.read_part(Arc::clone(&handle), range.clone()).await?;
                    driver.read(range, part)
                }
                MergeAction::Close => driver.closed(self.close_tablet(&handle, number).await?),
                MergeAction::Serve => break,
            };
        }
        let serve = Command::ServeMerge { tablet: from, into, number: Some(number) };
        match self.catalog.propose(&serve).await? {
            Outcome::Rejected { message, .. } => return Err(Broken::Refused(message)),
            outcome => self.catalog.wait_until_served(outcome.version()).await?,
        }
        Ok(driver.parts())
    }

    /// Writes a step to a tablet until its outcome is known.
    async fn write_step(&self, tablet: TabletId, step: &MergeStep) -> Result<MergeReply, Broken> {
        let mut tries = 0;
        loop {
            match self.router.write(tablet, step.mutation().map_err(KvError::from)?).await {
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
    async fn close_tablet(&self, handle: &TabletHandle, number: u64) -> Result<Closing, Broken> {
        let close = MergeStep::Close { tablet: handle.id(), number };
        for _ in 0..=TRIES {
            if is_closed(handle) {
                return Ok(Closing::from(&handle.data().applied_state()?));
            }
            match self.write_step(handle.id(), &close).await {
                Ok(MergeReply::Superseded) => return Err(Superseded.into()),
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
