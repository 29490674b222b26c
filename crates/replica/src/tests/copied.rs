//! A copy takes the place of a replica's data, on the engine in memory.

use super::*;
use diorite_base::GroupId;
use diorite_raft::ConfState;
use diorite_storage::{
    AppliedState, Log, LogRecords, Memory, MemoryBatch, MemoryLog, MemoryRecords, MemoryTablet, TabletData,
};

#[test]
fn a_truncation_that_waits_does_not_take_the_log_back_behind_a_copy() {
    let tablet = TabletId(1_000);
    let group = GroupId::from(tablet);
    let (clock, log) = (Arc::new(SystemClock::new()), Arc::new(MemoryLog::default()));
    let mut records = MemoryRecords::default();
    records.set_conf_state(group, &ConfState { voters: vec![1], ..ConfState::default() }).unwrap();
    log.write(&mut records, true).unwrap();
    let context = Arc::new(Context::new(NodeId(1), 7, Durability::Fsync, clock, Arc::new(NoTransport)));
    let recover = |data: MemoryTablet| {
        let opening = Opening { tablet, members: Members::default(), evaluator: Arc::new(Doubler) };
        Replica::<Memory>::recover(&context, opening, Arc::new(data), &log, (0, 0)).unwrap()
    };
    let mut core = Core::<Memory>::new(Arc::clone(&context), vec![Arc::clone(&log)]);
    core.open(recover(MemoryTablet::new(None))).unwrap();
    assert_eq!(log.recover(group).unwrap().last.0, 1, "the entry of the new leader");

    core.truncate(tablet, 1, true);
    core.detach(tablet);
    let copy = MemoryTablet::new(None);
    let state = AppliedState { index: 9, term: 1, ..AppliedState::default() };
    copy.apply(&mut MemoryBatch::default(), &state).unwrap();
    core.open(recover(copy)).unwrap();
    let recovered = log.recover(group).unwrap();
    assert_eq!((recovered.truncated, recovered.last.0), ((9, 1), 10));
}
