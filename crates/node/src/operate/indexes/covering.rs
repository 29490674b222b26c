//! Covering indexes are finished by the nodes: once all tablets of a table have compared their rows the hidden view becomes
//! ready, and once no node that is up serves a definition with a dropped index its view is removed. The statement waits
//! for that, and does not have to live that long.
//!
//! Always true: whatever is proposed here is decided again when it is applied; the node that leads the first tablet of
//! the table does it, or two for a moment. Left out: comparing rows (the parent module).

use super::Indexing;
use crate::pause::pause;
use diorite_base::{TableId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_model::schema::{CoveringState, TableEntry};
use diorite_replica::Leadership;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether something is to be done.
const INTERVAL: Duration = Duration::from_millis(100);
/// A view that is being built is looked at after so many of these.
const INTERVALS_PER_LOOK: u32 = 5;

/// So many views are looked at at a time.
const AT_A_TIME: usize = 16;

/// A hidden view: its table, and its number there.
type Hidden = (TableId, u64);

impl Indexing<'_> {
    /// Runs as long as the node.
    pub(super) async fn keep_finishing_covering(&self) {
        // The version of the catalog in which a view was first seen to be retired.
        let mut retired: BTreeMap<Hidden, u64> = BTreeMap::new();
        let (mut intervals, mut version) = (0, None);
        loop {
            pause(INTERVAL).await;
            intervals += 1;
            let catalog = self.catalog.served();
            let is_new = version != Some(catalog.version());
            if !is_new && retired.is_empty() && intervals < INTERVALS_PER_LOOK {
                continue;
            }
            (version, intervals) = (Some(catalog.version()), 0);
            self.finish(&catalog, &mut retired).await;
        }
    }

    async fn finish(&self, catalog: &Catalog, retired: &mut BTreeMap<Hidden, u64>) {
        // The node has only just been started.
        let Some(own) = self.own.get() else { return };
        let (mut seen, mut due) = (BTreeMap::new(), Vec::new());
        for entry in catalog.tables().filter(|entry| !entry.table.views.is_empty()) {
            let first = entry.tablets.first().map(|range| range.tablet);
            if !first.is_some_and(|tablet| self.leads(tablet)) {
                continue;
            }
            for (view, index) in entry.table.hidden_views() {
                let hidden = (entry.table.id, view.id);
                let may_remove = match index {
                    Some((_, covering)) if covering.state == CoveringState::Building => false,
                    Some(_) => continue,
                    None => {
                        let since = retired.get(&hidden).copied().unwrap_or(catalog.version());
                        seen.insert(hidden, since);
                        if !self.catalog.is_served_everywhere(since) {
                            continue;
                        }
                        true
                    }
                };
                due.push((hidden, may_remove, Arc::clone(entry)));
            }
        }
        *retired = seen;
        // A tablet that does not answer keeps no other table waiting.
        let finish = |((table, view), may_remove, entry): (Hidden, bool, Arc<TableEntry>)| async move {
            if let Err(error) = own.finish_covering(table, view, may_remove).await {
                tracing::debug!(table = %entry.table.name, error = %error.message, "a covering index is finished later");
            }
        };
        futures::stream::iter(due).for_each_concurrent(AT_A_TIME, finish).await;
    }

    fn leads(&self, tablet: TabletId) -> bool {
        self.store.tablets().get(&tablet).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }
}
