//! Groups of networks with names, which roles name in `ACCESS FROM CIDRS`.
//!
//! Always true: a group that a role names exists, so a role is not shut out because a group was forgotten: one that is
//! named is not dropped. A group has at least one network. Left out: connections that a change shuts out, which each
//! node ends.

use super::cidr_group::{CidrGroup, CidrIndex, is_group_name, is_valid_name};
use super::outcome::Rejection;
use super::reach::{Network, Permitted};
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use diorite_base::limits;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Roles, or groups, that a message names.
const NAMED: usize = 16;

fn invalid(message: String) -> Rejected {
    Rejected(Rejection::Invalid, message)
}

/// The first names, and how many there are beside them.
fn named<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let all: Vec<&str> = names.collect();
    let first = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{first} and {} others", all.len() - NAMED) } else { first }
}

pub(super) fn set(catalog: &mut Catalog, name: &str, cidrs: &BTreeSet<Network>) -> Step {
    if !is_valid_name(name) {
        return Err(invalid(
            "the name of a CIDR group is up to 64 letters, digits, '_', '-' and '.', and begins with a letter, a digit or '_'"
                .to_owned(),
        ));
    }
    if cidrs.is_empty() {
        return Err(invalid(format!("CIDR group {name} would have no network: drop it instead")));
    }
    let group = CidrGroup { cidrs: cidrs.clone() };
    match catalog.cidr_groups.get(name) {
        Some(known) if **known == group => return Ok(Done::Nothing),
        Some(_) => {}
        None => {
            limits::check(&limits::CIDR_GROUPS, catalog.cidr_groups.len() + 1, || "a set of CIDR groups".to_owned())?
        }
    }
    Arc::make_mut(&mut catalog.cidr_groups).insert(name.to_owned(), Arc::new(group));
    index(catalog);
    Ok(Done::Changed)
}

pub(super) fn drop_group(catalog: &mut Catalog, name: &str) -> Step {
    if !catalog.cidr_groups.contains_key(name) {
        return Err(Rejected(Rejection::NoSuchCidrGroup, format!("there is no CIDR group '{name}'")));
    }
    let users = catalog.roles.values().filter(|role| !role.cidrs.is_all() && role.cidrs.has(name));
    let users = named(users.map(|role| role.name.as_str()));
    if !users.is_empty() {
        let message = format!("CIDR group {name} is used by roles: {users}; alter their ACCESS FROM CIDRS first");
        return Err(Rejected(Rejection::InUse, message));
    }
    Arc::make_mut(&mut catalog.cidr_groups).remove(name);
    index(catalog);
    Ok(Done::Changed)
}

/// Computes anew what depends on the groups.
pub(super) fn index(catalog: &mut Catalog) {
    catalog.cidr_index = Arc::new(CidrIndex::of(catalog.cidr_groups.iter().map(|(name, group)| (name, &**group))));
}

/// Checks that the groups exist from which a role is to be permitted to connect.
pub(super) fn check_known(catalog: &Catalog, cidrs: &Permitted) -> Result<(), Rejected> {
    let Permitted::Only(names) = cidrs else { return Ok(()) };
    let is_unknown = |name: &&str| is_group_name(name) && !catalog.cidr_groups.contains_key(*name);
    let unknown = named(names.iter().map(String::as_str).filter(is_unknown));
    if unknown.is_empty() {
        return Ok(());
    }
    // The words are Cassandra's.
    let known = named(catalog.cidr_groups.keys().map(String::as_str));
    Err(invalid(format!("Invalid CIDR group(s): [{unknown}]. Available CIDR Groups are: [{known}]")))
}
