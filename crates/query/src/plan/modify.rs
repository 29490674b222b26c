//! Plans of `INSERT`, `UPDATE` and `DELETE`.
//!
//! Always true: the keys, the operations and the condition have been checked against each other by Cassandra's rules, so execution only
//! meets errors of bound values. Left out: `INSERT … JSON`, YCQL's `RETURNS STATUS AS ROW`.

use super::Planner;
use super::condition::Condition;
use super::operation::{Change, Operation};
use super::restrictions::{ClusteringRestriction, PartitionRestriction, Restrictions, Values, WhereOf};
use super::term::{Receiver, Term};
use crate::error::{invalid, not_supported};
use crate::table::{Source, TableContext};
use diorite_cql::language::ast::{self, ConditionTest, InsertSource};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
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
}

impl ModifyPlan {
    /// Whether the condition looks at static columns only (or the write is of static columns only).
    pub fn condition_is_static(&self) -> bool {
        match &self.condition {
            Some(Condition::Columns(columns)) => columns.iter().all(|column| self.table.is_static(column.column)),
            _ => self.scope == Scope::Statics,
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
        refuse_status(insert.returns_status)?;
        if self.context().table().is_counter() {
            return Err(invalid("INSERT statements are not allowed on counter tables, use UPDATE instead"));
        }
        let InsertSource::Values { columns, values } = &insert.source else { return Err(not_supported("INSERT JSON")) };
        let key_columns = self.context().key_columns();
        let mut keys: Vec<Option<Term>> = vec![None; key_columns];
        let mut operations: Vec<Operation> = Vec::with_capacity(columns.len());
        let mut seen = Vec::with_capacity(columns.len());
        for (name, value) in columns.iter().zip(values) {
            let at = self.column_position(name)?;
            if seen.contains(&at) {
                return Err(invalid(format!("The column names contains duplicates: {name}")));
            }
            seen.push(at);
            let column = self.context().column(at).clone();
            match keys.get_mut(at) {
                Some(key) => *key = Some(self.term(value, &Receiver::new(&column.name, &column.data_type))?),
                None => operations.push(Operation { column: at, change: self.set_value(&column, value)? }),
            }
        }
        let using = self.using(insert.using.timestamp.as_ref(), insert.using.ttl.as_ref())?;
        let condition = match &insert.condition {
            None => None,
            Some(condition) if condition.test == ConditionTest::NotExists && !condition.else_error => {
                Some(Condition::NotExists)
            }
            Some(_) => return Err(not_supported("INSERT with a condition other than IF NOT EXISTS")),
        };
        let (restrictions, scope) = self.insert_keys(keys, &operations)?;
        self.finish(ModifyKind::Insert, restrictions, scope, operations, using, condition)
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
        refuse_status(update.returns_status)?;
        let using = self.using(update.using.timestamp.as_ref(), update.using.ttl.as_ref())?;
        let mut operations = Vec::with_capacity(update.assignments.len());
        for assignment in &update.assignments {
            operations.push(self.assignment(assignment)?);
        }
        self.check_assignments(&operations)?;
        let restrictions = self.restrictions(&update.where_clause, WhereOf::Update)?;
        if restrictions.has_slice() {
            return Err(invalid("Slice restrictions are not supported on the clustering columns in UPDATE statements"));
        }
        let condition = match &update.condition {
            Some(condition) => match self.condition(condition)? {
                Condition::NotExists => return Err(invalid("IF NOT EXISTS is only supported by INSERT")),
                condition => Some(condition),
            },
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
        self.finish(ModifyKind::Update, restrictions, scope, operations, using, condition)
    }

    /// Whole-column assignments stand alone; element assignments may be many.
    fn check_assignments(&self, operations: &[Operation]) -> Result<(), CqlError> {
        for (at, operation) in operations.iter().enumerate() {
            let is_whole = |change: &Change| matches!(change, Change::Set(_) | Change::Count(..));
            let conflict = operations[..at].iter().any(|other| {
                other.column == operation.column && (is_whole(&other.change) || is_whole(&operation.change))
            });
            if conflict {
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
        match condition {
            Some(Condition::Columns(columns)) => {
                statics && columns.iter().all(|column| context.is_static(column.column))
            }
            _ => statics,
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
        refuse_status(delete.returns_status)?;
        let using = self.using(delete.timestamp.as_ref(), None)?;
        let mut operations = Vec::with_capacity(delete.targets.len());
        for target in &delete.targets {
            operations.push(self.deletion(target)?);
        }
        let restrictions = self.restrictions(&delete.where_clause, WhereOf::Delete)?;
        let condition = match &delete.condition {
            Some(condition) => match self.condition(condition)? {
                Condition::NotExists => return Err(invalid("IF NOT EXISTS is only supported by INSERT")),
                condition => Some(condition),
            },
            None => None,
        };
        let scope = self.delete_scope(&operations, &restrictions, condition.as_ref())?;
        self.finish(ModifyKind::Delete, restrictions, scope, operations, using, condition)
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

    fn finish(
        &mut self,
        kind: ModifyKind,
        restrictions: Restrictions,
        scope: Scope,
        mut operations: Vec<Operation>,
        using: Using,
        condition: Option<Condition>,
    ) -> Result<ModifyPlan, CqlError> {
        let table = self.shared_context();
        if condition.is_some() {
            check_conditional(&table, &restrictions, &using)?;
        }
        operations.sort_by_key(|operation| table.column(operation.column).id);
        let regulars = table.table().regulars().count();
        let set_regulars = operations.iter().filter(|operation| !table.is_static(operation.column)).count();
        let is_list_read =
            |operation: &Operation| operation.change.reads_list(&table.column(operation.column).data_type);
        let is_plain = |operation: &Operation| {
            matches!(operation.change, Change::Set(_)) && !table.column(operation.column).data_type.is_multi_cell()
        };
        Ok(ModifyPlan {
            names_every_column: kind == ModifyKind::Insert && scope == Scope::Rows && set_regulars == regulars,
            reads_row: operations.iter().any(is_list_read),
            is_simple: operations.iter().all(is_plain),
            kind,
            restrictions,
            scope,
            operations,
            ttl: using.ttl,
            timestamp: using.timestamp,
            condition,
            table,
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

fn refuse_status(returns_status: bool) -> Result<(), CqlError> {
    if returns_status { Err(not_supported("RETURNS STATUS AS ROW")) } else { Ok(()) }
}

/// The columns a failed condition shows: `None` for all.
pub fn condition_columns(condition: &Condition) -> Option<Vec<usize>> {
    match condition {
        Condition::Exists | Condition::NotExists => None,
        Condition::Columns(columns) => {
            let mut positions: Vec<usize> = Vec::with_capacity(columns.len());
            for column in columns {
                if !positions.contains(&column.column) {
                    positions.push(column.column);
                }
            }
            Some(positions)
        }
    }
}
