//! Carries out operators' changes. [`diorite_control::changes`] decides which are permitted, and by which commands.

use super::{Answer, Operations, cidr_groups, in_json, unavailable};
use crate::catalog::CATALOG_TABLET;
use crate::join_token::JoinToken;
use crate::node_tls::Protection;
use diorite_admin::api::{Change, Done, Failure, FailureKind, JoinTokenStatus, NewJoinToken};
use diorite_base::NodeId;
use diorite_base::limits::{self, SettingLimits};
use diorite_base::text::bytes;
use diorite_base::write::KvError;
use diorite_cluster::catalog::{self, Catalog, Command, JoinTokenId, Outcome, Rejection, Setting};
use diorite_control::changes::{Judge, Refusal, Request};

fn refused(message: String) -> Failure {
    Failure::new(FailureKind::Refused, message)
}

impl Operations {
    /// Carries out a change.
    pub(super) async fn carry_out(&self, change: Change) -> Answer {
        if let Change::CreateJoinToken { lifetime_ms, nodes } = change {
            return self.make_join_token(lifetime_ms, nodes).await;
        }
        match change {
            Change::FinishUpgrade => return self.finish_upgrade().await,
            Change::HoldUpgrade => return self.decide_about_upgrade(true).await,
            Change::ResumeUpgrade => return self.decide_about_upgrade(false).await,
            _ => {}
        }
        let catalog = self.catalog.current();
        let (command, message) = self.command_of(&catalog, change)?;
        self.commit(&command).await?;
        in_json(&Done { message })
    }

    /// Makes a join token. The answer has its secret; the catalog has a digest.
    async fn make_join_token(&self, lifetime_ms: u64, nodes: u32) -> Answer {
        if self.options.protection() != Protection::Encrypted {
            let message = "nodes join this cluster without a token: its traffic is open (diorite start --certs)";
            return Err(refused(message.to_owned()));
        }
        check_set(&limits::JOIN_TOKEN_LIFETIME, lifetime_ms)?;
        let made = JoinToken::random();
        let shown = made.shown().expect("a new token is one");
        let expires_ms = self.clock.wall_us() / 1_000 + lifetime_ms as i64;
        let token = catalog::JoinToken { digest: shown.digest, expires_ms, nodes };
        self.commit(&Command::CreateJoinToken { id: shown.id, token }).await?;
        in_json(&NewJoinToken { id: shown.id.to_string(), token: made.reveal().to_owned(), expires_ms, nodes })
    }

    /// The join tokens that are valid now.
    pub(super) fn list_join_tokens(&self) -> Answer {
        let (catalog, now_ms) = (self.catalog.current(), self.clock.wall_us() / 1_000);
        let valid = catalog.join_tokens().filter(|(_, token)| !token.is_over(now_ms));
        let status = valid.map(|(id, token)| JoinTokenStatus {
            id: id.to_string(),
            expires_ms: token.expires_ms,
            nodes: token.nodes,
        });
        in_json(&status.collect::<Vec<_>>())
    }

    /// The groups of networks.
    pub(super) fn list_cidr_groups(&self) -> Answer {
        cidr_groups::list(&self.catalog.current())
    }

    /// Has the catalog carry out a command.
    pub(super) async fn commit(&self, command: &Command) -> Result<(), Failure> {
        command.check().map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))?;
        let reply = self.catalog.change(command).await.map_err(|error| match error {
            KvError::TooLarge(told) => refused(told),
            error => unavailable(error.to_string()),
        })?;
        match Outcome::decode(&reply) {
            Ok(Outcome::Rejected { rejection, message, .. }) => {
                let kind = match rejection {
                    Rejection::NoSuchNode | Rejection::NoSuchToken | Rejection::NoSuchCidrGroup => {
                        FailureKind::NotFound
                    }
                    _ => FailureKind::Refused,
                };
                Err(Failure::new(kind, message))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(unavailable(error.to_string())),
        }
    }

    fn command_of(&self, catalog: &Catalog, change: Change) -> Result<(Command, String), Failure> {
        let request = match request_of(change) {
            Ok(request) => request,
            Err(Change::SetCidrGroup { name, cidrs }) => return cidr_groups::set(name, &cidrs),
            Err(Change::DropCidrGroup { name }) => return Ok(cidr_groups::drop_group(name)),
            Err(setting) => return setting_of(catalog, setting),
        };
        let is_up = |node| self.is_up(node);
        let catalog_voters = self.store.voter_sets(CATALOG_TABLET);
        let judge = Judge {
            node: self.node,
            catalog,
            is_up: &is_up,
            catalog_voters: &catalog_voters,
            wall_ms: self.clock.wall_us() / 1_000,
        };
        judge.command_of(request).map_err(|refusal| match refusal {
            Refusal::NotFound(message) => Failure::new(FailureKind::NotFound, message),
            Refusal::Refused(message) => refused(message),
        })
    }

    /// Whether heartbeats of a node arrive at this node.
    pub(super) fn is_up(&self, node: NodeId) -> bool {
        node == self.node || self.store.liveness().is_up(node)
    }
}

/// Refuses a value that is outside the limits of its setting.
pub(super) fn check_set(limits: &SettingLimits, found: u64) -> Result<(), Failure> {
    limits::check_setting(limits, found).map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))
}

