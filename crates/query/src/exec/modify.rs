//! Execution of `INSERT`, `UPDATE` and `DELETE`, alone or in a batch: what they write is gathered per tablet and becomes one mutation each.
//!
//! Always true: all of a mutation takes effect together; statements of a transaction block, and of a batch with
//! arithmetic, see those before them; a statement with a condition goes to one tablet, except in a block. Left out:
//! carrying out transactions over several tablets (their parts are made in [`transaction`]).

mod together;
pub mod transaction;
pub mod unique;
pub mod views;

use self::together::write_together;
use super::keys::{clustering_ranges, partition_keys};
use super::table_part::{TablePart, WrittenParts};
use super::tested::TestedRows;
use super::turns::Order;
use super::write::{Timing, expiry, explicit_timestamp, pack_row, path_steps};
use crate::error::{invalid, unprovable};
use crate::functions::Environment;
use crate::plan::condition::{ColumnCondition, Condition, ConditionTree, Part, Test};
use crate::plan::modify::{ModifyKind, ModifyPlan, Scope};
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::term::{Bound, Evaluated, Term};
use crate::plan::values::Values;
use crate::program::{ColumnTest, Program, ProgramOperation, RowCondition, RowTest, TestTree, TestedPart, ValueTest};
use crate::steps;
use crate::table::TableContext;
use diorite_base::TabletId;
use diorite_base::limits::MAX_MUTATION_BYTES;
use diorite_base::mutation::{Mutation, OperationKind};
use diorite_base::program::ProvenProgram;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::key;
use diorite_model::schema::TabletRange;
use diorite_model::value::collection;
use std::collections::HashMap;
use std::sync::Arc;

/// The most unused capacity that a packed row keeps.
const MAX_SLACK_BYTES: usize = 64 << 10;

/// The write of a statement or batch to one tablet.
#[derive(Debug)]
pub struct Write {
    /// The tablet's part of the table.
    pub part: TablePart,
    /// The mutation.
    pub mutation: Mutation,
    /// Whether it is a program, which has a reply.
    pub is_evaluated: bool,
}

/// The write to one tablet while it is assembled.
#[derive(Debug)]
struct Pending {
    part: TablePart,
    /// The table that the tablet is of.
    table: Arc<TableContext>,
    program: Program,
    explicit_us: Option<i64>,
    /// Whether all its statements delete.
    deletes_only: bool,
    /// The rows of the program's conditions.
    tested: TestedRows,
    /// The order of its parts.
    order: Order,
}

/// The writes of a statement or batch, gathered by tablet.
#[derive(Debug, Default)]
pub struct Writes {
    pending: Vec<Pending>,
    by_tablet: HashMap<TabletId, usize, ahash::RandomState>,
    /// The partition that conditions are about.
    conditional_partition: Option<Vec<u8>>,
    /// How many partitions are written, counted per statement.
    pub partitions: usize,
    /// The parts of tables where the write has taken effect already.
    written: WrittenParts,
    /// A transaction block.
    is_block: bool,
    /// Some statement has a condition.
    is_conditional: bool,
}

/// The defaults for statements that do not set these.
#[derive(Debug, Clone, Copy, Default)]
pub struct Defaults {
    /// `USING TIMESTAMP` of the batch, or the timestamp that the driver attached to the request (if that is honoured).
    pub timestamp_us: Option<i64>,
    /// The statement itself has it.
    pub is_explicit: bool,
}

impl Writes {
    /// Gathers only writes outside of these parts of tables.
    pub fn besides(written: &[TablePart]) -> Self {
        Self { written: WrittenParts::new(written), ..Self::default() }
    }

    /// The same for the statements of a transaction block, each of which sees those before it.
    pub fn of_block(written: &[TablePart]) -> Self {
        Self { is_block: true, ..Self::besides(written) }
    }

    fn pending(&mut self, part: TablePart, table: &Arc<TableContext>) -> &mut Pending {
        let next = self.pending.len();
        let at = *self.by_tablet.entry(part.tablet).or_insert(next);
        if at == next {
            self.pending.push(Pending {
                part,
                table: Arc::clone(table),
                program: Program::default(),
                explicit_us: None,
                deletes_only: true,
                tested: TestedRows::default(),
                order: Order::default(),
            });
        }
        &mut self.pending[at]
    }

