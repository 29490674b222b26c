//! A cluster of nodes on this machine, recorded in a directory between commands.
//!
//! `<directory>/cluster.json` describes the cluster; node K has `node-K/data`, `node-K/log.txt` and, once it has been
//! started, `node-K/process.json` with the identity of its process. `certs` has the certificates of the nodes.
//!
//! Always true: a directory that contains anything else never becomes a cluster; only files of the cluster are removed;
//! of the commands that start, stop or remove nodes, only one at a time works on a directory.
//!
//! Left out: removing single nodes from a cluster.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use diorite_base::{Clock, FileLock, SystemClock};
use diorite_certs::{Directory, Lifetime, Subject};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::node::{JoinToken, NodeOptions, check_ports, membership, nth_address, share, wait_until_ready, zone};
use crate::process::{NodeProcess, ProcessIdentity};
use crate::status::{NodeStatus, node_status};
use crate::{FIRST_ADDRESS, LocalError, http, pause};

const DESCRIPTION: &str = "cluster.json";
const LOCK: &str = "lock";
const PROCESS: &str = "process.json";
const CERTS: &str = "certs";
/// A file in the data directory of a node that is a member.
const MEMBERS_MARK: &str = "DIORITE";
/// Where a node makes join tokens, and how long nodes that are started may take to join.
const JOIN_TOKENS: &str = "/api/v1/join-tokens";
const JOIN_TIME: Duration = Duration::from_secs(10 * 60);
/// How long its certificates are valid.
const CERTS_DAYS: u32 = 3_650;
/// The version of `cluster.json`.
const FORMAT: u32 = 1;
/// Nodes of a new cluster, and its replication factor.
const DEFAULT_NODES: u32 = 3;
/// More processes than any machine can run well.
const MAX_NODES: u32 = 99;
/// How long tablets may lack leaders after all nodes are ready.
const LEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Options of `diorite start` that the cluster sets.
const RESERVED: [&str; 8] =
    ["--certs", "--data-dir", "--listen", "--join", "--rf", "--cql-port", "--node-port", "--http-port"];

/// The wanted shape of a cluster. Absent values stay as they are, or have their defaults.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub nodes: Option<u32>,
    pub replication: Option<u32>,
    /// The number of zones, to which the nodes belong in turn; `None`: nodes are started without a zone.
    pub zones: Option<u32>,
    /// The address of the first node.
    pub address: Option<Ipv4Addr>,
    /// Further arguments of `diorite start`.
    pub arguments: Vec<String>,
    /// Traffic between its nodes is open.
    pub without_certs: bool,
}

/// `cluster.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Description {
    format: u32,
    nodes: u32,
    replication: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zones: Option<u32>,
    first_address: Ipv4Addr,
    arguments: Vec<String>,
    /// Its nodes have certificates. Clusters of earlier versions have none.
    #[serde(default)]
    certs: bool,
}

/// The answer of a node that has made a join token.
#[derive(Deserialize)]
struct Made {
    token: String,
}

/// A cluster's directory.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    description: Description,
    /// The arguments of `start` that were remembered before this command.
    former_arguments: Vec<String>,
}

