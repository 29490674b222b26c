//! Statements that define the schema: from their syntax tree to a command of the catalog, and the answer to the client.
//!
//! [`plan`] judges a statement against a snapshot of the catalog and gives either the answer (`USE`, a change that is none) or the command
//! to propose; [`execute`] proposes it and, where another change came in between, plans again against the newer snapshot.
//!
//! Always true: `plan` is a pure function; the rules and, where tools look at them, the messages are Cassandra's. Departures, each on
//! purpose: `replication` may be left out (YCQL's short form); a dropped column's name may be given to a column of any type, because data
//! is stored by column ids that are never reused.
//! What is left out: indexes, views, functions, triggers, roles (refused by name), and `DESCRIBE` ([`describe`]), which changes nothing.

mod alter;
pub mod describe;
mod keyspace;
mod names;
pub mod options;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod type_names;
mod user_type;

pub use names::{RESERVED_KEYSPACES, is_reserved_keyspace};
pub use type_names::{Mentioned, resolve_type};

use crate::budget::Budget;
use crate::error::{catalog_error, invalid, not_supported};
use crate::kv::Kv;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_cluster::catalog::{Catalog, Command, Outcome, Rejection};
use diorite_cql::language::ast::{CreateTable, DroppedObject, Statement};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, Response, SchemaChange, SchemaTarget};
use diorite_model::schema::Table;
use md5::{Digest, Md5};
use uuid::Uuid;

/// How often a statement is planned again because the catalog changed under it.
const MAX_ATTEMPTS: usize = 16;

/// What new tables get when their definition does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Tablets of a table per node.
    pub shards_per_node: u32,
}

/// What a statement is judged against.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The catalog as this node knows it.
    pub catalog: &'a Catalog,
    /// The session's keyspace.
    pub keyspace: Option<&'a str>,
    /// Defaults of new tables.
    pub defaults: Defaults,
    /// Differs from statement to statement and from node to node; ids that clients see are derived from it.
    pub nonce: u128,
}

/// What is to be done for a statement.
#[derive(Debug)]
pub enum Plan {
    /// Nothing but to answer.
    Answer(Response),
    /// Propose the command; once it is applied, answer with the change (`None`: with nothing).
    Propose {
        /// For the catalog.
        command: Command,
        /// For the client.
        change: Option<SchemaChange>,
        /// For people, if the change comes about.
        warnings: Vec<String>,
    },
}

impl Plan {
    fn propose(command: Command, change: SchemaChangeType, target: SchemaTarget) -> Self {
        Plan::Propose { command, change: Some(SchemaChange { change, target }), warnings: Vec::new() }
    }

    fn nothing() -> Self {
        Plan::Answer(Response::Void)
    }
}

impl Context<'_> {
    /// How many tablets a new table gets.
    fn default_tablets(&self) -> u32 {
        let nodes = u32::try_from(self.catalog.nodes().count()).unwrap_or(u32::MAX);
        self.defaults.shards_per_node.saturating_mul(nodes.max(1)).clamp(1, MAX_TABLETS_PER_TABLE)
    }

    /// An id for a new object.
    fn new_uuid(&self, keyspace: &str, name: &str) -> Uuid {
        let mut digest = Md5::new();
        digest.update(self.nonce.to_be_bytes());
        digest.update(self.catalog.version().to_be_bytes());
        digest.update(keyspace);
        digest.update([0]);
        digest.update(name);
        uuid::Builder::from_md5_bytes(digest.finalize().into()).into_uuid()
    }
}

/// Whether [`execute`] is what carries the statement out.
pub fn handles(statement: &Statement) -> bool {
    !matches!(
        statement,
        Statement::Select(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Batch(_)
            | Statement::Transaction(_)
            | Statement::Explain(_)
    )
}

/// Carries out a statement for which [`handles`] is true, and gives the answer with its warnings. On `Response::SetKeyspace` the caller sets the session's keyspace.
pub async fn execute<K: Kv>(
    kv: &K,
    defaults: Defaults,
    keyspace: Option<&str>,
    statement: &Statement,
    budget: &Budget,
) -> Result<(Response, Vec<String>), CqlError> {
    if let Statement::Describe(request) = statement {
        let scope = describe::Scope::new(kv, keyspace);
        let response = kv.run_long(|| describe::execute(&scope, request, budget)).await?;
        return Ok((response, Vec::new()));
    }
    for attempt in 1.. {
        let catalog = kv.catalog();
        let nonce = kv.local_node().host_id.as_u128() ^ (kv.now_us() as u128);
        let planned =
            kv.run_long(|| plan(&Context { catalog: &catalog, keyspace, defaults, nonce }, statement)).await?;
        let (command, change, warnings) = match planned {
            Plan::Answer(response) => return Ok((response, Vec::new())),
            Plan::Propose { command, change, warnings } => (command, change, warnings),
        };
        let reply = kv.change_catalog(&command).await;
        let reply = reply.map_err(|error| catalog_error(kv, &error))?;
        let outcome = Outcome::decode(&reply).map_err(|error| CqlError::server(error.to_string()))?;
        match outcome {
            Outcome::Applied { .. } | Outcome::Registered { .. } => {
                return Ok((change.map_or(Response::Void, Response::SchemaChange), warnings));
            }
            Outcome::Unchanged { .. } => return Ok((Response::Void, Vec::new())),
            // Another statement was faster: the newer catalog tells what this one means now.
            Outcome::Rejected { .. } if attempt < MAX_ATTEMPTS && kv.catalog().version() != catalog.version() => {}
            Outcome::Rejected { rejection, message, .. } => return Err(rejected(rejection, message)),
        }
    }
    unreachable!("the loop is left by an answer")
}

/// How a rejection by the catalog is told when planning again does not explain it better.
fn rejected(rejection: Rejection, message: String) -> CqlError {
    match rejection {
        Rejection::Conflict => CqlError::server(format!("{message}; too many concurrent schema changes, try again")),
        _ => invalid(message),
    }
}

/// The definition that a `CREATE TABLE` gives in `keyspace`, with neither id nor version yet.
pub(crate) fn define_table(catalog: &Catalog, keyspace: &str, create: &CreateTable) -> Result<Table, CqlError> {
    let context = Context { catalog, keyspace: Some(keyspace), defaults: Defaults { shards_per_node: 1 }, nonce: 0 };
    Ok(table::define(&context, keyspace, create)?.0)
}

/// Judges a statement.
pub fn plan(context: &Context<'_>, statement: &Statement) -> Result<Plan, CqlError> {
    match statement {
        Statement::Use(name) => keyspace::use_keyspace(context, name),
        Statement::CreateKeyspace(create) => keyspace::create(context, create),
        Statement::AlterKeyspace(alter) => keyspace::alter(context, alter),
        Statement::CreateTable(create) => table::create(context, create),
        Statement::AlterTable(alter) => alter::alter(context, alter),
        Statement::Truncate(name) => table::truncate(context, name),
        Statement::CreateType(create) => user_type::create(context, create),
        Statement::AlterType(alter) => user_type::alter(context, alter),
        Statement::Drop(drop) => match &drop.object {
            DroppedObject::Keyspace(name) => keyspace::drop(context, name, drop.if_exists),
            DroppedObject::Table(name) => table::drop(context, name, drop.if_exists),
            DroppedObject::Type(name) => user_type::drop(context, name, drop.if_exists),
            // What cannot be made is not there.
            _ if drop.if_exists => Ok(Plan::nothing()),
            _ => Err(not_supported(statement.kind())),
        },
        _ => Err(not_supported(statement.kind())),
    }
}
