//! A control group that limits the memory of the servers under test, their share of the page cache included.
//!
//! Always true: processes are in it or the reason why not is told; it is removed with its last process. Left out: limits for servers that were not started here.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux shows control groups, of version 2 and of version 1, and what the limit is called there.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// A group of its own.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
}

impl MemoryGroup {
    /// A group with this limit.
    ///
    /// # Errors
    /// If the system does not allow it, in words.
    pub fn new(limit_bytes: u64) -> Result<Self, String> {
        let mut refused = String::from("there is no memory controller");
        for (place, limit) in PLACES {
            let path = Path::new(place).join(format!("diorite-bench-{}", std::process::id()));
            match make(&path, limit, limit_bytes) {
                Ok(()) => return Ok(Self { path }),
                Err(error) => refused = format!("{}: {error}", path.display()),
            }
        }
        Err(refused)
    }

    /// Puts a process into it.
    ///
    /// # Errors
    /// If the system does not allow it, in words.
    pub fn add(&self, process_id: u32) -> Result<(), String> {
        let path = self.path.join("cgroup.procs");
        fs::write(&path, process_id.to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn make(path: &Path, limit: &str, limit_bytes: u64) -> std::io::Result<()> {
    fs::create_dir(path)?;
    // In what is no control group, or one without this controller, the file is not there, and must not be made.
    let limited = fs::OpenOptions::new().write(true).open(path.join(limit));
    let limited = limited.and_then(|mut file| std::io::Write::write_all(&mut file, limit_bytes.to_string().as_bytes()));
    if limited.is_err() {
        // It is empty: nothing else was made in it.
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
