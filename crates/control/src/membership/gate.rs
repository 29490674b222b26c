//! Admission: which nodes a node admits, and its answers to nodes that want to join.
//!
//! Always true: no node that knows of a removal admits the removed node. A node whose copy of the catalog is behind
//! trusts nodes of its cluster that have joined since, as only they may be able to send it the missing changes; for an
//! empty copy, all nodes have joined since. Where nodes have certificates, it trusts those only that a member which it knows, or a node
//! that the operator has named, has said to be members.
//!
//! Where nodes have certificates, a host becomes a member with a join token only, and whoever claims to be a member shows a
//! certificate that covers the address at which the catalog has the member. The address binds a certificate to a node: renewed
//! certificates have other keys, and nothing else in them names the node. So a member that moves to another address needs a certificate
//! that covers both. Whoever may not join learns nothing of the members; the reason is for the log of the node that was asked.

use super::{Refusal, RefusalKind};
use diorite_base::{Level, NodeId};
use diorite_cluster::catalog::{Catalog, Command, InvalidToken, Node, NodeDescription, ShownToken};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use uuid::Uuid;

/// The node that founds a cluster.
pub const FIRST_NODE: NodeId = NodeId(1);

/// A node whose copy of the catalog is behind admits at most this many newer nodes: this bounds the state that it keeps
/// for them.
const NEWER_NODES: u64 = 256;

/// A node that dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialler {
    /// Its node id.
    pub node: NodeId,
    /// Its host id.
    pub host: Uuid,
}

/// Whether the certificate that a node has shown covers an address.
pub type Covers<'a> = &'a dyn Fn(IpAddr) -> bool;

/// By what a node that dials is judged where nodes have certificates.
#[derive(Clone, Copy)]
pub struct Certified<'a> {
    /// The addresses that its certificate covers.
    pub covers: Covers<'a>,
    /// Members that the copy of the catalog may not have yet, as other members, or nodes that the operator has named, have said.
    pub named: &'a BTreeMap<NodeId, SocketAddr>,
    /// Whether the operator has named nodes that can be asked.
    pub has_seeds: bool,
}

impl Certified<'_> {
    /// Whether a node that the copy of the catalog does not have is a member. If the copy was lost and there is nobody to ask, as for the
    /// node that has founded the cluster, every node with a certificate of its own address is trusted.
    fn trusts(&self, catalog: &Catalog, id: NodeId) -> bool {
        match self.named.get(&id) {
            Some(address) => (self.covers)(address.ip()),
            None => catalog.nodes().next().is_none() && self.named.is_empty() && !self.has_seeds,
        }
    }
}

/// What a node has shown that asks to join.
#[derive(Clone, Copy)]
pub enum Shown<'a> {
    /// Nothing: traffic between nodes is open.
    Nothing,
    /// A certificate of the cluster's authority, which covers the address at which the node is to be reached.
    Certificate {
        /// The addresses that it covers.
        covers: Covers<'a>,
        /// The join token that was shown beside it.
        token: Option<ShownToken>,
        /// The wall clock of the node that is asked, milliseconds.
        now_ms: i64,
    },
}

/// Why a node does not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotJoining {
    /// For a reason that it is told.
    Refused(Refusal),
    /// It has shown no join token.
    NoToken,
    /// It has shown one that is not valid. It is not told why.
    InvalidToken(InvalidToken),
}

impl From<Refusal> for NotJoining {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A replication factor differs from the cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationFactorDiffers {
    /// The one that was given.
    pub given: u32,
    /// The one of the cluster.
    pub decided: u32,
}

/// The answer to a node that joins, or that asks where the members are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The cluster.
    pub cluster: Uuid,
    /// The id of the node that joins.
    pub node: Option<NodeId>,
    /// The catalog version with this membership.
    pub version: u64,
    /// The members' addresses.
    pub members: Vec<(NodeId, SocketAddr)>,
    /// The level of the cluster.
    pub level: Level,
}

