//! What tests see of the tablets in memory, and what befalls these without a statement: changes of the catalog with what
//! splits and merges do to tablets, failures and damage.
//!
//! Always true: nothing here counts as an access; a tablet that takes over rows keeps the snapshots that it had before, and
//! they do not have these rows. Left out: what takes its time ([`super::slow`]), what happens to a tablet before a split or
//! merge is served.

use super::MemoryKv;
use super::tablet::Tablet;
use diorite_base::TabletId;
use diorite_base::row_index::is_of_rows;
use diorite_cluster::catalog::Command;
use diorite_model::key;
use std::sync::Arc;

impl MemoryKv {
    /// Lets all accesses to a tablet fail from now on; `None`: to none.
    pub fn fail_tablet(&self, tablet: Option<TabletId>) {
        *self.failing_tablet.lock() = tablet;
    }

    /// How many entries are stored, headers included.
    pub fn entry_count(&self) -> usize {
        self.tablets.lock().values().map(|tablet| tablet.entries.len()).sum()
    }

    /// Changes the keys and values that are stored, as damage does.
    pub fn damage(&self, damage: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) {
        for tablet in self.tablets.lock().values_mut() {
            let entries = std::mem::take(&mut tablet.entries).into_iter();
            let damaged = entries.map(|(mut key, mut value)| {
                damage(&mut key, &mut value);
                (key, value)
            });
            tablet.entries = damaged.collect();
        }
    }

    /// The tables and tablets of malformed rows that have ended statements since this was asked last.
    pub fn take_malformed(&self) -> Vec<(String, TabletId)> {
        std::mem::take(&mut self.malformed.lock())
    }

    /// Changes the catalog.
    pub fn command(&self, command: &Command) {
        self.catalog.store(Arc::new(self.catalog.load().apply(command).0));
        match command {
            Command::ServeMerge { tablet, into, .. } => self.take_over(*tablet, *into),
            Command::ServeSplit { tablet, .. } => self.divide(*tablet),
            _ => {}
        }
    }

    fn take_over(&self, tablet: TabletId, into: TabletId) {
        let mut tablets = self.tablets.lock();
        let Tablet { entries, flags, newest_explicit_us, newest_us, .. } = tablets.remove(&tablet).unwrap_or_default();
        let stays = tablets.entry(into).or_default();
        stays.entries.extend(entries);
        stays.flags |= flags;
        stays.newest_explicit_us = stays.newest_explicit_us.max(newest_explicit_us);
        stays.newest_us = stays.newest_us.max(newest_us);
    }

    fn divide(&self, tablet: TabletId) {
        let catalog = self.catalog.load();
        let Some(split) = catalog.placement(tablet).and_then(|placement| placement.split) else { return };
        let mut boundary = Vec::new();
        key::push_token_start(split.at, &mut boundary);
        let mut tablets = self.tablets.lock();
        let Some(mut first) = tablets.remove(&tablet) else { return };
        let mut second = first.copy();
        first.entries.retain(|key, _| *key < boundary);
        // What a tablet keeps of itself, and index entries, are in both.
        second.entries.retain(|key, _| *key >= boundary || !is_of_rows(key));
        tablets.extend(split.children.into_iter().zip([first.copy(), second]));
    }
}
