//! `ACCESS TO DATACENTERS` and `ACCESS FROM CIDRS` of a role.
//!
//! Always true: a data centre and a group of networks exist when they are named, and a network can be read; so a role
//! is not shut out by a slip of the pen. Left out: whether a group exists, which the catalog checks when it makes the
//! change; checking a client by them, which the node does when it logs in; changing groups, which operators do.

use crate::error::invalid;
use diorite_cluster::catalog::{Catalog, Network, Permitted, is_group_name};
use diorite_cql::language::ast::{AccessList, RoleOptions};
use diorite_cql::protocol::CqlError;
use std::collections::BTreeSet;

/// The most networks and groups of networks that one role may have.
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

/// The networks and groups of networks that the options name; `None`: they say nothing of it.
pub(super) fn cidrs(options: &RoleOptions) -> Result<Option<Permitted>, CqlError> {
    let names = match &options.cidrs {
        None => return Ok(None),
        Some(AccessList::All) => return Ok(Some(Permitted::All)),
        Some(AccessList::Only(names)) => names,
    };
    if names.len() > MAX_CIDRS {
        return Err(invalid(format!(
            "a role has {} networks and groups of them, at most {MAX_CIDRS} are allowed",
            names.len()
        )));
    }
    let network = |name: &String| match name.parse::<Network>() {
        Ok(network) => Ok(network.to_string()),
        Err(_) if is_group_name(name) => Ok(name.clone()),
        Err(error) => Err(invalid(format!("Invalid value for CIDRS '{name}': {error}"))),
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