impl Cluster {
    /// The cluster in `directory`.
    pub fn open(directory: &Path) -> Result<Self, LocalError> {
        let path = directory.join(DESCRIPTION);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(LocalError::Directory(format!(
                    "there is no local cluster in {}; `diorite local up` creates one",
                    directory.display()
                )));
            }
            Err(error) => return Err(LocalError::file(&path, error)),
        };
        let refuse = |why: String| LocalError::Directory(format!("{} cannot be used: {why}", path.display()));
        let description: Description = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        if description.format != FORMAT {
            return Err(refuse(format!("it has format {}, this program knows {FORMAT}", description.format)));
        }
        let directory = std::path::absolute(directory).map_err(|error| LocalError::file(directory, error))?;
        let former_arguments = description.arguments.clone();
        Ok(Self { directory, description, former_arguments })
    }

    /// The cluster in `directory`, in the shape that `plan` describes: created if there is none, and enlarged if more
    /// nodes are wanted.
    pub fn prepare(directory: &Path, plan: &Plan) -> Result<Self, LocalError> {
        plan.check()?;
        if directory.join(DESCRIPTION).exists() {
            let mut cluster = Self::open(directory)?;
            cluster.description = cluster.description.changed(plan, directory)?;
            cluster.save()?;
            return Ok(cluster);
        }
        std::fs::create_dir_all(directory).map_err(|error| LocalError::file(directory, error))?;
        let mut entries = std::fs::read_dir(directory).map_err(|error| LocalError::file(directory, error))?;
        if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != LOCK)) {
            let message = format!("{} holds other files; give an empty directory", directory.display());
            return Err(LocalError::Directory(message));
        }
        let nodes = plan.nodes.unwrap_or(DEFAULT_NODES);
        let description = Description {
            format: FORMAT,
            nodes,
            replication: plan.replication.unwrap_or(DEFAULT_NODES.min(nodes)),
            zones: plan.zones,
            first_address: plan.address.unwrap_or(FIRST_ADDRESS),
            arguments: plan.arguments.clone(),
            certs: !plan.without_certs,
        };
        nth_address(description.first_address, nodes)?;
        let directory = std::path::absolute(directory).map_err(|error| LocalError::file(directory, error))?;
        let cluster = Self { directory, description, former_arguments: Vec::new() };
        // Checked before anything is written: a cluster that cannot start should not be created.
        for number in cluster.numbers() {
            check_ports(cluster.address(number)?)?;
        }
        cluster.save()?;
        Ok(cluster)
    }

    /// Keeps other commands from changing the cluster until the lock is dropped.
    pub fn lock(directory: &Path) -> Result<FileLock, LocalError> {
        std::fs::create_dir_all(directory).map_err(|error| LocalError::file(directory, error))?;
        let path = directory.join(LOCK);
        let open = File::options().create(true).append(true).open(&path);
        let file = open.map_err(|error| LocalError::file(&path, error))?;
        let lock = FileLock::acquire(file).map_err(|error| LocalError::file(&path, error))?;
        lock.ok_or_else(|| {
            LocalError::Directory(format!("another `diorite local` command is running in {}", directory.display()))
        })
    }

    fn save(&self) -> Result<(), LocalError> {
        write_json(&self.directory.join(DESCRIPTION), &self.description)
    }

    /// Remembers the arguments of `start` from before this command: a node has ended when it started with the new ones,
    /// and would do so later.
    pub fn restore_arguments(&mut self) -> Result<(), LocalError> {
        self.description.arguments.clone_from(&self.former_arguments);
        self.save()
    }

    /// The cluster's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its replication factor.
    pub fn replication(&self) -> u32 {
        self.description.replication
    }

    /// The numbers of its nodes, from 1.
    pub fn numbers(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.description.nodes
    }

    /// The address of node `number`.
    pub fn address(&self, number: u32) -> Result<IpAddr, LocalError> {
        self.check(number)?;
        nth_address(self.description.first_address, number)
    }

    /// The path of the log of node `number`.
    pub fn log(&self, number: u32) -> Result<PathBuf, LocalError> {
        self.check(number)?;
        Ok(self.node_directory(number).join("log.txt"))
    }

    fn check(&self, number: u32) -> Result<(), LocalError> {
        if self.numbers().contains(&number) {
            return Ok(());
        }
        let nodes = self.description.nodes;
        Err(LocalError::Arguments(format!("there is no node {number}; the cluster has nodes 1 to {nodes}")))
    }

    fn node_directory(&self, number: u32) -> PathBuf {
        self.directory.join(format!("node-{number}"))
    }

    /// The process of node `number`, if it runs.
    pub fn process(&self, number: u32) -> Result<Option<NodeProcess>, LocalError> {
        self.check(number)?;
        let path = self.node_directory(number).join(PROCESS);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LocalError::file(&path, error)),
        };
        // A file that was truncated by a crash of the machine names no process that still runs.
        let identity = serde_json::from_str::<ProcessIdentity>(&text).ok();
        Ok(identity.filter(|identity| identity.stat().is_some()).map(NodeProcess::known))
    }

    fn running(&self, number: u32) -> Result<NodeProcess, LocalError> {
        self.process(number)?.ok_or(LocalError::NotRunning(number))
    }

    /// Starts those of the given nodes that do not run; returns their numbers. A new cluster's first node is ready
    /// before others join it; where nodes have certificates, members are ready before new nodes join, as one of them makes a join token.
    pub async fn start(&self, numbers: &[u32], executable: &Path, wait: bool) -> Result<Vec<u32>, LocalError> {
        let mut missing = Vec::new();
        for &number in numbers {
            if self.process(number)?.is_none() {
                check_ports(self.address(number)?)?;
                missing.push(number);
            }
        }
        let is_new = |number: &u32| !self.node_directory(*number).join("data").exists();
        let founding = missing.contains(&1) && is_new(&1);
        let joins = |number: &u32| self.description.certs && *number > 1 && !self.is_member(*number);
        let (joining, others): (Vec<u32>, Vec<u32>) = missing.iter().copied().partition(joins);
        let mut started = Vec::new();
        for number in others {
            started.push(self.spawn(number, executable, None)?);
            if founding && number == 1 && missing.len() > 1 {
                wait_until_ready(&mut started).await?;
            }
        }
        if !joining.is_empty() {
            wait_until_ready(&mut started).await?;
            let token = self.join_token(joining.len()).await?;
            for number in joining {
                started.push(self.spawn(number, executable, Some(token.clone()))?);
            }
        }
        if wait {
            wait_until_ready(&mut started).await?;
        }
        Ok(missing)
    }

    /// Whether a node's directory says that it has joined the cluster.
    fn is_member(&self, number: u32) -> bool {
        self.node_directory(number).join("data").join(MEMBERS_MARK).exists()
    }

    /// A token with which so many nodes join, made by a node that runs.
    async fn join_token(&self, nodes: usize) -> Result<JoinToken, LocalError> {
        let wanted = serde_json::json!({ "nodes": nodes, "lifetime_ms": JOIN_TIME.as_millis() as u64 }).to_string();
        let mut refused = LocalError::NoMember;
        for number in self.numbers().filter(|number| self.is_member(*number)) {
            if self.process(number)?.is_none() {
                continue;
            }
            match http::post(self.address(number)?, JOIN_TOKENS, &wanted).await {
                Ok(answer) => {
                    let made: Made = serde_json::from_str(&answer).map_err(|_| LocalError::StrangeToken(number))?;
                    return Ok(JoinToken(made.token));
                }
                Err(error) => refused = LocalError::JoinToken(error.to_string()),
            }
        }
        Err(refused)
    }

    fn spawn(
        &self,
        number: u32,
        executable: &Path,
        join_token: Option<JoinToken>,
    ) -> Result<(NodeOptions, NodeProcess), LocalError> {
        let directory = self.node_directory(number);
        let mut arguments = membership(number, self.description.first_address, self.description.replication);
        arguments.extend(zone(number, self.description.zones));
        arguments.extend(share(self.description.nodes));
        arguments.extend(self.certs(number)?);
        arguments.extend_from_slice(&self.description.arguments);
        std::fs::create_dir_all(&directory).map_err(|error| LocalError::file(&directory, error))?;
        let options = NodeOptions {
            executable: executable.to_path_buf(),
            data_directory: directory.join("data"),
            address: self.address(number)?,
            arguments,
            join_token,
            log: directory.join("log.txt"),
            shares_session: false,
        };
        let process = options.spawn()?;
        write_json(&directory.join(PROCESS), process.identity())?;
        Ok((options, process))
    }

    /// The arguments of `start` for the certificates of a node, which are made if they are not there yet.
    fn certs(&self, number: u32) -> Result<Vec<String>, LocalError> {
        if !self.description.certs {
            return Ok(Vec::new());
        }
        let (path, address) = (self.directory.join(CERTS), self.address(number)?.to_string());
        let directory = Directory::new(&path);
        let lifetime = Lifetime { now_s: SystemClock::new().wall_us() / 1_000_000, days: CERTS_DAYS };
        // A command that was interrupted has left nothing that is trusted yet.
        if !path.join("ca.pem").exists() {
            directory.init(lifetime, true)?;
        }
        let node = path.join("nodes").join(&address);
        if !node.join("node.pem").exists() {
            directory.issue(&Subject::node(vec![address.parse()?])?, lifetime, false)?;
        }
        Ok(vec!["--certs".to_owned(), node.display().to_string()])
    }

    /// Waits until tablets have leaders again, which may take longer than the nodes take to become ready; returns
    /// whether they have. The number of tablets is not known here: it is at least that of any node.
    pub async fn wait_for_leaders(&self) -> Result<bool, LocalError> {
        const STEP: Duration = Duration::from_millis(50);
        for _ in 0..LEADERS_TIMEOUT.as_millis() / STEP.as_millis() {
            let nodes = self.status().await?;
            let led: Option<u64> = nodes.iter().map(|node| node.leaders).sum();
            let tablets = nodes.iter().filter_map(|node| node.tablets).max();
            if led.is_some() && led >= tablets {
                return Ok(true);
            }
            pause(STEP).await;
        }
        Ok(false)
    }

    /// Sends SIGTERM and waits for the end. Returns whether the node was running.
    pub async fn stop(&self, number: u32) -> Result<bool, LocalError> {
        match self.process(number)? {
            Some(mut process) => process.stop().await.map(|()| true),
            None => Ok(false),
        }
    }

    /// `kill -9`.
    pub async fn kill(&self, number: u32) -> Result<(), LocalError> {
        self.running(number)?.kill().await
    }

    /// SIGSTOP: the node does nothing, and its connections stay open.
    pub async fn pause(&self, number: u32) -> Result<(), LocalError> {
        self.running(number)?.pause().await
    }

    /// SIGCONT.
    pub fn resume(&self, number: u32) -> Result<(), LocalError> {
        self.running(number)?.identity().signal(Signal::CONT).map(|_| ())
    }

    /// The state of every node.
    pub async fn status(&self) -> Result<Vec<NodeStatus>, LocalError> {
        let mut asked = Vec::new();
        for number in self.numbers() {
            let identity = self.process(number)?.map(|process| process.identity().clone());
            asked.push(node_status(number, self.address(number)?, identity));
        }
        Ok(futures::future::join_all(asked).await)
    }

    /// Kills every node and removes the files of the cluster. Returns whether the directory is gone: it stays if it
    /// contains anything else.
    pub async fn destroy(self) -> Result<bool, LocalError> {
        for number in self.numbers() {
            if let Some(mut process) = self.process(number)? {
                process.kill().await?;
            }
        }
        for number in self.numbers() {
            let path = self.node_directory(number);
            remove(&path, std::fs::remove_dir_all(&path))?;
        }
        let certs = self.directory.join(CERTS);
        remove(&certs, std::fs::remove_dir_all(&certs))?;
        // The description is removed last: until then the command can be repeated.
        for name in [LOCK, DESCRIPTION] {
            let path = self.directory.join(name);
            remove(&path, std::fs::remove_file(&path))?;
        }
        match std::fs::remove_dir(&self.directory) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) => Err(LocalError::file(&self.directory, error)),
        }
    }
}

