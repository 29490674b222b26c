//! What a definition may be: within the limits.
//!
//! Always true: judging stops at the limit, however much there is beyond it. Left out: what a definition means (the `query` crate's), and
//! whether it can be loaded again ([`super::loadable`]).

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

/// Whether a zone's name is within the limits.
pub(super) fn check_zone(zone: &str) -> Result<(), Exceeded> {
    limits::check(&limits::ZONE_BYTES, zone.len(), || "the name of a zone".to_owned())
}

/// A name, for messages.
pub(super) fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(48)]
}
