//! Plans: statements with every name resolved, every type checked and every rule of CQL applied, once, to be executed many times.
//!
//! Always true: a plan depends on the catalog only through the definition of one table ([`Planned::tables`]), whose version it names; planning
//! neither waits nor reads data. Left out: choosing between ways to execute (there is one), secondary indexes, transactions, grouping, JSON.

mod arithmetic;
pub mod budget;
pub mod condition;
pub mod modify;
pub mod operation;
pub mod predicate;
pub mod relation;
pub mod restrictions;
pub mod select;
pub mod selection;
mod selector;
pub mod term;
#[cfg(test)]
mod tests;
mod timeout;
mod typing;

pub use budget::Budget;

use crate::error::{invalid, not_supported};
use crate::hot::{HotPlan, hot_plan};
use crate::system;
use crate::table::{Source, TableContext};
use crate::types::{charge_type_option, type_option};
use diorite_base::TableId;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{self, Modification, Parsed, QualifiedName, Statement, TypeName};
use diorite_cql::protocol::rows::BindMarkers;
use diorite_cql::protocol::{ColumnSpec, CqlError, ResultMetadata, TypeOption};
use diorite_model::types::CqlType;
use modify::ModifyPlan;
use select::SelectPlan;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use term::{Receiver, Term};
use timeout::Timeout;
use typing::Typing;

/// What a statement was planned to.
#[derive(Debug)]
pub enum Plan {
    /// Reads rows.
    Select(Box<SelectPlan>),
    /// Writes rows of one table.
    Modify(Box<ModifyPlan>),
    /// Writes rows, several statements together.
    Batch(Box<BatchPlan>),
    /// Changes the current keyspace.
    Use(String),
    /// Changes or describes the schema; carried out as it was parsed.
    Definition(Statement),
}

/// `BEGIN BATCH … APPLY BATCH`
#[derive(Debug)]
pub struct BatchPlan {
    /// Its kind.
    pub kind: ast::BatchKind,
    /// `USING TIMESTAMP` of the whole batch.
    pub timestamp: Option<Term>,
    /// Its statements, whose markers are numbered through.
    pub statements: Vec<ModifyPlan>,
}

/// A planned statement.
#[derive(Debug)]
pub struct Planned {
    /// What to do.
    pub plan: Plan,
    /// The bind markers.
    pub markers: BindMarkers,
    /// How many markers there are.
    pub marker_count: usize,
    /// The columns of the result; none for statements without one.
    pub result: Arc<ResultMetadata>,
    /// The tables it was planned for.
    pub tables: Vec<Arc<TableContext>>,
    /// How it is executed without waiting, if it can be.
    pub hot: Option<HotPlan>,
    /// `USING TIMEOUT`: how long it may take.
    pub timeout: Option<Timeout>,
    /// What planning it took.
    pub cost: Budget,
}

impl Planned {
    /// Whether the same text may have had other result columns before its table was changed: it names all columns there are (`SELECT *`), or some of
    /// a type that may have been changed with the table.
    pub fn may_have_had_other_columns(&self) -> bool {
        let columns = self.result.columns();
        self.tables.iter().map(|table| table.table()).any(|table| {
            let is_all = columns.len() == table.columns.len();
            let is_plain = |column: &ColumnSpec| matches!(column.type_option, TypeOption::Native(_));
            table.version > 1 && !columns.is_empty() && (is_all || !columns.iter().all(is_plain))
        })
    }

    /// Whether every table is still the one it was planned for.
    pub fn is_current(&self, catalog: &Catalog) -> bool {
        self.tables.iter().all(|planned| {
            let planned = match planned.source() {
                Source::Virtual => return true,
                Source::Tablets => planned.table(),
            };
            catalog.table_by_id(planned.id).is_some_and(|entry| entry.table.version == planned.version)
        })
    }
}

/// What is known about a bind marker once it has been met in the statement.
#[derive(Debug, Clone)]
struct MarkerSlot {
    keyspace: String,
    table: String,
    name: String,
    data_type: CqlType,
}

/// Plans one statement.
pub struct Planner<'a> {
    catalog: &'a Catalog,
    keyspace: Option<&'a str>,
    names: &'a [Option<String>],
    markers: Vec<Option<MarkerSlot>>,
    /// The table of the statement being planned.
    pub(crate) table: Option<Arc<TableContext>>,
    tables: Vec<Arc<TableContext>>,
    /// The places in `tables`, by keyspace and name.
    table_places: HashMap<(String, String), usize>,
    /// Tables whose columns the answer names.
    answered_tables: HashSet<TableId>,
    budget: Budget,
    typing: Typing,
}

/// Plans `parsed`; unqualified names belong to `keyspace`.
pub fn plan(catalog: &Catalog, keyspace: Option<&str>, parsed: &Parsed) -> Result<Planned, CqlError> {
    plan_within(catalog, keyspace, parsed, Budget::default())
}

