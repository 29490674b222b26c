//! Plans of `INSERT`, `UPDATE` and `DELETE`.
//!
//! Always true: the keys, the operations and the condition have been checked against each other by Cassandra's rules, so execution only
//! meets errors of bound values. Left out: what a write is packed to ([`crate::exec::write`]).

use super::Planner;
use super::condition::Condition;
use super::operation::{Change, Operation};
use super::restrictions::{ClusteringRestriction, PartitionRestriction, Restrictions, Values, WhereOf};
use super::term::{JsonColumn, Receiver, Term};
use crate::error::invalid;
use crate::functions::document::{self, Member};
use crate::table::{Source, TableContext};
use diorite_cql::language::ast::{self, InsertSource, JsonDefault};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What a statement writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Rows named by their full keys (and, beside them, static columns)
    Rows,
    /// Static columns alone
    Statics,
    /// A range of rows: only deletions do
    Range,
    /// Whole partitions: only deletions do
    Partition,
}

/// Which statement it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModifyKind {
    /// `INSERT`: writes a row marker
    Insert,
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
}

impl ModifyKind {
    /// Its keyword.
    pub fn name(self) -> &'static str {
        match self {
            ModifyKind::Insert => "INSERT",
            ModifyKind::Update => "UPDATE",
            ModifyKind::Delete => "DELETE",
        }
    }
}

/// A planned write.
#[derive(Debug)]
pub struct ModifyPlan {
    /// The table.
    pub table: Arc<TableContext>,
    /// Which statement it was.
    pub kind: ModifyKind,
    /// Which partitions and rows.
    pub restrictions: Restrictions,
    /// What of them.
    pub scope: Scope,
    /// Changes of columns, by column id; of one column in the order of the text. Empty when whole rows are deleted.
    pub operations: Vec<Operation>,
    /// `USING TTL`, seconds
    pub ttl: Option<Term>,
    /// `USING TIMESTAMP`, microseconds
    pub timestamp: Option<Term>,
    /// `IF …`
    pub condition: Option<Condition>,
    /// An `INSERT` that names every regular column: if all are set, it replaces the row.
    pub names_every_column: bool,
    /// Some operation has to read the row (lists by index or value).
    pub reads_row: bool,
    /// Every operation sets a simple column, so that the row can be packed without gathering elements first.
    pub is_simple: bool,
    /// How the outcome is told.
    pub answer: AnswerAs,
}

/// How the outcome of a write is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerAs {
    /// YCQL's `RETURNS STATUS AS ROW`: always by a row.
    pub status_row: bool,
    /// YCQL's `ELSE ERROR`: a condition that does not hold is an error.
    pub error: bool,
}

impl ModifyPlan {
    /// One of the columns of an `INSERT JSON` whose text is bound.
    pub fn json_column(&self) -> Option<&JsonColumn> {
        self.operations.iter().find_map(|operation| match &operation.change {
            Change::Set(Term::JsonColumn(column)) => Some(&**column),
            _ => None,
        })
    }

    /// Whether the condition looks at static columns only (or the write is of static columns only).
    pub fn condition_is_static(&self) -> bool {
        match &self.condition {
            Some(condition) => match condition.columns() {
                Some(columns) => columns.iter().all(|column| self.table.is_static(column.column)),
                None => self.scope == Scope::Statics,
            },
            None => self.scope == Scope::Statics,
        }
    }
}

