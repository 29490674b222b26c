//! Indexes that a table does not have any more are dropped in the tablets that are led here, and those that it has got, or
//! the columns that its views have got, are defined in them, beside all other work. Until then a leader refuses writes that
//! do not maintain what was dropped, and writes that maintain a view wait.
//!
//! Always true: what [`due`] says is done, and nothing else. Left out: what a node has not led when the table changed,
//! which the next sweep finds.

use super::record::Amount;
use super::{AT_A_TIME, INTERVAL, Indexing, Interrupted};
use crate::pause::pause;
use ahash::AHashMap;
use diorite_base::TableId;
use diorite_model::schema::Table;
use diorite_query::index::{Due, IndexReply, IndexStep, due, specifications};
use diorite_replica::TabletHandle;
use diorite_storage::DataView;
use futures::StreamExt;
use std::sync::Arc;

/// The steps of one index after the other; no tablet has more indexes to drop and to define.
const MOST_STEPS: usize = 128;

impl Indexing<'_> {
    /// Runs as long as the node.
    pub(super) async fn keep_defining(&self) {
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
            let work = tablets.into_iter().map(|(handle, table)| self.define_in(handle, table));
            let mut working = futures::stream::iter(work).buffer_unordered(AT_A_TIME);
            while let Some(defined) = working.next().await {
                if let Err(error) = defined {
                    tracing::debug!(%error, "an index is dropped or defined in a tablet later");
                }
            }
        }
    }

    async fn define_in(&self, handle: Arc<TabletHandle>, table: Arc<Table>) -> Result<(), Interrupted> {
        for _ in 0..MOST_STEPS {
            // An earlier definition would define again what was dropped meanwhile. A later one is looked at next.
            let version = self.catalog.served().table_by_id(table.id).map(|entry| entry.table.version);
            if version != Some(table.version) {
                return Ok(());
            }
            let (reader, of) = (Arc::clone(&handle), Arc::clone(&table));
            let looking = self.runtime.spawn_blocking(move || {
                let stored = specifications(&DataView(reader.data()))?;
                Ok::<_, Interrupted>(due(&of, &stored))
            });
            let step = match looking.await.map_err(|_| Interrupted::Ending)?? {
                Some(Due::Step(step @ (IndexStep::Drop { .. } | IndexStep::Define { .. }))) => step,
                _ => return Ok(()),
            };
            let reply = self.router.write(handle.id(), step.mutation()?).await?;
            self.record.done(table.id, &step, Amount::default(), self.clock.monotonic_ns());
            if IndexReply::decode(&reply) == Ok(IndexReply::Overtaken) {
                // It was done by another one, which this replica has yet to apply: the sweep does what is left.
                return Ok(());
            }
        }
        Ok(())
    }
}
