//! The receiver of an expression: a column, an argument, a bound.
//!
//! Always true: the receiver names the place as Cassandra does, in error messages and to drivers. Left out: binding itself.

use crate::error::invalid;
use crate::types::is_assignable;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use std::borrow::Cow;

/// The receiver of a term: gives a marker its name and type, and error messages theirs.
#[derive(Debug, Clone)]
pub struct Receiver<'a> {
    /// The column or the like, as Cassandra names it to drivers.
    pub name: Cow<'a, str>,
    /// The type expected.
    pub data_type: Cow<'a, CqlType>,
}

impl<'a> Receiver<'a> {
    /// A receiver of a borrowed type.
    pub fn new(name: impl Into<Cow<'a, str>>, data_type: &'a CqlType) -> Self {
        Self { name: name.into(), data_type: Cow::Borrowed(data_type) }
    }

    /// A receiver of a type made up on the way.
    pub fn owned(name: impl Into<Cow<'a, str>>, data_type: CqlType) -> Self {
        Self { name: name.into(), data_type: Cow::Owned(data_type) }
    }
}

/// Refuses the result of a function that does not fit its place.
pub(super) fn check_result(name: &str, returns: &CqlType, receiver: &Receiver<'_>) -> Result<(), CqlError> {
    if is_assignable(&receiver.data_type, returns) {
        return Ok(());
    }
    Err(invalid(format!(
        "Type error: cannot assign result of function {name} (type {returns}) to {} (type {})",
        receiver.name, receiver.data_type
    )))
}
