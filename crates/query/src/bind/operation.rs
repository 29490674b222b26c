//! From assignments of `INSERT` and `UPDATE`, and targets of `DELETE`, to operations on columns.
//!
//! Always true: no operation is on a column of the primary key. Left out: whether several operations go together ([`super::modify`]).

use super::binder::Binder;
use super::receiver::Receiver;
use crate::error::{invalid, not_supported};
use crate::plan::operation::{Change, Operation};
use crate::plan::term::Term;
use diorite_base::level::Level;
use diorite_cql::language::ast::{Assignment, AssignmentOperation, Expression, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Column, ColumnKind};
use diorite_model::types::{CqlType, Frozen};
use diorite_model::value::is_summable;
use std::sync::Arc;

/// The column an assignment or deletion is about; it may not be part of the primary key.
fn target_column(binder: &Binder<'_>, name: &str, is_deletion: bool) -> Result<(usize, Column), CqlError> {
    let at = binder.column_position(name)?;
    let column = binder.context().column(at).clone();
    match column.kind {
        ColumnKind::Static | ColumnKind::Regular => Ok((at, column)),
        _ if is_deletion => {
            Err(invalid(format!("Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)")))
        }
        _ => Err(invalid(format!("PRIMARY KEY part {name} found in SET part"))),
    }
}

/// Plans one assignment of `UPDATE`.
pub(super) fn bind_assignment(binder: &mut Binder<'_>, assignment: &Assignment) -> Result<Operation, CqlError> {
    let (at, column) = target_column(binder, assignment.target.column(), false)?;
    let change = match (&assignment.target, &assignment.operation) {
        (Target::Column(_), AssignmentOperation::Set(value)) => bind_value(binder, &column, value)?,
        (Target::Column(_), operation) => change_in_place(binder, &column, operation)?,
        (Target::Element { key, .. }, AssignmentOperation::Set(value)) => set_element(binder, &column, key, value)?,
        (Target::Field { field, .. }, AssignmentOperation::Set(value)) => set_field(binder, &column, field, value)?,
        (Target::JsonPath { path, .. }, AssignmentOperation::Set(value)) => set_path(binder, &column, path, value)?,
        (_, _) => return Err(invalid(format!("Invalid operation for an element of column {}", column.name))),
    };
    Ok(Operation { column: at, change })
}

/// Plans giving a column a value, as `INSERT` and `SET column = value` do.
pub(super) fn bind_value(binder: &mut Binder<'_>, column: &Column, value: &Expression) -> Result<Change, CqlError> {
    if column.data_type == CqlType::Counter {
        return Err(invalid(format!(
            "Cannot set the value of counter column {} (counters can only be incremented/decremented, not set)",
            column.name
        )));
    }
    Ok(Change::Set(binder.term(value, &Receiver::new(&column.name, &column.data_type))?))
}

fn change_in_place(
    binder: &mut Binder<'_>,
    column: &Column,
    operation: &AssignmentOperation,
) -> Result<Change, CqlError> {
    let (symbol, value) = match operation {
        AssignmentOperation::Add(value) => ("+", value),
        AssignmentOperation::Prepend(value) => ("prepend", value),
        AssignmentOperation::Subtract(value) => ("-", value),
        AssignmentOperation::Set(_) => unreachable!("told apart by the caller"),
    };
    let name = &column.name;
    if column.data_type == CqlType::Counter {
        if symbol == "prepend" {
            return Err(invalid(format!("Invalid operation for counter column {name}")));
        }
        let term = binder.term(value, &Receiver::new(name, &CqlType::Counter))?;
        return Ok(Change::Count(term, symbol == "-"));
    }
    if is_summable(&column.data_type) {
        binder.require_level(Level::RECORDED)?;
        let term = binder.term(value, &Receiver::new(name, &column.data_type))?;
        return match symbol {
            "prepend" => Ok(Change::Sum(term, false)),
            _ => Ok(Change::Sum(term, symbol == "-")),
        };
    }
    let refuse = |what: &str| {
        let shown =
            if symbol == "prepend" { format!("{name} = ? + {name}") } else { format!("{name} = {name} {symbol} ?") };
        Err(invalid(format!("Invalid operation ({shown}) for {what} column {name}")))
    };
    match &column.data_type {
        CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..) if !column.data_type.is_multi_cell() => {
            return refuse("frozen collection");
        }
        CqlType::List(..) => {}
        CqlType::Set(..) | CqlType::Map(..) if symbol != "prepend" => {}
        CqlType::Set(..) | CqlType::Map(..) => return refuse("non list"),
        _ => return refuse("non counter"),
    }
    let value_type = match (&column.data_type, symbol) {
        // `map - {keys}`
        (CqlType::Map(key, ..), "-") => CqlType::Set(Arc::clone(key), Frozen::No),
        (other, _) => other.clone(),
    };
    let term = binder.term(value, &Receiver::owned(name.as_str(), value_type))?;
    Ok(match symbol {
        "+" => Change::Add(term),
        "-" => Change::Remove(term),
        _ => Change::Prepend(term),
    })
}

