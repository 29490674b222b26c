//! A tablet replica that is split: its group ends with an entry that says where, and two others begin with what it holds
//! (`docs/decisions/2026-11-22-splitting-tablets.md`).
//!
//! Always true: a leader has given up its lease before it proposes the entry; a replica that has applied it takes no writes and answers no reads, for ever;
//! all replicas of a child begin at the same index and term, those of the entry, with the same data; a child's data is made of its parent's
//! only on a node whose Raft log knows nothing of the child, and counts for nothing until it does.
//! Left out: which tablets are split, and that the children take the parent's place (the catalog's).

use crate::copy::{ChildOpening, Copies};
use crate::core::Core;
use crate::events::TabletEventKind;
use crate::handle::{TabletHandle, storage_error};
use crate::planted::Planted;
use crate::store::{Inner, OpenTablet};
use crate::wire::Envelope;
use crate::worker::Command;
use ahash::AHashSet;
use diorite_base::bytes::{Malformed, Reader, put_slice};
use diorite_base::write::KvError;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::{ConfState, HardState, LogReader};
use diorite_storage::{
    AFTER_ALL_KEYS, AppliedState, Engine, LogBatch, LogRecords, MEMBERS_KEY, SPLIT_KEY, StorageError, Tablet,
    TabletBatch as _, TabletData,
};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Marks the entry in its raft context.
pub(crate) const SPLIT: &[u8] = b"split";

/// What a copy of a parent's data is called until it is a child's.
const SPLITTING: &str = "splitting";

/// What is added to prepared children from their parent's log at most, for each; if there is more they are made anew.
const MAX_ADDED_BYTES: u64 = 16 << 20;

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
        if !self.context.planted.keep_lease_when_split {
            replica.end_lease(&self.context.counters);
        }
        match replica.group.propose_marked(SPLIT, split.encode()) {
            Ok(index) => {
                replica.note_ending(index);
                tracing::info!(event = "split", %tablet, index, children = ?split.children, "splitting");
            }
            Err(error) => tracing::warn!(%tablet, %error, "could not propose to split a tablet"),
        }
        self.touch(tablet);
        self.advance();
    }

    /// This node has prepared the children of a tablet: its leader hears of it.
    pub fn tell_prepared(&mut self, tablet: TabletId) {
        let Some(replica) = self.replicas.get(&tablet) else { return };
        let (group, leader) = (replica.group_id, replica.leader_elsewhere(self.context.node));
        if let Some(leader) = leader {
            self.post_envelope(leader, group, &Envelope::Prepared);
            self.touch(tablet);
        }
    }

    pub(crate) fn on_prepared(&self, from: NodeId, tablet: TabletId) {
        let Some(replica) = self.replicas.get(&tablet) else { return };
        if replica.group.all_voters().any(|voter| voter == from.0) {
            replica.handle.prepared.lock().insert(from);
        }
    }

    /// A replica of a new child is open here: whoever is to campaign first need not try again in vain.
    pub fn tell_opened(&mut self, tablet: TabletId) {
        let Some(replica) = self.replicas.get(&tablet).filter(|replica| replica.group.leader() == 0) else { return };
        let (group, first) = (replica.group_id, replica.ranked_voters().first().copied());
        if let Some(first) = first.filter(|first| *first != self.context.node.0) {
            self.post_envelope(NodeId(first), group, &Envelope::Opened);
            self.touch(tablet);
        }
    }

    /// A replica on another node is open that knows of no leader.
    pub(crate) fn on_opened(&mut self, from: NodeId, tablet: TabletId) {
        let (me, now_ns) = (self.context.node.0, self.context.clock.monotonic_ns());
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if replica.group.is_leader() {
            // It is told again, whatever it had heard of before.
            replica.group.forget_commit(from.0, 0);
        } else if replica.group.leader() == 0 && replica.ranked_voters().first() == Some(&me) {
            replica.campaign_ns = now_ns;
            self.look_after(tablet, now_ns);
        }
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

/// What there is to do for a tablet that is, or will be, split.
enum Job {
    /// Make its children's data beforehand: what it gets until it is split is added from its log.
    Prepare(TabletId, Split),
    /// Open its children; the flag: it was led here.
    Make(SplitMark, bool),
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Tablets whose children have been prepared, if that was possible.
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
        // Before what is only prepared: clients wait for it.
        self.waiting.lock().jobs.push_front(Job::Make(mark.clone(), leads));
        self.changed.notify_one();
    }
}

