//! Roles: who may log in, what they may do, and whom they belong to.
//!
//! Permissions are held by the names that Cassandra gives resources: `data`, `data/<keyspace>`, `data/<keyspace>/<table>`, `roles`,
//! `roles/<role>`, and so on. A permission on a resource is one on all that is below it; a role has its own and those of all roles that it is
//! a member of, directly or not; a superuser has all.
//!
//! Always true: memberships have no circle; a role that is dropped is no longer a member of anything, nor has it any; what is dropped from
//! the schema takes the permissions on it along. Left out: passwords themselves (only their hashes come here), checks of statements
//! ([`Catalog::may`] answers them, the `query` crate asks).

use super::Catalog;
use super::apply::{Done, Rejected, Step};
use super::command::Rejection;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The first role, which founds the others.
pub const FIRST_SUPERUSER: &str = "cassandra";

/// A role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// It may do everything.
    pub is_superuser: bool,
    /// It may log in.
    pub can_login: bool,
    /// The hash of its password, in the PHC string format; without one nobody can log in as it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// Its password is the one that every new cluster has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_initial_password: bool,
    /// The roles that it is a direct member of.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub member_of: BTreeSet<String>,
    /// Resource → permissions that it was granted itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permissions: BTreeMap<String, BTreeSet<String>>,
}

/// A change of roles that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum RoleCommand {
    /// `CREATE ROLE`
    Create {
        /// The definition.
        role: Role,
        /// A role of that name is no error.
        if_not_exists: bool,
    },
    /// `ALTER ROLE`: what is absent stays.
    Alter {
        /// Which one.
        name: String,
        /// The new value.
        is_superuser: Option<bool>,
        /// The new value.
        can_login: Option<bool>,
        /// The hash of the new password.
        password_hash: Option<String>,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `DROP ROLE`
    Drop {
        /// Which one.
        name: String,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `GRANT role TO member`
    AddMember {
        /// The role.
        role: String,
        /// Who gets what it may do.
        member: String,
    },
    /// `REVOKE role FROM member`
    RemoveMember {
        /// The role.
        role: String,
        /// Who loses it.
        member: String,
    },
    /// `GRANT permissions ON resource TO role`
    Grant {
        /// Who.
        role: String,
        /// On what.
        resource: String,
        /// What.
        permissions: BTreeSet<String>,
    },
    /// `REVOKE permissions ON resource FROM role`
    Revoke {
        /// Who.
        role: String,
        /// On what.
        resource: String,
        /// What.
        permissions: BTreeSet<String>,
    },
}

fn no_such_role(name: &str) -> Rejected {
    Rejected(Rejection::Invalid, format!("{name} doesn't exist"))
}

/// A resource and all above it, nearest first.
fn chain(resource: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(resource), |resource| resource.rsplit_once('/').map(|(above, _)| above))
}

