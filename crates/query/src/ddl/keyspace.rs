//! `USE` and the definition of keyspaces.
//!
//! Replication options are checked and remembered, as clients show them and later copy them; how many replicas a tablet has is the
//! cluster's to say. `durable_writes` is remembered; every write is durable.

use super::names::{check_name, check_writable, is_reserved_keyspace, no_such_keyspace};
use super::{Context, Plan, text};
use crate::error::invalid;
use diorite_cluster::catalog::Command;
use diorite_cql::language::ast::{AlterKeyspace, CreateKeyspace, Property, PropertyValue};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, Response, SchemaTarget};
use diorite_model::schema::Keyspace;
use std::collections::BTreeMap;

const SIMPLE: &str = "SimpleStrategy";
const BY_DATA_CENTER: &str = "NetworkTopologyStrategy";
const PACKAGE: &str = "org.apache.cassandra.locator.";

pub(super) fn use_keyspace(context: &Context<'_>, name: &str) -> Result<Plan, CqlError> {
    if context.catalog.keyspace(name).is_none() && !is_reserved_keyspace(name) {
        return Err(invalid(format!("Keyspace '{name}' does not exist")));
    }
    Ok(Plan::Answer(Response::SetKeyspace(name.to_owned())))
}

pub(super) fn create(context: &Context<'_>, create: &CreateKeyspace) -> Result<Plan, CqlError> {
    let name = &create.name;
    check_writable(name)?;
    check_name("Keyspace", name)?;
    if context.catalog.keyspace(name).is_some() {
        if create.if_not_exists {
            return Ok(Plan::nothing());
        }
        return Err(CqlError::already_exists(name, ""));
    }
    let options = Options::read(context, name, &create.properties)?;
    let replication = options.replication.unwrap_or_else(|| {
        let entries = [("class", format!("{PACKAGE}{SIMPLE}")), ("replication_factor", "1".to_owned())];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    });
    let durable_writes = options.durable_writes.unwrap_or(true);
    let keyspace = Keyspace { name: name.clone(), replication, durable_writes };
    let command = Command::CreateKeyspace { keyspace, if_not_exists: create.if_not_exists };
    Ok(Plan::propose(command, SchemaChangeType::Created, SchemaTarget::Keyspace(name.clone())))
}

pub(super) fn alter(context: &Context<'_>, alter: &AlterKeyspace) -> Result<Plan, CqlError> {
    let name = &alter.name;
    check_writable(name)?;
    if context.catalog.keyspace(name).is_none() {
        return if alter.if_exists { Ok(Plan::nothing()) } else { Err(no_such_keyspace(name)) };
    }
    let Options { replication, durable_writes } = Options::read(context, name, &alter.properties)?;
    let command =
        Command::AlterKeyspace { name: name.clone(), replication, durable_writes, if_exists: alter.if_exists };
    Ok(Plan::propose(command, SchemaChangeType::Updated, SchemaTarget::Keyspace(name.clone())))
}

pub(super) fn drop(context: &Context<'_>, name: &str, if_exists: bool) -> Result<Plan, CqlError> {
    check_writable(name)?;
    if context.catalog.keyspace(name).is_none() {
        return if if_exists { Ok(Plan::nothing()) } else { Err(no_such_keyspace(name)) };
    }
    let command = Command::DropKeyspace { name: name.to_owned(), if_exists };
    Ok(Plan::propose(command, SchemaChangeType::Dropped, SchemaTarget::Keyspace(name.to_owned())))
}

/// A keyspace's options, checked.
struct Options {
    replication: Option<BTreeMap<String, String>>,
    durable_writes: Option<bool>,
}

impl Options {
    fn read(context: &Context<'_>, keyspace: &str, properties: &[Property]) -> Result<Self, CqlError> {
        let mut options = Options { replication: None, durable_writes: None };
        for property in properties {
            let twice = match property.name.as_str() {
                "replication" => {
                    options.replication.replace(replication(context, keyspace, &property.value)?).is_some()
                }
                "durable_writes" => options.durable_writes.replace(durable_writes(&property.value)?).is_some(),
                unknown => return Err(CqlError::syntax(format!("Unknown property '{unknown}'"))),
            };
            if twice {
                return Err(CqlError::syntax(format!("Multiple definitions for property '{}'", property.name)));
            }
        }
        Ok(options)
    }
}

fn durable_writes(value: &PropertyValue) -> Result<bool, CqlError> {
    let raw = match value {
        PropertyValue::Literal(literal) => text::raw(literal).to_ascii_lowercase(),
        PropertyValue::Identifier(word) => word.clone(),
        _ => String::new(),
    };
    match raw.as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(CqlError::syntax("Invalid value for property 'durable_writes'. It should be true or false")),
    }
}

fn replication(
    context: &Context<'_>,
    keyspace: &str,
    value: &PropertyValue,
) -> Result<BTreeMap<String, String>, CqlError> {
    let PropertyValue::Map(entries) = value else {
        return Err(CqlError::syntax("Invalid value for property 'replication'. It should be a map."));
    };
    let mut options: BTreeMap<String, String> =
        entries.iter().map(|(key, value)| (text::raw(key), text::raw(value))).collect();
    let class = options.remove("class").ok_or_else(|| CqlError::config("Missing replication strategy class"))?;
    let short = class.strip_prefix(PACKAGE).unwrap_or(&class);
    match short {
        SIMPLE => check_simple(keyspace, &options)?,
        BY_DATA_CENTER => expand_data_centers(context, &mut options)?,
        "LocalStrategy" | "EverywhereStrategy" | "MetaStrategy" => {
            let message = format!("Unable to use given strategy class: {short} is reserved for internal use.");
            return Err(CqlError::config(message));
        }
        _ => {
            let class = if class.contains('.') { class } else { format!("{PACKAGE}{class}") };
            return Err(CqlError::config(format!("Unable to find replication strategy class '{class}'")));
        }
    }
    for (option, factor) in &options {
        check_factor(option, factor)?;
    }
    options.insert("class".to_owned(), format!("{PACKAGE}{short}"));
    Ok(options)
}

fn check_simple(keyspace: &str, options: &BTreeMap<String, String>) -> Result<(), CqlError> {
    if let Some(unknown) = options.keys().find(|option| *option != "replication_factor") {
        let message = format!("Unrecognized strategy option {{{unknown}}} passed to {SIMPLE} for keyspace {keyspace}");
        return Err(CqlError::config(message));
    }
    if options.is_empty() {
        return Err(CqlError::config(format!("{SIMPLE} requires a replication_factor strategy option.")));
    }
    Ok(())
}

/// As Cassandra does: `replication_factor` stands for every data centre that is known and not named.
fn expand_data_centers(context: &Context<'_>, options: &mut BTreeMap<String, String>) -> Result<(), CqlError> {
    if let Some(factor) = options.remove("replication_factor") {
        check_factor("replication_factor", &factor)?;
        for node in context.catalog.nodes() {
            options.entry(node.description.data_center.clone()).or_insert_with(|| factor.clone());
        }
    }
    if options.is_empty() {
        return Err(CqlError::config(format!(
            "Configuration for at least one datacenter must be present in {BY_DATA_CENTER}"
        )));
    }
    Ok(())
}

fn check_factor(option: &str, factor: &str) -> Result<(), CqlError> {
    match factor.parse::<u32>() {
        Ok(factor) if factor > 0 => Ok(()),
        Ok(_) => Err(CqlError::config(format!("Replication factor must be positive; found {factor} for {option}"))),
        Err(_) => Err(CqlError::config(format!("Replication factor must be numeric; found {factor} for {option}"))),
    }
}
