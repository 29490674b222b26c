//! Usage of processes, disks and the machine, read from `/proc`.
//!
//! Always true: the parsers take text and return `None` for what they do not understand; a number that cannot be read
//! (another user's process, a file system without a block device, a remote server) is absent from a report, never 0.
//! Sums over processes never shrink: what a process had used when it was last seen stays in them after its end, and one that is added later
//! counts from its own beginning.
//!
//! Left out: other operating systems.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diorite_local::{ProcessStat, parse_stat};
use serde::{Deserialize, Serialize};

/// The resources that a set of processes and their data directories have used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// User and system time since each process began.
    pub cpu_seconds: Option<f64>,
    pub resident_bytes: Option<u64>,
    /// Bytes and completed operations of the data directories' devices, by everybody on the machine. What Linux counts per process
    /// (`/proc/<pid>/io`) is the memory made dirty, in pages of up to megabytes: for small appends a hundred times what is written.
    pub disk_read_bytes: Option<u64>,
    pub disk_write_bytes: Option<u64>,
    pub device_reads: Option<u64>,
    pub device_writes: Option<u64>,
    /// The size of all SSTables.
    pub sst_bytes: Option<u64>,
}

/// Reads the [`Usage`] of some processes. Copies share what they watch, so that processes can come and go during a phase.
#[derive(Debug, Clone, Default)]
pub struct Sampler {
    watched: Arc<Mutex<Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    processes: Vec<Process>,
    data_directories: Vec<PathBuf>,
}

/// A process, and its usage when it was last seen.
#[derive(Debug)]
struct Process {
    id: u32,
    seen: Option<Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Tells the process from one that is given its number later.
    start_ticks: u64,
    cpu_seconds: f64,
    /// 0 once the process has ended.
    resident_bytes: u64,
}

impl Process {
    fn new(id: u32) -> Self {
        Self { id, seen: None }
    }

    /// Samples the process; the state known now.
    fn look(&mut self) -> Option<Seen> {
        let id = self.id;
        let stat = read(&format!("/proc/{id}/stat")).and_then(|text| parse_stat(&text));
        self.take(stat)
    }

    fn take(&mut self, stat: Option<ProcessStat>) -> Option<Seen> {
        let is_same = |stat: &ProcessStat| self.seen.is_none_or(|seen| seen.start_ticks == stat.start_ticks);
        self.seen = match stat.filter(is_same) {
            Some(stat) => Some(Seen {
                start_ticks: stat.start_ticks,
                cpu_seconds: stat.cpu_seconds,
                resident_bytes: stat.resident_bytes,
            }),
            None => self.seen.map(|seen| Seen { resident_bytes: 0, ..seen }),
        };
        self.seen
    }
}

impl Sampler {
    /// Watches some processes and the directories in which they keep their data.
    pub fn new(process_ids: &[u32], data_directories: &[PathBuf]) -> Self {
        let processes = process_ids.iter().copied().map(Process::new).collect();
        let data_directories = data_directories.to_vec();
        Self { watched: Arc::new(Mutex::new(Watched { processes, data_directories })) }
    }

    /// Watches one more process and its directory.
    pub fn add(&self, process_id: u32, data_directory: PathBuf) {
        let mut watched = self.lock();
        watched.processes.push(Process::new(process_id));
        watched.data_directories.push(data_directory);
    }

    /// Leaves a directory out of the sizes from now on: no server uses it any more.
    pub fn forget_directory(&self, data_directory: &Path) {
        self.lock().data_directories.retain(|directory| directory != data_directory);
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The usage now. A process that was never seen makes every process number absent.
    pub fn sample(&self) -> Usage {
        let mut watched = self.lock();
        let directories = watched.data_directories.clone();
        let looked = watched.processes.iter_mut().map(Process::look);
        let seen: Option<Vec<Seen>> = looked.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty());
        drop(watched);
        let devices = devices(&directories);
        let device_usage = (!devices.is_empty())
            .then(|| read("/proc/diskstats").map(|text| parse_diskstats(&text, &devices)))
            .flatten();
        Usage {
            cpu_seconds: seen.as_ref().map(|all| all.iter().map(|seen| seen.cpu_seconds).sum()),
            resident_bytes: seen.as_ref().map(|all| all.iter().map(|seen| seen.resident_bytes).sum()),
            disk_read_bytes: device_usage.map(|usage| usage.read_bytes),
            disk_write_bytes: device_usage.map(|usage| usage.write_bytes),
            device_reads: device_usage.map(|usage| usage.reads),
            device_writes: device_usage.map(|usage| usage.writes),
            sst_bytes: (!directories.is_empty())
                .then(|| directories.iter().map(|directory| bytes_of(directory, Some("sst"))).sum()),
        }
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Bytes and operations of devices.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceUsage {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
}

/// The usage of the given devices (major, minor), from the text of `/proc/diskstats` (Linux, `Documentation/admin-guide/iostats.rst`).
pub fn parse_diskstats(text: &str, devices: &[(u32, u32)]) -> DeviceUsage {
    const SECTOR_BYTES: u64 = 512;
    let mut sums = DeviceUsage::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let is_wanted =
            |&(major, minor): &(u32, u32)| (number(0), number(1)) == (Some(u64::from(major)), Some(u64::from(minor)));
        let (Some(reads), Some(read), Some(writes), Some(written)) = (number(3), number(5), number(7), number(9))
        else {
            continue;
        };
        if devices.iter().any(is_wanted) {
            sums.reads += reads;
            sums.read_bytes += read * SECTOR_BYTES;
            sums.writes += writes;
            sums.write_bytes += written * SECTOR_BYTES;
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
