//! The kinds of plans.
//!
//! Always true: the statements of a batch go together by Cassandra's rules.

use super::explain::ExplainPlan;
use super::modify::ModifyPlan;
use super::select::SelectPlan;
use super::term::Term;
use crate::error::invalid;
use diorite_cql::language::ast::{self, Statement};
use diorite_cql::protocol::CqlError;

/// The plan of a statement.
#[derive(Debug)]
pub enum Plan {
    /// Reads rows.
    Select(Box<SelectPlan>),
    /// Writes rows of one table.
    Modify(Box<ModifyPlan>),
    /// Writes rows, several statements together.
    Batch(Box<BatchPlan>),
    /// Writes rows, several statements one after the other, all or nothing.
    Block(Box<BlockPlan>),
    /// Tells how a statement would be carried out.
    Explain(Box<ExplainPlan>),
    /// Changes the current keyspace.
    Use(String),
    /// Changes or describes the schema; carried out as it was parsed.
    Definition(Statement),
}

/// `BEGIN BATCH … APPLY BATCH`
#[derive(Debug)]
pub struct BatchPlan {
    /// Its kind.
    pub kind: ast::BatchKind,
    /// `USING TIMESTAMP` of the whole batch.
    pub timestamp: Option<Term>,
    /// Its statements, whose markers are numbered through.
    pub statements: Vec<ModifyPlan>,
}

/// `BEGIN TRANSACTION … END TRANSACTION`
#[derive(Debug)]
pub struct BlockPlan {
    /// Its statements, whose markers are numbered through; each sees those before it.
    pub statements: Vec<ModifyPlan>,
}

/// Cassandra's rules for which statements may be in one batch.
pub fn check_batch(kind: ast::BatchKind, has_timestamp: bool, statements: &[&ModifyPlan]) -> Result<(), CqlError> {
    let is_counter = |statement: &&&ModifyPlan| statement.table.table().is_counter();
    let counters = statements.iter().filter(is_counter).count();
    let has_conditions = statements.iter().any(|statement| statement.condition.is_some());
    if kind == ast::BatchKind::Counter {
        if counters < statements.len() {
            return Err(invalid("Cannot include non-counter statement in a counter batch"));
        }
        if has_timestamp {
            return Err(invalid("Cannot provide custom timestamp for counter BATCH"));
        }
    } else if counters > 0 {
        return Err(invalid(match kind {
            ast::BatchKind::Logged => "Cannot include a counter statement in a logged batch",
            _ if counters < statements.len() => "Counter and non-counter mutations cannot exist in the same batch",
            _ => return Ok(()),
        }));
    }
    let sums = statements.iter().any(|statement| statement.has_sums());
    if sums && (has_timestamp || statements.iter().any(|statement| statement.timestamp.is_some())) {
        return Err(invalid("Cannot provide custom timestamp for a batch with arithmetic on columns"));
    }
    if has_conditions {
        if has_timestamp {
            return Err(invalid("Cannot provide custom timestamp for conditional BATCH"));
        }
        let first = statements[0].table.table();
        if statements.iter().any(|statement| statement.table.table().id != first.id) {
            return Err(invalid("Batch with conditions cannot span multiple tables"));
        }
    }
    Ok(())
}
