//! The guard of a node: a small process beside it, which notifies the other nodes as soon as the node's process has
//! ended, so that they do not wait for its leases to lapse.
//!
//! ```text
//! node ──stdin: key, members──▶ guard        guard ──question: node, key──▶ members, once the kernel says that the process has ended
//! node ──hello: incarnation, a hash of the key──▶ members
//! ```
//!
//! Always true: when the guard sends its notice, no thread of the process runs, so nothing is answered under its leases
//! any more. Only the process and its guard know the key, so no other process can send that notice; and a key is valid
//! for one incarnation. Without a guard the other nodes wait for the leases to lapse. Left out: machines that fail as a
//! whole, with their guards.

use crate::pause::pause;
use diorite_base::{Clock, SystemClock};
use diorite_certs::node::NodeCredentials;
use diorite_rpc::tcp::{Caller, DialError, ask};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long a member may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How often an unreachable member is dialled, in TLS or not. More attempts would change nothing: a member that takes long
/// to answer knows by its own clock that the leases have lapsed, and one that refuses connections runs no process that has
/// given support. The node's own connections and certificates do not depend on its guard.
const ATTEMPTS: u32 = 5;
/// The time between two attempts.
const RETRY: Duration = Duration::from_millis(50);
/// The most that is read of one line; members are a few dozen bytes each.
const MAX_LINE_BYTES: usize = 4 << 20;

/// The process that a guard watches, and the members that it notifies. Each line of the guard's input is one duty; the
/// last line is valid.
#[derive(Clone, Serialize, Deserialize)]
struct Duty {
    process: i32,
    /// The notice to the members.
    notice: String,
    /// The local address of connections.
    bind: IpAddr,
    max_clock_skew_ms: u64,
    members: Vec<SocketAddr>,
    /// The certificates for other nodes; none if traffic between nodes is open.
    certs: Option<PathBuf>,
    /// How often they have changed: the guard reads them with each line.
    changes: u64,
}

/// The node's end of its guard.
#[derive(Default)]
pub(crate) struct Guard(Option<Arc<Instructions>>);

/// The newest instruction that has not been written to the guard yet.
struct Instructions {
    duty: Mutex<Duty>,
    line: Mutex<Option<Vec<u8>>>,
    is_new: Condvar,
}

impl Guard {
    /// Starts the process that `command` names.
    pub(crate) fn start(
        command: Command,
        notice: String,
        (bind, max_clock_skew_ms): (IpAddr, u64),
        certs: Option<&Path>,
    ) -> Self {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        let (certs, members) = (certs.map(Path::to_owned), Vec::new());
        let duty = Duty { process, notice, bind, max_clock_skew_ms, members, certs, changes: 0 };
        let instructions = Instructions { duty: Mutex::new(duty), line: Mutex::new(None), is_new: Condvar::new() };
        let instructions = Arc::new(instructions);
        match spawn(command, &instructions) {
            Ok(()) => Self(Some(instructions)),
            Err(error) => {
                tracing::warn!(%error, "the guard cannot be started: other nodes will wait for leases to lapse if this process is killed");
                Self(None)
            }
        }
    }

    /// Sets the members that the guard is to notify from now on.
    pub(crate) fn set_members(&self, members: impl Iterator<Item = SocketAddr>) {
        let Some(instructions) = &self.0 else { return };
        let mut duty = instructions.duty.lock();
        let mut members: Vec<SocketAddr> = members.collect();
        members.sort_unstable();
        if members == duty.members {
            return;
        }
        duty.members = members;
        instructions.send(&duty);
    }

    /// The guard is to read the certificates again.
    pub(crate) fn certificates_changed(&self) {
        let Some(instructions) = &self.0 else { return };
        let mut duty = instructions.duty.lock();
        duty.changes += 1;
        instructions.send(&duty);
    }
}

impl Instructions {
    fn send(&self, duty: &Duty) {
        let mut line = serde_json::to_vec(duty).expect("a duty has string keys");
        line.push(b'\n');
        // Only the last instruction is valid.
        *self.line.lock() = Some(line);
        self.is_new.notify_one();
    }
}

/// Starts the guard, and two threads of the node: one waits for the guard's end, the other writes instructions to it.
fn spawn(mut command: Command, instructions: &Arc<Instructions>) -> io::Result<()> {
    // In a process group of its own: a signal from the terminal that ends the node does not end the guard before it has
    // sent its notice.
    command.arg0("diorite").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let input = child.stdin.take().ok_or_else(|| io::Error::other("it has no standard input"))?;
    let instructions = Arc::clone(instructions);
    begin("guard-input", move || instruct(input, &instructions))?;
    begin("guard-end", move || missed(child))
}

