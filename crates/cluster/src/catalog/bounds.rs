//! The limits on definitions.
//!
//! Always true: a check stops at the limit, however much there is beyond it. Left out: the meaning of a definition (the
//! `query` crate's), and whether it can be loaded again ([`super::loadable`]).

use diorite_base::limits::{self, Exceeded};
use diorite_model::schema::Table;
use diorite_model::types::UserType;

/// The rules by which a command of the log is checked. Commands that were logged before there were limits are applied
/// by the rules of that time: replicas that have stored the effect and replicas that have not must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The definition can be loaded again.
    Loadable,
    /// It can be loaded again, and is within the limits.
    Limited,
}

/// Checks a table's definition against the limits.
pub(super) fn check_table(table: &Table) -> Result<(), Exceeded> {
    limits::check(&limits::COLUMNS, table.columns.len(), || format!("table {}", table.name))?;
    let of_column = |name: &str| format!("the type of column {}", shortened(name));
    table.columns.iter().try_for_each(|column| {
        column.data_type.check_limits().map_err(|error| Exceeded { what: of_column(&column.name), ..error })
    })
}

/// Checks a user type's definition against the limits.
pub(super) fn check_type(user_type: &UserType) -> Result<(), Exceeded> {
    user_type.check_limits().map_err(|error| Exceeded { what: format!("type {}", user_type.name), ..error })
}

/// Checks a zone's name against the limits.
pub(super) fn check_zone(zone: &str) -> Result<(), Exceeded> {
    limits::check(&limits::ZONE_BYTES, zone.len(), || "the name of a zone".to_owned())
}

/// A name, for messages.
pub(super) fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(48)]
}
