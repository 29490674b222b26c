//! The state of a node on this machine, from its process and from its own answers.
//!
//! Always true: a node that does not answer is described by its process alone; values that it did not report are
//! absent.

use std::net::IpAddr;

use serde::Serialize;

use crate::http::{get, is_ready, metric};
use crate::process::ProcessIdentity;

/// Metrics of a node.
const TABLETS: &str = "diorite_disk_tablets";
const LEADERS: &str = "diorite_tablets_led";

/// The state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It serves requests.
    Ready,
    /// Its process runs, and it does not (yet) serve requests.
    NotReady,
    /// It is stopped by SIGSTOP.
    Paused,
    /// There is no process.
    Stopped,
}

impl NodeState {
    /// The name of the state for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not ready",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// One line of `diorite local status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeStatus {
    pub node: u32,
    pub address: IpAddr,
    pub pid: Option<u32>,
    pub state: NodeState,
    pub uptime_s: Option<f64>,
    pub resident_bytes: Option<u64>,
    /// Tablet replicas on the node.
    pub tablets: Option<u64>,
    /// How many of these replicas lead.
    pub leaders: Option<u64>,
}

/// Reads the state of a node from the system and from the node itself.
pub async fn node_status(number: u32, address: IpAddr, process: Option<ProcessIdentity>) -> NodeStatus {
    let stat = process.as_ref().and_then(ProcessIdentity::stat);
    let mut status = NodeStatus {
        node: number,
        address,
        pid: process.as_ref().map(|process| process.pid),
        state: NodeState::Stopped,
        uptime_s: process.as_ref().and_then(ProcessIdentity::uptime_s),
        resident_bytes: stat.map(|stat| stat.resident_bytes),
        tablets: None,
        leaders: None,
    };
    status.state = match stat {
        None => return status,
        Some(stat) if stat.state == 'T' => NodeState::Paused,
        Some(_) if is_ready(address).await => NodeState::Ready,
        Some(_) => NodeState::NotReady,
    };
    if status.state == NodeState::Ready
        && let Some(metrics) = get(address, "/metrics").await
    {
        let number = |name| metric(&metrics, name).map(|value| value as u64);
        (status.tablets, status.leaders) = (number(TABLETS), number(LEADERS));
    }
    status
}
