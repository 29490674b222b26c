//! Names of schema objects: which keyspace they are in, and which are allowed.

use super::context::Context;
use crate::error::invalid;
use diorite_base::limits::MAX_KEY_BYTES;
use diorite_cql::language::ast::QualifiedName;
use diorite_cql::protocol::CqlError;

/// Cassandra's limit, which drivers and tools rely on.
const MAX_NAME_CHARACTERS: usize = 48;

/// Keyspaces of the server itself; clients can neither create nor change them.
pub const RESERVED_KEYSPACES: [&str; 8] = [
    "system",
    "system_schema",
    "system_auth",
    "system_distributed",
    "system_traces",
    "system_views",
    "system_virtual_schema",
    "system_cluster_metadata",
];

/// Whether `name` is the server's own keyspace.
pub fn is_reserved_keyspace(name: &str) -> bool {
    RESERVED_KEYSPACES.contains(&name)
}

/// The keyspace that an object is in: the one it is qualified with, or the session's.
pub(super) fn keyspace_of<'a>(context: &Context<'a>, name: &'a QualifiedName) -> Result<&'a str, CqlError> {
    name.keyspace.as_deref().or(context.keyspace).ok_or_else(|| {
        invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
    })
}

/// Like [`keyspace_of`], for a statement that changes something in it.
pub(super) fn writable_keyspace<'a>(context: &Context<'a>, name: &'a QualifiedName) -> Result<&'a str, CqlError> {
    let keyspace = keyspace_of(context, name)?;
    check_writable(keyspace)?;
    Ok(keyspace)
}

/// Refuses the server's own keyspaces.
pub(super) fn check_writable(keyspace: &str) -> Result<(), CqlError> {
    if is_reserved_keyspace(keyspace) {
        return Err(CqlError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    Ok(())
}

/// Names become parts of keys and paths in more places than one: letters, digits and underscores only.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), CqlError> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARACTERS || !name.chars().all(allowed) {
        return Err(CqlError::config(format!(
            "{what} name must not be empty, more than {MAX_NAME_CHARACTERS} characters long, \
             or contain non-alphanumeric-underscore characters (got \"{name}\")"
        )));
    }
    Ok(())
}

/// The protocol sends names of columns and fields with a length of two bytes.
pub(super) fn check_column_name(what: &str, name: &str) -> Result<(), CqlError> {
    if name.len() > MAX_KEY_BYTES {
        let shown: String = name.chars().take(MAX_NAME_CHARACTERS).collect();
        let length = name.len();
        return Err(invalid(format!(
            "{what} name {shown}… is too long: {length} bytes, the maximum is {MAX_KEY_BYTES}"
        )));
    }
    Ok(())
}

/// The keyspace does not exist.
pub(super) fn no_such_keyspace(name: &str) -> CqlError {
    invalid(format!("Keyspace '{name}' doesn't exist"))
}

/// The table does not exist.
pub(super) fn no_such_table(keyspace: &str, name: &str) -> CqlError {
    invalid(format!("Table '{keyspace}.{name}' doesn't exist"))
}

/// The user type does not exist.
pub(super) fn no_such_type(keyspace: &str, name: &str) -> CqlError {
    invalid(format!("Type '{keyspace}.{name}' doesn't exist"))
}
