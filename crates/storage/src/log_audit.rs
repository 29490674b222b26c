//! Audits the files of a Raft log for damage, before the engine opens them.
//!
//! The engine takes an unreadable part at the end of its newest file for a write that a crash has cut, and drops it
//! with everything after it; if it cannot read an older file, it does not open. But a damaged block in the newest file
//! looks like a cut write too: acknowledged entries would be lost without notice. These facts distinguish the two:
//!
//! * Each write records how far the log was durable when it began ([`FENCE`]). If a readable write follows an
//!   unreadable one and records that the log was durable beyond it, the unreadable one is damaged.
//! * The same holds for a record beside the log files, written when a node stops in order and from time to time
//!   (`log_damage`).
//! * The last write is followed by zeros or by the end of the file (`log_files`). Other bytes there are a cut write or
//!   a damaged one. Which of the two cannot be decided, so replicas must not rely on the end of the log.
//!
//! ```text
//! file   header, blocks            (version 2 of raft-engine's format; all numbers of headers big-endian)
//! block  length << 8 | compression, u64; start of its items, u64; entries and their CRC32, if there are any; items and
//!        their CRC32, which is xor-ed with the file's number (not in version 1)
//! items  count; each: group, kind (1 entries: count, first index, end of each; 2 command: 1 remove, 2 and an index;
//!        3 record: 1 put, 2 delete, key, value)
//! ```
//!
//! Always true: durable records that cannot be read are reported, except perhaps for the last writes before a crash,
//! whose durability nothing records: those are in doubt ([`Verdict::Doubt`]), unless no byte of the first of them is
//! left. The audit writes nothing. Left out: damaged entries in a block whose items can be read; the engine reports
//! them when they are read, and their replica is set aside.

use crate::log_files::{Durable, END_BYTES};
use crate::log_freed::Freed;
use crate::log_queue::{Queue, numbered};
use diorite_base::bytes::{Malformed, Reader};
use protobuf::Message;
use raft::eraftpb::HardState;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The group id of the log's own records; no tablet has it.
pub(crate) const OWN_GROUP: u64 = 0;
/// The key of the record of how far the log was durable when a write began: file and offset of the end of either queue,
/// four u64.
pub(crate) const FENCE: &[u8] = b"d";
/// The key of a group's term and vote.
pub(crate) const HARD_STATE: &[u8] = b"h";

const MAGIC: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5";
const BLOCK_HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;

/// The most bytes that are checksummed while searching for the beginning of a block: values of clients may look like
/// the beginnings of blocks.
const SEARCH_BYTES: usize = 4 << 30;

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Whole,
    /// The log ends with bytes that cannot be read: either a write that was cut, or an acknowledged write that is
    /// damaged.
    Doubt(String),
    /// Durable records can no longer be read: those of `groups`, or, if `None`, of unknown groups.
    Damaged {
        reason: String,
        groups: Option<BTreeSet<u64>>,
    },
}

impl Verdict {
    /// The worse of two verdicts.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole, other) | (other, Self::Whole) => other,
            (Self::Doubt(reason), Self::Doubt(_)) => Self::Doubt(reason),
            (Self::Damaged { reason, groups: Some(mut groups) }, Self::Damaged { groups: Some(others), .. }) => {
                groups.extend(others);
                Self::Damaged { reason, groups: Some(groups) }
            }
            (whole @ Self::Damaged { groups: None, .. }, _) | (_, whole @ Self::Damaged { groups: None, .. }) => whole,
            (damaged @ Self::Damaged { .. }, _) | (_, damaged @ Self::Damaged { .. }) => damaged,
        }
    }
}

/// The findings in the files of a log.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) verdict: Verdict,
    /// Every group with any record.
    pub(crate) groups: BTreeSet<u64>,
    /// The newest readable term and vote of each group.
    pub(crate) hard_states: BTreeMap<u64, HardState>,
    /// Whether there are log files.
    pub(crate) has_files: bool,
    /// The position up to which the log was durable at least.
    pub(crate) durable: Durable,
    /// Whether a file has a damaged header, an older file has bytes in its middle that are no block, or the disk cannot
    /// read a file.
    pub(crate) is_unreadable: bool,
    /// For either queue, the file up to which none is needed.
    pub(crate) freed: Freed,
    /// Files that are no longer needed and still exist.
    obsolete: Vec<PathBuf>,
    /// The newest files that have bytes after their last block, and the end of that block.
    ends: Vec<(PathBuf, u64)>,
}

/// A block whose items can be read.
struct Block<'a> {
    length: usize,
    items: &'a [u8],
    /// Whether its entries can be read as well.
    has_entries: bool,
}

