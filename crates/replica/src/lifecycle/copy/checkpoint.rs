//! A checkpoint of a replica's data, and its files.

use std::fs;
use std::path::{Path, PathBuf};

/// A checkpoint. Its files are removed when this is dropped.
pub(crate) struct Checkpoint {
    pub(crate) directory: PathBuf,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // The checkpoint may not exist; what cannot be removed now is removed at the next start.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A file of a checkpoint.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CopiedFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
}

/// The files of a checkpoint by name.
pub(crate) fn files_of(directory: &Path) -> std::io::Result<Vec<CopiedFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(CopiedFile { name, path: entry.path(), size: entry.metadata()?.len() });
    }
    files.sort();
    Ok(files)
}
