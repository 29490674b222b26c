//! `ACCESS TO DATACENTERS` and `ACCESS FROM CIDRS` of a role.
//!
//! Always true: a data centre exists when it is named, and a network can be read; so a role is not shut out by a slip of the pen. Left out: checking
//! a client by them, which the node does when it logs in; groups of networks (`CIDR GROUPS`), which Cassandra has.

use crate::error::invalid;
use diorite_cluster::catalog::{Catalog, Network, Permitted};
use diorite_cql::language::ast::{AccessList, RoleOptions};
use diorite_cql::protocol::CqlError;
use std::collections::BTreeSet;

/// The most networks that one role may have.
const MAX_CIDRS: usize = 256;

/// The data centres that the options name; `None`: they say nothing of it.
pub(super) fn datacenters(catalog: &Catalog, options: &RoleOptions) -> Result<Option<Permitted>, CqlError> {
    let names = match &options.datacenters {
        None => return Ok(None),
        Some(AccessList::All) => return Ok(Some(Permitted::All)),
        Some(AccessList::Only(names)) => names,
    };
    let known: BTreeSet<&str> = catalog.nodes().map(|node| node.description.data_center.as_str()).collect();
    let unknown: Vec<&str> = names.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
    if !unknown.is_empty() {
        let known: Vec<&str> = known.into_iter().collect();
        return Err(invalid(format!(
            "Invalid value(s) for DATACENTERS '{}', All values must be valid datacenters. Valid datacenters: '{}'",
            unknown.join(", "),
            known.join(", ")
        )));
    }
    Ok(Some(Permitted::Only(names.iter().cloned().collect())))
}

/// The networks that the options name; `None`: they say nothing of it.
pub(super) fn cidrs(options: &RoleOptions) -> Result<Option<Permitted>, CqlError> {
    let names = match &options.cidrs {
        None => return Ok(None),
        Some(AccessList::All) => return Ok(Some(Permitted::All)),
        Some(AccessList::Only(names)) => names,
    };
    if names.len() > MAX_CIDRS {
        return Err(invalid(format!("a role has {} networks, at most {MAX_CIDRS} are allowed", names.len())));
    }
    let network = |name: &String| match name.parse::<Network>() {
        Ok(network) => Ok(network.to_string()),
        Err(error) => Err(invalid(format!("Invalid value for CIDRS '{name}': {error}; groups are not supported"))),
    };
    Ok(Some(Permitted::Only(names.iter().map(network).collect::<Result<_, _>>()?)))
}

/// As `LIST ROLES` shows it.
pub(super) fn shown(permitted: &Permitted) -> String {
    match permitted {
        Permitted::All => "ALL".to_owned(),
        Permitted::Only(names) => names.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}