/// The end of the newest file of a queue.
struct End {
    at: usize,
    /// Whether zeros follow, as after the last write.
    looks_like_end: bool,
    /// The first block whose entries cannot be read.
    first_cut: Option<usize>,
}

struct LogFile {
    queue: Queue,
    number: u64,
    path: PathBuf,
}

impl Audit {
    /// Audits all needed files of the log in a directory. `known`: the position up to which the log was durable at
    /// least.
    ///
    /// # Errors
    /// If the system lacks a resource at the moment. A file that the disk cannot read counts as damage.
    pub(crate) fn of(directory: &Path, known: Durable, reader: &FileReader<'_>) -> std::io::Result<Self> {
        let files = files(directory)?;
        let recorded = Freed::read(directory)?;
        let mut audit = Self {
            verdict: Verdict::Whole,
            groups: BTreeSet::new(),
            hard_states: BTreeMap::new(),
            has_files: !files.is_empty(),
            durable: known,
            is_unreadable: false,
            freed: Freed::default(),
            obsolete: Vec::new(),
            ends: Vec::new(),
        };
        let mut ends = Vec::new();
        // Records in the rewrite queue are older than those in the append queue.
        for queue in [Queue::Rewrite, Queue::Append] {
            let files: Vec<&LogFile> = files.iter().filter(|file| file.queue == queue).collect();
            let files = audit.needed(queue, &files, recorded);
            for (at, &file) in files.iter().enumerate() {
                let is_last = at + 1 == files.len();
                if at > 0 && file.number != files[at - 1].number + 1 {
                    audit.damaged(format!("a file before {} is missing", file.path.display()));
                }
                let mut bytes = Vec::new();
                match reader(&file.path).and_then(|mut content| content.read_to_end(&mut bytes)) {
                    Ok(_) => ends.extend(audit.read(file, &bytes, is_last).map(|end| (file, end))),
                    Err(error) if is_unreadable(&error) => audit.read_part(file, &bytes, &error),
                    Err(error) => return Err(error),
                }
            }
            let newest = files.last().map_or(0, |file| file.number);
            if audit.durable.of(queue).0 > newest {
                audit.damaged(format!("the newest {queue:?} file is missing").to_lowercase());
            }
        }
        for (file, end) in ends {
            audit.judge_end(file, end);
        }
        Ok(audit)
    }

