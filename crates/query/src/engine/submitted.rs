//! The client's error for a submitted write that has failed.
//!
//! Always true: a write that was certainly not done because its table was dropped meanwhile has the error that it would have
//! had after that. Left out: planning it again, which is the connection's to ask for, if it knows the request; a write whose
//! outcome is not known stays a `WriteTimeout`, as it may have been read before the table was dropped.

use super::point::{slot_of, write_type_of};
use super::state::QueryEngine;
use crate::audit::qualified;
use crate::error::{invalid, write_error};
use crate::kv::{Kv, KvError};
use diorite_base::TabletId;
use diorite_cql::language::named_tables;
use diorite_cql::protocol::{Consistency, CqlError};

/// The error for a write that [`QueryEngine::execute_now`] has submitted, by the token that came back with its outcome.
pub fn submitted_error<K: Kv>(engine: &QueryEngine<K>, token: u64, error: &KvError, asked: Consistency) -> CqlError {
    let dropped = match error {
        KvError::NoSuchTablet(tablet) => dropped_table(engine, token, *tablet),
        _ => None,
    };
    match dropped {
        Some(name) => invalid(format!("table {name} does not exist")),
        None => write_error(&*engine.kv, error, write_type_of(token), asked),
    }
}

/// The table of a submitted write, if the catalog does not have it any more.
fn dropped_table<K: Kv>(engine: &QueryEngine<K>, token: u64, tablet: TabletId) -> Option<String> {
    let catalog = engine.kv.catalog();
    // Of a table that is there, the tablet was split, merged, or emptied by TRUNCATE.
    if catalog.table_of(tablet).is_some() {
        return None;
    }
    // A tablet that all nodes have removed says nothing of its table any more.
    let statement = engine.activity.statement(slot_of(token))?;
    let named = named_tables(&statement.text)?;
    let mut tables = qualified(&named, statement.keyspace.as_deref());
    tables.find(|(keyspace, name)| catalog.table(keyspace, name).is_none()).map(|(_, name)| name)
}
