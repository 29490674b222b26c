//! Reads the files of a Raft log before the engine does, and says whether anything in them is damaged.
//!
//! The engine takes whatever it cannot read at the end of its newest file for a write that a crash has cut, and drops it with all that comes after it; an older file that it cannot read keeps it
//! from opening. A damaged block in the newest file looks like a cut write, too: what was acknowledged would be gone and nobody would know. What tells them apart:
//!
//! * Each write says how far the log was durable when it began ([`FENCE`]). A write that can be read behind one that cannot, and says that the log was durable beyond that, is proof of damage.
//! * So is a note of the same kind in a file beside the log, written when a node stops in order and now and then (`log_damage`).
//! * Behind the last write there are zeros, or the file ends (`log_files`). Anything else is a write that was cut, or one that was damaged: nobody knows, and the replicas must not go by it.
//!
//! ```text
//! file   header, blocks            (version 2 of raft-engine's format; all numbers of headers big-endian)
//! block  length << 8 | compression, u64; where its items begin, u64; entries and their CRC32, if there are any; items and their CRC32 xor the file's number (version 1: not so)
//! items  count; each: group, kind (1 entries: count, first index, where each ends; 2 command: 1 remove, 2 and an index; 3 record: 1 put, 2 delete, key, value)
//! ```
//!
//! Always true: what was durable and is not read back is found, but for the last writes before a crash, of which nothing says that they were: those are in doubt ([`Verdict::Doubt`]), unless
//! not a byte of the first of them is left. Nothing is written here. Left out: entries of a block whose items can be read; the engine says so when they are asked for, and the replica concerned
//! is set aside.

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

/// The group that no tablet has: what the log says of itself.
pub(crate) const OWN_GROUP: u64 = 0;
/// Its record of how far the log was durable when the write began: file and offset of the end of either queue, four u64.
pub(crate) const FENCE: &[u8] = b"d";
/// What a group has voted for.
pub(crate) const HARD_STATE: &[u8] = b"h";

const MAGIC: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5";
const BLOCK_HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;

/// How much is checksummed at most while blocks are looked for where none is known to begin: what clients have written may look like the beginnings of blocks.
const SEARCH_BYTES: usize = 4 << 30;

/// What is to be thought of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Whole,
    /// It ends with something that cannot be read: a write that was cut, or one that was acknowledged and is damaged.
    Doubt(String),
    /// Something that was durable cannot be read any more. `groups`: of these, `None`: nobody knows of which.
    Damaged {
        reason: String,
        groups: Option<BTreeSet<u64>>,
    },
}

impl Verdict {
    /// The worse of two.
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

/// What was found in the files of a log.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) verdict: Verdict,
    /// Every group of which anything was found.
    pub(crate) groups: BTreeSet<u64>,
    /// The newest that could be read of what they have voted for.
    pub(crate) hard_states: BTreeMap<u64, HardState>,
    /// There is a log here.
    pub(crate) has_files: bool,
    /// How far it was durable at least.
    pub(crate) durable: Durable,
    /// A file has a damaged header, or an older one something in its middle that is no block, or the disk cannot read one.
    pub(crate) is_unreadable: bool,
    /// Up to which file of either queue none is needed.
    pub(crate) freed: Freed,
    /// Files that are not needed and are still there.
    obsolete: Vec<PathBuf>,
    /// The newest files that do not end where their last block does, with where that is.
    ends: Vec<(PathBuf, u64)>,
}

/// A block that could be read.
struct Block<'a> {
    length: usize,
    items: &'a [u8],
    /// Whether its entries can be read, too.
    has_entries: bool,
}

/// Where the newest file of a queue ends.
struct End {
    at: usize,
    /// Nothing was written there.
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
    /// Reads all files of the log in a directory that are needed. `known`: how far it was durable at least.
    ///
    /// # Errors
    /// If the system lacks something at the moment. What the disk cannot read is damage.
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
        // What was written anew is older than what is appended.
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