fn remove(path: &Path, removed: std::io::Result<()>) -> Result<(), LocalError> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(LocalError::file(path, error)),
        _ => Ok(()),
    }
}

/// Writes a whole file, or none.
fn write_json(path: &Path, value: &impl Serialize) -> Result<(), LocalError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| LocalError::file(path, error.into()))?;
    let next = path.with_extension("next");
    std::fs::write(&next, text + "\n").map_err(|error| LocalError::file(&next, error))?;
    std::fs::rename(&next, path).map_err(|error| LocalError::file(path, error))
}

impl Plan {
    pub(crate) fn check(&self) -> Result<(), LocalError> {
        let refuse = |message: String| Err(LocalError::Arguments(message));
        if self.nodes.is_some_and(|nodes| nodes == 0 || nodes > MAX_NODES) {
            return refuse(format!("--nodes is from 1 to {MAX_NODES}"));
        }
        if self.replication == Some(0) {
            return refuse("--rf is at least 1".to_owned());
        }
        let name = |argument: &String| argument.split('=').next().unwrap_or_default().to_owned();
        match self.arguments.iter().map(name).find(|name| RESERVED.contains(&name.as_str())) {
            Some(name) => refuse(format!("{name} cannot be given after --: `diorite local` decides it")),
            None => Ok(()),
        }
    }
}

