//! From `IF` of a write to its condition.
//!
//! Always true: the tree of a condition is within the limits of a program. Left out: `IF` of a `SELECT` ([`super::predicate`]).

use super::binder::Binder;
use super::receiver::Receiver;
use crate::error::{exceeded, invalid, not_supported};
use crate::plan::condition::{ColumnCondition, Condition, ConditionTree, Part, Test, symbol};
use crate::plan::term::Term;
use diorite_base::limits;
use diorite_cql::language::ast::{self, ComparisonOperator, ConditionTest, Operand, Predicate, Relation, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Column, ColumnKind};
use diorite_model::types::CqlType;

/// Plans an `IF`.
pub(super) fn bind_condition(binder: &mut Binder<'_>, condition: &ast::Condition) -> Result<Condition, CqlError> {
    let predicate = match &condition.test {
        ConditionTest::Exists => return Ok(Condition::Exists),
        ConditionTest::NotExists => return Ok(Condition::NotExists),
        ConditionTest::If(predicate) => predicate,
    };
    let Some(relations) = predicate.conjuncts() else {
        return condition_tree(binder, predicate, 1).map(Condition::Tree);
    };
    let mut columns = Vec::with_capacity(relations.len());
    for relation in relations {
        columns.extend(column_conditions(binder, relation)?);
    }
    Ok(Condition::Columns(columns))
}

/// Binds a condition at this depth of the tree.
fn condition_tree(binder: &mut Binder<'_>, predicate: &Predicate, depth: usize) -> Result<ConditionTree, CqlError> {
    let is_two = matches!(predicate, Predicate::NotExists)
        || matches!(predicate, Predicate::Relation(relation) if matches!(**relation, Relation::Between { .. }));
    let lowest = if is_two { depth + 1 } else { depth };
    limits::check(&limits::CONDITION_DEPTH, lowest, || "a condition".to_owned()).map_err(exceeded)?;
    let below = depth + 1;
    Ok(match predicate {
        Predicate::Relation(relation) => {
            let mut parts: Vec<ConditionTree> = column_conditions(binder, relation)?
                .into_iter()
                .map(|column| ConditionTree::Column(Box::new(column)))
                .collect();
            if parts.len() == 1 { parts.remove(0) } else { ConditionTree::All(parts) }
        }
        Predicate::And(parts) => {
            ConditionTree::All(parts.iter().map(|part| condition_tree(binder, part, below)).collect::<Result<_, _>>()?)
        }
        Predicate::Or(parts) => {
            ConditionTree::Any(parts.iter().map(|part| condition_tree(binder, part, below)).collect::<Result<_, _>>()?)
        }
        Predicate::Not(inner) => ConditionTree::Not(Box::new(condition_tree(binder, inner, below)?)),
        Predicate::Exists => ConditionTree::Exists,
        Predicate::NotExists => ConditionTree::Not(Box::new(ConditionTree::Exists)),
    })
}

