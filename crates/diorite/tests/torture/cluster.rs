//! A cluster of real processes on loopback addresses of its own, with the [`Network`] between them in the test's hands.
//!
//! Always true: all processes are killed and the data is removed when the cluster is dropped; a node that ends by itself fails the test
//! with the end of its log.

use crate::client::Client;
use crate::network::{NODE_PORT, Network};
use crate::server::{PROGRAM, command_of, fresh_addresses, get_within};
use diorite_cql::protocol::client::ClientResponse;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SIGTERM: i32 = 15;

/// How long a healthy cluster is waited for. Not a measurement.
pub const RECOVERY: Duration = Duration::from_secs(300);

/// Replicas of each tablet, where nothing else is said.
const REPLICAS: usize = 3;

/// What a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Down,
    Running,
    Paused,
}

struct Process {
    child: Option<Child>,
    state: State,
}

pub struct Cluster {
    /// Where clients reach each node.
    pub addresses: Vec<String>,
    pub network: Network,
    relays: Vec<String>,
    processes: Vec<Mutex<Process>>,
    /// The nodes' data directories.
    data: Vec<PathBuf>,
    home: tempfile::TempDir,
    replicas: usize,
    options: Vec<String>,
    /// The programs that nodes are started with.
    programs: Vec<Mutex<PathBuf>>,
}

impl Cluster {
    /// Starts `nodes` nodes and waits until each serves and knows the others.
    pub fn start(nodes: usize, options: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = (0..nodes).map(|node| home.path().join(format!("node-{node}"))).collect();
        Self::start_in(home, data, REPLICAS, options)
    }

    /// The same with another program.
    pub fn start_as(program: &Path, nodes: usize, options: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = (0..nodes).map(|node| home.path().join(format!("node-{node}"))).collect();
        Self::start_program_in(program, home, data, REPLICAS, options)
    }

    /// The same with one replica of each tablet, so that what a node holds is nowhere else.
    pub fn start_unreplicated(nodes: usize, options: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = (0..nodes).map(|node| home.path().join(format!("node-{node}"))).collect();
        Self::start_in(home, data, 1, options)
    }

