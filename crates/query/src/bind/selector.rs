//! One selected expression: from its syntax tree to a [`Selector`] of a known type.
//!
//! Always true: an expression is bound once, with the type that its place asks for if it has one; names of result columns are Cassandra's.
//! Left out: functions ([`super::selector_call`]) and collections ([`super::selector_built`]), user-defined functions.

use super::binder::Binder;
use super::literal::literal_type;
use super::receiver::Receiver;
use super::selector_text::{cannot_infer, text};
use crate::error::{invalid, not_supported};
use crate::functions::{Function, arithmetic, is_castable};
use crate::plan::selection::{Aggregate, AggregateKind, Selector};
use crate::types::{is_assignable, native_type};
use diorite_cql::language::ast::{self, ArithmeticOperator, Expression, MetadataKind};
use diorite_cql::protocol::CqlError;
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

/// A selector with its type and the name that its result column gets.
pub(super) struct Named {
    pub(super) selector: Selector,
    pub(super) data_type: CqlType,
    pub(super) name: String,
}

/// Binds selected expressions, and gathers their aggregates.
pub(super) struct SelectorBinder<'b, 'a> {
    pub(super) binder: &'b mut Binder<'a>,
    /// The aggregates found so far; selectors refer to them by their index.
    pub(super) aggregates: Vec<Aggregate>,
}

impl<'b, 'a> SelectorBinder<'b, 'a> {
    /// No expression yet.
    pub(super) fn new(binder: &'b mut Binder<'a>) -> Self {
        Self { binder, aggregates: Vec::new() }
    }

    /// Plans an expression in a place of type `wanted`, or of any type.
    pub(super) fn selector(&mut self, expression: &Expression, wanted: Option<&CqlType>) -> Result<Named, CqlError> {
        self.binder.budget.step()?;
        self.binder.typing.enter();
        let named = self.find_selector(expression, wanted);
        self.binder.typing.leave();
        self.binder.budget.charge(size_of::<Selector>())?;
        named
    }

    fn find_selector(&mut self, expression: &Expression, wanted: Option<&CqlType>) -> Result<Named, CqlError> {
        match expression {
            Expression::Column(name) => {
                let at = self.binder.column_position(name)?;
                let column = self.binder.context().column(at);
                Ok(Named { selector: Selector::Column(at), data_type: column.data_type.clone(), name: name.clone() })
            }
            Expression::CountAll => {
                let argument_type = CqlType::Bigint;
                self.aggregates.push(Aggregate { kind: AggregateKind::CountRows, argument: None, argument_type });
                let selector = Selector::Aggregate(self.aggregates.len() - 1);
                Ok(Named { selector, data_type: CqlType::Bigint, name: "count".to_owned() })
            }
            Expression::Function { name, arguments } => self.selected_call(name, arguments, wanted),
            Expression::Metadata { kind, of } => self.selected_metadata(*kind, of),
            Expression::Cast { value, to } => self.selected_cast(value, *to),
            Expression::TypeHint { hint, value } => self.selected_hint(hint, value),
            Expression::Element { of, key } => self.selected_element(of, key),
            Expression::Slice { of, from, to } => self.selected_slice(of, from.as_deref(), to.as_deref()),
            Expression::Field { of, field } => self.selected_field(of, field),
            Expression::Negate(operand) => self.selected_negation(operand, wanted),
            Expression::Arithmetic { operator, left, right } => self.selected_arithmetic(*operator, left, right),
            Expression::JsonPath { of, path, as_text } => self.selected_path(of, path, *as_text),
            Expression::Tuple(parts) if parts.len() == 1 && !matches!(wanted, Some(CqlType::Tuple(_))) => {
                self.selector(&parts[0], wanted)
            }
            Expression::List(_)
            | Expression::Set(_)
            | Expression::Map(_)
            | Expression::UserType(_)
            | Expression::Tuple(_) => self.built(expression, wanted),
            Expression::Literal(_) | Expression::Marker(_) => match wanted {
                Some(wanted) => {
                    let term = self.binder.term(expression, &Receiver::new("[selection]", wanted))?;
                    Ok(Named { selector: Selector::Term(term), data_type: wanted.clone(), name: text(expression) })
                }
                None => Err(cannot_infer(expression)),
            },
        }
    }

