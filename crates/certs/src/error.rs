//! Why a certificate cannot be made, read or used: one line that names the file.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// See the top of this module.
#[derive(Debug, Error)]
pub enum CertsError {
    /// A file or directory cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is there and may not be overwritten.
    #[error("{}: it exists already; --overwrite replaces it", .0.display())]
    Exists(PathBuf),
    /// A file is not what it should be.
    #[error("{}: {reason}", .path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What was asked for cannot be done.
    #[error("{0}")]
    Arguments(String),
    /// The library for certificates refuses.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl CertsError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    pub(crate) fn unusable(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Unusable { path: path.to_owned(), reason: reason.to_string() }
    }
}
