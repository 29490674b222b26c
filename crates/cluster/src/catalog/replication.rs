//! How many replicas a keyspace asks for, how many it gets, and the warnings to its users about the difference.
//!
//! Always true: a keyspace's definition is stored as it was given; the effective replication is computed each time from
//! it and the cluster's minimum, so that a later node, or a later minimum, changes it at once. Left out: CQL's checks
//! of the options (the `query` crate's); options that cannot be parsed count as the cluster's default.

use super::snapshot::Catalog;
use diorite_model::schema::Keyspace;
use std::collections::BTreeMap;

/// The number of replicas of a keyspace's tablets, by data centre if the keyspace names any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replication {
    /// This many, on any nodes.
    Anywhere(u32),
    /// This many in each of these data centres.
    PerDataCenter(BTreeMap<String, u32>),
}

impl Replication {
    /// The replication that replication options (as in `Keyspace::replication`) ask for; `default` if they name none.
    pub fn asked(options: &BTreeMap<String, String>, default: u32) -> Self {
        let class = options.get("class").map_or("", |class| class.rsplit('.').next().unwrap_or(class));
        if class == "NetworkTopologyStrategy" {
            let factors = options.iter().filter(|(option, _)| *option != "class" && *option != "replication_factor");
            let wanted: BTreeMap<String, u32> = factors
                .filter_map(|(data_center, factor)| Some((data_center.clone(), factor.parse().ok()?)))
                .filter(|(_, factor)| *factor > 0)
                .collect();
            if !wanted.is_empty() {
                return Replication::PerDataCenter(wanted);
            }
        }
        let factor = options.get("replication_factor").and_then(|factor| factor.parse().ok());
        Replication::Anywhere(factor.unwrap_or(default))
    }

    /// Raises the replication to `minimum` replicas in all. If data centres are named, the one with the fewest gets one
    /// more each time.
    #[must_use]
    pub fn at_least(mut self, minimum: u32) -> Self {
        match &mut self {
            Replication::Anywhere(wanted) => *wanted = (*wanted).max(minimum),
            Replication::PerDataCenter(wanted) => {
                for _ in wanted.values().sum::<u32>()..minimum {
                    if let Some(fewest) = wanted.values_mut().min() {
                        *fewest += 1;
                    }
                }
            }
        }
        self
    }

    /// Replicas per tablet, over all data centres.
    pub fn total(&self) -> u32 {
        match self {
            Replication::Anywhere(wanted) => *wanted,
            Replication::PerDataCenter(wanted) => wanted.values().sum(),
        }
    }

    /// Whether replicas may be placed in that data centre.
    pub fn uses(&self, data_center: &str) -> bool {
        match self {
            Replication::Anywhere(_) => true,
            Replication::PerDataCenter(wanted) => wanted.contains_key(data_center),
        }
    }
}

impl Catalog {
    /// The effective replication of the keyspace called `name`: the one in its definition, raised to the cluster's
    /// minimum.
    pub fn replication_of(&self, name: &str) -> Replication {
        let minimum = self.identity.replication_factor;
        let asked = |keyspace: &Keyspace| Replication::asked(&keyspace.replication, minimum).at_least(minimum);
        self.keyspace(name).map_or(Replication::Anywhere(minimum), |keyspace| asked(keyspace))
    }

    /// Warnings to a client that gives a keyspace these replication options: the replication was raised, or there are
    /// too few nodes.
    pub fn replication_warnings(&self, options: &BTreeMap<String, String>) -> Vec<String> {
        let minimum = self.identity.replication_factor;
        let asked = Replication::asked(options, minimum);
        let effective = asked.clone().at_least(minimum);
        let mut warnings = Vec::new();
        if asked.total() < minimum {
            warnings
                .push(format!("replication factor {} was raised to the cluster's minimum of {minimum}", asked.total()));
        }
        match &effective {
            Replication::Anywhere(wanted) => {
                warnings.extend(too_few_nodes(*wanted, self.nodes.len(), "the cluster"));
            }
            Replication::PerDataCenter(wanted) => {
                for (data_center, wanted) in wanted {
                    let nodes = self.nodes.values().filter(|node| node.description.data_center == *data_center);
                    warnings.extend(too_few_nodes(*wanted, nodes.count(), &format!("data center {data_center}")));
                }
            }
        }
        warnings
    }
}

fn too_few_nodes(wanted: u32, nodes: usize, of: &str) -> Option<String> {
    let noun = if nodes == 1 { "node" } else { "nodes" };
    (wanted as usize > nodes).then(|| {
        format!("replication factor {wanted} is more than the {nodes} {noun} of {of}: the missing replicas are added when nodes join")
    })
}
