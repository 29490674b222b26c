//! Makes the child tablets of a tablet that is split (`group::split`): as much as possible before the split, the rest
//! once the entry that splits it is applied.
//!
//! Always true: a child's data is made from its parent's only on a node whose Raft log has no record of the child, and
//! is not used until it has.

use crate::group::handle::{TabletHandle, storage_error};
use crate::group::split::{Split, SplitListener, SplitMark, begin_as_copy, begin_from_log};
use crate::lifecycle::command::Command;
use crate::lifecycle::openings::{ChildOpening, OpenTablet};
use crate::lifecycle::replicas::{NodeReplicas, Prepared};
use ahash::AHashSet;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_raft::ConfState;
use diorite_storage::{LogBatch, LogRecords, StorageError, Tablet};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The purpose of the directory with a copy of a parent's data that is to become a child's.
const SPLITTING: &str = "splitting";

/// How long after a check it is checked again whether this node knows the children.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long after a failure the children are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Work for a tablet that is, or will be, split.
enum Job {
    /// Prepare its children's data: later entries up to the split are added from its log.
    Prepare(TabletId, Split),
    /// Open its children; the flag: it was led here.
    Make(SplitMark, bool),
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Tablets whose children have been prepared, as far as possible.
    prepared: AHashSet<TabletId>,
    is_closed: bool,
}

/// The tablets of this node that are split, and whose children are to be made.
#[derive(Default)]
pub(crate) struct Splits {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl SplitListener for Splits {
    fn split(&self, mark: &SplitMark, leads: bool) {
        // Before any preparation: clients wait for these.
        self.waiting.lock().jobs.push_front(Job::Make(mark.clone(), leads));
        self.changed.notify_one();
    }
}

impl Splits {
    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Whether the tablet's children have been prepared, as far as possible; if not, starts to.
    pub(crate) fn prepare(&self, tablet: TabletId, split: &Split) -> bool {
        let mut waiting = self.waiting.lock();
        let is_queued = |job: &Job| matches!(job, Job::Prepare(queued, _) if *queued == tablet);
        if !waiting.prepared.contains(&tablet) && !waiting.jobs.iter().any(is_queued) {
            waiting.jobs.push_back(Job::Prepare(tablet, split.clone()));
            self.changed.notify_one();
        }
        waiting.prepared.contains(&tablet)
    }

    /// The split was cancelled.
    pub(crate) fn forget(&self, tablet: TabletId) {
        let mut waiting = self.waiting.lock();
        waiting.jobs.retain(|job| !matches!(job, Job::Prepare(parent, _) if *parent == tablet));
        waiting.prepared.remove(&tablet);
    }

    /// Makes children until the store closes.
    pub(crate) fn run(&self, replicas: &NodeReplicas) {
        while let Some(job) = self.next() {
            let (parent, split) = match &job {
                Job::Prepare(parent, split) => (*parent, split),
                Job::Make(mark, _) => (mark.parent, &mark.split),
            };
            if let Job::Make(mark, true) = &job
                && let Some(openings) = replicas.openings()
            {
                openings.was_split(mark);
            }
            // A replica that is being opened reports its split before it is on the list of open tablets.
            let is_opening = replicas.installing.contains(parent);
            let Some(openings) = openings(parent, split, replicas).filter(|_| !is_opening) else {
                self.put_back(job, LOOK_AGAIN);
                continue;
            };
            match &job {
                Job::Prepare(..) => {
                    replicas.with_parent(parent, split, |handle| replicas.prepare_children(handle, &openings)).unwrap_or_else(|error| {
                        tracing::warn!(tablet = %parent, %error, "could not prepare the children of a tablet that is to be split");
                    });
                    self.waiting.lock().prepared.insert(parent);
                }
                Job::Make(mark, _) => {
                    self.waiting.lock().prepared.remove(&parent);
                    if let Err(error) =
                        replicas.with_parent(parent, split, |handle| replicas.make_children(handle, mark, openings))
                    {
                        tracing::error!(tablet = %parent, %error, "could not make the children of a tablet that was split");
                        self.put_back(job, TRY_AGAIN);
                    }
                }
            }
        }
    }

    fn put_back(&self, job: Job, pause: Duration) {
        let mut waiting = self.waiting.lock();
        waiting.jobs.push_back(job);
        if !waiting.is_closed {
            self.changed.wait_for(&mut waiting, pause);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(next) = waiting.jobs.pop_front() {
                return Some(next);
            }
            self.changed.wait(&mut waiting);
        }
    }
}

/// How the children that are placed here are opened; `None`: this node does not know them yet.
fn openings(parent: TabletId, split: &Split, replicas: &NodeReplicas) -> Option<Vec<OpenTablet>> {
    let mut openings = Vec::new();
    for child in split.children {
        match replicas.child_opening(parent, child) {
            ChildOpening::As(opening) => openings.push(*opening),
            ChildOpening::Never => {}
            ChildOpening::NotYet => return None,
        }
    }
    Some(openings)
}

impl NodeReplicas {
    /// Runs `act` on a tablet with exclusive access to opening and closing its children. Does nothing if the
    /// tablet is closed: closing a tablet closes its children, which is either seen here or recorded there.
    fn with_parent(
        &self,
        parent: TabletId,
        split: &Split,
        act: impl FnOnce(&TabletHandle) -> Result<(), KvError>,
    ) -> Result<(), KvError> {
        self.installing.begin(&split.children);
        let handle = self.handle(parent);
        let done = handle.map_or(Ok(()), |handle| act(&handle));
        self.close(&self.installing.end(&split.children));
        done
    }