    /// Adds the writes of a statement.
    pub fn add(
        &mut self,
        plan: &ModifyPlan,
        bound: &Bound<'_>,
        tablets: &[TabletRange],
        defaults: Defaults,
    ) -> Result<(), CqlError> {
        // The text of an `INSERT JSON` is read once, not once per column.
        let parsed = plan.json_column().map(|column| column.parse(bound)).transpose()?;
        let json = parsed.as_ref().map(|(row, _)| row);
        let bound = Bound { environment: Environment { json, ..bound.environment }, ..*bound };
        self.add_parsed(plan, &bound, tablets, defaults)
    }

    fn add_parsed(
        &mut self,
        plan: &ModifyPlan,
        bound: &Bound<'_>,
        tablets: &[TabletRange],
        defaults: Defaults,
    ) -> Result<(), CqlError> {
        let timing = timing(plan, bound, defaults)?;
        let PartitionRestriction::Keys(keys) = &plan.restrictions.partition else {
            return Err(invalid("a write must name its partitions by their keys"));
        };
        let partitions = partition_keys(&plan.table, keys, bound)?;
        self.partitions += partitions.len();
        let ranges = match plan.scope {
            Scope::Rows | Scope::Range => clustering_ranges(&plan.table, &plan.restrictions, bound)?,
            Scope::Statics | Scope::Partition => Vec::new(),
        };
        let budget = bound.environment.budget;
        for partition in &partitions {
            budget.check()?;
            let table = plan.table.table().id;
            if self.written.contains(table, partition.token) {
                continue;
            }
            let part = TablePart::holding(partition.token, table, tablets);
            let mut target = Target { plan, bound, timing, partition: &partition.prefix };
            let pending = self.pending(part.clone(), &plan.table);
            pending.deletes_only &= plan.kind == ModifyKind::Delete;
            let begins_at = pending.program.operations.len();
            pending.order.begin(begins_at);
            match plan.scope {
                Scope::Partition => pending.delete(&target, None)?,
                Scope::Range => {
                    for range in &ranges {
                        // The bounds begin with the row-kind byte, which headers leave out.
                        let end = range.end.as_ref().map_or_else(|| [&range.start[..], &[0]].concat(), Clone::clone);
                        pending.delete(&target, Some((range.start[1..].to_vec(), end[1..].to_vec())))?;
                    }
                }
                Scope::Rows => {
                    let writes_row = plan.kind != ModifyKind::Update
                        || plan.operations.iter().any(|operation| !plan.table.is_static(operation.column));
                    for range in ranges.iter().filter(|_| writes_row) {
                        pending.write(&mut target, &range.start, false)?;
                    }
                    pending.write_statics(&mut target)?;
                }
                Scope::Statics => pending.write_statics(&mut target)?,
            }
            if plan.condition.is_some() {
                let row = if plan.condition_is_static() {
                    &[][..]
                } else {
                    ranges.first().map_or(&[][..], |range| &range.start)
                };
                self.condition(part, &target, row, begins_at)?;
            }
        }
        Ok(())
    }

    /// Adds the condition of a statement whose operations begin there.
    fn condition(
        &mut self,
        part: TablePart,
        target: &Target<'_>,
        row: &[u8],
        begins_at: usize,
    ) -> Result<(), CqlError> {
        self.is_conditional = true;
        let is_block = self.is_block;
        if !is_block {
            let known = self.conditional_partition.get_or_insert_with(|| target.partition.to_vec());
            if known.as_slice() != target.partition {
                return Err(invalid("Batch with conditions cannot span multiple partitions"));
            }
        }
        let Some(condition) = &target.plan.condition else { return Ok(()) };
        // In the program, in its encoded form, and among the rows that are tested.
        let key_bytes = target.partition.len() + row.len();
        target.bound.environment.budget.take(3 * key_bytes + size_of::<RowCondition>())?;
        let test = row_test(target.plan, condition, target.bound)?;
        let Pending { program, tested, order, .. } = self.pending(part, &target.plan.table);
        match is_block {
            // Later conditions see what earlier statements did.
            true => tested.count(&[target.partition, row].concat())?,
            false => tested.add(row, &test)?,
        }
        // The conditions of a batch are about what was there before it.
        let before = if is_block { begins_at } else { 0 };
        order.condition(before, target.plan.answer.error);
        if program.conditions.is_empty() {
            program.dropped_columns = target.plan.table.dropped_columns();
            steps::count(program.dropped_columns.len());
        }
        program.conditions.push(RowCondition { partition: target.partition.to_vec(), row: row.to_vec(), test });
        Ok(())
    }

