//! The permissions that statements need, and whether a role has them.
//!
//! Always true: a session remembers permitted access for one version of the catalog. Left out: statements about roles
//! ([`super::roles`]).

use crate::error::invalid;
use crate::plan::explain::Explained;
use crate::plan::modify::ModifyPlan;
use crate::plan::{Plan, Planned};
use crate::session::Session;
use crate::table::TableContext;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{Condition, DroppedObject, Modification, Permission, QualifiedName, Statement};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::Table;
use std::collections::BTreeSet;

/// All keyspaces.
pub const ALL_KEYSPACES: &str = "data";

/// All roles.
pub const ALL_ROLES: &str = "roles";

/// Keyspaces that every role that may log in can read: drivers read them first.
const READABLE: [&str; 3] = ["system", "system_schema", "system_virtual_schema"];

/// A permission that a statement needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The permission.
    pub permission: Permission,
    /// The resource.
    pub resource: String,
}

/// The resource of a keyspace.
pub fn keyspace_resource(keyspace: &str) -> String {
    format!("{ALL_KEYSPACES}/{keyspace}")
}

/// The resource of a table.
pub fn table_resource(keyspace: &str, table: &str) -> String {
    format!("{ALL_KEYSPACES}/{keyspace}/{table}")
}

/// The resource of a role.
pub fn role_resource(role: &str) -> String {
    format!("{ALL_ROLES}/{role}")
}

/// A resource as messages and `LIST PERMISSIONS` show it.
pub fn shown(resource: &str) -> String {
    let mut parts = resource.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(ALL_KEYSPACES), None, _) => "<all keyspaces>".to_owned(),
        (Some(ALL_KEYSPACES), Some(keyspace), None) => format!("<keyspace {keyspace}>"),
        (Some(ALL_KEYSPACES), Some(keyspace), Some(table)) => format!("<table {keyspace}.{table}>"),
        (Some(ALL_ROLES), None, _) => "<all roles>".to_owned(),
        (Some(ALL_ROLES), Some(role), _) => format!("<role {role}>"),
        _ => format!("<{resource}>"),
    }
}

/// Whether the session's role has a permission.
pub fn may(catalog: &Catalog, session: &Session, permission: Permission, resource: &str) -> bool {
    if session.is_trusted(catalog.version()) {
        return true;
    }
    let Some(role) = session.role() else { return false };
    if catalog.is_superuser(&role) {
        session.trust(catalog.version());
        return true;
    }
    catalog.may(&role, permission.name(), resource)
}

/// Refuses a session that lacks a permission.
pub fn require(catalog: &Catalog, session: &Session, needed: &Needed) -> Result<(), CqlError> {
    if may(catalog, session, needed.permission, &needed.resource) {
        return Ok(());
    }
    let role = session.role();
    let role = role.as_ref().map_or("anonymous", |role| role.as_str());
    let (permission, resource) = (needed.permission.name(), shown(&needed.resource));
    Err(CqlError::unauthorized(format!(
        "User {role} has no {permission} permission on {resource} or any of its parents"
    )))
}

/// The resource on which reads of a table need a permission: those of a materialized view need that on its table.
fn read_resource(catalog: &Catalog, table: &Table) -> String {
    let base = table.view.as_ref().and_then(|view| catalog.table_by_id(view.base));
    let Table { keyspace, name, .. } = base.map_or(table, |entry| &entry.table);
    table_resource(keyspace, name)
}

fn read_permission(catalog: &Catalog, table: &TableContext) -> Option<Needed> {
    let definition = table.table();
    let is_free = READABLE.contains(&definition.keyspace.as_str());
    let resource = read_resource(catalog, definition);
    (!is_free).then_some(Needed { permission: Permission::Select, resource })
}

fn write_permissions(plan: &ModifyPlan, needed: &mut Vec<Needed>) {
    let definition = plan.table.table();
    let resource = table_resource(&definition.keyspace, &definition.name);
    // A condition reveals stored values, so it needs permission to read as well.
    if plan.condition.is_some() {
        needed.push(Needed { permission: Permission::Select, resource: resource.clone() });
    }
    needed.push(Needed { permission: Permission::Modify, resource });
}

