//! `IF`: what must hold for a conditional write.
//!
//! Always true: every comparison fits the type of its column or of the part of it. Left out: YCQL's boolean expressions (`OR`, `NOT`,
//! nested `EXISTS`) and `ELSE ERROR`.

use super::Planner;
use super::restrictions::Values;
use super::term::{Receiver, Term};
use crate::error::{invalid, not_supported};
use diorite_cql::language::ast::{self, ComparisonOperator, ConditionTest, Operand, Relation, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Column, ColumnKind};
use diorite_model::types::CqlType;

/// The condition of a write.
#[derive(Debug, Clone)]
pub enum Condition {
    /// `IF EXISTS`
    Exists,
    /// `IF NOT EXISTS`
    NotExists,
    /// `IF column … AND …`
    Columns(Vec<ColumnCondition>),
}

/// What must hold of one column.
#[derive(Debug, Clone)]
pub struct ColumnCondition {
    /// Position of the column.
    pub column: usize,
    /// Which part of it.
    pub part: Part,
    /// What is asked.
    pub test: Test,
}

/// What a condition looks at.
#[derive(Debug, Clone)]
pub enum Part {
    /// All of the column.
    Whole,
    /// The element at a key or index.
    Element(Term),
    /// A field of a user-defined type.
    Field(u16),
}

/// What a condition asks.
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

impl Planner<'_> {
    /// Plans an `IF`.
    pub fn condition(&mut self, condition: &ast::Condition) -> Result<Condition, CqlError> {
        if condition.else_error {
            return Err(not_supported("ELSE ERROR"));
        }
        let predicate = match &condition.test {
            ConditionTest::Exists => return Ok(Condition::Exists),
            ConditionTest::NotExists => return Ok(Condition::NotExists),
            ConditionTest::If(predicate) => predicate,
        };
        let relations = predicate.conjuncts().ok_or_else(|| not_supported("OR, NOT and EXISTS inside IF"))?;
        let mut columns = Vec::with_capacity(relations.len());
        for relation in relations {
            columns.extend(self.column_conditions(relation)?);
        }
        Ok(Condition::Columns(columns))
    }

    fn column_conditions(&mut self, relation: &Relation) -> Result<Vec<ColumnCondition>, CqlError> {
        let one = |condition: ColumnCondition| Ok(vec![condition]);
        match relation {
            Relation::Compare { left, operator, right } => {
                let (column, at, part, data_type, name) = self.condition_target(left)?;
                let test = self.comparison(&column, &data_type, &name, *operator, right)?;
                one(ColumnCondition { column: at, part, test })
            }
            Relation::In { negated: false, left, values } => {
                let (_, at, part, data_type, name) = self.condition_target(left)?;
                let values = self.in_values(values, &name, &data_type)?;
                one(ColumnCondition { column: at, part, test: Test::In(values) })
            }
            Relation::Between { negated: false, left, from, to } => {
                let (column, at, part, data_type, name) = self.condition_target(left)?;
                let lower = self.comparison(&column, &data_type, &name, ComparisonOperator::GreaterOrEqual, from)?;
                let upper = self.comparison(&column, &data_type, &name, ComparisonOperator::LessOrEqual, to)?;
                Ok(vec![
                    ColumnCondition { column: at, part: part.clone(), test: lower },
                    ColumnCondition { column: at, part, test: upper },
                ])
            }
            Relation::Contains { negated: false, left, value } => {
                let (_, at, part, data_type, name) = self.condition_target(left)?;
                let element = match &data_type {
                    CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Map(_, element, _) => element,
                    _ => return Err(invalid(format!("Cannot use CONTAINS on non-collection column {name}"))),
                };
                let term = self.term(value, &Receiver::new(format!("value({name})"), element))?;
                one(ColumnCondition { column: at, part, test: Test::Contains(term) })
            }
            Relation::ContainsKey { negated: false, left, key } => {
                let (_, at, part, data_type, name) = self.condition_target(left)?;
                let CqlType::Map(key_type, ..) = &data_type else {
                    return Err(invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")));
                };
                let term = self.term(key, &Receiver::new(format!("key({name})"), key_type))?;
                one(ColumnCondition { column: at, part, test: Test::ContainsKey(term) })
            }
            _ => Err(not_supported("this relation in IF")),
        }
    }

    fn comparison(
        &mut self,
        column: &Column,
        data_type: &CqlType,
        name: &str,
        operator: ComparisonOperator,
        right: &ast::Expression,
    ) -> Result<Test, CqlError> {
        let is_equality = matches!(operator, ComparisonOperator::Equal | ComparisonOperator::NotEqual);
        if *data_type == CqlType::Duration && !is_equality {
            return Err(invalid("Slice conditions are not supported on durations"));
        }
        let term = self.term(right, &Receiver::new(name, data_type))?;
        if matches!(term, Term::Constant(None)) && !is_equality {
            return Err(invalid(format!("Invalid comparison with null for operator \"{}\"", symbol(operator))));
        }
        if column.data_type == CqlType::Counter {
            return Err(invalid("Conditions on counters are not supported"));
        }
        Ok(Test::Compare(operator, term))
    }

    fn condition_target(&mut self, operand: &Operand) -> Result<(Column, usize, Part, CqlType, String), CqlError> {
        let Operand::Target(target) = operand else { return Err(not_supported("this left side in IF")) };
        let at = self.column_position(target.column())?;
        let column = self.context().column(at).clone();
        let name = column.name.clone();
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_)) {
            return Err(invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions")));
        }
        match target {
            Target::Column(_) => {
                let data_type = column.data_type.clone();
                Ok((column, at, Part::Whole, data_type, name))
            }
            Target::Element { key, .. } => {
                let (key_type, value_type, key_name) = match &column.data_type {
                    CqlType::List(element, _) => (CqlType::Int, (**element).clone(), "idx"),
                    CqlType::Map(key, value, _) => ((**key).clone(), (**value).clone(), "key"),
                    CqlType::Set(..) => {
                        return Err(invalid(format!("Invalid element access syntax for set column {name}")));
                    }
                    _ => {
                        return Err(invalid(format!("Invalid element access syntax for non-collection column {name}")));
                    }
                };
                let key = self.term(key, &Receiver::owned(format!("{key_name}({name})"), key_type))?;
                Ok((column, at, Part::Element(key), value_type, format!("value({name})")))
            }
            Target::Field { field, .. } => {
                let CqlType::UserDefined(user, _) = &column.data_type else {
                    return Err(invalid(format!("Invalid field access syntax for non-UDT column {name}")));
                };
                let index = user.fields.iter().position(|(known, _)| known == field);
                let index = index.ok_or_else(|| invalid(format!("Unknown field {field} for column {name}")))?;
                let data_type = user.fields[index].1.clone();
                Ok((column, at, Part::Field(index as u16), data_type, format!("{name}.{field}")))
            }
            Target::JsonPath { .. } => Err(not_supported("conditions on a part of a jsonb document")),
        }
    }
}

/// The operator as it is written.
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
