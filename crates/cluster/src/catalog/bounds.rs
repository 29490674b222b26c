//! What a definition may be: within the limits, and such that a node can load it again.
//!
//! A definition that is stored and cannot be loaded keeps every node from starting. So each command that defines something is judged twice: by itself,
//! before it is proposed, and together with what it meets, when it is applied: the changed objects are encoded as they will be stored, and read again.
//!
//! Always true: judging stops at the limit, however much there is beyond it. Left out: what a definition means (the `query` crate's).

use super::Catalog;
use super::apply::Rejected;
use super::command::Rejection;
use super::deep::json_depth;
use super::persist::Put;
use diorite_base::limits::{self, Exceeded};
use diorite_model::schema::Table;
use diorite_model::types::UserType;

/// Which rules a command of the log is judged by. What was logged before there were limits is applied as it was then: replicas that have and have not
/// stored its effect yet have to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// What it defines can be loaded.
    Loadable,
    /// And is within the limits.
    Limited,
}

/// Whether a table's definition is within the limits.
pub(super) fn check_table(table: &Table) -> Result<(), Exceeded> {
    limits::check(&limits::COLUMNS, table.columns.len(), || format!("table {}", table.name))?;
    let of_column = |name: &str| format!("the type of column {}", shortened(name));
    table.columns.iter().try_for_each(|column| {
        column.data_type.check_limits().map_err(|error| Exceeded { what: of_column(&column.name), ..error })
    })
}

/// Whether a user type's definition is within the limits.
pub(super) fn check_type(user_type: &UserType) -> Result<(), Exceeded> {
    user_type.check_limits().map_err(|error| Exceeded { what: format!("type {}", user_type.name), ..error })
}

/// A name, for messages.
fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(48)]
}

impl From<Exceeded> for Rejected {
    fn from(error: Exceeded) -> Self {
        Rejected(Rejection::Invalid, error.to_string())
    }
}

impl Catalog {
    /// Whether what a command made of `older` can be stored and loaded.
    pub(super) fn check_loadable(&self, older: &Catalog, rules: Rules) -> Result<(), Rejected> {
        let puts = self.puts_since(older);
        if rules == Rules::Limited {
            let bytes = puts.iter().filter_map(|(_, value)| value.as_ref()).map(Vec::len).sum();
            limits::check(&limits::CATALOG_CHANGE_BYTES, bytes, || "what the change stores".to_owned())?;
        }
        puts.iter().try_for_each(|put| self.check_put(put, rules))
    }

    fn check_put(&self, (key, value): &Put, rules: Rules) -> Result<(), Rejected> {
        let Some(value) = value else { return Ok(()) };
        let key = String::from_utf8_lossy(key);
        if rules == Rules::Limited {
            let what = || format!("the definition of {}", shortened(&key));
            limits::check(&limits::CATALOG_DEPTH, json_depth(value), what)?;
        }
        let refused = |reason: String| Rejected(Rejection::Invalid, format!("it could not be loaded again: {reason}"));
        match self.holds(&key, value) {
            Ok(true) => Ok(()),
            Ok(false) => Err(refused(format!("{} reads back as another", shortened(&key)))),
            Err(error) => Err(refused(error.to_string())),
        }
    }
}
