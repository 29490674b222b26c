//! Which covering index a read uses, and its plan for the hidden view.
//!
//! The statement is bound a second time, for the view: its columns have the names, ids and types of the table's. So all
//! that statements can say about rows has one implementation.
//!
//! Always true: the view has a row for each row of the table that fulfils the conditions, and all columns that the
//! statement uses; the result columns are those of the table. The plan for the table stays: it serves what the view
//! cannot have, such as empty keys. Left out: `ORDER BY`, which names partitions of the table; groups, and limits of
//! partitions, which are those of the table.

use super::binder::Binder;
use super::select::bind_select;
use crate::functions::Function;
use crate::plan::predicate::RowPredicate;
use crate::plan::restrictions::{Filter, PartitionRestriction, Restrictions, mark_filter_reads};
use crate::plan::select::{CoveringPlan, SelectPlan};
use crate::plan::selection::{SelectionPlan, Selector, uses_metadata};
use crate::plan::term::Term;
use crate::plan::values::{TupleTerm, Values};
use crate::table::{Source, TableContext};
use diorite_base::limits::MAX_KEY_BYTES;
use diorite_cql::language::ast::{self, ComparisonOperator, Expression, Selection};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Column, ColumnId, ColumnKind, Covering, Index, Table, ViewOf};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a column of a partition key takes beside its value.
const PART_BYTES: usize = 3;

/// Columns that are compared with values, so that rows without a value are left out.
#[derive(Default)]
struct Compared {
    /// With one value, or some.
    equal: BTreeSet<ColumnId>,
    /// With values in any way.
    any: BTreeSet<ColumnId>,
}

impl Compared {
    fn of(table: &TableContext, restrictions: &Restrictions) -> Self {
        use ComparisonOperator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        let mut compared = Self::default();
        for filter in &restrictions.filters {
            let (at, is_equal) = match filter {
                Filter::Compare(at, Equal, _) | Filter::In(at, _) => (*at, true),
                Filter::CompareTuple(at, Less | LessOrEqual | Greater | GreaterOrEqual, TupleTerm::Terms(terms))
                    if terms.len() == 1 =>
                {
                    (*at, false)
                }
                _ => continue,
            };
            let id = table.column(at).id;
            compared.any.insert(id);
            if is_equal {
                compared.equal.insert(id);
            }
        }
        compared
    }
}

/// Plans a `SELECT`, with its read of a covering index if there is one.
///
/// # Errors
/// Those of the statement.
pub(super) fn bind_read(binder: &mut Binder<'_>, select: &ast::Select) -> Result<SelectPlan, CqlError> {
    binder.use_table(&select.from)?;
    let mut plan = bind_select(binder, select)?;
    plan.covering = covering_plan(binder, select, (&plan.selection, &plan.restrictions))?.map(Box::new);
    Ok(plan)
}

/// The read of a covering index that can take the place of a read of the table, if there is one.
///
/// # Errors
/// If the plan takes more than its budget.
fn covering_plan(
    binder: &mut Binder<'_>,
    select: &ast::Select,
    (selection, restrictions): (&SelectionPlan, &Restrictions),
) -> Result<Option<CoveringPlan>, CqlError> {
    let context = binder.shared_context();
    let table = context.table();
    if table.views.is_empty() || context.source() != Source::Tablets || !may_be_covered(select, selection, restrictions)
    {
        return Ok(None);
    }
    let mut reads = selection.reads.clone();
    restrictions.filters.iter().for_each(|filter| mark_filter_reads(filter, &mut reads));
    let used: Vec<ColumnId> =
        reads.iter().zip(&table.columns).filter(|(is_read, _)| **is_read).map(|(_, column)| column.id).collect();
    let compared = Compared::of(&context, restrictions);
    let chosen = restrictions.index.as_ref().map(|index| context.column(index.column).id);
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for (view, of) in table.hidden_views() {
        let Some((index, covering)) = of else { continue };
        let Some(entry) = binder.catalog.table_by_id(view.table) else { continue };
        let candidate = Candidate { view: &entry.table, of: view, index, covering };
        // Another local index may find fewer rows than all of a partition of the view.
        let narrows = |id: ColumnId| candidate.narrow(&compared).any(|column| column.id == id);
        if candidate.serves(table, &used, &compared) && chosen.is_none_or(narrows) {
            candidates.push(candidate);
        }
    }
    // The one that may be read, then the narrowest, then the first.
    candidates.sort_by_key(|candidate| {
        (!candidate.covering.is_ready(), std::cmp::Reverse(candidate.narrow(&compared).count()))
    });
    let Some(best) = candidates.first() else { return Ok(None) };
    let plan = best.plan(binder, select, selection);
    binder.budget.step()?;
    Ok(plan.map(|plan| {
        let (index, is_ready) = (best.index.name.clone(), best.covering.is_ready());
        CoveringPlan { index, is_ready, plan }
    }))
}

