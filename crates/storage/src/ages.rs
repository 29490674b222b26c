//! The ages of files: the modification time of a file of a tablet with time windows is that of its newest data.

use rust_rocksdb::LiveFile;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub(crate) fn path_of(file: &LiveFile) -> PathBuf {
    PathBuf::from(&file.directory).join(file.name.trim_start_matches('/'))
}

/// When the newest data in a file was written, seconds since 1970; 0 if unknown.
pub(crate) fn written_s(path: &Path) -> u64 {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs())
}

/// Sets the age of a merged file to that of its data. If that fails, the file counts as newer than it is, and is
/// removed later.
pub(crate) fn set_written_s(path: &Path, seconds: u64) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    if let Err(error) = File::open(path).and_then(|file| file.set_modified(at)) {
        tracing::warn!(path = %path.display(), %error, "a merged file cannot be marked with the age of its data");
    }
}
