//! Reads of covering indexes; and what becomes of indexes once the rows that were there before are in them.
//!
//! Always true: a read of the hidden view gives what the read of the table gives; the latter takes its place where the view
//! cannot have the rows, or is not there any more. A page goes on where the one before was read: a paging state names the
//! table or the view. Left out: plans ([`crate::bind`]), and when it is looked how far an index is (the node).

use super::compared::RowComparer;
use crate::ddl::covering::{Known, Looked, finish};
use crate::error::invalid;
use crate::exec::keys::{clustering_ranges, key_count, partition_keys};
use crate::exec::paging::PagingState;
use crate::kv::Kv;
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use crate::table::Source;
use diorite_base::TableId;
use diorite_cluster::catalog::{Catalog, CoveringOutcome};
use diorite_cql::protocol::CqlError;
use diorite_cql::protocol::error::ErrorCode;

/// Of a read with more keys it is not looked beforehand whether the view can have them.
const MAX_KEYS: usize = 512;

/// The plan of a covering index that carries out a read with these values, from this paging state on; `None`: its own.
///
/// # Errors
/// If the state is none, or of an index that was dropped.
pub(super) fn covering_plan<'p>(
    plan: &'p SelectPlan,
    (catalog, bound): (&Catalog, &Bound<'_>),
    state: Option<&[u8]>,
) -> Result<Option<&'p SelectPlan>, CqlError> {
    let Some(state) = state.map(PagingState::decode).transpose()? else {
        let taken = plan.ready_covering().filter(|covering| can_have(&covering.plan, bound));
        return Ok(taken.map(|covering| &covering.plan));
    };
    let of_view = plan.covering.as_deref().filter(|covering| covering.plan.table.table().id.0 == state.table);
    let base = plan.table.table().id;
    let is_of_index = match catalog.table_by_id(TableId(state.table)) {
        Some(of) => of.table.index_of == Some(base),
        None => true,
    };
    if of_view.is_none() && plan.table.source() == Source::Tablets && is_of_index {
        return Err(lost_page());
    }
    Ok(of_view.map(|covering| &covering.plan))
}

/// A page that would go on in a view from which it cannot be read. Drivers close connections on which the server finds a
/// fault of the protocol, so it is none.
pub(super) fn lost_page() -> CqlError {
    invalid("the page before was read by an index that is not used now: read again from the first page")
}

/// Whether the view can have rows with the values that are asked for: a key can be too long, or empty, and a value can be
/// null. Such a read has the answer, or the error, that it has without the index.
fn can_have(plan: &SelectPlan, bound: &Bound<'_>) -> bool {
    let PartitionRestriction::Keys(keys) = &plan.restrictions.partition else { return false };
    key_count(&plan.restrictions, bound) <= MAX_KEYS
        && partition_keys(&plan.table, keys, bound).is_ok()
        && clustering_ranges(&plan.table, &plan.restrictions, bound).is_ok()
}

/// Whether a read of a view that has failed is to be made of the table: the view was removed, or is out of reach.
pub(super) fn is_lost(catalog: &Catalog, plan: &SelectPlan, error: &CqlError) -> bool {
    catalog.table_by_id(plan.table.table().id).is_none() || error.code() == ErrorCode::Unavailable
}

impl<K: Kv> RowComparer<K> {
    /// Proposes what becomes of the hidden view of a covering index, if that is known by now. `may_remove`: every node
    /// serves a definition of the table that is no older than the view's retirement.
    ///
    /// # Errors
    /// If it is not known whether that was carried out.
    pub async fn finish_covering(&self, table: TableId, view: u64, may_remove: bool) -> Result<(), CqlError> {
        let catalog = self.kv.catalog();
        let Some(entry) = catalog.table_by_id(table) else { return Ok(()) };
        let Some((_, index)) = entry.table.hidden_views().find(|(of, _)| of.id == view) else { return Ok(()) };
        let outcome = match index {
            Some((_, covering)) if covering.is_ready() => return Ok(()),
            Some(_) => match Known::default().look(&*self.kv, (table, view), None).await {
                Some(Looked::Whole) => CoveringOutcome::Ready,
                Some(Looked::Failed(why)) => {
                    tracing::warn!(table = %entry.table.name, view, why, "an index cannot cover its columns, and stays a local one");
                    CoveringOutcome::Failed(why)
                }
                Some(Looked::Going) | None => return Ok(()),
            },
            None if may_remove => CoveringOutcome::Removed,
            None => return Ok(()),
        };
        finish(&*self.kv, (table, view), outcome, None).await
    }
}
