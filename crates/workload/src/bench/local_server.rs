//! A server process that a benchmark starts, waits for, measures and stops.
//!
//! Always true: the process does not outlive its handle; it is ready when CQL answers, not when it has started; its
//! output is in a log file, whose end is shown if it does not come up.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::WorkloadError;
use crate::pipelined::answers_options;
use crate::runner::pause;

/// CQL, node to node, HTTP.
const PORTS: [u16; 3] = [9042, 7100, 7000];
/// How long a server may take until CQL answers. Opening a large store takes a while.
const READY_TIMEOUT_S: u64 = 120;
/// How long a server may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// How to start a server.
#[derive(Debug, Clone)]
pub struct LocalServerOptions {
    /// The binary; it is run as `<executable> start --data-dir … --listen …`.
    pub executable: PathBuf,
    pub data_directory: PathBuf,
    /// The address, or `None` for the first free one from 127.0.0.1.
    pub listen: Option<String>,
    pub extra_arguments: Vec<String>,
    /// Where its standard output and error go.
    pub log: PathBuf,
}

/// A running server.
pub struct LocalServer {
    child: Child,
    process_id: u32,
    listen: String,
    data_directory: PathBuf,
}

impl LocalServer {
    /// Starts the server and waits until CQL answers.
    pub async fn spawn(options: &LocalServerOptions) -> Result<Self, WorkloadError> {
        let directory = &options.data_directory;
        std::fs::create_dir_all(directory).map_err(|error| WorkloadError::file(directory, error))?;
        let listen = match &options.listen {
            Some(address) => address.clone(),
            None => free_address()?,
        };
        let log = std::fs::File::create(&options.log).map_err(|error| WorkloadError::file(&options.log, error))?;
        let log_too = log.try_clone().map_err(|error| WorkloadError::file(&options.log, error))?;
        let spawned = Command::new(&options.executable)
            .arg("start")
            .arg("--data-dir")
            .arg(directory)
            .args(["--listen", &listen])
            .args(&options.extra_arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            // Ctrl-C on a terminal goes to the whole group; the benchmark stops its server itself.
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|error| WorkloadError::file(&options.executable, error))?;
        let contact_point = format!("{listen}:{}", PORTS[0]);
        wait_until_ready(&mut child, &contact_point, &options.log).await?;
        let process_id = child.id().ok_or_else(|| WorkloadError::Server("the server has ended already".into()))?;
        Ok(Self { child, process_id, listen, data_directory: directory.clone() })
    }

    /// Its process id.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Where CQL is served, host:port.
    pub fn contact_point(&self) -> String {
        format!("{}:{}", self.listen, PORTS[0])
    }

    /// Where its data is.
    pub fn data_directory(&self) -> &Path {
        &self.data_directory
    }

    /// Stops the server with SIGTERM and waits for its end; removes its data unless it is to be kept.
    pub async fn stop(mut self, keep_data: bool) -> Result<(), WorkloadError> {
        if let Some(id) = i32::try_from(self.process_id).ok().and_then(Pid::from_raw) {
            // It may have ended by itself; the wait below tells.
            let _ = kill_process(id, Signal::TERM);
        }
        let ended = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        if !keep_data {
            let removed = std::fs::remove_dir_all(&self.data_directory);
            removed.map_err(|error| WorkloadError::file(&self.data_directory, error))?;
        }
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(WorkloadError::Server(format!("the server ended with {status} after SIGTERM"))),
            Ok(Err(error)) => Err(WorkloadError::Server(format!("cannot wait for the server's end: {error}"))),
            Err(_) => Err(WorkloadError::Server(format!(
                "the server did not end within {} s of SIGTERM and was killed",
                STOP_TIMEOUT.as_secs()
            ))),
        }
    }
}

async fn wait_until_ready(child: &mut Child, contact_point: &str, log: &Path) -> Result<(), WorkloadError> {
    for _ in 0..READY_TIMEOUT_S * 20 {
        if answers_options(contact_point).await {
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(WorkloadError::Server(format!("the server ended with {status}: {}", tail(log))));
        }
        pause(Duration::from_millis(50)).await;
    }
    Err(WorkloadError::Server(format!("no CQL at {contact_point} within {READY_TIMEOUT_S} s: {}", tail(log))))
}

/// The last lines of a log, on one line.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    if lines.is_empty() { format!("nothing in {}", log.display()) } else { lines.join(" | ") }
}

/// The first loopback address on which no port of a server is taken.
fn free_address() -> Result<String, WorkloadError> {
    let is_free = |address: &String| PORTS.iter().all(|&port| TcpListener::bind((address.as_str(), port)).is_ok());
    (1..=9).map(|host| format!("127.0.0.{host}")).find(is_free).ok_or_else(|| {
        WorkloadError::Server("ports 9042, 7100 and 7000 are taken on 127.0.0.1 to 127.0.0.9; give --listen".into())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_come_up_is_reported_with_its_last_words() {
        let directory = tempfile::tempdir().unwrap();
        let executable = directory.path().join("server");
        std::fs::write(&executable, "#!/bin/sh\necho \"cannot open $3\" >&2\nexit 3\n").unwrap();
        std::fs::set_permissions(&executable, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let options = LocalServerOptions {
            executable,
            data_directory: directory.path().join("data"),
            listen: Some("127.77.0.1".into()),
            extra_arguments: Vec::new(),
            log: directory.path().join("server.log"),
        };
        let error = LocalServer::spawn(&options).await.err().unwrap().to_string();
        assert!(error.contains("exit status: 3") && error.contains("cannot open"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_executable_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let options = LocalServerOptions {
            executable: directory.path().join("nothing-here"),
            data_directory: directory.path().join("data"),
            listen: Some("127.77.0.1".into()),
            extra_arguments: Vec::new(),
            log: directory.path().join("server.log"),
        };
        assert!(LocalServer::spawn(&options).await.err().unwrap().to_string().contains("nothing-here"));
    }
}