/// Plans `parsed` with no more steps and memory than that.
pub fn plan_within(
    catalog: &Catalog,
    keyspace: Option<&str>,
    parsed: &Parsed,
    budget: Budget,
) -> Result<Planned, CqlError> {
    let mut planner = Planner {
        catalog,
        keyspace,
        names: &parsed.markers,
        markers: vec![None; parsed.markers.len()],
        table: None,
        tables: Vec::new(),
        table_places: HashMap::new(),
        answered_tables: HashSet::new(),
        budget,
        typing: Typing::default(),
    };
    let mut result = None;
    let mut partition_key_indexes = Vec::new();
    let plan = match &parsed.statement {
        Statement::Select(select) => {
            let (plan, metadata) = planner.select(select)?;
            partition_key_indexes = key_markers(&plan.restrictions);
            result = Some(metadata);
            Plan::Select(Box::new(plan))
        }
        Statement::Insert(insert) => Plan::Modify(Box::new(planner.insert(insert)?)),
        Statement::Update(update) => Plan::Modify(Box::new(planner.update(update)?)),
        Statement::Delete(delete) => Plan::Modify(Box::new(planner.delete(delete)?)),
        Statement::Batch(batch) => Plan::Batch(Box::new(planner.batch(batch)?)),
        Statement::Use(keyspace) => Plan::Use(keyspace.clone()),
        Statement::Transaction(_) => return Err(not_supported("BEGIN TRANSACTION")),
        Statement::Explain(_) => return Err(not_supported("EXPLAIN")),
        other => {
            if let Statement::Describe(request) = other {
                result = Some(Arc::new(crate::ddl::describe::result_columns(request)));
            }
            Plan::Definition(other.clone())
        }
    };
    if let Plan::Modify(modify) = &plan {
        partition_key_indexes = key_markers(&modify.restrictions);
    }
    if let Plan::Definition(_) | Plan::Use(_) = plan
        && !parsed.markers.is_empty()
    {
        return Err(invalid(
            "Bind variables are only supported in SELECT, INSERT, UPDATE, DELETE and BATCH statements",
        ));
    }
    let timeout = planner.timeout(&parsed.statement)?;
    let markers = planner.bind_markers(partition_key_indexes)?;
    let result = result.unwrap_or_else(|| Arc::new(ResultMetadata::empty()));
    let marker_count = parsed.markers.len();
    // What has a time limit of its own goes the way where limits are kept.
    let hot = hot_plan(&plan, marker_count).filter(|_| timeout.is_none());
    Ok(Planned { plan, marker_count, markers, result, tables: planner.tables, hot, timeout, cost: planner.budget })
}

/// For each partition key column the marker bound to it, if all are bound to one each.
fn key_markers(restrictions: &restrictions::Restrictions) -> Vec<u16> {
    let restrictions::PartitionRestriction::Keys(keys) = &restrictions.partition else { return Vec::new() };
    let marker = |values: &restrictions::Values| match values {
        restrictions::Values::One(term) => term.as_marker(),
        _ => None,
    };
    keys.iter().map(marker).collect::<Option<Vec<u16>>>().unwrap_or_default()
}

