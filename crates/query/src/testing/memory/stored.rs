//! What tests see of the tablets in memory, and what befalls these without a statement.
//!
//! Always true: nothing here counts as an access. Left out: what takes its time ([`super::slow`]).

use super::MemoryKv;
use diorite_base::TabletId;

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
}
