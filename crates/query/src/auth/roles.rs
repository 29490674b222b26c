//! `CREATE`, `ALTER`, `DROP` and `LIST ROLES`, `GRANT`, `REVOKE`, `LIST PERMISSIONS`.
//!
//! Always true: rules and messages are Cassandra's: superusers are changed by superusers alone, anybody may change their own password, nobody may drop themselves,
//! and whoever grants a permission has it. Left out: `OPTIONS`, identities, passwords that the server
//! makes up.

use super::password;
use super::permissions::{
    ALL_KEYSPACES, ALL_ROLES, Needed, applicable, keyspace_resource, may, require, role_resource, shown, table_resource,
};
use super::reach;
use crate::error::{catalog_error, invalid, kv_error, not_supported, unreadable_outcome};
use crate::kv::Kv;
use crate::session::Session;
use diorite_base::{GroupId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, Outcome, Rejection, Role, RoleCommand, resource_and_above};
use diorite_cql::language::ast::{
    AlterRole, CreateRole, DropRole, ListPermissions, ListRoles, ListedRoles, Password, Permission, PermissionChange,
    PermissionSet, Resource, RoleMembership, RoleOptions, Statement,
};
use diorite_cql::protocol::{ColumnSpec, CqlError, NativeType, Response, ResultMetadata, Rows, TypeOption};
use diorite_model::value::collection;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether [`execute`] carries out the statement.
pub fn handles(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateRole(_)
            | Statement::AlterRole(_)
            | Statement::DropRole(_)
            | Statement::ListRoles(_)
            | Statement::GrantRole(_)
            | Statement::RevokeRole(_)
            | Statement::GrantPermissions(_)
            | Statement::RevokePermissions(_)
            | Statement::ListPermissions(_)
    )
}

/// Carries out a statement about roles; what it changes is to be known by `deadline_ns`.
pub async fn execute<K: Kv>(
    kv: &K,
    session: &Session,
    keyspace: Option<&str>,
    statement: &Statement,
    deadline_ns: Option<u64>,
) -> Result<Response, CqlError> {
    let catalog = kv.catalog();
    let asked = Asked { catalog: &catalog, session, keyspace };
    let change = match statement {
        Statement::ListRoles(list) => return asked.list_roles(list),
        Statement::ListPermissions(list) => return asked.list_permissions(list),
        // The permission is checked first, so that a role without it does not have a password hashed.
        Statement::CreateRole(create) => with_password(kv, asked.create(create)?, &create.options).await?,
        Statement::AlterRole(alter) => match asked.alter(alter)? {
            Some(change) => with_password(kv, change, &alter.options).await?,
            None => return Ok(Response::Void),
        },
        Statement::DropRole(drop) => asked.drop(drop)?,
        Statement::GrantRole(membership) => asked.membership(membership, true)?,
        Statement::RevokeRole(membership) => asked.membership(membership, false)?,
        Statement::GrantPermissions(change) => asked.permissions(change, true)?,
        Statement::RevokePermissions(change) => asked.permissions(change, false)?,
        other => return Err(not_supported(other.kind())),
    };
    propose(kv, change, deadline_ns).await?;
    Ok(Response::Void)
}

/// Proposes a change of roles to the catalog, which is to be known by `deadline_ns`.
pub async fn propose<K: Kv>(kv: &K, change: RoleCommand, deadline_ns: Option<u64>) -> Result<(), CqlError> {
    let reply = kv.change_catalog(&Command::Roles { change }, deadline_ns).await;
    let reply = reply.map_err(|error| catalog_error(kv, &error))?;
    match Outcome::decode(&reply).map_err(|error| unreadable_outcome(kv, &error))? {
        Outcome::Rejected { rejection: Rejection::AlreadyExists | Rejection::Invalid, message, .. } => {
            Err(invalid(message))
        }
        Outcome::Rejected { message, .. } => Err(CqlError::server(message)),
        _ => Ok(()),
    }
}

/// A statement's session, and the catalog that the statement is checked against.
struct Asked<'a> {
    catalog: &'a Catalog,
    session: &'a Session,
    keyspace: Option<&'a str>,
}

fn role_columns(names: &[(&str, TypeOption)]) -> Rows {
    let column = |(name, type_option): &(&str, TypeOption)| ColumnSpec {
        keyspace: "system_auth".to_owned(),
        table: "roles".to_owned(),
        name: (*name).to_owned(),
        type_option: type_option.clone(),
    };
    Rows::new(Arc::new(ResultMetadata::new(names.iter().map(column).collect())))
}

const TEXT: TypeOption = TypeOption::Native(NativeType::Varchar);
const BOOLEAN: TypeOption = TypeOption::Native(NativeType::Boolean);

