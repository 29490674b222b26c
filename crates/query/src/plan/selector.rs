//! One selected expression: from its syntax tree to a [`Selector`] of a known type.
//!
//! Always true: an expression is planned once, with the type that its place asks for if it has one; names of result columns are Cassandra's.
//! Left out: user-defined functions.

use super::Planner;
use super::arithmetic::preferred_type;
use super::selection::{Aggregate, AggregateKind, Named, Selector};
use super::term::{Receiver, is_from_json};
use crate::error::{invalid, not_supported};
use crate::functions::{Function, Signature, arithmetic, generic, is_aggregate, is_castable};
use crate::types::{is_assignable, native_type};
use diorite_cql::language::ast::{self, ArithmeticOperator, Expression, Literal, MetadataKind, QualifiedName};
use diorite_cql::protocol::CqlError;
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

/// The aggregates met so far.
type Aggregates = Vec<Aggregate>;

impl Planner<'_> {
    /// Plans an expression that stands where `wanted` is expected, or anywhere.
    pub(super) fn selector(
        &mut self,
        expression: &Expression,
        wanted: Option<&CqlType>,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        self.budget.step()?;
        self.typing.enter();
        let named = self.find_selector(expression, wanted, aggregates);
        self.typing.leave();
        self.budget.charge(size_of::<Selector>())?;
        named
    }

    fn find_selector(
        &mut self,
        expression: &Expression,
        wanted: Option<&CqlType>,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        match expression {
            Expression::Column(name) => {
                let at = self.column_position(name)?;
                let column = self.context().column(at);
                Ok(Named { selector: Selector::Column(at), data_type: column.data_type.clone(), name: name.clone() })
            }
            Expression::CountAll => {
                let argument_type = CqlType::Bigint;
                aggregates.push(Aggregate { kind: AggregateKind::CountRows, argument: None, argument_type });
                let selector = Selector::Aggregate(aggregates.len() - 1);
                Ok(Named { selector, data_type: CqlType::Bigint, name: "count".to_owned() })
            }
            Expression::Function { name, arguments } => self.selected_call(name, arguments, wanted, aggregates),
            Expression::Metadata { kind, of } => self.selected_metadata(*kind, of),
            Expression::Cast { value, to } => self.selected_cast(value, *to, aggregates),
            Expression::TypeHint { hint, value } => self.selected_hint(hint, value, aggregates),
            Expression::Element { of, key } => self.selected_element(of, key, aggregates),
            Expression::Slice { of, from, to } => self.selected_slice(of, from.as_deref(), to.as_deref(), aggregates),
            Expression::Field { of, field } => self.selected_field(of, field, aggregates),
            Expression::Negate(operand) => self.selected_negation(operand, wanted, aggregates),
            Expression::Arithmetic { operator, left, right } => {
                self.selected_arithmetic(*operator, left, right, aggregates)
            }
            Expression::JsonPath { of, path, as_text } => self.selected_path(of, path, *as_text, aggregates),
            Expression::Tuple(parts) if parts.len() == 1 && !matches!(wanted, Some(CqlType::Tuple(_))) => {
                self.selector(&parts[0], wanted, aggregates)
            }
            Expression::List(_)
            | Expression::Set(_)
            | Expression::Map(_)
            | Expression::UserType(_)
            | Expression::Tuple(_) => self.built(expression, wanted, aggregates),
            Expression::Literal(_) | Expression::Marker(_) => match wanted {
                Some(wanted) => {
                    let term = self.term(expression, &Receiver::new("[selection]", wanted))?;
                    Ok(Named { selector: Selector::Term(term), data_type: wanted.clone(), name: text(expression) })
                }
                None => Err(cannot_infer(expression)),
            },
        }
    }

    fn selected_cast(
        &mut self,
        value: &Expression,
        to: ast::NativeType,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let inner = self.selector(value, literal_type(value).as_ref(), aggregates)?;
        let target = native_type(to)?;
        if !is_castable(&inner.data_type, &target) {
            return Err(invalid(format!("{} cannot be cast to {target}", inner.data_type)));
        }
        let name = format!("cast({} as {})", inner.name, to.name());
        let function = Function::Cast(inner.data_type, target.clone());
        Ok(Named { selector: Selector::Call(function, vec![inner.selector]), data_type: target, name })
    }

    fn selected_hint(
        &mut self,
        hint: &ast::TypeName,
        value: &Expression,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let data_type = self.resolve_type(hint)?;
        let mut planned = self.selector(value, Some(&data_type), aggregates)?;
        if !is_assignable(&data_type, &planned.data_type) {
            return Err(invalid(format!("Cannot assign value {} to type {data_type}", planned.name)));
        }
        planned.name = format!("({data_type}){}", planned.name);
        Ok(Named { data_type, ..planned })
    }

    fn selected_negation(
        &mut self,
        operand: &Expression,
        wanted: Option<&CqlType>,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let inner = self.selector(operand, wanted.or(literal_type(operand).as_ref()), aggregates)?;
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
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let symbol = arithmetic::symbol(operator);
        let mut operand = |planner: &mut Self, operand: &Expression| {
            let wanted = literal_type(operand);
            if wanted.is_none() && planner.needs_type(operand)? {
                return Err(invalid(format!(
                    "Ambiguous '{symbol}' operation with args {} and {}: use type hint to disambiguate, example '(int) ?'",
                    text(left),
                    text(right)
                )));
            }
            planner.selector(operand, wanted.as_ref(), aggregates)
        };
        let one = operand(self, left)?;
        let other = operand(self, right)?;
        let data_type = arithmetic::result_type(operator, &one.data_type, &other.data_type);
        let data_type = data_type.ok_or_else(|| arithmetic::unsupported(operator, &one.data_type, &other.data_type))?;
        let name = format!("{} {symbol} {}", one.name, other.name);
        let function = Function::Arithmetic(operator, one.data_type, other.data_type);
        Ok(Named { selector: Selector::Call(function, vec![one.selector, other.selector]), data_type, name })
    }

    fn selected_path(
        &mut self,
        of: &Expression,
        path: &[Expression],
        as_text: bool,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let document = self.selector(of, None, aggregates)?;
        if document.data_type != CqlType::Jsonb {
            let arrow = if as_text { "->>" } else { "->" };
            return Err(invalid(format!("the operator {arrow} is not supported on {}", document.data_type)));
        }
        let (steps, terms) = self.json_steps(path)?;
        let mut name = document.name;
        for (at, step) in path.iter().enumerate() {
            name.push_str(if as_text && at + 1 == path.len() { "->>" } else { "->" });
            name.push_str(&text(step));
        }
        let parts = std::iter::once(document.selector).chain(terms.into_iter().map(Selector::Term)).collect();
        let data_type = if as_text { CqlType::Text } else { CqlType::Jsonb };
        Ok(Named { selector: Selector::Call(Function::JsonPath(steps, as_text), parts), data_type, name })
    }

    fn selected_call(
        &mut self,
        name: &QualifiedName,
        arguments: &[Expression],
        wanted: Option<&CqlType>,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let lower = name.name.to_ascii_lowercase();
        let is_system = name.keyspace.as_deref().is_none_or(|keyspace| keyspace == "system");
        if is_aggregate(&lower) && is_system {
            return self.selected_aggregate(&lower, arguments, aggregates);
        }
        if is_from_json(&lower) && is_system {
            let ([json], Some(to)) = (arguments, wanted) else {
                return Err(invalid("from_json() cannot be used in the selection clause of a SELECT statement"));
            };
            let json = self.selector(json, Some(&CqlType::Text), aggregates)?;
            let selector = Selector::Call(Function::FromJson(to.clone()), vec![json.selector]);
            return Ok(Named { selector, data_type: to.clone(), name: format!("system.{lower}({})", json.name) });
        }
        if generic::is_generic(&lower.replace('_', "")) && is_system {
            return self.selected_generic(&lower, arguments, aggregates);
        }
        let mut candidates = self.candidates(name, arguments)?;
        candidates.retain(|candidate| candidate.arguments.len() == arguments.len());
        let planned = match candidates.as_slice() {
            [] => None,
            [only] => self.call_arguments(only, arguments, aggregates)?.map(|planned| (only, planned)),
            several => self.overloaded_arguments(several, arguments, aggregates)?,
        };
        match planned {
            Some((chosen, planned)) => Ok(called(&lower, chosen, planned)),
            None => Err(invalid(format!("Invalid call to function {}, none of its type signatures match", name.name))),
        }
    }

    /// A function whose types depend on those of its arguments: what has a type of its own is planned first.
    fn selected_generic(
        &mut self,
        name: &str,
        arguments: &[Expression],
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let mut planned: Vec<Option<Named>> = Vec::with_capacity(arguments.len());
        for argument in arguments {
            planned.push(match self.needs_type(argument)? {
                true => None,
                false => Some(self.selector(argument, None, aggregates)?),
            });
        }
        let types: Vec<Option<CqlType>> =
            planned.iter().map(|named| named.as_ref().map(|named| named.data_type.clone())).collect();
        let signature = match generic::resolve(name, &types) {
            Ok(signature) => signature,
            // A constant alone says which overload it is by the type that is preferred for it.
            Err(_) if planned.first().is_some_and(Option::is_none) => {
                let types: Vec<Option<CqlType>> = types
                    .into_iter()
                    .zip(arguments)
                    .map(|(known, given)| known.or_else(|| literal_type(given)))
                    .collect();
                generic::resolve(name, &types)?
            }
            Err(error) => return Err(error),
        };
        let mut complete = Vec::with_capacity(arguments.len());
        for ((named, argument), data_type) in planned.into_iter().zip(arguments).zip(&signature.arguments) {
            complete.push(match named {
                Some(named) => named,
                None => self.selector(argument, Some(data_type), aggregates)?,
            });
        }
        Ok(called(name, &signature, complete))
    }

    /// Plans the arguments of a function of one overload, or finds that they do not fit it.
    fn call_arguments(
        &mut self,
        overload: &Signature,
        arguments: &[Expression],
        aggregates: &mut Aggregates,
    ) -> Result<Option<Vec<Named>>, CqlError> {
        let mut planned = Vec::with_capacity(arguments.len());
        for (argument, wanted) in arguments.iter().zip(&overload.arguments) {
            let named = self.selector(argument, Some(wanted), aggregates)?;
            if !is_assignable(wanted, &named.data_type) {
                return Ok(None);
            }
            planned.push(named);
        }
        Ok(Some(planned))
    }

    /// Plans the arguments of a function of several overloads, and finds the first that takes them. What has a type of its own is planned once, whichever takes
    /// it; what has none is a constant or a marker, and tried.
    fn overloaded_arguments<'c>(
        &mut self,
        overloads: &'c [Signature],
        arguments: &[Expression],
        aggregates: &mut Aggregates,
    ) -> Result<Option<(&'c Signature, Vec<Named>)>, CqlError> {
        let mut planned: Vec<Option<Named>> = Vec::with_capacity(arguments.len());
        for (at, argument) in arguments.iter().enumerate() {
            // It takes any type, so the first.
            let is_any = matches!(argument, Expression::Function { name, .. } if is_from_json(&name.name));
            let wanted = is_any.then(|| &overloads[0].arguments[at]);
            planned.push(match self.needs_type(argument)? {
                true => None,
                false => Some(self.selector(argument, wanted, aggregates)?),
            });
        }
        'overloads: for overload in overloads {
            let mut tried: Vec<Option<Named>> = Vec::with_capacity(arguments.len());
            for ((named, argument), wanted) in planned.iter().zip(arguments).zip(&overload.arguments) {
                let tries = match named {
                    Some(named) if is_assignable(wanted, &named.data_type) => None,
                    Some(_) => continue 'overloads,
                    None => match self.selector(argument, Some(wanted), aggregates) {
                        Ok(named) if is_assignable(wanted, &named.data_type) => Some(named),
                        _ => continue 'overloads,
                    },
                };
                tried.push(tries);
            }
            let complete: Vec<Named> =
                planned.into_iter().zip(tried).filter_map(|(own, tried)| own.or(tried)).collect();
            return Ok(Some((overload, complete)));
        }
        Ok(None)
    }

    fn selected_aggregate(
        &mut self,
        name: &str,
        arguments: &[Expression],
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let counts_rows = name.starts_with("count") && name != "count";
        if counts_rows && arguments.is_empty() {
            let counted = self.selector(&Expression::CountAll, None, aggregates)?;
            return Ok(Named { name: format!("system.{name}()"), ..counted });
        }
        let [argument] = arguments else {
            return Err(invalid(format!(
                "Invalid number of arguments in call to function {name}: 1 required but {} provided",
                arguments.len()
            )));
        };
        if counts_rows {
            return Err(invalid(format!(
                "Invalid number of arguments in call to function {name}: 0 required but 1 provided"
            )));
        }
        let mut nested = Vec::new();
        if name == "count" && matches!(argument, Expression::Literal(Literal::Integer(_))) {
            return self.selector(&Expression::CountAll, None, aggregates);
        }
        let inner = self.selector(argument, None, &mut nested)?;
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
        let is_sum = matches!(kind, AggregateKind::Sum | AggregateKind::Avg);
        if is_sum && !arithmetic::is_number(&inner.data_type) {
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
        let inner = match of {
            Expression::Element { of, .. } | Expression::Field { of, .. } => of,
            other => other,
        };
        let Expression::Column(name) = inner else {
            return Err(not_supported(format!("{function} of anything but a column, an element or a field")));
        };
        let at = self.column_position(name)?;
        let column = self.context().column(at).clone();
        if at < self.context().key_columns() {
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
                let term = self.term(key, &Receiver::new(format!("key({name})"), key_type))?;
                Selector::ElementMetadata(kind, at, term)
            }
            Expression::Field { field, .. } => {
                let CqlType::UserDefined(user, Frozen::No) = &column.data_type else { return Err(not_there()) };
                let index = user.fields.iter().position(|(known, _)| known == field);
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

    fn selected_element(
        &mut self,
        of: &Expression,
        key: &Expression,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let inner = self.selector(of, None, aggregates)?;
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
        let term = self.term(key, &Receiver::owned(format!("{key_name}({name})"), key_type))?;
        let name = format!("{name}[{}]", text(key));
        Ok(Named { selector: Selector::Element(Box::new(inner.selector), inner.data_type, term), data_type, name })
    }

    fn selected_slice(
        &mut self,
        of: &Expression,
        from: Option<&Expression>,
        to: Option<&Expression>,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let inner = self.selector(of, None, aggregates)?;
        let name = &inner.name;
        let (CqlType::Map(key_type, ..) | CqlType::Set(key_type, _)) = &inner.data_type else {
            return Err(invalid(format!(
                "Invalid slice selection: {name} of type {} is not a collection of keys (a set or a map)",
                inner.data_type
            )));
        };
        let mut bound = |bound: Option<&Expression>| {
            bound.map(|bound| self.term(bound, &Receiver::new(format!("key({name})"), key_type))).transpose()
        };
        let (lower, upper) = (bound(from)?, bound(to)?);
        let shown = |bound: Option<&Expression>| bound.map(text).unwrap_or_default();
        let name = format!("{name}[{}..{}]", shown(from), shown(to));
        let selector = Selector::Slice(Box::new(inner.selector), inner.data_type.clone(), lower, upper);
        Ok(Named { selector, data_type: inner.data_type, name })
    }

    fn selected_field(&mut self, of: &Expression, field: &str, aggregates: &mut Aggregates) -> Result<Named, CqlError> {
        let inner = self.selector(of, None, aggregates)?;
        let CqlType::UserDefined(user, _) = &inner.data_type else {
            return Err(invalid(format!(
                "Invalid field selection: {} of type {} is not a user type",
                inner.name, inner.data_type
            )));
        };
        let index = user.fields.iter().position(|(known, _)| known == field);
        let index =
            index.ok_or_else(|| invalid(format!("{} of type {} has no field {field}", inner.name, user.name)))?;
        Ok(Named {
            selector: Selector::Field(Box::new(inner.selector), index as u16),
            data_type: user.fields[index].1.clone(),
            name: format!("{}.{field}", inner.name),
        })
    }

    /// The same type for all parts: that of the first which has one of its own, or else the one that is preferred for the first. The part that told it is planned
    /// by that, and comes with its place.
    fn common_type(
        &mut self,
        parts: &[&Expression],
        whole: &Expression,
        aggregates: &mut Aggregates,
    ) -> Result<(CqlType, Option<(usize, Named)>), CqlError> {
        for (at, part) in parts.iter().enumerate() {
            if !self.needs_type(part)? {
                let named = self.selector(part, None, aggregates)?;
                return Ok((named.data_type.clone(), Some((at, named))));
            }
        }
        let preferred = parts.first().and_then(|part| literal_type(part));
        preferred.map(|data_type| (data_type, None)).ok_or_else(|| cannot_infer(whole))
    }

    /// Parts of one type, one of which may be planned already.
    fn parts(
        &mut self,
        parts: &[&Expression],
        wanted: &CqlType,
        mut planned: Option<(usize, Named)>,
        aggregates: &mut Aggregates,
    ) -> Result<Vec<Named>, CqlError> {
        let mut all = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            all.push(match planned.take_if(|(at, _)| *at == number) {
                Some((_, named)) => named,
                None => self.part(part, Some(wanted), aggregates)?,
            });
        }
        Ok(all)
    }

    /// A collection, tuple or user type made of other selectors.
    fn built(
        &mut self,
        expression: &Expression,
        wanted: Option<&CqlType>,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        if self.needs_type(expression)? {
            let Some(wanted) = wanted else { return Err(cannot_infer(expression)) };
            let term = self.term(expression, &Receiver::new("[selection]", wanted))?;
            return Ok(Named { selector: Selector::Term(term), data_type: wanted.clone(), name: text(expression) });
        }
        match expression {
            Expression::List(elements) => self.built_sequence(elements, true, wanted, expression, aggregates),
            Expression::Set(elements) => self.built_sequence(elements, false, wanted, expression, aggregates),
            Expression::Map(entries) => self.built_map(entries, wanted, expression, aggregates),
            Expression::Tuple(elements) => {
                let wanted_types = match wanted {
                    Some(CqlType::Tuple(types)) if types.len() == elements.len() => Some(types),
                    _ => None,
                };
                let mut parts = Vec::with_capacity(elements.len());
                for (at, element) in elements.iter().enumerate() {
                    parts.push(self.part(element, wanted_types.map(|types| &types[at]), aggregates)?);
                }
                let data_type = CqlType::Tuple(parts.iter().map(|part| part.data_type.clone()).collect());
                Ok(together(data_type, parts, |names| format!("({})", names.join(", "))))
            }
            _ => Err(cannot_infer(expression)),
        }
    }

    /// A part of something that is built; of this type, if one is given.
    fn part(
        &mut self,
        part: &Expression,
        wanted: Option<&CqlType>,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let preferred = literal_type(part);
        let named = self.selector(part, wanted.or(preferred.as_ref()), aggregates)?;
        match wanted.filter(|wanted| !is_assignable(wanted, &named.data_type)) {
            Some(wanted) => Err(invalid(format!("{} is of type {}, not {wanted}", named.name, named.data_type))),
            None => Ok(named),
        }
    }

    /// A list, set or vector.
    fn built_sequence(
        &mut self,
        elements: &[Expression],
        is_list: bool,
        wanted: Option<&CqlType>,
        whole: &Expression,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let elements: Vec<&Expression> = elements.iter().collect();
        let (element, planned) = match wanted {
            Some(CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Vector(element, _)) => {
                (CqlType::clone(element), None)
            }
            _ => self.common_type(&elements, whole, aggregates)?,
        };
        let parts = self.parts(&elements, &element, planned, aggregates)?;
        let element = Arc::new(element);
        let data_type = match wanted {
            Some(CqlType::Vector(_, dimension)) if usize::from(*dimension) == elements.len() => {
                CqlType::Vector(element, *dimension)
            }
            _ if is_list => CqlType::List(element, Frozen::Yes),
            _ => CqlType::Set(element, Frozen::Yes),
        };
        let [open, close] = if is_list { ["[", "]"] } else { ["{", "}"] };
        Ok(together(data_type, parts, |names| format!("{open}{}{close}", names.join(", "))))
    }

    fn built_map(
        &mut self,
        entries: &[(Expression, Expression)],
        wanted: Option<&CqlType>,
        whole: &Expression,
        aggregates: &mut Aggregates,
    ) -> Result<Named, CqlError> {
        let (keys, values): (Vec<&Expression>, Vec<&Expression>) =
            entries.iter().map(|(key, value)| (key, value)).unzip();
        let ((key, one_key), (value, one_value)) = match wanted {
            Some(CqlType::Map(key, value, _)) => ((CqlType::clone(key), None), (CqlType::clone(value), None)),
            _ => (self.common_type(&keys, whole, aggregates)?, self.common_type(&values, whole, aggregates)?),
        };
        let keys = self.parts(&keys, &key, one_key, aggregates)?;
        let values = self.parts(&values, &value, one_value, aggregates)?;
        let parts = keys.into_iter().zip(values).flat_map(|(key, value)| [key, value]).collect();
        let data_type = CqlType::Map(Arc::new(key), Arc::new(value), Frozen::Yes);
        let shown = |names: &[String]| {
            let pairs: Vec<String> = names.chunks(2).map(|pair| pair.join(": ")).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        Ok(together(data_type, parts, shown))
    }
}

/// What is built of parts.
fn together(data_type: CqlType, parts: Vec<Named>, shown: impl FnOnce(&[String]) -> String) -> Named {
    let (names, selectors): (Vec<String>, Vec<Selector>) =
        parts.into_iter().map(|part| (part.name, part.selector)).unzip();
    let name = shown(&names);
    Named { selector: Selector::Build(data_type.clone(), selectors), data_type, name }
}

fn called(name: &str, signature: &Signature, arguments: Vec<Named>) -> Named {
    let names: Vec<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
    let name = format!("system.{name}({})", names.join(", "));
    let selectors = arguments.into_iter().map(|argument| argument.selector).collect();
    let selector = Selector::Call(signature.function.clone(), selectors);
    Named { selector, data_type: signature.returns.clone(), name }
}

/// The type of a constant that nothing else gives a type; none for what is no constant.
fn literal_type(expression: &Expression) -> Option<CqlType> {
    match expression {
        Expression::Literal(literal) => preferred_type(literal),
        Expression::Tuple(parts) if parts.len() == 1 => literal_type(&parts[0]),
        _ => None,
    }
}

fn cannot_infer(expression: &Expression) -> CqlError {
    invalid(format!(
        "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
        text(expression)
    ))
}

/// A term as it is shown in a column's name.
fn text(expression: &Expression) -> String {
    let all = |parts: &[Expression]| parts.iter().map(text).collect::<Vec<_>>().join(", ");
    match expression {
        Expression::Literal(literal) => match literal {
            Literal::Null => "NULL".to_owned(),
            Literal::String(text) => format!("'{text}'"),
            Literal::Integer(text) | Literal::Float(text) => text.clone(),
            Literal::Boolean(value) => value.to_string(),
            Literal::Blob(bytes) => format!("0x{}", crate::functions::hex(bytes)),
            Literal::Uuid(bytes) => uuid::Uuid::from_bytes(*bytes).to_string(),
            Literal::Duration(duration) => {
                let mut wire = Vec::new();
                let (months, days) = (duration.months, duration.days);
                diorite_model::value::literal::push_duration(months, days, duration.nanoseconds, &mut wire);
                let mut shown = String::new();
                match diorite_model::value::literal_text(&CqlType::Duration, &wire, &mut shown) {
                    Ok(()) => shown,
                    Err(_) => "…".to_owned(),
                }
            }
        },
        Expression::Marker(_) => "?".to_owned(),
        Expression::Column(name) => name.clone(),
        Expression::List(parts) => format!("[{}]", all(parts)),
        Expression::Set(parts) => format!("{{{}}}", all(parts)),
        Expression::Tuple(parts) => format!("({})", all(parts)),
        Expression::Negate(inner) => format!("-{}", text(inner)),
        _ => "…".to_owned(),
    }
}
