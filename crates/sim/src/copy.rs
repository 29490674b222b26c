//! A node's copy of the catalog: the real evaluator, on the data of the catalog's replica.

use diorite_base::Levels;
use diorite_cluster::catalog::{Catalog, CatalogEvaluator};
use diorite_storage::{MemoryTablet, ScanRange, TabletData};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is a new snapshot.
#[derive(Clone, Debug, Default)]
pub struct Changed(Arc<AtomicBool>);

impl Changed {
    /// Returns whether there is a new snapshot, and resets it.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// See the top of this module.
#[derive(Clone, Debug)]
pub struct CatalogCopy(Arc<CatalogEvaluator>);

impl CatalogCopy {
    /// An empty one, of a program that knows these levels.
    pub fn new(changed: &Changed, known: Levels) -> Self {
        let flag = changed.clone();
        let listener = move |_: &Arc<Catalog>| flag.0.store(true, Ordering::Relaxed);
        Self(Arc::new(CatalogEvaluator::new(Catalog::default(), listener).knowing(known)))
    }

    /// The state recorded in this data.
    pub fn load(data: &Arc<MemoryTablet>, changed: &Changed, known: Levels) -> Self {
        let copy = Self::new(changed, known);
        let mut entries = Vec::new();
        let range = ScanRange { start: &[1], end: &[0xFF], reverse: false, expected_entries: 0 };
        let scanned = data.scan(&range, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            true
        });
        assert!(scanned.is_ok(), "memory can be read");
        if !entries.is_empty() {
            let loaded = copy.0.reload(entries);
            assert!(loaded.is_ok(), "what was stored can be loaded: {loaded:?}");
        }
        copy
    }

    /// What evaluates commands.
    pub fn evaluator(&self) -> Arc<CatalogEvaluator> {
        Arc::clone(&self.0)
    }

    /// The newest snapshot.
    pub fn current(&self) -> Arc<Catalog> {
        self.0.current()
    }
}
