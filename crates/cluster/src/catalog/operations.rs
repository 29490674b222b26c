//! Transitions of nodes and placements, as opposed to the schema.
//!
//! Always true: a tablet's replicas are on different nodes that are members; a node that holds a replica is in the
//! tablet's placement until the tablet's group has reported that it does not need that replica; a node that any
//! placement names is a member, so that it can be dialled. Left out: whether a change is wise (the balancer's, and the
//! checks of the nodes that propose it, which know which nodes are up).

use super::command::{FinishedTablet, Setting};
use super::level::admitted;
use super::node::{Node, NodeDescription, NodeState};
use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::split::end_split;
use super::step::{Done, Rejected, Step};
use super::tablet::Placement;
use diorite_base::{NodeId, TabletId};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn register_node(catalog: &mut Catalog, description: &NodeDescription) -> Step {
    let known = catalog.node_by_host_id(description.host_id).cloned();
    let description = &admitted(catalog, known.as_deref(), description)?;
    let registered = match (&known, catalog.node_in_place_of(description)) {
        // A member may take the address of another one: addresses change while nodes are down. A dead node that
        // registers is alive, so its replicas are wanted again.
        (Some(node), _) => {
            let state = if node.state == NodeState::Dead { NodeState::Active } else { node.state };
            Node { description: description.clone(), state, ..Node::clone(node) }
        }
        (None, Some(owner)) => {
            let message = format!(
                "address {} (CQL port {}) belongs to node {} (host {}), whose data directory this is not",
                description.node_address(),
                description.cql_port,
                owner.id,
                owner.description.host_id
            );
            return Err(Rejected(Rejection::AlreadyExists, message));
        }
        (None, None) => {
            let id = NodeId(catalog.identity.next_node);
            catalog.identity.next_node += 1;
            Node {
                id,
                description: description.clone(),
                state: NodeState::Active,
                leads_nothing: false,
                assigned_zone: None,
            }
        }
    };
    if known.is_some_and(|known| *known == registered) {
        return Ok(Done::Nothing);
    }
    let id = registered.id;
    Arc::make_mut(&mut catalog.nodes).insert(id, Arc::new(registered));
    Ok(Done::Registered(id))
}

pub(super) fn update_node(catalog: &mut Catalog, node: NodeId, description: &NodeDescription) -> Step {
    match catalog.nodes.get(&node) {
        Some(known) if known.description.host_id == description.host_id => register_node(catalog, description),
        _ => {
            let message = format!("node {node} (host {}) is not a member of the cluster", description.host_id);
            Err(Rejected(Rejection::NoSuchNode, message))
        }
    }
}

pub(super) fn forget_dropped(catalog: &mut Catalog, node: NodeId, tablets: &[TabletId]) -> Step {
    let mut done = Done::Nothing;
    for tablet in tablets {
        let Some(placement) = catalog.dropped.get(tablet).filter(|placement| placement.is_held_by(node)) else {
            continue;
        };
        let mut placement = Placement::clone(placement);
        placement.replicas.retain(|replica| *replica != node);
        let dropped = Arc::make_mut(&mut catalog.dropped);
        if placement.replicas.is_empty() {
            dropped.remove(tablet);
        } else {
            dropped.insert(*tablet, Arc::new(placement));
        }
        done = Done::Changed;
    }
    Ok(done)
}

pub(super) fn place(
    catalog: &mut Catalog,
    tablet: TabletId,
    expected: &[NodeId],
    replicas: &[NodeId],
    is_numbered: bool,
) -> Step {
    let Some(current) = catalog.tablets.get(&tablet) else {
        return Err(Rejected(Rejection::Invalid, format!("there is no {tablet}")));
    };
    if current.is_reshaping() {
        return Err(Rejected(Rejection::Conflict, format!("{tablet} is being split or merged")));
    }
    if current.replicas != expected {
        return Err(Rejected(Rejection::Conflict, format!("{tablet} was placed elsewhere meanwhile")));
    }
    if replicas == expected {
        return Ok(Done::Nothing);
    }
    if replicas.is_empty() || replicas.iter().collect::<BTreeSet<_>>().len() < replicas.len() {
        let message = format!("the replicas of {tablet} must be on different nodes, and at least on one");
        return Err(Rejected(Rejection::Invalid, message));
    }
    if let Some(stranger) = replicas.iter().find(|node| !catalog.nodes.contains_key(node)) {
        return Err(no_such_node(*stranger));
    }
    let mut placement = Placement::clone(current);
    let before: Vec<NodeId> = current.holders().collect();
    // A leaving replica that is wanted again counts as arriving: how far its log reaches is not known.
    placement.arriving.extend(replicas.iter().filter(|node| !expected.contains(node)));
    placement.arriving.retain(|node| replicas.contains(node));
    placement.replicas = replicas.to_vec();
    // Every command that changes the catalog has a version of its own.
    placement.move_number = if is_numbered { catalog.identity.version + 1 } else { 0 };
    placement.leaving = before.into_iter().filter(|node| !replicas.contains(node)).collect();
    Arc::make_mut(&mut catalog.tablets).insert(tablet, Arc::new(placement));
    Ok(Done::Changed)
}

