//! Starting, killing and stopping server processes, each on a loopback address of its own.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything is waited for before the test gives up. Not a measurement.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// An address that no other test uses: 127.0.0.0/8 is all loopback.
pub fn fresh_address() -> String {
    fresh_addresses(1).remove(0)
}

/// Several of them.
pub fn fresh_addresses(count: usize) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id();
    let first = 50 + NEXT.fetch_add(count as u32, Ordering::Relaxed);
    assert!(first + count as u32 <= 255, "this process has used up its addresses");
    let address = |last| format!("127.{}.{}.{last}", 10 + process / 250 % 240, process % 250);
    (first..first + count as u32).map(address).collect()
}

/// Looks again and again until it is so.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A running server; killed when dropped.
pub struct Server {
    pub address: String,
    process: Child,
}

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_diorite");

/// `diorite start`
pub fn command(address: &str, data: &Path, more: &[&str]) -> Command {
    command_of(Path::new(PROGRAM), address, data, more)
}

/// The same of another program.
pub fn command_of(program: &Path, address: &str, data: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(program);
    // However full the machine's disk is.
    command.args(["start", "--listen", address, "--move-reserve", "0", "--data-dir"]).arg(data).args(more);
    if !more.contains(&"--log-level") {
        command.args(["--log-level", "warn"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

impl Server {
    /// Starts and waits until CQL is served.
    pub fn start(data: &Path, more: &[&str]) -> Self {
        Self::start_on(&fresh_address(), data, more)
    }

    pub fn start_on(address: &str, data: &Path, more: &[&str]) -> Self {
        Self::start_logging(address, data, more, Stdio::inherit())
    }

    /// What it logs goes to `log`.
    pub fn start_logging(address: &str, data: &Path, more: &[&str], log: Stdio) -> Self {
        let mut server = Self::begin(address, data, more, log);
        server.wait_until_ready();
        server
    }

    /// Starts, and waits for nothing.
    pub fn begin(address: &str, data: &Path, more: &[&str], log: Stdio) -> Self {
        let process = command(address, data, more).stderr(log).spawn().unwrap();
        Self { address: address.to_owned(), process }
    }

    pub fn wait_until_ready(&mut self) {
        let start = Instant::now();
        // The HTTP port answers once the node is ready.
        while get(&self.address, "/health/ready").is_none() {
            let exited = self.process.try_wait().unwrap();
            assert!(exited.is_none(), "the server exited: {exited:?}");
            assert!(start.elapsed() < TIMEOUT, "the server is not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// `kill -9`
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// SIGTERM; waits for the end.
    pub fn stop(mut self) -> ExitStatus {
        let stopped = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status().unwrap();
        assert!(stopped.success());
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < TIMEOUT, "the server does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    pub fn get(&self, path: &str) -> Option<String> {
        get(&self.address, path)
    }

    /// Resident memory, bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most that it ever was.
    pub fn most_resident_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The body of an HTTP answer, if there is one.
pub fn get(address: &str, path: &str) -> Option<String> {
    get_within(address, path, TIMEOUT)
}

/// The same, for a server that may not answer: `timeout` is for each step.
pub fn get_within(address: &str, path: &str, timeout: Duration) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&format!("{address}:7000").parse().ok()?, timeout).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    std::io::Write::write_all(
        &mut stream,
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// Starts a server that must refuse to; returns what it says. It must end by itself, with a failure and one line.
pub fn refusal(address: &str, data: &Path, more: &[&str]) -> String {
    let mut process = command(address, data, more).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > TIMEOUT {
            process.kill().unwrap();
            panic!("the server did not refuse to start");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(!status.success(), "it must fail");
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    // On a busy machine it may have said before that it was not scheduled for a second.
    let why: Vec<&str> = said.trim().lines().filter(|line| !line.contains("this process did not run")).collect();
    assert_eq!(why.len(), 1, "one clear line: {said}");
    why[0].to_owned()
}
