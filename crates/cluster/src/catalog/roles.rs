//! Roles: which of them may log in, their permissions, and their memberships.
//!
//! Permissions are held by Cassandra's names of resources: `data`, `data/<keyspace>`, `data/<keyspace>/<table>`,
//! `roles`, `roles/<role>`, and so on. A permission on a resource includes all resources below it. A role has its own
//! permissions and those of all roles that it is a member of, directly or not; a superuser has all permissions.
//!
//! Always true: memberships form no cycle; a dropped role is no longer a member of any role, and has no members;
//! permissions on a dropped object of the schema are removed with it. Left out: passwords (the catalog stores only
//! hashes), and the checks of statements (the `query` crate's, by [`Catalog::may`]).

use super::cidr_groups;
use super::outcome::Rejection;
use super::role::{Role, RoleCommand};
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use std::sync::Arc;

fn no_such_role(name: &str) -> Rejected {
    Rejected(Rejection::Invalid, format!("{name} doesn't exist"))
}

pub(super) fn change_roles(catalog: &mut Catalog, command: &RoleCommand) -> Step {
    match command {
        RoleCommand::Create { role, if_not_exists } => match catalog.roles.contains_key(&role.name) {
            true if *if_not_exists => Ok(Done::Nothing),
            true => Err(Rejected(Rejection::AlreadyExists, format!("{} already exists", role.name))),
            false => {
                cidr_groups::check_known(catalog, &role.cidrs)?;
                put_role(catalog, role.clone())
            }
        },
        RoleCommand::Alter { name, is_superuser, can_login, password_hash, datacenters, cidrs, if_exists } => {
            let Some(role) = catalog.roles.get(name) else {
                return if *if_exists { Ok(Done::Nothing) } else { Err(no_such_role(name)) };
            };
            let mut role = Role::clone(role);
            role.is_superuser = is_superuser.unwrap_or(role.is_superuser);
            role.can_login = can_login.unwrap_or(role.can_login);
            role.datacenters = datacenters.clone().unwrap_or(role.datacenters);
            if let Some(cidrs) = cidrs {
                cidr_groups::check_known(catalog, cidrs)?;
                role.cidrs = cidrs.clone();
            }
            if let Some(hash) = password_hash {
                role.password_hash = Some(hash.clone());
                role.has_initial_password = false;
            }
            put_role(catalog, role)
        }
        RoleCommand::Drop { name, if_exists } => {
            if !catalog.roles.contains_key(name) {
                return if *if_exists { Ok(Done::Nothing) } else { Err(no_such_role(name)) };
            }
            Arc::make_mut(&mut catalog.roles).remove(name);
            let resource = format!("roles/{name}");
            change_all_roles(catalog, |role| {
                role.member_of.remove(name);
                role.permissions.remove(&resource);
            });
            Ok(Done::Changed)
        }
        RoleCommand::AddMember { role, member } => add_member(catalog, role, member),
        RoleCommand::RemoveMember { role, member } => {
            let mut changed = existing_role(catalog, member)?;
            existing_role(catalog, role)?;
            if !changed.member_of.remove(role) {
                return Err(Rejected(Rejection::Invalid, format!("{member} is not a member of {role}")));
            }
            put_role(catalog, changed)
        }
        RoleCommand::Grant { role, resource, permissions } => {
            let mut changed = existing_role(catalog, role)?;
            changed.permissions.entry(resource.clone()).or_default().extend(permissions.iter().cloned());
            put_role(catalog, changed)
        }
        RoleCommand::Revoke { role, resource, permissions } => {
            let mut changed = existing_role(catalog, role)?;
            if let Some(held) = changed.permissions.get_mut(resource) {
                held.retain(|permission| !permissions.contains(permission));
                if held.is_empty() {
                    changed.permissions.remove(resource);
                }
            }
            put_role(catalog, changed)
        }
    }
}

fn existing_role(catalog: &Catalog, name: &str) -> Result<Role, Rejected> {
    catalog.roles.get(name).map(|role| Role::clone(role)).ok_or_else(|| no_such_role(name))
}

fn add_member(catalog: &mut Catalog, role: &str, member: &str) -> Step {
    let mut changed = existing_role(catalog, member)?;
    existing_role(catalog, role)?;
    let is_known = |of: &str, wanted: &str| catalog.roles_of(of).iter().any(|found| found.name == wanted);
    if is_known(role, member) {
        return Err(Rejected(Rejection::Invalid, format!("{role} is a member of {member}")));
    }
    if is_known(member, role) {
        return Err(Rejected(Rejection::Invalid, format!("{member} is already a member of {role}")));
    }
    changed.member_of.insert(role.to_owned());
    put_role(catalog, changed)
}

fn put_role(catalog: &mut Catalog, role: Role) -> Step {
    if catalog.roles.get(&role.name).is_some_and(|known| **known == role) {
        return Ok(Done::Nothing);
    }
    Arc::make_mut(&mut catalog.roles).insert(role.name.clone(), Arc::new(role));
    Ok(Done::Changed)
}

fn change_all_roles(catalog: &mut Catalog, change: impl Fn(&mut Role)) {
    let changed: Vec<Role> = catalog
        .roles
        .values()
        .filter_map(|role| {
            let mut changed = Role::clone(role);
            change(&mut changed);
            (changed != **role).then_some(changed)
        })
        .collect();
    for role in changed {
        Arc::make_mut(&mut catalog.roles).insert(role.name.clone(), Arc::new(role));
    }
}

/// Removes all permissions on a keyspace or table that is dropped.
pub(super) fn forget_permissions(catalog: &mut Catalog, resource: &str) {
    let below = format!("{resource}/");
    change_all_roles(catalog, |role| {
        role.permissions.retain(|held, _| held != resource && !held.starts_with(&below));
    });
}
