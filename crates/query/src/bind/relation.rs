//! One relation of a `WHERE`, its names resolved and its terms planned.
//!
//! Always true: a [`Rule`] concerns neighbouring columns of the table in their order. Left out: whether the rule can be used
//! ([`super::restrictions`]).

use super::binder::Binder;
use super::predicate::bind_relation;
use super::receiver::Receiver;
use crate::error::{invalid, not_supported};
use crate::functions::Function;
use crate::plan::predicate::RowPredicate;
use crate::plan::term::{Call, Term};
use crate::plan::values::{SliceBound, TupleTerm, TupleValues, Values};
use diorite_cql::language::ast::{ComparisonOperator, Expression, InValues, Operand, Relation, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::ColumnKind;
use diorite_model::types::{CqlType, Frozen};
use std::collections::HashSet;
use std::sync::Arc;

/// A restriction of one column, of several together, or of the token.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Position of the first column.
    pub first: usize,
    /// How many columns.
    pub columns: usize,
    /// Written as a tuple of columns.
    pub is_tuple: bool,
    /// About the token of the partition key.
    pub is_token: bool,
    /// The kind of the rule.
    pub kind: RuleKind,
}

/// The kinds of rules.
#[derive(Debug, Clone)]
pub enum RuleKind {
    /// `=`
    Equal(Term),
    /// `IN`
    In(Values),
    /// `=` of a tuple
    EqualTuple(TupleTerm),
    /// `IN` of tuples
    InTuples(TupleValues),
    /// A range, of one column or of a tuple
    Slice {
        /// Lower end
        lower: Option<SliceBound>,
        /// Upper end
        upper: Option<SliceBound>,
    },
    /// `CONTAINS`
    Contains(Vec<Term>),
    /// `CONTAINS KEY`
    ContainsKey(Vec<Term>),
    /// `column[key] = value`
    Entry(Vec<(Term, Term)>),
    /// A predicate that has to be evaluated for each row
    Predicate(RowPredicate),
}

/// The left side of a rule.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    /// Position of the first column.
    pub first: usize,
    /// How many columns.
    pub columns: usize,
}

impl Rule {
    fn column(first: usize, kind: RuleKind) -> Rule {
        Rule { first, columns: 1, is_tuple: false, is_token: false, kind }
    }

    /// Whether no key range can express it.
    pub fn is_filter_only(&self) -> bool {
        matches!(
            self.kind,
            RuleKind::Contains(_) | RuleKind::ContainsKey(_) | RuleKind::Entry(_) | RuleKind::Predicate(_)
        )
    }

    /// The operator, for messages.
    pub fn symbol(&self) -> &'static str {
        match &self.kind {
            RuleKind::Equal(_) | RuleKind::EqualTuple(_) | RuleKind::Entry(_) => "=",
            RuleKind::In(_) | RuleKind::InTuples(_) => "IN",
            RuleKind::Predicate(_) | RuleKind::Contains(_) => "CONTAINS",
            RuleKind::ContainsKey(_) => "CONTAINS KEY",
            RuleKind::Slice { lower: Some(bound), .. } if bound.is_inclusive => ">=",
            RuleKind::Slice { lower: Some(_), .. } => ">",
            RuleKind::Slice { upper: Some(bound), .. } if bound.is_inclusive => "<=",
            RuleKind::Slice { .. } => "<",
        }
    }
}

fn slice(operator: ComparisonOperator, value: TupleTerm) -> RuleKind {
    use ComparisonOperator::{Greater, GreaterOrEqual, LessOrEqual};
    let bound = SliceBound { value, is_inclusive: matches!(operator, GreaterOrEqual | LessOrEqual) };
    match operator {
        Greater | GreaterOrEqual => RuleKind::Slice { lower: Some(bound), upper: None },
        _ => RuleKind::Slice { lower: None, upper: Some(bound) },
    }
}