    /// The tablets that are written or tested.
    pub fn tablets(&self) -> Vec<TabletId> {
        self.pending.iter().map(|pending| pending.part.tablet).collect()
    }

    /// Whether any statement has a condition.
    pub fn is_conditional(&self) -> bool {
        self.is_conditional
    }

    /// Whether some write is to another partition than the conditions.
    pub fn strays_from_condition(&self) -> bool {
        let Some(partition) = &self.conditional_partition else { return false };
        self.pending.iter().flat_map(|pending| &pending.program.operations).any(|operation| match operation {
            ProgramOperation::Row { key, .. }
            | ProgramOperation::List { key, .. }
            | ProgramOperation::Sum { key, .. }
            | ProgramOperation::Document { key, .. } => !key.starts_with(partition),
            ProgramOperation::Delete { partition: other, .. } => other != partition,
        })
    }

    /// The writes, one for each tablet.
    pub fn finish(self) -> Result<Vec<Write>, CqlError> {
        let is_block = self.is_block;
        let mut writes = Vec::with_capacity(self.pending.len());
        for mut pending in self.pending {
            if pending.is_empty() {
                continue;
            }
            pending.program.turns = pending.order.turns(&pending.program, is_block);
            write_together(&mut pending.program);
            let (part, table) = (pending.part.clone(), Arc::clone(&pending.table));
            let (mutation, is_evaluated) = pending.mutation()?;
            if mutation.size_bytes() > MAX_MUTATION_BYTES {
                return Err(invalid(format!(
                    "Mutation of {} bytes is too large for the maximum size of {MAX_MUTATION_BYTES} (table {})",
                    mutation.size_bytes(),
                    table.full_name()
                )));
            }
            writes.push(Write { part, mutation, is_evaluated });
        }
        Ok(writes)
    }
}

/// The timestamp that a statement, or what it is part of, gives to what is written.
pub(super) fn given_timestamp(
    plan: &ModifyPlan,
    bound: &Bound<'_>,
    defaults: Defaults,
) -> Result<Option<i64>, CqlError> {
    let given = plan.timestamp.as_ref().map(|term| explicit_timestamp(term, bound)).transpose()?.flatten();
    let is_free = plan.condition.is_none()
        && !plan.table.table().is_counter()
        && !plan.has_sums()
        // What a driver attaches is left out; what the batch says is refused.
        && (defaults.is_explicit || !plan.concerns_unique() && !plan.table.has_views());
    let explicit_us = given.or(defaults.timestamp_us.filter(|_| is_free));
    if explicit_us.is_some() && plan.table.has_views() {
        let is_named = plan.table.table().named_views().next().is_some();
        let of = if is_named { "materialized views" } else { "covering indexes" };
        let name = plan.table.full_name();
        return Err(invalid(format!("USING TIMESTAMP is not supported for tables with {of} (table {name})")));
    }
    Ok(explicit_us)
}

/// When a statement writes, and how long that lasts.
fn timing(plan: &ModifyPlan, bound: &Bound<'_>, defaults: Defaults) -> Result<Timing, CqlError> {
    let now_s = bound.environment.now_s;
    Ok(Timing {
        explicit_us: given_timestamp(plan, bound, defaults)?,
        now_s,
        expiry: match plan.kind {
            ModifyKind::Delete => None,
            _ if plan.table.table().is_counter() => None,
            _ => expiry(plan.ttl.as_ref(), plan.table.table(), now_s, bound)?,
        },
    })
}

/// One statement on one partition.
struct Target<'a> {
    plan: &'a ModifyPlan,
    bound: &'a Bound<'a>,
    timing: Timing,
    partition: &'a [u8],
}

impl Target<'_> {
    /// Charges an operation of this size, and its copy in the mutation.
    fn take(&self, bytes: usize) -> Result<(), CqlError> {
        self.bound.environment.budget.take(2 * (bytes + size_of::<ProgramOperation>()))
    }
}

impl Pending {
    fn note(&mut self, explicit_us: Option<i64>) {
        self.explicit_us = self.explicit_us.max(explicit_us);
    }

    fn delete(&mut self, target: &Target<'_>, range: Option<(Vec<u8>, Vec<u8>)>) -> Result<(), CqlError> {
        let range_bytes = range.as_ref().map_or(0, |(start, end)| start.len() + end.len());
        target.take(target.partition.len() + range_bytes)?;
        self.note(target.timing.explicit_us);
        self.program.operations.push(ProgramOperation::Delete {
            partition: target.partition.to_vec(),
            range,
            explicit_us: target.timing.explicit_us,
        });
        Ok(())
    }

