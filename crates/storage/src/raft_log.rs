//! The Raft log of one data disk, shared by all its tablets, so that one fsync makes the entries of many groups durable.
//!
//! The records of a group: its entries, of which the last one of each write carries the commit index
//! ([`RecordedEntry`]); `h` hard state; `c` configuration; `t` index and term of the last truncated entry, and one byte
//! that says whether the log ended there (absent in older logs); `f` the floor of a replica that was here before, or
//! that may have lost the end of its log: index and term of the last entry that it may have acknowledged; `x` a text
//! that says why the group's records cannot be relied on: durable ones were lost (`log_audit`, `log_damage`). Group 0
//! holds the log's own record: `d`, with each write, how far the log was durable when it began.
//!
//! Always true: entries that were replaced or truncated are not returned, whatever the engine has kept. The engine
//! copies old entries into other files than the records that replaced or truncated them, and the file with these
//! records may be deleted first. A replacing entry stays as long as the log has any record of its group. If the log
//! ended with the truncated entries, the truncation record says so, and any entry after it must have been written
//! later, with a commit index at least as high.

use crate::engine::{Log, LogRecords};
use crate::error::StorageError;
use crate::hang::Hang;
use crate::log_audit::{
    Audit, FENCE, FileReader, HARD_STATE, OWN_GROUP, Verdict, fence_value, from_disk, is_unreadable,
};
use crate::log_damage::Folder;
use crate::log_files::{Durable, FILE_BYTES, LogFiles};
use crate::log_freed::{Freed, FreedRecord};
use crate::recorded::RecordedEntry;
use diorite_base::GroupId;
use diorite_raft::{
    ConfState, Entry, HardState, LogPosition, LogReadError, LogReader, Recovered, UNKNOWN_FLOOR, floor_without_log,
};
use raft_engine::{Command, Config, LogBatch as EngineBatch, MessageExt, ReadableSize};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Engine = raft_engine::Engine<LogFiles>;

const CONF_STATE: &[u8] = b"c";
const TRUNCATED: &[u8] = b"t";
const FLOOR: &[u8] = b"f";
const DAMAGE: &[u8] = b"x";

/// A log with a smaller limit prepares no files: it soon recycles its own.
const PREPARES_FROM_BYTES: u64 = 16 * FILE_BYTES;

#[derive(Clone)]
struct Entries;

impl MessageExt for Entries {
    type Entry = RecordedEntry;

    fn index(recorded: &RecordedEntry) -> u64 {
        recorded.entry.index
    }
}

/// The truncation record of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Cut {
    /// Position of the last truncated entry.
    last: LogPosition,
    /// Whether the log held no other entries.
    was_all: bool,
}

impl Cut {
    /// Whether the last entry that the engine holds was replaced or truncated before this.
    fn is_older(&self, recorded: &RecordedEntry) -> bool {
        recorded.entry.term < self.last.term || (self.was_all && recorded.commit < self.last.index)
    }
}

fn position(LogPosition { index, term }: LogPosition) -> Vec<u8> {
    let mut value = index.to_le_bytes().to_vec();
    value.extend_from_slice(&term.to_le_bytes());
    value
}

/// Records of any number of groups, to be written with one fsync.
#[derive(Default)]
pub struct LogBatch {
    inner: EngineBatch,
    /// A reused buffer, empty between calls.
    recorded: Vec<RecordedEntry>,
}

impl LogBatch {
    /// Records why a group's records cannot be relied on.
    pub(crate) fn set_damage(&mut self, group: GroupId, reason: &str) -> Result<(), StorageError> {
        Ok(self.inner.put(group.0, DAMAGE.to_vec(), reason.as_bytes().to_vec())?)
    }

    /// Removes the record of damage, after which the group relies on the remaining entries of its log
    /// ([`RaftLog::damage`]).
    pub fn forget_damage(&mut self, group: GroupId) {
        self.inner.delete(group.0, DAMAGE.to_vec());
    }
}

