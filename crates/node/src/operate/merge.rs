//! The shell of merges: carries out the decisions of [`diorite_control::merging`] and the steps of [`MergeDriver`].

use super::Operations;
use crate::pause::pause;
use diorite_base::TabletId;
use diorite_base::random::SplitMix64;
use diorite_base::write::KvError;
use diorite_cluster::catalog::Outcome;
use diorite_control::merging::{self, Asked, Due, INTERVAL, Merging, Undo, end_cancelled};
use diorite_control::tokens::Tokens;
use diorite_query::index::adopted_records;
use diorite_replica::{
    CLOSED, Closing, KeyRange, MergeAction, MergeDriver, MergeReply, MergeStep, Part, Superseded, TabletHandle,
    has_given_up,
};
use diorite_storage::{DataView, StorageError};
use std::sync::Arc;

/// A part of the tablet's rows is complete when it has this many bytes.
const PART_BYTES: usize = 512 << 10;
/// How often a step is tried before the merge is begun anew.
const TRIES: u32 = 5;

/// Why a merge is interrupted.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Write(#[from] KvError),
    #[error("the tablet's rows cannot be read: {0}")]
    Read(String),
    #[error(transparent)]
    Superseded(#[from] Superseded),
    #[error("this node no longer has the tablet")]
    Gone,
    #[error("the catalog refuses the merge: {0}")]
    Refused(String),
}

impl From<StorageError> for Broken {
    fn from(error: StorageError) -> Self {
        Broken::Read(error.to_string())
    }
}

impl Operations {
    pub(super) async fn keep_merging(&self) {
        let mut merging = Merging::new(self.node);
        loop {
            pause(INTERVAL).await;
            let Due { cancelled, next } = merging.due(&self.catalog.served(), &self.local());
            for merge in cancelled {
                if let Err(error) = self.undo(merge).await {
                    tracing::info!(tablet = %merge.tablet, into = %merge.into, %error, "a merge that was cancelled cannot be undone yet; trying again");
                }
            }
            if let Some(merge) = next {
                self.merge_once(merge, &mut merging).await;
            }
        }
    }

    async fn merge_once(&self, merge: Asked, merging: &mut Merging) {
        let Asked { tablet, into, .. } = merge;
        let error = match self.merge(merge).await {
            Ok(parts) => {
                merging.done(merge);
                tracing::info!(event = "merge", %tablet, %into, parts, "a tablet was merged into its neighbour");
                return;
            }
            Err(error) => error,
        };
        tracing::info!(%tablet, %into, %error, "a merge was interrupted");
        let why = match error {
            // Another node may be driving the merge, or it is over.
            Broken::Superseded(_) | Broken::Gone | Broken::Refused(_) => merging::Broken::Elsewhere,
            Broken::Write(_) | Broken::Read(_) => merging::Broken::Here(error.to_string()),
        };
        let is_sealed = self.store.handle(tablet).is_some_and(|handle| is_closed(&handle));
        if let Some(cancel) = merging.broke_off(merge, &why, is_sealed, self.clock.wall_us() / 1_000) {
            tracing::warn!(event = "merge", %tablet, %into, command = ?cancel, "a merge is cancelled");
            // If the cancellation fails, the next interruption cancels again.
            let _ = self.catalog.propose(&cancel).await;
        }
    }

    /// Carries out the next step of undoing a cancelled merge. Every node that holds the tablet tries; only the
    /// tablet's leader succeeds.
    async fn undo(&self, merge: Asked) -> Result<(), Broken> {
        let Asked { tablet, into, number, .. } = merge;
        let Some(handle) = self.store.handle(tablet) else { return Ok(()) };
        let looking = self.runtime.spawn_blocking(move || has_given_up(tablet, number, handle.data()));
        let has_given_up = looking.await.map_err(|_| Broken::Read("the node is shutting down".to_owned()))??;
        let range = match merging::undo(merge, has_given_up, &self.catalog.served(), &self.local()) {
            Some(Undo::Reopen) => {
                self.store.reopen(tablet, number);
                return Ok(());
            }
            Some(Undo::Nothing) => return Ok(()),
            Some(Undo::Remove { range }) => range,
            None => return Err(Broken::Gone),
        };
        // The reply does not matter: the rows are removed by this step, or were removed before.
        self.write_step(into, &MergeStep::undo(tablet, number, range)).await?;
        let outcome = self.catalog.propose(&end_cancelled(merge)).await?;
        self.catalog.wait_until_served(outcome.version()).await?;
        tracing::info!(event = "merge", %tablet, %into, "a cancelled merge is undone");
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
                MergeAction::Close => {
                    let closing = self.close_tablet(&handle, number).await?;
                    let reader = Arc::clone(&handle);
                    let reading = self.runtime.spawn_blocking(move || adopted_records(&DataView(reader.data())));
                    let records = reading.await.map_err(|_| Broken::Read("the node is shutting down".to_owned()))?;
                    driver.closed(closing, records.map_err(|error| Broken::Read(error.to_string()))?)
                }
                MergeAction::Serve => break,
            };
        }
        match self.catalog.propose(&merging::serve(merge)).await? {
            Outcome::Rejected { message, .. } => return Err(Broken::Refused(message)),
            outcome => self.catalog.wait_until_served(outcome.version()).await?,
        }
        Ok(driver.parts())
    }

    /// Writes a step to a tablet, and tries again while the outcome is unknown.
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

    /// Seals the tablet. From here on its rows stay as they are.
    async fn close_tablet(&self, handle: &TabletHandle, number: u64) -> Result<Closing, Broken> {
        let close = MergeStep::Close { tablet: handle.id(), number };
        for _ in 0..=TRIES {
            if is_closed(handle) {
                return Ok(Closing::from(&handle.data().applied_state()?));
            }
            match self.write_step(handle.id(), &close).await {
                Ok(MergeReply::Superseded) => return Err(Superseded.into()),
                // The tablet is closed by this step, or was closed before. This node sees it once it has applied the
                // entry.
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
