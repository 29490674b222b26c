//! Starting one node, and waiting until nodes serve.
//!
//! Always true: a node runs in a process group of its own, so that Ctrl-C does not reach it, and by default in a
//! session of its own, so that the end of the terminal does not either; its output is appended to its log; its ports
//! were free just before it is started.

use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::NodeProcess;
use crate::{CQL_PORT, HTTP_PORT, LocalError, NODE_PORT, READY_TIMEOUT, http, pause};

/// How often a node is asked whether it is ready.
const READY_STEP: Duration = Duration::from_millis(20);
/// The last address that [`free_address`] tries, and so the most nodes for which it finds addresses.
const LAST_FREE: u8 = 99;
/// The nodes of a machine share its disk with everything else on it, so the free space says nothing about what can be
/// moved from one node to another. The limit at which they refuse writes stays.
const ON_A_SHARED_DISK: [&str; 2] = ["--move-reserve", "0"];

/// How to start a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The binary; it is run as `<executable> start --data-dir … --listen …`.
    pub executable: PathBuf,
    pub data_directory: PathBuf,
    pub address: IpAddr,
    /// Further arguments of `start`.
    pub arguments: Vec<String>,
    /// What a node joins with that is not a member yet; it is passed on in the environment, which no other user reads.
    pub join_token: Option<JoinToken>,
    /// The file to which its standard output and error are appended.
    pub log: PathBuf,
    /// Whether it stays in the session of this process. Linux may divide processors between sessions first
    /// (`sched_autogroup_enabled`): then the threads of two sessions wait for each other whatever their priorities are.
    pub shares_session: bool,
}

/// A join token.
#[derive(Clone)]
pub struct JoinToken(pub(crate) String);

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(..)")
    }
}

impl NodeOptions {
    /// Starts the node. It outlives this process.
    pub fn spawn(&self) -> Result<NodeProcess, LocalError> {
        check_ports(self.address)?;
        std::fs::create_dir_all(&self.data_directory).map_err(|error| LocalError::file(&self.data_directory, error))?;
        let open = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        let log = open.map_err(|error| LocalError::file(&self.log, error))?;
        let log_too = log.try_clone().map_err(|error| LocalError::file(&self.log, error))?;
        let mut command = Command::new(&self.executable);
        command
            .args([OsStr::new("start"), OsStr::new("--data-dir"), self.data_directory.as_os_str()])
            .args(["--listen", &self.address.to_string()])
            .args(ON_A_SHARED_DISK)
            .args(&self.arguments)
            // The output is a file.
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too);
        if let Some(JoinToken(token)) = &self.join_token {
            command.env("DIORITE_START_JOIN_TOKEN", token);
        }
        if self.shares_session {
            command.process_group(0);
        } else {
            // SAFETY: between fork and exec the closure makes one system call, `setsid`, which is async-signal-safe; it
            // takes no lock, allocates nothing and touches no memory of the parent.
            unsafe {
                command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(std::io::Error::from));
            }
        }
        let child = command.spawn().map_err(|error| LocalError::file(&self.executable, error))?;
        NodeProcess::started(child)
    }
}

/// The arguments of `start` that make a process node `number` of a cluster, from 1: the first node founds the cluster
/// with its replication factor, the others join at the first one's address.
pub fn membership(number: u32, first: Ipv4Addr, replication: u32) -> Vec<String> {
    match (number, replication) {
        // These are the defaults of a single node.
        (1, 1) => Vec::new(),
        (1, _) => vec!["--rf".to_owned(), replication.to_string()],
        _ => vec!["--join".to_owned(), first.to_string()],
    }
}

/// The arguments of `start` that put node `number`, from 1, into one of `zones` zones, which the nodes take in turn.
pub fn zone(number: u32, zones: Option<u32>) -> Vec<String> {
    let zones = zones.filter(|&zones| zones > 0);
    zones.map_or_else(Vec::new, |zones| vec!["--zone".to_owned(), format!("zone{}", (number - 1) % zones + 1)])
}

/// The arguments of `start` for one of `nodes` nodes on this machine, so that each takes its share. With more threads
/// they would delay each other, and with more memory the machine would run out of it.
pub fn share(nodes: u32) -> Vec<String> {
    if nodes > 1 { vec!["--nodes-per-machine".to_owned(), nodes.to_string()] } else { Vec::new() }
}

