//! The cost of planning one statement: steps and memory, both limited.
//!
//! Planning is linear in the statement, so the limits of a statement bound it; the budget is a second bound, and tests measure by it. A step is a
//! term, selector, relation or overload that is bound or tried.
//!
//! Always true: a plan costs no more than its budget, or there is no plan. Left out: time, which depends on the machine.

use crate::error::exceeded;
use diorite_base::limits::{self, MAX_PLAN_BYTES, MAX_PLAN_STEPS};
use diorite_cql::protocol::CqlError;

/// The cost of planning so far, with its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    steps: u64,
    bytes: u64,
    max_steps: u64,
    max_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(MAX_PLAN_STEPS, MAX_PLAN_BYTES)
    }
}

impl Budget {
    /// A budget of its own, not above the usual one.
    pub fn new(max_steps: u64, max_bytes: u64) -> Self {
        let (max_steps, max_bytes) = (max_steps.min(MAX_PLAN_STEPS), max_bytes.min(MAX_PLAN_BYTES));
        Self { steps: 0, bytes: 0, max_steps, max_bytes }
    }

    /// The steps that were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The bytes that the plan holds, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a step.
    #[inline]
    pub fn step(&mut self) -> Result<(), CqlError> {
        self.steps += 1;
        if self.steps <= self.max_steps { Ok(()) } else { Err(over(&limits::PLAN_STEPS, self.steps, self.max_steps)) }
    }

    /// Takes memory that the plan is going to hold.
    #[inline]
    pub fn charge(&mut self, bytes: usize) -> Result<(), CqlError> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes <= self.max_bytes { Ok(()) } else { Err(over(&limits::PLAN_BYTES, self.bytes, self.max_bytes)) }
    }
}

#[cold]
fn over(limit: &limits::Limit, found: u64, most: u64) -> CqlError {
    let what = "the plan of the statement".to_owned();
    exceeded(limits::Exceeded { what, found, limit: most, unit: limit.unit, name: limit.name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends() {
        let mut budget = Budget::new(2, 10);
        assert!(budget.step().is_ok() && budget.step().is_ok() && budget.charge(10).is_ok());
        let message = budget.step().map_err(|error| error.message.into_owned());
        assert_eq!(
            message,
            Err("the plan of the statement of 3 steps is over the limit of 2 steps (PLAN_STEPS)".to_owned())
        );
        assert!(budget.charge(1).is_err() && budget.charge(usize::MAX).is_err());
        assert_eq!((budget.steps(), Budget::new(u64::MAX, 0).max_steps), (3, MAX_PLAN_STEPS));
    }
}
