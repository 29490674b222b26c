//! Replaces a replica's data by a complete copy.
//!
//! Meanwhile the tablet is on no list of open tablets, as while it is opened (`installing`).

use super::error::CopyError;
use crate::group::handle::TabletHandle;
use crate::lifecycle::command::Command;
use crate::lifecycle::installing::wait_until_unused;
use crate::lifecycle::replicas::NodeReplicas;
use diorite_base::TabletId;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Replaces the replica's data by the complete copy in `staged`, which has applied everything up to `applied`.
pub(crate) fn install(
    replicas: &NodeReplicas,
    tablet: TabletId,
    staged: &Path,
    disk: usize,
    applied: u64,
) -> Result<(), CopyError> {
    replicas.installing.begin(&[tablet]);
    let Some(handle) = replicas.handle(tablet) else {
        let _ = replicas.installing.end(&[tablet]);
        return Err(CopyError::NoReplica);
    };
    let installed = replace(replicas, handle, staged, disk, applied);
    if replicas.installing.is_closed(tablet) {
        return discard_closed(replicas, tablet, disk);
    }
    let opened = reopen(replicas, tablet);
    let was_closed = replicas.installing.end(&[tablet]);
    if !was_closed.is_empty() {
        replicas.close(&was_closed);
        return Err(CopyError::Closed);
    }
    opened?;
    if let (Err(CopyError::Outdated(_)), Some(handle)) = (&installed, replicas.handle(tablet)) {
        replicas.command(&handle, Command::AnnounceData(tablet));
    }
    installed
}

/// The replica was closed meanwhile: afterwards it must be neither open nor have any files left. An open that waits
/// continues after that.
pub(crate) fn discard_closed(replicas: &NodeReplicas, tablet: TabletId, disk: usize) -> Result<(), CopyError> {
    let discarded = replicas.disks.discard(tablet, disk);
    let _ = replicas.installing.end(&[tablet]);
    discarded?;
    Err(CopyError::Closed)
}

/// Detaches the replica and replaces its data by the copy, if that is newer. The replica is not open afterwards.
fn replace(
    replicas: &NodeReplicas,
    handle: Arc<TabletHandle>,
    staged: &Path,
    disk: usize,
    applied: u64,
) -> Result<(), CopyError> {
    let tablet = handle.id();
    let (sender, receiver) = sync_channel(1);
    replicas.command(&handle, Command::Detach(tablet, sender));
    let detached = receiver.recv();
    replicas.update_tablets(|tablets| {
        tablets.remove(&tablet);
    });
    detached.map_err(|_| CopyError::Stopping)??;
    // A copy that took long may be older than the replica's own state by now, or end before its log begins.
    let is_newer = handle.data().applied_state().is_ok_and(|own| applied > own.index);
    // RocksDB must be closed before its files are replaced, so readers are waited for.
    let files = handle.data().in_use();
    drop(handle);
    let is_closed = wait_until_unused(&files);
    if !is_newer {
        return Err(CopyError::Outdated("the replica has got further meanwhile"));
    }
    if !is_closed {
        return Err(CopyError::InUse);
    }
    Ok(replicas.disks[disk].directory.install(tablet.0, staged)?)
}

/// Opens the replica again, on the old data or the new.
pub(crate) fn reopen(replicas: &NodeReplicas, tablet: TabletId) -> Result<(), CopyError> {
    let opening = replicas.opening(tablet).ok_or(CopyError::NoReplica)?;
    replicas.open(vec![opening])?;
    replicas.handle(tablet).map(drop).ok_or(CopyError::SetAside)
}
