//! Functions and aggregates among selected expressions: which overload takes the arguments.
//!
//! Always true: what has a type of its own is bound once, whichever overload takes it. Left out: functions of constants and markers
//! ([`super::call`]).

use super::literal::literal_type;
use super::selector::{Named, SelectorBinder};
use crate::error::invalid;
use crate::functions::{Function, Signature, arithmetic, generic, is_aggregate, is_from_json};
use crate::plan::selection::{Aggregate, AggregateKind, Selector};
use crate::types::is_assignable;
use diorite_cql::language::ast::{Expression, Literal, QualifiedName};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;

impl SelectorBinder<'_, '_> {
    pub(super) fn selected_call(
        &mut self,
        name: &QualifiedName,
        arguments: &[Expression],
        wanted: Option<&CqlType>,
    ) -> Result<Named, CqlError> {
        let lower = name.name.to_ascii_lowercase();
        let is_system = name.keyspace.as_deref().is_none_or(|keyspace| keyspace == "system");
        if is_aggregate(&lower) && is_system {
            return self.selected_aggregate(&lower, arguments);
        }
        if is_from_json(&lower) && is_system {
            let ([json], Some(to)) = (arguments, wanted) else {
                return Err(invalid("from_json() cannot be used in the selection clause of a SELECT statement"));
            };
            let json = self.selector(json, Some(&CqlType::Text))?;
            let selector = Selector::Call(Function::FromJson(to.clone()), vec![json.selector]);
            return Ok(Named { selector, data_type: to.clone(), name: format!("system.{lower}({})", json.name) });
        }
        if generic::is_generic(&lower.replace('_', "")) && is_system {
            return self.selected_generic(&lower, arguments);
        }
        let mut candidates = self.binder.candidates(name, arguments)?;
        candidates.retain(|candidate| candidate.arguments.len() == arguments.len());
        let planned = match candidates.as_slice() {
            [] => None,
            [only] => self.call_arguments(only, arguments)?.map(|planned| (only, planned)),
            several => self.overloaded_arguments(several, arguments)?,
        };
        match planned {
            Some((chosen, planned)) => Ok(called(&lower, chosen, planned)),
            None => Err(invalid(format!("Invalid call to function {}, none of its type signatures match", name.name))),
        }
    }

    /// A function whose types depend on those of its arguments: arguments with types of their own are bound first.
    fn selected_generic(&mut self, name: &str, arguments: &[Expression]) -> Result<Named, CqlError> {
        let mut planned: Vec<Option<Named>> = Vec::with_capacity(arguments.len());
        for argument in arguments {
            planned.push(match self.binder.needs_type(argument)? {
                true => None,
                false => Some(self.selector(argument, None)?),
            });
        }
        let types: Vec<Option<CqlType>> =
            planned.iter().map(|named| named.as_ref().map(|named| named.data_type.clone())).collect();
        let signature = match generic::resolve(name, &types) {
            Ok(signature) => signature,
            // A constant alone selects the overload by its preferred type.
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
                None => self.selector(argument, Some(data_type))?,
            });
        }
        Ok(called(name, &signature, complete))
    }

    /// Plans the arguments of a function of one overload, or finds that they do not fit it.
    fn call_arguments(
        &mut self,
        overload: &Signature,
        arguments: &[Expression],
    ) -> Result<Option<Vec<Named>>, CqlError> {
        let mut planned = Vec::with_capacity(arguments.len());
        for (argument, wanted) in arguments.iter().zip(&overload.arguments) {
            let named = self.selector(argument, Some(wanted))?;
            if !is_assignable(wanted, &named.data_type) {
                return Ok(None);
            }
            planned.push(named);
        }
        Ok(Some(planned))
    }

    /// Binds the arguments of a function with several overloads, and finds the first that takes them. An argument with a type of its own is bound
    /// once; one without is a constant or a marker, and is bound for each overload in turn.
    fn overloaded_arguments<'c>(
        &mut self,
        overloads: &'c [Signature],
        arguments: &[Expression],
    ) -> Result<Option<(&'c Signature, Vec<Named>)>, CqlError> {
        let mut planned: Vec<Option<Named>> = Vec::with_capacity(arguments.len());
        for (at, argument) in arguments.iter().enumerate() {
            // `from_json` takes any type: that of the first overload.
            let is_any = matches!(argument, Expression::Function { name, .. } if is_from_json(&name.name));
            let wanted = is_any.then(|| &overloads[0].arguments[at]);
            planned.push(match self.binder.needs_type(argument)? {
                true => None,
                false => Some(self.selector(argument, wanted)?),
            });
        }
        'overloads: for overload in overloads {
            let mut tried: Vec<Option<Named>> = Vec::with_capacity(arguments.len());
            for ((named, argument), wanted) in planned.iter().zip(arguments).zip(&overload.arguments) {
                let tries = match named {
                    Some(named) if is_assignable(wanted, &named.data_type) => None,
                    Some(_) => continue 'overloads,
                    None => match self.selector(argument, Some(wanted)) {
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

    fn selected_aggregate(&mut self, name: &str, arguments: &[Expression]) -> Result<Named, CqlError> {
        let counts_rows = name.starts_with("count") && name != "count";
        if counts_rows && arguments.is_empty() {
            let counted = self.selector(&Expression::CountAll, None)?;
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
        if name == "count" && matches!(argument, Expression::Literal(Literal::Integer(_))) {
            return self.selector(&Expression::CountAll, None);
        }
        let mut inside = SelectorBinder::new(self.binder);
        let inner = inside.selector(argument, None)?;
        if !inside.aggregates.is_empty() {
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
        self.aggregates.push(Aggregate { kind, argument: Some(inner.selector), argument_type });
        let selector = Selector::Aggregate(self.aggregates.len() - 1);
        Ok(Named { selector, data_type, name: format!("system.{name}({})", inner.name) })
    }
}

fn called(name: &str, signature: &Signature, arguments: Vec<Named>) -> Named {
    let names: Vec<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
    let name = format!("system.{name}({})", names.join(", "));
    let selectors = arguments.into_iter().map(|argument| argument.selector).collect();
    let selector = Selector::Call(signature.function.clone(), selectors);
    Named { selector, data_type: signature.returns.clone(), name }
}