    /// Starts nodes with these data directories.
    pub fn start_on(data: Vec<PathBuf>, options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), data, REPLICAS, options)
    }

    fn start_in(home: tempfile::TempDir, data: Vec<PathBuf>, replicas: usize, options: &[&str]) -> Self {
        Self::start_program_in(Path::new(PROGRAM), home, data, replicas, options)
    }

    fn start_program_in(
        program: &Path,
        home: tempfile::TempDir,
        data: Vec<PathBuf>,
        replicas: usize,
        options: &[&str],
    ) -> Self {
        let nodes = data.len();
        let mut addresses = fresh_addresses(2 * nodes);
        let relays = addresses.split_off(nodes);
        let network = Network::new(&addresses, &relays).unwrap();
        let processes = (0..nodes).map(|_| Mutex::new(Process { child: None, state: State::Down })).collect();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let programs = (0..nodes).map(|_| Mutex::new(program.to_owned())).collect();
        let cluster = Self { addresses, network, relays, processes, data, home, replicas, options, programs };
        for node in 0..nodes {
            cluster.start_node(node);
            cluster.await_ready(node);
        }
        cluster.wait_for("every node to know all others", || {
            (0..nodes).all(|node| cluster.peers(node).is_some_and(|peers| peers == nodes - 1))
        });
        cluster
    }

    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    fn log_path(&self, node: usize) -> PathBuf {
        self.home.path().join(format!("node-{node}.log"))
    }

    /// Starts a node that is down; does not wait for it.
    pub fn start_node(&self, node: usize) {
        let mut process = self.processes[node].lock().unwrap();
        assert_eq!(process.state, State::Down);
        let log = File::options().create(true).append(true).open(self.log_path(node)).unwrap();
        process.child = Some(self.command(node).stderr(log).spawn().unwrap());
        process.state = State::Running;
    }

    /// The program with which a node is started from now on.
    pub fn set_program(&self, node: usize, program: &Path) {
        program.clone_into(&mut self.programs[node].lock().unwrap());
    }

    /// What a node says that must refuse to start.
    pub fn refusal(&self, node: usize) -> String {
        assert_eq!(self.state(node), State::Down);
        let done = self.command(node).output().unwrap();
        assert!(!done.status.success(), "it must fail{}", self.logs());
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    fn command(&self, node: usize) -> Command {
        let advertised = format!("{}:{NODE_PORT}", self.relays[node]);
        let more = ["--advertise-node-address", &advertised];
        let mut command =
            command_of(&self.programs[node].lock().unwrap(), &self.addresses[node], &self.data[node], &more);
        if node == 0 {
            command.args(["--rf", &self.replicas.to_string()]);
        } else {
            command.args(["--join", &format!("{}:{NODE_PORT}", self.relays[0])]);
        }
        command.args(&self.options);
        command
    }

    fn await_ready(&self, node: usize) {
        self.wait_for(&format!("node {node} to be ready"), || {
            get_within(&self.addresses[node], "/health/ready", Duration::from_secs(2)).is_some()
        });
    }

    /// How many other nodes a node knows, if it answers.
    fn peers(&self, node: usize) -> Option<usize> {
        let mut client = Client::connect_within(&self.addresses[node], Duration::from_secs(2)).ok()?;
        match client.try_query("SELECT peer FROM system.peers").ok()? {
            ClientResponse::Rows(rows) => Some(rows.rows.len()),
            _ => None,
        }
    }

    /// The running node that leads most tablets, if any does.
    pub fn leader_of_most(&self) -> Option<usize> {
        let running = (0..self.len()).filter(|node| self.state(*node) == State::Running);
        let led = running.filter_map(|node| Some((self.led(node)?, node)));
        led.filter(|(count, _)| *count > 0).max().map(|(_, node)| node)
    }

    /// The running node that leads the catalog, if any does.
    pub fn leader_of_catalog(&self) -> Option<usize> {
        let mut running = (0..self.len()).filter(|node| self.state(*node) == State::Running);
        running.find(|node| self.metric(*node, "diorite_catalog_led", "") == Some(1))
    }

    /// Tablets that a node leads, if it answers.
    fn led(&self, node: usize) -> Option<u64> {
        self.metric(node, "diorite_tablets_led", "")
    }

    /// The sum of a metric over the lines with `label` (`kind="value"`, or nothing for all), if the node answers and has any.
    pub fn metric(&self, node: usize, name: &str, label: &str) -> Option<u64> {
        let text = get_within(&self.addresses[node], "/metrics", Duration::from_millis(500))?;
        let of_metric = |line: &&str| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            rest.starts_with([' ', '{']) && rest.contains(label)
        };
        let values = text.lines().filter(of_metric).map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        let values: Vec<u64> = values.collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// Waits for something that a healthy cluster does within [`RECOVERY`].
    pub fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            self.expect_alive();
            if start.elapsed() > RECOVERY {
                panic!("waited in vain for {what}{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Fails if a node has ended by itself.
    pub fn expect_alive(&self) {
        for (node, process) in self.processes.iter().enumerate() {
            let ended = process.lock().unwrap().child.as_mut().and_then(|child| child.try_wait().unwrap());
            if let Some(status) = ended {
                panic!("node {node} ended by itself: {status}{}", self.logs());
            }
        }
    }

    /// The ends of all logs.
    pub fn logs(&self) -> String {
        let last = |node: usize| {
            let text = std::fs::read_to_string(self.log_path(node)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(30)..];
            format!("\nlog of node {node}:\n  {}", last.join("\n  "))
        };
        (0..self.len()).map(last).collect()
    }

    pub fn state(&self, node: usize) -> State {
        self.processes[node].lock().unwrap().state
    }

    /// `kill -9`, also of a paused node.
    pub fn kill(&self, node: usize) {
        let mut process = self.processes[node].lock().unwrap();
        let mut child = process.child.take().expect("a node that is up");
        child.kill().unwrap();
        child.wait().unwrap();
        process.state = State::Down;
    }

    /// `kill -9` of a node that may wait for a disk, and so ends only when that goes on: to be followed by [`Self::kill`].
    pub fn begin_kill(&self, node: usize) {
        let process = self.processes[node].lock().unwrap();
        signal(process.child.as_ref().expect("a node that is up"), "-KILL");
    }

    /// SIGTERM to a running node; waits for its end, which must be a good one.
    pub fn stop(&self, node: usize) {
        let mut process = self.processes[node].lock().unwrap();
        assert_eq!(process.state, State::Running);
        let mut child = process.child.take().expect("a node that is up");
        signal(&child, "-TERM");
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > RECOVERY => {
                    let _ = child.kill();
                    panic!("node {node} does not stop{}", self.logs());
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        // A process that was started a moment ago may not have come as far as to listen for signals: then nothing has begun.
        let has_not_begun = status.signal() == Some(SIGTERM);
        assert!(status.success() || has_not_begun, "node {node} stopped with {status}{}", self.logs());
        process.state = State::Down;
    }

    /// SIGSTOP
    pub fn pause(&self, node: usize) {
        let mut process = self.processes[node].lock().unwrap();
        assert_eq!(process.state, State::Running);
        signal(process.child.as_ref().expect("a node that is up"), "-STOP");
        process.state = State::Paused;
    }

    /// SIGCONT
    pub fn resume(&self, node: usize) {
        let mut process = self.processes[node].lock().unwrap();
        assert_eq!(process.state, State::Paused);
        signal(process.child.as_ref().expect("a node that is up"), "-CONT");
        process.state = State::Running;
    }

    /// Heals the network and brings every node back.
    pub fn heal(&self) {
        self.network.heal();
        for node in 0..self.len() {
            match self.state(node) {
                State::Down => self.start_node(node),
                State::Paused => self.resume(node),
                State::Running => {}
            }
        }
    }

    /// A connection to a node that is healthy.
    pub fn client(&self, node: usize) -> Client {
        let mut client = None;
        self.wait_for(&format!("node {node} to take a connection"), || {
            client = Client::connect(&self.addresses[node]).ok();
            client.is_some()
        });
        client.expect("waited for")
    }

    /// Runs a statement at a node until it succeeds.
    pub fn run(&self, node: usize, statement: &str) {
        let start = Instant::now();
        loop {
            let said = match self.client(node).try_query(statement) {
                Ok(ClientResponse::Error(error)) => format!("{error:?}"),
                Ok(_) => return,
                Err(error) => error.to_string(),
            };
            assert!(start.elapsed() < RECOVERY, "{statement}: {said}{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &self.processes {
            let mut process = process.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(child) = &mut process.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}
