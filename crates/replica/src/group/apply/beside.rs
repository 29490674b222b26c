//! What steps of transactions do in a batch beside rows: their records, and what readers are shown of them.
//!
//! Followers apply many entries in one batch, among them often all steps of a transaction. A record that such a batch
//! would store and remove again is never stored, and its prepare is not shown to readers, who see the batch as a whole.
//!
//! Always true: once the batch is written, the stored records are those that are in force. Left out: which those are
//! ([`diorite_transact::records`]).

use crate::group::prepared::PreparedRows;
use diorite_storage::TabletBatch;
use diorite_transact::TransactionId;
use diorite_transact::records::Records;
use std::collections::BTreeMap;

/// See the top of this module.
#[derive(Default)]
pub(super) struct Beside {
    /// The records that the batch stores, as far as they may be removed by it.
    stored: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The prepares that the batch begins.
    begun: Vec<TransactionId>,
    /// Those that it ends.
    ended: Vec<TransactionId>,
}

impl Beside {
    /// The batch is dropped.
    pub(super) fn clear(&mut self) {
        self.stored.clear();
        self.begun.clear();
        self.ended.clear();
    }

    /// Stores a record.
    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.stored.insert(key, value);
    }

    /// Removes a record, which was put once.
    pub(super) fn remove(&mut self, key: &[u8], batch: &mut impl TabletBatch) {
        if self.stored.remove(key).is_none() {
            batch.delete(key);
        }
    }

    /// A prepare was applied.
    pub(super) fn begin(&mut self, id: TransactionId) {
        self.begun.push(id);
    }

    /// The end of a prepare was applied.
    pub(super) fn end(&mut self, id: TransactionId) {
        self.ended.push(id);
    }

    /// The batch is about to be written.
    pub(super) fn close(&mut self, records: &Records, prepared: &PreparedRows, batch: &mut impl TabletBatch) {
        while let Some((key, value)) = self.stored.pop_first() {
            batch.put(&key, &value);
        }
        self.begun.drain(..).filter_map(|id| records.prepared(&id)).for_each(|record| prepared.add(record));
    }

    /// The batch is written: what has become of the prepares that it ends can be read.
    pub(super) fn written(&mut self, records: &Records, prepared: &PreparedRows) {
        let ended = self.ended.drain(..).filter(|id| records.prepared(id).is_none());
        ended.for_each(|id| prepared.remove(&id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::{TableId, TabletId};
    use diorite_transact::Home;
    use diorite_transact::records::Effect;
    use diorite_transact::step::{Ending, Operation, Prepare, Step};
    use diorite_transact::targets::{Target, Targets};

    /// What a batch does, in order.
    #[derive(Default, Debug, PartialEq)]
    struct Noted(Vec<(Vec<u8>, Option<Vec<u8>>)>);

    impl TabletBatch for Noted {
        fn put(&mut self, key: &[u8], value: &[u8]) {
            self.0.push((key.to_vec(), Some(value.to_vec())));
        }

        fn merge(&mut self, _: &[u8], _: &[u8]) {
            unreachable!("records are not merged");
        }

        fn delete(&mut self, key: &[u8]) {
            self.0.push((key.to_vec(), None));
        }

        fn delete_range(&mut self, _: &[u8], _: &[u8]) {
            unreachable!("records are removed one by one");
        }

        fn clear(&mut self) {
            self.0.clear();
        }
    }

    const ID: TransactionId = TransactionId { tablet: TabletId(7), term: 1, number: 1 };

    fn prepare() -> Step {
        let home = Home { table: TableId(3), key: b"h".to_vec(), tells_readers: true };
        let operations = [Operation { key: b"k".to_vec(), now_s: 0, program: vec![1] }].into();
        Step::Prepare(Prepare { id: ID, home, targets: Targets::new(vec![Target::Row(b"k".to_vec())]), operations })
    }

    fn apply(records: &mut Records, beside: &mut Beside, batch: &mut Noted, (stamp_us, step): (i64, &Step)) {
        for effect in records.apply(stamp_us, step) {
            match effect {
                Effect::Put { key, value } => beside.put(key, value),
                Effect::Remove { key } => beside.remove(&key, batch),
                Effect::Write { .. } => {}
            }
        }
        match step {
            Step::Prepare(prepare) => beside.begin(prepare.id),
            Step::Finish { id, .. } => beside.end(*id),
            Step::Commit(_) | Step::Forget(_) => {}
        }
    }

    /// The batches that these steps make, and whether the prepare is shown before and after each is written.
    fn batches(batches: &[&[Step]]) -> Vec<(Noted, bool, bool)> {
        let (mut records, mut beside, prepared) = (Records::default(), Beside::default(), PreparedRows::default());
        let (mut stamps, mut written) = (1.., Vec::new());
        for steps in batches {
            let mut batch = Noted::default();
            for (stamp_us, step) in stamps.by_ref().zip(*steps) {
                apply(&mut records, &mut beside, &mut batch, (stamp_us, step));
            }
            beside.close(&records, &prepared, &mut batch);
            let is_shown = prepared.now().is_some();
            beside.written(&records, &prepared);
            written.push((batch, is_shown, prepared.now().is_some()));
        }
        written
    }

    #[test]
    fn a_record_is_stored_and_shown_unless_the_same_batch_removes_it() {
        let finish = || Step::Finish { id: ID, ending: Ending::Aborted };
        let apart = batches(&[&[prepare()], &[finish()]]);
        let [(put, true, true), (removed, true, false)] = &apart[..] else { panic!("{apart:?}") };
        let [(key, Some(_))] = &put.0[..] else { panic!("{put:?}") };
        assert_eq!(removed.0, [(key.clone(), None)]);
        let together = batches(&[&[prepare(), finish()]]);
        assert_eq!(together, [(Noted::default(), false, false)]);
        // A message that is late prepares it again.
        let again = batches(&[&[prepare()], &[finish(), prepare()], &[finish(), prepare(), finish()]]);
        let kinds: Vec<_> = again[1].0.0.iter().map(|(_, value)| value.is_some()).collect();
        assert_eq!((kinds, again[1].1, again[1].2), (vec![false, true], true, true));
        assert_eq!(again[2], (Noted(vec![(key.clone(), None)]), true, false));
    }
}
