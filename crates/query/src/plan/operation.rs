//! What a write does to columns: assignments of `INSERT` and `UPDATE`, targets of `DELETE`.
//!
//! Always true: an operation fits the type of its column. Left out: the deletion of a part of a document.

use super::Planner;
use super::term::{Receiver, Term};
use crate::error::{invalid, not_supported};
use crate::functions::document::Step;
use diorite_cql::language::ast::{Assignment, AssignmentOperation, Expression, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Column, ColumnKind};
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

/// A change of one column.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Position of the column.
    pub column: usize,
    /// What is done.
    pub change: Change,
}

/// How a column changes.
#[derive(Debug, Clone)]
pub enum Change {
    /// The whole column becomes this; null deletes it.
    Set(Term),
    /// A counter grows by this, or shrinks (`true`).
    Count(Term, bool),
    /// Elements are added: after a list's, into a set or map.
    Add(Term),
    /// Elements are put before a list's.
    Prepend(Term),
    /// Elements are removed: by value from lists and sets, by key from maps.
    Remove(Term),
    /// The element at a key or index becomes this; null deletes it.
    SetElement(Term, Term),
    /// A field of a user-defined type becomes this; null deletes it.
    SetField(u16, Term),
    /// A place in a document becomes this document.
    SetPath(Vec<Step>, Vec<Term>, Term),
}

impl Change {
    /// Whether carrying it out depends on what is stored.
    pub fn reads_row(&self, data_type: &CqlType) -> bool {
        let is_list = matches!(data_type, CqlType::List(_, Frozen::No));
        is_list && matches!(self, Change::Remove(_) | Change::SetElement(..)) || matches!(self, Change::SetPath(..))
    }
}

impl Planner<'_> {
    /// The column an assignment or deletion is about; it may not be part of the primary key.
    fn target_column(&self, name: &str, is_deletion: bool) -> Result<(usize, Column), CqlError> {
        let at = self.column_position(name)?;
        let column = self.context().column(at).clone();
        match column.kind {
            ColumnKind::Static | ColumnKind::Regular => Ok((at, column)),
            _ if is_deletion => {
                Err(invalid(format!("Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)")))
            }
            _ => Err(invalid(format!("PRIMARY KEY part {name} found in SET part"))),
        }
    }

    /// Plans one assignment of `UPDATE`.
    pub fn assignment(&mut self, assignment: &Assignment) -> Result<Operation, CqlError> {
        let (at, column) = self.target_column(assignment.target.column(), false)?;
        let change = match (&assignment.target, &assignment.operation) {
            (Target::Column(_), AssignmentOperation::Set(value)) => self.set_value(&column, value)?,
            (Target::Column(_), operation) => self.change_in_place(&column, operation)?,
            (Target::Element { key, .. }, AssignmentOperation::Set(value)) => self.set_element(&column, key, value)?,
            (Target::Field { field, .. }, AssignmentOperation::Set(value)) => self.set_field(&column, field, value)?,
            (Target::JsonPath { path, .. }, AssignmentOperation::Set(value)) => self.set_path(&column, path, value)?,
            (_, _) => return Err(invalid(format!("Invalid operation for an element of column {}", column.name))),
        };
        Ok(Operation { column: at, change })
    }

    /// Plans giving a column a value, as `INSERT` and `SET column = value` do.
    pub fn set_value(&mut self, column: &Column, value: &Expression) -> Result<Change, CqlError> {
        if column.data_type == CqlType::Counter {
            return Err(invalid(format!(
                "Cannot set the value of counter column {} (counters can only be incremented/decremented, not set)",
                column.name
            )));
        }
        Ok(Change::Set(self.term(value, &Receiver::new(&column.name, &column.data_type))?))
    }

    fn change_in_place(&mut self, column: &Column, operation: &AssignmentOperation) -> Result<Change, CqlError> {
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
            let term = self.term(value, &Receiver::new(name, &CqlType::Counter))?;
            return Ok(Change::Count(term, symbol == "-"));
        }
        let refuse = |what: &str| {
            let shown = if symbol == "prepend" {
                format!("{name} = ? + {name}")
            } else {
                format!("{name} = {name} {symbol} ?")
            };
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
        let term = self.term(value, &Receiver::owned(name.as_str(), value_type))?;
        Ok(match symbol {
            "+" => Change::Add(term),
            "-" => Change::Remove(term),
            _ => Change::Prepend(term),
        })
    }

    fn set_element(&mut self, column: &Column, key: &Expression, value: &Expression) -> Result<Change, CqlError> {
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
        let key = self.term(key, &Receiver::new(format!("{key_name}({name})"), key_type))?;
        let value = self.term(value, &Receiver::new(format!("value({name})"), value_type))?;
        Ok(Change::SetElement(key, value))
    }

    fn user_field(&self, column: &Column, field: &str) -> Result<(u16, CqlType), CqlError> {
        let name = &column.name;
        let CqlType::UserDefined(user, frozen) = &column.data_type else {
            return Err(invalid(format!("Invalid operation ({name}.{field}) for non-UDT column {name}")));
        };
        if *frozen == Frozen::Yes {
            return Err(invalid(format!("Invalid operation ({name}.{field}) for frozen UDT column {name}")));
        }
        let at = user.fields.iter().position(|(known, _)| known == field);
        let at = at.ok_or_else(|| invalid(format!("UDT column {name} does not have a field named {field}")))?;
        Ok((at as u16, user.fields[at].1.clone()))
    }

    fn set_path(&mut self, column: &Column, path: &[Expression], value: &Expression) -> Result<Change, CqlError> {
        if column.data_type != CqlType::Jsonb {
            return Err(invalid(format!("Invalid path into column {} of type {}", column.name, column.data_type)));
        }
        let (steps, terms) = self.json_steps(path)?;
        let value = self.term(value, &Receiver::new(&column.name, &column.data_type))?;
        Ok(Change::SetPath(steps, terms, value))
    }

    fn set_field(&mut self, column: &Column, field: &str, value: &Expression) -> Result<Change, CqlError> {
        let (at, data_type) = self.user_field(column, field)?;
        let term = self.term(value, &Receiver::new(format!("{}.{field}", column.name), &data_type))?;
        Ok(Change::SetField(at, term))
    }

    /// Plans one target of `DELETE`.
    pub fn deletion(&mut self, target: &Target) -> Result<Operation, CqlError> {
        let (at, column) = self.target_column(target.column(), true)?;
        let name = &column.name;
        let change = match target {
            Target::Column(_) => Change::Set(Term::NULL),
            Target::Field { field, .. } => Change::SetField(self.user_field(&column, field)?.0, Term::NULL),
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
                        let key = self.term(key, &Receiver::new(format!("idx({name})"), &CqlType::Int))?;
                        Change::SetElement(key, Term::NULL)
                    }
                    CqlType::Map(key_type, ..) => {
                        let key = self.term(key, &Receiver::new(format!("key({name})"), key_type))?;
                        Change::SetElement(key, Term::NULL)
                    }
                    CqlType::Set(element, _) => {
                        let key = self.term(key, &Receiver::new(format!("value({name})"), element))?;
                        Change::SetElement(key, Term::NULL)
                    }
                    _ => return Err(invalid(format!("Invalid deletion operation for column {name}"))),
                }
            }
        };
        Ok(Operation { column: at, change })
    }
}