pub(super) fn finish_moves(catalog: &mut Catalog, finished: &[FinishedTablet]) -> Done {
    let mut done = Done::Nothing;
    for FinishedTablet { tablet, voters, move_number } in finished {
        let is_due = |placement: &&Arc<Placement>| placement.is_moving() || placement.origin.is_some();
        let Some(current) = catalog.tablets.get(tablet).filter(is_due).cloned() else { continue };
        let (wanted, actual): (BTreeSet<_>, BTreeSet<_>) = (current.replicas.iter().collect(), voters.iter().collect());
        if wanted != actual || move_number.is_some_and(|number| number != current.move_number) {
            continue;
        }
        let placement =
            Placement { arriving: Vec::new(), leaving: Vec::new(), origin: None, ..Placement::clone(&current) };
        Arc::make_mut(&mut catalog.tablets).insert(*tablet, Arc::new(placement));
        if let Some(origin) = current.origin {
            end_split(catalog, origin.parent);
        }
        done = Done::Changed;
    }
    done
}

pub(super) fn set_node_state(catalog: &mut Catalog, node: NodeId, state: NodeState) -> Step {
    change_node(catalog, node, |node| node.state = state)
}

pub(super) fn assign_zone(catalog: &mut Catalog, node: NodeId, zone: Option<&str>) -> Step {
    change_node(catalog, node, |node| node.assigned_zone = zone.map(str::to_owned))
}

pub(super) fn set_leading(catalog: &mut Catalog, node: NodeId, leads_nothing: bool) -> Step {
    change_node(catalog, node, |node| node.leads_nothing = leads_nothing)
}

fn change_node(catalog: &mut Catalog, node: NodeId, change: impl FnOnce(&mut Node)) -> Step {
    let Some(current) = catalog.nodes.get(&node) else { return Err(no_such_node(node)) };
    let mut changed = Node::clone(current);
    change(&mut changed);
    if changed == **current {
        return Ok(Done::Nothing);
    }
    Arc::make_mut(&mut catalog.nodes).insert(node, Arc::new(changed));
    Ok(Done::Changed)
}

pub(super) fn remove_node(catalog: &mut Catalog, node: NodeId, only_without_vote: bool) -> Step {
    if !catalog.nodes.contains_key(&node) {
        return if catalog.identity.has_numbered_node(node) { Ok(Done::Nothing) } else { Err(no_such_node(node)) };
    }
    let held = catalog.tablets_on(node).count();
    if held > 0 {
        let message =
            format!("node {node} still holds replicas of {held} tablets: drain it, or let it be replaced, first");
        return Err(Rejected(Rejection::InUse, message));
    }
    if catalog.nodes.len() == 1 {
        return Err(Rejected(Rejection::InUse, "the last node cannot be removed".to_owned()));
    }
    if only_without_vote && catalog.catalog_members().voters.contains(&node) {
        // It was asked for before something else changed the wanted voters.
        return Err(Rejected(Rejection::InUse, format!("node {node} is to vote in the catalog's group now")));
    }
    Arc::make_mut(&mut catalog.nodes).remove(&node);
    // The removed node need no longer confirm that it has removed its replicas of dropped tablets.
    let dropped: Vec<TabletId> = catalog.dropped.keys().copied().collect();
    forget_dropped(catalog, node, &dropped)?;
    Ok(Done::Changed)
}

pub(super) fn set(catalog: &mut Catalog, setting: &Setting) -> Done {
    let settings = &mut catalog.identity.settings;
    let before = settings.clone();
    match setting {
        Setting::CopyRate { bytes_per_second } => settings.copy_rate_bytes = (*bytes_per_second).max(1),
        Setting::Balancing { is_paused } => settings.balancing_is_paused = *is_paused,
        Setting::ReplaceAfter { milliseconds } => settings.replace_after_ms = *milliseconds,
        Setting::PreferredLeaderZones { zones } => settings.preferred_leader_zones.clone_from(zones),
        Setting::SplitSize { bytes } => settings.split_bytes = *bytes,
        Setting::SplitLoad { operations_per_second } => {
            settings.split_operations_per_second = *operations_per_second;
        }
        Setting::MergeSize { bytes } => settings.merge_bytes = *bytes,
    }
    if *settings == before { Done::Nothing } else { Done::Changed }
}

fn no_such_node(node: NodeId) -> Rejected {
    Rejected(Rejection::NoSuchNode, format!("there is no node {node}"))
}