    /// The needed files of a queue, in order.
    fn needed<'a>(&mut self, queue: Queue, files: &[&'a LogFile], recorded: Option<Freed>) -> Vec<&'a LogFile> {
        let freed = match recorded {
            Some(freed) => freed.of(queue),
            // Earlier versions recorded nothing: gaps in the numbers decide, as they do for the engine.
            None => files.windows(2).rfind(|two| two[0].number + 1 < two[1].number).map_or(0, |two| two[0].number),
        };
        // The engine never deletes the newest file. If the newest file is recorded as freed, the real newest file is
        // missing, or the log was started anew.
        let freed = if files.last().is_some_and(|newest| newest.number > freed) { freed } else { 0 };
        self.freed.set(queue, freed);
        let (obsolete, needed): (Vec<&LogFile>, Vec<&LogFile>) = files.iter().partition(|file| file.number <= freed);
        self.obsolete.extend(obsolete.iter().map(|file| file.path.clone()));
        needed
    }

    /// Removes files that are not needed: after a restart the engine no longer knows that it kept them.
    pub(crate) fn remove_obsolete(&self) -> std::io::Result<()> {
        self.obsolete.iter().try_for_each(std::fs::remove_file)
    }

    /// Cuts the newest files at the end of their last block. The engine does so too, but first allocates as many bytes
    /// as a damaged block claims to have. The findings must be recorded durably before this is called.
    pub(crate) fn cut_files(&self) -> std::io::Result<()> {
        for (path, end) in &self.ends {
            let file = File::options().write(true).open(path)?;
            file.set_len(*end)?;
            file.sync_all()?;
        }
        Ok(())
    }

    fn damaged(&mut self, reason: String) {
        self.found(Verdict::Damaged { reason, groups: None });
    }

    fn found(&mut self, verdict: Verdict) {
        let before = std::mem::replace(&mut self.verdict, Verdict::Whole);
        self.verdict = before.or(verdict);
    }

    /// Reads the readable part of a file that the disk cannot read to its end. The engine must not try to open this
    /// file: it would fail.
    fn read_part(&mut self, file: &LogFile, bytes: &[u8], error: &std::io::Error) {
        self.is_unreadable = true;
        self.damaged(format!("{}: {error}", file.path.display()));
        self.read(file, bytes, false);
    }

    /// Reads a file; returns its end if the file is the last of its queue.
    fn read(&mut self, file: &LogFile, bytes: &[u8], is_last: bool) -> Option<End> {
        let Some((header_bytes, signature)) = header(bytes, file.number) else {
            return self.without_header(file, bytes, is_last);
        };
        let mut at = header_bytes;
        // The last block, if the engine would cut the file before it: the engine checks only that block's entries.
        let mut cut: Option<(usize, BTreeSet<u64>)> = None;
        let mut first_cut = None;
        while let Some(block) = block(&bytes[at..], signature) {
            let groups = self.take(block.items);
            cut = (!block.has_entries).then_some((at, groups));
            first_cut = first_cut.or(cut.as_ref().map(|(at, _)| *at));
            at += block.length;
        }
        if !is_last {
            if at < bytes.len() {
                self.is_unreadable = true;
                self.damaged(format!("{} is damaged at byte {at}", file.path.display()));
                self.look_beyond(&bytes[at..], signature);
            } else if let Some((at, groups)) = cut {
                let reason = format!("{} is damaged at byte {at}", file.path.display());
                self.found(Verdict::Damaged { reason, groups: Some(groups) });
            }
            return None;
        }
        self.look_beyond(&bytes[at..], signature);
        let end = cut.map_or(at, |(at, _)| at);
        Some(End { at: end, looks_like_end: is_end(&bytes[end..]), first_cut })
    }

    /// Handles a file without a valid header. A header is durable before anything is written after it.
    fn without_header(&mut self, file: &LogFile, bytes: &[u8], is_last: bool) -> Option<End> {
        self.look_beyond(bytes, file.number as u32);
        // With an alignment other than the one written, the engine would read arbitrary bytes as the length of a block.
        let is_written = bytes.iter().skip(MAGIC.len() + 16).any(|byte| *byte != 0);
        if !is_last || is_written {
            self.is_unreadable = true;
            self.damaged(format!("the header of {} is damaged", file.path.display()));
        }
        Some(End { at: 0, looks_like_end: bytes.iter().all(|byte| *byte == 0), first_cut: None })
    }

    /// Reads blocks after an unreadable part: they may record that this part was durable.
    fn look_beyond(&mut self, bytes: &[u8], signature: u32) {
        let (mut at, mut searched_bytes) = (0, 0);
        let Some(written) = bytes.iter().rposition(|byte| *byte != 0) else { return };
        while at <= written && at + BLOCK_HEADER_BYTES <= bytes.len() {
            match block(&bytes[at..], signature) {
                Some(block) => {
                    self.take(block.items);
                    at += block.length;
                }
                None => {
                    searched_bytes += extent(&bytes[at..]).map_or(0, |(items_at, length)| length - items_at);
                    at += 1;
                }
            }
            if searched_bytes > SEARCH_BYTES {
                self.found(Verdict::Doubt("too many bytes after its end look like blocks of the log".to_owned()));
                break;
            }
        }
    }

    /// Processes the items of a block; returns the groups among them.
    fn take(&mut self, items: &[u8]) -> BTreeSet<u64> {
        let mut groups = BTreeSet::new();
        // A block with a valid checksum that is not well formed is of another version, which the engine will report.
        let _ = each_item(items, |group, item| match item {
            Item::Record(FENCE, value) if group == OWN_GROUP => {
                self.durable = self.durable.max(fence(value).unwrap_or_default());
            }
            item => {
                if let Item::Record(HARD_STATE, value) = item
                    && let Ok(state) = HardState::parse_from_bytes(value)
                {
                    self.hard_states.insert(group, state);
                }
                if group != OWN_GROUP {
                    groups.insert(group);
                }
            }
        });
        self.groups.extend(groups.iter().copied());
        groups
    }

    fn judge_end(&mut self, file: &LogFile, end: End) {
        let (known_file, known_end) = self.durable.of(file.queue);
        let is_durable = |at: usize| known_file == file.number && known_end > at as u64;
        // Power loss may leave any sectors of several concurrent writes: the first cut write ends the log, as nothing
        // records that it was durable.
        let first_cut = end.first_cut.filter(|at| !is_durable(*at));
        let (end, looks_like_end) = first_cut.map_or((end.at, end.looks_like_end), |at| (at, false));
        if !looks_like_end && end > 0 {
            self.ends.push((file.path.clone(), end as u64));
        }
        let path = file.path.display();
        if is_durable(end) {
            let reason = format!("{path} is damaged at byte {end}, and was durable up to byte {known_end}");
            self.found(Verdict::Damaged { reason, groups: None });
        } else if !looks_like_end {
            let reason = format!("{path} ends at byte {end} with a write that was cut, or is damaged");
            self.found(Verdict::Doubt(reason));
        }
    }
}

