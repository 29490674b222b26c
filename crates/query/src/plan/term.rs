//! Terms: what stands for a value in a statement, typed and checked, ready to be evaluated with bound values.
//!
//! Always true: a term has been checked against the type it is for, so evaluation fails only on bound values; constants are wire bytes
//! already; collections are in their stored order. Left out: selectors, which may name columns ([`super::selection`]).

use crate::error::{in_place, invalid, not_supported, value_error};
use crate::functions::document::{self, JsonRow, Member, Step};
use crate::functions::{Environment, Function, Signature, generic, overloads};
use crate::plan::Planner;
use crate::plan::typing::Known;
use crate::steps;
use crate::types::{is_assignable, native_type};
use diorite_base::account::Held;
use diorite_cql::language::ast::{self, Expression, Literal};
use diorite_cql::protocol::{CqlError, Value};
use diorite_model::types::CqlType;
use diorite_model::value::literal::{self, LiteralError};
use diorite_model::value::{self, collection};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

/// What a term is for: gives a marker its name and type, and messages theirs.
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

/// A term.
#[derive(Debug, Clone)]
pub enum Term {
    /// Wire bytes, or null.
    Constant(Option<Box<[u8]>>),
    /// A bound value of this type.
    Marker {
        /// Which one.
        index: u16,
        /// Its type.
        data_type: CqlType,
    },
    /// A function call.
    Call(Box<Call>),
    /// A collection, tuple, user type or vector that is not constant.
    Compound(Box<Compound>),
    /// A column of an `INSERT JSON`.
    JsonColumn(Box<JsonColumn>),
}

/// What a bound JSON text says of a column.
#[derive(Debug, Clone)]
pub struct JsonColumn {
    /// The text.
    pub json: Arc<Term>,
    /// The column's name.
    pub name: String,
    /// Its type.
    pub data_type: CqlType,
    /// All names that the text may have.
    pub columns: Arc<[String]>,
    /// A column that is not named is left alone.
    pub default_unset: bool,
}

/// A function applied to terms.
#[derive(Debug, Clone)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// Its arguments.
    pub arguments: Vec<Term>,
}

/// A value built of terms.
#[derive(Debug, Clone)]
pub struct Compound {
    /// What is built.
    pub data_type: CqlType,
    /// Elements; of maps keys and values in turn; of tuples and user types the fields.
    pub parts: Vec<Term>,
}

/// What a term evaluates to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evaluated<'a> {
    /// Wire bytes.
    Set(Cow<'a, [u8]>),
    /// Null.
    Null,
    /// An unset marker.
    Unset,
}

impl<'a> Evaluated<'a> {
    /// The bytes; `None` for null and unset.
    pub fn bytes(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Evaluated::Set(bytes) => Some(bytes),
            Evaluated::Null | Evaluated::Unset => None,
        }
    }
}

/// Bound values and what functions need, for one execution.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// One value per marker.
    pub values: &'a [Value<'a>],
    /// Time and randomness.
    pub environment: Environment<'a>,
}

impl Term {
    /// A constant null.
    pub const NULL: Term = Term::Constant(None);

