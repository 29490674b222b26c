//! What a `SELECT` returns: for each result column how it is computed from a row, or from many.
//!
//! Always true: a selector names columns by position and its type is known; which columns have to be read follows from it. Left out: user
//! functions, arithmetic, slices of collections, jsonb paths.

use super::Planner;
use super::term::{Receiver, Term};
use crate::error::{invalid, not_supported};
use crate::functions::{Function, is_aggregate, is_castable};
use crate::types::{is_assignable, native_type, type_option};
use diorite_cql::language::ast::{self, Expression, Literal, MetadataKind, QualifiedName};
use diorite_cql::protocol::{ColumnSpec, CqlError, ResultMetadata};
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

/// How a result column is computed.
#[derive(Debug, Clone)]
pub enum Selector {
    /// A column as it is.
    Column(usize),
    /// The same for every row.
    Term(Term),
    /// A function of other selectors.
    Call(Function, Vec<Selector>),
    /// `writetime(column)`, `maxwritetime(column)`, `ttl(column)`
    Metadata(MetadataKind, usize),
    /// The same of one element of a map or set
    ElementMetadata(MetadataKind, usize, Term),
    /// The value of a map at a key, or the element of a set
    Element(usize, Term),
    /// A field of a user-defined type
    Field(usize, u16),
    /// An aggregate, by its number.
    Aggregate(usize),
}

/// An aggregate function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateKind {
    /// `count(*)`
    CountRows,
    /// `count(x)`
    Count,
    /// `min(x)`
    Min,
    /// `max(x)`
    Max,
    /// `sum(x)`
    Sum,
    /// `avg(x)`
    Avg,
}

/// An aggregate to be computed.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Which.
    pub kind: AggregateKind,
    /// Of what; absent for `count(*)`.
    pub argument: Option<Selector>,
    /// The type of the argument.
    pub argument_type: CqlType,
}

/// The planned selection.
#[derive(Debug)]
pub struct SelectionPlan {
    /// One per result column.
    pub selectors: Vec<Selector>,
    /// The aggregates that selectors refer to.
    pub aggregates: Vec<Aggregate>,
    /// The result's columns.
    pub metadata: Arc<ResultMetadata>,
    /// For each column of the table whether its value is needed.
    pub reads: Vec<bool>,
    /// The selected columns, when nothing but columns is selected.
    pub plain_columns: Option<Vec<usize>>,
}

impl SelectionPlan {
    /// Whether rows are folded into one.
    pub fn is_aggregate(&self) -> bool {
        !self.aggregates.is_empty()
    }

    /// Whether it is `COUNT(*)` and nothing else.
    pub fn is_count_only(&self) -> bool {
        matches!(self.selectors.as_slice(), [Selector::Aggregate(_)])
            && matches!(self.aggregates.as_slice(), [Aggregate { kind: AggregateKind::CountRows, .. }])
    }
}

/// A selector with its type and the name that its result column gets.
struct Named {
    selector: Selector,
    data_type: CqlType,
    name: String,
}

