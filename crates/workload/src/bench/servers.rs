//! The servers that a benchmark starts, measures, perhaps adds to or kills, and stops: one node, or a cluster on neighbouring addresses.
//!
//! Always true: no server outlives its handle; servers are ready when they serve requests, not when they have started; what
//! they say is in log files beside the report. A node on its own keeps its data in the directory given, the nodes of a
//! cluster in `node-1`, `node-2`, … below it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use diorite_local::{
    CQL_PORT, LocalError, NodeOptions, NodeProcess, free_address, membership, nth_address, share, wait_until_ready,
    zone,
};
use rustix::process::Signal;

use crate::WorkloadError;

/// How to start the servers.
#[derive(Debug, Clone)]
pub struct ServersOptions {
    /// The binary; it is run as `<executable> start --data-dir … --listen …`.
    pub executable: PathBuf,
    pub data_directory: PathBuf,
    /// The address of the first one, or `None` for the first free one from 127.0.0.1.
    pub listen: Option<Ipv4Addr>,
    pub nodes: u32,
    /// Addresses after theirs that must be free too, for nodes that are added later.
    pub spare: u32,
    /// Zones that the nodes are in by turns.
    pub zones: Option<u32>,
    /// Replication factor of the cluster.
    pub replication: u32,
    pub extra_arguments: Vec<String>,
    /// Where the logs go.
    pub log_directory: PathBuf,
    /// They stay in the session of this process: see [`NodeOptions::shares_session`].
    pub share_session: bool,
}

/// Running servers.
pub struct Servers {
    nodes: Vec<(NodeOptions, NodeProcess)>,
    options: ServersOptions,
    first: Ipv4Addr,
    /// How many have been started, ended ones included.
    started: u32,
}

/// A server that was lost for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub address: IpAddr,
    pub data_directory: PathBuf,
}

impl Servers {
    /// Starts the servers and waits until all serve requests. The first one founds the cluster before the others join it.
    pub async fn start(options: &ServersOptions) -> Result<Self, WorkloadError> {
        let first = match options.listen {
            Some(address) => address,
            None => free_address(options.nodes + options.spare)?,
        };
        let mut servers = Self { nodes: Vec::new(), options: options.clone(), first, started: 0 };
        for number in 1..=options.nodes {
            servers.spawn_next()?;
            if number == 1 {
                wait_until_ready(&mut servers.nodes).await?;
            }
        }
        wait_until_ready(&mut servers.nodes).await?;
        Ok(servers)
    }

    /// Starts one more, which joins the others; its index. It does not serve yet: see [`Servers::ready`].
    pub fn spawn_next(&mut self) -> Result<usize, WorkloadError> {
        let node = node_options(&self.options, self.started + 1, self.first)?;
        let process = node.spawn()?;
        self.started += 1;
        self.nodes.push((node, process));
        Ok(self.nodes.len() - 1)
    }

    /// Waits until a server serves requests.
    pub async fn ready(&mut self, index: usize) -> Result<(), WorkloadError> {
        Ok(wait_until_ready(&mut self.nodes[index..=index]).await?)
    }

    /// `kill -9`, and the server is none of these any more.
    pub async fn lose(&mut self, index: usize) -> Result<Lost, WorkloadError> {
        self.kill(index).await?;
        let (options, _) = self.nodes.remove(index);
        Ok(Lost { address: options.address, data_directory: options.data_directory })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Their addresses.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.nodes.iter().map(|(options, _)| options.address).collect()
    }

    /// Where CQL is served, host:port.
    pub fn contact_points(&self) -> Vec<String> {
        self.nodes.iter().map(|(options, _)| format!("{}:{CQL_PORT}", options.address)).collect()
    }

    /// Their processes.
    pub fn process_ids(&self) -> Vec<u32> {
        self.nodes.iter().map(|(_, process)| process.pid()).collect()
    }

    /// Where their data is.
    pub fn data_directories(&self) -> Vec<PathBuf> {
        self.nodes.iter().map(|(options, _)| options.data_directory.clone()).collect()
    }

    /// `kill -9`.
    pub async fn kill(&mut self, index: usize) -> Result<(), WorkloadError> {
        Ok(self.nodes[index].1.kill().await?)
    }

    /// Starts a killed server again and waits until it serves.
    pub async fn restart(&mut self, index: usize) -> Result<(), WorkloadError> {
        self.nodes[index].1 = self.nodes[index].0.spawn()?;
        self.ready(index).await
    }

    /// Stops the servers with SIGTERM and waits for their end; removes their data unless it is to be kept.
    pub async fn stop(mut self, keep_data: bool) -> Result<(), WorkloadError> {
        let mut ended = Vec::new();
        for (_, process) in &mut self.nodes {
            let stopped = process.stop().await;
            ended.push(stopped.map(|()| process.exit_status()));
        }
        if !keep_data {
            let data_directory = &self.options.data_directory;
            let removed = std::fs::remove_dir_all(data_directory);
            removed.map_err(|error| WorkloadError::file(data_directory, error))?;
        }
        for status in ended {
            match status? {
                Some(status) if !status.success() => {
                    return Err(WorkloadError::Server(format!("the server ended with {status} after SIGTERM")));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (_, process) in &mut self.nodes {
            // The handle is being dropped, so the error has no receiver.
            let _ = process.identity().signal(Signal::KILL);
        }
    }
}

fn node_options(options: &ServersOptions, number: u32, first: Ipv4Addr) -> Result<NodeOptions, LocalError> {
    let alone = options.nodes == 1;
    let name = format!("node-{number}");
    let below = |directory: &Path, name: &str| directory.join(name);
    let mut arguments = membership(number, first, options.replication);
    arguments.extend(zone(number, options.zones));
    arguments.extend(share(options.nodes));
    if !first.is_loopback() {
        // Its nodes last as long as the benchmark, and measure without TLS wherever they are.
        arguments.push("--insecure".to_owned());
    }
    arguments.extend_from_slice(&options.extra_arguments);
    Ok(NodeOptions {
        executable: options.executable.clone(),
        data_directory: if alone { options.data_directory.clone() } else { below(&options.data_directory, &name) },
        address: nth_address(first, number)?,
        arguments,
        join_token: None,
        log: below(&options.log_directory, &if alone { "server.log".to_owned() } else { format!("{name}.log") }),
        shares_session: options.share_session,
    })
}
