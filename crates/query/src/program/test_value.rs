//! Whether a column is what a condition asks for, by Cassandra's rules.
//!
//! Always true: null equals null and differs from everything else; no other comparison with null holds. Left out: which row it is.

use super::{ColumnTest, TestedPart, ValueTest, document};
use crate::exec::evaluate::{contains, element_of, field_of, frozen};
use crate::exec::filter::satisfies;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::types::CqlType;
use diorite_model::value::{collection, compare};

impl ColumnTest {
    /// Judges the column's value; `None` is null. The error is a message for the client.
    pub fn holds(&self, column: Option<&[u8]>) -> Result<bool, String> {
        let at_path;
        let (part_type, part) = match (&self.part, column) {
            (TestedPart::Path(path, as_text), _) => {
                at_path = column.map(|wire| document::find(wire, path, *as_text)).transpose()?.flatten();
                (if *as_text { CqlType::Text } else { CqlType::Jsonb }, at_path.as_deref())
            }
            _ => self.part_of(column)?,
        };
        // A collection stored by element has no empty value: it is null instead, so the two are the same to a condition.
        let is_collection = matches!(part_type, CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..));
        let normal = |value: Option<Vec<u8>>| {
            value.filter(|value| {
                !(is_collection && part_type.is_multi_cell())
                    || collection::elements(value).is_ok_and(|mut elements| elements.next().is_some())
            })
        };
        let part = normal(part.map(<[u8]>::to_vec));
        let compared = frozen(&part_type);
        let is = |operator: ComparisonOperator, wanted: &Option<Vec<u8>>| match (&part, wanted) {
            (Some(found), Some(wanted)) => satisfies(operator, compare(&compared, found, wanted)),
            (found, wanted) => match operator {
                ComparisonOperator::Equal => found.is_none() == wanted.is_none(),
                ComparisonOperator::NotEqual => found.is_none() != wanted.is_none(),
                _ => false,
            },
        };
        match &self.test {
            ValueTest::Compare(operator, wanted) => Ok(is(*operator, &normal(wanted.clone()))),
            ValueTest::In(values) => {
                Ok(values.iter().any(|wanted| is(ComparisonOperator::Equal, &normal(wanted.clone()))))
            }
            ValueTest::Contains(wanted) | ValueTest::ContainsKey(wanted) => {
                let is_key = matches!(self.test, ValueTest::ContainsKey(_));
                let Some(found) = &part else { return Ok(false) };
                contains(&part_type, found, wanted, is_key).map_err(|error| error.message.into_owned())
            }
        }
    }

    fn part_of<'a>(&self, column: Option<&'a [u8]>) -> Result<(CqlType, Option<&'a [u8]>), String> {
        let message = |error: diorite_cql::protocol::CqlError| error.message.into_owned();
        match (&self.part, &self.data_type) {
            (TestedPart::Whole, data_type) => Ok((data_type.clone(), column)),
            (TestedPart::Element(key), CqlType::Map(_, value_type, _)) => {
                let found = column.map(|wire| element_of(&self.data_type, wire, key)).transpose().map_err(message)?;
                Ok(((**value_type).clone(), found.flatten()))
            }
            (TestedPart::Element(index), CqlType::List(element, _)) => {
                let found = column.map(|wire| element_of(&self.data_type, wire, index)).transpose().map_err(message)?;
                Ok(((**element).clone(), found.flatten()))
            }
            (TestedPart::Field(index), CqlType::UserDefined(user, _)) => {
                let field =
                    user.fields.get(usize::from(*index)).ok_or("the condition names a field that is not there")?;
                let found = column.map(|wire| field_of(wire, *index)).transpose().map_err(message)?;
                Ok((field.1.clone(), found.flatten()))
            }
            _ => Err("the condition does not fit the type of its column".to_owned()),
        }
    }
}
