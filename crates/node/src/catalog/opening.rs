//! Translates decisions about replicas for the node's store: how the catalog's replica and those of tables are opened.

use crate::table_options;
use arc_swap::ArcSwap;
use diorite_base::mutation::Evaluator;
use diorite_cluster::catalog::{CATALOG_INITIAL_VOTERS, Catalog, CatalogEvaluator, Split as CatalogSplit, is_too_deep};
use diorite_control::follower::Opening;
use diorite_control::replicas::{CATALOG_TABLET, Members as Wanted};
use diorite_model::key::push_token_start;
use diorite_query::program::TabletEvaluator;
use diorite_replica::{LogPosition, Members, Merging, OpenTablet, Split};
use diorite_storage::{ScanRange, TableOptions, UNKNOWN_GRACE_S, Values};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Converts members to the store's type.
pub(super) fn members(Wanted { voters, learners }: Wanted) -> Members {
    Members { voters, learners }
}

/// Converts a split to the store's type.
pub(super) fn split_at(split: &CatalogSplit) -> Split {
    let mut boundary = Vec::new();
    push_token_start(split.at, &mut boundary);
    Split { boundary, children: split.children }
}

/// The newest snapshot of the evaluator in use.
pub(super) type Current = Arc<ArcSwap<CatalogEvaluator>>;

/// How the catalog's replica is opened. Its evaluator wakes `wake` with every change. It becomes `current` only after
/// it has loaded the stored catalog, since the replica may fail to open.
pub(super) fn open_catalog(wake: SyncSender<()>, wanted: Wanted, current: Current) -> OpenTablet {
    let woken = wake.clone();
    let listener = move |_: &Arc<Catalog>| {
        // If the channel is full, the follower is woken already; it is closed only when the node shuts down.
        let _ = wake.try_send(());
    };
    let evaluator = Arc::new(CatalogEvaluator::new(Catalog::default(), listener));
    let loading = Arc::clone(&evaluator);
    let on_loaded = move |data: &diorite_storage::Tablet| {
        let mut entries = Vec::new();
        let range = ScanRange { start: &[1], end: &[0xFF], reverse: false, expected_entries: 0 };
        data.scan(&range, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            true
        })?;
        for (key, _) in entries.iter().filter(|(_, value)| is_too_deep(value)) {
            tracing::warn!(
                object = %String::from_utf8_lossy(key),
                "a definition of an earlier version nests types more deeply than is supported: the innermost types are read as blob"
            );
        }
        if !entries.is_empty() {
            loading.reload(entries).map_err(|error| diorite_storage::StorageError::Corrupt(error.to_string()))?;
        }
        current.store(Arc::clone(&loading));
        // The follower may have been woken before the reload was complete.
        let _ = woken.try_send(());
        Ok(())
    };
    OpenTablet {
        tablet: CATALOG_TABLET,
        evaluator: evaluator as Arc<dyn Evaluator>,
        // The catalog's objects are overwritten and need no tombstones.
        gc_grace_s: UNKNOWN_GRACE_S,
        initial_voters: CATALOG_INITIAL_VOTERS.to_vec(),
        members: members(wanted),
        floor: None,
        values: Values::Plain,
        options: TableOptions::default(),
        on_loaded: Some(Box::new(on_loaded)),
    }
}

/// How a replica of a table's tablet is opened.
pub(super) fn open_rows(Opening { tablet, placement, table }: &Opening) -> OpenTablet {
    OpenTablet {
        tablet: *tablet,
        evaluator: Arc::new(Merging(TabletEvaluator)),
        gc_grace_s: table.gc_grace_s,
        initial_voters: placement.initial_voters.clone(),
        members: members(Wanted::of(placement)),
        floor: placement.origin.map(|origin| LogPosition::new(origin.index, origin.term)),
        values: Values::Rows,
        options: table_options::of(table),
        on_loaded: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn whoever_asks_how_the_catalog_is_opened_changes_nothing_that_is_followed() {
        let (wake, _woken) = sync_channel(1);
        let followed = CatalogEvaluator::new(Catalog::default(), |_: &Arc<Catalog>| {});
        let current: Current = Arc::new(ArcSwap::from_pointee(followed));
        let before = current.load_full();
        drop(open_catalog(wake, Wanted::default(), Arc::clone(&current)));
        assert!(Arc::ptr_eq(&before, &current.load_full()));
    }
}
