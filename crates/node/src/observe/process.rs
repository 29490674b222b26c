//! Resources of the process and activity of its disks, as Linux counts them.
//!
//! Always true: a value that the system does not report is absent, never guessed. Not the crate `procfs`: these are a
//! few numbers from a few files. The benchmark (`workload::process`) has a reader of its own, as it links nothing of
//! the server.

use std::fs;
use std::path::{Path, PathBuf};

/// The size of a sector in the kernel's counts, whatever the disk's sectors are.
const SECTOR_BYTES: u64 = 512;

/// Memory that the process has in use, bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    memory(1)
}

/// Memory that the process has reserved, bytes.
pub(crate) fn virtual_bytes() -> Option<u64> {
    memory(0)
}

fn memory(field: usize) -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(field)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// A field of `/proc/self/stat`, counted from the one after the name of the process.
fn stat(field: usize) -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the process may contain spaces; the fields after its closing parenthesis do not.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(field)?.parse().ok()
}

/// Processor time that the process has used, seconds.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let ticks = stat(11)? + stat(12)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// When the process was started, seconds since the Unix epoch.
pub(crate) fn started_unix_seconds() -> Option<f64> {
    let since_boot = stat(19)? as f64 / rustix::param::clock_ticks_per_second() as f64;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + since_boot)
}

/// Threads of the process.
pub(crate) fn threads() -> Option<u64> {
    stat(17)
}

/// Descriptors that are open, and how many may be.
pub(crate) fn file_descriptors() -> Option<(u64, Option<u64>)> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    // Reading the folder opens a descriptor itself.
    Some((open.saturating_sub(1), limit))
}

/// The activity of disks since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskActivity {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// The block devices that hold some directories.
pub(crate) struct Devices {
    /// The kernel's file of counts of each device; none if a directory is not on a block device.
    counts: Option<Vec<PathBuf>>,
}

impl Devices {
    /// The block devices that hold `directories`.
    pub(crate) fn under(directories: &[String]) -> Self {
        let mut counts: Vec<PathBuf> = Vec::new();
        for directory in directories {
            let Ok(found) = rustix::fs::stat(directory.as_str()) else { return Self { counts: None } };
            let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
            let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
            if !path.exists() {
                return Self { counts: None };
            }
            if !counts.contains(&path) {
                counts.push(path);
            }
        }
        Self { counts: Some(counts) }
    }

    /// The total activity of the devices, by all processes.
    pub(crate) fn activity(&self) -> Option<DiskActivity> {
        let mut all = DiskActivity::default();
        for path in self.counts.as_ref()? {
            let one = read_device(path)?;
            all.reads += one.reads;
            all.writes += one.writes;
            all.read_bytes += one.read_bytes;
            all.written_bytes += one.written_bytes;
        }
        Some(all)
    }
}

fn read_device(path: &Path) -> Option<DiskActivity> {
    parse_device(&fs::read_to_string(path).ok()?)
}

/// Parses the format of the kernel's `Documentation/block/stat.rst`: read requests, merged, sectors, ms; then the same
/// for writes.
fn parse_device(text: &str) -> Option<DiskActivity> {
    let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    Some(DiskActivity {
        reads: *numbers.first()?,
        read_bytes: numbers.get(2)? * SECTOR_BYTES,
        writes: *numbers.get(4)?,
        written_bytes: numbers.get(6)? * SECTOR_BYTES,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn the_process_knows_what_it_uses() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert!(virtual_bytes().unwrap() >= resident_bytes().unwrap());
        assert!(cpu_seconds().unwrap() >= 0.0);
        assert!(threads().unwrap() >= 1);
        assert!(file_descriptors().unwrap().0 >= 3);
        // After this was written, and before the year 2100.
        assert!((1.76e9..4.1e9).contains(&started_unix_seconds().unwrap()));
    }

    #[test]
    fn counts_of_a_device_are_read_by_their_places() {
        let text =
            "  475046    19427 17176002  3882064  4914698   420715 175419208  4178484        0  1084860  8770048\n";
        let wanted = DiskActivity {
            reads: 475_046,
            writes: 4_914_698,
            read_bytes: 17_176_002 * 512,
            written_bytes: 175_419_208 * 512,
        };
        assert_eq!(parse_device(text), Some(wanted));
        assert_eq!(parse_device("1 2 3"), None);
    }

    #[test]
    fn a_directory_that_is_on_no_device_has_no_activity() {
        assert_eq!(Devices::under(&["/proc".to_owned()]).activity(), None);
    }
}