/// The address of node `number`, from 1, of a cluster that begins at `first`.
pub fn nth_address(first: Ipv4Addr, number: u32) -> Result<IpAddr, LocalError> {
    let address = first.to_bits().checked_add(number.saturating_sub(1)).map(Ipv4Addr::from_bits);
    let usable = address.filter(|address| !address.is_broadcast() && address.is_loopback() == first.is_loopback());
    usable.map(IpAddr::V4).ok_or_else(|| {
        LocalError::Arguments(format!("there is no address for node {number} of a cluster that begins at {first}"))
    })
}

/// The first of `count` neighbouring loopback addresses on which all ports are free, from 127.0.0.1.
pub fn free_address(count: u32) -> Result<Ipv4Addr, LocalError> {
    let candidates = (1..=LAST_FREE).map(|host| Ipv4Addr::new(127, 0, 0, host));
    let is_free =
        |first: &Ipv4Addr| (1..=count).all(|number| nth_address(*first, number).and_then(check_ports).is_ok());
    candidates.into_iter().find(is_free).ok_or(LocalError::NoFreeAddress { last: LAST_FREE })
}

/// Fails if `start` does not know these flags, or a value of one. What only a node that starts finds out is not known here.
pub(crate) fn check_flags(executable: &Path, flags: &[String]) -> Result<(), LocalError> {
    if flags.is_empty() {
        return Ok(());
    }
    // The flags are read before it is asked for help, so that it ends without starting anything.
    let asked = Command::new(executable).arg("start").args(flags).arg("--help").stdin(Stdio::null()).output();
    let asked = asked.map_err(|error| LocalError::file(executable, error))?;
    if asked.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&asked.stderr);
    let first = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let why = first.trim_start_matches("error: ").trim_start_matches("diorite: ");
    Err(LocalError::Arguments(format!("`diorite start` refuses the flags after --: {why}")))
}

/// Fails if a node on `address` could not open its ports.
pub(crate) fn check_ports(address: IpAddr) -> Result<(), LocalError> {
    for port in [CQL_PORT, NODE_PORT, HTTP_PORT] {
        match TcpListener::bind((address, port)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(LocalError::PortTaken { address, port }),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                return Err(LocalError::NoSuchAddress(address));
            }
            Err(error) => return Err(LocalError::file(Path::new(&format!("{address}:{port}")), error)),
        }
    }
    Ok(())
}

/// Waits until every node is ready. Fails as soon as one of them ends.
pub async fn wait_until_ready(nodes: &mut [(NodeOptions, NodeProcess)]) -> Result<(), LocalError> {
    let mut waiting: Vec<_> = nodes.iter_mut().collect();
    for _ in 0..READY_TIMEOUT.as_millis() / READY_STEP.as_millis() {
        let ready = futures::future::join_all(waiting.iter().map(|(options, _)| http::is_ready(options.address))).await;
        let mut still = Vec::new();
        for (node, ready) in waiting.into_iter().zip(ready) {
            let (options, process) = &mut *node;
            // The process is checked first: another program may answer on a port that the node could not open.
            if !process.is_running() {
                let (address, log) = (options.address, tail(&options.log));
                return Err(LocalError::Ended { address, status: process.exit_status(), log });
            }
            if !ready {
                still.push(node);
            }
        }
        if still.is_empty() {
            return Ok(());
        }
        waiting = still;
        pause(READY_STEP).await;
    }
    match waiting.first() {
        Some((options, _)) => Err(LocalError::NotReady { address: options.address, log: tail(&options.log) }),
        None => Ok(()),
    }
}