impl Description {
    /// The description with the changes of `plan`; refuses changes of what cannot change.
    fn changed(&self, plan: &Plan, directory: &Path) -> Result<Self, LocalError> {
        let refuse = |what: String| {
            let directory = directory.display();
            Err(LocalError::Arguments(format!(
                "the cluster in {directory} has {what}; destroy it or choose another --dir"
            )))
        };
        if plan.nodes.is_some_and(|nodes| nodes < self.nodes) {
            return refuse(format!("{} nodes and cannot become smaller", self.nodes));
        }
        if plan.replication.is_some_and(|replication| replication != self.replication) {
            return refuse(format!("replication factor {}, which was decided when it was created", self.replication));
        }
        if plan.address.is_some_and(|address| address != self.first_address) {
            return refuse(format!("its first node on {}", self.first_address));
        }
        if plan.without_certs && self.certs {
            return refuse("certificates, which was decided when it was created".to_owned());
        }
        if plan.zones.is_some() && plan.zones != self.zones {
            return refuse(match self.zones {
                Some(zones) => format!("{zones} zones, which was decided when it was created"),
                None => "no zones, which was decided when it was created".to_owned(),
            });
        }
        let nodes = plan.nodes.unwrap_or(self.nodes);
        nth_address(self.first_address, nodes)?;
        let arguments = if plan.arguments.is_empty() { &self.arguments } else { &plan.arguments };
        Ok(Self { nodes, arguments: arguments.clone(), ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// Nodes on addresses of one test, whose ports are free.
    fn plan(test: u8, nodes: u32) -> Plan {
        Plan { nodes: Some(nodes), address: Some(Ipv4Addr::new(127, 78, test, 1)), ..Plan::default() }
    }

    #[test]
    fn a_cluster_grows_and_does_not_shrink() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("cluster");
        assert_eq!(Cluster::prepare(&directory, &plan(0, 3)).unwrap().replication(), 3);
        assert_eq!(Cluster::prepare(&directory, &plan(0, 4)).unwrap().numbers(), 1..=4);
        assert_eq!(Cluster::prepare(&directory, &Plan::default()).unwrap().numbers(), 1..=4);
        let smaller = Cluster::prepare(&directory, &plan(0, 2)).unwrap_err().to_string();
        assert!(smaller.contains("has 4 nodes and cannot become smaller"), "{smaller}");
        let other = Cluster::prepare(&directory, &Plan { replication: Some(5), ..Plan::default() }).unwrap_err();
        assert!(other.to_string().contains("replication factor 3"), "{other}");
        let cluster = Cluster::open(&directory).unwrap();
        assert_eq!(cluster.address(4).unwrap().to_string(), "127.78.0.4");
        assert_eq!(cluster.address(5).unwrap_err().to_string(), "there is no node 5; the cluster has nodes 1 to 4");
    }

    #[test]
    fn flags_with_which_nodes_do_not_start_are_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("cluster");
        let with = |flag: &str| Plan { arguments: vec![flag.to_owned()], ..plan(2, 1) };
        let remembered = || Cluster::open(&directory).unwrap().description.arguments;
        Cluster::prepare(&directory, &with("--bad")).unwrap().restore_arguments().unwrap();
        assert_eq!(remembered(), Vec::<String>::new());
        Cluster::prepare(&directory, &with("--good")).unwrap();
        Cluster::prepare(&directory, &with("--bad")).unwrap().restore_arguments().unwrap();
        assert_eq!(remembered(), ["--good"]);
    }

    #[test]
    fn flags_that_belong_to_the_cluster_are_refused() {
        for flag in ["--listen", "--cql-port=9", "--rf"] {
            let plan = Plan { arguments: vec![flag.to_owned()], ..Plan::default() };
            assert!(plan.check().is_err(), "{flag}");
        }
        assert!(Plan { nodes: Some(0), ..Plan::default() }.check().is_err());
    }

    #[tokio::test]
    async fn a_directory_with_other_files_is_neither_taken_nor_removed() {
        let home = tempfile::tempdir().unwrap();
        let foreign = home.path().join("letter.txt");
        std::fs::write(&foreign, "dear").unwrap();
        let refused = Cluster::prepare(home.path(), &plan(1, 1)).unwrap_err().to_string();
        assert!(refused.contains("holds other files"), "{refused}");
        let missing = Cluster::open(home.path()).unwrap_err().to_string();
        assert!(missing.contains("no local cluster"), "{missing}");
        std::fs::remove_file(&foreign).unwrap();
        let cluster = Cluster::prepare(home.path(), &plan(1, 1)).unwrap();
        std::fs::write(&foreign, "dear").unwrap();
        assert!(!cluster.destroy().await.unwrap(), "the directory stays");
        assert!(foreign.exists() && !home.path().join(DESCRIPTION).exists());
    }

    #[test]
    fn one_command_at_a_time_changes_a_cluster() {
        let home = tempfile::tempdir().unwrap();
        let held = Cluster::lock(home.path()).unwrap();
        assert!(Cluster::lock(home.path()).unwrap_err().to_string().contains("is running in"));
        drop(held);
        Cluster::lock(home.path()).unwrap();
    }
}