fn set_element(
    binder: &mut Binder<'_>,
    column: &Column,
    key: &Expression,
    value: &Expression,
) -> Result<Change, CqlError> {
    let name = &column.name;
    let (key_type, value_type, key_name) = match &column.data_type {
        CqlType::List(_, Frozen::Yes) | CqlType::Map(_, _, Frozen::Yes) => {
            return Err(invalid(format!("Invalid operation ({name}[?] = ?) for frozen collection column {name}")));
        }
        CqlType::List(element, _) => (&CqlType::Int, element, "idx"),
        CqlType::Map(key, value, _) => (&**key, value, "key"),
        CqlType::Set(..) => {
            return Err(invalid(format!("Invalid operation ({name}[?] = ?) for set column {name}")));
        }
        _ => return Err(invalid(format!("Invalid operation ({name}[?] = ?) for non collection column {name}"))),
    };
    let key = binder.term(key, &Receiver::new(format!("{key_name}({name})"), key_type))?;
    let value = binder.term(value, &Receiver::new(format!("value({name})"), value_type))?;
    Ok(Change::SetElement(key, value))
}

fn user_field(binder: &mut Binder<'_>, column: &Column, field: &str) -> Result<(u16, CqlType), CqlError> {
    let name = &column.name;
    let CqlType::UserDefined(user, frozen) = &column.data_type else {
        return Err(invalid(format!("Invalid operation ({name}.{field}) for non-UDT column {name}")));
    };
    if *frozen == Frozen::Yes {
        return Err(invalid(format!("Invalid operation ({name}.{field}) for frozen UDT column {name}")));
    }
    let at = binder.field_place(user, field)?;
    let at = at.ok_or_else(|| invalid(format!("UDT column {name} does not have a field named {field}")))?;
    Ok((at as u16, user.fields[at].1.clone()))
}

fn set_path(
    binder: &mut Binder<'_>,
    column: &Column,
    path: &[Expression],
    value: &Expression,
) -> Result<Change, CqlError> {
    if column.data_type != CqlType::Jsonb {
        return Err(invalid(format!("Invalid path into column {} of type {}", column.name, column.data_type)));
    }
    let (steps, terms) = binder.json_steps(path)?;
    let value = binder.term(value, &Receiver::new(&column.name, &column.data_type))?;
    Ok(Change::SetPath(steps, terms, value))
}

fn set_field(binder: &mut Binder<'_>, column: &Column, field: &str, value: &Expression) -> Result<Change, CqlError> {
    let (at, data_type) = user_field(binder, column, field)?;
    let term = binder.term(value, &Receiver::new(format!("{}.{field}", column.name), &data_type))?;
    Ok(Change::SetField(at, term))
}

/// Plans one target of `DELETE`.
pub(super) fn bind_deletion(binder: &mut Binder<'_>, target: &Target) -> Result<Operation, CqlError> {
    let (at, column) = target_column(binder, target.column(), true)?;
    let name = &column.name;
    let change = match target {
        Target::Column(_) if column.data_type.is_multi_cell() => Change::Delete,
        Target::Column(_) => Change::Set(Term::NULL),
        Target::Field { field, .. } => Change::SetField(user_field(binder, &column, field)?.0, Term::NULL),
        Target::JsonPath { .. } => return Err(not_supported("deletion of a part of a jsonb document")),
        Target::Element { key, .. } => {
            if !column.data_type.is_multi_cell() {
                let what = match column.data_type {
                    CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..) => "frozen collection",
                    _ => "non collection",
                };
                return Err(invalid(format!("Invalid deletion operation for {what} column {name}")));
            }
            match &column.data_type {
                CqlType::List(..) => {
                    let key = binder.term(key, &Receiver::new(format!("idx({name})"), &CqlType::Int))?;
                    Change::SetElement(key, Term::NULL)
                }
                CqlType::Map(key_type, ..) => {
                    let key = binder.term(key, &Receiver::new(format!("key({name})"), key_type))?;
                    Change::SetElement(key, Term::NULL)
                }
                CqlType::Set(element, _) => {
                    let key = binder.term(key, &Receiver::new(format!("value({name})"), element))?;
                    Change::SetElement(key, Term::NULL)
                }
                _ => return Err(invalid(format!("Invalid deletion operation for column {name}"))),
            }
        }
    };
    Ok(Operation { column: at, change })
}
