//! Which columns can be indexed.

use super::type_names::mentions_duration;
use crate::error::{invalid, not_supported};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Column, Table};
use diorite_model::types::CqlType;

/// A column by its name.
pub(super) fn column_of<'t>(table: &'t Table, name: &str) -> Result<&'t Column, CqlError> {
    table.column(name).ok_or_else(|| invalid(format!("Column '{name}' doesn't exist")))
}

/// Refuses types whose values have no order here, or whose definition may change.
pub(super) fn check_type(data_type: &CqlType) -> Result<(), CqlError> {
    if mentions_duration(data_type) {
        return Err(invalid("Secondary indexes are not supported on columns containing durations"));
    }
    match data_type {
        CqlType::UserDefined(..) if data_type.is_multi_cell() => {
            Err(invalid("Cannot create index on non-frozen UDT column"))
        }
        CqlType::UserDefined(..) => Err(not_supported("an index on a user-defined type")),
        CqlType::Vector(..) => Err(not_supported("an index on a vector")),
        CqlType::Jsonb => Err(not_supported("an index on a document")),
        CqlType::List(of, _) | CqlType::Set(of, _) => check_type(of),
        CqlType::Map(key, value, _) => check_type(key).and_then(|()| check_type(value)),
        CqlType::Tuple(parts) => parts.iter().try_for_each(check_type),
        _ => Ok(()),
    }
}