impl LogRecords for LogBatch {
    fn append(&mut self, group: GroupId, entries: &[Entry], commit: u64) -> Result<(), StorageError> {
        RecordedEntry::all(entries, commit, &mut self.recorded);
        let added = self.inner.add_entries::<Entries>(group.0, &self.recorded);
        self.recorded.clear();
        Ok(added?)
    }

    fn set_hard_state(&mut self, group: GroupId, state: &HardState) -> Result<(), StorageError> {
        Ok(self.inner.put_message(group.0, HARD_STATE.to_vec(), state)?)
    }

    fn set_conf_state(&mut self, group: GroupId, state: &ConfState) -> Result<(), StorageError> {
        Ok(self.inner.put_message(group.0, CONF_STATE.to_vec(), state)?)
    }

    fn truncate_to(&mut self, group: GroupId, index: u64, term: u64, is_end: bool) -> Result<(), StorageError> {
        let mut record = position(LogPosition::new(index, term));
        record.push(u8::from(is_end));
        self.inner.put(group.0, TRUNCATED.to_vec(), record)?;
        self.inner.add_command(group.0, Command::Compact { index: index + 1 });
        Ok(())
    }

    fn restart_after(&mut self, group: GroupId, last: u64, index: u64, term: u64) -> Result<(), StorageError> {
        self.truncate_to(group, index, term, true)?;
        if last > index {
            self.inner.add_command(group.0, Command::Compact { index: last + 1 });
        }
        Ok(())
    }

    fn remove(&mut self, group: GroupId) {
        self.inner.add_command(group.0, Command::Clean);
    }

    fn retire(&mut self, group: GroupId, state: &HardState, floor: LogPosition) -> Result<(), StorageError> {
        self.remove(group);
        self.set_hard_state(group, state)?;
        self.set_floor(group, floor_without_log(floor, state))
    }

    fn set_floor(&mut self, group: GroupId, floor: LogPosition) -> Result<(), StorageError> {
        Ok(self.inner.put(group.0, FLOOR.to_vec(), position(floor))?)
    }

    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
}

/// The log of one data disk.
#[derive(Clone)]
pub struct RaftLog {
    engine: Arc<Engine>,
    files: Arc<LogFiles>,
    directory: Arc<PathBuf>,
    has_failed: Arc<AtomicBool>,
    hang: Arc<Hang>,
    syncs: Arc<AtomicU64>,
}

/// The engine's error when it did not open.
struct Refused {
    error: raft_engine::Error,
    /// Whether the cause is damage, as opposed to a lack of resources at the moment.
    is_damage: bool,
}

impl Refused {
    fn error(self) -> StorageError {
        self.error.into()
    }

    fn verdict(self) -> Result<Verdict, StorageError> {
        let reason = self.error.to_string();
        if self.is_damage { Ok(Verdict::Damaged { reason, groups: None }) } else { Err(self.error.into()) }
    }
}

fn open_engine(config: &Config, files: &Arc<LogFiles>) -> Result<Engine, Refused> {
    use raft_engine::Error;
    match catch_unwind(AssertUnwindSafe(|| Engine::open_with_file_system(config.clone(), Arc::clone(files)))) {
        Ok(opened) => opened.map_err(|error| {
            let is_damage = match &error {
                Error::Corruption(_) | Error::Codec(_) | Error::Protobuf(_) => true,
                // The disk could read the file a moment ago.
                Error::Io(error) => is_unreadable(error),
                _ => false,
            };
            Refused { error, is_damage }
        }),
        Err(_) => {
            let error = Error::Corruption("the log's files contradict each other".to_owned());
            Err(Refused { error, is_damage: true })
        }
    }
}