    fn selected_cast(&mut self, value: &Expression, to: ast::NativeType) -> Result<Named, CqlError> {
        let inner = self.selector(value, literal_type(value).as_ref())?;
        let target = native_type(to)?;
        if !is_castable(&inner.data_type, &target) {
            return Err(invalid(format!("{} cannot be cast to {target}", inner.data_type)));
        }
        let name = format!("cast({} as {})", inner.name, to.name());
        let function = Function::Cast(inner.data_type, target.clone());
        Ok(Named { selector: Selector::Call(function, vec![inner.selector]), data_type: target, name })
    }

    fn selected_hint(&mut self, hint: &ast::TypeName, value: &Expression) -> Result<Named, CqlError> {
        let data_type = self.binder.resolve_type(hint)?;
        let mut planned = self.selector(value, Some(&data_type))?;
        if !is_assignable(&data_type, &planned.data_type) {
            return Err(invalid(format!("Cannot assign value {} to type {data_type}", planned.name)));
        }
        planned.name = format!("({data_type}){}", planned.name);
        Ok(Named { data_type, ..planned })
    }

    fn selected_negation(&mut self, operand: &Expression, wanted: Option<&CqlType>) -> Result<Named, CqlError> {
        let inner = self.selector(operand, wanted.or(literal_type(operand).as_ref()))?;
        if !arithmetic::is_number(&inner.data_type) && inner.data_type != CqlType::Duration {
            return Err(invalid(format!("the '-' operation is not supported on {}", inner.data_type)));
        }
        let function = Function::Negate(inner.data_type.clone());
        let name = format!("-{}", inner.name);
        Ok(Named { selector: Selector::Call(function, vec![inner.selector]), data_type: inner.data_type, name })
    }

    fn selected_arithmetic(
        &mut self,
        operator: ArithmeticOperator,
        left: &Expression,
        right: &Expression,
    ) -> Result<Named, CqlError> {
        let symbol = arithmetic::symbol(operator);
        let operand = |binder: &mut Self, operand: &Expression| {
            let wanted = literal_type(operand);
            if wanted.is_none() && binder.binder.needs_type(operand)? {
                return Err(invalid(format!(
                    "Ambiguous '{symbol}' operation with args {} and {}: use type hint to disambiguate, example '(int) ?'",
                    text(left),
                    text(right)
                )));
            }
            binder.selector(operand, wanted.as_ref())
        };
        let one = operand(self, left)?;
        let other = operand(self, right)?;
        let data_type = arithmetic::result_type(operator, &one.data_type, &other.data_type);
        let data_type = data_type.ok_or_else(|| arithmetic::unsupported(operator, &one.data_type, &other.data_type))?;
        let name = format!("{} {symbol} {}", one.name, other.name);
        let function = Function::Arithmetic(operator, one.data_type, other.data_type);
        Ok(Named { selector: Selector::Call(function, vec![one.selector, other.selector]), data_type, name })
    }

    fn selected_path(&mut self, of: &Expression, path: &[Expression], as_text: bool) -> Result<Named, CqlError> {
        let document = self.selector(of, None)?;
        if document.data_type != CqlType::Jsonb {
            let arrow = if as_text { "->>" } else { "->" };
            return Err(invalid(format!("the operator {arrow} is not supported on {}", document.data_type)));
        }
        let (steps, terms) = self.binder.json_steps(path)?;
        let mut name = document.name;
        for (at, step) in path.iter().enumerate() {
            name.push_str(if as_text && at + 1 == path.len() { "->>" } else { "->" });
            name.push_str(&text(step));
        }
        let parts = std::iter::once(document.selector).chain(terms.into_iter().map(Selector::Term)).collect();
        let data_type = if as_text { CqlType::Text } else { CqlType::Jsonb };
        Ok(Named { selector: Selector::Call(Function::JsonPath(steps, as_text), parts), data_type, name })
    }