    /// The memory that it takes, without the terms in it.
    fn own_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Term::Constant(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len()),
                Term::Marker { .. } => 0,
                Term::Call(_) => size_of::<Call>(),
                Term::Compound(_) => size_of::<Compound>(),
                Term::JsonColumn(column) => size_of::<JsonColumn>() + column.name.len(),
            }
    }

    /// The marker, if it is nothing else.
    pub fn as_marker(&self) -> Option<u16> {
        match self {
            Term::Marker { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// Whether it is the token that a `partition_hash` stands for.
    pub fn is_token_of_hash(&self) -> bool {
        matches!(self, Term::Call(call) if matches!(call.function, Function::TokenOfHash(_)))
    }

    /// The value.
    #[inline]
    pub fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        match self {
            Term::Constant(Some(bytes)) => Ok(Evaluated::Set(Cow::Borrowed(bytes))),
            Term::Constant(None) => Ok(Evaluated::Null),
            Term::Marker { index, data_type } => {
                let value = bound.values[usize::from(*index)];
                // To bring a document to its stored form it is parsed.
                let _parsed = match (data_type, &value) {
                    (CqlType::Jsonb, Value::Set(bytes)) => {
                        Some(bound.environment.budget.hold(bytes.len().saturating_mul(document::PARSED_BYTES))?)
                    }
                    _ => None,
                };
                bound_value(value, data_type)
            }
            Term::Call(call) => call.evaluate(bound),
            Term::Compound(compound) => compound.evaluate(bound),
            Term::JsonColumn(column) => column.evaluate(bound),
        }
    }

    /// The value of a term that may be neither null nor unset; `what` names it.
    #[inline]
    pub fn require<'a>(&'a self, bound: &Bound<'a>, what: &str) -> Result<Cow<'a, [u8]>, CqlError> {
        match self.evaluate(bound).map_err(|error| in_place(error, format_args!("in condition for column {what}")))? {
            Evaluated::Set(bytes) => Ok(bytes),
            Evaluated::Null => Err(invalid(format!("Invalid null value in condition for column {what}"))),
            Evaluated::Unset => Err(invalid(format!("Invalid unset value for column {what}"))),
        }
    }
}

/// Checks a bound value and brings it to its stored form.
#[inline]
pub fn bound_value<'a>(value: Value<'a>, data_type: &CqlType) -> Result<Evaluated<'a>, CqlError> {
    match value {
        Value::Set(bytes) => {
            data_type.validate(bytes).map_err(value_error)?;
            if matches!(
                data_type,
                CqlType::Set(..)
                    | CqlType::Map(..)
                    | CqlType::List(..)
                    | CqlType::Tuple(_)
                    | CqlType::UserDefined(..)
                    | CqlType::Jsonb
            ) {
                return value::canonical(data_type, bytes).map(Evaluated::Set).map_err(value_error);
            }
            Ok(Evaluated::Set(Cow::Borrowed(bytes)))
        }
        Value::Null => Ok(Evaluated::Null),
        Value::Unset => Ok(Evaluated::Unset),
    }
}

impl JsonColumn {
    /// The row of the text, and what holding it takes; columns find it in [`Environment::json`].
    pub fn parse<'b>(&self, bound: &Bound<'b>) -> Result<(JsonRow, Held<'b>), CqlError> {
        let json = self.json.require(bound, "[json]")?;
        let held = bound.environment.budget.hold(json.len().saturating_mul(document::PARSED_BYTES))?;
        steps::count(json.len());
        Ok((document::parse_row(&json, self.columns.iter().map(String::as_str))?, held))
    }

    fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        let parsed;
        let row = match bound.environment.json {
            Some(row) => row,
            None => {
                parsed = self.parse(bound)?;
                &parsed.0
            }
        };
        Ok(match document::member(row, &self.name, &self.data_type)? {
            Member::Value(Some(wire)) => Evaluated::Set(Cow::Owned(wire)),
            Member::Absent if self.default_unset => Evaluated::Unset,
            Member::Value(None) | Member::Absent => Evaluated::Null,
        })
    }
}

impl Call {
    fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            match argument.evaluate(bound)? {
                Evaluated::Set(bytes) => arguments.push(Some(bytes)),
                Evaluated::Null => arguments.push(None),
                Evaluated::Unset => return Err(invalid("Invalid unset value for an argument of a function")),
            }
        }
        let result = self.function.call(&arguments, &bound.environment)?;
        Ok(result.map_or(Evaluated::Null, |bytes| Evaluated::Set(Cow::Owned(bytes))))
    }
}

