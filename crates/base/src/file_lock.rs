//! The lock of a file that one process at a time holds.
//!
//! The kernel binds such a lock to the open file, which a process that is being started shares with its parent until it
//! runs its own program: closing the parent's descriptor alone would leave the file locked for that long. [`FileLock`]
//! therefore unlocks when it is dropped.

use std::fs::{File, TryLockError};
use std::io;

/// A file locked by this process until the value is dropped.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks an open file without waiting; `None` if it is locked already.
    ///
    /// # Errors
    /// What the operating system reports, such as a file system without locks.
    pub fn acquire(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If this fails, the lock ends with the last descriptor of the file.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_free_although_a_started_process_shares_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let open = || File::options().create(true).append(true).open(directory.path().join("LOCK")).unwrap();
        let file = open();
        // What a child process has between its creation and its own program.
        let shared = file.try_clone().unwrap();
        let held = FileLock::acquire(file).unwrap().unwrap();
        assert!(FileLock::acquire(open()).unwrap().is_none(), "locked");
        drop(held);
        assert!(FileLock::acquire(open()).unwrap().is_some(), "free");
        drop(shared);
    }
}
