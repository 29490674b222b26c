//! `IF`: the conditions of a conditional write.
//!
//! Always true: every comparison fits the type of its column or of the part of it. Left out: the answer when a condition does not hold
//! ([`crate::exec::outcome`]).

use super::term::Term;
use super::values::Values;
use crate::functions::document::Step;
use diorite_cql::language::ast::ComparisonOperator;

/// The condition of a write.
#[derive(Debug, Clone)]
pub enum Condition {
    /// `IF EXISTS`
    Exists,
    /// `IF NOT EXISTS`
    NotExists,
    /// `IF column … AND …`
    Columns(Vec<ColumnCondition>),
    /// YCQL: anything with `OR`, `NOT` or `EXISTS` inside
    Tree(ConditionTree),
}

/// A boolean expression of conditions.
#[derive(Debug, Clone)]
pub enum ConditionTree {
    /// A condition on a column.
    Column(Box<ColumnCondition>),
    /// All hold.
    All(Vec<ConditionTree>),
    /// One holds.
    Any(Vec<ConditionTree>),
    /// It does not hold.
    Not(Box<ConditionTree>),
    /// The row exists.
    Exists,
}

impl ConditionTree {
    /// Visits every condition on a column; returns whether there is a condition on existence too.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a ColumnCondition)) -> bool {
        match self {
            ConditionTree::Column(column) => {
                visit(column);
                false
            }
            ConditionTree::All(parts) | ConditionTree::Any(parts) => {
                // All parts are visited, whatever the first ones return.
                parts.iter().filter(|part| part.visit(visit)).count() > 0
            }
            ConditionTree::Not(inner) => inner.visit(visit),
            ConditionTree::Exists => true,
        }
    }
}

impl Condition {
    /// The conditions on columns; `None` if there is a condition on the row's existence.
    pub fn columns(&self) -> Option<Vec<&ColumnCondition>> {
        match self {
            Condition::Exists | Condition::NotExists => None,
            Condition::Columns(columns) => Some(columns.iter().collect()),
            Condition::Tree(tree) => {
                let mut columns = Vec::new();
                let asks_existence = tree.visit(&mut |column| columns.push(column));
                (!asks_existence).then_some(columns)
            }
        }
    }
}

/// A condition on one column.
#[derive(Debug, Clone)]
pub struct ColumnCondition {
    /// Position of the column.
    pub column: usize,
    /// The part of the column.
    pub part: Part,
    /// The test.
    pub test: Test,
}

/// The subject of a condition.
#[derive(Debug, Clone)]
pub enum Part {
    /// All of the column.
    Whole,
    /// The element at a key or index.
    Element(Term),
    /// A field of a user-defined type.
    Field(u16),
    /// A place in a document, as text with `->>` (`true`).
    Path(Vec<Step>, Vec<Term>, bool),
}

/// The test of a condition.
#[derive(Debug, Clone)]
pub enum Test {
    /// A comparison.
    Compare(ComparisonOperator, Term),
    /// One of these values.
    In(Values),
    /// An element or map value.
    Contains(Term),
    /// A map key.
    ContainsKey(Term),
}

/// The operator in CQL.
pub fn symbol(operator: ComparisonOperator) -> &'static str {
    match operator {
        ComparisonOperator::Equal => "=",
        ComparisonOperator::NotEqual => "!=",
        ComparisonOperator::Less => "<",
        ComparisonOperator::LessOrEqual => "<=",
        ComparisonOperator::Greater => ">",
        ComparisonOperator::GreaterOrEqual => ">=",
    }
}
