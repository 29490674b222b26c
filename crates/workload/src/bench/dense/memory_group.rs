//! A control group that limits the memory of the servers under test, their share of the page cache included.
//!
//! Always true: processes are in the group, or the error says why not; the group is removed with its last process. Left out: limits for servers that were not started here.

use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where Linux shows control groups, of version 2 and of version 1, and what the limit is called there.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// Why servers are not in a group.
#[derive(Debug, Error)]
pub enum NoGroup {
    /// They may be on another machine, and serve others.
    #[error("the servers were not started here")]
    Foreign,
    /// The limit is less than a server takes without data.
    #[error("{0} MB would not hold the process itself")]
    TooSmall(u64),
    /// The system does not allow it.
    #[error("{}: {source}", path.display())]
    Refused {
        /// The file or folder that could not be created or written.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// A group of its own.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
}

impl MemoryGroup {
    /// A group with this limit.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn new(limit_bytes: u64) -> Result<Self, NoGroup> {
        let make_in = |(place, limit): (&str, &str)| {
            let path = Path::new(place).join(format!("diorite-bench-{}", std::process::id()));
            match make(&path, limit, limit_bytes) {
                Ok(()) => Ok(Self { path }),
                Err(source) => Err(NoGroup::Refused { path, source }),
            }
        };
        let [newer, older] = PLACES;
        make_in(newer).or_else(|_| make_in(older))
    }

    /// Puts a process into it.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn add(&self, process_id: u32) -> Result<(), NoGroup> {
        let path = self.path.join("cgroup.procs");
        fs::write(&path, process_id.to_string()).map_err(|source| NoGroup::Refused { path, source })
    }
}

fn make(path: &Path, limit: &str, limit_bytes: u64) -> std::io::Result<()> {
    fs::create_dir(path)?;
    // Without `create`: where this is no control group, or one without the memory controller, the file must not appear.
    let limited = fs::OpenOptions::new().write(true).open(path.join(limit));
    let limited = limited.and_then(|mut file| std::io::Write::write_all(&mut file, limit_bytes.to_string().as_bytes()));
    if limited.is_err() {
        // The folder is empty: only the kernel's own files are in it.
        let _ = fs::remove_dir(path);
    }
    limited
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // If a process is left in it, it stays.
        let _ = fs::remove_dir(&self.path);
    }
}