impl Planner<'_> {
    /// Plans the selection of a `SELECT`.
    pub fn selection(&mut self, selection: &ast::Selection) -> Result<SelectionPlan, CqlError> {
        let context = self.shared_context();
        let mut aggregates = Vec::new();
        let mut named = Vec::new();
        match selection {
            ast::Selection::All => {
                for (at, column) in context.table().columns.iter().enumerate() {
                    let (data_type, name) = (column.data_type.clone(), column.name.clone());
                    named.push(Named { selector: Selector::Column(at), data_type, name });
                }
            }
            ast::Selection::Selectors(selectors) => {
                for selector in selectors {
                    let mut planned = self.selector(&selector.expression, &mut aggregates)?;
                    if let Some(alias) = &selector.alias {
                        planned.name.clone_from(alias);
                    }
                    named.push(planned);
                }
            }
        }
        let mut reads = vec![false; context.table().columns.len()];
        named.iter().for_each(|named| mark_reads(&named.selector, &mut reads));
        aggregates.iter().filter_map(|aggregate: &Aggregate| aggregate.argument.as_ref()).for_each(|argument| {
            mark_reads(argument, &mut reads);
        });
        let columns = named.iter().map(|named| ColumnSpec {
            keyspace: context.table().keyspace.clone(),
            table: context.table().name.clone(),
            name: named.name.clone(),
            type_option: type_option(&named.data_type),
        });
        let metadata = Arc::new(ResultMetadata::new(columns.collect()));
        let plain = |named: &Named| if let Selector::Column(at) = named.selector { Some(at) } else { None };
        let plain_columns = named.iter().map(plain).collect();
        let selectors = named.into_iter().map(|named| named.selector).collect();
        Ok(SelectionPlan { selectors, aggregates, metadata, reads, plain_columns })
    }

    fn selector(&mut self, expression: &Expression, aggregates: &mut Vec<Aggregate>) -> Result<Named, CqlError> {
        match expression {
            Expression::Column(name) => {
                let at = self.column_position(name)?;
                let column = self.context().column(at);
                Ok(Named { selector: Selector::Column(at), data_type: column.data_type.clone(), name: name.clone() })
            }
            Expression::CountAll => {
                aggregates.push(Aggregate {
                    kind: AggregateKind::CountRows,
                    argument: None,
                    argument_type: CqlType::Bigint,
                });
                let selector = Selector::Aggregate(aggregates.len() - 1);
                Ok(Named { selector, data_type: CqlType::Bigint, name: "count".to_owned() })
            }
            Expression::Function { name, arguments } => self.selected_call(name, arguments, aggregates),
            Expression::Metadata { kind, of } => self.selected_metadata(*kind, of),
            Expression::Cast { value, to } => {
                let inner = self.selector(value, aggregates)?;
                let target = native_type(*to)?;
                if !is_castable(&inner.data_type, &target) {
                    return Err(invalid(format!("{} cannot be cast to {target}", inner.data_type)));
                }
                let name = format!("cast({} as {})", inner.name, to.name());
                let function = Function::Cast(inner.data_type, target.clone());
                Ok(Named { selector: Selector::Call(function, vec![inner.selector]), data_type: target, name })
            }
            Expression::TypeHint { hint, value } => {
                let data_type = self.resolve_type(hint)?;
                let term = self.term(value, &Receiver::new("[selection]", &data_type))?;
                Ok(Named { selector: Selector::Term(term), name: format!("({data_type}){}", text(value)), data_type })
            }
            Expression::Element { of, key } => self.selected_element(of, key),
            Expression::Field { of, field } => self.selected_field(of, field),
            Expression::Slice { .. } => Err(not_supported("selecting a slice of a collection")),
            Expression::Negate(_) | Expression::Arithmetic { .. } => Err(not_supported("arithmetic in the selection")),
            Expression::JsonPath { .. } => Err(not_supported("the operator ->")),
            Expression::List(_)
            | Expression::Set(_)
            | Expression::Map(_)
            | Expression::UserType(_)
            | Expression::Tuple(_) => Err(not_supported("building collections in the selection")),
            Expression::Literal(_) | Expression::Marker(_) => Err(invalid(format!(
                "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
                text(expression)
            ))),
        }
    }

    fn selected_call(
        &mut self,
        name: &QualifiedName,
        arguments: &[Expression],
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<Named, CqlError> {
        let lower = name.name.to_ascii_lowercase();
        if is_aggregate(&lower) {
            return self.selected_aggregate(&lower, arguments, aggregates);
        }
        let candidates = self.candidates(name)?;
        let fitting_count = candidates.iter().filter(|candidate| candidate.arguments.len() == arguments.len()).count();
        for candidate in &candidates {
            if candidate.arguments.len() != arguments.len() {
                continue;
            }
            let is_only = fitting_count == 1;
            let Some(planned) = self.call_arguments(candidate, arguments, aggregates, is_only)? else { continue };
            let names: Vec<String> = planned.iter().map(|argument| argument.name.clone()).collect();
            let selectors = planned.into_iter().map(|argument| argument.selector).collect();
            return Ok(Named {
                selector: Selector::Call(candidate.function.clone(), selectors),
                data_type: candidate.returns.clone(),
                name: format!("system.{lower}({})", names.join(", ")),
            });
        }
        Err(invalid(format!("Invalid call to function {}, none of its type signatures match", name.name)))
    }

    /// Plans the arguments of a call, or finds that they do not fit the overload.
    fn call_arguments(
        &mut self,
        overload: &crate::functions::Signature,
        arguments: &[Expression],
        aggregates: &mut Vec<Aggregate>,
        is_only: bool,
    ) -> Result<Option<Vec<Named>>, CqlError> {
        let mut planned = Vec::with_capacity(arguments.len());
        for (argument, wanted) in arguments.iter().zip(&overload.arguments) {
            let is_term = matches!(
                argument,
                Expression::Literal(_)
                    | Expression::Marker(_)
                    | Expression::List(_)
                    | Expression::Set(_)
                    | Expression::Map(_)
            );
            let named = if is_term {
                match self.term(argument, &Receiver::new("[argument]", wanted)) {
                    Ok(term) => {
                        Named { selector: Selector::Term(term), data_type: wanted.clone(), name: text(argument) }
                    }
                    Err(error) if is_only => return Err(error),
                    Err(_) => return Ok(None),
                }
            } else {
                self.selector(argument, aggregates)?
            };
            if !is_assignable(wanted, &named.data_type) {
                return Ok(None);
            }
            planned.push(named);
        }
        Ok(Some(planned))
    }

    fn selected_aggregate(
        &mut self,
        name: &str,
        arguments: &[Expression],
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<Named, CqlError> {
        let [argument] = arguments else {
            return Err(invalid(format!(
                "Invalid number of arguments in call to function {name}: 1 required but {} provided",
                arguments.len()
            )));
        };
        let mut nested = Vec::new();
        if name == "count" && matches!(argument, Expression::Literal(Literal::Integer(_))) {
            return self.selector(&Expression::CountAll, aggregates);
        }
        let inner = self.selector(argument, &mut nested)?;
        if !nested.is_empty() {
            return Err(invalid("aggregate functions cannot be used as arguments of aggregate functions"));
        }
        let kind = match name {
            "count" => AggregateKind::Count,
            "min" => AggregateKind::Min,
            "max" => AggregateKind::Max,
            "sum" => AggregateKind::Sum,
            _ => AggregateKind::Avg,
        };
        let is_numeric = matches!(
            inner.data_type,
            CqlType::Tinyint
                | CqlType::Smallint
                | CqlType::Int
                | CqlType::Bigint
                | CqlType::Counter
                | CqlType::Float
                | CqlType::Double
                | CqlType::Decimal
                | CqlType::Varint
        );
        if matches!(kind, AggregateKind::Sum | AggregateKind::Avg) && !is_numeric {
            return Err(invalid(format!(
                "Invalid call to function {name}, none of its type signatures match (the argument is of type {})",
                inner.data_type
            )));
        }
        let data_type = match (kind, &inner.data_type) {
            (AggregateKind::Count, _) | (_, CqlType::Counter) => CqlType::Bigint,
            (_, argument) => argument.clone(),
        };
        let argument_type = if inner.data_type == CqlType::Counter { CqlType::Bigint } else { inner.data_type };
        aggregates.push(Aggregate { kind, argument: Some(inner.selector), argument_type });
        let selector = Selector::Aggregate(aggregates.len() - 1);
        Ok(Named { selector, data_type, name: format!("system.{name}({})", inner.name) })
    }

    fn selected_metadata(&mut self, kind: MetadataKind, of: &Expression) -> Result<Named, CqlError> {
        let function = match kind {
            MetadataKind::WriteTime => "writetime",
            MetadataKind::MaxWriteTime => "maxwritetime",
            MetadataKind::Ttl => "ttl",
        };
        let scalar = if kind == MetadataKind::Ttl { CqlType::Int } else { CqlType::Bigint };
        let (name, key) = match of {
            Expression::Column(name) => (name, None),
            Expression::Element { of, key } => match &**of {
                Expression::Column(name) => (name, Some(key)),
                _ => return Err(invalid(format!("Invalid argument of {function}"))),
            },
            _ => return Err(not_supported(format!("{function} of this selector"))),
        };
        let at = self.column_position(name)?;
        let column = self.context().column(at).clone();
        if at < self.context().key_columns() {
            return Err(invalid(format!("Cannot use selection function {function} on PRIMARY KEY part {name}")));
        }
        if let Some(key) = key {
            let key_type = match &column.data_type {
                CqlType::Map(key, _, Frozen::No) | CqlType::Set(key, Frozen::No) => key.clone(),
                _ => return Err(invalid(format!("Invalid element selection: {name} is of type {}", column.data_type))),
            };
            let term = self.term(key, &Receiver::new(format!("key({name})"), &key_type))?;
            return Ok(Named {
                selector: Selector::ElementMetadata(kind, at, term),
                data_type: scalar,
                name: format!("{function}({name}[{}])", text(key)),
            });
        }
        let is_list = column.data_type.is_multi_cell() && kind != MetadataKind::MaxWriteTime;
        let data_type = if is_list { CqlType::List(Arc::new(scalar), Frozen::No) } else { scalar };
        Ok(Named { selector: Selector::Metadata(kind, at), data_type, name: format!("{function}({name})") })
    }

    fn selected_element(&mut self, of: &Expression, key: &Expression) -> Result<Named, CqlError> {
        let Expression::Column(name) = of else { return Err(not_supported("selecting an element of this selector")) };
        let at = self.column_position(name)?;
        let column = self.context().column(at).clone();
        let (key_type, data_type) = match &column.data_type {
            CqlType::Map(key, value, _) => (key, (**value).clone()),
            CqlType::Set(element, _) => (element, (**element).clone()),
            other => {
                return Err(invalid(format!(
                    "Invalid element selection: {name} is of type {other} is not a collection"
                )));
            }
        };
        let term = self.term(key, &Receiver::new(format!("key({name})"), key_type))?;
        Ok(Named { selector: Selector::Element(at, term), data_type, name: format!("{name}[{}]", text(key)) })
    }

    fn selected_field(&mut self, of: &Expression, field: &str) -> Result<Named, CqlError> {
        let Expression::Column(name) = of else { return Err(not_supported("selecting a field of this selector")) };
        let at = self.column_position(name)?;
        let column = self.context().column(at).clone();
        let CqlType::UserDefined(user, _) = &column.data_type else {
            return Err(invalid(format!(
                "Invalid field selection: {name} of type {} is not a user type",
                column.data_type
            )));
        };
        let index = user.fields.iter().position(|(known, _)| known == field);
        let index = index.ok_or_else(|| invalid(format!("{} of type {} has no field {field}", name, user.name)))?;
        Ok(Named {
            selector: Selector::Field(at, index as u16),
            data_type: user.fields[index].1.clone(),
            name: format!("{name}.{field}"),
        })
    }
}

fn mark_reads(selector: &Selector, reads: &mut [bool]) {
    match selector {
        Selector::Column(at)
        | Selector::Metadata(_, at)
        | Selector::ElementMetadata(_, at, _)
        | Selector::Element(at, _)
        | Selector::Field(at, _) => reads[*at] = true,
        Selector::Call(_, arguments) => arguments.iter().for_each(|argument| mark_reads(argument, reads)),
        Selector::Term(_) | Selector::Aggregate(_) => {}
    }
}

/// A term as it is shown in a column's name.
fn text(expression: &Expression) -> String {
    match expression {
        Expression::Literal(literal) => match literal {
            Literal::Null => "NULL".to_owned(),
            Literal::String(text) => format!("'{text}'"),
            Literal::Integer(text) | Literal::Float(text) => text.clone(),
            Literal::Boolean(value) => value.to_string(),
            Literal::Blob(bytes) => format!("0x{}", crate::functions::hex(bytes)),
            Literal::Uuid(bytes) => uuid::Uuid::from_bytes(*bytes).to_string(),
            Literal::Duration(duration) => {
                format!("{}mo{}d{}ns", duration.months, duration.days, duration.nanoseconds)
            }
        },
        Expression::Marker(_) => "?".to_owned(),
        Expression::Column(name) => name.clone(),
        _ => "…".to_owned(),
    }
}