/// Resolves a relation. `BETWEEN` gives two rules.
pub(super) fn rules_of(binder: &mut Binder<'_>, relation: &Relation) -> Result<Vec<Rule>, CqlError> {
    binder.budget.step()?;
    binder.budget.charge(size_of::<Rule>())?;
    match relation {
        relation if needs_predicate(relation) || is_other_element(binder, relation) => {
            let predicate = bind_relation(binder, relation)?;
            let mut first = None;
            predicate.visit_columns(&mut |at| first = Some(first.map_or(at, |known: usize| known.min(at))));
            let first = first.ok_or_else(|| invalid("a relation must name a column"))?;
            Ok(vec![Rule::column(first, RuleKind::Predicate(predicate))])
        }
        Relation::Compare { left, operator, right } => {
            compare_rule(binder, left, *operator, right).map(|rule| vec![rule])
        }
        Relation::In { left, values, .. } => in_rule(binder, left, values).map(|rule| vec![rule]),
        Relation::Between { left, from, to, .. } => Ok(vec![
            compare_rule(binder, left, ComparisonOperator::GreaterOrEqual, from)?,
            compare_rule(binder, left, ComparisonOperator::LessOrEqual, to)?,
        ]),
        Relation::Contains { left, value, .. } => {
            let at = operand_column(binder, left)?;
            let column = binder.context().column(at).clone();
            let element = match &column.data_type {
                CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Map(_, element, _) => element.clone(),
                _ => return Err(invalid(format!("Cannot use CONTAINS on non-collection column {}", column.name))),
            };
            let term = binder.term(value, &Receiver::new(format!("value({})", column.name), &element))?;
            Ok(vec![Rule::column(at, RuleKind::Contains(vec![term]))])
        }
        Relation::ContainsKey { left, key, .. } => {
            let at = operand_column(binder, left)?;
            let column = binder.context().column(at).clone();
            let CqlType::Map(key_type, ..) = &column.data_type else {
                return Err(invalid(format!("Cannot use CONTAINS KEY on non-map column {}", column.name)));
            };
            let term = binder.term(key, &Receiver::new(format!("key({})", column.name), key_type))?;
            Ok(vec![Rule::column(at, RuleKind::ContainsKey(vec![term]))])
        }
        Relation::Like { .. } => Err(invalid(
            "LIKE restriction is only supported on properly indexed columns, and indexes are not supported yet",
        )),
        Relation::IsNotNull(operand) => Err(invalid(format!(
            "restriction '{} IS NOT NULL' is only supported in materialized view creation",
            operand_text(operand)
        ))),
        Relation::IndexExpression { .. } => Err(not_supported("expr(index, value)")),
    }
}

/// Whether a comparison is about an element of anything but a map that is stored by element.
fn is_other_element(binder: &Binder<'_>, relation: &Relation) -> bool {
    let Relation::Compare { left: Operand::Target(Target::Element { column, .. }), .. } = relation else {
        return false;
    };
    let column = binder.context().position(column).map(|at| binder.context().column(at));
    column.is_some_and(|column| !matches!(column.data_type, CqlType::Map(_, _, Frozen::No)))
}

fn operand_column(binder: &Binder<'_>, operand: &Operand) -> Result<usize, CqlError> {
    match operand {
        Operand::Target(Target::Column(name)) => binder.column_position(name),
        Operand::Target(_) | Operand::JsonText { .. } => Err(not_supported("restricting a part of a column this way")),
        Operand::Token(_) | Operand::Tuple(_) => Err(invalid("this operator is not supported on tuples of columns")),
        Operand::Function(_) => Err(not_supported("a function of columns in WHERE")),
    }
}

fn compare_rule(
    binder: &mut Binder<'_>,
    left: &Operand,
    operator: ComparisonOperator,
    right: &Expression,
) -> Result<Rule, CqlError> {
    match left {
        Operand::Token(columns) => token_rule(binder, columns, operator, right),
        Operand::Function(function) if is_partition_hash(function) => hash_rule(binder, function, operator, right),
        Operand::Tuple(columns) => {
            let compared = compared_tuple(binder, columns)?;
            let value = tuple_value(binder, right, compared)?;
            let kind = match operator {
                ComparisonOperator::Equal => RuleKind::EqualTuple(value),
                _ => slice(operator, value),
            };
            Ok(Rule { first: compared.first, columns: compared.columns, is_tuple: true, is_token: false, kind })
        }
        Operand::Target(Target::Element { column, key }) => entry_rule(binder, column, key, operator, right),
        _ => {
            let at = operand_column(binder, left)?;
            let column = binder.context().column(at).clone();
            let term = binder.term(right, &Receiver::new(&column.name, &column.data_type))?;
            if operator == ComparisonOperator::Equal {
                return Ok(Rule::column(at, RuleKind::Equal(term)));
            }
            if column.data_type == CqlType::Duration {
                return Err(invalid("Slice restrictions are not supported on duration columns"));
            }
            Ok(Rule::column(at, slice(operator, TupleTerm::Terms(vec![term]))))
        }
    }
}

