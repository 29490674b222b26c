//! Calls: which function, and which of its overloads, takes the arguments.
//!
//! Always true: an argument is bound once; it is tried against several types only if it is a constant. Left out: aggregates
//! ([`super::selector_call`]), user-defined functions.

use super::binder::Binder;
use super::known::Known;
use super::receiver::{Receiver, check_result};
use crate::error::{invalid, not_supported};
use crate::functions::document::Step;
use crate::functions::{Function, Signature, generic, is_castable, is_from_json, overloads};
use crate::plan::term::{Call, Term};
use crate::types::{is_assignable, native_type};
use diorite_cql::language::ast::{self, Expression, Literal};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use std::fmt::Write;

impl Binder<'_> {
    pub(super) fn cast_term(
        &mut self,
        value: &Expression,
        to: ast::NativeType,
        receiver: &Receiver<'_>,
    ) -> Result<Term, CqlError> {
        let to = native_type(to)?;
        let Known::Exactly(from) = self.known_type(value, &to)? else {
            return Err(invalid("CAST of a value whose type is not known: use a type hint"));
        };
        if !is_castable(&from, &to) {
            return Err(invalid(format!("{from} cannot be cast to {to}")));
        }
        check_result("cast", &to, receiver)?;
        let argument = self.term(value, &Receiver::owned("arg0", from.clone()))?;
        Ok(Term::Call(Box::new(Call { function: Function::Cast(from, to), arguments: vec![argument] })))
    }

    /// The steps of a path into a document.
    pub(super) fn json_steps(&mut self, path: &[Expression]) -> Result<(Vec<Step>, Vec<Term>), CqlError> {
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

    pub(super) fn function_term(
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
    pub(super) fn candidates(
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

    /// Whether an overload takes the arguments. Only constants are bound to find out, as an argument would be bound again if it fits: a single
    /// overload is checked when its arguments are bound, and several overloads take only plain values.
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