/// Whether a node that dials is admitted, according to the newest snapshot known here. `certified`: by what else it is judged; `None` if
/// traffic between nodes is open.
pub fn admit(catalog: &Catalog, dialler: Dialler, certified: Option<Certified<'_>>) -> Result<(), Refusal> {
    let Dialler { node: id, host } = dialler;
    match catalog.node(id) {
        Some(node) if certified.is_some_and(|certified| !(certified.covers)(registered_at(node))) => {
            Err(not_covered(&format!("node {id} is a member")))
        }
        Some(node) if node.description.host_id == host => Ok(()),
        Some(node) => {
            let owner = node.description.host_id;
            let reason = format!("node id {id} belongs to host {owner}, not to {host}");
            Err(Refusal::new(RefusalKind::Duplicate, reason))
        }
        None if catalog.identity().has_numbered_node(id) => {
            Err(Refusal::new(RefusalKind::Removed, format_args!("node {id} was removed from the cluster")))
        }
        // It has joined since. If all leaders and voters have, no other node can send this one the change.
        None if is_newer(catalog, id) && certified.is_none_or(|certified| certified.trusts(catalog, id)) => Ok(()),
        None => Err(Refusal::new(RefusalKind::Unknown, format_args!("it does not know node {id} yet"))),
    }
}

/// Whether the node may have joined since the copy of the catalog was made.
pub(super) fn is_newer(catalog: &Catalog, id: NodeId) -> bool {
    if catalog.nodes().next().is_none() {
        return true;
    }
    let newest = catalog.nodes().map(|node| node.id.0).max().unwrap_or(0);
    !catalog.identity().has_numbered_node(id) && id.0 <= newest.saturating_add(NEWER_NODES)
}

/// Refuses a replication factor that differs from the one that the cluster was founded with.
pub fn check_replication_factor(catalog: &Catalog, given: Option<u32>) -> Result<(), ReplicationFactorDiffers> {
    let identity = catalog.identity();
    match given {
        Some(given) if identity.cluster_id.is_some() && given != identity.replication_factor => {
            Err(ReplicationFactorDiffers { given, decided: identity.replication_factor })
        }
        _ => Ok(()),
    }
}

/// Where a member is to be reached by other nodes.
fn registered_at(node: &Node) -> IpAddr {
    node.description.node_address().ip()
}

fn not_covered(what: &str) -> Refusal {
    let reason = format!(
        "{what} at an address that the certificate of this node does not cover: a node that moves needs a certificate for both addresses"
    );
    Refusal::new(RefusalKind::Address, reason)
}

/// The command that makes a node a member, if node `me` knows no reason against it. The catalog checks that its
/// addresses are not another's, and its join token: of two concurrent requests one comes first.
///
/// # Errors
/// If the node may not join, or if its host id is that of a member which runs, or whose address its certificate does not cover.
pub fn joining(
    catalog: &Catalog,
    me: NodeId,
    node: NodeDescription,
    shown: Shown<'_>,
    is_up: impl Fn(NodeId) -> bool,
) -> Result<Command, NotJoining> {
    if catalog.identity().cluster_id.is_none() || catalog.node(me).is_none() {
        return Err(Refusal::not_yet("the node that was asked is still starting").into());
    }
    let (level, levels) = (catalog.level(), node.levels.unwrap_or_default());
    if !levels.contains(level) {
        let reason = format!("the cluster is at level {level}, and the program of this node knows {levels}");
        return Err(Refusal::new(RefusalKind::Level, reason).into());
    }
    let node = node.at(level);
    let Some(known) = catalog.node_by_host_id(node.host_id) else {
        return match shown {
            Shown::Nothing => Ok(Command::RegisterNode { node }),
            Shown::Certificate { token: None, .. } => Err(NotJoining::NoToken),
            Shown::Certificate { token: Some(token), now_ms, .. } => {
                catalog.check_join_token(&token, now_ms).map_err(NotJoining::InvalidToken)?;
                Ok(Command::Join { node, token })
            }
        };
    };
    match shown {
        Shown::Certificate { covers, .. } if !covers(registered_at(known)) => {
            Err(not_covered(&format!("host id {} belongs to a member", node.host_id)).into())
        }
        _ if known.id == me || is_up(known.id) => {
            let reason = format!("host id {} is node {}'s, which is running", node.host_id, known.id);
            Err(Refusal::new(RefusalKind::Duplicate, reason).into())
        }
        Shown::Nothing => Ok(Command::RegisterNode { node }),
        // If it is removed before this command is applied, it does not become a member again without a token.
        Shown::Certificate { .. } => Ok(Command::UpdateNode { node: known.id, description: node }),
    }
}

