//! Files of certificates and keys: only their owner reads them, they are written as a whole or not at all, and nothing
//! is overwritten unless that was asked for.
//!
//! Always true: what stands at a path is the former content or the new one, also after a crash of the machine.

use crate::error::CertsError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Rights on a private key that others than its owner and its group may not have, nor its group.
const FORBIDDEN_ON_KEY: u32 = 0o037;
/// No file of certificates or keys is larger.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Whether a file may take the place of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It may not: that is an error.
    Keep,
    /// It may.
    Replace,
}

/// Makes a directory that only its owner enters. One that is there must be such a directory, or empty.
pub(crate) fn make_directory(path: &Path) -> Result<(), CertsError> {
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.map_err(|error| CertsError::file(path, error))?;
    let fail = |error| CertsError::file(path, error);
    let mode = std::fs::metadata(path).map_err(fail)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    if std::fs::read_dir(path).map_err(fail)?.next().is_none() {
        return std::fs::set_permissions(path, PermissionsExt::from_mode(DIRECTORY_MODE)).map_err(fail);
    }
    let why =
        format!("others may enter it (mode {:03o}): run chmod 700 on it, or choose another directory", mode & 0o777);
    Err(CertsError::unusable(path, why))
}

/// Writes a file as a whole or not at all.
pub(crate) fn write(path: &Path, content: &str, existing: Existing) -> Result<(), CertsError> {
    let fail = |error| CertsError::file(path, error);
    let new = path.with_extension(
        path.extension().map_or_else(|| "new".to_owned(), |extension| format!("{}.new", extension.to_string_lossy())),
    );
    // What an earlier attempt has left behind.
    if let Err(error) = std::fs::remove_file(&new)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(CertsError::file(&new, error));
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new).map_err(fail)?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)?;
    match existing {
        Existing::Replace => std::fs::rename(&new, path).map_err(fail)?,
        Existing::Keep => {
            // Unlike a rename, a link does not replace what is there.
            let linked = std::fs::hard_link(&new, path);
            std::fs::remove_file(&new).map_err(fail)?;
            linked.map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => CertsError::Exists(path.to_owned()),
                _ => CertsError::file(path, error),
            })?;
        }
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(fail)
}

/// Reads a text.
pub(crate) fn read(path: &Path) -> Result<String, CertsError> {
    let fail = |error| CertsError::file(path, error);
    let size = std::fs::metadata(path).map_err(fail)?.len();
    if size > MAX_FILE_BYTES {
        return Err(CertsError::unusable(path, format!("it has {size} bytes, at most {MAX_FILE_BYTES} are read")));
    }
    std::fs::read_to_string(path).map_err(fail)
}

/// The certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertsError> {
    let text = read(path)?;
    let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| CertsError::unusable(path, error))?;
    match found.is_empty() {
        true => Err(CertsError::unusable(path, "there is no certificate in it")),
        false => Ok(found),
    }
}

/// The text of a private key, which others may not read.
pub(crate) fn key_text(path: &Path) -> Result<String, CertsError> {
    let metadata = std::fs::metadata(path).map_err(|error| CertsError::file(path, error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & FORBIDDEN_ON_KEY != 0 {
        let why = format!("others may read or change this key (mode {mode:03o}): run chmod 600 on it");
        return Err(CertsError::unusable(path, why));
    }
    read(path)
}

/// A private key, which others may not read.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CertsError> {
    let text = key_text(path)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| CertsError::unusable(path, error))
}

/// The directories in a directory, ordered; none if it is not there.
pub(crate) fn directories(path: &Path) -> Result<Vec<PathBuf>, CertsError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CertsError::file(path, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| CertsError::file(path, error))?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
