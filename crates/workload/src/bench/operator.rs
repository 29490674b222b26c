//! The part of the operators' HTTP interface that a benchmark needs.
//!
//! Always true: any node may be asked, and the first answer is used; without an answer the result is `None`, since
//! nothing is known while the catalog has no leader; unknown fields are ignored, so that newer servers can be measured
//! too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use diorite_local::http;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::WorkloadError;
use crate::timer::pause;

/// How often a setting is tried, a second apart.
const SETTING_TRIES: u32 = 20;
/// The metric of what copies have brought to a node.
const COPIES_RECEIVED: &str = "diorite_replica_copied_bytes_total{direction=\"received\"}";
/// Where compactions are asked for.
const COMPACTION: &str = "/api/v1/compaction";
/// Tablets on a page.
const PAGE: usize = 10_000;

/// A node, as its cluster describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NodeFacts {
    pub node: u64,
    pub http_address: String,
    pub is_up: bool,
    /// The version of its program; `None` as long as it has not reported.
    pub program: Option<String>,
    /// Replicas that it holds, or is to.
    pub replicas: u64,
    pub leaders: u64,
    pub tablet_bytes: u64,
}

impl NodeFacts {
    /// Where it listens.
    pub fn address(&self) -> Option<IpAddr> {
        self.http_address.parse::<SocketAddr>().ok().map(|address| address.ip())
    }

    /// Whether the node has reported its stored bytes and led tablets.
    pub fn has_reported(&self) -> bool {
        self.program.is_some()
    }
}

/// The state of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ClusterFacts {
    pub under_replicated: u64,
    pub leaderless: u64,
    pub balancer: BalancerFacts,
}

/// The state of the balancer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BalancerFacts {
    pub state: String,
    pub moves: u64,
    pub bytes_left: u64,
    /// Bytes per second and node.
    pub copy_rate_bytes: u64,
}

/// A tablet and its replicas.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TabletFacts {
    pub tablet: u64,
    pub bytes: u64,
    pub replicas: Vec<ReplicaFacts>,
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ReplicaFacts {
    pub node: u64,
    pub role: String,
    pub bytes: Option<u64>,
}

impl ReplicaFacts {
    /// Whether it votes: it is neither arriving nor leaving.
    pub fn is_voter(&self) -> bool {
        self.role == "voter"
    }
}

/// The state of compactions on a node.
#[derive(Deserialize)]
struct CompactionFacts {
    is_running: bool,
}

#[derive(Deserialize)]
struct TabletPage {
    tablets: Vec<TabletFacts>,
    next_after: Option<u64>,
}

/// Nodes and cluster at about the same moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sight {
    pub nodes: Vec<NodeFacts>,
    pub cluster: ClusterFacts,
}

impl Sight {
    /// The node that listens on `address`.
    pub fn node_on(&self, address: IpAddr) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.address() == Some(address))
    }

    /// Whether nothing moves, is to move or is missing.
    pub fn is_quiet(&self) -> bool {
        let cluster = &self.cluster;
        let is_known = self.nodes.iter().filter(|node| node.is_up).all(NodeFacts::has_reported);
        let is_whole = cluster.under_replicated == 0 && cluster.leaderless == 0;
        is_known && is_whole && cluster.balancer.moves == 0 && cluster.balancer.state == "idle"
    }

    /// How far the bytes of a live node are from their mean, in % of it; of the node that is farthest.
    pub fn byte_spread_percent(&self) -> Option<f64> {
        self.spread_percent(|node| node.tablet_bytes)
    }

    /// The same of the tablets that they lead.
    pub fn leader_spread_percent(&self) -> Option<f64> {
        self.spread_percent(|node| node.leaders)
    }

    fn spread_percent(&self, of: impl Fn(&NodeFacts) -> u64) -> Option<f64> {
        let values: Vec<f64> = self.nodes.iter().filter(|node| node.is_up).map(|node| of(node) as f64).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let farthest = values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
        (mean > 0.0).then_some(farthest / mean * 100.0)
    }
}

/// The voters: tablet and node.
pub fn voters(tablets: &[TabletFacts]) -> BTreeSet<(u64, u64)> {
    let each = tablets.iter().flat_map(|tablet| tablet.replicas.iter().map(move |replica| (tablet.tablet, replica)));
    each.filter(|(_, replica)| replica.is_voter()).map(|(tablet, replica)| (tablet, replica.node)).collect()
}