impl Planner<'_> {
    /// The table of the statement being planned.
    pub fn context(&self) -> &TableContext {
        self.table.as_deref().expect("a statement's table is resolved before anything in it")
    }

    /// The same, shared.
    pub fn shared_context(&self) -> Arc<TableContext> {
        Arc::clone(self.table.as_ref().expect("a statement's table is resolved before anything in it"))
    }

    /// Resolves the table of a statement.
    pub fn use_table(&mut self, name: &QualifiedName) -> Result<(), CqlError> {
        let keyspace = name.keyspace.as_deref().or(self.keyspace).ok_or_else(|| {
            invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
        })?;
        self.budget.step()?;
        if let Some(at) = self.table_places.get(&(keyspace.to_owned(), name.name.clone())) {
            self.table = Some(Arc::clone(&self.tables[*at]));
            return Ok(());
        }
        let context = if let Some(entry) = self.catalog.table(keyspace, &name.name) {
            TableContext::new(Arc::clone(&entry.table), Source::Tablets)
        } else if let Some(definition) = system::table(keyspace, &name.name) {
            TableContext::new(definition, Source::Virtual)
        } else if self.catalog.keyspace(keyspace).is_none() && system::keyspace(keyspace).is_none() {
            return Err(invalid(format!("keyspace {keyspace} does not exist")));
        } else {
            return Err(invalid(format!("table {} does not exist", name.name)));
        };
        let context = Arc::new(context);
        self.table_places.insert((keyspace.to_owned(), name.name.clone()), self.tables.len());
        self.tables.push(Arc::clone(&context));
        self.table = Some(context);
        Ok(())
    }

    /// The position of a column of the statement's table.
    pub fn column_position(&self, name: &str) -> Result<usize, CqlError> {
        let context = self.context();
        context
            .position(name)
            .ok_or_else(|| invalid(format!("Undefined column name {name} in table {}", context.full_name())))
    }

    /// Meets a marker: from now on its type is known.
    pub fn marker(&mut self, index: u16, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        let (keyspace, table) = match &self.table {
            Some(context) => (context.table().keyspace.clone(), context.table().name.clone()),
            None => (String::new(), String::new()),
        };
        let data_type = (*receiver.data_type).clone();
        let name = match &self.names[usize::from(index)] {
            Some(name) => name.clone(),
            None => receiver.name.to_string(),
        };
        // Once here and once in what the client is told.
        self.budget.charge(2 * (keyspace.len() + table.len() + name.len() + size_of::<MarkerSlot>()))?;
        self.markers[usize::from(index)] = Some(MarkerSlot { keyspace, table, name, data_type: data_type.clone() });
        Ok(Term::Marker { index, data_type })
    }

    /// Takes memory for the columns of a table as the answer to a conditional write names them, once.
    fn charge_answer(&mut self, table: &TableContext) -> Result<(), CqlError> {
        if self.answered_tables.insert(table.table().id) {
            for column in &table.table().columns {
                self.budget.charge(size_of::<ColumnSpec>() + column.name.len())?;
                self.charge_told(&column.data_type)?;
            }
        }
        Ok(())
    }

    /// Takes memory for a type as clients are told it.
    fn charge_told(&mut self, data_type: &CqlType) -> Result<(), CqlError> {
        charge_type_option(data_type, &mut |bytes| self.budget.charge(bytes))
    }

    fn bind_markers(&mut self, partition_key_indexes: Vec<u16>) -> Result<BindMarkers, CqlError> {
        let markers = std::mem::take(&mut self.markers);
        let mut columns = Vec::with_capacity(markers.len());
        for slot in &markers {
            let slot = slot.as_ref().ok_or_else(|| invalid("Cannot infer the type of a bind marker"))?;
            let names = slot.keyspace.len() + slot.table.len() + slot.name.len();
            self.budget.charge(size_of::<ColumnSpec>() + names)?;
            self.charge_told(&slot.data_type)?;
            columns.push(ColumnSpec {
                keyspace: slot.keyspace.clone(),
                table: slot.table.clone(),
                name: slot.name.clone(),
                type_option: type_option(&slot.data_type),
            });
        }
        Ok(BindMarkers { columns, partition_key_indexes })
    }

    /// Resolves a type name.
    pub fn resolve_type(&self, name: &TypeName) -> Result<CqlType, CqlError> {
        crate::ddl::resolve_type(self.catalog, self.keyspace.unwrap_or_default(), name)
    }

    fn batch(&mut self, batch: &ast::Batch) -> Result<BatchPlan, CqlError> {
        if batch.using.ttl.is_some() {
            return Err(invalid("Global TTL on the BATCH statement is not supported."));
        }
        let timestamp = match &batch.using.timestamp {
            Some(timestamp) => Some(self.term(timestamp, &Receiver::new("[timestamp]", &CqlType::Bigint))?),
            None => None,
        };
        let mut statements = Vec::with_capacity(batch.statements.len());
        for statement in &batch.statements {
            self.budget.step()?;
            self.budget.charge(size_of::<ModifyPlan>())?;
            statements.push(match statement {
                Modification::Insert(insert) => self.insert(insert)?,
                Modification::Update(update) => self.update(update)?,
                Modification::Delete(delete) => self.delete(delete)?,
            });
        }
        if timestamp.is_some() && statements.iter().any(|statement| statement.timestamp.is_some()) {
            return Err(invalid("Timestamp must be set either on BATCH or individual statements"));
        }
        let plan = BatchPlan { kind: batch.kind, timestamp, statements };
        check_batch(plan.kind, plan.timestamp.is_some(), &plan.statements.iter().collect::<Vec<_>>())?;
        Ok(plan)
    }
}

/// Cassandra's rules for what may stand together in a batch.
pub fn check_batch(kind: ast::BatchKind, has_timestamp: bool, statements: &[&ModifyPlan]) -> Result<(), CqlError> {
    let is_counter = |statement: &&&ModifyPlan| statement.table.table().is_counter();
    let counters = statements.iter().filter(is_counter).count();
    let has_conditions = statements.iter().any(|statement| statement.condition.is_some());
    if kind == ast::BatchKind::Counter {
        if counters < statements.len() {
            return Err(invalid("Cannot include non-counter statement in a counter batch"));
        }
        if has_timestamp {
            return Err(invalid("Cannot provide custom timestamp for counter BATCH"));
        }
    } else if counters > 0 {
        return Err(invalid(match kind {
            ast::BatchKind::Logged => "Cannot include a counter statement in a logged batch",
            _ if counters < statements.len() => "Counter and non-counter mutations cannot exist in the same batch",
            _ => return Ok(()),
        }));
    }
    if has_conditions {
        if has_timestamp {
            return Err(invalid("Cannot provide custom timestamp for conditional BATCH"));
        }
        let first = statements[0].table.table();
        if statements.iter().any(|statement| statement.table.table().id != first.id) {
            return Err(invalid("Batch with conditions cannot span multiple tables"));
        }
    }
    Ok(())
}
