//! The id of a statement: the MD5 of keyspace and text, so that every node gives it the same id.

use md5::{Digest, Md5};

/// The id of a prepared statement.
pub type StatementId = [u8; 16];

/// The id of a statement.
pub fn statement_id(keyspace: Option<&str>, text: &str) -> StatementId {
    let mut digest = Md5::new();
    digest.update(keyspace.unwrap_or_default());
    digest.update(text);
    digest.finalize().into()
}