/// The request for a change that depends on the state of the cluster; other changes are settings.
fn request_of(change: Change) -> Result<Request, Change> {
    Ok(match change {
        Change::Drain { node } => Request::Drain { node },
        Change::Undrain { node } => Request::Undrain { node },
        Change::Remove { node } => Request::Remove { node },
        Change::Replace { node } => Request::Replace { node },
        Change::MoveLeaders { node, back } => Request::MoveLeaders { node, back },
        Change::SetZone { node, zone } => Request::SetZone { node, zone },
        Change::Split { tablet } => Request::Split { tablet },
        Change::Merge { tablet, into } => Request::Merge { tablet, into },
        Change::CancelSplit { tablet } => Request::CancelSplit { tablet },
        Change::CancelMerge { tablet } => Request::CancelMerge { tablet },
        setting => return Err(setting),
    })
}

/// Where leaders are to be, and which of these zones are of no use.
fn leader_zones(catalog: &Catalog, zones: &[String]) -> String {
    if zones.is_empty() {
        return "leaders may be anywhere".to_owned();
    }
    let is_empty = |zone: &&String| catalog.nodes().all(|node| node.zone() != zone.as_str());
    let empty: Vec<&str> = zones.iter().filter(is_empty).map(String::as_str).collect();
    let hint = match empty.is_empty() {
        true => String::new(),
        false => format!("; no node is in zone {}", empty.join(", ")),
    };
    format!("leaders are to be in {}{hint}", zones.join(", "))
}

/// The command for a change that does not depend on the state of the cluster.
fn setting_of(catalog: &Catalog, change: Change) -> Result<(Command, String), Failure> {
    if let Change::RevokeJoinToken { id } = &change {
        let unknown = |_| Failure::new(FailureKind::NotFound, format!("there is no join token '{id}'"));
        let id: JoinTokenId = id.parse().map_err(unknown)?;
        return Ok((Command::RevokeJoinToken { id }, format!("no node joins with token {id} any more")));
    }
    if let Change::RequireLogin { required } = change {
        let message = match required {
            true => "clients have to log in; those that have not are disconnected",
            false => "clients need not log in: whoever reaches a port may read and change everything",
        };
        return Ok((Command::RequireLogin { required, if_undecided: false }, message.to_owned()));
    }
    let (setting, message) = match change {
        Change::SetRate { bytes_per_second: 0 } => {
            let message = "copies need some bytes per second; to stop them, pause balancing";
            return Err(Failure::new(FailureKind::Invalid, message));
        }
        Change::SetRate { bytes_per_second } => {
            let message = format!("copies may take {}/s for each node", bytes(bytes_per_second as f64));
            (Setting::CopyRate { bytes_per_second }, message)
        }
        Change::SetBalancing { is_paused } => {
            let message = if is_paused {
                "nothing is moved until balancing is resumed; repairs continue"
            } else {
                "balancing continues"
            };
            (Setting::Balancing { is_paused }, message.to_owned())
        }
        Change::SetReplaceAfter { milliseconds } => {
            let message = format!("nodes are replaced after {} s of silence", milliseconds / 1_000);
            (Setting::ReplaceAfter { milliseconds }, message)
        }
        Change::SetLeaderZones { zones } => {
            let message = leader_zones(catalog, &zones);
            (Setting::PreferredLeaderZones { zones }, message)
        }
        Change::SetMergeSize { bytes: 0 } => {
            (Setting::MergeSize { bytes: 0 }, "tablets are merged only when that is asked for".to_owned())
        }
        Change::SetMergeSize { bytes: size } => (
            Setting::MergeSize { bytes: size },
            format!("neighbours of up to {} together are merged", bytes(size as f64)),
        ),
        Change::SetSplitSize { bytes: 0 } => {
            (Setting::SplitSize { bytes: 0 }, "no tablet is split for its size".to_owned())
        }
        Change::SetSplitSize { bytes: size } => {
            (Setting::SplitSize { bytes: size }, format!("tablets over {} are split", bytes(size as f64)))
        }
        Change::SetSplitLoad { operations_per_second } => {
            let message = match operations_per_second {
                0 => "no tablet is split for its load".to_owned(),
                most => format!("tablets with more than {most} reads and writes a second are split"),
            };
            (Setting::SplitLoad { operations_per_second }, message)
        }
        _ => return Err(Failure::new(FailureKind::Invalid, "this change is not a setting")),
    };
    Ok((Command::Set { setting }, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::Level;
    use diorite_cluster::catalog::NodeDescription;
    use uuid::Uuid;

    #[test]
    fn zones_without_nodes_are_named() {
        let node = NodeDescription {
            host_id: Uuid::from_u128(1),
            address: [10, 0, 0, 1].into(),
            cql_port: 9042,
            rpc_port: 7100,
            http_port: 7000,
            data_center: "east".to_owned(),
            zone: "a".to_owned(),
            node_address: None,
            levels: None,
        };
        let bootstrap = Command::Bootstrap {
            cluster_id: Uuid::from_u128(1),
            name: "zones".to_owned(),
            replication_factor: 1,
            requires_login: Some(false),
            level: Level::FIRST,
        };
        let (catalog, _) = Catalog::default().apply(&bootstrap);
        let (catalog, _) = catalog.apply(&Command::RegisterNode { node });
        let said =
            |zones: &[&str]| leader_zones(&catalog, &zones.iter().map(|zone| (*zone).to_owned()).collect::<Vec<_>>());
        assert_eq!(said(&[]), "leaders may be anywhere");
        assert_eq!(said(&["a"]), "leaders are to be in a");
        assert_eq!(said(&["a", "b", "c"]), "leaders are to be in a, b, c; no node is in zone b, c");
    }
}
