//! The replicas that are led here, as inputs of [`diorite_control::growth`].

use diorite_base::TabletId;
use diorite_cluster::catalog::{Catalog, Settings};
use diorite_control::growth::{FilesUnreadable, Grown, LedReplica, Noticed, next_split};
use diorite_control::load::Loads;
use diorite_control::tokens::Tokens;
use diorite_model::key::token_of;
use diorite_replica::{Leadership, Store, TabletHandle};
use std::sync::Arc;

struct Led(Arc<TabletHandle>);

impl LedReplica for Led {
    fn operations(&self) -> u64 {
        let (reads, writes) = self.0.operations();
        reads.saturating_add(writes)
    }

    fn take_tokens(&self) -> Vec<i64> {
        // Keys of a tablet's own records and index entries have the smallest token, which is no row's.
        let tokens = self.0.take_samples().into_iter().filter_map(|head| token_of(&head).ok());
        tokens.filter(|token| *token != i64::MIN).collect()
    }

    fn file_bytes(&self) -> u64 {
        self.0.data().statistics().sst_bytes
    }

    fn bytes_within(&self, tokens: Tokens) -> Result<u64, FilesUnreadable> {
        let (start, end) = tokens.keys();
        self.0.data().bytes_within(&start, &end).map_err(|error| FilesUnreadable(error.to_string()))
    }
}

/// Looks for a tablet to split, and logs what it finds. May read files.
pub(super) fn look(store: &Store, served: &Catalog, settings: &Settings, loads: &mut Loads, now_ns: u64) -> Grown {
    let led = |tablet: TabletId| store.handle(tablet).filter(|handle| handle.leadership() == Leadership::Here).map(Led);
    let found = next_split(served, led, settings, loads, now_ns);
    for noticed in &found.noticed {
        match noticed {
            Noticed::Unreadable { tablet, error } => {
                tracing::warn!(%tablet, error, "could not measure the size of a tablet");
            }
            Noticed::OnePartition { tablet, token, operations_per_second } => {
                tracing::info!(event = "split", %tablet, token, operations_per_second, "most of the load of a tablet is on one partition: it is not split");
            }
        }
    }
    found
}