/// The command that registers the address of node `me`, unless the catalog has it. Only the first node of a cluster
/// makes itself a member, and only once: not if another node has joined, or was removed, since.
pub fn registering(catalog: &Catalog, me: NodeId, description: &NodeDescription) -> Option<Command> {
    match catalog.node_by_host_id(description.host_id) {
        Some(known) if known.description == description.at(catalog.level()) => None,
        None if me == FIRST_NODE && !catalog.identity().has_numbered_node(me) => {
            Some(Command::RegisterNode { node: description.at(catalog.level()) })
        }
        _ => Some(returning(catalog, me, description)),
    }
}

/// The command by which a member that has started reports that it runs. Its reply is the catalog's version.
pub fn returning(catalog: &Catalog, me: NodeId, description: &NodeDescription) -> Command {
    Command::UpdateNode { node: me, description: description.at(catalog.level()) }
}

/// The command that registers the levels of a member's program, if the catalog is to have them and has not.
pub fn unrecorded(catalog: &Catalog, me: NodeId, description: &NodeDescription) -> Option<Command> {
    let known = catalog.node(me).filter(|known| known.description.host_id == description.host_id)?;
    let levels = description.at(catalog.level()).levels;
    (levels.is_some() && known.description.levels != levels).then(|| returning(catalog, me, description))
}

/// The answer to the node with this host id after it has been made a member.
pub fn welcome(catalog: &Catalog, host: Uuid) -> Result<Welcome, Refusal> {
    let joined = catalog.node_by_host_id(host).ok_or_else(|| Refusal::not_yet("the catalog lags"))?;
    members(catalog, Some(joined.id))
}

/// The addresses of the members of a cluster, for a node that has shown a certificate of a member's address, or for any node if
/// traffic is open.
pub fn whereabouts(catalog: &Catalog, cluster: Uuid, covers: Option<Covers<'_>>) -> Result<Welcome, Refusal> {
    let is_at_a_members_place = || covers.is_none_or(|covers| catalog.nodes().any(|node| covers(registered_at(node))));
    match catalog.identity().cluster_id {
        Some(own) if own == cluster && is_at_a_members_place() => members(catalog, None),
        Some(own) if own == cluster => {
            let reason = "it knows no member at an address that the certificate of this node covers";
            Err(Refusal::new(RefusalKind::Unknown, reason))
        }
        Some(_) => {
            let reason = format!("it belongs to another cluster, the data directory of this node to cluster {cluster}");
            Err(Refusal::new(RefusalKind::Cluster, reason))
        }
        None => Err(Refusal::not_yet("the node that was asked is still starting")),
    }
}