impl Compound {
    fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        let budget = bound.environment.budget;
        let mut parts = Vec::with_capacity(self.parts.len());
        // The parts, which may be one value many times, are put together and then brought to their stored form.
        let mut working = budget.hold(self.parts.len() * size_of::<Evaluated<'_>>())?;
        for part in &self.parts {
            let part = part.evaluate(bound)?;
            let part_bytes = if let Evaluated::Set(bytes) = &part { bytes.len() } else { 0 };
            working.grow(part_bytes.saturating_add(4).saturating_mul(3)).map_err(crate::budget::refused)?;
            parts.push(part);
        }
        let wire = self.assemble(&parts)?;
        let stored = value::canonical(&self.data_type, &wire).map_err(value_error)?.into_owned();
        Ok(Evaluated::Set(Cow::Owned(stored)))
    }

    fn assemble(&self, parts: &[Evaluated<'_>]) -> Result<Vec<u8>, CqlError> {
        let mut wire = Vec::new();
        let allows_null = matches!(self.data_type, CqlType::Tuple(_) | CqlType::UserDefined(..));
        match &self.data_type {
            CqlType::List(..) | CqlType::Set(..) => collection::push_count(parts.len(), &mut wire),
            CqlType::Map(..) => collection::push_count(parts.len() / 2, &mut wire),
            _ => {}
        }
        for part in parts {
            match (part, &self.data_type) {
                (Evaluated::Set(bytes), CqlType::Vector(element, _)) => {
                    collection::push_vector_element(element, bytes, &mut wire);
                }
                (Evaluated::Set(bytes), _) => collection::push_element(Some(bytes), &mut wire),
                (Evaluated::Null, _) if allows_null => collection::push_element(None, &mut wire),
                (Evaluated::Null, _) => return Err(invalid("null is not supported inside collections")),
                (Evaluated::Unset, _) => return Err(invalid("unset value is not supported inside collections")),
            }
        }
        Ok(wire)
    }
}

impl Planner<'_> {
    /// Plans `expression` as a value for `receiver`.
    pub fn term(&mut self, expression: &Expression, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
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
            | Expression::Field { .. } => Err(invalid("a selector stands where a term is expected")),
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
            // `{}` is parsed as a set and may stand for these as well.
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

    fn cast_term(
        &mut self,
        value: &Expression,
        to: ast::NativeType,
        receiver: &Receiver<'_>,
    ) -> Result<Term, CqlError> {
        let to = native_type(to)?;
        let Known::Exactly(from) = self.known_type(value, &to)? else {
            return Err(invalid("CAST of a value whose type is not known: use a type hint"));
        };
        if !crate::functions::is_castable(&from, &to) {
            return Err(invalid(format!("{from} cannot be cast to {to}")));
        }
        check_result("cast", &to, receiver)?;
        let argument = self.term(value, &Receiver::owned("arg0", from.clone()))?;
        Ok(Term::Call(Box::new(Call { function: Function::Cast(from, to), arguments: vec![argument] })))
    }

    /// The steps of a path into a document.
    pub fn json_steps(&mut self, path: &[Expression]) -> Result<(Vec<Step>, Vec<Term>), CqlError> {
        let (mut steps, mut terms) = (Vec::with_capacity(path.len()), Vec::with_capacity(path.len()));
        for step in path {
            let (kind, data_type) = match step {
                Expression::Literal(Literal::Integer(_)) => (Step::Element, CqlType::Int),
                _ => (Step::Member, CqlType::Text),
            };
            steps.push(kind);
            terms.push(self.term(step, &Receiver::owned("json attribute", data_type))?);
        }
        Ok((steps, terms))
    }

    fn function_term(
        &mut self,
        name: &ast::QualifiedName,
        arguments: &[Expression],
        receiver: &Receiver<'_>,
    ) -> Result<Term, CqlError> {
        if is_from_json(&name.name) {
            let [json] = arguments else { return Err(invalid("from_json takes one argument, a text")) };
            let text = self.term(json, &Receiver::owned("[json]", CqlType::Text))?;
            let function = Function::FromJson(receiver.data_type.clone().into_owned());
            return Ok(Term::Call(Box::new(Call { function, arguments: vec![text] })));
        }
        let candidates = self.candidates(name, arguments)?;
        let chosen = self.choose(name, candidates, arguments, &receiver.data_type)?;
        check_result(&name.name, &chosen.returns, receiver)?;
        let mut terms = Vec::with_capacity(arguments.len());
        for (at, (argument, data_type)) in arguments.iter().zip(&chosen.arguments).enumerate() {
            terms.push(self.term(argument, &Receiver::new(format!("arg{at}({})", name.name), data_type))?);
        }
        Ok(Term::Call(Box::new(Call { function: chosen.function, arguments: terms })))
    }

    /// The overloads of a function.
    pub fn candidates(
        &mut self,
        name: &ast::QualifiedName,
        arguments: &[Expression],
    ) -> Result<Vec<Signature>, CqlError> {
        if name.keyspace.as_deref().is_some_and(|keyspace| keyspace != "system") {
            return Err(not_supported(format!("the user-defined function {}", name.name)));
        }
        let lower = name.name.to_ascii_lowercase();
        if let ("token" | "partition_hash", Some(table)) = (lower.as_str(), self.table.as_ref()) {
            let arguments = table.table().partition_key().map(|column| column.data_type.clone()).collect();
            return Ok(vec![match lower.as_str() {
                "token" => Signature { function: Function::Token, arguments, returns: CqlType::Bigint },
                _ => Signature { function: Function::PartitionHash, arguments, returns: CqlType::Int },
            }]);
        }
        if generic::is_generic(&lower.replace('_', "")) {
            let mut types = Vec::with_capacity(arguments.len());
            for argument in arguments {
                types.push(self.operand(argument)?.data_type);
            }
            return Ok(vec![generic::resolve(&lower, &types)?]);
        }
        let found = overloads(&lower);
        if found.is_empty() {
            return Err(invalid(format!("Unknown function '{}'", name.name)));
        }
        Ok(found)
    }

    /// Picks the overload that takes `arguments`.
    fn choose(
        &mut self,
        name: &ast::QualifiedName,
        candidates: Vec<Signature>,
        arguments: &[Expression],
        wanted: &CqlType,
    ) -> Result<Signature, CqlError> {
        let may_fit = |candidate: &&Signature| candidate.arguments.len() == arguments.len();
        let is_only = candidates.iter().filter(may_fit).count() == 1;
        let mut fitting = Vec::new();
        for candidate in candidates.iter().filter(may_fit) {
            if self.fits(candidate, arguments, is_only)? {
                fitting.push(candidate);
            }
        }
        if fitting.len() > 1 {
            fitting.retain(|candidate| is_assignable(wanted, &candidate.returns));
        }
        let list = |signatures: &[Signature]| {
            let mut text = String::new();
            for (at, signature) in signatures.iter().enumerate() {
                let types: Vec<String> = signature.arguments.iter().map(ToString::to_string).collect();
                let _ = write!(
                    text,
                    "{}{} : ({}) -> {}",
                    if at == 0 { "" } else { ", " },
                    name.name,
                    types.join(", "),
                    signature.returns
                );
            }
            text
        };
        match fitting.as_slice() {
            [single] => Ok((*single).clone()),
            [] => Err(invalid(format!(
                "Invalid call to function {}, none of its type signatures match (known type signatures: {})",
                name.name,
                list(&candidates)
            ))),
            _ => Err(invalid(format!(
                "Ambiguous call to function {} (can be matched by following signatures: {}): use type casts to disambiguate",
                name.name,
                list(&candidates)
            ))),
        }
    }

    /// Whether an overload takes the arguments. What is more than a constant is not planned to find that out, as it would be planned once more if it does: whether
    /// it fits the only overload is seen then, and of several none takes anything but plain values.
    fn fits(&mut self, candidate: &Signature, arguments: &[Expression], is_only: bool) -> Result<bool, CqlError> {
        for (argument, data_type) in arguments.iter().zip(&candidate.arguments) {
            self.budget.step()?;
            let fits = match self.known_type(argument, data_type)? {
                Known::Exactly(known) => is_assignable(data_type, &known),
                Known::Anything => true,
                Known::Tried if is_only && !matches!(argument, Expression::Literal(_)) => true,
                Known::Tried => self.is_plain_value(argument, data_type)?,
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an expression that is made of constants can be a value of a type.
    fn is_plain_value(&mut self, expression: &Expression, data_type: &CqlType) -> Result<bool, CqlError> {
        let is_constant = match expression {
            Expression::Literal(_) => true,
            other => self.operand(other)?.is_flexible,
        };
        Ok(is_constant && self.term(expression, &Receiver::new("", data_type)).is_ok())
    }
}

/// `from_json`, in either spelling.
pub fn is_from_json(name: &str) -> bool {
    name.replace('_', "").eq_ignore_ascii_case("fromjson")
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

/// A constant as a value for `receiver`.
pub fn constant(constant: &Literal, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
    let mut out = Vec::new();
    let data_type = &*receiver.data_type;
    let mut text = String::new();
    let outcome = match constant {
        Literal::Null => return Ok(Term::NULL),
        // The moment of each execution, as in Cassandra.
        Literal::String(text) if *data_type == CqlType::Timestamp && text.eq_ignore_ascii_case("now") => {
            return Ok(Term::Call(Box::new(Call { function: Function::CurrentTimestamp, arguments: Vec::new() })));
        }
        Literal::Duration(duration) => {
            if *data_type != CqlType::Duration {
                return Err(wrong_kind("DURATION", &format!("{duration:?}"), receiver));
            }
            let decoded = value::Value::Duration {
                months: duration.months,
                days: duration.days,
                nanoseconds: duration.nanoseconds,
            };
            decoded.encode(data_type, &mut out).map_err(LiteralError::Invalid)
        }
        Literal::String(string) => {
            text.push_str(string);
            literal::from_literal(data_type, &literal::Literal::String(string), &mut out)
        }
        Literal::Integer(digits) => {
            text.push_str(digits);
            literal::from_literal(data_type, &literal::Literal::Integer(digits), &mut out)
        }
        Literal::Float(digits) => {
            text.push_str(digits);
            literal::from_literal(data_type, &literal::Literal::Float(digits), &mut out)
        }
        Literal::Boolean(value) => {
            text.push_str(if *value { "true" } else { "false" });
            literal::from_literal(data_type, &literal::Literal::Boolean(*value), &mut out)
        }
        Literal::Blob(bytes) => {
            text = crate::functions::hex(bytes);
            let outcome = literal::from_literal(data_type, &literal::Literal::Hex(&text), &mut out);
            text.insert_str(0, "0x");
            outcome
        }
        Literal::Uuid(bytes) => {
            text = uuid::Uuid::from_bytes(*bytes).to_string();
            literal::from_literal(data_type, &literal::Literal::Uuid(&text), &mut out)
        }
    };
    match outcome {
        Ok(()) => Ok(Term::Constant(Some(out.into()))),
        Err(LiteralError::WrongKind(kind, _)) => Err(wrong_kind(kind, &text, receiver)),
        Err(LiteralError::Invalid(error)) => {
            Err(in_place(value_error(error), format_args!("\"{}\" of type {}", receiver.name, receiver.data_type)))
        }
    }
}

fn wrong_kind(kind: &str, text: &str, receiver: &Receiver<'_>) -> CqlError {
    invalid(format!("Invalid {kind} constant ({text}) for \"{}\" of type {}", receiver.name, receiver.data_type))
}
