//! Records of transactions beside rows.

use diorite_base::{Horizon, TableId, TabletId};
use diorite_model::entry::{Compaction, compact, is_dead, without_content};
use diorite_transact::records::{Effect, Records};
use diorite_transact::step::{Commit, Operation, Prepare, Step};
use diorite_transact::targets::{Target, Targets};
use diorite_transact::{Home, Participant, Prepared, TransactionId};
use std::sync::Arc;

#[test]
fn compaction_leaves_records_of_transactions_alone() {
    let id = TransactionId { tablet: TabletId(7), term: 1, number: 3 };
    let key = || b"row".to_vec();
    let operations: Arc<[Operation]> = Arc::new([Operation { key: key(), now_s: 9, program: b"program".to_vec() }]);
    let home = Home { table: TableId(1), key: key(), tells_readers: true };
    let targets = Targets::new(vec![Target::Row(key())]);
    let participant = Participant { table: TableId(1), tablet: TabletId(8), key: key() };
    let prepared = vec![Prepared { participant, stamp_us: 4 }];
    let steps = [
        Step::Prepare(Prepare { id, home, targets, operations: operations.clone() }),
        Step::Commit(Commit { id, prepared, operations }),
    ];
    let late = Horizon { now_s: u32::MAX, rows_s: u32::MAX, ranges_s: u32::MAX };
    for (stamp_us, step) in steps.iter().flat_map(|step| [0, 5, i64::MAX].map(|at_us| (at_us, step))) {
        let mut records = Records::default();
        let puts = records.apply(stamp_us, step).into_iter().filter_map(|effect| match effect {
            Effect::Put { value, .. } => Some(value),
            _ => None,
        });
        let puts: Vec<Vec<u8>> = puts.collect();
        assert_eq!(puts.len(), 1);
        assert_eq!(compact(&puts[0], late), Compaction::Keep, "{step:?} at {stamp_us}");
        assert!(!is_dead(&puts[0], u32::MAX) && without_content(&puts[0]).is_none());
    }
}
