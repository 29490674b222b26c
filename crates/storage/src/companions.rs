//! The list of a node's data directories, which each of them holds in its file `DISKS`, so that a node is not started
//! without one by mistake.
//!
//! A replica whose log is missing has forgotten its vote and its acknowledgements: if its node began an empty log
//! instead, committed entries could be lost. An empty directory where a disk should have been mounted looks like a new
//! disk; the lists on the other disks tell the two apart.
//!
//! Always true: a directory is on the list from before its first data is written until all its data is elsewhere. The
//! list with the highest version is valid. A crash while the list is written to one directory after the other leaves
//! either version, and both are right. The directories of a node that was last started by a version without lists count
//! as complete.

use crate::directory::DataDirectory;
pub use crate::disks_file::Companion;

use crate::disks_file::{Companions, write};
use crate::error::StorageError;
use uuid::Uuid;

/// The newest list.
fn newest(directories: &[&DataDirectory]) -> Option<Companions> {
    directories.iter().filter_map(|directory| directory.companions()).max_by_key(|companions| companions.version)
}

/// The directories that are on the newest list and not among `directories`. `None` if these have no list.
pub fn missing(directories: &[&DataDirectory]) -> Option<Vec<Companion>> {
    let known = newest(directories)?;
    let present: Vec<Uuid> = directories.iter().filter_map(|directory| Some(directory.companions()?.own)).collect();
    Some(known.disks.into_iter().filter(|disk| !present.contains(&disk.id)).collect())
}

/// Writes the list of these directories. Durable when it returns. `fresh` gives ids to directories that have none.
pub fn enroll(directories: &[&DataDirectory], mut fresh: impl FnMut() -> Uuid) -> Result<(), StorageError> {
    let ids: Vec<Uuid> =
        directories.iter().map(|directory| directory.companions().map_or_else(&mut fresh, |known| known.own)).collect();
    let listed = |(directory, id): (&&DataDirectory, &Uuid)| Companion { id: *id, path: directory.path().to_owned() };
    let disks: Vec<Companion> = directories.iter().zip(&ids).map(listed).collect();
    let before = newest(directories);
    let version = before.as_ref().map_or(0, |companions| companions.version);
    let agrees = |directory: &&DataDirectory| {
        directory.companions().is_some_and(|known| known.version == version && known.disks == disks)
    };
    if directories.iter().all(agrees) {
        return Ok(());
    }
    // New directories are written first: they hold no data as long as the others do not list them.
    let mut order: Vec<usize> = (0..directories.len()).collect();
    order.sort_by_key(|at| directories[*at].companions().is_some());
    for at in order {
        let companions = Companions { version: version + 1, own: ids[at], disks: disks.clone() };
        write(directories[at].path(), &companions)?;
        directories[at].set_companions(companions);
    }
    Ok(())
}

/// Removes `gone` from the list: all its data is in these directories now. Durable when it returns.
pub fn let_go(directories: &[&DataDirectory], gone: &DataDirectory) -> Result<(), StorageError> {
    let (Some(known), Some(gone)) = (newest(directories), gone.companions()) else { return Ok(()) };
    let disks: Vec<Companion> = known.disks.into_iter().filter(|disk| disk.id != gone.own).collect();
    for directory in directories {
        let Some(own) = directory.companions().map(|companions| companions.own) else { continue };
        let companions = Companions { version: known.version + 1, own, disks: disks.clone() };
        write(directory.path(), &companions)?;
        directory.set_companions(companions);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::disks_file::FILE;

    struct Node {
        home: tempfile::TempDir,
        ids: u128,
    }

    impl Node {
        fn new() -> Self {
            Self { home: tempfile::tempdir().unwrap(), ids: 0 }
        }

        fn open(&self, names: &[&str]) -> Vec<DataDirectory> {
            names.iter().map(|name| DataDirectory::open(&self.home.path().join(name)).unwrap()).collect()
        }

        /// Starts with these directories; returns the missing ones, or enrolls these.
        fn start(&mut self, names: &[&str]) -> Vec<String> {
            let opened = self.open(names);
            let directories: Vec<&DataDirectory> = opened.iter().collect();
            let missing = missing(&directories).unwrap_or_default();
            if missing.is_empty() {
                enroll(&directories, || {
                    self.ids += 1;
                    Uuid::from_u128(self.ids)
                })
                .unwrap();
            }
            missing.iter().map(|disk| disk.path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        }
    }

    #[test]
    fn a_disk_that_is_not_there_is_missed_whatever_is_in_its_place() {
        let mut node = Node::new();
        assert!(node.start(&["a", "b"]).is_empty());
        assert_eq!(node.start(&["a"]), ["b"]);
        // An empty directory at the mount point.
        std::fs::rename(node.home.path().join("b"), node.home.path().join("elsewhere")).unwrap();
        assert_eq!(node.start(&["a", "b"]), ["b"]);
        assert_eq!(node.start(&["elsewhere"]), ["a"]);
        // The same disk under another path.
        assert!(node.start(&["elsewhere", "a"]).is_empty());
    }

    #[test]
    fn disks_are_added_and_removed_and_may_come_back() {
        let mut node = Node::new();
        assert!(node.start(&["a", "b"]).is_empty());
        assert!(node.start(&["a", "b", "c"]).is_empty());
        let opened = node.open(&["a", "b", "c"]);
        let_go(&[&opened[0], &opened[2]], &opened[1]).unwrap();
        drop(opened);
        assert!(node.start(&["a", "c"]).is_empty());
        assert_eq!(node.start(&["b"]), ["a", "c"], "its own list is of another time");
        assert!(node.start(&["a", "b", "c"]).is_empty(), "it is repaired");
        assert_eq!(node.start(&["a", "c"]), ["b"]);
    }

    #[test]
    fn a_list_that_a_crash_has_left_half_written_is_right_either_way() {
        let mut node = Node::new();
        assert!(node.start(&["a", "b"]).is_empty());
        let before = std::fs::read(node.home.path().join("a").join(FILE)).unwrap();
        assert!(node.start(&["a", "b", "c"]).is_empty());
        std::fs::write(node.home.path().join("a").join(FILE), &before).unwrap();
        assert!(node.start(&["a", "b", "c"]).is_empty());
        assert_eq!(node.start(&["a", "b"]), ["c"]);
    }

    #[test]
    fn directories_of_a_version_without_lists_are_all_there() {
        let mut node = Node::new();
        let opened = node.open(&["a", "b"]);
        assert_eq!(missing(&opened.iter().collect::<Vec<_>>()), None);
        drop(opened);
        assert!(node.start(&["a"]).is_empty());
    }
}