fn entry_rule(
    binder: &mut Binder<'_>,
    column: &str,
    key: &Expression,
    operator: ComparisonOperator,
    right: &Expression,
) -> Result<Rule, CqlError> {
    let at = binder.column_position(column)?;
    let column = binder.context().column(at).clone();
    let CqlType::Map(key_type, value_type, _) = &column.data_type else {
        return Err(invalid(format!("Column {} cannot be used as a map", column.name)));
    };
    if operator != ComparisonOperator::Equal {
        return Err(invalid("Only EQ relations are supported on map entries"));
    }
    let key = binder.term(key, &Receiver::new(format!("key({})", column.name), key_type))?;
    let value = binder.term(right, &Receiver::new(format!("value({})", column.name), value_type))?;
    Ok(Rule::column(at, RuleKind::Entry(vec![(key, value)])))
}

fn token_rule(
    binder: &mut Binder<'_>,
    columns: &[String],
    operator: ComparisonOperator,
    right: &Expression,
) -> Result<Rule, CqlError> {
    let context = binder.context();
    let partition_key: Vec<&str> = context.table().partition_key().map(|column| column.name.as_str()).collect();
    let known: HashSet<&str> = partition_key.iter().copied().collect();
    if let Some(other) = columns.iter().find(|name| !known.contains(name.as_str())) {
        binder.column_position(other)?;
        return Err(invalid(format!("The token() function must contains only partition key components, not {other}")));
    }
    if columns.len() != partition_key.len() || columns.iter().zip(&partition_key).any(|(a, b)| a != b) {
        return Err(invalid(if columns.len() < partition_key.len() {
            "The token() function must be applied to all partition key components or none of them"
        } else {
            "The token function arguments must be in the partition key order"
        }));
    }
    let term = binder.term(right, &Receiver::new("partition key token", &CqlType::Bigint))?;
    let kind = match operator {
        ComparisonOperator::Equal => RuleKind::Equal(term),
        _ => slice(operator, TupleTerm::Terms(vec![term])),
    };
    Ok(Rule { first: 0, columns: columns.len(), is_tuple: false, is_token: true, kind })
}

/// `partition_hash(…)` compared to a number: a range of tokens.
fn hash_rule(
    binder: &mut Binder<'_>,
    function: &Expression,
    operator: ComparisonOperator,
    right: &Expression,
) -> Result<Rule, CqlError> {
    let Expression::Function { arguments, .. } = function else {
        return Err(invalid("partition_hash() is a function of the partition key"));
    };
    let partition_key: Vec<String> =
        binder.context().table().partition_key().map(|column| column.name.clone()).collect();
    let given: Vec<Option<&String>> = arguments
        .iter()
        .map(|argument| if let Expression::Column(name) = argument { Some(name) } else { None })
        .collect();
    if given.len() != partition_key.len() || given.iter().zip(&partition_key).any(|(a, b)| *a != Some(b)) {
        return Err(invalid("The partition_hash function must be applied to the whole partition key, in its order"));
    }
    let hash = binder.term(right, &Receiver::new("partition_hash", &CqlType::Int))?;
    let columns = partition_key.len();
    let rule = |kind| Ok(Rule { first: 0, columns, is_tuple: false, is_token: true, kind });
    // A hash is a range of tokens: all tokens with that hash.
    let bound = |is_last: bool, is_inclusive: bool| {
        let function = Function::TokenOfHash(is_last);
        let token = Term::Call(Box::new(Call { function, arguments: vec![hash.clone()] }));
        Some(SliceBound { value: TupleTerm::Terms(vec![token]), is_inclusive })
    };
    match operator {
        ComparisonOperator::Equal => rule(RuleKind::Slice { lower: bound(false, true), upper: bound(true, true) }),
        ComparisonOperator::GreaterOrEqual => rule(RuleKind::Slice { lower: bound(false, true), upper: None }),
        ComparisonOperator::Greater => rule(RuleKind::Slice { lower: bound(true, false), upper: None }),
        ComparisonOperator::LessOrEqual => rule(RuleKind::Slice { lower: None, upper: bound(true, true) }),
        ComparisonOperator::Less => rule(RuleKind::Slice { lower: None, upper: bound(false, false) }),
        ComparisonOperator::NotEqual => Err(invalid("partition_hash() cannot be compared by !=")),
    }
}

fn compared_tuple(binder: &Binder<'_>, columns: &[String]) -> Result<Compared, CqlError> {
    let context = binder.context();
    let mut previous: Option<usize> = None;
    let mut first = 0;
    for name in columns {
        let at = binder.column_position(name)?;
        if !matches!(context.column(at).kind, ColumnKind::Clustering(_)) {
            return Err(invalid(format!(
                "Multi-column relations can only be applied to clustering columns but was applied to: {name}"
            )));
        }
        match previous {
            None => first = at,
            Some(previous) if previous == at => {
                return Err(invalid(format!(
                    "Column \"{name}\" appeared twice in a relation: ({})",
                    columns.join(", ")
                )));
            }
            Some(previous) if at != previous + 1 => {
                return Err(invalid(format!(
                    "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: ({})",
                    columns.join(", ")
                )));
            }
            Some(_) => {}
        }
        previous = Some(at);
    }
    Ok(Compared { first, columns: columns.len() })
}