fn begin(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[allow(clippy::disallowed_methods, reason = "it waits for the other process as long as this one runs")]
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn instruct(mut input: ChildStdin, instructions: &Instructions) {
    loop {
        let line = {
            let mut line = instructions.line.lock();
            loop {
                if let Some(line) = line.take() {
                    break line;
                }
                instructions.is_new.wait(&mut line);
            }
        };
        // If the guard is gone, the other thread reports it.
        if input.write_all(&line).is_err() {
            return;
        }
    }
}

fn missed(mut child: Child) {
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    tracing::warn!(status, "the guard has ended: other nodes will wait for leases to lapse if this process is killed");
}

/// Why a guard cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// It was not started by a node.
    #[error("only a node runs this command, and instructs it on standard input: {0}")]
    NoInput(String),
    /// The process of the node cannot be watched.
    #[error("the process of the node cannot be watched: {0}")]
    Process(#[from] io::Error),
}

/// Waits until the process that has started this one has ended, and notifies the members.
///
/// # Errors
/// If it was not started by a node, or if processes cannot be watched here.
pub fn guard() -> Result<(), GuardError> {
    leave_the_rest()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _signals = ignore_signals(&runtime)?;
    let mut input = Input::default();
    let first = input.first()?;
    let process = Pid::from_raw(first.process).ok_or_else(|| GuardError::NoInput("no process is named".to_owned()))?;
    let watched = pidfd_open(process, PidfdFlags::empty()).map_err(io::Error::from)?;
    // The id of a parent that has ended may belong to another process, which the descriptor would then watch.
    if getppid() != Some(process) {
        return Err(GuardError::NoInput("the process that has started it is not the one that it names".to_owned()));
    }
    let (duty, credentials) = input.follow(first, &watched)?;
    if getppid() == Some(process) {
        return Err(GuardError::Process(io::Error::other(
            "its end was reported, but it is still the parent of this process",
        )));
    }
    runtime.block_on(notify(&duty, credentials.as_ref()));
    Ok(())
}

/// Ignores the signals that stop all processes of a node at once: the guard has to outlive the node's process to report
/// its end, and ends by itself soon afterwards.
fn ignore_signals(runtime: &Runtime) -> io::Result<[Signal; 3]> {
    let _within = runtime.enter();
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?])
}

/// Closes everything inherited from the node's process: a lock file that the node's starter holds open must be free
/// once the node has ended, and a file system must be unmountable.
fn leave_the_rest() -> io::Result<()> {
    // SAFETY: this process has just begun, with one thread, and has opened nothing itself: no object in it owns a
    // descriptor beyond the three standard ones. Kernels before 5.9 do not know the call: the descriptors stay open
    // then.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    std::env::set_current_dir("/")
}

/// The node's instructions on standard input. Read without the library's buffer, because input and the end of the
/// process are awaited together.
#[derive(Default)]
struct Input {
    buffer: Vec<u8>,
}

impl Input {
    fn first(&mut self) -> Result<Duty, GuardError> {
        loop {
            if let Some(line) = self.take_line() {
                return duty(&line).map_err(|error| GuardError::NoInput(error.to_string()));
            }
            if !self.read()? {
                return Err(GuardError::NoInput("it is empty".to_owned()));
            }
        }
    }

    /// Returns the last duty once the process has ended, with what the node showed other nodes last. The files are read
    /// before: the node's disk may be the reason for its end.
    fn follow(&mut self, first: Duty, watched: &OwnedFd) -> io::Result<(Duty, Option<NodeCredentials>)> {
        let mut credentials = credentials(&first);
        let (mut last, mut is_open) = (first, true);
        let stdin = io::stdin();
        loop {
            while let Some(line) = self.take_line() {
                // A malformed line changes nothing.
                last = duty(&line).unwrap_or(last);
                credentials = self::credentials(&last).or(credentials);
            }
            let mut waiting = vec![PollFd::new(watched, PollFlags::IN)];
            if is_open {
                waiting.push(PollFd::new(&stdin, PollFlags::IN));
            }
            match poll(&mut waiting, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut is_ready = waiting.iter().map(|waiting| waiting.revents());
            // Only the descriptor shows that all threads of the process have ended.
            let has_ended = is_ready.next().is_some_and(|events| events.contains(PollFlags::IN));
            let has_input = is_ready.next().is_some_and(|events| !events.is_empty());
            if has_input {
                is_open = self.read()?;
            } else if has_ended {
                return Ok((last, credentials));
            }
        }
    }

    /// Reads what is available, or waits for input; returns whether there may be more.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let read = loop {
            match rustix::io::read(io::stdin(), &mut bytes) {
                Err(Errno::INTR) => {}
                read => break read?,
            }
        };
        self.buffer.extend_from_slice(bytes.get(..read).unwrap_or_default());
        if self.buffer.len() > MAX_LINE_BYTES {
            return Err(io::Error::other("a line is too long"));
        }
        Ok(read > 0)
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        Some(self.buffer.drain(..=end).collect())
    }
}

fn duty(line: &[u8]) -> Result<Duty, serde_json::Error> {
    serde_json::from_slice(line)
}

/// `None` without certificates, or if they cannot be read.
fn credentials(duty: &Duty) -> Option<NodeCredentials> {
    let now_s = SystemClock::new().wall_us() / 1_000_000;
    duty.certs.as_ref().and_then(|directory| NodeCredentials::read(directory, now_s).ok())
}

async fn notify(duty: &Duty, credentials: Option<&NodeCredentials>) {
    // Who has certificates sends nothing in the open.
    if duty.certs.is_some() && credentials.is_none() {
        return;
    }
    let clock = SystemClock::new();
    let notices = duty.members.iter().map(|member| notify_one(duty, credentials, *member, &clock));
    futures::future::join_all(notices).await;
}

async fn notify_one(duty: &Duty, credentials: Option<&NodeCredentials>, member: SocketAddr, clock: &dyn Clock) {
    let Duty { notice, bind, max_clock_skew_ms, .. } = duty;
    let (max_clock_skew, tls) = (Duration::from_millis(*max_clock_skew_ms), credentials.map(NodeCredentials::client));
    let caller = Caller { bind: Some(*bind), clock, max_clock_skew, tls };
    for _ in 0..ATTEMPTS {
        match ask(member, caller, notice.clone().into_bytes(), ANSWER_TIMEOUT).await {
            Err(DialError::Unreachable(_)) => pause(RETRY).await,
            // Another attempt would meet the same refusal.
            Ok(_) | Err(DialError::Refused(_)) => return,
        }
    }
}