    /// The files of a queue, in order, without those that are not needed.
    fn needed<'a>(&mut self, queue: Queue, files: &[&'a LogFile], recorded: Option<Freed>) -> Vec<&'a LogFile> {
        let freed = match recorded {
            Some(freed) => freed.of(queue),
            // Of a version that recorded nothing: the engine goes by the gaps.
            None => files.windows(2).rfind(|two| two[0].number + 1 < two[1].number).map_or(0, |two| two[0].number),
        };
        // The engine never deletes the newest file. Where the record says so, that file is gone, or the log began anew.
        let freed = if files.last().is_some_and(|newest| newest.number > freed) { freed } else { 0 };
        self.freed.set(queue, freed);
        let (obsolete, needed): (Vec<&LogFile>, Vec<&LogFile>) = files.iter().partition(|file| file.number <= freed);
        self.obsolete.extend(obsolete.iter().map(|file| file.path.clone()));
        needed
    }

    /// Removes files that are not needed: the engine has forgotten that it kept them.
    pub(crate) fn remove_obsolete(&self) -> std::io::Result<()> {
        self.obsolete.iter().try_for_each(std::fs::remove_file)
    }

    /// Cuts the newest files where their last block ends. The engine does so, too, but it first makes room for as much as a damaged block says that it is long.
    /// What was found must be noted durably before.
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

    /// Takes what could be read of a file that the disk cannot read to its end. The engine must not try: it would not open.
    fn read_part(&mut self, file: &LogFile, bytes: &[u8], error: &std::io::Error) {
        self.is_unreadable = true;
        self.damaged(format!("{}: {error}", file.path.display()));
        self.read(file, bytes, false);
    }

    /// Reads a file; where it ends if it is the last of its queue.
    fn read(&mut self, file: &LogFile, bytes: &[u8], is_last: bool) -> Option<End> {
        let Some((header_bytes, signature)) = header(bytes, file.number) else {
            return self.without_header(file, bytes, is_last);
        };
        let mut at = header_bytes;
        // The last block, if the engine cuts the file before it: it looks at the entries of that one only.
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

    /// A file that does not begin as one does. Its header is durable before anything is written behind it.
    fn without_header(&mut self, file: &LogFile, bytes: &[u8], is_last: bool) -> Option<End> {
        self.look_beyond(bytes, file.number as u32);
        // With another alignment than was written the engine takes anything for the length of a block.
        let is_written = bytes.iter().skip(MAGIC.len() + 16).any(|byte| *byte != 0);
        if !is_last || is_written {
            self.is_unreadable = true;
            self.damaged(format!("the header of {} is damaged", file.path.display()));
        }
        Some(End { at: 0, looks_like_end: bytes.iter().all(|byte| *byte == 0), first_cut: None })
    }

    /// Takes what can be read behind something that cannot: it may say that this was durable.
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
                self.found(Verdict::Doubt("too much behind its end looks like blocks of the log".to_owned()));
                break;
            }
        }
    }

    /// Takes the items of a block; the groups in it.
    fn take(&mut self, items: &[u8]) -> BTreeSet<u64> {
        let mut groups = BTreeSet::new();
        // What has this checksum and is not well-formed is of another version: the engine will say so.
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
        // Of several writes at once a loss of power leaves any sectors: the first that was cut ends the log, as nothing says that it was durable.
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

/// How files are read: tests have disks that cannot.
pub(crate) type FileReader<'r> = dyn Fn(&Path) -> std::io::Result<Box<dyn Read>> + 'r;

/// As the system reads them.
pub(crate) fn from_disk(path: &Path) -> std::io::Result<Box<dyn Read>> {
    Ok(Box::new(File::open(path)?))
}

/// Whether the disk cannot read what is there. To try again does not help.
pub(crate) fn is_unreadable(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// The value of [`FENCE`].
pub(crate) fn fence_value(durable: Durable) -> Vec<u8> {
    let numbers = [durable.append.0, durable.append.1, durable.rewrite.0, durable.rewrite.1];
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// What [`fence_value`] has made.
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

/// The length of a file's header, and what its blocks are signed with.
fn header(bytes: &[u8], number: u64) -> Option<(usize, u32)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let version = u64::from_be_bytes(*rest.first_chunk()?);
    match version {
        1 => Some((MAGIC.len() + 8, 0)),
        // What follows is the alignment of blocks. We have none; with another the engine looks for blocks elsewhere.
        2 if *rest[8..].first_chunk::<8>()? == [0; 8] => Some((MAGIC.len() + 16, number as u32)),
        _ => None,
    }
}

/// Whether nothing was written here: there are zeros where a block would begin.
fn is_end(bytes: &[u8]) -> bool {
    bytes.iter().take(END_BYTES).all(|byte| *byte == 0)
}

/// Whether a CRC32 follows what it is of.
fn is_signed(bytes: &[u8], signature: u32) -> bool {
    bytes.split_last_chunk::<CHECKSUM_BYTES>().is_some_and(|(content, checksum)| {
        !content.is_empty() && crc32fast::hash(content) ^ signature == u32::from_le_bytes(*checksum)
    })
}

/// Where a block's items begin, how long it is, by what would be its header.
fn extent(bytes: &[u8]) -> Option<(usize, usize)> {
    let length_and_kind = u64::from_be_bytes(*bytes.first_chunk()?);
    let items_at = u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
    let (length, items_at) = (usize::try_from(length_and_kind >> 8).ok()?, usize::try_from(items_at).ok()?);
    // The low byte says how the entries are compressed: these are not (`config`). No checksum covers it.
    (length_and_kind as u8 == 0 && (BLOCK_HEADER_BYTES..=length).contains(&items_at) && length <= bytes.len())
        .then_some((items_at, length))
}

/// The block that begins here, if its items can be read.
fn block(bytes: &[u8], signature: u32) -> Option<Block<'_>> {
    let (items_at, length) = extent(bytes)?;
    let (entries, items) = (&bytes[BLOCK_HEADER_BYTES..items_at], &bytes[items_at..length]);
    is_signed(items, signature).then(|| Block {
        length,
        items: &items[..items.len() - CHECKSUM_BYTES],
        has_entries: entries.is_empty() || is_signed(entries, 0),
    })
}

/// One item of a block, as far as it matters here.
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
                // The first index, and where each ends.
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
