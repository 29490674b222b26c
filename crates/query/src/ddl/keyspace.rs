//! `USE` and the definition of keyspaces.
//!
//! Replication options are checked as Cassandra 4.1 does and remembered as they were asked for, as clients show them and later copy them;
//! where the cluster gives more or fewer replicas (`cluster::catalog::Replication`), a warning says so. `durable_writes` is remembered;
//! every write is durable.

use super::context::{Context, Plan};
use super::names::{check_name, check_writable, is_reserved_keyspace, no_such_keyspace};
use super::text;
use crate::error::invalid;
use diorite_cluster::catalog::Command;
use diorite_cql::language::ast::{AlterKeyspace, CreateKeyspace, Property, PropertyValue};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, Response, SchemaChange, SchemaTarget};
use diorite_model::schema::Keyspace;
use std::collections::BTreeMap;

const SIMPLE: &str = "SimpleStrategy";
const BY_DATA_CENTER: &str = "NetworkTopologyStrategy";
const PACKAGE: &str = "org.apache.cassandra.locator.";
const FACTOR: &str = "replication_factor";

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
    let options = Options::read(context, name, &create.properties, &BTreeMap::new())?;
    let replication = options.replication.unwrap_or_else(|| {
        let entries = [("class", format!("{PACKAGE}{SIMPLE}")), (FACTOR, default_factor(context))];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    });
    let durable_writes = options.durable_writes.unwrap_or(true);
    let warnings = context.catalog.replication_warnings(&replication);
    let keyspace = Keyspace { name: name.clone(), replication, durable_writes };
    let command = Command::CreateKeyspace { keyspace, if_not_exists: create.if_not_exists };
    Ok(propose(command, SchemaChangeType::Created, name, warnings))
}

fn propose(command: Command, change: SchemaChangeType, name: &str, warnings: Vec<String>) -> Plan {
    let change = SchemaChange { change, target: SchemaTarget::Keyspace(name.to_owned()) };
    Plan::Propose { command, change: Some(change), warnings }
}

/// The replication factor of a keyspace that names none.
fn default_factor(context: &Context<'_>) -> String {
    context.catalog.identity().replication_factor.to_string()
}

pub(super) fn alter(context: &Context<'_>, alter: &AlterKeyspace) -> Result<Plan, CqlError> {
    let name = &alter.name;
    check_writable(name)?;
    let Some(current) = context.catalog.keyspace(name) else {
        return if alter.if_exists { Ok(Plan::nothing()) } else { Err(no_such_keyspace(name)) };
    };
    let previous = &current.replication;
    let Options { replication, durable_writes } = Options::read(context, name, &alter.properties, previous)?;
    let warnings = match &replication {
        Some(replication) => context.catalog.replication_warnings(replication),
        None => Vec::new(),
    };
    let command =
        Command::AlterKeyspace { name: name.clone(), replication, durable_writes, if_exists: alter.if_exists };
    Ok(propose(command, SchemaChangeType::Updated, name, warnings))
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
    /// `previous` are the replication options of a keyspace that is altered; of a new one there are none.
    fn read(
        context: &Context<'_>,
        keyspace: &str,
        properties: &[Property],
        previous: &BTreeMap<String, String>,
    ) -> Result<Self, CqlError> {
        let mut options = Options { replication: None, durable_writes: None };
        for property in properties {
            let twice = match property.name.as_str() {
                "replication" => {
                    let given = replication(context, keyspace, &property.value, previous)?;
                    options.replication.replace(given).is_some()
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
    previous: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    let PropertyValue::Map(entries) = value else {
        return Err(CqlError::syntax("Invalid value for property 'replication'. It should be a map."));
    };
    let mut options: BTreeMap<String, String> =
        entries.iter().map(|(key, value)| (text::raw(key), text::raw(value))).collect();
    let class = options.remove("class").ok_or_else(|| CqlError::config("Missing replication strategy class"))?;
    let short = class.strip_prefix(PACKAGE).unwrap_or(&class);
    match short {
        SIMPLE => check_simple(context, keyspace, &mut options, previous)?,
        BY_DATA_CENTER => {
            expand_data_centers(context, &mut options, previous)?;
            check_data_centers(context, keyspace, &options)?;
        }
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

fn check_simple(
    context: &Context<'_>,
    keyspace: &str,
    options: &mut BTreeMap<String, String>,
    previous: &BTreeMap<String, String>,
) -> Result<(), CqlError> {
    if let Some(unknown) = options.keys().find(|option| *option != FACTOR) {
        return Err(unrecognized(unknown, SIMPLE, keyspace));
    }
    let default = || previous.get(FACTOR).cloned().unwrap_or_else(|| default_factor(context));
    options.entry(FACTOR.to_owned()).or_insert_with(default);
    Ok(())
}

/// As Cassandra does: `replication_factor` stands for every data centre that is known and not named, except that those which the
/// keyspace had before keep their number; it is the default if nothing is named at all. A data centre with 0 replicas is left out.
fn expand_data_centers(
    context: &Context<'_>,
    options: &mut BTreeMap<String, String>,
    previous: &BTreeMap<String, String>,
) -> Result<(), CqlError> {
    if options.is_empty() {
        let default = || previous.get(FACTOR).cloned().unwrap_or_else(|| default_factor(context));
        options.insert(FACTOR.to_owned(), default());
    }
    if let Some(factor) = options.remove(FACTOR) {
        check_factor(FACTOR, &factor)?;
        for (data_center, factor) in previous.iter().filter(|(option, _)| !["class", FACTOR].contains(&option.as_str()))
        {
            options.entry(data_center.clone()).or_insert_with(|| factor.clone());
        }
        for node in context.catalog.nodes() {
            options.entry(node.description.data_center.clone()).or_insert_with(|| factor.clone());
        }
    }
    options.retain(|_, factor| factor != "0");
    Ok(())
}

fn check_data_centers(
    context: &Context<'_>,
    keyspace: &str,
    options: &BTreeMap<String, String>,
) -> Result<(), CqlError> {
    let is_known = |option: &String| context.catalog.nodes().any(|node| node.description.data_center == *option);
    if let Some(unknown) = options.keys().find(|option| !is_known(option)) {
        return Err(unrecognized(unknown, BY_DATA_CENTER, keyspace));
    }
    if options.is_empty() {
        return Err(CqlError::config(format!(
            "Configuration for at least one datacenter must be present in {BY_DATA_CENTER}"
        )));
    }
    Ok(())
}

fn unrecognized(option: &str, strategy: &str, keyspace: &str) -> CqlError {
    CqlError::config(format!("Unrecognized strategy option {{{option}}} passed to {strategy} for keyspace {keyspace}"))
}

fn check_factor(option: &str, factor: &str) -> Result<(), CqlError> {
    match factor.parse::<u32>() {
        Ok(factor) if factor > 0 => Ok(()),
        Ok(_) => Err(CqlError::config(format!("Replication factor must be positive; found {factor} for {option}"))),
        Err(_) => Err(CqlError::config(format!("Replication factor must be numeric; found {factor} for {option}"))),
    }
}
