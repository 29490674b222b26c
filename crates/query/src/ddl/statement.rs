//! From a statement to a change of the catalog, and to the answer.
//!
//! Always true: [`plan`] is a pure function; a statement that another change has overtaken is planned again.

use super::awaited::{self, Ended};
use super::context::{Context, Defaults, Plan};
use super::{alter, describe, index, keyspace, table, user_type, view};
use crate::budget::Budget;
use crate::error::{catalog_error, invalid, not_begun, not_supported, unreadable_outcome};
use crate::kv::Kv;
use diorite_cluster::catalog::{Outcome, Rejection};
use diorite_cql::language::ast::{DroppedObject, Statement};
use diorite_cql::protocol::{CqlError, Response};

/// How often a statement is planned again because the catalog changed under it.
const MAX_ATTEMPTS: usize = 16;

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

async fn run_long<K: Kv, T: Send>(kv: &K, work: impl FnOnce() -> Result<T, CqlError> + Send) -> Result<T, CqlError> {
    kv.run_long(work).await.unwrap_or_else(|refused| Err(not_begun(&refused)))
}

/// Carries out a statement for which [`handles`] is true, and gives the answer with its warnings. On `Response::SetKeyspace` the caller sets the session's keyspace.
/// Whatever it waits for ends before the deadline of the request, but for the tablets that this node opens, and for
/// dropping what has failed, which has a second.
pub async fn execute<K: Kv>(
    kv: &K,
    defaults: Defaults,
    keyspace: Option<&str>,
    statement: &Statement,
    budget: &Budget,
) -> Result<(Response, Vec<String>), CqlError> {
    if let Statement::Describe(request) = statement {
        let scope = describe::Scope::new(kv, keyspace);
        let response = run_long(kv, || describe::execute(&scope, request, budget)).await?;
        return Ok((response, Vec::new()));
    }
    let by_ns = budget.answer_by(kv.monotonic_ns());
    let (response, ended) = changed(kv, (defaults, keyspace), statement, (budget, by_ns)).await?;
    let (failed, mut error) = match ended {
        Ended::Well(warnings) => return Ok((response, warnings)),
        Ended::Failed(drop_it, error) => (Statement::Drop(*drop_it), error),
    };
    let by_ns = budget.finish_by(kv.monotonic_ns());
    if let Err(left) = Box::pin(changed(kv, (defaults, keyspace), &failed, (budget, by_ns))).await {
        error.message = format!("{}; it may not have been dropped: {}", error.message, left.message).into();
    }
    Err(error)
}

/// Changes the catalog, and waits for what follows from that. The statement is to be answered at `answer_by_ns`, if that
/// is given.
async fn changed<K: Kv>(
    kv: &K,
    (defaults, keyspace): (Defaults, Option<&str>),
    statement: &Statement,
    (budget, answer_by_ns): (&Budget, Option<u64>),
) -> Result<(Response, Ended), CqlError> {
    for attempt in 1.. {
        let catalog = kv.catalog();
        let nonce = kv.local_node().host_id.as_u128() ^ (kv.now_us() as u128);
        let planned =
            run_long(kv, || plan(&Context { catalog: &catalog, keyspace, defaults, nonce }, statement)).await?;
        let (command, change, warnings) = match planned {
            Plan::Answer(response) => return Ok((response, Ended::Well(Vec::new()))),
            Plan::Propose { command, change, warnings } => (command, change, warnings),
        };
        let reply = kv.change_catalog(&command, answer_by_ns).await;
        let reply = reply.map_err(|error| catalog_error(kv, &error))?;
        let outcome = Outcome::decode(&reply).map_err(|error| unreadable_outcome(kv, &error))?;
        match outcome {
            Outcome::Applied { .. } | Outcome::Registered { .. } => {
                let following = awaited::ended(kv, &catalog, (statement, &command), (budget, answer_by_ns)).await?;
                let ended = match following {
                    Ended::Well(further) => Ended::Well(warnings.into_iter().chain(further).collect()),
                    failed @ Ended::Failed(..) => failed,
                };
                return Ok((change.map_or(Response::Void, Response::SchemaChange), ended));
            }
            Outcome::Unchanged { .. } => return Ok((Response::Void, Ended::Well(Vec::new()))),
            // Another statement was applied first: plan again against the newer catalog.
            Outcome::Rejected { .. } if attempt < MAX_ATTEMPTS && kv.catalog().version() != catalog.version() => {}
            Outcome::Rejected { rejection, message, .. } => return Err(rejected(rejection, message)),
        }
    }
    unreachable!("the loop is left by an answer")
}

/// The error for a rejection by the catalog, if planning again gives no better one.
pub(super) fn rejected(rejection: Rejection, message: String) -> CqlError {
    match rejection {
        Rejection::Conflict => CqlError::server(format!("{message}; too many concurrent schema changes, try again")),
        _ => invalid(message),
    }
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
        Statement::CreateIndex(create) => index::create(context, create),
        Statement::CreateMaterializedView(create) => view::create(context, create),
        Statement::AlterMaterializedView(alter) => view::alter(context, alter),
        Statement::Drop(drop) => match &drop.object {
            DroppedObject::Keyspace(name) => keyspace::drop(context, name, drop.if_exists),
            DroppedObject::Table(name) => table::drop(context, name, drop.if_exists),
            DroppedObject::Type(name) => user_type::drop(context, name, drop.if_exists),
            DroppedObject::Index(name) => index::drop(context, name, drop.if_exists),
            DroppedObject::MaterializedView(name) => view::drop(context, name, drop.if_exists),
            // An object that cannot be created does not exist.
            _ if drop.if_exists => Ok(Plan::nothing()),
            _ => Err(not_supported(statement.kind())),
        },
        _ => Err(not_supported(statement.kind())),
    }
}
