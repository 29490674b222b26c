//! Tests of a column's value against a condition, by Cassandra's rules.
//!
//! Always true: null equals null and differs from everything else; no other comparison with null holds. Left out: which row it is.

use super::definition::{ColumnTest, Impossible, ValueTest};
use super::stored_value::{StoredValue, normal};
use crate::values::{frozen, satisfies};
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::value::compare;
use std::rc::Rc;

impl ColumnTest {
    /// Judges the column's value. The error is for the client.
    pub(super) fn holds(&self, column: &Rc<StoredValue>) -> Result<bool, Impossible> {
        let part = column.part(&self.part)?;
        // A collection stored by element has no empty value: it is null instead, so the two are the same to a condition.
        let is = |operator: ComparisonOperator, wanted: Option<&[u8]>| {
            let wanted = normal(part.data_type(), wanted);
            match (part.wire(), wanted) {
                (Some(found), Some(wanted)) => satisfies(operator, compare(&frozen(part.data_type()), found, wanted)),
                (found, wanted) => match operator {
                    ComparisonOperator::Equal => found.is_none() == wanted.is_none(),
                    ComparisonOperator::NotEqual => found.is_none() != wanted.is_none(),
                    _ => false,
                },
            }
        };
        match &self.test {
            ValueTest::Compare(operator, wanted) => Ok(is(*operator, wanted.as_deref())),
            ValueTest::In(values) => Ok(values.iter().any(|wanted| is(ComparisonOperator::Equal, wanted.as_deref()))),
            ValueTest::Contains(wanted) => part.contains(wanted, false),
            ValueTest::ContainsKey(wanted) => part.contains(wanted, true),
        }
    }
}