    fn write_statics(&mut self, target: &mut Target<'_>) -> Result<(), CqlError> {
        let plan = target.plan;
        if !plan.operations.iter().any(|operation| plan.table.is_static(operation.column)) {
            return Ok(());
        }
        let mut row = Vec::new();
        key::push_static(&mut row);
        self.write(target, &row, true)
    }

    fn write(&mut self, target: &mut Target<'_>, row: &[u8], is_static: bool) -> Result<(), CqlError> {
        let plan = target.plan;
        let mut value = Vec::with_capacity(128);
        let packed = pack_row(plan, is_static, target.bound, &target.timing, &mut value)?;
        if value.capacity() - value.len() > MAX_SLACK_BYTES {
            value.shrink_to_fit();
        }
        target.take(target.partition.len() + row.len() + value.len())?;
        self.note(target.timing.explicit_us);
        let key = [target.partition, row].concat();
        for (column, edit) in packed.list_edits {
            target.take(key.len() + edit.size_bytes())?;
            self.program.operations.push(ProgramOperation::List {
                key: key.clone(),
                partition_len: target.partition.len(),
                column,
                edit,
                explicit_us: target.timing.explicit_us,
                expiry: target.timing.expiry,
            });
        }
        for (column, path, text) in packed.document_edits {
            target.take(key.len() + text.len())?;
            // The edits of one document by one statement are one operation.
            let last = self.program.operations.last_mut();
            if let Some(ProgramOperation::Document { key: known, column: of, edits, .. }) = last
                && *known == key
                && *of == column
            {
                edits.push((path, text));
                continue;
            }
            self.program.operations.push(ProgramOperation::Document {
                key: key.clone(),
                partition_len: target.partition.len(),
                column,
                edits: vec![(path, text)],
                explicit_us: target.timing.explicit_us,
                expiry: target.timing.expiry,
            });
        }
        for (column, data_type, subtracts, number) in packed.sums {
            target.take(key.len() + number.len())?;
            self.program.operations.push(ProgramOperation::Sum {
                key: key.clone(),
                partition_len: target.partition.len(),
                column,
                data_type,
                subtracts,
                number,
                expiry: target.timing.expiry,
            });
        }
        if packed.is_empty {
            return Ok(());
        }
        let deletes_row = plan.kind == ModifyKind::Delete && plan.operations.is_empty();
        let is_whole = !is_static && !packed.has_unset && (plan.names_every_column || deletes_row);
        self.program.operations.push(ProgramOperation::Row {
            is_overwrite: is_whole && target.timing.explicit_us.is_none(),
            is_stamped: target.timing.explicit_us.is_none(),
            is_unplaced: packed.is_unplaced,
            key,
            value,
        });
        Ok(())
    }

    fn mutation(&self) -> Result<(Mutation, bool), CqlError> {
        let is_blind = self.program.turns.is_none()
            && self.program.conditions.is_empty()
            && self.program.maintained.is_none()
            && self.program.operations.iter().all(|operation| matches!(operation, ProgramOperation::Row { .. }));
        let mut mutation = match is_blind {
            true => self.blind(),
            false => Mutation::evaluated(self.explicit_us, &ProvenProgram::new(&self.program).map_err(unprovable)?),
        };
        if self.deletes_only {
            mutation.mark_deletion();
        }
        Ok((mutation, !is_blind))
    }

    fn blind(&self) -> Mutation {
        let mut mutation = Mutation::blind(self.explicit_us);
        let bytes = self.program.operations.iter().map(|operation| match operation {
            ProgramOperation::Row { key, value, .. } => key.len() + value.len(),
            _ => 0,
        });
        mutation.reserve(self.program.operations.len(), bytes.sum());
        for operation in &self.program.operations {
            if let ProgramOperation::Row { is_overwrite, is_stamped, is_unplaced, key, value } = operation {
                let kind = if *is_overwrite { OperationKind::Overwrite } else { OperationKind::Merge };
                mutation.push_row(kind, *is_stamped, *is_unplaced, key, value);
            }
        }
        mutation
    }
}