impl Planner<'_> {
    fn modified_table(&mut self, name: &ast::QualifiedName) -> Result<(), CqlError> {
        self.use_table(name)?;
        if let Source::Virtual = self.context().source() {
            let keyspace = &self.context().table().keyspace;
            return Err(CqlError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
        }
        Ok(())
    }

    fn using(&mut self, timestamp: Option<&ast::Expression>, ttl: Option<&ast::Expression>) -> Result<Using, CqlError> {
        let is_counter = self.context().table().is_counter();
        if is_counter && timestamp.is_some() {
            return Err(invalid("Cannot provide custom timestamp for counter updates"));
        }
        if is_counter && ttl.is_some() {
            return Err(invalid("Cannot provide custom TTL for counter updates"));
        }
        let mut plan = |expression: Option<&ast::Expression>, name: &'static str, data_type: CqlType| match expression {
            Some(expression) => self.term(expression, &Receiver::owned(name, data_type)).map(Some),
            None => Ok(None),
        };
        Ok(Using {
            timestamp: plan(timestamp, "[timestamp]", CqlType::Bigint)?,
            ttl: plan(ttl, "[ttl]", CqlType::Int)?,
        })
    }

    /// Plans an `INSERT`.
    pub fn insert(&mut self, insert: &ast::Insert) -> Result<ModifyPlan, CqlError> {
        self.modified_table(&insert.table)?;
        if self.context().table().is_counter() {
            return Err(invalid("INSERT statements are not allowed on counter tables, use UPDATE instead"));
        }
        let (columns, values) = match &insert.source {
            InsertSource::Values { columns, values } => (columns, values),
            InsertSource::Json { value, default } => return self.insert_json(insert, value, *default),
        };
        let key_columns = self.context().key_columns();
        let mut keys: Vec<Option<Term>> = vec![None; key_columns];
        let mut operations: Vec<Operation> = Vec::with_capacity(columns.len());
        let mut seen = HashSet::with_capacity(columns.len());
        for (name, value) in columns.iter().zip(values) {
            self.budget.charge(size_of::<Operation>())?;
            let at = self.column_position(name)?;
            if !seen.insert(at) {
                return Err(invalid(format!("The column names contains duplicates: {name}")));
            }
            let column = self.context().column(at).clone();
            match keys.get_mut(at) {
                Some(key) => *key = Some(self.term(value, &Receiver::new(&column.name, &column.data_type))?),
                None => operations.push(Operation { column: at, change: self.set_value(&column, value)? }),
            }
        }
        self.finish_insert(insert, keys, operations)
    }

    fn finish_insert(
        &mut self,
        insert: &ast::Insert,
        keys: Vec<Option<Term>>,
        operations: Vec<Operation>,
    ) -> Result<ModifyPlan, CqlError> {
        let using = self.using(insert.using.timestamp.as_ref(), insert.using.ttl.as_ref())?;
        let condition = insert.condition.as_ref().map(|condition| self.condition(condition)).transpose()?;
        let (restrictions, scope) = self.insert_keys(keys, &operations)?;
        let answer = answer_as(insert.returns_status, insert.condition.as_ref());
        self.finish(ModifyKind::Insert, restrictions, scope, operations, using, condition, answer)
    }

    /// `INSERT … JSON`: every column of the table is set, or left alone where the text does not name it and says so.
    fn insert_json(
        &mut self,
        insert: &ast::Insert,
        value: &ast::Expression,
        default: JsonDefault,
    ) -> Result<ModifyPlan, CqlError> {
        let json = Arc::new(self.term(value, &Receiver::new("[json]", &CqlType::Text))?);
        let context = self.shared_context();
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
            self.budget.step()?;
            self.budget.charge(size_of::<Operation>() + size_of::<JsonColumn>() + column.name.len())?;
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
        self.finish_insert(insert, keys, operations)
    }

    fn insert_keys(
        &self,
        keys: Vec<Option<Term>>,
        operations: &[Operation],
    ) -> Result<(Restrictions, Scope), CqlError> {
        let context = self.context();
        let partition_columns = context.partition_columns();
        let missing = |range: std::ops::Range<usize>| -> Vec<&str> {
            range.filter(|&at| keys[at].is_none()).map(|at| context.column(at).name.as_str()).collect()
        };
        let absent = missing(0..partition_columns);
        if !absent.is_empty() {
            return Err(invalid(format!("Some partition key parts are missing: {}", absent.join(", "))));
        }
        let absent = missing(partition_columns..keys.len());
        let only_statics =
            !operations.is_empty() && operations.iter().all(|operation| context.is_static(operation.column));
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
        };
        Ok((restrictions, scope))
    }

    /// Plans an `UPDATE`.
    pub fn update(&mut self, update: &ast::Update) -> Result<ModifyPlan, CqlError> {
        self.modified_table(&update.table)?;
        let using = self.using(update.using.timestamp.as_ref(), update.using.ttl.as_ref())?;
        let mut operations = Vec::with_capacity(update.assignments.len());
        for assignment in &update.assignments {
            self.budget.step()?;
            self.budget.charge(size_of::<Operation>())?;
            operations.push(self.assignment(assignment)?);
        }
        self.check_assignments(&operations)?;
        let restrictions = self.restrictions(&update.where_clause, WhereOf::Update)?;
        if restrictions.has_slice() {
            return Err(invalid("Slice restrictions are not supported on the clustering columns in UPDATE statements"));
        }
        let condition = match &update.condition {
            // YCQL allows IF NOT EXISTS as well.
            Some(condition) => Some(self.condition(condition)?),
            None => None,
        };
        let only_statics = self.applies_to_statics(&operations, condition.as_ref());
        let scope = if only_statics && !restrictions.restricts_clustering && self.context().clustering_columns() > 0 {
            Scope::Statics
        } else if only_statics && restrictions.restricts_clustering {
            return Err(invalid(
                "Invalid restrictions on clustering columns since the UPDATE statement modifies only static columns",
            ));
        } else {
            self.require_clustering(&restrictions)?;
            Scope::Rows
        };
        let answer = answer_as(update.returns_status, update.condition.as_ref());
        self.finish(ModifyKind::Update, restrictions, scope, operations, using, condition, answer)
    }

    /// Whole-column assignments stand alone; element assignments may be many.
    fn check_assignments(&self, operations: &[Operation]) -> Result<(), CqlError> {
        // Of each column whether it was assigned as a whole.
        let mut assigned: HashMap<usize, bool> = HashMap::with_capacity(operations.len());
        for operation in operations {
            let is_whole = matches!(operation.change, Change::Set(_) | Change::Count(..));
            if assigned.insert(operation.column, is_whole).is_some_and(|before| before || is_whole) {
                return Err(invalid(format!(
                    "Multiple incompatible setting of column {}",
                    self.context().column(operation.column).name
                )));
            }
        }
        Ok(())
    }

    fn applies_to_statics(&self, operations: &[Operation], condition: Option<&Condition>) -> bool {
        let context = self.context();
        let statics = !operations.is_empty() && operations.iter().all(|operation| context.is_static(operation.column));
        match condition.and_then(Condition::columns) {
            Some(columns) => statics && columns.iter().all(|column| context.is_static(column.column)),
            None => statics,
        }
    }

    fn require_clustering(&self, restrictions: &Restrictions) -> Result<(), CqlError> {
        let context = self.context();
        let names: Vec<&str> = (restrictions.fixed_clustering..context.clustering_columns())
            .map(|at| context.column(context.partition_columns() + at).name.as_str())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(invalid(format!("Some clustering keys are missing: {}", names.join(", "))))
    }

    /// Plans a `DELETE`.
    pub fn delete(&mut self, delete: &ast::Delete) -> Result<ModifyPlan, CqlError> {
        self.modified_table(&delete.table)?;
        let using = self.using(delete.timestamp.as_ref(), None)?;
        let mut operations = Vec::with_capacity(delete.targets.len());
        for target in &delete.targets {
            self.budget.step()?;
            self.budget.charge(size_of::<Operation>())?;
            operations.push(self.deletion(target)?);
        }
        let restrictions = self.restrictions(&delete.where_clause, WhereOf::Delete)?;
        let condition = match &delete.condition {
            Some(condition) => Some(self.condition(condition)?),
            None => None,
        };
        let scope = self.delete_scope(&operations, &restrictions, condition.as_ref())?;
        let answer = answer_as(delete.returns_status, delete.condition.as_ref());
        self.finish(ModifyKind::Delete, restrictions, scope, operations, using, condition, answer)
    }

    fn delete_scope(
        &self,
        operations: &[Operation],
        restrictions: &Restrictions,
        condition: Option<&Condition>,
    ) -> Result<Scope, CqlError> {
        let clustering_columns = self.context().clustering_columns();
        let is_full = restrictions.fixed_clustering == clustering_columns;
        if self.applies_to_statics(operations, condition) && clustering_columns > 0 {
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
    fn finish(
        &mut self,
        kind: ModifyKind,
        restrictions: Restrictions,
        scope: Scope,
        mut operations: Vec<Operation>,
        using: Using,
        condition: Option<Condition>,
        answer: AnswerAs,
    ) -> Result<ModifyPlan, CqlError> {
        let table = self.shared_context();
        if condition.is_some() {
            check_conditional(&table, &restrictions, &using)?;
        }
        if condition.is_some() || answer.status_row {
            self.charge_answer(&table)?;
        }
        operations.sort_by_key(|operation| table.column(operation.column).id);
        let regulars = table.table().regulars().count();
        let set_regulars = operations.iter().filter(|operation| !table.is_static(operation.column)).count();
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
}

/// `USING …`, planned.
struct Using {
    timestamp: Option<Term>,
    ttl: Option<Term>,
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

/// The columns a failed condition shows: `None` for all.
pub fn condition_columns(condition: &Condition) -> Option<Vec<usize>> {
    let columns = condition.columns()?;
    let mut seen = HashSet::new();
    Some(columns.into_iter().map(|column| column.column).filter(|column| seen.insert(*column)).collect())
}
