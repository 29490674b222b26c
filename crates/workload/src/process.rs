//! What Linux tells about processes, disks and the machine, read from `/proc`.
//!
//! Always true: the parsers take text and return `None` for what they do not understand; a number that cannot be read
//! (another user's process, a file system without a block device, a remote server) is absent from a report, never 0.
//!
//! Left out: other operating systems.

use std::path::{Path, PathBuf};

use diorite_local::parse_stat;
use serde::{Deserialize, Serialize};

/// What a set of processes and their data directories have used up to now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// User and system time since each process began.
    pub cpu_seconds: Option<f64>,
    pub resident_bytes: Option<u64>,
    /// Bytes that really came from and went to block devices.
    pub disk_read_bytes: Option<u64>,
    pub disk_write_bytes: Option<u64>,
    /// Completed operations of the data directories' devices, by everybody on the machine.
    pub device_reads: Option<u64>,
    pub device_writes: Option<u64>,
    /// The size of all SSTables.
    pub sst_bytes: Option<u64>,
}

/// Reads the [`Usage`] of some processes.
#[derive(Debug, Clone, Default)]
pub struct Sampler {
    pub process_ids: Vec<u32>,
    pub data_directories: Vec<PathBuf>,
}

impl Sampler {
    /// The usage now. Processes that have ended make every process number absent.
    pub fn sample(&self) -> Usage {
        let stats = self.each(|id| parse_stat(&read(&format!("/proc/{id}/stat"))?));
        let io = self.each(|id| parse_io(&read(&format!("/proc/{id}/io"))?));
        let devices = devices(&self.data_directories);
        let device_usage = (!devices.is_empty())
            .then(|| read("/proc/diskstats").map(|text| parse_diskstats(&text, &devices)))
            .flatten();
        Usage {
            cpu_seconds: stats.as_ref().map(|all| all.iter().map(|stat| stat.cpu_seconds).sum()),
            resident_bytes: stats.as_ref().map(|all| all.iter().map(|stat| stat.resident_bytes).sum()),
            disk_read_bytes: io.as_ref().map(|all| all.iter().map(|io| io.0).sum()),
            disk_write_bytes: io.as_ref().map(|all| all.iter().map(|io| io.1).sum()),
            device_reads: device_usage.map(|usage| usage.0),
            device_writes: device_usage.map(|usage| usage.1),
            sst_bytes: (!self.data_directories.is_empty())
                .then(|| self.data_directories.iter().map(|directory| bytes_of(directory, Some("sst"))).sum()),
        }
    }

    fn each<T>(&self, read: impl Fn(u32) -> Option<T>) -> Option<Vec<T>> {
        if self.process_ids.is_empty() {
            return None;
        }
        self.process_ids.iter().map(|&id| read(id)).collect()
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Bytes read from and written to block devices, of `/proc/<pid>/io`.
pub fn parse_io(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse::<u64>().ok()
    };
    Some((field("read_bytes")?, field("write_bytes")?))
}

/// Reads and writes completed by the given devices (major, minor), of `/proc/diskstats`.
pub fn parse_diskstats(text: &str, devices: &[(u32, u32)]) -> (u64, u64) {
    let mut sums = (0, 0);
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let (Some(major), Some(minor), Some(reads), Some(writes)) = (number(0), number(1), number(3), number(7)) else {
            continue;
        };
        if devices
            .iter()
            .any(|&(wanted_major, wanted_minor)| (u64::from(wanted_major), u64::from(wanted_minor)) == (major, minor))
        {
            sums.0 += reads;
            sums.1 += writes;
        }
    }
    sums
}

/// The block devices under the given directories, each once. File systems without one have major number 0.
fn devices(directories: &[PathBuf]) -> Vec<(u32, u32)> {
    let mut devices: Vec<(u32, u32)> = directories
        .iter()
        .filter_map(|directory| rustix::fs::stat(directory).ok())
        .map(|stat| (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)))
        .filter(|&(major, _)| major != 0)
        .collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// The bytes of the files under `directory`, of those with the given extension or of all. Files that vanish meanwhile
/// count as nothing.
pub fn bytes_of(directory: &Path, extension: Option<&str>) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let mut total = 0;
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => total += bytes_of(&path, extension),
            Ok(kind)
                if kind.is_file()
                    && extension.is_none_or(|wanted| path.extension().is_some_and(|found| found == wanted)) =>
            {
                total += entry.metadata().map_or(0, |metadata| metadata.len());
            }
            _ => {}
        }
    }
    total
}

/// The machine that a benchmark ran on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub cores: usize,
    pub processor: String,
    pub memory_bytes: u64,
    pub kernel: String,
    pub system: String,
}

impl Environment {
    /// This machine.
    pub fn current() -> Self {
        let uname = rustix::system::uname();
        let processor = read("/proc/cpuinfo").and_then(|text| colon_field(&text, "model name"));
        let memory = read("/proc/meminfo").and_then(|text| parse_meminfo_total(&text));
        let system = read("/etc/os-release").and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
            Some(line.trim_matches('"').to_owned())
        });
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: processor.unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
            memory_bytes: memory.unwrap_or(0),
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            system: system.unwrap_or_default(),
        }
    }
}

fn colon_field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Total memory in bytes, of `/proc/meminfo`.
pub fn parse_meminfo_total(text: &str) -> Option<u64> {
    let field = colon_field(text, "MemTotal")?;
    Some(field.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}

#[cfg(test)]
mod tests;
