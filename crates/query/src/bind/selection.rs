//! From the selection of a `SELECT` to its plan.
//!
//! Always true: the result's columns are named and typed as Cassandra names and types them. Left out: one expression
//! ([`super::selector`]).

use super::binder::Binder;
use super::selector::{Named, SelectorBinder};
use crate::error::exceeded;
use crate::plan::selection::{SelectionPlan, Selector, mark_reads};
use crate::types::type_option;
use diorite_base::limits;
use diorite_cql::language::ast;
use diorite_cql::protocol::{ColumnSpec, CqlError, NativeType, ResultMetadata};
use std::sync::Arc;

/// Plans the selection of a `SELECT`.
pub(super) fn bind_selection(
    binder: &mut Binder<'_>,
    selection: &ast::Selection,
    is_json: bool,
) -> Result<SelectionPlan, CqlError> {
    let context = binder.shared_context();
    let mut aggregates = Vec::new();
    let mut named = Vec::new();
    match selection {
        ast::Selection::All => {
            for (at, column) in context.table().columns.iter().enumerate() {
                let (data_type, name) = (column.data_type.clone(), column.name.clone());
                named.push(Named { selector: Selector::Column(at), data_type, name });
            }
        }
        ast::Selection::Selectors(selectors) => {
            limits::check(&limits::SELECTORS, selectors.len(), || "a selection".to_owned()).map_err(exceeded)?;
            let mut expressions = SelectorBinder::new(binder);
            for selector in selectors {
                let mut planned = expressions.selector(&selector.expression, None)?;
                if let Some(alias) = &selector.alias {
                    planned.name.clone_from(alias);
                }
                named.push(planned);
            }
            aggregates = expressions.aggregates;
        }
    }
    for named in &named {
        named.data_type.check_limits().map_err(exceeded)?;
        binder.budget.step()?;
        let of_table = context.table().keyspace.len() + context.table().name.len();
        binder.budget.charge(size_of::<Named>() + size_of::<ColumnSpec>() + 2 * named.name.len() + of_table)?;
        if !is_json {
            binder.charge_told(&named.data_type)?;
        }
    }
    let mut reads = vec![false; context.table().columns.len()];
    named.iter().for_each(|named| mark_reads(&named.selector, &mut reads));
    let shows = reads.clone();
    aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref()).for_each(|argument| {
        mark_reads(argument, &mut reads);
    });
    let spec = |name: &str, type_option| ColumnSpec {
        keyspace: context.table().keyspace.clone(),
        table: context.table().name.clone(),
        name: name.to_owned(),
        type_option,
    };
    let columns: Vec<ColumnSpec> = match is_json {
        true => vec![spec("[json]", NativeType::Varchar.into())],
        false => named.iter().map(|named| spec(&named.name, type_option(&named.data_type))).collect(),
    };
    let metadata = Arc::new(ResultMetadata::new(columns));
    let plain = |named: &Named| if let Selector::Column(at) = named.selector { Some(at) } else { None };
    let plain_columns = if is_json { None } else { named.iter().map(plain).collect() };
    let json = is_json.then(|| named.iter().map(|named| (named.name.clone(), named.data_type.clone())).collect());
    let selectors = named.into_iter().map(|named| named.selector).collect();
    Ok(SelectionPlan { selectors, aggregates, metadata, json, reads, shows, plain_columns })
}
