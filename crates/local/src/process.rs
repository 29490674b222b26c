//! A process that was started here, and that a later command finds again and sends signals to.
//!
//! Always true: a process is identified by its id *and* the time at which it began, in clock ticks since a named boot,
//! so that another process with the same id is never taken for it; signals are sent through a descriptor of the
//! process, whose identity was checked after it was opened. A process that has ended and has not been waited for counts
//! as ended.

use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::{LocalError, pause};

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessStat {
    /// `R` (running), `S` (sleeping), `T` (stopped), `Z` (ended and not waited for), …
    pub state: char,
    /// User and system time since it began.
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    /// Threads that have not ended.
    pub threads: u64,
    /// When it began, in clock ticks since the machine's boot.
    pub start_ticks: u64,
}

/// Parses `/proc/<pid>/stat`. The command name may contain any character, so fields are counted from its last bracket.
pub fn parse_stat(text: &str) -> Option<ProcessStat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    // The first field after the name is number 3, the state; user time is 14, system time 15, threads 20, start 22,
    // resident pages 24.
    let number = |index: usize| fields.get(index - 3)?.parse::<u64>().ok();
    Some(ProcessStat {
        state: fields.first()?.chars().next()?,
        cpu_seconds: (number(14)? + number(15)?) as f64 / rustix::param::clock_ticks_per_second() as f64,
        threads: number(20)?,
        start_ticks: number(22)?,
        resident_bytes: number(24)? * rustix::param::page_size() as u64,
    })
}

fn stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn boot_id() -> String {
    // Without the boot id, a process of an earlier boot could be taken for this one, if it had the same id and began at
    // the same tick.
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The identity of a process, which is valid until the machine is started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// When it began, in clock ticks since the boot.
    pub start_ticks: u64,
    pub boot_id: String,
}

impl ProcessIdentity {
    /// The identity of a process that runs now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: stat(pid)?.start_ticks, boot_id: boot_id() })
    }

    /// The process's state; `None` if it has ended.
    pub fn stat(&self) -> Option<ProcessStat> {
        let found = stat(self.pid)?;
        let same = found.start_ticks == self.start_ticks && self.boot_id == boot_id();
        // A process whose first thread has ended keeps its ports until the last thread has ended.
        let has_ended = matches!(found.state, 'Z' | 'X') && found.threads <= 1;
        (same && !has_ended).then_some(found)
    }

    /// Whether all of its threads are stopped by a signal.
    fn is_paused(&self) -> bool {
        let is_stopped = |text: String| parse_stat(&text).is_some_and(|stat| stat.state == 'T');
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        // A thread that has ended meanwhile cannot be read and does not run.
        let mut texts = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        self.stat().is_some() && texts.all(is_stopped)
    }

    /// How long ago it began, in seconds; `None` if it has ended.
    pub fn uptime_s(&self) -> Option<f64> {
        let since_boot = std::fs::read_to_string("/proc/uptime").ok()?;
        let now_s: f64 = since_boot.split_ascii_whitespace().next()?.parse().ok()?;
        let start_s = self.stat()?.start_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some((now_s - start_s).max(0.0))
    }

    /// Sends `signal`. Returns whether the process still existed.
    pub fn signal(&self, signal: Signal) -> Result<bool, LocalError> {
        let refuse = |error: rustix::io::Errno| LocalError::Process {
            what: "signal",
            pid: self.pid,
            error: std::io::Error::from(error),
        };
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(error) => return Err(refuse(error)),
        };
        // The identity is checked after opening: from here on the descriptor refers to this process, even if the id is
        // used again.
        if self.stat().is_none() {
            return Ok(false);
        }
        match pidfd_send_signal(&descriptor, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(refuse(error)),
        }
    }
}

/// A node's process: started by this command, or by an earlier one.
#[derive(Debug)]
pub struct NodeProcess {
    identity: ProcessIdentity,
    /// Present if this command started it. Only a parent receives the exit status.
    child: Option<Child>,
}