/// Reads files: tests simulate disks that fail.
pub(crate) type FileReader<'r> = dyn Fn(&Path) -> std::io::Result<Box<dyn Read>> + 'r;

/// Reads a file from the disk.
pub(crate) fn from_disk(path: &Path) -> std::io::Result<Box<dyn Read>> {
    Ok(Box::new(File::open(path)?))
}

/// Whether the disk cannot read data that is there. Another attempt does not help.
pub(crate) fn is_unreadable(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Encodes the value of [`FENCE`].
pub(crate) fn fence_value(durable: Durable) -> Vec<u8> {
    let numbers = [durable.append.0, durable.append.1, durable.rewrite.0, durable.rewrite.1];
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Decodes the value of [`FENCE`].
pub(crate) fn fence(value: &[u8]) -> Result<Durable, Malformed> {
    let mut reader = Reader::new(value);
    let append = (reader.u64()?, reader.u64()?);
    Ok(Durable { append, rewrite: (reader.u64()?, reader.u64()?) })
}

/// The log's files, by queue and number.
fn files(directory: &Path) -> std::io::Result<Vec<LogFile>> {
    let mut files = Vec::new();
    let listed = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        listed => listed?,
    };
    for entry in listed {
        let path = entry?.path();
        files.extend(numbered(&path).map(|(queue, number)| LogFile { queue, number, path }));
    }
    files.sort_by_key(|file| (file.queue, file.number));
    Ok(files)
}

/// The length of a file's header, and the value with which the checksums of its blocks are combined.
fn header(bytes: &[u8], number: u64) -> Option<(usize, u32)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let version = u64::from_be_bytes(*rest.first_chunk()?);
    match version {
        1 => Some((MAGIC.len() + 8, 0)),
        // The alignment of blocks follows. This log uses none; with another value, the engine looks for blocks
        // elsewhere.
        2 if *rest[8..].first_chunk::<8>()? == [0; 8] => Some((MAGIC.len() + 16, number as u32)),
        _ => None,
    }
}

/// Whether zeros are here where a block would begin, so that nothing was written.
fn is_end(bytes: &[u8]) -> bool {
    bytes.iter().take(END_BYTES).all(|byte| *byte == 0)
}

/// Whether the bytes end with their CRC32.
fn is_signed(bytes: &[u8], signature: u32) -> bool {
    bytes.split_last_chunk::<CHECKSUM_BYTES>().is_some_and(|(content, checksum)| {
        !content.is_empty() && crc32fast::hash(content) ^ signature == u32::from_le_bytes(*checksum)
    })
}

/// Parses a block header: the start of its items, and its length.
fn extent(bytes: &[u8]) -> Option<(usize, usize)> {
    let length_and_kind = u64::from_be_bytes(*bytes.first_chunk()?);
    let items_at = u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
    let (length, items_at) = (usize::try_from(length_and_kind >> 8).ok()?, usize::try_from(items_at).ok()?);
    // The low byte is the compression of the entries, which is not used here (`config`). No checksum covers it.
    (length_and_kind as u8 == 0 && (BLOCK_HEADER_BYTES..=length).contains(&items_at) && length <= bytes.len())
        .then_some((items_at, length))
}

/// The block at the beginning of `bytes`, if its items can be read.
fn block(bytes: &[u8], signature: u32) -> Option<Block<'_>> {
    let (items_at, length) = extent(bytes)?;
    let (entries, items) = (&bytes[BLOCK_HEADER_BYTES..items_at], &bytes[items_at..length]);
    is_signed(items, signature).then(|| Block {
        length,
        items: &items[..items.len() - CHECKSUM_BYTES],
        has_entries: entries.is_empty() || is_signed(entries, 0),
    })
}

/// One item of a block, with the fields that the audit needs.
enum Item<'a> {
    Record(&'a [u8], &'a [u8]),
    Other,
}

fn each_item<'a>(items: &'a [u8], mut take: impl FnMut(u64, Item<'a>)) -> Result<(), Malformed> {
    let mut reader = Reader::new(items);
    for _ in 0..reader.varint()? {
        let group = reader.varint()?;
        let mut item = Item::Other;
        match reader.u8()? {
            1 => {
                let count = reader.varint()?;
                // The first index, and the end of each entry.
                for _ in 0..if count == 0 { 0 } else { count + 1 } {
                    reader.varint()?;
                }
            }
            2 => {
                if reader.u8()? == 2 {
                    reader.varint()?;
                }
            }
            3 => {
                let is_put = reader.u8()? == 1;
                let key = reader.slice()?;
                if is_put {
                    item = Item::Record(key, reader.slice()?);
                }
            }
            _ => return Err(Malformed),
        }
        take(group, item);
    }
    Ok(())
}