/// The permissions that a planned statement on rows needs.
pub fn needed_by(catalog: &Catalog, planned: &Planned) -> Vec<Needed> {
    let mut needed = Vec::new();
    match &planned.plan {
        Plan::Select(select) => needed.extend(read_permission(catalog, &select.table)),
        Plan::Modify(modify) => write_permissions(modify, &mut needed),
        Plan::Batch(batch) => batch.statements.iter().for_each(|modify| write_permissions(modify, &mut needed)),
        Plan::Block(block) => block.statements.iter().for_each(|modify| write_permissions(modify, &mut needed)),
        Plan::Explain(explain) => match &explain.of {
            Explained::Select(select) => needed.extend(read_permission(catalog, &select.table)),
            Explained::Modify(modify) => write_permissions(modify, &mut needed),
        },
        Plan::Use(_) | Plan::Definition(_) => {}
    }
    needed
}

/// The kind of access to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Read,
    Write,
}

/// The keyspace and name of a table; the session's keyspace if the name has none.
fn qualified<'n>(name: &'n QualifiedName, keyspace: Option<&'n str>) -> (&'n str, &'n str) {
    (name.keyspace.as_deref().or(keyspace).unwrap_or_default(), &name.name)
}

/// The statements of a batch or a transaction block.
fn modifications(statement: &Statement) -> &[Modification] {
    match statement {
        Statement::Batch(batch) => &batch.statements,
        Statement::Transaction(block) => &block.statements,
        _ => &[],
    }
}

/// Checks the tables that a statement on rows names, before the statement is planned: a role without permission on a
/// table must not cause work on it, nor learn which columns it has. The planner reports tables that do not exist.
pub fn check_parsed(
    catalog: &Catalog,
    session: &Session,
    keyspace: Option<&str>,
    statement: &Statement,
) -> Result<(), CqlError> {
    if session.is_trusted(catalog.version()) {
        return Ok(());
    }
    let statement = if let Statement::Explain(inner) = statement { inner } else { statement };
    let mut named = BTreeSet::new();
    let mut write = |name, condition: &Option<Condition>| {
        named.insert((qualified(name, keyspace), Access::Write));
        // A condition reveals stored values.
        if condition.is_some() {
            named.insert((qualified(name, keyspace), Access::Read));
        }
    };
    match statement {
        Statement::Insert(insert) => write(&insert.table, &insert.condition),
        Statement::Update(update) => write(&update.table, &update.condition),
        Statement::Delete(delete) => write(&delete.table, &delete.condition),
        Statement::Batch(_) | Statement::Transaction(_) => {
            modifications(statement).iter().for_each(|modification| match modification {
                Modification::Insert(insert) => write(&insert.table, &insert.condition),
                Modification::Update(update) => write(&update.table, &update.condition),
                Modification::Delete(delete) => write(&delete.table, &delete.condition),
            });
        }
        Statement::Select(select) => {
            named.insert((qualified(&select.from, keyspace), Access::Read));
        }
        _ => {}
    }
    for ((keyspace, table), access) in named {
        let permission = match access {
            Access::Read if READABLE.contains(&keyspace) => continue,
            Access::Read => Permission::Select,
            Access::Write => Permission::Modify,
        };
        if let Some(entry) = catalog.table(keyspace, table) {
            let resource = match access {
                Access::Read => read_resource(catalog, &entry.table),
                Access::Write => table_resource(keyspace, table),
            };
            require(catalog, session, &Needed { permission, resource })?;
        }
    }
    Ok(())
}

/// Checks a planned statement, and notes in the session that it was permitted.
pub fn check(catalog: &Catalog, session: &Session, planned: &Planned) -> Result<(), CqlError> {
    if session.is_trusted(catalog.version()) {
        return Ok(());
    }
    for needed in needed_by(catalog, planned) {
        require(catalog, session, &needed)?;
    }
    match &planned.plan {
        Plan::Select(select) => session.approve(catalog.version(), select.table.table().id, false),
        Plan::Modify(modify) if modify.condition.is_none() => {
            session.approve(catalog.version(), modify.table.table().id, true);
        }
        _ => {}
    }
    Ok(())
}

