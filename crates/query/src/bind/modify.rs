//! From `INSERT`, `UPDATE` and `DELETE` to their plans.
//!
//! Always true: the keys, the operations and the condition of a plan go together by Cassandra's rules. Left out: batches
//! ([`super::statement`]).

use super::binder::Binder;
use super::condition::bind_condition;
use super::operation::{bind_assignment, bind_deletion, bind_value};
use super::receiver::Receiver;
use super::restrictions::{WhereOf, bind_where};
use crate::error::invalid;
use crate::functions::document::{self, Member};
use crate::plan::condition::Condition;
use crate::plan::modify::{AnswerAs, ModifyKind, ModifyPlan, Scope};
use crate::plan::operation::{Change, Operation};
use crate::plan::restrictions::{ClusteringRestriction, PartitionRestriction, Restrictions};
use crate::plan::term::{JsonColumn, Term};
use crate::plan::values::Values;
use crate::table::{Source, TableContext};
use diorite_cql::language::ast::{self, InsertSource, JsonDefault};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// `USING …`, planned.
struct Using {
    timestamp: Option<Term>,
    ttl: Option<Term>,
}

fn modified_table(binder: &mut Binder<'_>, name: &ast::QualifiedName) -> Result<(), CqlError> {
    binder.use_table(name)?;
    if let Source::Virtual = binder.context().source() {
        let keyspace = &binder.context().table().keyspace;
        return Err(CqlError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    if binder.context().table().view.is_some() {
        return Err(invalid("Cannot directly modify a materialized view"));
    }
    Ok(())
}

fn using(
    binder: &mut Binder<'_>,
    timestamp: Option<&ast::Expression>,
    ttl: Option<&ast::Expression>,
) -> Result<Using, CqlError> {
    let is_counter = binder.context().table().is_counter();
    if is_counter && timestamp.is_some() {
        return Err(invalid("Cannot provide custom timestamp for counter updates"));
    }
    if is_counter && ttl.is_some() {
        return Err(invalid("Cannot provide custom TTL for counter updates"));
    }
    let mut plan = |expression: Option<&ast::Expression>, name: &'static str, data_type: CqlType| match expression {
        Some(expression) => binder.term(expression, &Receiver::owned(name, data_type)).map(Some),
        None => Ok(None),
    };
    Ok(Using { timestamp: plan(timestamp, "[timestamp]", CqlType::Bigint)?, ttl: plan(ttl, "[ttl]", CqlType::Int)? })
}

/// Plans an `INSERT`.
pub(super) fn bind_insert(binder: &mut Binder<'_>, insert: &ast::Insert) -> Result<ModifyPlan, CqlError> {
    modified_table(binder, &insert.table)?;
    if binder.context().table().is_counter() {
        return Err(invalid("INSERT statements are not allowed on counter tables, use UPDATE instead"));
    }
    let (columns, values) = match &insert.source {
        InsertSource::Values { columns, values } => (columns, values),
        InsertSource::Json { value, default } => return insert_json(binder, insert, value, *default),
    };
    let key_columns = binder.context().key_columns();
    let mut keys: Vec<Option<Term>> = vec![None; key_columns];
    let mut operations: Vec<Operation> = Vec::with_capacity(columns.len());
    let mut seen = HashSet::with_capacity(columns.len());
    for (name, value) in columns.iter().zip(values) {
        binder.budget.charge(size_of::<Operation>())?;
        let at = binder.column_position(name)?;
        if !seen.insert(at) {
            return Err(invalid(format!("The column names contains duplicates: {name}")));
        }
        let column = binder.context().column(at).clone();
        match keys.get_mut(at) {
            Some(key) => *key = Some(binder.term(value, &Receiver::new(&column.name, &column.data_type))?),
            None => operations.push(Operation { column: at, change: bind_value(binder, &column, value)? }),
        }
    }
    finish_insert(binder, insert, keys, operations)
}

fn finish_insert(
    binder: &mut Binder<'_>,
    insert: &ast::Insert,
    keys: Vec<Option<Term>>,
    operations: Vec<Operation>,
) -> Result<ModifyPlan, CqlError> {
    let using = using(binder, insert.using.timestamp.as_ref(), insert.using.ttl.as_ref())?;
    let condition = insert.condition.as_ref().map(|condition| bind_condition(binder, condition)).transpose()?;
    let (restrictions, scope) = insert_keys(binder, keys, &operations)?;
    let answer = answer_as(insert.returns_status, insert.condition.as_ref());
    let kind = ModifyKind::Insert;
    finish(binder, Clauses { kind, restrictions, scope, operations, using, condition, answer })
}

/// `INSERT … JSON`: columns that the text does not name are set to null, or left unset with `DEFAULT UNSET`.
fn insert_json(
    binder: &mut Binder<'_>,
    insert: &ast::Insert,
    value: &ast::Expression,
    default: JsonDefault,
) -> Result<ModifyPlan, CqlError> {
    let json = Arc::new(binder.term(value, &Receiver::new("[json]", &CqlType::Text))?);
    let context = binder.shared_context();
    let columns: Arc<[String]> = context.table().columns.iter().map(|column| column.name.clone()).collect();
    let known = match &*json {
        Term::Constant(Some(text)) => Some(document::parse_row(text, columns.iter().map(String::as_str))?),
        Term::Constant(None) => return Err(invalid("Got null for INSERT JSON values")),
        _ => None,
    };
    let default_unset = default == JsonDefault::Unset;
    let mut keys: Vec<Option<Term>> = Vec::with_capacity(context.key_columns());
    let mut operations = Vec::new();
    for (at, column) in context.table().columns.iter().enumerate() {
        binder.budget.step()?;
        binder.budget.charge(size_of::<Operation>() + size_of::<JsonColumn>() + column.name.len())?;
        if column.data_type == CqlType::Counter {
            return Err(invalid("INSERT statements are not allowed on counter tables, use UPDATE instead"));
        }
        let term = match &known {
            Some(row) => match document::member(row, &column.name, &column.data_type)? {
                Member::Value(value) => Some(Term::Constant(value.map(Into::into))),
                Member::Absent if default_unset => None,
                Member::Absent => Some(Term::NULL),
            },
            None => Some(Term::JsonColumn(Box::new(JsonColumn {
                json: Arc::clone(&json),
                name: column.name.clone(),
                data_type: column.data_type.clone(),
                columns: Arc::clone(&columns),
                default_unset,
            }))),
        };
        if at < context.key_columns() {
            keys.push(term);
        } else if let Some(term) = term {
            operations.push(Operation { column: at, change: Change::Set(term) });
        }
    }
    finish_insert(binder, insert, keys, operations)
}

fn insert_keys(
    binder: &Binder<'_>,
    keys: Vec<Option<Term>>,
    operations: &[Operation],
) -> Result<(Restrictions, Scope), CqlError> {
    let context = binder.context();
    let partition_columns = context.partition_columns();
    let missing = |range: std::ops::Range<usize>| -> Vec<&str> {
        range.filter(|&at| keys[at].is_none()).map(|at| context.column(at).name.as_str()).collect()
    };
    let absent = missing(0..partition_columns);
    if !absent.is_empty() {
        return Err(invalid(format!("Some partition key parts are missing: {}", absent.join(", "))));
    }
    let absent = missing(partition_columns..keys.len());
    let only_statics = !operations.is_empty() && operations.iter().all(|operation| context.is_static(operation.column));
    let scope = if absent.len() == context.clustering_columns() && !absent.is_empty() && only_statics {
        Scope::Statics
    } else if absent.is_empty() {
        Scope::Rows
    } else {
        return Err(invalid(format!("Some clustering keys are missing: {}", absent.join(", "))));
    };
    let mut terms = keys.into_iter().flatten().map(Values::One);
    let partition: Vec<Values> = terms.by_ref().take(partition_columns).collect();
    let clustering: Vec<ClusteringRestriction> = terms.map(ClusteringRestriction::Values).collect();
    let restrictions = Restrictions {
        partition: PartitionRestriction::Keys(partition),
        fixed_clustering: clustering.len(),
        restricts_clustering: !clustering.is_empty(),
        clustering,
        filters: Vec::new(),
        restricts_regular: false,
        equal_columns: Vec::new(),
        has_clustering_in: false,
        implied_indexes: Vec::new(),
        index: None,
    };
    Ok((restrictions, scope))
}

/// Plans an `UPDATE`.
pub(super) fn bind_update(binder: &mut Binder<'_>, update: &ast::Update) -> Result<ModifyPlan, CqlError> {
    modified_table(binder, &update.table)?;
    let using = using(binder, update.using.timestamp.as_ref(), update.using.ttl.as_ref())?;
    let mut operations = Vec::with_capacity(update.assignments.len());
    for assignment in &update.assignments {
        binder.budget.step()?;
        binder.budget.charge(size_of::<Operation>())?;
        operations.push(bind_assignment(binder, assignment)?);
    }
    check_assignments(binder, &operations)?;
    let restrictions = bind_where(binder, &update.where_clause, WhereOf::Update)?;
    if restrictions.has_slice() {
        return Err(invalid("Slice restrictions are not supported on the clustering columns in UPDATE statements"));
    }
    let condition = match &update.condition {
        // YCQL allows IF NOT EXISTS as well.
        Some(condition) => Some(bind_condition(binder, condition)?),
        None => None,
    };
    let only_statics = applies_to_statics(binder, &operations, condition.as_ref());
    let scope = if only_statics && !restrictions.restricts_clustering && binder.context().clustering_columns() > 0 {
        Scope::Statics
    } else if only_statics && restrictions.restricts_clustering {
        return Err(invalid(
            "Invalid restrictions on clustering columns since the UPDATE statement modifies only static columns",
        ));
    } else {
        require_clustering(binder, &restrictions)?;
        Scope::Rows
    };
    let answer = answer_as(update.returns_status, update.condition.as_ref());
    let kind = ModifyKind::Update;
    finish(binder, Clauses { kind, restrictions, scope, operations, using, condition, answer })
}

/// Whole-column assignments stand alone; element assignments may be many.
fn check_assignments(binder: &Binder<'_>, operations: &[Operation]) -> Result<(), CqlError> {
    // Of each column whether it was assigned as a whole.
    let mut assigned: HashMap<usize, bool> = HashMap::with_capacity(operations.len());
    for operation in operations {
        let is_whole =
            matches!(operation.change, Change::Set(_) | Change::Delete | Change::Count(..) | Change::Sum(..));
        if assigned.insert(operation.column, is_whole).is_some_and(|before| before || is_whole) {
            return Err(invalid(format!(
                "Multiple incompatible setting of column {}",
                binder.context().column(operation.column).name
            )));
        }
    }
    Ok(())
}

fn applies_to_statics(binder: &Binder<'_>, operations: &[Operation], condition: Option<&Condition>) -> bool {
    let context = binder.context();
    let statics = !operations.is_empty() && operations.iter().all(|operation| context.is_static(operation.column));
    match condition.and_then(Condition::columns) {
        Some(columns) => statics && columns.iter().all(|column| context.is_static(column.column)),
        None => statics,
    }
}

fn require_clustering(binder: &Binder<'_>, restrictions: &Restrictions) -> Result<(), CqlError> {
    let context = binder.context();
    let names: Vec<&str> = (restrictions.fixed_clustering..context.clustering_columns())
        .map(|at| context.column(context.partition_columns() + at).name.as_str())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(invalid(format!("Some clustering keys are missing: {}", names.join(", "))))
}

/// Plans a `DELETE`.
pub(super) fn bind_delete(binder: &mut Binder<'_>, delete: &ast::Delete) -> Result<ModifyPlan, CqlError> {
    modified_table(binder, &delete.table)?;
    let using = using(binder, delete.timestamp.as_ref(), None)?;
    let mut operations = Vec::with_capacity(delete.targets.len());
    for target in &delete.targets {
        binder.budget.step()?;
        binder.budget.charge(size_of::<Operation>())?;
        operations.push(bind_deletion(binder, target)?);
    }
    let restrictions = bind_where(binder, &delete.where_clause, WhereOf::Delete)?;
    let condition = match &delete.condition {
        Some(condition) => Some(bind_condition(binder, condition)?),
        None => None,
    };
    let scope = delete_scope(binder, &operations, &restrictions, condition.as_ref())?;
    let answer = answer_as(delete.returns_status, delete.condition.as_ref());
    let kind = ModifyKind::Delete;
    finish(binder, Clauses { kind, restrictions, scope, operations, using, condition, answer })
}

fn delete_scope(
    binder: &Binder<'_>,
    operations: &[Operation],
    restrictions: &Restrictions,
    condition: Option<&Condition>,
) -> Result<Scope, CqlError> {
    let clustering_columns = binder.context().clustering_columns();
    let is_full = restrictions.fixed_clustering == clustering_columns;
    if applies_to_statics(binder, operations, condition) && clustering_columns > 0 {
        return if restrictions.restricts_clustering {
            Err(invalid(
                "Invalid restrictions on clustering columns since the DELETE statement modifies only static columns",
            ))
        } else {
            Ok(Scope::Statics)
        };
    }
    if is_full {
        return Ok(Scope::Rows);
    }
    if condition.is_some() {
        return Err(invalid(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to use IF condition on non static columns",
        ));
    }
    if !operations.is_empty() {
        return Err(invalid("Range deletions are not supported for specific columns"));
    }
    Ok(if restrictions.clustering.is_empty() { Scope::Partition } else { Scope::Range })
}

#[allow(clippy::too_many_arguments, reason = "the parts of a write come from different clauses")]
/// The parts of a write, which come from different clauses.
struct Clauses {
    kind: ModifyKind,
    restrictions: Restrictions,
    scope: Scope,
    operations: Vec<Operation>,
    using: Using,
    condition: Option<Condition>,
    answer: AnswerAs,
}

/// Checks the parts of a write against each other.
fn finish(binder: &mut Binder<'_>, clauses: Clauses) -> Result<ModifyPlan, CqlError> {
    let Clauses { kind, restrictions, scope, mut operations, using, condition, answer } = clauses;
    let table = binder.shared_context();
    if condition.is_some() {
        check_conditional(&table, &restrictions, &using)?;
    }
    if condition.is_some() || answer.status_row {
        binder.charge_answer(&table)?;
    }
    operations.sort_by_key(|operation| table.column(operation.column).id);
    let regulars = table.table().regulars().count();
    let set_regulars = operations.iter().filter(|operation| !table.is_static(operation.column)).count();
    let sums = operations.iter().any(|operation| matches!(operation.change, Change::Sum(..)));
    if sums && using.timestamp.is_some() {
        return Err(invalid("Cannot provide custom timestamp for arithmetic on columns"));
    }
    let reads_row = |operation: &Operation| operation.change.reads_row(&table.column(operation.column).data_type);
    let is_plain = |operation: &Operation| {
        matches!(operation.change, Change::Set(_)) && !table.column(operation.column).data_type.is_multi_cell()
    };
    Ok(ModifyPlan {
        names_every_column: kind == ModifyKind::Insert && scope == Scope::Rows && set_regulars == regulars,
        reads_row: operations.iter().any(reads_row),
        is_simple: operations.iter().all(is_plain),
        kind,
        restrictions,
        scope,
        operations,
        ttl: using.ttl,
        timestamp: using.timestamp,
        condition,
        table,
        answer,
    })
}

fn check_conditional(table: &TableContext, restrictions: &Restrictions, using: &Using) -> Result<(), CqlError> {
    if table.table().is_counter() {
        return Err(invalid("Conditional updates are not supported on counter tables"));
    }
    if using.timestamp.is_some() {
        return Err(invalid("Cannot provide custom timestamp for conditional updates"));
    }
    if restrictions.has_partition_in() {
        return Err(invalid("IN on the partition key is not supported with conditional updates"));
    }
    if restrictions.has_clustering_in {
        return Err(invalid("IN on the clustering key columns is not supported with conditional updates"));
    }
    Ok(())
}

fn answer_as(status_row: bool, condition: Option<&ast::Condition>) -> AnswerAs {
    AnswerAs { status_row, error: condition.is_some_and(|condition| condition.else_error) }
}
