//! Opens the data directories of a node.
//!
//! Always true: a node starts only with all directories that may hold what its replicas have promised. Left out: what is in a directory
//! (`diorite_storage::DataDirectory`).

use crate::config::StartOptions;
use crate::error::StartError;
use diorite_storage::{DataDirectory, Identity, StorageError, companions};
use std::path::PathBuf;

/// Opens the data directories, which must not belong to different nodes, and must be all that the node has. One that cannot be read may be left out if
/// the others say that nothing in it is needed any more: it had failed, and what was on it was rebuilt. Returns also the paths of those.
pub(crate) fn open(options: &StartOptions) -> Result<(Vec<DataDirectory>, Vec<String>), StartError> {
    let (mut directories, mut unreadable) = (Vec::new(), Vec::new());
    for path in &options.data_dir {
        match DataDirectory::open(path) {
            Ok(directory) => directories.push(directory),
            Err(error @ StorageError::Io { .. }) => unreadable.push((path, error)),
            Err(error) => return Err(error.into()),
        }
    }
    let mut claimed = directories.iter().filter_map(|directory| Some((directory, directory.identity()?)));
    if let Some((_, Identity { cluster, host, .. })) = claimed.next()
        && let Some((directory, found)) = claimed.find(|(_, found)| (found.cluster, found.host) != (cluster, host))
    {
        return Err(StartError::Directories(format!(
            "data directory {} belongs to host {} of cluster {}, the first one to host {host} of cluster {cluster}",
            directory.path().display(),
            found.host,
            found.cluster
        )));
    }
    check_complete(&directories, &mut unreadable)?;
    let lost = unreadable.into_iter().map(|(path, error)| {
        let path = path.display().to_string();
        tracing::warn!(event = "disk", path, %error, "a disk that had failed is left out: what was on it is on others");
        path
    });
    Ok((directories, lost.collect()))
}

/// Fails if a directory is missing that the others know of, or if one is unreadable of which they say nothing.
fn check_complete(
    directories: &[DataDirectory],
    unreadable: &mut Vec<(&PathBuf, StorageError)>,
) -> Result<(), StartError> {
    let Some(missing) = companions::missing(&directories.iter().collect::<Vec<_>>()) else {
        return unreadable.pop().map_or(Ok(()), |(_, error)| Err(error.into()));
    };
    let Some(first) = missing.first() else { return Ok(()) };
    let why = unreadable.iter().find(|(path, _)| **path == first.path).map(|(_, error)| format!(" ({error})"));
    Err(StartError::Directories(format!(
        "data directory {} of this node is missing{}: without it the votes and acknowledgements of its replicas are not known; start the node with it, or \
         start a new node with empty directories and use `diorite admin replace`",
        first.path.display(),
        why.unwrap_or_default()
    )))
}