fn tuple_value(binder: &mut Binder<'_>, expression: &Expression, compared: Compared) -> Result<TupleTerm, CqlError> {
    let name = {
        let context = binder.context();
        let names: Vec<&str> =
            (compared.first..compared.first + compared.columns).map(|at| context.column(at).name.as_str()).collect();
        format!("({})", names.join(","))
    };
    let Expression::Tuple(elements) = expression else {
        let data_type = tuple_type(compared, binder);
        return binder.term(expression, &Receiver::owned(name, data_type)).map(TupleTerm::Whole);
    };
    if elements.len() != compared.columns {
        return Err(invalid(format!(
            "Expected {} elements in value tuple, but got {}: {name}",
            compared.columns,
            elements.len()
        )));
    }
    let mut terms = Vec::with_capacity(elements.len());
    for (offset, element) in elements.iter().enumerate() {
        let column = binder.context().column(compared.first + offset).clone();
        terms.push(binder.term(element, &Receiver::new(&column.name, &column.data_type))?);
    }
    Ok(TupleTerm::Terms(terms))
}

fn in_rule(binder: &mut Binder<'_>, left: &Operand, values: &InValues) -> Result<Rule, CqlError> {
    if let Operand::Token(_) = left {
        return Err(invalid("IN cannot be used with the token function"));
    }
    if let Operand::Tuple(columns) = left {
        let compared = compared_tuple(binder, columns)?;
        let values = match values {
            InValues::List(elements) => {
                let tuples = elements.iter().map(|element| tuple_value(binder, element, compared));
                TupleValues::Many(tuples.collect::<Result<_, _>>()?)
            }
            InValues::Marker(index) => {
                let element = tuple_type(compared, binder);
                let list = CqlType::List(Arc::new(element), Frozen::Yes);
                let receiver = Receiver::owned(format!("in({})", columns.join(",")), list);
                TupleValues::List(binder.marker(*index, &receiver)?)
            }
        };
        let kind = RuleKind::InTuples(values);
        return Ok(Rule { first: compared.first, columns: compared.columns, is_tuple: true, is_token: false, kind });
    }
    let at = operand_column(binder, left)?;
    let column = binder.context().column(at).clone();
    let values = binder.in_values(values, &column.name, &column.data_type)?;
    Ok(Rule::column(at, RuleKind::In(values)))
}

/// The type of a tuple of the columns of a multi-column relation.
fn tuple_type(compared: Compared, binder: &Binder<'_>) -> CqlType {
    let context = binder.context();
    let columns = compared.first..compared.first + compared.columns;
    CqlType::Tuple(columns.map(|at| context.column(at).data_type.clone()).collect())
}

/// Whether a relation is about more than columns as they are, or in a way that no key range can express.
pub(super) fn needs_predicate(relation: &Relation) -> bool {
    let is_part = |operand: &Operand| {
        matches!(operand, Operand::Target(Target::Field { .. } | Target::JsonPath { .. }) | Operand::JsonText { .. })
            || matches!(operand, Operand::Function(function) if !is_partition_hash(function))
    };
    let is_element = |operand: &Operand| matches!(operand, Operand::Target(Target::Element { .. }));
    match relation {
        Relation::Compare { left, operator, .. } => {
            is_part(left)
                || *operator == ComparisonOperator::NotEqual
                || (is_element(left) && *operator != ComparisonOperator::Equal)
        }
        Relation::In { left, negated, .. } | Relation::Between { left, negated, .. } => {
            *negated || is_part(left) || is_element(left)
        }
        Relation::Contains { left, negated, .. } | Relation::ContainsKey { left, negated, .. } => {
            *negated || is_part(left) || is_element(left)
        }
        Relation::Like { .. } | Relation::IsNotNull(_) | Relation::IndexExpression { .. } => false,
    }
}

/// Whether an expression is YCQL's `partition_hash(…)`.
fn is_partition_hash(expression: &Expression) -> bool {
    matches!(expression, Expression::Function { name, .. } if name.name.eq_ignore_ascii_case("partition_hash"))
}

/// An operand, for messages.
fn operand_text(operand: &Operand) -> String {
    match operand {
        Operand::Target(target) => target.column().to_owned(),
        Operand::JsonText { column, .. } => column.clone(),
        Operand::Token(columns) => format!("token({})", columns.join(", ")),
        Operand::Tuple(columns) => format!("({})", columns.join(", ")),
        Operand::Function(_) => "a function".to_owned(),
    }
}
