//! Indexes of tablets in memory: their entries are written with the rows, and they are built at once.

use super::{MemoryKv, Tablet};
use crate::index::{self, Compared, Due, IndexStep, Part};
use crate::kv::KvError;
use crate::program::TabletEvaluator;
use diorite_base::mutation::{Evaluator, Mutation};
use diorite_base::{TableId, TabletId};
use diorite_model::schema::Table;
use diorite_transact::maintained::is_unmaintained;
use std::sync::atomic::Ordering;

/// Rows that are to be compared, for a unique index.
pub(in crate::testing) struct Uncompared {
    pub(in crate::testing) table: TableId,
    pub(in crate::testing) index: u64,
    pub(in crate::testing) rows: Vec<Vec<u8>>,
    pub(in crate::testing) tablet: TabletId,
    /// The step that says that they were compared.
    pub(in crate::testing) step: IndexStep,
}

impl index::Moment for Tablet {
    type Error = std::convert::Infallible;
    type Value = Vec<u8>;

    fn flags(&self) -> u64 {
        self.flags
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(self.entries.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, Self::Error> {
        Ok(self.entries.range(start.to_vec()..end.to_vec()).all(|(key, value)| visit(key, value)))
    }

    fn hold(&self, _: usize) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl Tablet {
    /// Writes the index entries of a row, as a replica does.
    pub(super) fn index(&mut self, key: &[u8], value: &[u8]) {
        let Some(indexes) = TabletEvaluator.row_indexes(self.flags, self).unwrap() else { return };
        let mut entries = Vec::new();
        indexes
            .entries(key, value, &mut |key, value, is_merged| entries.push((key.to_vec(), value.to_vec(), is_merged)));
        for (key, value, is_merged) in entries {
            match is_merged {
                true => self.fold(&key, &value),
                false => drop(self.entries.insert(key, value)),
            }
        }
    }
}

impl MemoryKv {
    /// Lets time pass.
    pub(crate) fn pass(&self, seconds: u8) {
        self.now_us.fetch_add(i64::from(seconds) * 1_000_000, Ordering::Relaxed);
    }

    /// Whether indexes are not built from now on.
    pub(crate) fn leave_indexes(&self, are_left: bool) {
        self.leaves_indexes.store(are_left, Ordering::Relaxed);
        self.keep_indexes();
    }

    /// Removes rows and headers, as compactions do with what was deleted and with what has expired.
    pub(crate) fn purge(&self, is_purged: impl Fn(&[u8]) -> bool) {
        let mut tablets = self.tablets.lock();
        tablets.values_mut().for_each(|tablet| tablet.entries.retain(|key, _| !is_purged(key)));
    }

    /// Brings the indexes of all tablets up to date, row by row.
    pub(crate) fn keep_indexes(&self) {
        if self.leaves_indexes.load(Ordering::Relaxed) {
            return;
        }
        let catalog = self.catalog.load_full();
        for (table, tablet) in
            catalog.tables().flat_map(|entry| entry.tablets.iter().map(|range| (&entry.table, range.tablet)))
        {
            while let Some(step) = self.next_step(table, tablet) {
                self.apply(tablet, step.mutation().unwrap()).unwrap();
            }
        }
    }

    /// The keys of all that is stored of a table's rows.
    #[cfg(test)]
    pub(in crate::testing) fn keys_of(&self, entry: &diorite_model::schema::TableEntry) -> Vec<Vec<u8>> {
        let tablets = self.tablets.lock();
        let of_table = entry.tablets.iter().filter_map(|range| tablets.get(&range.tablet));
        let is_row = |key: &&Vec<u8>| !key.starts_with(&diorite_base::row_index::RECORD_PREFIX);
        of_table.flat_map(|tablet| tablet.entries.keys().filter(is_row).cloned()).collect()
    }

    /// Loses what is stored under a key, as no statement can.
    #[cfg(test)]
    pub(in crate::testing) fn lose(&self, key: &[u8]) {
        for tablet in self.tablets.lock().values_mut() {
            tablet.entries.remove(key);
        }
    }

    /// What is stored under a key, in whichever tablet.
    #[cfg(test)]
    pub(in crate::testing) fn stored_anywhere(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.tablets.lock().values().find_map(|tablet| tablet.entries.get(key).cloned())
    }

    /// Replaces what is stored under a key, as no statement can.
    #[cfg(test)]
    pub(in crate::testing) fn put_anywhere(&self, key: &[u8], value: Vec<u8>) {
        for tablet in self.tablets.lock().values_mut() {
            if let Some(stored) = tablet.entries.get_mut(key) {
                stored.clone_from(&value);
            }
        }
    }

    /// Why rows are not compared any more.
    #[cfg(test)]
    pub(in crate::testing) fn failed_comparisons(&self) -> Vec<String> {
        let tablets = self.tablets.lock();
        let specifications = tablets.values().flat_map(|tablet| index::specifications(tablet).unwrap());
        let compared = specifications.filter_map(|(_, of)| Some(of.dependent?.compared));
        compared.filter_map(|of| if let Compared::Failed(why) = of { Some(why) } else { None }).collect()
    }

    /// Refuses what was planned without a unique index, as leaders do.
    pub(in crate::testing) fn check_maintained(&self, tablet: TabletId, mutation: &Mutation) -> Result<(), KvError> {
        let mut tablets = self.tablets.lock();
        let tablet = tablets.entry(tablet).or_default();
        let indexes = TabletEvaluator.row_indexes(tablet.flags, tablet).unwrap();
        match indexes.is_some_and(|indexes| is_unmaintained(mutation, &*indexes, &TabletEvaluator)) {
            true => Err(KvError::Unmaintained),
            false => Ok(()),
        }
    }

    /// Carries out a step.
    pub(in crate::testing) fn take_step(&self, tablet: TabletId, step: &IndexStep) {
        self.apply(tablet, step.mutation().unwrap()).unwrap();
    }

    /// The rows that are to be compared next in some tablet, for a unique index, and the step that says so.
    pub(in crate::testing) fn next_comparison(&self) -> Option<Uncompared> {
        if self.leaves_indexes.load(Ordering::Relaxed) {
            return None;
        }
        let catalog = self.catalog.load_full();
        let mut tablets = self.tablets.lock();
        for (table, id) in
            catalog.tables().flat_map(|entry| entry.tablets.iter().map(|range| (&entry.table, range.tablet)))
        {
            let tablet = tablets.entry(id).or_default();
            if let Some(Due::Compare { index, round, from }) =
                index::due(table, &index::specifications(tablet).unwrap())
            {
                let rows = tablet.entries.range(from.clone()..).map(|(key, _)| key.clone()).collect();
                let to = Compared::All;
                let step = IndexStep::Compare { index, round, from: Compared::Before(from), to };
                return Some(Uncompared { table: table.id, index, rows, tablet: id, step });
            }
        }
        None
    }

    fn next_step(&self, table: &Table, tablet: TabletId) -> Option<IndexStep> {
        let mut tablets = self.tablets.lock();
        let tablet = tablets.entry(tablet).or_default();
        match index::due(table, &index::specifications(tablet).unwrap())? {
            Due::Step(step) => Some(step),
            // Whoever has an engine does that.
            Due::Compare { .. } => None,
            Due::Build { index, from } => {
                let end = vec![0xFF; 9];
                let scan =
                    |visit: &mut dyn FnMut(&[u8], &[u8]) -> bool| index::Moment::scan(tablet, &from, &end, visit);
                let Part { to, is_last, .. } = index::part(&end, (2, 1 << 20), scan).unwrap();
                Some(IndexStep::Build { index, from, to, is_last })
            }
        }
    }
}
