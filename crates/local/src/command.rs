//! `diorite local`: the command line, and what it prints.
//!
//! Always true: with `--json` only JSON is written to standard output; a command that changes something prints what it
//! did, or why it did not; `destroy` asks the user, and refuses if it cannot ask.

use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diorite_base::text::{duration, or_dash, table};
use diorite_base::{Clock, FileLock, SystemClock};

use crate::cluster::{Cluster, Plan};
use crate::node::check_flags;
use crate::status::NodeStatus;
use crate::{LocalError, pause};

/// `diorite local`.
#[derive(Debug, Clone, clap::Args)]
pub struct LocalArguments {
    #[command(subcommand)]
    pub command: LocalCommand,
    /// Directory of the cluster [default: diorite/local in $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// The subcommand.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum LocalCommand {
    /// Start a cluster, or those of its nodes that do not run, and wait until all are ready.
    Up(UpArguments),
    /// Show the state of every node.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Start nodes that were stopped or killed.
    Start {
        /// Numbers of nodes, from 1.
        #[arg(required = true, value_name = "N")]
        nodes: Vec<u32>,
        /// Do not wait until they are ready.
        #[arg(long)]
        no_wait: bool,
    },
    /// Stop nodes in order (SIGTERM) and wait for their end; all if none is named.
    Stop {
        /// Numbers of nodes, from 1.
        #[arg(value_name = "N")]
        nodes: Vec<u32>,
    },
    /// Kill nodes at once (kill -9).
    Kill(Numbers),
    /// Pause nodes (SIGSTOP): they do nothing, and their connections stay open.
    Pause(Numbers),
    /// Resume paused nodes (SIGCONT).
    Resume(Numbers),
    /// Print the log of a node.
    Logs {
        /// Number of the node, from 1.
        #[arg(value_name = "N")]
        node: u32,
        /// Continue with new lines, until Ctrl-C.
        #[arg(long, short)]
        follow: bool,
        /// Print only the last lines, this many.
        #[arg(long, short = 'n', value_name = "COUNT")]
        lines: Option<usize>,
    },
    /// Kill all nodes and delete their data and logs.
    Destroy {
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

/// Some nodes.
#[derive(Debug, Clone, clap::Args)]
pub struct Numbers {
    /// Numbers of nodes, from 1.
    #[arg(required = true, value_name = "N")]
    pub nodes: Vec<u32>,
}

/// `diorite local up`.
#[derive(Debug, Clone, clap::Args)]
pub struct UpArguments {
    /// Nodes of the cluster; more than it has adds some [default: 3, or as many as it has].
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Replication factor, decided when the cluster is created [default: 3, or fewer if there are fewer nodes].
    #[arg(long, value_name = "N")]
    pub rf: Option<u32>,
    /// Spread the nodes over this many zones, in turn; decided when the cluster is created [default: one zone].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub zones: Option<u32>,
    /// Address of the first node; the others get the ones after it [default: 127.0.0.1].
    #[arg(long, value_name = "IPV4")]
    pub address: Option<Ipv4Addr>,
    /// Leave traffic between the nodes open; decided when the cluster is created [default: nodes have certificates and speak TLS].
    #[arg(long)]
    pub no_certs: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Further flags of `diorite start` for every node, remembered for later starts.
    #[arg(last = true, value_name = "START FLAGS")]
    pub start_flags: Vec<String>,
}

/// Runs the command. Nodes are started as `executable start`.
pub fn run(arguments: LocalArguments, executable: &Path) -> Result<(), LocalError> {
    // The runtime is built here and not by the caller: a future is compiled in the crate that runs it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(LocalError::Threads)?.block_on(carry_out(arguments, executable))
}

async fn carry_out(arguments: LocalArguments, executable: &Path) -> Result<(), LocalError> {
    let directory = match arguments.dir {
        Some(directory) => directory,
        None => default_directory(|name| std::env::var_os(name).map(PathBuf::from))?,
    };
    match arguments.command {
        LocalCommand::Up(up_arguments) => up(&directory, up_arguments, executable).await,
        LocalCommand::Status { json } => {
            let cluster = Cluster::open(&directory)?;
            let nodes = cluster.status().await?;
            print(&if json { status_json(&cluster, &nodes) } else { status_table(&nodes) })
        }
        LocalCommand::Start { nodes, no_wait } => {
            let (cluster, _lock) = locked(&directory)?;
            let started = cluster.start(&nodes, executable, !no_wait).await?;
            let done = |number: &u32| if started.contains(number) { "is started" } else { "was running already" };
            each(&nodes, |number| Ok(done(&number)))
        }
        LocalCommand::Stop { nodes } => {
            let (cluster, _lock) = locked(&directory)?;
            for number in if nodes.is_empty() { cluster.numbers().collect() } else { nodes } {
                let done = if cluster.stop(number).await? { "is stopped" } else { "was not running" };
                print(&format!("node {number} {done}\n"))?;
            }
            Ok(())
        }
        LocalCommand::Kill(numbers) => {
            let cluster = Cluster::open(&directory)?;
            for number in numbers.nodes {
                cluster.kill(number).await?;
                print(&format!("node {number} is killed\n"))?;
            }
            Ok(())
        }
        LocalCommand::Pause(numbers) => {
            let cluster = Cluster::open(&directory)?;
            for number in numbers.nodes {
                cluster.pause(number).await?;
                print(&format!("node {number} is paused\n"))?;
            }
            Ok(())
        }
        LocalCommand::Resume(numbers) => {
            let cluster = Cluster::open(&directory)?;
            each(&numbers.nodes, |number| cluster.resume(number).map(|()| "goes on"))
        }
        LocalCommand::Logs { node, follow, lines } => logs(&Cluster::open(&directory)?.log(node)?, lines, follow).await,
        LocalCommand::Destroy { yes } => destroy(&directory, yes).await,
    }
}

/// Opens a cluster to change it. Checks first that there is one, so that no lock file is left in another directory.
fn locked(directory: &Path) -> Result<(Cluster, FileLock), LocalError> {
    Cluster::open(directory)?;
    let lock = Cluster::lock(directory)?;
    Ok((Cluster::open(directory)?, lock))
}

fn each(numbers: &[u32], act: impl Fn(u32) -> Result<&'static str, LocalError>) -> Result<(), LocalError> {
    numbers.iter().try_for_each(|&number| print(&format!("node {number} {}\n", act(number)?)))
}

/// The default directory of the user. `variable` reads the environment.
fn default_directory(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, LocalError> {
    let data = variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let data =
        data.or_else(|| variable("HOME").filter(|home| home.is_absolute()).map(|home| home.join(".local/share")));
    let data =
        data.ok_or_else(|| LocalError::Arguments("neither XDG_DATA_HOME nor HOME is set; give --dir".to_owned()));
    data.map(|data| data.join("diorite").join("local"))
}

async fn up(directory: &Path, arguments: UpArguments, executable: &Path) -> Result<(), LocalError> {
    let clock = SystemClock::new();
    let lock = Cluster::lock(directory)?;
    let plan = Plan {
        nodes: arguments.nodes,
        replication: arguments.rf,
        zones: arguments.zones,
        address: arguments.address,
        arguments: arguments.start_flags,
        without_certs: arguments.no_certs,
    };
    let checked = plan.check().and_then(|()| check_flags(executable, &plan.arguments));
    let prepared = checked.and_then(|()| Cluster::prepare(directory, &plan));
    if prepared.is_err() {
        // Leaves nothing in a directory that is no cluster's; fails, as it should, if that contains anything else.
        leave_no_trace(directory);
    }
    let mut cluster = prepared?;
    let numbers: Vec<u32> = cluster.numbers().collect();
    if let Err(error) = cluster.start(&numbers, executable, true).await {
        // Other errors, such as a taken port, say nothing of the flags.
        if matches!(error, LocalError::Ended { .. })
            && let Err(kept) = cluster.restore_arguments()
        {
            eprintln!("the flags of this start are remembered: {kept}");
        }
        return Err(error);
    }
    drop(lock);
    if !cluster.wait_for_leaders().await? {
        eprintln!("not every tablet has a leader yet; `diorite local status` shows how many each node leads");
    }
    let nodes = cluster.status().await?;
    if arguments.json {
        return print(&status_json(&cluster, &nodes));
    }
    let seconds = clock.monotonic_ns() as f64 / 1e9;
    print(&format!("{}\n{}", status_table(&nodes), connect_hint(&cluster, &nodes, seconds)))
}

fn leave_no_trace(directory: &Path) {
    if Cluster::open(directory).is_err() {
        let _ = std::fs::remove_file(directory.join("lock"));
        let _ = std::fs::remove_dir(directory);
    }
}

/// How to connect to the cluster, and the next commands.
fn connect_hint(cluster: &Cluster, nodes: &[NodeStatus], seconds: f64) -> String {
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.to_string()).collect();
    let first = addresses.first().map_or("", String::as_str);
    format!(
        "ready after {seconds:.1} s, replication factor {}; data and logs are in {}\n\n  \
         cqlsh {first}\n  \
         diorite workload --nodes {} --num-writes 20000 --num-reads 20000\n  \
         diorite local status\n",
        cluster.replication(),
        cluster.directory().display(),
        addresses.join(","),
    )
}

fn status_json(cluster: &Cluster, nodes: &[NodeStatus]) -> String {
    let value = serde_json::json!({
        "directory": cluster.directory(),
        "replication": cluster.replication(),
        "nodes": nodes,
    });
    format!("{value:#}\n")
}

/// A table with one line for each node.
fn status_table(nodes: &[NodeStatus]) -> String {
    let names = ["node", "address", "pid", "state", "uptime", "memory", "tablets", "leaders"];
    let rows = nodes.iter().map(|node| {
        [
            node.node.to_string(),
            node.address.to_string(),
            or_dash(node.pid, |pid| pid.to_string()),
            node.state.name().to_owned(),
            or_dash(node.uptime_s, |seconds| duration(seconds as u64)),
            or_dash(node.resident_bytes, |bytes| format!("{} MiB", bytes >> 20)),
            or_dash(node.tablets, |tablets| tablets.to_string()),
            or_dash(node.leaders, |leaders| leaders.to_string()),
        ]
    });
    table(names, rows)
}

async fn logs(path: &Path, lines: Option<usize>, follow: bool) -> Result<(), LocalError> {
    let fail = |error| LocalError::file(path, error);
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let start = lines.map_or(Ok(0), |lines| start_of_last_lines(&mut file, lines)).map_err(fail)?;
    file.seek(SeekFrom::Start(start)).map_err(fail)?;
    loop {
        let copied = std::io::copy(&mut file, &mut std::io::stdout().lock());
        match copied.and_then(|_| std::io::stdout().flush()) {
            // The reader has closed its end, for example `head`.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(fail(error)),
            Ok(()) if !follow => return Ok(()),
            Ok(()) => pause(Duration::from_millis(100)).await,
        }
    }
}

/// The position at which the last `lines` lines of the file begin.
fn start_of_last_lines(file: &mut std::fs::File, lines: usize) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 << 10;
    let end = file.seek(SeekFrom::End(0))?;
    let (mut position, mut found, mut block) = (end, 0, Vec::new());
    while position > 0 {
        let start = position.saturating_sub(BLOCK);
        block.clear();
        file.seek(SeekFrom::Start(start))?;
        file.take(position - start).read_to_end(&mut block)?;
        for (offset, _) in block.iter().enumerate().rev().filter(|&(_, &byte)| byte == b'\n') {
            let next = start + offset as u64 + 1;
            // The newline at the end of the file begins no line.
            if next < end {
                found += 1;
                if found == lines {
                    return Ok(next);
                }
            } else if lines == 0 {
                return Ok(end);
            }
        }
        position = start;
    }
    Ok(0)
}

async fn destroy(directory: &Path, yes: bool) -> Result<(), LocalError> {
    let (cluster, _lock) = locked(directory)?;
    if !yes && !confirmed(&cluster)? {
        return print("nothing is done\n");
    }
    let text = if cluster.destroy().await? {
        "the cluster is destroyed"
    } else {
        "the cluster is destroyed; its directory stays, as it holds other files"
    };
    print(&format!("{text}\n"))
}

fn confirmed(cluster: &Cluster) -> Result<bool, LocalError> {
    if !std::io::stdin().is_terminal() {
        return Err(LocalError::Arguments(
            "standard input is not a terminal: give --yes to destroy the cluster".to_owned(),
        ));
    }
    let nodes = cluster.numbers().count();
    print(&format!("Kill {nodes} nodes and delete {}? [y/N] ", cluster.directory().display()))?;
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|error| LocalError::file(Path::new("standard input"), error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn print(text: &str) -> Result<(), LocalError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(LocalError::file(Path::new("standard output"), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::status::NodeState;

    #[test]
    fn the_default_directory_is_the_users_own() {
        let both = |name: &str| Some(PathBuf::from(if name == "HOME" { "/ada" } else { "/data" }));
        assert_eq!(default_directory(both).unwrap(), Path::new("/data/diorite/local"));
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/ada"));
        assert_eq!(default_directory(home).unwrap(), Path::new("/ada/.local/share/diorite/local"));
        assert!(default_directory(|_| None).is_err());
    }

    #[test]
    fn a_person_sees_one_line_per_node() {
        let node = |node: u32, state, pid| NodeStatus {
            node,
            address: format!("127.0.0.{node}").parse().unwrap(),
            pid,
            state,
            uptime_s: pid.map(|_| 185.3),
            resident_bytes: pid.map(|_| 64 << 20),
            tablets: None,
            leaders: None,
        };
        let table = status_table(&[node(1, NodeState::Ready, Some(4_242)), node(2, NodeState::Stopped, None)]);
        let expected = "node  address    pid   state    uptime     memory  tablets  leaders\n\
                        1     127.0.0.1  4242  ready    3 min 5 s  64 MiB  –        –\n\
                        2     127.0.0.2  –     stopped  –          –       –        –\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.txt");
        let long = "x".repeat(70_000);
        std::fs::write(&path, format!("one\n{long}\nthree\n")).unwrap();
        let mut file = std::fs::File::open(&path).unwrap();
        assert_eq!(start_of_last_lines(&mut file, 1).unwrap(), 4 + 70_001);
        assert_eq!(start_of_last_lines(&mut file, 2).unwrap(), 4);
        assert_eq!(start_of_last_lines(&mut file, 9).unwrap(), 0);
        assert_eq!(start_of_last_lines(&mut file, 0).unwrap(), 4 + 70_001 + 6);
    }
}