/// Whether a statement is about rows, each by itself, that are found without the table's key.
fn may_be_covered(select: &ast::Select, selection: &SelectionPlan, restrictions: &Restrictions) -> bool {
    let arguments = selection.aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
    let is_of_row = |selector: &Selector| !uses_metadata(selector) && !is_of_partition(selector);
    select.order_by.is_empty()
        && select.group_by.is_empty()
        && !select.distinct
        && select.limits.per_partition.is_none()
        && matches!(restrictions.partition, PartitionRestriction::All)
        && restrictions.clustering.is_empty()
        && selection.selectors.iter().chain(arguments).all(is_of_row)
        && restrictions.filters.iter().all(|filter| match filter {
            Filter::Predicate(predicate) => all_selectors(predicate, &is_of_row),
            _ => true,
        })
}

/// Whether a selector depends on the key of the partition as such.
fn is_of_partition(selector: &Selector) -> bool {
    match selector {
        Selector::Call(Function::Token | Function::PartitionHash, _) => true,
        Selector::Element(of, ..) | Selector::Slice(of, ..) | Selector::Field(of, _) => is_of_partition(of),
        Selector::Call(_, parts) | Selector::Build(_, parts) => parts.iter().any(is_of_partition),
        _ => false,
    }
}

fn all_selectors(predicate: &RowPredicate, is: &impl Fn(&Selector) -> bool) -> bool {
    match predicate {
        RowPredicate::Compare(of, ..) | RowPredicate::In(of, ..) | RowPredicate::Contains { of, .. } => is(of),
        RowPredicate::And(parts) | RowPredicate::Or(parts) => parts.iter().all(|part| all_selectors(part, is)),
        RowPredicate::Not(inner) => all_selectors(inner, is),
    }
}

/// A covering index with its view.
struct Candidate<'t> {
    view: &'t Arc<Table>,
    of: &'t ViewOf,
    index: &'t Index,
    covering: &'t Covering,
}

impl Candidate<'_> {
    /// The first columns of the view's key that are compared with values by `=` or `IN`.
    fn narrow(&self, compared: &Compared) -> impl Iterator<Item = &Column> {
        let key = self.view.partition_key().chain(self.view.clustering());
        key.take_while(|column| compared.equal.contains(&column.id))
    }

    /// Whether the view has all that a statement uses, and a row for each row that fulfils the conditions.
    fn serves(&self, table: &Table, used: &[ColumnId], compared: &Compared) -> bool {
        let is_regular = |id: ColumnId| table.column_by_id(id).is_some_and(|of| of.kind == ColumnKind::Regular);
        let mut key = self.view.partition_key().chain(self.view.clustering());
        self.view.partition_key().all(|column| compared.equal.contains(&column.id))
            && key.all(|column| !is_regular(column.id) || compared.any.contains(&column.id))
            && used.iter().all(|id| self.view.column_by_id(*id).is_some())
            // A partition that has only static columns is shown as a row, and is in no view.
            && (!self.of.follows_rows || table.statics().next().is_none())
    }

    /// The statement, bound for the view.
    fn plan(&self, binder: &mut Binder<'_>, select: &ast::Select, selection: &SelectionPlan) -> Option<SelectPlan> {
        let mut select = select.clone();
        // What would have to be filtered in the table is filtered in one partition.
        select.allow_filtering = true;
        if select.selection == Selection::All {
            let columns = binder.context().table().columns.iter();
            let named = columns
                .map(|column| ast::Selector { expression: Expression::Column(column.name.clone()), alias: None });
            select.selection = Selection::Selectors(named.collect());
        }
        let mut of_view = Binder::new(binder.catalog, binder.keyspace, binder.names, binder.budget);
        of_view.table = Some(Arc::new(TableContext::new(Arc::clone(self.view), Source::Tablets)));
        let mut plan = bind_select(&mut of_view, &select).ok()?;
        if !may_be_there(&plan.restrictions) || plan.selection.selectors.len() != selection.selectors.len() {
            return None;
        }
        binder.budget = of_view.budget;
        plan.selection.metadata = Arc::clone(&selection.metadata);
        // Leaders bind statements by the names of tables, and the view has none.
        plan.pushdown = None;
        Some(plan)
    }
}

/// Whether the partitions that constants name may be there: no key is null, empty or too long. Of values that are bound
/// that is not known yet.
fn may_be_there(restrictions: &Restrictions) -> bool {
    let PartitionRestriction::Keys(keys) = &restrictions.partition else { return false };
    let mut bytes = 0;
    for values in keys {
        let terms = match values {
            Values::One(term) => std::slice::from_ref(term),
            Values::Many(terms) => terms.as_slice(),
            Values::List(_) => &[],
        };
        let mut longest = 0;
        for term in terms {
            match term {
                Term::Constant(None) => return false,
                Term::Constant(Some(wire)) if wire.is_empty() && keys.len() == 1 => return false,
                Term::Constant(Some(wire)) => longest = longest.max(wire.len()),
                _ => {}
            }
        }
        bytes += longest + PART_BYTES;
    }
    bytes <= MAX_KEY_BYTES
}
