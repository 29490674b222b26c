//! The types of expressions found so far while the outermost one is bound.
//!
//! Always true: the type of an expression is found once, from below upwards, and kept until the outermost expression is bound, so that
//! nesting does not multiply the work. Left out: finding it ([`super::typing`]).

use diorite_cql::language::ast::Expression;
use diorite_model::types::CqlType;
use std::collections::HashMap;

/// The largest table that is cleared for the next expression; a larger one is replaced, as clearing takes time in proportion to its capacity.
const KEPT: usize = 64;

/// The type of an expression, without regard to its receiver.
pub(super) enum Known {
    /// Exactly this type.
    Exactly(CqlType),
    /// Any type.
    Anything,
    /// Decided by trying.
    Tried,
}

/// An expression as an operand.
#[derive(Debug, Clone)]
pub(super) struct Operand {
    /// Its type; constants have the type that Cassandra prefers for them.
    pub data_type: Option<CqlType>,
    /// It is made of constants only, which may take another type than the preferred one.
    pub is_flexible: bool,
}

/// The types of the expressions within the outermost one, by their addresses, which do not change while it is bound.
#[derive(Debug, Default)]
pub(super) struct Typing {
    pub(super) operands: HashMap<usize, Operand>,
    pub(super) untyped: HashMap<usize, bool>,
    level: usize,
}

impl Typing {
    /// An expression is being planned. Another outermost one may be at the address of the last.
    pub fn enter(&mut self) {
        if self.level == 0 {
            reset(&mut self.operands);
            reset(&mut self.untyped);
        }
        self.level += 1;
    }

    /// It has been planned.
    pub fn leave(&mut self) {
        self.level -= 1;
    }
}

fn reset<T>(map: &mut HashMap<usize, T>) {
    if map.len() > KEPT {
        *map = HashMap::new();
    } else {
        map.clear();
    }
}

/// The key of an expression in [`Typing`].
pub(super) fn address(expression: &Expression) -> usize {
    std::ptr::from_ref(expression) as usize
}
