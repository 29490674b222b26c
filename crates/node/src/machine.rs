//! The resources that this process may use, and the machine's clocks.

use diorite_base::{Clock, SystemClock};
pub(crate) use diorite_storage::run_at_lower_priority as lower_priority;
use std::fs;
use std::path::Path;

/// The machine's clocks. The monotonic clock continues while the machine sleeps (Linux, `CLOCK_BOOTTIME`): a lease that
/// ends while a machine is suspended has ended when it wakes up, without any detection of the sleep. A time daemon may
/// slew it, as it may every clock but `CLOCK_MONOTONIC_RAW`, which stops in sleep: `diorite_raft::DRIFT_PERMILLE`
/// allows for that. Where the kernel answers from the vDSO (5.3 and later) it costs as much as any other clock, about
/// 20 ns.
#[derive(Debug, Clone)]
pub(crate) struct MachineClock {
    wall: SystemClock,
    id: libc::clockid_t,
}

impl MachineClock {
    pub(crate) fn new() -> Self {
        let id = [libc::CLOCK_BOOTTIME, libc::CLOCK_MONOTONIC].into_iter().find(|id| read(*id).is_some());
        Self { wall: SystemClock::new(), id: id.unwrap_or(libc::CLOCK_MONOTONIC) }
    }

    /// The clock's name, for the log.
    pub(crate) fn name(&self) -> &'static str {
        if self.id == libc::CLOCK_BOOTTIME {
            "CLOCK_BOOTTIME"
        } else {
            "CLOCK_MONOTONIC, which stands still while the machine sleeps"
        }
    }
}

fn read(id: libc::clockid_t) -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours, which the call fills in and does not keep.
    let outcome = unsafe { libc::clock_gettime(id, &raw mut now) };
    (outcome == 0).then(|| now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

impl Clock for MachineClock {
    fn monotonic_ns(&self) -> u64 {
        // `new` has read this clock, so that it can be read.
        read(self.id).unwrap_or_default()
    }

    fn wall_us(&self) -> i64 {
        self.wall.wall_us()
    }
}

/// The machine's host name.
pub(crate) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// From now on the files and directories that this process makes are for its user only, whatever umask was inherited.
pub(crate) fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Keeps the system from writing the memory of a process that has crashed, whether to a file or to a program. That of
/// the processes that this one starts, too.
pub(crate) fn forbid_core_dumps() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Core);
    // A limit of 0 does not hold for dumps that are piped to a program; 1 does, and is too little for a file (core(5)).
    let least = limit.maximum.map_or(1, |maximum| maximum.min(1));
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(least), maximum: limit.maximum }) {
        tracing::warn!(%error, "could not forbid core dumps");
    }
}

/// The number of processors that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The memory that this process may use, bytes: the machine's, or less in a control group with a limit, as in
/// containers.
pub(crate) fn memory_bytes() -> u64 {
    let page = rustix::param::page_size() as u64;
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit);
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit_bytes(Path::new("/sys/fs/cgroup"), &membership);
    total.min(limit.unwrap_or(u64::MAX)).max(page << 14)
}

/// The least memory limit of the control groups of a process, by its lines of `/proc/self/cgroup`, and of the enclosing
/// groups; for either version of control groups (Linux, `Documentation/admin-guide/cgroup-v2.rst` and
/// `cgroup-v1/memory.rst`), mounted at `root`.
fn group_limit_bytes(root: &Path, membership: &str) -> Option<u64> {
    let limits = membership.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (mount, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        // Without a limit, `max`, or more than any machine has.
        groups
            .filter_map(|group| fs::read_to_string(mount.join(group).join(file)).ok()?.trim().parse::<u64>().ok())
            .min()
    });
    limits.min()
}

/// Raises the limit of open files to the most that the system grants: tablets keep files open.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}

/// Files that a tablet keeps open: its folder twice, its lock, manifest and log, and a file of data.
const FILES_PER_TABLET: u64 = 6;

/// Files that are not for tablets: connections, the Raft log, copies.
const OTHER_FILES: u64 = 4_096;

/// How many tablets a node may open, by the system's limit of open files.
pub(crate) fn most_tablets() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(u32::MAX, most_tablets_with)
}

fn most_tablets_with(open_files: u64) -> u32 {
    let others = OTHER_FILES.min(open_files / 4);
    u32::try_from((open_files - others) / FILES_PER_TABLET).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_open_files_leaves_some_for_other_things() {
        assert_eq!(most_tablets_with(0), 0);
        assert_eq!(most_tablets_with(1_024), 128);
        assert_eq!(most_tablets_with(20_000), 2_650);
        assert_eq!(most_tablets_with(1 << 20), 174_080);
        assert_eq!(most_tablets_with(u64::MAX), u32::MAX);
    }

    #[test]
    fn the_least_limit_of_all_groups_around_it_holds() {
        let root = tempfile::tempdir().unwrap();
        let limit = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let found = |membership| group_limit_bytes(root.path(), membership);
        assert_eq!(found("0::/\n"), None, "no such file");
        limit("memory.max", "max\n");
        limit("pod/memory.max", "4294967296\n");
        limit("pod/container/memory.max", "max\n");
        assert_eq!(found("0::/\n"), None);
        assert_eq!(found("0::/pod/container\n"), Some(4 << 30));
        assert_eq!(found("0::/elsewhere\n"), None);
        limit("memory/docker/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(found("5:cpu,cpuacct:/docker\n4:memory:/docker\n0::/\n"), Some(1 << 30));
        assert_eq!(found("not such a file"), None);
        assert!(memory_bytes() > 0 && processors() > 0);
    }
}