fn column_conditions(binder: &mut Binder<'_>, relation: &Relation) -> Result<Vec<ColumnCondition>, CqlError> {
    binder.budget.step()?;
    binder.budget.charge(size_of::<ColumnCondition>())?;
    let one = |condition: ColumnCondition| Ok(vec![condition]);
    match relation {
        Relation::Compare { left, operator, right } => {
            let subject = subject_of(binder, left)?;
            let test = comparison(binder, &subject, *operator, right)?;
            one(subject.is(test))
        }
        Relation::In { negated: false, left, values } => {
            let subject = subject_of(binder, left)?;
            let values = binder.in_values(values, &subject.name, &subject.data_type)?;
            one(subject.is(Test::In(values)))
        }
        Relation::Between { negated: false, left, from, to } => {
            let subject = subject_of(binder, left)?;
            let lower = comparison(binder, &subject, ComparisonOperator::GreaterOrEqual, from)?;
            let upper = comparison(binder, &subject, ComparisonOperator::LessOrEqual, to)?;
            let lower = ColumnCondition { column: subject.at, part: subject.part.clone(), test: lower };
            Ok(vec![lower, subject.is(upper)])
        }
        Relation::Contains { negated: false, left, value } => {
            let subject = subject_of(binder, left)?;
            let name = &subject.name;
            let element = match &subject.data_type {
                CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Map(_, element, _) => element,
                _ => return Err(invalid(format!("Cannot use CONTAINS on non-collection column {name}"))),
            };
            let term = binder.term(value, &Receiver::new(format!("value({name})"), element))?;
            one(subject.is(Test::Contains(term)))
        }
        Relation::ContainsKey { negated: false, left, key } => {
            let subject = subject_of(binder, left)?;
            let name = &subject.name;
            let CqlType::Map(key_type, ..) = &subject.data_type else {
                return Err(invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")));
            };
            let term = binder.term(key, &Receiver::new(format!("key({name})"), key_type))?;
            one(subject.is(Test::ContainsKey(term)))
        }
        _ => Err(not_supported("this relation in IF")),
    }
}

/// The subject of a condition, resolved.
struct Subject {
    column: Column,
    at: usize,
    part: Part,
    /// The type and the name of the part.
    data_type: CqlType,
    name: String,
}

impl Subject {
    fn is(self, test: Test) -> ColumnCondition {
        ColumnCondition { column: self.at, part: self.part, test }
    }
}

fn comparison(
    binder: &mut Binder<'_>,
    subject: &Subject,
    operator: ComparisonOperator,
    right: &ast::Expression,
) -> Result<Test, CqlError> {
    let Subject { column, data_type, name, .. } = subject;
    let is_equality = matches!(operator, ComparisonOperator::Equal | ComparisonOperator::NotEqual);
    if *data_type == CqlType::Duration && !is_equality {
        return Err(invalid("Slice conditions are not supported on durations"));
    }
    let term = binder.term(right, &Receiver::new(name.as_str(), data_type))?;
    if matches!(term, Term::Constant(None)) && !is_equality {
        return Err(invalid(format!("Invalid comparison with null for operator \"{}\"", symbol(operator))));
    }
    if column.data_type == CqlType::Counter {
        return Err(invalid("Conditions on counters are not supported"));
    }
    Ok(Test::Compare(operator, term))
}

fn subject_of(binder: &mut Binder<'_>, operand: &Operand) -> Result<Subject, CqlError> {
    let as_target;
    let (target, as_text) = match operand {
        Operand::Target(target) => (target, false),
        Operand::JsonText { column, path } => {
            as_target = Target::JsonPath { column: column.clone(), path: path.clone() };
            (&as_target, true)
        }
        _ => return Err(not_supported("this left side in IF")),
    };
    let at = binder.column_position(target.column())?;
    let column = binder.context().column(at).clone();
    let name = column.name.clone();
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_)) {
        return Err(invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions")));
    }
    match target {
        Target::Column(_) => {
            let data_type = column.data_type.clone();
            Ok(Subject { column, at, part: Part::Whole, data_type, name })
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
            let key = binder.term(key, &Receiver::owned(format!("{key_name}({name})"), key_type))?;
            let name = format!("value({name})");
            Ok(Subject { column, at, part: Part::Element(key), data_type: value_type, name })
        }
        Target::Field { field, .. } => {
            let CqlType::UserDefined(user, _) = &column.data_type else {
                return Err(invalid(format!("Invalid field access syntax for non-UDT column {name}")));
            };
            let index = binder.field_place(user, field)?;
            let index = index.ok_or_else(|| invalid(format!("Unknown field {field} for column {name}")))?;
            let data_type = user.fields[index].1.clone();
            let name = format!("{name}.{field}");
            Ok(Subject { column, at, part: Part::Field(index as u16), data_type, name })
        }
        Target::JsonPath { path, .. } => {
            if column.data_type != CqlType::Jsonb {
                return Err(invalid(format!("Invalid path into column {name} of type {}", column.data_type)));
            }
            let (steps, terms) = binder.json_steps(path)?;
            let data_type = if as_text { CqlType::Text } else { CqlType::Jsonb };
            Ok(Subject { column, at, part: Part::Path(steps, terms, as_text), data_type, name })
        }
    }
}