/// The last lines of a log, on one line; after a panic, the lines with which it began.
fn tail(log: &Path) -> String {
    const LINES: usize = 5;
    // About the length of a backtrace: a panic before these lines belongs to an earlier process.
    const TRACE_LINES: usize = 150;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let (trace, last) = (lines.len().saturating_sub(TRACE_LINES), lines.len().saturating_sub(LINES));
    let panicked = lines.iter().rposition(|line| line.contains("panicked at")).filter(|line| *line >= trace);
    let lines: Vec<&str> = lines.into_iter().skip(panicked.unwrap_or(last)).take(LINES).collect();
    if lines.is_empty() { format!("nothing in {}", log.display()) } else { lines.join(" | ") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn options(directory: &Path, address: &str) -> NodeOptions {
        NodeOptions {
            executable: directory.join("server"),
            data_directory: directory.join("data"),
            address: address.parse().unwrap(),
            arguments: Vec::new(),
            join_token: None,
            log: directory.join("log.txt"),
            shares_session: false,
        }
    }

    #[tokio::test]
    async fn a_node_that_does_not_come_up_is_reported_with_its_last_words() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path(), "127.77.0.1");
        std::fs::write(&options.executable, "#!/bin/sh\necho \"cannot open $3\" >&2\nexit 3\n").unwrap();
        std::fs::set_permissions(&options.executable, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let process = options.spawn().unwrap();
        let error = wait_until_ready(&mut [(options, process)]).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("cannot open"), "{error}");
    }

    #[test]
    fn flags_that_are_not_known_are_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("server");
        let script = "#!/bin/sh\n[ \"$2\" = --good ] && exit 0\n\
                      printf \"error: unexpected argument '$2' found\\n\\nUsage: x\\n\" >&2\nexit 2\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let check = |flag: &str| check_flags(&program, &[flag.to_owned()]);
        check("--good").unwrap();
        let refused = check("--bad").unwrap_err().to_string();
        assert_eq!(refused, "`diorite start` refuses the flags after --: unexpected argument '--bad' found");
    }

    #[test]
    fn what_a_node_says_of_its_flags_is_shown_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log.txt");
        let said =
            "error: unexpected argument '--a' found\n\n  tip: try '-- --a'\n\nUsage: x\n\nFor more, try '--help'.\n";
        std::fs::write(&log, format!("ready\nstopping\nstopped\n{said}")).unwrap();
        assert!(tail(&log).contains("unexpected argument '--a' found"), "{}", tail(&log));
    }

    #[test]
    fn a_panic_at_the_end_of_a_log_is_shown_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log.txt");
        let shown = |frames: usize| {
            let panicked = "thread 'main' panicked at a.rs:1:2:\nno such thing\nstack backtrace:\n";
            std::fs::write(&log, format!("ready\n{panicked}{}", "  a frame\n".repeat(frames))).unwrap();
            tail(&log)
        };
        assert!(shown(80).starts_with("thread 'main' panicked at a.rs:1:2: | no such thing"), "{}", shown(80));
        assert_eq!(shown(400), ["  a frame"; 5].join(" | "), "it was followed by another life");
    }

    #[test]
    fn what_is_missing_or_taken_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = options(directory.path(), "127.77.0.2").spawn().unwrap_err().to_string();
        assert!(missing.contains("server"), "{missing}");
        let taken = TcpListener::bind(("127.77.0.3", HTTP_PORT)).unwrap();
        let refused = options(directory.path(), "127.77.0.3").spawn().unwrap_err().to_string();
        assert!(refused.contains("port 7000 on 127.77.0.3"), "{refused}");
        drop(taken);
        let foreign = options(directory.path(), "192.0.2.1").spawn().unwrap_err().to_string();
        assert_eq!(foreign, "192.0.2.1 is not an address of this machine");
    }

    #[test]
    fn nodes_have_neighbouring_addresses_and_the_first_one_founds_the_cluster() {
        let first = Ipv4Addr::new(127, 0, 0, 254);
        assert_eq!(nth_address(first, 1).unwrap().to_string(), "127.0.0.254");
        assert_eq!(nth_address(first, 3).unwrap().to_string(), "127.0.1.0");
        assert!(nth_address(Ipv4Addr::new(127, 255, 255, 254), 3).is_err(), "no longer loopback");
        assert_eq!(membership(1, first, 1), Vec::<String>::new());
        assert_eq!(membership(1, first, 3), ["--rf", "3"]);
        assert_eq!(membership(2, first, 3), ["--join", "127.0.0.254"]);
        assert_eq!(zone(5, Some(3)), ["--zone", "zone2"]);
        assert_eq!(zone(5, None), Vec::<String>::new());
        assert_eq!(share(1), Vec::<String>::new());
        assert_eq!(share(3), ["--nodes-per-machine", "3"]);
    }
}
