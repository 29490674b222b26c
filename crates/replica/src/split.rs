//! A tablet replica that is split: its group ends with an entry that says where, and two others begin with what it holds
//! (`docs/decisions/2026-11-22-splitting-tablets.md`).
//!
//! Always true: a leader has given up its lease before it proposes the entry; a replica that has applied it takes no writes and answers no reads, for ever;
//! all replicas of a child begin at the same index and term, those of the entry, with the same data; a child's data is made of its parent's
//! only on a node whose Raft log knows nothing of the child.
//! Left out: which tablets are split, and that the children take the parent's place (the catalog's).

use crate::copy::{ChildOpening, Copies};
use crate::core::Core;
use crate::events::TabletEventKind;
use crate::handle::TabletHandle;
use crate::store::{Inner, OpenTablet};
use diorite_base::bytes::{Malformed, Reader, put_slice};
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_storage::{Engine, StorageError, Tablet};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Marks the entry in its raft context.
pub(crate) const SPLIT: &[u8] = b"split";

/// What a copy of a parent's data is called until it is a child's.
const SPLITTING: &str = "splitting";

/// How long until it is looked again whether this node knows of the children.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long after a failure it is tried again to make a tablet's children.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Where a tablet is split, and into which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The first key that is the second child's; at least eight bytes long, as keys of the data are.
    pub boundary: Vec<u8>,
    /// The children, in the order of their keys.
    pub children: [TabletId; 2],
}

impl Split {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for child in self.children {
            out.extend_from_slice(&child.0.to_le_bytes());
        }
        put_slice(&mut out, &self.boundary);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::read(&mut Reader::new(bytes))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let children = [TabletId(reader.u64()?), TabletId(reader.u64()?)];
        Ok(Self { boundary: reader.slice()?.to_vec(), children })
    }
}

/// That a tablet has been split, as its data says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMark {
    /// Which.
    pub parent: TabletId,
    /// The entry that split it: its index in the parent's log.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Where, and into which.
    pub split: Split,
}

impl SplitMark {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.parent.0, self.index, self.term] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.split.encode());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (parent, index, term) = (TabletId(reader.u64()?), reader.u64()?, reader.u64()?);
        Ok(Self { parent, index, term, split: Split::read(&mut reader)? })
    }
}

/// Hears of replicas that have been split.
pub trait SplitListener: Send + Sync + 'static {
    /// A replica of this node has applied the entry that splits its tablet, or has been opened as one that had; `leads`: it leads. Must not wait.
    fn split(&self, mark: &SplitMark, leads: bool);
}

impl<E: Engine> Core<E> {
    /// Splits a tablet, if it is led here and nothing else is under way with it; otherwise nothing happens.
    pub fn split(&mut self, tablet: TabletId, split: &Split) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let is_free = !replica.group.is_changing_members() && !replica.group.is_joint();
        if replica.failure.is_some() || !replica.may_propose() || !replica.group.is_established_leader() || !is_free {
            return;
        }
        // In this order: who applies the entry may let a child answer, and this node must not any more.
        replica.split_term = replica.group.term();
        self.context.counters.note_lease(replica.handle.lease.publish(None));
        match replica.group.propose_marked(SPLIT, split.encode()) {
            Ok(index) => tracing::info!(event = "split", %tablet, index, children = ?split.children, "splitting"),
            Err(error) => {
                tracing::warn!(%tablet, %error, "could not propose to split a tablet");
                replica.split_term = 0;
            }
        }
        self.touch(tablet);
        self.advance();
    }

    /// The replica has been split.
    pub(crate) fn on_split(&mut self, tablet: TabletId) {
        self.publish_lease(tablet);
        if let Some(replica) = self.replicas.get(&tablet) {
            replica.handle.split.store(replica.split.clone().map(Arc::new));
        }
        let now_ns = self.context.clock.monotonic_ns();
        let Some(replica) = self.replicas.get(&tablet) else { return };
        let (leads, Some(mark)) = (replica.group.is_leader(), replica.split.clone()) else { return };
        if leads {
            // The others are to know at once.
            self.ping(tablet, now_ns);
        }
        self.context.note(tablet, TabletEventKind::Split { children: mark.split.children });
        self.touch(tablet);
        if let Some(splits) = self.context.splits.get() {
            splits.split(&mark, leads);
        }
    }
}

#[derive(Default)]
struct Waiting {
    marks: VecDeque<(SplitMark, bool)>,
    is_closed: bool,
}

