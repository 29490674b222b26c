//! Merges a tablet into its neighbour: copies its rows there while it is still written to, closes it, and copies what has changed.
//!
//! Always true: every step is a write to one of the two tablets, and can be repeated; what is copied after the tablet was closed is all of it, whoever copies. A merge
//! that breaks off is begun again from the start, by whoever leads the tablet then, or holds it, once it is closed.
//! Left out: which tablets are merged ([`super::shrink`], and operators).

use super::Operations;
use super::growth::Tokens;
use crate::membership::pause;
use ahash::RandomState;
use diorite_base::TabletId;
use diorite_base::random::{Random, SplitMix64};
use diorite_base::write::KvError;
use diorite_cluster::catalog::{Command, Merge};
use diorite_replica::{CLOSED, Closing, KeyRange, Leadership, MergeReply, MergeStep, TabletHandle};
use diorite_storage::{ScanRange, StorageError};
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
    #[error("another attempt has begun")]
    Superseded,
    #[error("its tablet is elsewhere now")]
    Gone,
}

impl From<StorageError> for Broken {
    fn from(error: StorageError) -> Self {
        Broken::Read(error.to_string())
    }
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Some of a tablet's rows, and where the next begin.
struct Part {
    rows: Rows,
    next: Option<Vec<u8>>,
}

impl Part {
    fn read(handle: &TabletHandle, (start, end): &KeyRange) -> Result<Self, StorageError> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        let (mut rows, mut next, mut bytes) = (Rows::new(), None, 0);
        handle.data().scan(&range, &mut |key, value| {
            if bytes >= PART_BYTES {
                next = Some(key.to_vec());
                return false;
            }
            bytes += key.len() + value.len();
            rows.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(Self { rows, next })
    }

    /// 128 bits, keyed at random, so that nobody can make rows that are taken for others.
    fn digest(&self, keys: &[RandomState; 2]) -> [u64; 2] {
        [keys[0].hash_one(&self.rows), keys[1].hash_one(&self.rows)]
    }
}

/// A part that has been copied: its keys, and what was there.
struct Copied {
    range: KeyRange,
    digest: [u64; 2],
}

/// A merge under way.
struct Attempt<'a> {
    operations: &'a Operations,
    handle: Arc<TabletHandle>,
    from: TabletId,
    into: TabletId,
    attempt: u64,
    parts: u64,
    digest_keys: [RandomState; 2],
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
        let tokens = Tokens::of(&catalog, from).ok_or(Broken::Gone)?;
        let handle = self.store.handle(from).ok_or(Broken::Gone)?;
        let mut random = SplitMix64::from_entropy();
        let attempt = random.next_u64();
        let digest_keys = [(); 2].map(|()| {
            RandomState::with_seeds(random.next_u64(), random.next_u64(), random.next_u64(), random.next_u64())
        });
        let mut merge = Attempt { operations: self, handle, from, into, attempt, parts: 0, digest_keys };
        let range = tokens.keys();
        if merge.step(into, &MergeStep::Begin { from, attempt, range: range.clone() }).await? == MergeReply::Done {
            let copied = merge.copy(range).await?;
            merge.close().await?;
            for part in copied {
                merge.copy_changed(part).await?;
            }
            merge.finish().await?;
        }
        self.catalog.propose(&Command::ServeMerge { tablet: from, into }).await?;
        self.catalog.wait_until_served(self.catalog.current().version()).await?;
        Ok(merge.parts)
    }
}

fn is_closed(handle: &TabletHandle) -> bool {
    handle.flags() & CLOSED != 0
}

impl Attempt<'_> {
    /// Writes a step to a tablet until its outcome is known.
    async fn step(&self, tablet: TabletId, step: &MergeStep) -> Result<MergeReply, Broken> {
        let mut tries = 0;
        loop {
            match self.operations.router.write(tablet, step.mutation()).await {
                Ok(reply) => {
                    let reply =
                        MergeReply::decode(&reply).map_err(|_| Broken::Read("a reply is malformed".to_owned()))?;
                    return if reply == MergeReply::Superseded { Err(Broken::Superseded) } else { Ok(reply) };
                }
                Err(KvError::Timeout(_) | KvError::Unavailable(_) | KvError::Overloaded(_)) if tries < TRIES => {
                    tries += 1;
                    pause(INTERVAL).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn read(&self, range: KeyRange) -> Result<Part, Broken> {
        let handle = Arc::clone(&self.handle);
        let read = self.operations.runtime.spawn_blocking(move || Part::read(&handle, &range)).await;
        Ok(read.map_err(|_| Broken::Read("the node is shutting down".to_owned()))??)
    }

    /// Gives rows to the tablet that stays, in place of what it has within `instead_of`.
    async fn give(&mut self, instead_of: Option<KeyRange>, rows: Rows) -> Result<(), Broken> {
        self.parts += 1;
        let step = MergeStep::Take { from: self.from, attempt: self.attempt, number: self.parts, instead_of, rows };
        self.step(self.into, &step).await.map(|_| ())
    }

    /// Copies all rows as they are now, part by part, though they may change.
    async fn copy(&mut self, (mut start, end): KeyRange) -> Result<Vec<Copied>, Broken> {
        let mut copied = Vec::new();
        loop {
            let part = self.read((start.clone(), end.clone())).await?;
            let (digest, next) = (part.digest(&self.digest_keys), part.next.clone());
            self.give(None, part.rows).await?;
            copied.push(Copied { range: (start, next.clone().unwrap_or_else(|| end.clone())), digest });
            match next {
                Some(next) => start = next,
                None => return Ok(copied),
            }
        }
    }

    /// Ends the tablet; from here on its rows stay as they are.
    async fn close(&self) -> Result<(), Broken> {
        for _ in 0..=TRIES {
            if is_closed(&self.handle) {
                return Ok(());
            }
            match self.step(self.from, &MergeStep::Close).await {
                // Closed before, or by this; it is seen here as soon as it is applied here.
                Ok(_) | Err(Broken::Write(KvError::NoSuchTablet(_))) => {}
                Err(error) => return Err(error),
            }
            if !is_closed(&self.handle) {
                pause(INTERVAL).await;
            }
        }
        Err(Broken::Gone)
    }

    /// Copies a part again if its rows are not what they were.
    async fn copy_changed(&mut self, copied: Copied) -> Result<(), Broken> {
        let (mut start, end) = copied.range;
        loop {
            let part = self.read((start.clone(), end.clone())).await?;
            if part.next.is_none() && part.digest(&self.digest_keys) == copied.digest {
                return Ok(());
            }
            let next = part.next.clone();
            let range = (start, next.clone().unwrap_or_else(|| end.clone()));
            self.give(Some(range), part.rows).await?;
            match next {
                Some(next) => start = next,
                None => return Ok(()),
            }
        }
    }

    async fn finish(&self) -> Result<(), Broken> {
        let state = self.handle.data().applied_state()?;
        let closing = Closing {
            newest_stamp_us: state.newest_stamp_us,
            newest_explicit_us: state.newest_explicit_us,
            flags: state.flags,
        };
        let step = MergeStep::Finish { from: self.from, attempt: self.attempt, parts: self.parts, closing };
        self.step(self.into, &step).await.map(|_| ())
    }
}