    /// Makes the children's data as of now, and opens it: this does the slow part before the tablet is split.
    fn prepare_children(&self, parent: &TabletHandle, children: &[OpenTablet]) -> Result<(), KvError> {
        if parent.children.split.load().is_some() {
            return Ok(());
        }
        // Entries that the children lack stay in the log, unless it grows too long.
        let held = parent.data.applied_state().map_err(storage_error)?;
        parent.keep_for_children(held.index + 1);
        for child in children {
            if self.disks.is_logged(child.tablet) || self.prepared.lock().contains_key(&child.tablet) {
                continue;
            }
            self.copy_to_child(parent, child.tablet)?;
            let data = self.open_data(child, parent.disk()).map_err(storage_error)?;
            self.prepared.lock().insert(child.tablet, Prepared { disk: parent.disk(), data });
        }
        Ok(())
    }

    /// Makes the children's data, unless it is prepared, and opens the children.
    fn make_children(&self, parent: &TabletHandle, mark: &SplitMark, children: Vec<OpenTablet>) -> Result<(), KvError> {
        let began_ns = self.context.clock.monotonic_ns();
        parent.keep_for_children(u64::MAX);
        let mut records = LogBatch::default();
        let mut prepared = 0;
        for child in &children {
            if self.disks.is_logged(child.tablet) {
                continue;
            }
            let group = GroupId::from(child.tablet);
            if self.add_from_parent(parent, mark, group, &mut records)? {
                prepared += 1;
            } else {
                self.discard_unlogged(child.tablet)?;
                self.copy_to_child(parent, child.tablet)?;
                begin_as_copy(mark, group, &mut records).map_err(storage_error)?;
            }
            let voters = child.initial_voters.iter().map(|node| node.0).collect();
            let initial = ConfState { voters, ..ConfState::default() };
            records.set_conf_state(group, &initial).map_err(storage_error)?;
        }
        if !records.is_empty() {
            self.disks[parent.disk()].log.write(&mut records, true).map_err(storage_error)?;
        }
        let opened: Vec<TabletId> = children.iter().map(|child| child.tablet).collect();
        self.open_closed(children)?;
        for child in opened {
            if let Some(handle) = self.tablets.load().get(&child) {
                self.command(handle, Command::AnnounceOpened(child));
            }
        }
        let elapsed_ms = (self.context.clock.monotonic_ns() - began_ns) / 1_000_000;
        tracing::info!(event = "split", tablet = %parent.id(), prepared, elapsed_ms, "the children of a tablet are here");
        Ok(())
    }

    /// If the child's data was prepared, and the parent's log still has all entries from there to the split, begins the
    /// child's log with them.
    fn add_from_parent(
        &self,
        parent: &TabletHandle,
        mark: &SplitMark,
        group: GroupId,
        records: &mut LogBatch,
    ) -> Result<bool, KvError> {
        let prepared = self.prepared.lock();
        let data = prepared.get(&TabletId(group.0)).filter(|prepared| prepared.disk == parent.disk());
        let Some(data) = data.map(|prepared| Arc::clone(&prepared.data)) else { return Ok(false) };
        drop(prepared);
        let held = data.applied_state().map_err(storage_error)?;
        let reader = self.disks[parent.disk()].log.reader(GroupId::from(parent.id()));
        begin_from_log(&held, mark, &reader, group, records, self.context.planted).map_err(storage_error)
    }

    /// Removes the data of a child of which no log has a record.
    pub(crate) fn discard_unlogged(&self, tablet: TabletId) -> Result<(), KvError> {
        if let Some(prepared) = self.prepared.lock().remove(&tablet) {
            // Its files are removed with it.
            prepared.data.doom();
        }
        for disk in self.disks.working() {
            remove_directory(&disk.directory.tablet(tablet.0)).map_err(storage_error)?;
        }
        Ok(())
    }

    fn copy_to_child(&self, parent: &TabletHandle, child: TabletId) -> Result<(), KvError> {
        self.discard_unlogged(child)?;
        let directory = &self.disks[parent.disk()].directory;
        let staged = directory.staged(child.0, SPLITTING);
        copy_of(&parent.data, &staged).and_then(|()| directory.install(child.0, &staged)).map_err(storage_error)
    }
}

fn remove_directory(path: &std::path::Path) -> Result<(), StorageError> {
    if !path.is_dir() {
        return Ok(());
    }
    let failed = |source| StorageError::Io { action: "cannot remove", path: path.to_owned(), source };
    std::fs::remove_dir_all(path).map_err(failed)
}

fn copy_of(data: &Tablet, staged: &std::path::Path) -> Result<(), StorageError> {
    remove_directory(staged)?;
    data.checkpoint(staged)
}