/// The tablets of this node that were split and whose children are to be made.
#[derive(Default)]
pub(crate) struct Splits {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl SplitListener for Splits {
    fn split(&self, mark: &SplitMark, leads: bool) {
        self.waiting.lock().marks.push_back((mark.clone(), leads));
        self.changed.notify_one();
    }
}

impl Splits {
    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Makes children until the store closes.
    pub(crate) fn run(&self, inner: &Inner, copies: &Copies) {
        while let Some((mark, leads)) = self.next() {
            if leads {
                copies.tell_split(&mark);
            }
            match inner.make_children(&mark, copies) {
                Ok(Made(true)) => {}
                Ok(Made(false)) => self.put_back((mark, leads), LOOK_AGAIN),
                Err(error) => {
                    tracing::error!(tablet = %mark.parent, %error, "could not make the children of a tablet that was split");
                    self.put_back((mark, leads), TRY_AGAIN);
                }
            }
        }
    }

    fn put_back(&self, mark: (SplitMark, bool), pause: Duration) {
        let mut waiting = self.waiting.lock();
        waiting.marks.push_back(mark);
        if !waiting.is_closed {
            self.changed.wait_for(&mut waiting, pause);
        }
    }

    fn next(&self) -> Option<(SplitMark, bool)> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(next) = waiting.marks.pop_front() {
                return Some(next);
            }
            self.changed.wait(&mut waiting);
        }
    }
}

/// Whether all children are where they are to be.
struct Made(bool);

impl Inner {
    /// Makes and opens the replicas of a tablet's children, out of the replica of this node. Nothing to do if that is here no more.
    fn make_children(&self, mark: &SplitMark, copies: &Copies) -> Result<Made, KvError> {
        let mut openings = Vec::new();
        for child in mark.split.children {
            match copies.child(mark.parent, child) {
                ChildOpening::As(opening) => openings.push(*opening),
                ChildOpening::Never => {}
                ChildOpening::NotYet => return Ok(Made(false)),
            }
        }
        self.installing.begin(&mark.split.children);
        // Whoever closes the parent closes the children: that is seen here or noted there.
        let parent = self.tablets.load().get(&mark.parent).cloned();
        let made = parent.map_or(Ok(()), |parent| self.make_children_of(&parent, openings));
        self.close(&self.installing.end(&mark.split.children));
        made.map(|()| Made(true))
    }

    fn make_children_of(&self, parent: &TabletHandle, children: Vec<OpenTablet>) -> Result<(), KvError> {
        let began_ns = self.context.clock.monotonic_ns();
        let disk = &self.disks[parent.disk];
        let known = self.working_disks().flat_map(|disk| disk.log.groups()).collect::<Vec<_>>();
        for child in children.iter().map(|child| child.tablet) {
            if !self.has_files(child) && !known.contains(&GroupId::from(child)) {
                let staged = disk.directory.staged(child.0, SPLITTING);
                copy_of(&parent.data, &staged)
                    .and_then(|()| disk.directory.install(child.0, &staged))
                    .map_err(|error| KvError::Storage(error.to_string()))?;
            }
        }
        let copied_ns = self.context.clock.monotonic_ns();
        self.open_closed(children)?;
        let opened_ns = self.context.clock.monotonic_ns();
        let (copied_ms, opened_ms) = ((copied_ns - began_ns) / 1_000_000, (opened_ns - copied_ns) / 1_000_000);
        tracing::info!(event = "split", tablet = %parent.tablet, copied_ms, opened_ms, "the children of a tablet are here");
        Ok(())
    }
}

fn copy_of(data: &Tablet, staged: &std::path::Path) -> Result<(), StorageError> {
    if staged.is_dir() {
        let failed = |source| StorageError::Io { action: "cannot remove", path: staged.to_owned(), source };
        std::fs::remove_dir_all(staged).map_err(failed)?;
    }
    data.checkpoint(staged)
}

/// Removes from a child's data, when it is opened for the first time, what is its sibling's.
pub(crate) fn keep_own(tablet: TabletId, data: &Arc<Tablet>) -> Result<(), StorageError> {
    let Some(bytes) = data.get(diorite_storage::SPLIT_KEY)? else { return Ok(()) };
    let corrupt = |_| StorageError::Corrupt(format!("how {tablet} was split"));
    let mark = SplitMark::decode(&bytes).map_err(corrupt)?;
    let boundary = Some(mark.split.boundary.as_slice());
    match mark.split.children.iter().position(|child| *child == tablet) {
        Some(0) => data.keep_only(None, boundary),
        Some(_) => data.keep_only(boundary, None),
        // Its own, or its parent's parent's.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_its_encoding() {
        let split = Split { boundary: vec![0x80; 9], children: [TabletId(7), TabletId(8)] };
        let mark = SplitMark { parent: TabletId(3), index: 1 << 40, term: 9, split };
        assert_eq!(SplitMark::decode(&mark.encode()).expect("own encoding"), mark);
        assert_eq!(Split::decode(&mark.split.encode()).expect("own encoding"), mark.split);
        assert!(SplitMark::decode(b"short").is_err());
    }
}