fn config(directory: &Path, limit_bytes: u64) -> Result<Config, StorageError> {
    let Some(dir) = directory.to_str() else {
        return Err(StorageError::Log(format!("{} is not valid UTF-8", directory.display())));
    };
    Ok(Config {
        dir: dir.to_owned(),
        target_file_size: ReadableSize(FILE_BYTES),
        // The size from which on files are freed. The engine expects everything in the oldest fifth of the files to be
        // obsolete by then, and rewrites the rest; before that there must be time to flush it.
        purge_threshold: ReadableSize((limit_bytes / 4 * 3).max(2 * FILE_BYTES)),
        // Appending to an existing file changes no file system metadata, so an fsync does not wait for the journal and
        // the other writes on the disk. The engine can preallocate files too, but would not make them durable; see
        // `log_files`.
        enable_log_recycle: true,
        prefill_for_recycle: false,
        // Values are hardly compressible, and the log is short-lived.
        batch_compression_threshold: ReadableSize(0),
        recovery_threads: 2,
        recovery_read_block_size: ReadableSize::kb(256),
        ..Config::default()
    })
}

impl RaftLog {
    /// Opens the log in `directory`, or creates it, even if it is damaged: see [`Self::damage`]. `held`: the groups
    /// that have data on this disk.
    pub fn open(directory: &Path, limit_bytes: u64, held: &[GroupId]) -> Result<Self, StorageError> {
        Self::open_by(directory, limit_bytes, held, &from_disk)
    }

    pub(crate) fn open_by(
        directory: &Path,
        limit_bytes: u64,
        held: &[GroupId],
        reader: &FileReader<'_>,
    ) -> Result<Self, StorageError> {
        let config = config(directory, limit_bytes)?;
        let folder = Folder(directory);
        let io = |action| move |source| StorageError::Io { action, path: directory.to_owned(), source };
        let audit = Audit::of(directory, folder.durable(), reader).map_err(io("cannot read"))?;
        let mut verdict = audit.verdict.clone().or(folder.found());
        if !audit.has_files && !held.is_empty() {
            verdict = verdict.or(Verdict::Damaged { reason: "its files are missing".to_owned(), groups: None });
        }
        folder.note_found(&verdict)?;
        audit.cut_files().map_err(io("cannot cut"))?;
        let known = if verdict == Verdict::Whole { audit.durable } else { Durable::default() };
        let freed = FreedRecord::open(directory, audit.freed).map_err(io("cannot write"))?;
        audit.remove_obsolete().map_err(io("cannot remove"))?;
        let mut files = Arc::new(LogFiles::new(directory, known, freed));
        // The engine trusts the length that a block claims.
        let opened = if audit.is_unreadable { None } else { Some(open_engine(&config, &files)) };
        let engine = match opened {
            Some(Ok(engine)) => engine,
            refused => {
                if let Some(Err(refused)) = refused {
                    verdict = verdict.or(refused.verdict()?);
                }
                tracing::error!(event = "disk", path = %directory.display(), ?verdict, "the raft log cannot be opened: its files are set aside, and a new log begins");
                folder.note_found(&verdict)?;
                folder.set_files_aside()?;
                let freed = FreedRecord::open(directory, Freed::default()).map_err(io("cannot write"))?;
                files = Arc::new(LogFiles::new(directory, Durable::default(), freed));
                open_engine(&config, &files).map_err(Refused::error)?
            }
        };
        if limit_bytes >= PREPARES_FROM_BYTES {
            files.prepare_ahead().map_err(io("cannot start a thread for"))?;
        }
        let log = Self {
            engine: Arc::new(engine),
            files,
            directory: Arc::new(directory.to_owned()),
            has_failed: Arc::default(),
            hang: Arc::default(),
            syncs: Arc::default(),
        };
        log.cut_again()?;
        log.record_damage(&verdict, &audit, held)?;
        Ok(log)
    }