    fn selected_metadata(&mut self, kind: MetadataKind, of: &Expression) -> Result<Named, CqlError> {
        let function = match kind {
            MetadataKind::WriteTime => "writetime",
            MetadataKind::MaxWriteTime => "maxwritetime",
            MetadataKind::Ttl => "ttl",
        };
        let scalar = if kind == MetadataKind::Ttl { CqlType::Int } else { CqlType::Bigint };
        let inner = match of {
            Expression::Element { of, .. } | Expression::Field { of, .. } => of,
            other => other,
        };
        let Expression::Column(name) = inner else {
            return Err(not_supported(format!("{function} of anything but a column, an element or a field")));
        };
        let at = self.binder.column_position(name)?;
        let column = self.binder.context().column(at).clone();
        if at < self.binder.context().key_columns() {
            return Err(invalid(format!("Cannot use selection function {function} on PRIMARY KEY part {name}")));
        }
        if column.data_type == CqlType::Counter && kind == MetadataKind::Ttl {
            return Err(invalid(format!("Cannot use selection function {function} on counters")));
        }
        let not_there = || invalid(format!("Invalid element selection: {name} is of type {}", column.data_type));
        let selector = match of {
            Expression::Element { key, .. } => {
                let (CqlType::Map(key_type, _, Frozen::No) | CqlType::Set(key_type, Frozen::No)) = &column.data_type
                else {
                    return Err(not_there());
                };
                let term = self.binder.term(key, &Receiver::new(format!("key({name})"), key_type))?;
                Selector::ElementMetadata(kind, at, term)
            }
            Expression::Field { field, .. } => {
                let CqlType::UserDefined(user, Frozen::No) = &column.data_type else { return Err(not_there()) };
                let index = self.binder.field_place(user, field)?;
                let index =
                    index.ok_or_else(|| invalid(format!("{name} of type {} has no field {field}", user.name)))?;
                Selector::FieldMetadata(kind, at, index as u16)
            }
            _ => Selector::Metadata(kind, at),
        };
        let is_list = matches!(selector, Selector::Metadata(..))
            && column.data_type.is_multi_cell()
            && kind != MetadataKind::MaxWriteTime;
        let data_type = if is_list { CqlType::List(Arc::new(scalar), Frozen::No) } else { scalar };
        let shown = match of {
            Expression::Element { key, .. } => format!("{name}[{}]", text(key)),
            Expression::Field { field, .. } => format!("{name}.{field}"),
            _ => name.clone(),
        };
        Ok(Named { selector, data_type, name: format!("{function}({shown})") })
    }

    fn selected_element(&mut self, of: &Expression, key: &Expression) -> Result<Named, CqlError> {
        let inner = self.selector(of, None)?;
        let name = &inner.name;
        let (key_type, data_type, key_name) = match &inner.data_type {
            CqlType::Map(key, value, _) => (CqlType::clone(key), CqlType::clone(value), "key"),
            CqlType::Set(element, _) => (CqlType::clone(element), CqlType::clone(element), "key"),
            // Cassandra 5.1 selects these too.
            CqlType::List(element, _) | CqlType::Vector(element, _) => (CqlType::Int, CqlType::clone(element), "idx"),
            other => {
                return Err(invalid(format!(
                    "Invalid element selection: {name} is of type {other} is not a collection"
                )));
            }
        };
        let term = self.binder.term(key, &Receiver::owned(format!("{key_name}({name})"), key_type))?;
        let name = format!("{name}[{}]", text(key));
        Ok(Named { selector: Selector::Element(Box::new(inner.selector), inner.data_type, term), data_type, name })
    }

    fn selected_slice(
        &mut self,
        of: &Expression,
        from: Option<&Expression>,
        to: Option<&Expression>,
    ) -> Result<Named, CqlError> {
        let inner = self.selector(of, None)?;
        let name = &inner.name;
        let (CqlType::Map(key_type, ..) | CqlType::Set(key_type, _)) = &inner.data_type else {
            return Err(invalid(format!(
                "Invalid slice selection: {name} of type {} is not a collection of keys (a set or a map)",
                inner.data_type
            )));
        };
        let mut bound = |bound: Option<&Expression>| {
            bound.map(|bound| self.binder.term(bound, &Receiver::new(format!("key({name})"), key_type))).transpose()
        };
        let (lower, upper) = (bound(from)?, bound(to)?);
        let shown = |bound: Option<&Expression>| bound.map(text).unwrap_or_default();
        let name = format!("{name}[{}..{}]", shown(from), shown(to));
        let selector = Selector::Slice(Box::new(inner.selector), inner.data_type.clone(), lower, upper);
        Ok(Named { selector, data_type: inner.data_type, name })
    }

    fn selected_field(&mut self, of: &Expression, field: &str) -> Result<Named, CqlError> {
        let inner = self.selector(of, None)?;
        let CqlType::UserDefined(user, _) = &inner.data_type else {
            return Err(invalid(format!(
                "Invalid field selection: {} of type {} is not a user type",
                inner.name, inner.data_type
            )));
        };
        let index = self.binder.field_place(user, field)?;
        let index =
            index.ok_or_else(|| invalid(format!("{} of type {} has no field {field}", inner.name, user.name)))?;
        Ok(Named {
            selector: Selector::Field(Box::new(inner.selector), index as u16),
            data_type: user.fields[index].1.clone(),
            name: format!("{}.{field}", inner.name),
        })
    }
}