fn refuse_options(options: &RoleOptions) -> Result<(), CqlError> {
    if options.custom.is_some() {
        return Err(not_supported("OPTIONS of a role"));
    }
    Ok(())
}

/// Adds the hash of the password that the options contain to a change of a role.
async fn with_password<K: Kv>(kv: &K, mut change: RoleCommand, options: &RoleOptions) -> Result<RoleCommand, CqlError> {
    let hashed = match &options.password {
        None => return Ok(change),
        Some(Password::Clear(text)) => {
            let text = text.clone();
            let hashed = kv.hash(move || password::hash(&text)).await;
            // Nothing has been proposed yet.
            hashed.map_err(|error| kv_error(&error, None, kv.replicas(TabletId(GroupId::CATALOG.0))))??
        }
        Some(Password::Hashed(hash)) => {
            password::check_hash(hash)?;
            hash.clone()
        }
        Some(Password::Generated) => return Err(not_supported("GENERATED PASSWORD")),
    };
    match &mut change {
        RoleCommand::Create { role, .. } => role.password_hash = Some(hashed),
        RoleCommand::Alter { password_hash, .. } => *password_hash = Some(hashed),
        _ => {}
    }
    Ok(change)
}

impl Asked<'_> {
    fn is_superuser(&self) -> bool {
        self.session.is_trusted(self.catalog.version())
            || self.session.role().is_some_and(|role| self.catalog.is_superuser(&role))
    }

    fn require(&self, permission: Permission, resource: String) -> Result<(), CqlError> {
        require(self.catalog, self.session, &Needed { permission, resource })
    }

    fn is_self(&self, name: &str) -> bool {
        self.session.role().is_some_and(|role| *role == name)
    }

    fn create(&self, create: &CreateRole) -> Result<RoleCommand, CqlError> {
        self.require(Permission::Create, ALL_ROLES.to_owned())?;
        let options = &create.options;
        refuse_options(options)?;
        if create.name.is_empty() {
            return Err(invalid("Role name can't be an empty string"));
        }
        if options.superuser == Some(true) && !self.is_superuser() {
            return Err(CqlError::unauthorized("Only superusers can create a role with superuser status"));
        }
        if !create.if_not_exists && self.catalog.role(&create.name).is_some() {
            return Err(invalid(format!("{} already exists", create.name)));
        }
        let role = Role {
            name: create.name.clone(),
            is_superuser: options.superuser.unwrap_or(false),
            can_login: options.login.unwrap_or(false),
            datacenters: reach::datacenters(self.catalog, options)?.unwrap_or_default(),
            cidrs: reach::cidrs(options)?.unwrap_or_default(),
            ..Role::default()
        };
        Ok(RoleCommand::Create { role, if_not_exists: create.if_not_exists })
    }

    fn alter(&self, alter: &AlterRole) -> Result<Option<RoleCommand>, CqlError> {
        let (name, options) = (&alter.name, &alter.options);
        refuse_options(options)?;
        let Some(role) = self.catalog.role(name) else {
            return if alter.if_exists { Ok(None) } else { Err(invalid(format!("{name} doesn't exist"))) };
        };
        let is_superuser = self.is_superuser();
        if options.superuser.is_some() && !is_superuser {
            return Err(CqlError::unauthorized("Only superusers are allowed to alter superuser status"));
        }
        if options.datacenters.is_some() && !is_superuser {
            return Err(CqlError::unauthorized("Only superusers are allowed to alter access to datacenters."));
        }
        if options.cidrs.is_some() && !is_superuser {
            return Err(CqlError::unauthorized("Only superusers are allowed to alter access from CIDRs."));
        }
        let belongs =
            self.session.role().is_some_and(|own| self.catalog.roles_of(&own).iter().any(|known| known.name == *name));
        if options.superuser.is_some() && belongs && !self.session.is_open() {
            return Err(CqlError::unauthorized(
                "You aren't allowed to alter your own superuser status or that of a role granted to you",
            ));
        }
        if role.is_superuser && !is_superuser {
            return Err(CqlError::unauthorized("Only superusers can alter a role with superuser status"));
        }
        let only_password = options.login.is_none() && options.superuser.is_none();
        if !(self.is_self(name) && only_password) {
            self.require(Permission::Alter, role_resource(name))?;
        }
        Ok(Some(RoleCommand::Alter {
            name: name.clone(),
            is_superuser: options.superuser,
            can_login: options.login,
            password_hash: None,
            datacenters: reach::datacenters(self.catalog, options)?,
            cidrs: reach::cidrs(options)?,
            if_exists: alter.if_exists,
        }))
    }

    fn drop(&self, drop: &DropRole) -> Result<RoleCommand, CqlError> {
        self.require(Permission::Drop, role_resource(&drop.name))?;
        if self.is_self(&drop.name) {
            return Err(invalid("Cannot DROP primary role for current login"));
        }
        if self.catalog.role(&drop.name).is_some_and(|role| role.is_superuser) && !self.is_superuser() {
            return Err(CqlError::unauthorized("Only superusers can drop a role with superuser status"));
        }
        Ok(RoleCommand::Drop { name: drop.name.clone(), if_exists: drop.if_exists })
    }

    fn membership(&self, membership: &RoleMembership, is_grant: bool) -> Result<RoleCommand, CqlError> {
        self.require(Permission::Authorize, role_resource(&membership.role))?;
        let (role, member) = (membership.role.clone(), membership.member.clone());
        Ok(match is_grant {
            true => RoleCommand::AddMember { role, member },
            false => RoleCommand::RemoveMember { role, member },
        })
    }

    /// The name of a resource, which must exist.
    fn resource(&self, resource: &Resource) -> Result<String, CqlError> {
        let missing = |what: &str| Err(invalid(format!("Resource {what} doesn't exist")));
        let keyspace_exists =
            |name: &str| self.catalog.keyspace(name).is_some() || crate::system::keyspace(name).is_some();
        match resource {
            Resource::AllKeyspaces => Ok(ALL_KEYSPACES.to_owned()),
            Resource::Keyspace(name) | Resource::AllTables(name) if keyspace_exists(name) => {
                Ok(keyspace_resource(name))
            }
            Resource::Keyspace(name) | Resource::AllTables(name) => missing(&shown(&keyspace_resource(name))),
            Resource::Table(name) => {
                let keyspace = name.keyspace.as_deref().or(self.keyspace).ok_or_else(|| {
                    invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
                })?;
                let resource = table_resource(keyspace, &name.name);
                let exists = self.catalog.table(keyspace, &name.name).is_some()
                    || crate::system::table(keyspace, &name.name).is_some();
                if exists { Ok(resource) } else { missing(&shown(&resource)) }
            }
            Resource::AllRoles => Ok(ALL_ROLES.to_owned()),
            Resource::Role(name) if self.catalog.role(name).is_some() => Ok(role_resource(name)),
            Resource::Role(name) => missing(&shown(&role_resource(name))),
            Resource::AllFunctions | Resource::AllFunctionsIn(_) | Resource::Function(_) => {
                Err(not_supported("a permission on functions"))
            }
            Resource::AllMbeans | Resource::Mbeans(_) | Resource::Mbean(_) => {
                Err(not_supported("a permission on MBeans"))
            }
        }
    }

    fn permissions(&self, change: &PermissionChange, is_grant: bool) -> Result<RoleCommand, CqlError> {
        let resource = self.resource(&change.resource)?;
        let there = applicable(&resource)?;
        self.require(Permission::Authorize, resource.clone())?;
        let wanted: Vec<Permission> = match &change.permissions {
            PermissionSet::All => {
                let has = |permission: &&Permission| may(self.catalog, self.session, **permission, &resource);
                there.iter().filter(has).copied().collect()
            }
            PermissionSet::Only(permissions) => {
                if let Some(other) = permissions.iter().find(|permission| !there.contains(permission)) {
                    return Err(invalid(format!(
                        "Resource {} does not support the permission {}",
                        shown(&resource),
                        other.name()
                    )));
                }
                for permission in permissions {
                    self.require(*permission, resource.clone())?;
                }
                permissions.clone()
            }
        };
        if self.catalog.role(&change.role).is_none() {
            return Err(invalid(format!("{} doesn't exist", change.role)));
        }
        let permissions: BTreeSet<String> = wanted.iter().map(|permission| permission.name().to_owned()).collect();
        let role = change.role.clone();
        Ok(match is_grant {
            true => RoleCommand::Grant { role, resource, permissions },
            false => RoleCommand::Revoke { role, resource, permissions },
        })
    }

    fn list_roles(&self, list: &ListRoles) -> Result<Response, CqlError> {
        let sees_all = may(self.catalog, self.session, Permission::Describe, ALL_ROLES);
        let own = self.session.role();
        let of = match (&list.of, &own) {
            (Some(of), _) => {
                if self.catalog.role(of).is_none() {
                    return Err(invalid(format!("{of} doesn't exist")));
                }
                let is_own =
                    own.as_ref().is_some_and(|own| self.catalog.roles_of(own).iter().any(|role| role.name == *of));
                if !sees_all && !is_own {
                    return Err(CqlError::unauthorized(format!(
                        "You are not authorized to view roles granted to {of} "
                    )));
                }
                Some(of.clone())
            }
            (None, Some(own)) if !sees_all => Some(own.as_str().to_owned()),
            _ => None,
        };
        let mut found: Vec<&Arc<Role>> = match &of {
            None => self.catalog.roles().collect(),
            Some(of) if list.no_recursive => {
                let direct = self.catalog.role(of).map(|role| role.member_of.clone()).unwrap_or_default();
                direct.iter().filter_map(|name| self.catalog.role(name)).collect()
            }
            Some(of) => self.catalog.roles_of(of),
        };
        found.sort_by(|one, other| one.name.cmp(&other.name));
        match list.kind {
            ListedRoles::Roles => {}
            ListedRoles::Users => found.retain(|role| role.can_login),
            ListedRoles::Superusers => found.retain(|role| self.catalog.is_superuser(&role.name)),
        }
        let is_roles = list.kind == ListedRoles::Roles;
        let options = TypeOption::Map(Box::new(TEXT), Box::new(TEXT));
        let mut rows = match is_roles {
            true => role_columns(&[
                ("role", TEXT),
                ("super", BOOLEAN),
                ("login", BOOLEAN),
                ("options", options),
                ("datacenters", TEXT),
            ]),
            false => role_columns(&[("name", TEXT), ("super", BOOLEAN), ("datacenters", TEXT)]),
        };
        let mut empty_map = Vec::new();
        collection::push_count(0, &mut empty_map);
        for role in found {
            let flag = |is_set: bool| Some(if is_set { &[1u8][..] } else { &[0u8][..] });
            let superuser = flag(self.catalog.is_superuser(&role.name));
            let datacenters = reach::shown(&role.datacenters);
            let (name, datacenters) = (Some(role.name.as_bytes()), Some(datacenters.as_bytes()));
            match is_roles {
                true => rows.push_row([name, superuser, flag(role.can_login), Some(&empty_map[..]), datacenters]),
                false => rows.push_row([name, superuser, datacenters]),
            }
        }
        Ok(Response::Rows(rows))
    }

    fn list_permissions(&self, list: &ListPermissions) -> Result<Response, CqlError> {
        let resource = list.resource.as_ref().map(|resource| self.resource(resource)).transpose()?;
        let own = self.session.role();
        if let Some(of) = &list.of
            && self.catalog.role(of).is_none()
        {
            return Err(invalid(format!("{of} doesn't exist")));
        }
        let is_own = |of: &String| {
            own.as_ref().is_some_and(|own| self.catalog.roles_of(own).iter().any(|role| role.name == *of))
        };
        if !self.is_superuser() && !list.of.as_ref().is_some_and(is_own) {
            let of = list.of.as_deref().unwrap_or("everyone");
            return Err(CqlError::unauthorized(format!("You are not authorized to view {of}'s permissions")));
        }
        let is_wanted = |permission: &String| match &list.permissions {
            PermissionSet::All => true,
            PermissionSet::Only(wanted) => wanted.iter().any(|wanted| wanted.name() == permission),
        };
        // A permission on a resource above is a permission on this one too, unless only the resource's own permissions
        // are asked for.
        let is_about = |held: &str| match &resource {
            None => true,
            Some(resource) if list.no_recursive => held == resource,
            Some(resource) => resource_and_above(resource).any(|above| above == held),
        };
        let roles: Vec<&Arc<Role>> = match &list.of {
            Some(of) if list.no_recursive => self.catalog.role(of).into_iter().collect(),
            Some(of) => self.catalog.roles_of(of),
            None => self.catalog.roles().collect(),
        };
        let mut rows = role_columns(&[("role", TEXT), ("username", TEXT), ("resource", TEXT), ("permission", TEXT)]);
        for role in roles {
            for (held, permissions) in role.permissions.iter().filter(|(held, _)| is_about(held)) {
                let resource = shown(held);
                for permission in permissions.iter().filter(|permission| is_wanted(permission)) {
                    let name = Some(role.name.as_bytes());
                    rows.push_row([name, name, Some(resource.as_bytes()), Some(permission.as_bytes())]);
                }
            }
        }
        Ok(Response::Rows(rows))
    }
}

/// Grants the creator of an object all permissions on it, as Cassandra does.
pub async fn grant_to_maker<K: Kv>(
    kv: &K,
    session: &Session,
    resource: &str,
    deadline_ns: Option<u64>,
) -> Result<(), CqlError> {
    let Some(role) = session.role() else { return Ok(()) };
    let permissions = applicable(resource)?.iter().map(|permission| permission.name().to_owned()).collect();
    let role = role.as_str().to_owned();
    propose(kv, RoleCommand::Grant { role, resource: resource.to_owned(), permissions }, deadline_ns).await
}
