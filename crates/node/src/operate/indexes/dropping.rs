//! Indexes that a table does not have any more are dropped in the tablets that are led here, beside all other work: until
//! then a leader refuses writes that do not maintain a unique index.
//!
//! Always true: what [`due`] says is done, and nothing else. Left out: what a node has not led when the table changed,
//! which the next sweep finds.

use super::{AT_A_TIME, INTERVAL, Indexing, Interrupted};
use crate::pause::pause;
use ahash::AHashMap;
use diorite_base::TableId;
use diorite_model::schema::Table;
use diorite_query::index::{Due, IndexStep, due, specifications};
use diorite_replica::TabletHandle;
use diorite_storage::DataView;
use futures::StreamExt;
use std::sync::Arc;

/// The drops of one index after the other; no tablet has more indexes.
const MOST_DROPS: usize = 64;

impl Indexing<'_> {
    /// Runs as long as the node.
    pub(super) async fn keep_dropping(&self) {
        let (mut version, mut known) = (None, AHashMap::<TableId, u64>::new());
        loop {
            pause(INTERVAL).await;
            let catalog = self.catalog.served();
            if version == Some(catalog.version()) {
                continue;
            }
            version = Some(catalog.version());
            let changed = |(_, table): &(Arc<TabletHandle>, Arc<Table>)| known.get(&table.id) != Some(&table.version);
            let tablets: Vec<_> = self.indexed_tablets(&catalog).into_iter().filter(changed).collect();
            known = catalog.tables().map(|entry| (entry.table.id, entry.table.version)).collect();
            let work = tablets.into_iter().map(|(handle, table)| self.drop_in(handle, table));
            let mut working = futures::stream::iter(work).buffer_unordered(AT_A_TIME);
            while let Some(dropped) = working.next().await {
                if let Err(error) = dropped {
                    tracing::debug!(%error, "an index is dropped in a tablet later");
                }
            }
        }
    }

    async fn drop_in(&self, handle: Arc<TabletHandle>, table: Arc<Table>) -> Result<(), Interrupted> {
        for _ in 0..MOST_DROPS {
            let (reader, of) = (Arc::clone(&handle), Arc::clone(&table));
            let looking = self.runtime.spawn_blocking(move || {
                let stored = specifications(&DataView(reader.data()))?;
                Ok::<_, Interrupted>(due(&of, &stored))
            });
            match looking.await.map_err(|_| Interrupted::Ending)?? {
                Some(Due::Step(step @ IndexStep::Drop { .. })) => {
                    self.router.write(handle.id(), step.mutation()?).await?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}
