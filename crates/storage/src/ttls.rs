//! The times to live of what is written to a tablet with time windows, and what is noted of them in its directory.
//!
//! The times only say when it is worth reading an old file; the compaction filter decides what goes. So a note that is
//! lost, or too old, costs time or work, never data.
//!
//! The note (`WINDOWS`) is text: `ttl <seconds>`, and in copies of a tablet `file <name> <seconds>` for each file: the
//! time of its newest data, which is otherwise the file's modification time, and which copying changes.

use crate::ages::{set_written_s, written_s};
use crate::keys::is_about_the_tablet;
use crate::semantics::ValueSemantics;
use rust_rocksdb::WriteBatchIteratorCf;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The name of the note.
const NOTE: &str = "WINDOWS";
/// Times to live are counted by powers of two.
const CLASSES: usize = 33;
/// When so many bytes have been counted, all counts are halved: what is written now decides.
const MANY_BYTES: u64 = 64 << 20;
/// What a time to live of the note counts for.
const NOTED_BYTES: u64 = 1 << 20;

/// The bytes that were written with a time to live, by the time.
#[derive(Debug)]
pub(crate) struct Ttls {
    classes: [Class; CLASSES],
}

#[derive(Debug, Default)]
struct Class {
    bytes: AtomicU64,
    longest_s: AtomicU32,
}

impl Default for Ttls {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| Class::default()) }
    }
}

impl Ttls {
    /// Counts a write. Called by the thread that applies.
    pub(crate) fn note(&self, ttl_s: u32, bytes: u64) {
        if ttl_s > 0 {
            let class = &self.classes[(u32::BITS - ttl_s.leading_zeros()) as usize];
            class.bytes.fetch_add(bytes, Ordering::Relaxed);
            class.longest_s.fetch_max(ttl_s, Ordering::Relaxed);
        }
    }

    /// The time to live within which nine tenths of what expires does so, seconds; 0: nothing expires. A few rows that
    /// live longer do not keep the others.
    pub(crate) fn usual_s(&self) -> u32 {
        let bytes = |class: &Class| class.bytes.load(Ordering::Relaxed);
        let all: u64 = self.classes.iter().map(bytes).sum();
        let mut within = 0;
        for class in &self.classes {
            within += bytes(class);
            if within > 0 && within >= all - all / 10 {
                return class.longest_s.load(Ordering::Relaxed);
            }
        }
        0
    }

    /// Forgets by and by what was written long ago.
    pub(crate) fn age(&self) {
        let all: u64 = self.classes.iter().map(|class| class.bytes.load(Ordering::Relaxed)).sum();
        for class in self.classes.iter().filter(|_| all > MANY_BYTES) {
            let bytes = class.bytes.load(Ordering::Relaxed);
            class.bytes.fetch_sub(bytes - bytes / 2, Ordering::Relaxed);
            if bytes <= 1 {
                class.longest_s.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Reads the note of a tablet that is about to be opened, and gives files of a copy the times of their data.
    pub(crate) fn recall(directory: &Path) -> Self {
        let ttls = Self::default();
        let Ok(text) = fs::read_to_string(directory.join(NOTE)) else { return ttls };
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["ttl", seconds] => ttls.note(seconds.parse().unwrap_or(0), NOTED_BYTES),
                ["file", name, seconds] if !name.contains('/') => {
                    if let (Ok(seconds), path) = (seconds.parse(), directory.join(name))
                        && path.is_file()
                    {
                        set_written_s(&path, seconds);
                    }
                }
                _ => tracing::warn!(directory = %directory.display(), line, "a line of the note is not known"),
            }
        }
        // The times of files are theirs from now on; they change with the files.
        if text.contains("file ") {
            ttls.remember(directory);
        }
        ttls
    }

    /// Writes the note of an open tablet.
    pub(crate) fn remember(&self, directory: &Path) {
        write_note(directory, format!("ttl {}\n", self.usual_s()));
    }

    /// Writes the note of a copy that consists of links to the tablet's files.
    pub(crate) fn remember_copy(&self, directory: &Path) {
        let mut note = format!("ttl {}\n", self.usual_s());
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| name.ends_with(".sst")) {
                note.push_str(&format!("file {name} {}\n", written_s(&entry.path())));
            }
        }
        write_note(directory, note);
    }
}

/// Counts the times to live of what a batch writes.
pub(crate) struct WrittenTtls<'s> {
    pub(crate) ttls: &'s Ttls,
    pub(crate) semantics: &'s dyn ValueSemantics,
}

impl WriteBatchIteratorCf for WrittenTtls<'_> {
    fn put_cf(&mut self, _: u32, key: &[u8], value: &[u8]) {
        if !is_about_the_tablet(key) {
            self.ttls.note(self.semantics.longest_ttl_s(value), value.len() as u64);
        }
    }

    fn delete_cf(&mut self, _: u32, _: &[u8]) {}

    fn merge_cf(&mut self, family: u32, key: &[u8], value: &[u8]) {
        self.put_cf(family, key, value);
    }
}

fn write_note(directory: &Path, note: String) {
    let replace = || -> io::Result<()> {
        let new = directory.join(format!("{NOTE}.new"));
        fs::write(&new, note)?;
        fs::rename(new, directory.join(NOTE))
    };
    if let Err(error) = replace() {
        tracing::warn!(directory = %directory.display(), %error, "the times to live of a tablet cannot be noted");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn the_usual_time_to_live_is_not_that_of_a_few() {
        let ttls = Ttls::default();
        assert_eq!(ttls.usual_s(), 0);
        ttls.note(0, 1 << 30);
        assert_eq!(ttls.usual_s(), 0, "what never expires does not count");
        ttls.note(60, 1_000);
        ttls.note(u32::MAX, 100);
        assert_eq!(ttls.usual_s(), 60);
        ttls.note(86_400, 1_000);
        assert_eq!(ttls.usual_s(), 86_400);
        // What was written long ago counts less and less.
        for _ in 0..8 {
            ttls.note(3_600, MANY_BYTES);
            ttls.age();
        }
        assert_eq!(ttls.usual_s(), 3_600);
    }

    #[test]
    fn a_note_is_read_back_and_gives_files_their_times() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        let file = from.join("000012.sst");
        fs::write(&file, b"x").unwrap();
        set_written_s(&file, 700);
        let ttls = Ttls::default();
        ttls.note(90, 10);
        ttls.remember_copy(&from);
        for name in [NOTE, "000012.sst"] {
            fs::write(to.join(name), fs::read(from.join(name)).unwrap()).unwrap();
        }
        assert_eq!(Ttls::recall(&to).usual_s(), 90);
        assert_eq!(written_s(&to.join("000012.sst")), 700);
        assert_eq!(fs::read_to_string(to.join(NOTE)).unwrap(), "ttl 90\n");
        fs::write(to.join(NOTE), "ttl x\nfile ../DIORITE 5\n\u{0}").unwrap();
        assert_eq!(Ttls::recall(&to).usual_s(), 0);
    }
}