impl NodeProcess {
    pub(crate) fn started(child: Child) -> Result<Self, LocalError> {
        // A child keeps its id until it is waited for, even if it has ended.
        let pid = child.id();
        let gone = || LocalError::Process { what: "find", pid, error: std::io::ErrorKind::NotFound.into() };
        Ok(Self { identity: ProcessIdentity::of(pid).ok_or_else(gone)?, child: Some(child) })
    }

    /// A process that another command started.
    pub fn known(identity: ProcessIdentity) -> Self {
        Self { identity, child: None }
    }

    /// The process's identity.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        match &mut self.child {
            // A parent is notified once all threads have ended, with the exit status.
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => self.identity.stat().is_some(),
        }
    }

    /// The exit status, if the process has ended and this command started it.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        // An error means that this command cannot wait for the child any more.
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub async fn kill(&mut self) -> Result<(), LocalError> {
        self.identity.signal(Signal::KILL)?;
        self.wait_for_end().await
    }

    /// Sends SIGTERM, and waits until the process has ended. A paused process is resumed for that.
    pub async fn stop(&mut self) -> Result<(), LocalError> {
        self.identity.signal(Signal::TERM)?;
        self.identity.signal(Signal::CONT)?;
        self.wait_for_end().await
    }

    /// SIGSTOP, and waits until no thread of the process runs any more: the signal alone is answered by each in its own time.
    pub async fn pause(&mut self) -> Result<(), LocalError> {
        self.identity.signal(Signal::STOP)?;
        self.wait_until(|process| process.identity.is_paused() || !process.is_running()).await
    }

    async fn wait_for_end(&mut self) -> Result<(), LocalError> {
        self.wait_until(|process| !process.is_running()).await
    }

    async fn wait_until(&mut self, is_so: impl Fn(&mut Self) -> bool) -> Result<(), LocalError> {
        const STEP: Duration = Duration::from_millis(10);
        for _ in 0..=crate::STOP_TIMEOUT.as_millis() / STEP.as_millis() {
            if is_so(self) {
                return Ok(());
            }
            pause(STEP).await;
        }
        Err(LocalError::DoesNotStop { pid: self.pid() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use std::process::Command;

    #[test]
    fn a_command_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let text = "4242 (a) b (c) d) S 1 2 3 0 -1 4194560 100 0 5 0 250 150 7 8 20 0 9 0 12345 1000000 300 18446744073709551615 1 1";
        let parsed = parse_stat(text).unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(parsed.cpu_seconds, 400.0 / ticks);
        assert_eq!(parsed.resident_bytes, 300 * rustix::param::page_size() as u64);
        assert_eq!((parsed.state, parsed.start_ticks), ('S', 12_345));
        assert_eq!(parse_stat("1 (x) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[tokio::test]
    async fn a_process_that_got_the_number_later_is_not_touched() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let right = ProcessIdentity::of(child.id()).unwrap();
        for wrong in [
            ProcessIdentity { start_ticks: right.start_ticks - 1, ..right.clone() },
            ProcessIdentity { boot_id: "another".into(), ..right.clone() },
        ] {
            assert_eq!(wrong.stat(), None);
            assert!(!wrong.signal(Signal::KILL).unwrap());
        }
        assert_eq!(child.try_wait().unwrap(), None, "it still runs");
        assert!(right.uptime_s().unwrap() < 60.0);
        let mut process = NodeProcess::known(right.clone());
        process.kill().await.unwrap();
        // The process has not been waited for: it has an entry in the table of processes, and has ended all the same.
        assert_eq!(right.stat(), None);
        assert!(!child.wait().unwrap().success());
    }

    #[tokio::test]
    async fn a_paused_process_can_be_stopped() {
        let mut process = NodeProcess::started(Command::new("sleep").arg("60").spawn().unwrap()).unwrap();
        process.pause().await.unwrap();
        assert_eq!(process.identity().stat().map(|stat| stat.state), Some('T'));
        process.stop().await.unwrap();
        assert!(process.exit_status().is_some_and(|status| !status.success()));
    }
}
