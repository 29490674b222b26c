//! `IF`: what must hold for a conditional write.
//!
//! Always true: every comparison fits the type of its column or of the part of it. Left out: what becomes of a condition that does not hold
//! ([`crate::exec::outcome`]).

use super::Planner;
use super::restrictions::Values;
use super::term::{Receiver, Term};
use crate::error::{exceeded, invalid, not_supported};
use crate::functions::document::Step;
use diorite_base::limits;
use diorite_cql::language::ast::{self, ComparisonOperator, ConditionTest, Operand, Predicate, Relation, Target};
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
    /// YCQL: anything with `OR`, `NOT` or `EXISTS` inside
    Tree(ConditionTree),
}

/// A boolean expression of conditions.
#[derive(Debug, Clone)]
pub enum ConditionTree {
    /// What must hold of a column.
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
    /// Visits every condition on a column; tells whether existence is asked for too.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a ColumnCondition)) -> bool {
        match self {
            ConditionTree::Column(column) => {
                visit(column);
                false
            }
            ConditionTree::All(parts) | ConditionTree::Any(parts) => {
                // All parts are visited, whatever the first ones say.
                parts.iter().filter(|part| part.visit(visit)).count() > 0
            }
            ConditionTree::Not(inner) => inner.visit(visit),
            ConditionTree::Exists => true,
        }
    }
}

impl Condition {
    /// The conditions on columns; `None` if the row's existence is asked for, alone or beside them.
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
    /// A place in a document, as text with `->>` (`true`).
    Path(Vec<Step>, Vec<Term>, bool),
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
        let predicate = match &condition.test {
            ConditionTest::Exists => return Ok(Condition::Exists),
            ConditionTest::NotExists => return Ok(Condition::NotExists),
            ConditionTest::If(predicate) => predicate,
        };
        let Some(relations) = predicate.conjuncts() else {
            return self.condition_tree(predicate, 1).map(Condition::Tree);
        };
        let mut columns = Vec::with_capacity(relations.len());
        for relation in relations {
            columns.extend(self.column_conditions(relation)?);
        }
        Ok(Condition::Columns(columns))
    }

    /// Plans a condition that stands at this level of the tree.
    fn condition_tree(&mut self, predicate: &Predicate, depth: usize) -> Result<ConditionTree, CqlError> {
        let is_two = matches!(predicate, Predicate::NotExists)
            || matches!(predicate, Predicate::Relation(relation) if matches!(**relation, Relation::Between { .. }));
        let lowest = if is_two { depth + 1 } else { depth };
        limits::check(&limits::CONDITION_DEPTH, lowest, || "a condition".to_owned()).map_err(exceeded)?;
        let below = depth + 1;
        Ok(match predicate {
            Predicate::Relation(relation) => {
                let mut parts: Vec<ConditionTree> = self
                    .column_conditions(relation)?
                    .into_iter()
                    .map(|column| ConditionTree::Column(Box::new(column)))
                    .collect();
                if parts.len() == 1 { parts.remove(0) } else { ConditionTree::All(parts) }
            }
            Predicate::And(parts) => {
                ConditionTree::All(parts.iter().map(|part| self.condition_tree(part, below)).collect::<Result<_, _>>()?)
            }
            Predicate::Or(parts) => {
                ConditionTree::Any(parts.iter().map(|part| self.condition_tree(part, below)).collect::<Result<_, _>>()?)
            }
            Predicate::Not(inner) => ConditionTree::Not(Box::new(self.condition_tree(inner, below)?)),
            Predicate::Exists => ConditionTree::Exists,
            Predicate::NotExists => ConditionTree::Not(Box::new(ConditionTree::Exists)),
        })
    }

    fn column_conditions(&mut self, relation: &Relation) -> Result<Vec<ColumnCondition>, CqlError> {
        self.budget.step()?;
        self.budget.charge(size_of::<ColumnCondition>())?;
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
        let as_target;
        let (target, as_text) = match operand {
            Operand::Target(target) => (target, false),
            Operand::JsonText { column, path } => {
                as_target = Target::JsonPath { column: column.clone(), path: path.clone() };
                (&as_target, true)
            }
            _ => return Err(not_supported("this left side in IF")),
        };
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
            Target::JsonPath { path, .. } => {
                if column.data_type != CqlType::Jsonb {
                    return Err(invalid(format!("Invalid path into column {name} of type {}", column.data_type)));
                }
                let (steps, terms) = self.json_steps(path)?;
                let data_type = if as_text { CqlType::Text } else { CqlType::Jsonb };
                Ok((column, at, Part::Path(steps, terms, as_text), data_type, name))
            }
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
