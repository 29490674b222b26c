//! The file `DISKS` of a data directory: the node's directories as of their last change (`companions`).

use crate::error::StorageError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The file's name.
pub(crate) const FILE: &str = "DISKS";
/// The file while it is written.
pub(crate) const FRESH: &str = "DISKS.new";

/// A data directory of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// Its id.
    pub id: Uuid,
    /// Its last known path.
    pub path: PathBuf,
}

/// The list that a directory holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Companions {
    pub(crate) version: u64,
    pub(crate) own: Uuid,
    pub(crate) disks: Vec<Companion>,
}

/// Reads the list in the directory at `path`; `None` if it has none yet.
pub(crate) fn read(path: &Path) -> Result<Option<Companions>, StorageError> {
    let file = path.join(FILE);
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StorageError::Io { action: "cannot read", path: file, source }),
    };
    let unreadable = |error| StorageError::Foreign {
        path: path.to_owned(),
        reason: format!("its {FILE} file is unreadable: {error}"),
    };
    serde_json::from_slice(&text).map(Some).map_err(unreadable)
}

/// Writes the list in the directory at `path`; durable when it returns.
pub(crate) fn write(path: &Path, companions: &Companions) -> Result<(), StorageError> {
    let io = |source: std::io::Error| StorageError::Io { action: "cannot write to", path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(companions).map_err(|error| io(error.into()))?;
    let fresh = path.join(FRESH);
    let mut file = File::create(&fresh).map_err(io)?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(io)?;
    fs::rename(&fresh, path.join(FILE)).map_err(io)?;
    File::open(path).and_then(|directory| directory.sync_all()).map_err(io)
}
