//! The type of an expression before it is bound, without regard to its receiver.
//!
//! Always true: each expression is looked at once ([`super::known`]). Left out: the type of what takes any type (markers, lists), which
//! only its place tells.

use super::binder::Binder;
use super::known::{Known, Operand, address};
use super::literal::preferred_type;
use crate::functions::{arithmetic, is_from_json};
use crate::types::native_type;
use diorite_cql::language::ast::{Expression, Literal};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;

impl Binder<'_> {
    /// The type of an expression as an operand.
    pub(super) fn operand(&mut self, expression: &Expression) -> Result<Operand, CqlError> {
        let typed = |data_type| Operand { data_type: Some(data_type), is_flexible: false };
        match expression {
            Expression::Literal(literal) => {
                return Ok(Operand { data_type: preferred_type(literal), is_flexible: true });
            }
            Expression::TypeHint { hint, .. } => return self.resolve_type(hint).map(typed),
            Expression::Cast { to, .. } => return native_type(*to).map(typed),
            Expression::Negate(_) | Expression::Arithmetic { .. } | Expression::Function { .. } => {}
            Expression::Tuple(inner) if inner.len() == 1 => {}
            _ => return Ok(Operand { data_type: None, is_flexible: false }),
        }
        if let Some(known) = self.typing.operands.get(&address(expression)) {
            return Ok(known.clone());
        }
        let found = self.find_operand(expression)?;
        self.typing.operands.insert(address(expression), found.clone());
        Ok(found)
    }

    fn find_operand(&mut self, expression: &Expression) -> Result<Operand, CqlError> {
        self.budget.step()?;
        Ok(match expression {
            Expression::Negate(inner) => self.operand(inner)?,
            Expression::Tuple(inner) => self.operand(&inner[0])?,
            Expression::Arithmetic { operator, left, right } => {
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                let data_type = match (&left.data_type, &right.data_type) {
                    (Some(left), Some(right)) => arithmetic::result_type(*operator, left, right),
                    _ => None,
                };
                Operand { data_type, is_flexible: left.is_flexible && right.is_flexible }
            }
            Expression::Function { name, arguments } if !is_from_json(&name.name) => {
                // The result type of a function depends on its overload only if that depends on the arguments' types.
                let mut overloads = self.candidates(name, arguments)?.into_iter().map(|overload| overload.returns);
                let first = overloads.next();
                let data_type = first.filter(|first| overloads.all(|other| other == *first));
                Operand { data_type, is_flexible: false }
            }
            _ => Operand { data_type: None, is_flexible: false },
        })
    }

    /// The type of an argument, as far as it is known, for a parameter of type `wanted`.
    pub(super) fn known_type(&mut self, expression: &Expression, wanted: &CqlType) -> Result<Known, CqlError> {
        Ok(match expression {
            Expression::Marker(_) | Expression::Literal(Literal::Null) => Known::Anything,
            Expression::Function { name, .. } if is_from_json(&name.name) => Known::Anything,
            Expression::Tuple(inner) if inner.len() == 1 && !matches!(wanted, CqlType::Tuple(_)) => {
                self.known_type(&inner[0], wanted)?
            }
            Expression::Tuple(_) => Known::Tried,
            other => match self.operand(other)? {
                Operand { data_type: Some(known), is_flexible: false } => Known::Exactly(known),
                _ => Known::Tried,
            },
        })
    }

    /// Whether an expression has no type of its own.
    pub(super) fn needs_type(&mut self, expression: &Expression) -> Result<bool, CqlError> {
        match expression {
            Expression::Literal(_) | Expression::Marker(_) | Expression::UserType(_) => return Ok(true),
            Expression::Tuple(parts) if parts.len() == 1 => {}
            Expression::List(_) | Expression::Set(_) | Expression::Map(_) => {}
            _ => return Ok(false),
        }
        if let Some(known) = self.typing.untyped.get(&address(expression)) {
            return Ok(*known);
        }
        self.budget.step()?;
        let mut all = |parts: &mut dyn Iterator<Item = &Expression>| -> Result<bool, CqlError> {
            for part in parts {
                if !self.needs_type(part)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let found = match expression {
            Expression::List(parts) | Expression::Set(parts) | Expression::Tuple(parts) => all(&mut parts.iter())?,
            Expression::Map(entries) => all(&mut entries.iter().flat_map(|(key, value)| [key, value]))?,
            _ => false,
        };
        self.typing.untyped.insert(address(expression), found);
        Ok(found)
    }
}