fn members(catalog: &Catalog, node: Option<NodeId>) -> Result<Welcome, Refusal> {
    let cluster = catalog.identity().cluster_id.ok_or_else(|| Refusal::not_yet("there is no cluster yet"))?;
    let members = catalog.nodes().map(|node| (node.id, node.description.node_address())).collect();
    Ok(Welcome { cluster, node, version: catalog.version(), members, level: catalog.level() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::testing::{apply, cluster, description};
    use diorite_base::hex::Hex;
    use diorite_cluster::catalog::{JoinToken, Outcome, Rejection};

    const A: NodeId = NodeId(1);

    fn kind(refused: Result<(), Refusal>) -> Option<RefusalKind> {
        refused.err().map(|refusal| refusal.kind)
    }

    fn is_refused(asked: &Result<Command, NotJoining>, kind: RefusalKind) -> bool {
        matches!(asked, Err(NotJoining::Refused(refusal)) if refusal.kind == kind)
    }

    fn dialler(node: u64, host: u128) -> Dialler {
        Dialler { node: NodeId(node), host: Uuid::from_u128(host) }
    }

    #[test]
    fn members_are_let_in_and_others_refused_by_what_they_are() {
        let mut catalog = cluster(4, 1);
        let idle = catalog.nodes().map(|node| node.id).find(|node| catalog.tablets_on(*node).count() == 0);
        let idle = idle.unwrap_or(A);
        assert_eq!(admit(&catalog, dialler(2, 2), None), Ok(()));
        assert_eq!(kind(admit(&catalog, dialler(2, 3), None)), Some(RefusalKind::Duplicate));
        assert_eq!(admit(&catalog, dialler(5, 5), None), Ok(()), "it has joined since");
        assert_eq!(kind(admit(&catalog, dialler(4 + NEWER_NODES + 1, 9), None)), Some(RefusalKind::Unknown));
        apply(&mut catalog, Command::RemoveNode { node: idle, only_without_vote: false });
        assert_eq!(kind(admit(&catalog, dialler(idle.0, u128::from(idle.0)), None)), Some(RefusalKind::Removed));
        assert_eq!(admit(&Catalog::default(), dialler(2, 2), None), Ok(()));
    }

    #[test]
    fn a_node_joins_once_unless_it_runs_already() {
        let catalog = cluster(3, 1);
        let ask =
            |catalog: &Catalog, number, up: bool| joining(catalog, A, description(number), Shown::Nothing, |_| up);
        assert_eq!(ask(&catalog, 9, false), Ok(Command::RegisterNode { node: description(9) }));
        assert!(ask(&catalog, 2, false).is_ok(), "it asks again");
        assert!(is_refused(&ask(&catalog, 2, true), RefusalKind::Duplicate));
        assert!(is_refused(&ask(&catalog, 1, false), RefusalKind::Duplicate));
        assert!(is_refused(&ask(&Catalog::default(), 9, false), RefusalKind::Unknown));
    }

    #[test]
    fn only_the_first_node_makes_itself_a_member_and_only_once() {
        let catalog = cluster(3, 1);
        let moved = NodeDescription { cql_port: 1, ..description(2) };
        let told = |node: u64, description: &NodeDescription| {
            Some(Command::UpdateNode { node: NodeId(node), description: description.clone() })
        };
        assert_eq!(registering(&catalog, NodeId(2), &description(2)), None);
        assert_eq!(registering(&catalog, NodeId(2), &moved), told(2, &moved));
        assert_eq!(registering(&catalog, NodeId(7), &description(7)), told(7, &description(7)), "it was removed");
        assert_eq!(registering(&catalog, A, &description(9)), told(1, &description(9)), "the first node was removed");
        let founded = Some(Command::RegisterNode { node: description(1) });
        assert_eq!(registering(&Catalog::default(), A, &description(1)), founded);
        let (_, outcome) = catalog.apply(&returning(&catalog, NodeId(7), &description(7)));
        let rejected = matches!(&outcome, Outcome::Rejected { rejection: Rejection::NoSuchNode, .. });
        assert!(rejected, "{outcome:?}");
    }

    #[test]
    fn a_member_says_where_the_others_are_to_those_of_its_cluster() {
        let catalog = cluster(3, 1);
        let told = whereabouts(&catalog, Uuid::from_u128(1), None).map(|welcome| welcome.members.len());
        assert_eq!(told, Ok(3));
        assert!(matches!(whereabouts(&catalog, Uuid::nil(), None), Err(Refusal { kind: RefusalKind::Cluster, .. })));
        let welcomed = welcome(&catalog, Uuid::from_u128(2)).map(|welcome| welcome.node);
        assert_eq!(welcomed, Ok(Some(NodeId(2))));
        assert_eq!(check_replication_factor(&catalog, Some(3)), Ok(()));
        let differs = ReplicationFactorDiffers { given: 5, decided: 3 };
        assert_eq!(check_replication_factor(&catalog, Some(5)), Err(differs));
    }

    /// Where the members of [`cluster`] are registered.
    fn place(number: u64) -> IpAddr {
        registered_at(cluster(4, 1).node(NodeId(number)).unwrap())
    }

    #[test]
    fn whoever_dials_as_a_member_shows_a_certificate_of_the_members_address() {
        let catalog = cluster(3, 1);
        let shows = |number| move |address| address == place(number);
        let dials = |catalog: &Catalog, number: u64, at, named: &BTreeMap<NodeId, SocketAddr>| {
            let certified = Certified { covers: &shows(at), named, has_seeds: true };
            kind(admit(catalog, dialler(number, u128::from(number)), Some(certified)))
        };
        let nobody = BTreeMap::new();
        assert_eq!(dials(&catalog, 2, 2, &nobody), None);
        assert_eq!(dials(&catalog, 2, 3, &nobody), Some(RefusalKind::Address));
        // Node 4 has joined since, or says so: a member has to say it, too.
        let named = BTreeMap::from([(NodeId(4), SocketAddr::new(place(4), 7_100))]);
        for behind in [&catalog, &Catalog::default()] {
            assert_eq!(dials(behind, 4, 4, &nobody), Some(RefusalKind::Unknown));
            assert_eq!(dials(behind, 4, 4, &named), None);
            assert_eq!(dials(behind, 4, 3, &named), Some(RefusalKind::Unknown));
            assert_eq!(dials(behind, 5, 4, &named), Some(RefusalKind::Unknown));
        }
        // Its copy is lost, and it has nobody to ask.
        let lost = Certified { covers: &shows(4), named: &nobody, has_seeds: false };
        assert_eq!(admit(&Catalog::default(), dialler(4, 4), Some(lost)), Ok(()));
        assert_eq!(kind(admit(&catalog, dialler(4, 4), Some(lost))), Some(RefusalKind::Unknown));
        let told = whereabouts(&catalog, Uuid::from_u128(1), Some(&shows(3))).map(|welcome| welcome.members.len());
        assert_eq!(told, Ok(3));
        let stranger = whereabouts(&catalog, Uuid::from_u128(1), Some(&shows(4)));
        assert!(matches!(&stranger, Err(refusal) if refusal.kind == RefusalKind::Unknown), "{stranger:?}");
        let other = whereabouts(&catalog, Uuid::nil(), Some(&shows(3)));
        assert!(
            matches!(&other, Err(refusal) if !refusal.reason.contains(&Uuid::from_u128(1).to_string())),
            "{other:?}"
        );
    }

    #[test]
    fn a_host_joins_with_a_valid_token_and_a_member_comes_back_with_its_certificate() {
        let shown = ShownToken { id: Hex([1; 8]), digest: Hex([2; 32]) };
        let mut catalog = cluster(3, 1);
        let token = JoinToken { digest: shown.digest, expires_ms: 100, nodes: 1 };
        apply(&mut catalog, Command::CreateJoinToken { id: shown.id, token });
        let ask = |number: u64, at: u64, token, now_ms, up| {
            let covers = move |address| address == place(number) || address == place(at);
            let shown = Shown::Certificate { covers: &covers, token, now_ms };
            joining(&catalog, A, description(number), shown, |_| up)
        };
        assert_eq!(ask(4, 4, Some(shown), 99, false), Ok(Command::Join { node: description(4), token: shown }));
        assert_eq!(ask(4, 4, None, 99, false), Err(NotJoining::NoToken));
        let expired = NotJoining::InvalidToken(InvalidToken::Expired(shown.id));
        assert_eq!(ask(4, 4, Some(shown), 100, false), Err(expired));
        let wrong = ShownToken { digest: Hex([3; 32]), ..shown };
        assert_eq!(ask(4, 4, Some(wrong), 0, false), Err(NotJoining::InvalidToken(InvalidToken::Wrong(shown.id))));
        // A member that asks again, and another node that uses its host id.
        let returned = Command::UpdateNode { node: NodeId(2), description: description(2) };
        assert_eq!(ask(2, 2, None, 0, false), Ok(returned));
        assert!(is_refused(&ask(2, 2, None, 0, true), RefusalKind::Duplicate));
        let elsewhere = |address| address == place(4);
        let shown = Shown::Certificate { covers: &elsewhere, token: Some(shown), now_ms: 0 };
        for up in [false, true] {
            let taken = joining(
                &catalog,
                A,
                NodeDescription { host_id: description(2).host_id, ..description(4) },
                shown,
                |_| up,
            );
            assert!(is_refused(&taken, RefusalKind::Address), "{taken:?}");
        }
    }
}
