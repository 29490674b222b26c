//! Reads by a secondary index: the values that are asked for, and the partitions in which they are looked for.
//!
//! Always true: rows come in the order of their keys, and all filters of the statement are applied to them, so an index
//! that names too many rows changes nothing. Left out: reading entries ([`crate::index`]).

use super::filter::BoundFilter;
use super::keys::PartitionKey;
use super::paging::PagingState;
use super::predicate::BoundPredicate;
use super::read::{Read, TabletScan, tablet_of};
use crate::error::value_error;
use crate::kv::several::{self, Span};
use crate::kv::{IndexScan, Kv};
use crate::plan::index::IndexPlan;
use diorite_base::row_index::AFTER_ALL_ROWS;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::index::{pair_form, value_form};
use diorite_model::key;
use diorite_model::schema::IndexTarget;
use diorite_model::types::CqlType;
use std::sync::Arc;

/// The forms of the values that the filters name; `None` if the read uses no index.
pub(super) fn index_scan<K: Kv>(
    read: &Read<'_, K>,
    filters: &[BoundFilter<'_>],
) -> Result<Option<Arc<IndexScan>>, CqlError> {
    let Some(plan) = read.index else { return Ok(None) };
    let named = plan.filters.iter().filter_map(|at| filters.get(*at));
    let spans = spans_of(plan, &read.plan.table.column(plan.column).data_type, named)?;
    read.budget().take(spans.iter().map(|span| 2 * (span.size_bytes() + size_of::<Span>())).sum())?;
    Ok(Some(Arc::new(IndexScan {
        index: plan.id,
        spans: several::encode(&spans),
        start: Vec::new(),
        end: Vec::new(),
        partition_len: 0,
        max_entries: 0,
        max_bytes: 0,
        with_statics: read.plan.reads_statics,
        whole_partitions: plan.whole_partitions,
        may_scan: plan.may_scan,
    })))
}

/// The type of the values that an index holds.
fn indexed_type(data_type: &CqlType, target: IndexTarget) -> &CqlType {
    match (data_type, target) {
        (CqlType::List(of, _) | CqlType::Set(of, _) | CqlType::Map(_, of, _), IndexTarget::Values) => of,
        (CqlType::Map(key, ..), IndexTarget::Keys) => key,
        _ => data_type,
    }
}

fn form_of(data_type: &CqlType, wire: &[u8]) -> Result<Vec<u8>, CqlError> {
    value_form(data_type, wire).map_err(value_error)
}

/// The entries of several values, in order.
fn spans_in(forms: impl Iterator<Item = Result<Vec<u8>, CqlError>>) -> Result<Vec<Span>, CqlError> {
    let mut spans = forms.map(|form| form.map(Span::key)).collect::<Result<Vec<_>, _>>()?;
    spans.sort_by(|a, b| a.start.cmp(&b.start));
    spans.dedup();
    Ok(spans)
}

fn spans_of<'f>(
    plan: &IndexPlan,
    data_type: &CqlType,
    filters: impl Iterator<Item = &'f BoundFilter<'f>>,
) -> Result<Vec<Span>, CqlError> {
    let of = indexed_type(data_type, plan.target);
    let form = |wire: &[u8]| form_of(of, wire);
    // Presence bytes are less than FF. After a form come the keys of rows, and so tokens that may begin with FF.
    let (mut lower, mut upper) = (Vec::new(), vec![0xFF]);
    for filter in filters {
        match filter {
            BoundFilter::Compare(_, ComparisonOperator::Equal, values) => {
                return values.iter().map(|value| form(value).map(Span::key)).collect();
            }
            BoundFilter::In(_, values) => {
                return spans_in(values.iter().map(|value| form(value)));
            }
            BoundFilter::Contains(_, wanted, _) => return Ok(vec![Span::key(form(wanted)?)]),
            BoundFilter::Entry(_, key, wanted) => {
                let CqlType::Map(key_type, value_type, _) = data_type else { continue };
                let form = pair_form((key_type, value_type), key, wanted).map_err(value_error)?;
                return Ok(vec![Span::key(form)]);
            }
            BoundFilter::Compare(_, operator, values) => {
                use ComparisonOperator::{Greater, GreaterOrEqual, Less, LessOrEqual};
                let Some(value) = values.first() else { continue };
                match operator {
                    Greater | GreaterOrEqual => lower = form(value)?,
                    Less | LessOrEqual => upper = [&form(value)?[..], &AFTER_ALL_ROWS].concat(),
                    _ => {}
                }
            }
            // A place in a document; null fulfils no filter.
            BoundFilter::Predicate(BoundPredicate::Compare(_, of, ComparisonOperator::Equal, wanted)) => {
                return wanted.iter().map(|wanted| form_of(of, wanted).map(Span::key)).collect();
            }
            BoundFilter::Predicate(BoundPredicate::In(_, of, values, false)) => {
                return spans_in(values.iter().map(|value| form_of(of, value)));
            }
            BoundFilter::InTuples(..) | BoundFilter::Predicate(_) => {}
        }
    }
    Ok(vec![Span::range(lower, upper)])
}

/// The scans of named partitions, from where the former page ended, in the order of their keys.
pub(super) fn partition_scans<K: Kv>(
    read: &Read<'_, K>,
    partitions: &[PartitionKey],
    by: &Arc<IndexScan>,
    state: Option<&PagingState>,
) -> Vec<TabletScan> {
    let mut scans: Vec<TabletScan> = partitions
        .iter()
        .map(|partition| {
            let mut end = partition.prefix.clone();
            key::push_partition_end(&mut end);
            let tablet = tablet_of(read.tablets, partition.token);
            TabletScan { tablet, start: partition.prefix.clone(), end, by: Some(Arc::clone(by)) }
        })
        .collect();
    scans.sort_by(|a, b| a.start.cmp(&b.start));
    if let Some(state) = state {
        scans.retain(|scan| state.key < scan.end);
        if let Some(scan) = scans.first_mut().filter(|scan| state.key >= scan.start) {
            scan.start.clone_from(&state.key);
            scan.start.push(0);
        }
    }
    scans
}
