//! From an expression to a term: literals, markers, collections, tuples and user types.
//!
//! Always true: a term fits the type of its receiver. Left out: functions and casts ([`super::call`]), operators
//! ([`super::arithmetic`]), expressions that name columns ([`super::selector`]).

use super::binder::Binder;
use super::literal::constant;
use super::receiver::Receiver;
use crate::error::{invalid, value_error};
use crate::plan::term::{Compound, Evaluated, Term};
use crate::plan::values::Values;
use crate::types::is_assignable;
use diorite_cql::language::ast::{Expression, InValues};
use diorite_cql::protocol::CqlError;
use diorite_model::types::{CqlType, Frozen};
use diorite_model::value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Binder<'_> {
    /// Plans `expression` as a value for `receiver`.
    pub(super) fn term(&mut self, expression: &Expression, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        self.budget.step()?;
        self.typing.enter();
        let term = self.find_term(expression, receiver);
        self.typing.leave();
        let term = term?;
        self.budget.charge(term.own_bytes())?;
        Ok(term)
    }

    fn find_term(&mut self, expression: &Expression, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        match expression {
            Expression::Literal(literal) => constant(literal, receiver),
            Expression::Marker(index) => self.marker(*index, receiver),
            Expression::List(elements) => self.list_term(elements, receiver),
            Expression::Set(elements) => self.set_term(elements, receiver),
            Expression::Map(entries) => self.map_term(entries, receiver),
            Expression::UserType(fields) => self.user_type_term(fields, receiver),
            Expression::Tuple(elements) => self.tuple_term(elements, receiver),
            Expression::Function { name, arguments } => self.function_term(name, arguments, receiver),
            Expression::Cast { value, to } => self.cast_term(value, *to, receiver),
            Expression::TypeHint { hint, value } => {
                let hinted = self.resolve_type(hint)?;
                if !is_assignable(&receiver.data_type, &hinted) {
                    return Err(invalid(format!(
                        "Cannot assign value to {} of type {} (the type hint says {hinted})",
                        receiver.name, receiver.data_type
                    )));
                }
                self.term(value, &Receiver::owned(receiver.name.clone(), hinted))
            }
            Expression::Column(name) => {
                Err(invalid(format!("Invalid column reference {name} where a term is expected")))
            }
            Expression::Negate(operand) => self.negated_term(operand, receiver),
            Expression::Arithmetic { operator, left, right } => self.arithmetic_term(*operator, left, right, receiver),
            Expression::CountAll
            | Expression::Metadata { .. }
            | Expression::Element { .. }
            | Expression::Slice { .. }
            | Expression::JsonPath { .. }
            | Expression::Field { .. } => Err(invalid("a selector cannot be used where a term is expected")),
        }
    }

    fn compound(&self, data_type: &CqlType, parts: Vec<Term>) -> Result<Term, CqlError> {
        let compound = Compound { data_type: data_type.clone(), parts };
        let constants: Option<Vec<Evaluated<'_>>> = compound
            .parts
            .iter()
            .map(|part| match part {
                Term::Constant(Some(bytes)) => Some(Evaluated::Set(Cow::Borrowed(&**bytes))),
                Term::Constant(None) => Some(Evaluated::Null),
                _ => None,
            })
            .collect();
        let Some(constants) = constants else { return Ok(Term::Compound(Box::new(compound))) };
        let wire = compound.assemble(&constants)?;
        let stored = value::canonical(data_type, &wire).map_err(value_error)?;
        Ok(Term::Constant(Some(stored.into_owned().into())))
    }

    fn list_term(&mut self, elements: &[Expression], receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        let element_type = match &*receiver.data_type {
            CqlType::List(element, _) => element.clone(),
            CqlType::Vector(element, dimension) if elements.len() == usize::from(*dimension) => element.clone(),
            CqlType::Vector(_, dimension) => {
                return Err(invalid(format!(
                    "Invalid vector literal for {} of type {}; expected {dimension} elements, but given {}",
                    receiver.name,
                    receiver.data_type,
                    elements.len()
                )));
            }
            other => return Err(invalid(format!("Invalid list literal for {} of type {other}", receiver.name))),
        };
        let element_receiver = Receiver::new(format!("value({})", receiver.name), &element_type);
        let parts = elements.iter().map(|element| self.term(element, &element_receiver)).collect::<Result<_, _>>()?;
        self.compound(&receiver.data_type, parts)
    }

    fn set_term(&mut self, elements: &[Expression], receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        match &*receiver.data_type {
            CqlType::Set(element, _) => {
                let element_receiver = Receiver::new(format!("value({})", receiver.name), element);
                let parts =
                    elements.iter().map(|element| self.term(element, &element_receiver)).collect::<Result<_, _>>()?;
                self.compound(&receiver.data_type, parts)
            }
            // `{}` is parsed as a set, and may be one of these as well.
            CqlType::Map(..) | CqlType::UserDefined(..) if elements.is_empty() => {
                self.compound(&receiver.data_type, Vec::new())
            }
            other => Err(invalid(format!("Invalid set literal for {} of type {other}", receiver.name))),
        }
    }

    fn map_term(&mut self, entries: &[(Expression, Expression)], receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        let CqlType::Map(key, value, _) = &*receiver.data_type else {
            return Err(invalid(format!("Invalid map literal for {} of type {}", receiver.name, receiver.data_type)));
        };
        let key_receiver = Receiver::new(format!("key({})", receiver.name), key);
        let value_receiver = Receiver::new(format!("value({})", receiver.name), value);
        let mut parts = Vec::with_capacity(entries.len() * 2);
        for (key, value) in entries {
            parts.push(self.term(key, &key_receiver)?);
            parts.push(self.term(value, &value_receiver)?);
        }
        self.compound(&receiver.data_type, parts)
    }

    fn user_type_term(&mut self, fields: &[(String, Expression)], receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        let CqlType::UserDefined(user, _) = &*receiver.data_type else {
            return Err(invalid(format!(
                "Invalid user type literal for {} of type {}",
                receiver.name, receiver.data_type
            )));
        };
        let known: HashSet<&str> = user.fields.iter().map(|(name, _)| name.as_str()).collect();
        if let Some((unknown, _)) = fields.iter().find(|(name, _)| !known.contains(name.as_str())) {
            return Err(invalid(format!("Unknown field '{unknown}' in value of user defined type {}", user.name)));
        }
        // Of several values of one field the last counts.
        let given: HashMap<&str, &Expression> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let mut parts = Vec::with_capacity(user.fields.len());
        for (name, data_type) in &user.fields {
            self.budget.step()?;
            parts.push(match given.get(name.as_str()).copied() {
                Some(expression) => {
                    self.term(expression, &Receiver::new(format!("{}.{name}", receiver.name), data_type))?
                }
                None => Term::NULL,
            });
        }
        self.compound(&receiver.data_type, parts)
    }

    fn tuple_term(&mut self, elements: &[Expression], receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        let CqlType::Tuple(types) = &*receiver.data_type else {
            return match elements {
                [single] => self.term(single, receiver),
                _ => {
                    Err(invalid(format!("Invalid tuple literal for {} of type {}", receiver.name, receiver.data_type)))
                }
            };
        };
        if elements.len() > types.len() {
            return Err(invalid(format!(
                "Invalid tuple literal for {}: too many elements. Type {} expects {} but got {}",
                receiver.name,
                receiver.data_type,
                types.len(),
                elements.len()
            )));
        }
        let mut parts = Vec::with_capacity(elements.len());
        for (at, (element, data_type)) in elements.iter().zip(types.iter()).enumerate() {
            parts.push(self.term(element, &Receiver::new(format!("{}[{at}]", receiver.name), data_type))?);
        }
        self.compound(&receiver.data_type, parts)
    }

    /// The right side of `IN` for a value of one type.
    pub(super) fn in_values(&mut self, values: &InValues, name: &str, data_type: &CqlType) -> Result<Values, CqlError> {
        Ok(match values {
            InValues::List(elements) => {
                let receiver = Receiver::new(name, data_type);
                Values::Many(elements.iter().map(|element| self.term(element, &receiver)).collect::<Result<_, _>>()?)
            }
            InValues::Marker(index) => {
                let list = CqlType::List(Arc::new(data_type.clone()), Frozen::Yes);
                Values::List(self.marker(*index, &Receiver::owned(format!("in({name})"), list))?)
            }
        })
    }
}
