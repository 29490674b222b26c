//! Groups of networks, as operators list and change them.
//!
//! Always true: a text that is no network is refused by name. Left out: the rules of groups, which are the catalog's.

use super::{Answer, in_json};
use diorite_admin::api::{CidrGroupStatus, Failure, FailureKind};
use diorite_cluster::catalog::{Catalog, Command, Network, Permitted};
use std::collections::BTreeSet;

/// All groups.
pub(super) fn list(catalog: &Catalog) -> Answer {
    let users = |name: &str| {
        let names_it = |cidrs: &Permitted| matches!(cidrs, Permitted::Only(names) if names.contains(name));
        catalog.roles().filter(|role| names_it(&role.cidrs)).map(|role| role.name.clone()).collect()
    };
    let status = catalog.cidr_groups().map(|(name, group)| CidrGroupStatus {
        name: name.to_owned(),
        cidrs: group.cidrs.iter().map(Network::to_string).collect(),
        roles: users(name),
    });
    in_json(&status.collect::<Vec<_>>())
}

/// The command that sets a group, and what to say of it.
pub(super) fn set(name: String, cidrs: &[String]) -> Result<(Command, String), Failure> {
    let network = |text: &String| {
        let wrong = |error| Failure::new(FailureKind::Invalid, format!("'{text}' is no network: {error}"));
        text.parse::<Network>().map_err(wrong)
    };
    let cidrs: BTreeSet<Network> = cidrs.iter().map(network).collect::<Result<_, _>>()?;
    let networks = if cidrs.len() == 1 { "1 network".to_owned() } else { format!("{} networks", cidrs.len()) };
    let message = format!("CIDR group {name} has {networks}; connections that it no longer permits are ended");
    Ok((Command::SetCidrGroup { name, cidrs }, message))
}

/// The command that drops a group, and what to say of it.
pub(super) fn drop_group(name: String) -> (Command, String) {
    let message = format!("there is no CIDR group {name} any more");
    (Command::DropCidrGroup { name }, message)
}