impl Splits {
    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Whether the tablet's children have been prepared, as far as possible; if not they will be.
    pub(crate) fn prepare(&self, tablet: TabletId, split: &Split) -> bool {
        let mut waiting = self.waiting.lock();
        let is_queued = |job: &Job| matches!(job, Job::Prepare(queued, _) if *queued == tablet);
        if !waiting.prepared.contains(&tablet) && !waiting.jobs.iter().any(is_queued) {
            waiting.jobs.push_back(Job::Prepare(tablet, split.clone()));
            self.changed.notify_one();
        }
        waiting.prepared.contains(&tablet)
    }

    /// The tablet is not to be split.
    pub(crate) fn forget(&self, tablet: TabletId) {
        let mut waiting = self.waiting.lock();
        waiting.jobs.retain(|job| !matches!(job, Job::Prepare(parent, _) if *parent == tablet));
        waiting.prepared.remove(&tablet);
    }

    /// Makes children until the store closes.
    pub(crate) fn run(&self, inner: &Inner, copies: &Copies) {
        while let Some(job) = self.next() {
            let (parent, split) = match &job {
                Job::Prepare(parent, split) => (*parent, split),
                Job::Make(mark, _) => (mark.parent, &mark.split),
            };
            if let Job::Make(mark, true) = &job {
                copies.tell_split(mark);
            }
            // A replica that is being opened hears of its split before others find it.
            let is_opening = inner.installing.lock().contains_key(&parent);
            let Some(openings) = openings(parent, split, copies).filter(|_| !is_opening) else {
                self.put_back(job, LOOK_AGAIN);
                continue;
            };
            match &job {
                Job::Prepare(..) => {
                    inner.with_parent(parent, split, |handle| inner.prepare_children(handle, &openings)).unwrap_or_else(|error| {
                        tracing::warn!(tablet = %parent, %error, "could not prepare the children of a tablet that is to be split");
                    });
                    self.waiting.lock().prepared.insert(parent);
                }
                Job::Make(mark, _) => {
                    self.waiting.lock().prepared.remove(&parent);
                    if let Err(error) =
                        inner.with_parent(parent, split, |handle| inner.make_children(handle, mark, openings))
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

/// How the children that are to be here are opened; none: this node does not know of them yet.
fn openings(parent: TabletId, split: &Split, copies: &Copies) -> Option<Vec<OpenTablet>> {
    let mut openings = Vec::new();
    for child in split.children {
        match copies.child(parent, child) {
            ChildOpening::As(opening) => openings.push(*opening),
            ChildOpening::Never => {}
            ChildOpening::NotYet => return None,
        }
    }
    Some(openings)
}

/// The data of a child that was made before its parent was split.
pub(crate) struct Prepared {
    disk: usize,
    pub(crate) data: Arc<Tablet>,
}

impl Inner {
    /// Does something to the children of a tablet that nobody else opens or closes meanwhile. Nothing if the tablet is here no more: whoever closes it closes its
    /// children, and that is seen here or noted there.
    fn with_parent(
        &self,
        parent: TabletId,
        split: &Split,
        act: impl FnOnce(&TabletHandle) -> Result<(), KvError>,
    ) -> Result<(), KvError> {
        self.installing.begin(&split.children);
        let handle = self.tablets.load().get(&parent).cloned();
        let done = handle.map_or(Ok(()), |handle| act(&handle));
        self.close(&self.installing.end(&split.children));
        done
    }

    /// Makes the children's data as of now, and opens it: most of what takes time is done before the tablet is split.
    fn prepare_children(&self, parent: &TabletHandle, children: &[OpenTablet]) -> Result<(), KvError> {
        if parent.split.load().is_some() {
            return Ok(());
        }
        // What the children lack is to stay in the log, unless it grows too long.
        let held = parent.data.applied_state().map_err(storage_error)?;
        parent.keep_for_children(held.index + 1);
        for child in children {
            if self.is_logged(child.tablet) || self.prepared.lock().contains_key(&child.tablet) {
                continue;
            }
            self.copy_to_child(parent, child.tablet)?;
            let data = self.open_data(child, parent.disk).map_err(storage_error)?;
            self.prepared.lock().insert(child.tablet, Prepared { disk: parent.disk, data });
        }
        Ok(())
    }

    /// Makes the children's data, unless that is done, and opens them.
    fn make_children(&self, parent: &TabletHandle, mark: &SplitMark, children: Vec<OpenTablet>) -> Result<(), KvError> {
        let began_ns = self.context.clock.monotonic_ns();
        parent.keep_for_children(u64::MAX);
        let mut records = LogBatch::default();
        let mut prepared = 0;
        for child in &children {
            if self.is_logged(child.tablet) {
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
            let voters = child.founders.iter().map(|node| node.0).collect();
            let founders = ConfState { voters, ..ConfState::default() };
            records.set_conf_state(group, &founders).map_err(storage_error)?;
        }
        if !records.is_empty() {
            self.disks[parent.disk].log.write(&mut records, true).map_err(storage_error)?;
        }
        let opened: Vec<TabletId> = children.iter().map(|child| child.tablet).collect();
        self.open_closed(children)?;
        for child in opened {
            if let Some(handle) = self.tablets.load().get(&child) {
                self.queues[handle.worker].command(Command::TellOpened(child));
            }
        }
        let elapsed_ms = (self.context.clock.monotonic_ns() - began_ns) / 1_000_000;
        tracing::info!(event = "split", tablet = %parent.tablet, prepared, elapsed_ms, "the children of a tablet are here");
        Ok(())
    }

    /// If the child's data was prepared, and the parent's log still has what came after that until the split: makes that the beginning of the child's log.
    fn add_from_parent(
        &self,
        parent: &TabletHandle,
        mark: &SplitMark,
        group: GroupId,
        records: &mut LogBatch,
    ) -> Result<bool, KvError> {
        let prepared = self.prepared.lock();
        let data = prepared.get(&TabletId(group.0)).filter(|prepared| prepared.disk == parent.disk);
        let Some(data) = data.map(|prepared| Arc::clone(&prepared.data)) else { return Ok(false) };
        drop(prepared);
        let held = data.applied_state().map_err(storage_error)?;
        let reader = self.disks[parent.disk].log.reader(GroupId::from(parent.tablet));
        begin_from_log(&held, mark, &reader, group, records, self.context.planted).map_err(storage_error)
    }

    /// Whether some log says anything of a tablet. What there is of a child otherwise is not finished, and counts for nothing.
    pub(crate) fn is_logged(&self, tablet: TabletId) -> bool {
        self.working_disks().any(|disk| disk.log.groups().contains(&GroupId::from(tablet)))
    }

    /// Removes what was made of a child of which no log says anything.
    pub(crate) fn discard_unlogged(&self, tablet: TabletId) -> Result<(), KvError> {
        if let Some(prepared) = self.prepared.lock().remove(&tablet) {
            // Its files go with it.
            prepared.data.doom();
        }
        for disk in self.working_disks() {
            remove_directory(&disk.directory.tablet(tablet.0)).map_err(storage_error)?;
        }
        Ok(())
    }

    fn copy_to_child(&self, parent: &TabletHandle, child: TabletId) -> Result<(), KvError> {
        self.discard_unlogged(child)?;
        let directory = &self.disks[parent.disk].directory;
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

/// Begins the log of a child whose data was made when its parent had applied `held`, with what `parent`'s log holds from there until the split, committed. Returns
/// false, and changes nothing, if that is not whole.
pub fn begin_from_log<R: LogReader, B: LogRecords>(
    held: &AppliedState,
    mark: &SplitMark,
    parent: &R,
    child: GroupId,
    records: &mut B,
    planted: Planted,
) -> Result<bool, StorageError> {
    if held.index >= mark.index {
        return Ok(false);
    }
    let mut entries = parent.entries(held.index + 1, mark.index + 1, MAX_ADDED_BYTES).unwrap_or_default();
    let is_whole = entries.first().is_some_and(|entry| entry.index == held.index + 1)
        && entries.last().is_some_and(|entry| (entry.index, entry.term) == (mark.index, mark.term));
    // Of a parent that lagged so far behind that it was a child still to be cut: whose part is to be kept there only that knows.
    let is_cut_twice = entries.iter().rev().skip(1).any(|entry| entry.context == SPLIT);
    if !is_whole || is_cut_twice {
        return Ok(false);
    }
    if planted.allowed().forget_parents_log {
        entries.iter_mut().filter(|entry| entry.context.is_empty()).for_each(|entry| entry.data.clear());
    }
    records.restart_after(child, 0, held.index, held.term)?;
    records.append(child, &entries, mark.index)?;
    let state = HardState { term: mark.term, commit: mark.index, ..HardState::default() };
    records.set_hard_state(child, &state)?;
    Ok(true)
}

/// Begins the log of a child whose data was made when its parent had been split: it stands for everything until there.
pub fn begin_as_copy<B: LogRecords>(mark: &SplitMark, child: GroupId, records: &mut B) -> Result<(), StorageError> {
    records.restart_after(child, 0, mark.index, mark.term)
}

/// Removes from a child's data, when it is opened for the first time, what is its sibling's. Its group begins where its parent's was split, whatever that has
/// applied since.
///
/// Durable when it returns: the log is cut by what is durable, and that must not be an index of the parent's log.
pub fn keep_own<E: Engine>(tablet: TabletId, data: &Arc<E::Tablet>, planted: Planted) -> Result<(), StorageError> {
    let Some(bytes) = data.get(SPLIT_KEY)? else { return Ok(()) };
    let corrupt = |_| StorageError::Corrupt(format!("how {tablet} was split"));
    let mark = SplitMark::decode(&bytes).map_err(corrupt)?;
    let mut batch = <E::Tablet as TabletData>::Batch::default();
    if keep_part::<E>(&mark.split, tablet, data, &mut batch)? {
        let state = AppliedState { index: mark.index, term: mark.term, ..data.applied_state()? };
        data.apply(&mut batch, &state)?;
        if !planted.allowed().keep_own_in_memory {
            data.make_durable()?;
        }
    }
    Ok(())
}

/// Puts into `batch`, if `tablet` is a child of this split, that what is its sibling's goes. The applied state has to be written with it.
pub(crate) fn keep_part<E: Engine>(
    split: &Split,
    tablet: TabletId,
    data: &Arc<E::Tablet>,
    batch: &mut <E::Tablet as TabletData>::Batch,
) -> Result<bool, StorageError> {
    match split.children.iter().position(|child| *child == tablet) {
        Some(0) => batch.delete_range(&split.boundary, AFTER_ALL_KEYS),
        Some(_) => batch.delete_range(&[], &split.boundary),
        // Its own, or its parent's parent's.
        None => return Ok(false),
    }
    // What is about the tablet itself may lie within the range.
    if let Some(members) = data.get(MEMBERS_KEY)? {
        batch.put(MEMBERS_KEY, &members);
    }
    batch.delete(SPLIT_KEY);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_raft::Entry;
    use diorite_storage::MemoryRecords;

    struct Parent(Vec<Entry>);

    impl LogReader for Parent {
        fn entries(&self, low: u64, high: u64, _: u64) -> Result<Vec<Entry>, String> {
            Ok(self.0.iter().filter(|entry| (low..high).contains(&entry.index)).cloned().collect())
        }
    }

    /// The log of a child is cut by what is durable: if that said how far its parent had come, entries of the child would go that are in memory only.
    #[test]
    fn a_child_that_begins_as_a_copy_is_durable_as_its_own() {
        use diorite_storage::{Memory, MemoryBatch, MemoryTablet, TabletBatch, TabletData};
        let split = Split { boundary: vec![0x80; 9], children: [TabletId(7), TabletId(8)] };
        let mark = SplitMark { parent: TabletId(3), index: 9, term: 2, split };
        let data = Arc::new(MemoryTablet::new(None));
        let mut batch = MemoryBatch::default();
        batch.put(SPLIT_KEY, &mark.encode());
        // The parent has applied more since, of its own log.
        data.apply(&mut batch, &AppliedState { index: 12, term: 4, ..AppliedState::default() }).expect("memory");
        data.flush();
        keep_own::<Memory>(TabletId(7), &data, Planted::default()).expect("memory");
        assert_eq!((data.flushed_state().index, data.flushed_state().term), (9, 2));
    }

    #[test]
    fn a_child_takes_its_parents_log_only_if_that_was_not_itself_split_off_in_it() {
        let split = Split { boundary: vec![0x80; 9], children: [TabletId(7), TabletId(8)] };
        let mark = SplitMark { parent: TabletId(3), index: 9, term: 2, split };
        let log = |splits: &[u64]| {
            let context = |index| if splits.contains(&index) { SPLIT } else { &[] };
            Parent(
                (1..=9)
                    .map(|index| Entry { index, term: 2, context: context(index).into(), ..Entry::default() })
                    .collect(),
            )
        };
        let begins = |splits: &[u64], index| {
            let held = AppliedState { index, term: 2, ..AppliedState::default() };
            let mut records = MemoryRecords::default();
            let begun = begin_from_log(&held, &mark, &log(splits), GroupId(7), &mut records, Planted::default());
            assert_eq!(begun.as_ref().ok(), Some(&!records.is_empty()), "all or nothing");
            begun.expect("memory takes everything")
        };
        assert!(begins(&[9], 4));
        assert!(!begins(&[9], 9), "it was made after the split");
        assert!(!begins(&[6, 9], 4), "what the parent was split from ends within");
        assert!(begins(&[6, 9], 6), "or before");
    }

    #[test]
    fn a_mark_survives_its_encoding() {
        let split = Split { boundary: vec![0x80; 9], children: [TabletId(7), TabletId(8)] };
        let mark = SplitMark { parent: TabletId(3), index: 1 << 40, term: 9, split };
        assert_eq!(SplitMark::decode(&mark.encode()).expect("own encoding"), mark);
        assert_eq!(Split::decode(&mark.split.encode()).expect("own encoding"), mark.split);
        assert!(SplitMark::decode(b"short").is_err());
    }
}