    /// Records the findings of an audit for the affected groups.
    fn record_damage(&self, verdict: &Verdict, audit: &Audit, held: &[GroupId]) -> Result<(), StorageError> {
        let path = self.directory.display();
        let found = || audit.groups.iter().copied().map(GroupId).chain(held.iter().copied());
        match verdict {
            Verdict::Whole => return Ok(()),
            Verdict::Doubt(reason) => {
                let replicas = self.forget_damaged_floors(found())?;
                tracing::warn!(event = "disk", %path, reason, replicas, "the last writes to the raft log may be lost: its replicas ask the others");
            }
            Verdict::Damaged { reason, groups } => {
                // Other findings of the same audit are not distinguished.
                self.forget_damaged_floors(found())?;
                let all = || self.groups().into_iter().chain(found()).map(|group| group.0).collect();
                let concerned: BTreeSet<u64> = groups.clone().unwrap_or_else(all);
                tracing::error!(event = "disk", %path, reason, replicas = concerned.len(), "the raft log is damaged: replicas are set aside");
                let mut batch = LogBatch::default();
                for group in concerned.into_iter().map(GroupId) {
                    let known = self.engine.get_message::<HardState>(group.0, HARD_STATE)?.unwrap_or_default();
                    if let Some(found) = audit.hard_states.get(&group.0).filter(|found| found.term >= known.term) {
                        batch.set_hard_state(group, found)?;
                    }
                    batch.set_floor(group, UNKNOWN_FLOOR)?;
                    batch.set_damage(group, &format!("the raft log of its disk is damaged: {reason}"))?;
                }
                self.write(&mut batch, true)?;
            }
        }
        Folder(&self.directory).forget_found()
    }

    /// Why the group's records cannot be relied on: durable records were lost, so the group's replica must be rebuilt
    /// from others. Set until [`LogRecords::retire`] or [`LogBatch::forget_damage`].
    pub fn damage(&self, group: GroupId) -> Option<String> {
        self.engine.get(group.0, DAMAGE).map(|reason| String::from_utf8_lossy(&reason).into_owned())
    }

    /// Removes the files of former logs that could not be opened, once no group needs them.
    pub fn forget_damaged_files(&self) -> Result<(), StorageError> {
        if self.groups().into_iter().any(|group| self.damage(group).is_some()) {
            return Ok(());
        }
        Folder(&self.directory).forget_files_aside()
    }