/// Checks a statement that defines something, uses a keyspace, or describes.
pub fn check_definition(
    catalog: &Catalog,
    session: &Session,
    keyspace: Option<&str>,
    statement: &Statement,
) -> Result<(), CqlError> {
    if session.is_trusted(catalog.version()) {
        return Ok(());
    }
    // The planner reports a name without a keyspace.
    let space = |name: &QualifiedName| name.keyspace.as_deref().or(keyspace).unwrap_or_default().to_owned();
    let table = |name: &QualifiedName| table_resource(&space(name), &name.name);
    // What a statement about a materialized view changes belongs to its table.
    let base = |name: &QualifiedName| match catalog.table(&space(name), &name.name) {
        Some(entry) => read_resource(catalog, &entry.table),
        None => keyspace_resource(&space(name)),
    };
    let (permission, resource) = match statement {
        Statement::Use(_) | Statement::Describe(_) => return logged_in(session),
        Statement::CreateKeyspace(_) => (Permission::Create, ALL_KEYSPACES.to_owned()),
        Statement::AlterKeyspace(alter) => (Permission::Alter, keyspace_resource(&alter.name)),
        Statement::CreateTable(create) => (Permission::Create, keyspace_resource(&space(&create.name))),
        Statement::AlterTable(alter) => (Permission::Alter, table(&alter.name)),
        Statement::Truncate(name) => (Permission::Modify, table(name)),
        Statement::CreateIndex(create) => (Permission::Alter, table(&create.table)),
        Statement::CreateMaterializedView(create) => {
            let keyspace = create.base.keyspace.clone().unwrap_or_else(|| space(&create.name));
            (Permission::Alter, table_resource(&keyspace, &create.base.name))
        }
        Statement::AlterMaterializedView(alter) => (Permission::Alter, base(&alter.name)),
        Statement::CreateType(create) => (Permission::Create, keyspace_resource(&space(&create.name))),
        Statement::AlterType(alter) => (Permission::Alter, keyspace_resource(&space(&alter.name))),
        Statement::Drop(drop) => match &drop.object {
            DroppedObject::Keyspace(name) => (Permission::Drop, keyspace_resource(name)),
            DroppedObject::Table(name) => (Permission::Drop, table(name)),
            DroppedObject::Type(name) => (Permission::Drop, keyspace_resource(&space(name))),
            DroppedObject::MaterializedView(name) => (Permission::Alter, base(name)),
            DroppedObject::Index(name) => {
                let keyspace = space(name);
                let mut tables = catalog.tables_in(&keyspace);
                match tables.find(|entry| entry.table.index(&name.name).is_some()) {
                    Some(entry) => (Permission::Alter, table_resource(&keyspace, &entry.table.name)),
                    None => (Permission::Alter, keyspace_resource(&keyspace)),
                }
            }
            _ => (Permission::Drop, ALL_KEYSPACES.to_owned()),
        },
        _ => (Permission::Create, ALL_KEYSPACES.to_owned()),
    };
    require(catalog, session, &Needed { permission, resource })
}

fn logged_in(session: &Session) -> Result<(), CqlError> {
    match session.role() {
        Some(_) => Ok(()),
        None => Err(CqlError::unauthorized("You have not logged in")),
    }
}

/// The resource that a statement creates, if its creator is granted permissions on it.
pub fn made_by(keyspace: Option<&str>, statement: &Statement) -> Option<String> {
    match statement {
        Statement::CreateKeyspace(create) => Some(keyspace_resource(&create.name)),
        Statement::CreateTable(create) => {
            let keyspace = create.name.keyspace.as_deref().or(keyspace)?;
            Some(table_resource(keyspace, &create.name.name))
        }
        _ => None,
    }
}

/// The permissions that exist on a resource.
pub fn applicable(resource: &str) -> Result<&'static [Permission], CqlError> {
    use Permission::{Alter, Authorize, Create, Describe, Drop, Modify, Select, SelectMasked, Unmask};
    let depth = resource.matches('/').count();
    match (resource.split('/').next(), depth) {
        // DESCRIBE on all keyspaces is the permission to look at the cluster over HTTP. Cassandra has no such
        // permission.
        (Some(ALL_KEYSPACES), 0) => {
            Ok(&[Create, Alter, Drop, Select, Modify, Authorize, Describe, Unmask, SelectMasked])
        }
        (Some(ALL_KEYSPACES), 1) => Ok(&[Create, Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked]),
        (Some(ALL_KEYSPACES), _) => Ok(&[Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked]),
        (Some(ALL_ROLES), 0) => Ok(&[Create, Alter, Drop, Authorize, Describe]),
        (Some(ALL_ROLES), _) => Ok(&[Alter, Drop, Authorize]),
        _ => Err(invalid(format!("there are no permissions on {resource}"))),
    }
}