impl Catalog {
    /// The role called `name`.
    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.get(name)
    }

    /// All roles by name.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    /// A role and all that it is a member of, directly or not.
    pub fn roles_of<'c>(&'c self, name: &str) -> Vec<&'c Arc<Role>> {
        let mut found: Vec<&Arc<Role>> = self.roles.get(name).into_iter().collect();
        let mut known: BTreeSet<&str> = found.iter().map(|role| role.name.as_str()).collect();
        let mut next = 0;
        while let Some(role) = found.get(next).copied() {
            next += 1;
            for above in role.member_of.iter().filter_map(|name| self.roles.get(name)) {
                if known.insert(&above.name) {
                    found.push(above);
                }
            }
        }
        found
    }

    /// Whether a role may do everything.
    pub fn is_superuser(&self, name: &str) -> bool {
        self.roles_of(name).iter().any(|role| role.is_superuser)
    }

    /// Whether a role has a permission on a resource.
    pub fn may(&self, name: &str, permission: &str, resource: &str) -> bool {
        self.roles_of(name).iter().any(|role| {
            role.is_superuser
                || chain(resource)
                    .any(|resource| role.permissions.get(resource).is_some_and(|held| held.contains(permission)))
        })
    }

    /// Whether a superuser still has the password that every new cluster has, or there is no role at all yet.
    pub fn has_initial_password(&self) -> bool {
        self.roles.is_empty() || self.roles.values().any(|role| role.has_initial_password)
    }

    pub(super) fn change_roles(&mut self, command: &RoleCommand) -> Step {
        match command {
            RoleCommand::Create { role, if_not_exists } => match self.roles.contains_key(&role.name) {
                true if *if_not_exists => Ok(Done::Nothing),
                true => Err(Rejected(Rejection::AlreadyExists, format!("{} already exists", role.name))),
                false => self.put_role(role.clone()),
            },
            RoleCommand::Alter { name, is_superuser, can_login, password_hash, if_exists } => {
                let Some(role) = self.roles.get(name) else {
                    return if *if_exists { Ok(Done::Nothing) } else { Err(no_such_role(name)) };
                };
                let mut role = Role::clone(role);
                role.is_superuser = is_superuser.unwrap_or(role.is_superuser);
                role.can_login = can_login.unwrap_or(role.can_login);
                if let Some(hash) = password_hash {
                    role.password_hash = Some(hash.clone());
                    role.has_initial_password = false;
                }
                self.put_role(role)
            }
            RoleCommand::Drop { name, if_exists } => {
                if !self.roles.contains_key(name) {
                    return if *if_exists { Ok(Done::Nothing) } else { Err(no_such_role(name)) };
                }
                Arc::make_mut(&mut self.roles).remove(name);
                let resource = format!("roles/{name}");
                self.change_all_roles(|role| {
                    role.member_of.remove(name);
                    role.permissions.remove(&resource);
                });
                Ok(Done::Changed)
            }
            RoleCommand::AddMember { role, member } => self.add_member(role, member),
            RoleCommand::RemoveMember { role, member } => {
                let mut changed = self.existing_role(member)?;
                self.existing_role(role)?;
                if !changed.member_of.remove(role) {
                    return Err(Rejected(Rejection::Invalid, format!("{member} is not a member of {role}")));
                }
                self.put_role(changed)
            }
            RoleCommand::Grant { role, resource, permissions } => {
                let mut changed = self.existing_role(role)?;
                changed.permissions.entry(resource.clone()).or_default().extend(permissions.iter().cloned());
                self.put_role(changed)
            }
            RoleCommand::Revoke { role, resource, permissions } => {
                let mut changed = self.existing_role(role)?;
                if let Some(held) = changed.permissions.get_mut(resource) {
                    held.retain(|permission| !permissions.contains(permission));
                    if held.is_empty() {
                        changed.permissions.remove(resource);
                    }
                }
                self.put_role(changed)
            }
        }
    }

    fn existing_role(&self, name: &str) -> Result<Role, Rejected> {
        self.roles.get(name).map(|role| Role::clone(role)).ok_or_else(|| no_such_role(name))
    }

    fn add_member(&mut self, role: &str, member: &str) -> Step {
        let mut changed = self.existing_role(member)?;
        self.existing_role(role)?;
        let is_known = |of: &str, wanted: &str| self.roles_of(of).iter().any(|found| found.name == wanted);
        if is_known(role, member) {
            return Err(Rejected(Rejection::Invalid, format!("{role} is a member of {member}")));
        }
        if is_known(member, role) {
            return Err(Rejected(Rejection::Invalid, format!("{member} is already a member of {role}")));
        }
        changed.member_of.insert(role.to_owned());
        self.put_role(changed)
    }

    fn put_role(&mut self, role: Role) -> Step {
        if self.roles.get(&role.name).is_some_and(|known| **known == role) {
            return Ok(Done::Nothing);
        }
        Arc::make_mut(&mut self.roles).insert(role.name.clone(), Arc::new(role));
        Ok(Done::Changed)
    }

    fn change_all_roles(&mut self, change: impl Fn(&mut Role)) {
        let changed: Vec<Role> = self
            .roles
            .values()
            .filter_map(|role| {
                let mut changed = Role::clone(role);
                change(&mut changed);
                (changed != **role).then_some(changed)
            })
            .collect();
        for role in changed {
            Arc::make_mut(&mut self.roles).insert(role.name.clone(), Arc::new(role));
        }
    }

    /// Takes the permissions on a keyspace or table away, as it is dropped.
    pub(super) fn forget_permissions(&mut self, resource: &str) {
        let below = format!("{resource}/");
        self.change_all_roles(|role| {
            role.permissions.retain(|held, _| held != resource && !held.starts_with(&below));
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::super::{Command, Outcome};
    use super::*;

    fn role(name: &str) -> RoleCommand {
        let role = Role { name: name.to_owned(), can_login: true, ..Role::default() };
        RoleCommand::Create { role, if_not_exists: false }
    }

    fn applied(catalog: &Catalog, change: RoleCommand) -> Catalog {
        let command = Command::Roles { change };
        let (next, outcome) = catalog.apply(&Command::decode(&command.encode()).unwrap());
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        next
    }

    fn refused(catalog: &Catalog, change: RoleCommand) -> String {
        match catalog.apply(&Command::Roles { change }).1 {
            Outcome::Rejected { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    fn named(role: &str, member: &str) -> (String, String) {
        (role.to_owned(), member.to_owned())
    }

    fn grant(catalog: &Catalog, to: &str, permission: &str, on: &str) -> Catalog {
        let (role, resource) = named(to, on);
        applied(catalog, RoleCommand::Grant { role, resource, permissions: [permission.to_owned()].into() })
    }

    #[test]
    fn permissions_come_from_above_and_from_roles_that_one_belongs_to() {
        let mut catalog = Catalog::default();
        for name in ["reader", "writer", "ann"] {
            catalog = applied(&catalog, role(name));
        }
        catalog = grant(&catalog, "reader", "SELECT", "data/ks");
        let (role, member) = named("reader", "writer");
        catalog = applied(&catalog, RoleCommand::AddMember { role, member });
        let (role, member) = named("writer", "ann");
        catalog = applied(&catalog, RoleCommand::AddMember { role, member });
        assert!(catalog.may("ann", "SELECT", "data/ks/t"));
        assert!(!catalog.may("ann", "SELECT", "data/other/t"));
        assert!(!catalog.may("ann", "MODIFY", "data/ks/t"));
        assert!(!catalog.may("nobody", "SELECT", "data/ks/t"));
        let (role, member) = named("ann", "reader");
        assert_eq!(refused(&catalog, RoleCommand::AddMember { role, member }), "ann is a member of reader");

        let stored = catalog.puts_since(&Catalog::default());
        let loaded = Catalog::load(stored.into_iter().map(|(key, value)| (key, value.unwrap()))).unwrap();
        assert_eq!(loaded, catalog, "roles are stored with the rest");

        let dropped = applied(&catalog, RoleCommand::Drop { name: "reader".to_owned(), if_exists: false });
        assert!(!dropped.may("ann", "SELECT", "data/ks/t"));
        assert!(dropped.role("writer").unwrap().member_of.is_empty());
    }

    #[test]
    fn dropped_objects_take_their_permissions_along() {
        let mut catalog = grant(&applied(&Catalog::default(), role("ann")), "ann", "SELECT", "data/ks/t");
        catalog.forget_permissions("data/ks");
        assert!(!catalog.may("ann", "SELECT", "data/ks/t"));
    }

    #[test]
    fn a_new_password_ends_the_initial_one() {
        let first = Role {
            name: FIRST_SUPERUSER.to_owned(),
            has_initial_password: true,
            is_superuser: true,
            ..Role::default()
        };
        assert!(Catalog::default().has_initial_password());
        let catalog = applied(&Catalog::default(), RoleCommand::Create { role: first, if_not_exists: true });
        assert!(catalog.has_initial_password() && catalog.may(FIRST_SUPERUSER, "DROP", "data"));
        let alter = RoleCommand::Alter {
            name: FIRST_SUPERUSER.to_owned(),
            is_superuser: None,
            can_login: None,
            password_hash: Some("hash".to_owned()),
            if_exists: false,
        };
        assert!(!applied(&catalog, alter).has_initial_password());
    }
}