fn row_test(plan: &ModifyPlan, condition: &Condition, bound: &Bound<'_>) -> Result<RowTest, CqlError> {
    let columns = match condition {
        Condition::Exists => return Ok(RowTest::Exists),
        Condition::NotExists => return Ok(RowTest::NotExists),
        Condition::Columns(columns) => columns,
        Condition::Tree(tree) => return test_tree(plan, tree, bound).map(RowTest::Tree),
    };
    let tests = columns.iter().map(|condition| column_test(plan, condition, bound)).collect::<Result<_, _>>()?;
    Ok(RowTest::Columns(tests))
}

fn test_tree(plan: &ModifyPlan, tree: &ConditionTree, bound: &Bound<'_>) -> Result<TestTree, CqlError> {
    let all =
        |parts: &[ConditionTree]| parts.iter().map(|part| test_tree(plan, part, bound)).collect::<Result<Vec<_>, _>>();
    Ok(match tree {
        ConditionTree::Column(condition) => TestTree::Column(Box::new(column_test(plan, condition, bound)?)),
        ConditionTree::All(parts) => TestTree::All(all(parts)?),
        ConditionTree::Any(parts) => TestTree::Any(all(parts)?),
        ConditionTree::Not(inner) => TestTree::Not(Box::new(test_tree(plan, inner, bound)?)),
        ConditionTree::Exists => TestTree::Exists,
    })
}

fn column_test(plan: &ModifyPlan, condition: &ColumnCondition, bound: &Bound<'_>) -> Result<ColumnTest, CqlError> {
    {
        bound.environment.budget.take(size_of::<ColumnTest>())?;
        let column = plan.table.column(condition.column);
        let part = match &condition.part {
            Part::Whole => TestedPart::Whole,
            Part::Field(index) => TestedPart::Field(*index),
            Part::Path(steps, terms, as_text) => TestedPart::Path(path_steps(steps, terms, bound)?, *as_text),
            Part::Element(key) => match key.evaluate(bound)? {
                Evaluated::Set(key) => TestedPart::Element(key.into_owned()),
                Evaluated::Null => {
                    return Err(invalid(format!("Invalid null value for the element of {}", column.name)));
                }
                Evaluated::Unset => return Err(invalid("Invalid unset value for an element of a collection")),
            },
        };
        let test = match &condition.test {
            Test::Compare(operator, term) => {
                let value = condition_value(term, bound, &column.name)?;
                let is_equality = matches!(operator, ComparisonOperator::Equal | ComparisonOperator::NotEqual);
                if value.is_none() && !is_equality {
                    let symbol = crate::plan::condition::symbol(*operator);
                    return Err(invalid(format!("Invalid comparison with null for operator \"{symbol}\"")));
                }
                ValueTest::Compare(*operator, value)
            }
            Test::In(values) => ValueTest::In(condition_values(values, bound, &column.name)?),
            Test::Contains(term) => ValueTest::Contains(term.require(bound, &column.name)?.into_owned()),
            Test::ContainsKey(term) => ValueTest::ContainsKey(term.require(bound, &column.name)?.into_owned()),
        };
        Ok(ColumnTest {
            column: column.id,
            is_static: plan.table.is_static(condition.column),
            data_type: column.data_type.clone(),
            part,
            test,
        })
    }
}

fn condition_value(term: &Term, bound: &Bound<'_>, name: &str) -> Result<Option<Vec<u8>>, CqlError> {
    match term.evaluate(bound)? {
        Evaluated::Set(bytes) => {
            bound.environment.budget.take(2 * (bytes.len() + size_of::<Vec<u8>>()))?;
            Ok(Some(bytes.into_owned()))
        }
        Evaluated::Null => Ok(None),
        Evaluated::Unset => Err(invalid(format!("Invalid unset value for column {name}"))),
    }
}

fn condition_values(values: &Values, bound: &Bound<'_>, name: &str) -> Result<Vec<Option<Vec<u8>>>, CqlError> {
    match values {
        Values::One(term) => Ok(vec![condition_value(term, bound, name)?]),
        Values::Many(terms) => terms.iter().map(|term| condition_value(term, bound, name)).collect(),
        Values::List(term) => {
            let list = term.require(bound, name)?;
            bound.environment.budget.take(list.len() + list.len() / 4 * size_of::<Option<Vec<u8>>>())?;
            let elements = collection::elements(&list).map_err(crate::error::value_error)?;
            elements
                .map(|element| element.map(|bytes| Some(bytes.to_vec())).map_err(crate::error::value_error))
                .collect()
        }
    }
}
