//! `CREATE TYPE`, `ALTER TYPE`, `DROP TYPE`.
//!
//! Always true: a type's fields are only ever added to or renamed, so that stored values stay readable.

use super::context::{Context, Plan};
use super::names::{check_column_name, check_name, no_such_keyspace, no_such_type, writable_keyspace};
use super::type_names::{Mentioned, resolve_type};
use crate::error::{exceeded, invalid};
use diorite_base::limits;
use diorite_cluster::catalog::Command;
use diorite_cql::language::ast::{AlterType, CreateType, QualifiedName, TypeChange};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, SchemaTarget};
use diorite_model::types::{CqlType, Frozen, UserType};
use std::collections::{HashMap, HashSet};

pub(super) fn create(context: &Context<'_>, create: &CreateType) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, &create.name)?;
    let name = &create.name.name;
    if context.catalog.keyspace(keyspace).is_none() {
        return Err(no_such_keyspace(keyspace));
    }
    check_name("Type", name)?;
    if context.catalog.user_type(keyspace, name).is_some() {
        if create.if_not_exists {
            return Ok(Plan::nothing());
        }
        return Err(invalid(format!("A user type with name '{name}' already exists")));
    }
    limits::check(&limits::TYPE_PARTS, create.fields.len(), || format!("type {name}")).map_err(exceeded)?;
    let (mut known, mut mentioned) = (HashSet::with_capacity(create.fields.len()), Mentioned::default());
    let mut user_type = UserType { keyspace: keyspace.to_owned(), name: name.clone(), fields: Vec::new() };
    for (field, data_type) in &create.fields {
        check_column_name("Field", field)?;
        if !known.insert(field) {
            return Err(invalid(format!("Duplicate field name '{field}' in type '{name}'")));
        }
        let data_type = mentioned.resolve(context.catalog, keyspace, data_type)?;
        let data_type = field_type(name, field, data_type)?;
        user_type.fields.push((field.clone(), data_type));
    }
    let command = Command::CreateType { user_type, if_not_exists: create.if_not_exists };
    Ok(Plan::propose(command, SchemaChangeType::Created, target(keyspace, name)))
}

fn target(keyspace: &str, name: &str) -> SchemaTarget {
    SchemaTarget::Type { keyspace: keyspace.to_owned(), name: name.to_owned() }
}

fn field_type(name: &str, field: &str, data_type: CqlType) -> Result<CqlType, CqlError> {
    match data_type {
        CqlType::Counter => Err(invalid(format!("A user type cannot contain counters: {name}.{field}"))),
        CqlType::UserDefined(_, Frozen::No) => {
            Err(invalid(format!("A user type cannot contain non-frozen UDTs: {name}.{field}")))
        }
        resolved => Ok(resolved),
    }
}

pub(super) fn alter(context: &Context<'_>, alter: &AlterType) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, &alter.name)?;
    let name = &alter.name.name;
    let Some(current) = context.catalog.user_type(keyspace, name) else {
        return if alter.if_exists { Ok(Plan::nothing()) } else { Err(no_such_type(keyspace, name)) };
    };
    let mut changed = UserType::clone(current);
    let position = |fields: &[(String, CqlType)], wanted: &str| fields.iter().position(|(known, _)| known == wanted);
    match &alter.change {
        TypeChange::Add { if_not_exists, field, data_type } => match position(&changed.fields, field) {
            Some(_) if *if_not_exists => {}
            Some(_) => {
                let message = format!(
                    "Cannot add field {field} to type {keyspace}.{name}: a field with name {field} already exists"
                );
                return Err(invalid(message));
            }
            None => {
                check_column_name("Field", field)?;
                let data_type = resolve_type(context.catalog, keyspace, data_type)?;
                let data_type = field_type(name, field, data_type)?;
                changed.fields.push((field.clone(), data_type));
            }
        },
        TypeChange::Rename { if_exists, fields } => {
            let names = changed.fields.iter().map(|(name, _)| name.clone());
            let mut positions: HashMap<String, usize> = names.zip(0..).collect();
            for (old, new) in fields {
                check_column_name("Field", new)?;
                match positions.get(old).copied() {
                    None if *if_exists => {}
                    None => {
                        let message = format!("Unknown field {old} in user type {keyspace}.{name}");
                        return Err(invalid(message));
                    }
                    Some(_) if positions.contains_key(new) => {
                        return Err(invalid(format!("Duplicate field name {new} in type {keyspace}.{name}")));
                    }
                    Some(at) => {
                        positions.remove(old);
                        positions.insert(new.clone(), at);
                        changed.fields[at].0.clone_from(new);
                    }
                }
            }
        }
        TypeChange::AlterType { .. } => return Err(invalid("Altering field types is no longer supported")),
    }
    if changed == **current {
        return Ok(Plan::nothing());
    }
    let command = Command::AlterType { expected: UserType::clone(current), changed };
    Ok(Plan::propose(command, SchemaChangeType::Updated, target(keyspace, name)))
}

pub(super) fn drop(context: &Context<'_>, name: &QualifiedName, if_exists: bool) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, name)?;
    if context.catalog.user_type(keyspace, &name.name).is_none() {
        return if if_exists { Ok(Plan::nothing()) } else { Err(no_such_type(keyspace, &name.name)) };
    }
    let command = Command::DropType { keyspace: keyspace.to_owned(), name: name.name.clone(), if_exists };
    Ok(Plan::propose(command, SchemaChangeType::Dropped, target(keyspace, &name.name)))
}
