//! Arithmetic of terms: which types the operands of an operator have.
//!
//! Always true: constants take the types that Cassandra prefers for them; if the result then does not fit its place, and nothing but constants is in it, they take
//! the type of the place. Left out: operators on columns ([`super::selector`]), and carrying them out ([`crate::functions::arithmetic`]).

use super::binder::Binder;
use super::receiver::{Receiver, check_result};
use crate::error::invalid;
use crate::functions::{Function, arithmetic};
use crate::plan::term::{Call, Term};
use crate::types::is_assignable;
use diorite_cql::language::ast::{self, Expression};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;

impl Binder<'_> {
    pub(super) fn negated_term(&mut self, operand: &Expression, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        let data_type = self.operand(operand)?.data_type.unwrap_or_else(|| receiver.data_type.clone().into_owned());
        let data_type = if is_assignable(&receiver.data_type, &data_type) {
            data_type
        } else {
            receiver.data_type.clone().into_owned()
        };
        if !arithmetic::is_number(&data_type) && data_type != CqlType::Duration {
            return Err(invalid(format!("the '-' operation is not supported on {data_type}")));
        }
        let term = self.term(operand, &Receiver::owned(receiver.name.clone(), data_type.clone()))?;
        Ok(Term::Call(Box::new(Call { function: Function::Negate(data_type), arguments: vec![term] })))
    }

    pub(super) fn arithmetic_term(
        &mut self,
        operator: ast::ArithmeticOperator,
        left: &Expression,
        right: &Expression,
        receiver: &Receiver<'_>,
    ) -> Result<Term, CqlError> {
        let (one, other) = (self.operand(left)?, self.operand(right)?);
        let is_flexible = one.is_flexible && other.is_flexible;
        let (Some(mut left_type), Some(mut right_type)) = (one.data_type, other.data_type) else {
            let symbol = arithmetic::symbol(operator);
            return Err(invalid(format!(
                "Ambiguous '{symbol}' operation with a bind marker: use type hint to disambiguate, example '(int) ?'"
            )));
        };
        let Some(mut result) = arithmetic::result_type(operator, &left_type, &right_type) else {
            return Err(arithmetic::unsupported(operator, &left_type, &right_type));
        };
        if !is_assignable(&receiver.data_type, &result) && is_flexible {
            let wanted = receiver.data_type.clone().into_owned();
            let (left_wanted, right_wanted) = match right_type {
                CqlType::Duration => (wanted.clone(), CqlType::Duration),
                _ => (wanted.clone(), wanted.clone()),
            };
            if let Some(found) = arithmetic::result_type(operator, &left_wanted, &right_wanted) {
                (left_type, right_type, result) = (left_wanted, right_wanted, found);
            }
        }
        check_result(arithmetic::symbol(operator), &result, receiver)?;
        let arguments = vec![
            self.term(left, &Receiver::owned(receiver.name.clone(), left_type.clone()))?,
            self.term(right, &Receiver::owned(receiver.name.clone(), right_type.clone()))?,
        ];
        let function = Function::Arithmetic(operator, left_type, right_type);
        Ok(Term::Call(Box::new(Call { function, arguments })))
    }
}