/// Bytes of the voters that are new since `before`, by node. Copies that led to no voter are not counted.
pub fn arrived(before: &BTreeSet<(u64, u64)>, after: &[TabletFacts]) -> BTreeMap<u64, u64> {
    let mut arrived = BTreeMap::new();
    for tablet in after {
        let voters = tablet.replicas.iter().filter(|replica| replica.is_voter());
        for replica in voters.filter(|replica| !before.contains(&(tablet.tablet, replica.node))) {
            *arrived.entry(replica.node).or_default() += replica.bytes.unwrap_or(tablet.bytes);
        }
    }
    arrived
}

/// A client of the operators' interface of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Operator {
    addresses: Vec<IpAddr>,
}

impl Operator {
    /// Talks to the nodes on these addresses.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self { addresses }
    }

    /// Talks to the hosts of contact points, host:port, as far as their names mean something here.
    pub async fn of_contact_points(contact_points: &[String]) -> Self {
        let mut addresses = Vec::new();
        for contact_point in contact_points {
            let found = tokio::net::lookup_host(contact_point.as_str()).await;
            addresses.extend(found.ok().and_then(|mut found| found.next()).map(|address| address.ip()));
        }
        Self { addresses }
    }

    /// Where it asks.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Has everything compacted; it goes on after this.
    pub async fn compact(&self) -> Result<(), WorkloadError> {
        let address =
            self.addresses.first().ok_or_else(|| WorkloadError::Server("there is no node to ask".to_owned()))?;
        let ordered = http::post(*address, COMPACTION, "null").await;
        ordered.map(drop).map_err(|error| WorkloadError::Server(format!("nothing is compacted: {error}")))
    }

    /// Whether everything is being compacted somewhere.
    pub async fn is_compacting(&self) -> Result<bool, WorkloadError> {
        let nodes: Option<Vec<CompactionFacts>> = self.ask(COMPACTION).await;
        let nodes = nodes.ok_or_else(|| WorkloadError::Server("nobody says how compactions get on".to_owned()))?;
        Ok(nodes.iter().any(|node| node.is_running))
    }

    /// Whether the nodes read files past the page cache; `None` if they do not say.
    pub async fn reads_directly(&self) -> Option<bool> {
        let configuration: serde_json::Value = self.ask("/api/v1/config").await?;
        configuration.get("direct_reads")?.as_bool()
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        for &address in &self.addresses {
            let answer = http::get(address, path).await;
            if let Some(value) = answer.and_then(|text| serde_json::from_str(&text).ok()) {
                return Some(value);
            }
        }
        None
    }

    /// The nodes.
    pub async fn nodes(&self) -> Option<Vec<NodeFacts>> {
        self.ask("/api/v1/nodes").await
    }

    /// Nodes and cluster.
    pub async fn sight(&self) -> Option<Sight> {
        Some(Sight { nodes: self.nodes().await?, cluster: self.ask("/api/v1/status").await? })
    }

    /// All tablets, or those with a replica on one node.
    pub async fn tablets(&self, on: Option<u64>) -> Option<Vec<TabletFacts>> {
        let filter = on.map_or_else(String::new, |node| format!("&node={node}"));
        let (mut tablets, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/api/v1/tablets?limit={PAGE}{filter}{after}");
            let page: TabletPage = self.ask(&path).await?;
            tablets.extend(page.tablets);
            let Some(last) = page.next_after else { return Some(tablets) };
            after = format!("&after={last}");
        }
    }

    /// Bytes of copies that have come to the node on `address` since its start.
    pub async fn copied_to(&self, address: IpAddr) -> Option<f64> {
        let metrics = http::get(address, "/metrics").await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(COPIES_RECEIVED))?;
        line.trim().parse().ok()
    }

    /// Changes settings of the whole cluster.
    pub async fn set(&self, settings: &serde_json::Value) -> Result<(), WorkloadError> {
        let mut last = "there is no node to ask".to_owned();
        for _ in 0..SETTING_TRIES {
            for &address in &self.addresses {
                match http::post(address, "/api/v1/settings", &settings.to_string()).await {
                    Ok(_) => return Ok(()),
                    Err(error) => last = error.to_string(),
                }
            }
            pause(Duration::from_secs(1)).await;
        }
        Err(WorkloadError::Server(format!("the cluster's settings cannot be changed: {last}")))
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// Nodes with (replicas, leaders, bytes) on 127.0.0.1 and the addresses after it, and a cluster at rest.
    pub fn sight(nodes: &[(u64, u64, u64)]) -> Sight {
        let node = |(index, &(replicas, leaders, tablet_bytes)): (usize, &(u64, u64, u64))| NodeFacts {
            node: index as u64 + 1,
            http_address: format!("127.0.0.{}:7000", index + 1),
            is_up: true,
            program: Some("0.1.0".into()),
            replicas,
            leaders,
            tablet_bytes,
        };
        let balancer = BalancerFacts { state: "idle".into(), moves: 0, bytes_left: 0, copy_rate_bytes: 200_000_000 };
        let cluster = ClusterFacts { under_replicated: 0, leaderless: 0, balancer };
        Sight { nodes: nodes.iter().enumerate().map(node).collect(), cluster }
    }

    fn tablet(number: u64, replicas: &[(u64, &str)]) -> TabletFacts {
        let replica = |&(node, role): &(u64, &str)| ReplicaFacts { node, role: role.into(), bytes: Some(node * 100) };
        TabletFacts { tablet: number, bytes: 1_000, replicas: replicas.iter().map(replica).collect() }
    }

    #[test]
    fn answers_of_servers_are_understood_and_more_than_is_needed_is_passed_over() {
        let node = r#"{"node":5,"host_id":"x","http_address":"127.0.0.5:7000","is_up":true,"state":"active","program":null,
            "replicas":3,"leaders":0,"tablet_bytes":17,"disks":[]}"#;
        let node: NodeFacts = serde_json::from_str(node).unwrap();
        assert_eq!(node.address(), Some("127.0.0.5".parse().unwrap()));
        assert!(!node.has_reported());
        let page = r#"{"tablets":[{"tablet":1001,"table":"t","leader":2,"bytes":9,"replicas":[{"node":2,"role":"arriving",
            "is_up":true,"bytes":null}]}],"next_after":1001}"#;
        let page: TabletPage = serde_json::from_str(page).unwrap();
        assert_eq!((page.next_after, page.tablets[0].replicas[0].is_voter()), (Some(1_001), false));
    }

    #[test]
    fn a_cluster_is_quiet_when_all_is_known_whole_and_at_rest() {
        let quiet = sight(&[(9, 3, 100), (9, 3, 100)]);
        assert!(quiet.is_quiet());
        let changed = |change: fn(&mut Sight)| {
            let mut changed = quiet.clone();
            change(&mut changed);
            changed.is_quiet()
        };
        assert!(!changed(|sight| sight.nodes[1].program = None), "a node that has just joined");
        assert!(!changed(|sight| sight.cluster.balancer.moves = 1));
        assert!(!changed(|sight| sight.cluster.balancer.state = "balancing".into()));
        assert!(!changed(|sight| sight.cluster.under_replicated = 1));
        assert!(!changed(|sight| sight.cluster.leaderless = 1));
    }

    #[test]
    fn the_spread_is_that_of_the_node_farthest_from_the_mean_and_the_dead_do_not_count() {
        let mut seen = sight(&[(9, 3, 120), (9, 4, 100), (9, 5, 80), (0, 0, 5_000)]);
        seen.nodes[3].is_up = false;
        assert_eq!((seen.byte_spread_percent(), seen.leader_spread_percent()), (Some(20.0), Some(25.0)));
        assert_eq!(sight(&[(0, 0, 0)]).byte_spread_percent(), None);
    }

    #[test]
    fn only_replicas_that_came_to_stay_have_arrived() {
        let before = voters(&[tablet(1, &[(1, "voter"), (2, "voter"), (3, "voter")]), tablet(2, &[(1, "voter")])]);
        let after = [
            tablet(1, &[(1, "voter"), (2, "leaving"), (5, "voter")]),
            tablet(2, &[(1, "voter"), (5, "arriving")]),
            tablet(3, &[(4, "voter"), (5, "voter")]),
        ];
        assert_eq!(arrived(&before, &after), BTreeMap::from([(4, 400), (5, 1_000)]));
    }
}