    /// Drops entries that were replaced or truncated and have come back (see the module's documentation). An entry
    /// after the end of such a log would leave a gap, which the engine does not allow.
    fn cut_again(&self) -> Result<(), StorageError> {
        let mut batch = EngineBatch::default();
        for group in self.groups() {
            let cut = self.cut(group)?;
            let (Some(first), Some(last)) = (self.engine.first_index(group.0), self.engine.last_index(group.0)) else {
                continue;
            };
            let newest = match self.last_entry(group, &cut) {
                Ok(newest) => newest,
                // The same error is reported when the replica is opened, which sets it aside.
                Err(StorageError::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            };
            if last > cut.last.index && newest.is_none() {
                tracing::warn!(%group, after = cut.last.index, last, "entries that were replaced are back in the raft log: they are dropped again");
                batch.add_command(group.0, Command::Compact { index: last + 1 });
            } else if first <= cut.last.index {
                batch.add_command(group.0, Command::Compact { index: cut.last.index + 1 });
            }
        }
        // Not synced: if this write is lost, the next start repeats it.
        self.engine.write(&mut batch, false)?;
        Ok(())
    }

    /// Writes and empties `batch`; with `sync`, durable when it returns. After an error the state of the disk is
    /// unknown: nothing more is written to it.
    pub fn write(&self, batch: &mut LogBatch, sync: bool) -> Result<usize, StorageError> {
        if !batch.is_empty() {
            batch.inner.put(OWN_GROUP, FENCE.to_vec(), fence_value(self.files.durable()))?;
        }
        self.unless_failed(|engine| engine.write(&mut batch.inner, sync))
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<(), StorageError> {
        // The engine's own `sync` has no effect: it writes an empty batch, which the engine skips.
        self.unless_failed(|_| Ok(self.files.sync()?))?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The number of times that [`Self::sync`] has synced.
    #[doc(hidden)]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Whether the log no longer writes to the disk, because a write has failed or [`Self::give_up`] was called.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Stops all writes: the disk is known to have failed.
    pub fn give_up(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// For tests: lets every write wait from now on, until this is called with `false`.
    #[doc(hidden)]
    pub fn hang(&self, hangs: bool) {
        self.hang.set(hangs);
    }

    /// Runs `write` unless an earlier write has failed. The engine panics when an fsync fails, and cannot be used any
    /// more; that must not end the process, as the logs of the other disks are not affected.
    fn unless_failed<T>(&self, write: impl FnOnce(&Engine) -> raft_engine::Result<T>) -> Result<T, StorageError> {
        if self.has_failed() {
            return Err(StorageError::Log("its disk has failed".to_owned()));
        }
        self.hang.wait();
        let outcome = match catch_unwind(AssertUnwindSafe(|| write(&self.engine))) {
            Ok(outcome) => outcome.map_err(StorageError::from),
            Err(_) => Err(StorageError::Log("a write could not be made durable".to_owned())),
        };
        if outcome.is_err() {
            self.give_up();
        }
        outcome
    }

    /// The state of a group according to the log; `applied` is not set, as only the state machine has it.
    pub fn recover(&self, group: GroupId) -> Result<Recovered, StorageError> {
        let (cut, floor) = (self.cut(group)?, self.position(group, FLOOR)?);
        let truncated = cut.last;
        let mut hard_state = self.engine.get_message::<HardState>(group.0, HARD_STATE)?.unwrap_or_default();
        let last = match self.last_entry(group, &cut)? {
            Some(recorded) => {
                hard_state.commit = hard_state.commit.max(recorded.commit);
                LogPosition::from(&recorded.entry)
            }
            None => truncated,
        };
        Ok(Recovered {
            hard_state,
            conf_state: self.engine.get_message::<ConfState>(group.0, CONF_STATE)?.unwrap_or_default(),
            truncated,
            last,
            applied: 0,
            floor,
        })
    }

    /// The state that a replica whose log cannot be used must remember: term and vote, and the last position that it
    /// may have acknowledged.
    ///
    /// # Errors
    /// If its term and vote cannot be read. If its entries cannot be read, how far it has acknowledged is unknown.
    pub fn memory(&self, group: GroupId) -> Result<(HardState, LogPosition), StorageError> {
        let state = self.engine.get_message::<HardState>(group.0, HARD_STATE)?.unwrap_or_default();
        let floor = self.recover(group).map_or(UNKNOWN_FLOOR, |recovered| recovered.last_acknowledged());
        Ok((state, floor))
    }

    /// The last entry of the log; `None` if there is none after the truncation.
    fn last_entry(&self, group: GroupId, cut: &Cut) -> Result<Option<RecordedEntry>, StorageError> {
        let Some(index) = self.engine.last_index(group.0).filter(|&index| index > cut.last.index) else {
            return Ok(None);
        };
        let recorded = self.engine.get_entry::<Entries>(group.0, index)?;
        let recorded = recorded.ok_or_else(|| StorageError::Corrupt(format!("{group} lacks entry {index}")))?;
        Ok(Some(recorded).filter(|recorded| !cut.is_older(recorded)))
    }

    /// The truncation record of a group.
    fn cut(&self, group: GroupId) -> Result<Cut, StorageError> {
        let was_all = self.engine.get(group.0, TRUNCATED).is_some_and(|value| value.get(16) == Some(&1));
        Ok(Cut { last: self.position(group, TRUNCATED)?, was_all })
    }

    /// Sets the floors of all groups' replicas to unknown, because the end of the log may be lost, as after a loss of
    /// power before it was durable. Durable when it returns; returns the number of groups. The records of replicas that
    /// have left were written durably, and stay; so were all records of the catalog's group, in every durability mode.
    pub fn forget_floors(&self) -> Result<usize, StorageError> {
        let others = self.members().into_iter().filter(|group| *group != GroupId::CATALOG);
        self.forget_floors_of(others.collect())
    }

    /// As [`Self::forget_floors`], after damage: for all groups, and for `others` even if the log holds no record of
    /// them.
    fn forget_damaged_floors(&self, others: impl Iterator<Item = GroupId>) -> Result<usize, StorageError> {
        let known = self.groups();
        let lost = others.filter(|group| group.0 != OWN_GROUP && !known.contains(group));
        self.forget_floors_of(self.members().into_iter().chain(lost).collect())
    }

    /// Groups that have a replica here.
    fn members(&self) -> Vec<GroupId> {
        let mut groups = self.groups();
        groups.retain(|group| self.engine.get(group.0, CONF_STATE).is_some());
        groups
    }

    fn forget_floors_of(&self, concerned: BTreeSet<GroupId>) -> Result<usize, StorageError> {
        let mut batch = LogBatch::default();
        for group in &concerned {
            let found = self.recover(*group);
            batch.set_floor(*group, found.map_or(UNKNOWN_FLOOR, |recovered| recovered.floor_with_lost_end()))?;
        }
        self.write(&mut batch, true)?;
        Ok(concerned.len())
    }

    /// The position in a record; [`LogPosition::START`] if there is no such record.
    fn position(&self, group: GroupId, key: &[u8]) -> Result<LogPosition, StorageError> {
        let Some(value) = self.engine.get(group.0, key) else { return Ok(LogPosition::START) };
        let mut reader = diorite_base::bytes::Reader::new(&value);
        let corrupt = |_| StorageError::Corrupt(format!("record {} of {group}", key.escape_ascii()));
        Ok(LogPosition::new(reader.u64().map_err(corrupt)?, reader.u64().map_err(corrupt)?))
    }

    /// All groups that have records here.
    pub fn groups(&self) -> Vec<GroupId> {
        self.engine.raft_groups().into_iter().filter(|group| *group != OWN_GROUP).map(GroupId).collect()
    }

    #[cfg(test)]
    pub(crate) fn durable(&self) -> Durable {
        self.files.durable()
    }

    /// Records beside the log how far it is durable, so that damage to its end is recognized.
    pub fn note_durable(&self) -> Result<(), StorageError> {
        Folder(&self.directory).note_durable(self.files.durable())
    }

    /// Frees files in which every record is obsolete. Records that have stayed in the oldest files over about ten calls
    /// are rewritten entry by entry, which is expensive: call this only after another [`FILE_BYTES`] or so have been
    /// written.
    pub fn purge(&self) -> Result<(), StorageError> {
        // Records that made others obsolete must be durable before the obsolete ones are deleted.
        self.sync()?;
        self.engine.purge_expired_files()?;
        self.note_durable()
    }

    /// Bytes on disk.
    pub fn used_bytes(&self) -> u64 {
        self.engine.get_used_size() as u64
    }

    /// A reader of one group's entries.
    pub fn reader(&self, group: GroupId) -> GroupReader {
        GroupReader { engine: Arc::clone(&self.engine), group }
    }
}

impl Log for RaftLog {
    type Records = LogBatch;
    type Reader = GroupReader;

    fn write(&self, records: &mut LogBatch, sync: bool) -> Result<usize, StorageError> {
        Self::write(self, records, sync)
    }

    fn recover(&self, group: GroupId) -> Result<Recovered, StorageError> {
        Self::recover(self, group)
    }

    fn reader(&self, group: GroupId) -> GroupReader {
        Self::reader(self, group)
    }
}

/// Reads one group's entries.
pub struct GroupReader {
    engine: Arc<Engine>,
    group: GroupId,
}

impl LogReader for GroupReader {
    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<Entry>, LogReadError> {
        let mut recorded = Vec::new();
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        self.engine.fetch_entries_to::<Entries>(self.group.0, low, high, Some(max_bytes), &mut recorded).map_err(
            |error| {
                let is_lost = matches!(&error, raft_engine::Error::Io(source) if is_unreadable(source));
                let error = StorageError::from(error);
                let kind = if is_lost || error.is_damage() { LogReadError::Damaged } else { LogReadError::Failed };
                kind(error.to_string())
            },
        )?;
        Ok(recorded.into_iter().map(|recorded| recorded.entry).collect())
    }
}
