//! The handling of a damaged Raft log: the log is opened, and no replica relies on what is left of it.
//!
//! ```text
//! in doubt ─▶ noted in a file ─▶ opened, and cut ─▶ no replica knows how far it has acknowledged (UNKNOWN_FLOOR) ─▶ the note goes
//! damaged  ─▶ noted in a file ─▶ opened, or set aside and begun anew ─▶ each group has a record of the reason   ─▶ the note goes
//! ```
//!
//! Always true: a finding is durable before the engine cuts a file, and its record stays until each group's own record
//! is durable, so that a crash in between loses nothing. The files of a log that cannot be opened stay in the folder
//! `damaged-<n>` beside the new ones until no record of damage is left. Left out: recovering data from them.

use crate::error::StorageError;
use crate::log_audit::{Verdict, fence, fence_value};
use crate::log_files::Durable;
use crate::log_queue::numbered;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file in the log's folder that records the position up to which the log was durable when the file was written.
const DURABLE: &str = "DURABLE";
/// The file that holds a finding until each affected group has a record of it.
const FOUND: &str = "DAMAGE";
/// The prefix of folders with the files of logs that could not be opened.
const SET_ASIDE: &str = "damaged-";

/// The stored form of a [`Verdict`].
#[derive(Serialize, Deserialize)]
struct Note {
    reason: String,
    is_damage: bool,
    groups: Option<BTreeSet<u64>>,
}

/// The folder of a log, for the files beside the log's own.
pub(crate) struct Folder<'a>(pub(crate) &'a Path);

impl Folder<'_> {
    /// The position up to which the log was durable at least; nothing is known if the file cannot be read.
    pub(crate) fn durable(&self) -> Durable {
        let value = fs::read(self.0.join(DURABLE)).unwrap_or_default();
        let checked =
            value.split_last_chunk::<4>().filter(|(value, sum)| crc32fast::hash(value).to_le_bytes() == **sum);
        checked.and_then(|(value, _)| fence(value).ok()).unwrap_or_default()
    }

    /// Records the position up to which the log is durable. The record is durable when this returns.
    pub(crate) fn note_durable(&self, durable: Durable) -> Result<(), StorageError> {
        let mut value = fence_value(durable);
        value.extend_from_slice(&crc32fast::hash(&value).to_le_bytes());
        self.put(DURABLE, &value)
    }

    /// The finding of an earlier start that was not handled completely.
    pub(crate) fn found(&self) -> Verdict {
        let text = match fs::read(self.0.join(FOUND)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Verdict::Whole,
            // The file exists, so there was a finding.
            Err(error) => return Verdict::Damaged { reason: format!("{FOUND}: {error}"), groups: None },
            Ok(text) => text,
        };
        match serde_json::from_slice::<Note>(&text) {
            Ok(Note { reason, is_damage: false, .. }) => Verdict::Doubt(reason),
            Ok(Note { reason, groups, .. }) => Verdict::Damaged { reason, groups },
            Err(error) => Verdict::Damaged { reason: format!("{FOUND}: {error}"), groups: None },
        }
    }

    /// Records a finding. The record is durable when this returns.
    pub(crate) fn note_found(&self, verdict: &Verdict) -> Result<(), StorageError> {
        let note = match verdict.clone() {
            Verdict::Whole => return Ok(()),
            Verdict::Doubt(reason) => Note { reason, is_damage: false, groups: None },
            Verdict::Damaged { reason, groups } => Note { reason, is_damage: true, groups },
        };
        fs::create_dir_all(self.0).map_err(|source| self.failed(source))?;
        self.put(FOUND, &serde_json::to_vec(&note).map_err(|error| self.failed(error.into()))?)
    }

    /// Removes the record of the finding: each affected group has its own record now.
    pub(crate) fn forget_found(&self) -> Result<(), StorageError> {
        // The order matters: the log that was cut or started anew is shorter than the durable length that was recorded
        // for the former one.
        self.remove(DURABLE)?;
        self.remove(FOUND)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        let removed = match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            removed => removed,
        };
        removed.and_then(|()| File::open(self.0)?.sync_all()).map_err(|source| self.failed(source))
    }

    /// Sets the log's files aside, so that a new log can begin. Durable when it returns.
    pub(crate) fn set_files_aside(&self) -> Result<(), StorageError> {
        let failed = |source| self.failed(source);
        let taken = self.aside()?.len();
        let place = (taken..).map(|n| self.0.join(format!("{SET_ASIDE}{n}"))).find(|place| !place.exists());
        let place = place.ok_or_else(|| failed(std::io::ErrorKind::AlreadyExists.into()))?;
        fs::create_dir(&place).map_err(failed)?;
        for entry in fs::read_dir(self.0).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default();
            if numbered(&path).is_some() {
                fs::rename(&path, place.join(name)).map_err(failed)?;
            }
        }
        File::open(self.0).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    /// Removes the files of logs that were set aside.
    pub(crate) fn forget_files_aside(&self) -> Result<(), StorageError> {
        for place in self.aside()? {
            fs::remove_dir_all(&place).map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    fn aside(&self) -> Result<Vec<PathBuf>, StorageError> {
        let entries = fs::read_dir(self.0).map_err(|source| self.failed(source))?;
        let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SET_ASIDE));
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect())
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<(), StorageError> {
        let (fresh, place) = (self.0.join(format!("{name}.new")), self.0.join(name));
        let written = File::create(&fresh).and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()));
        let renamed = written.and_then(|()| fs::rename(&fresh, &place));
        renamed.and_then(|()| File::open(self.0)?.sync_all()).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> StorageError {
        StorageError::Io { action: "cannot record or set aside the damage in", path: self.0.to_owned(), source }
    }
}
