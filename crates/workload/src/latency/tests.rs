//! Merging, rates, and the correction for coordinated omission.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;

#[test]
fn shards_merge_exactly_and_are_taken_once() {
    let recorder = Recorder::new();
    for task in 0..8 {
        recorder.success(task, OperationKind::Read, 1_000_000, 1);
        recorder.success(task, OperationKind::Write, 5_000_000, 10);
        recorder.failure(task, OperationKind::Write);
    }
    let drained = recorder.drain();
    let reads = drained.reads.summary(2.0);
    assert_eq!((reads.operations, reads.rows, reads.errors), (8, 8, 0));
    assert_eq!(reads.operations_per_second, 4.0);
    assert!((999..=1_001).contains(&reads.p99_us));
    let writes = drained.writes.summary(2.0);
    assert_eq!((writes.operations, writes.rows, writes.errors), (8, 80, 8));
    assert_eq!(recorder.drain().reads.summary(1.0), Summary::default());
}

#[test]
fn extreme_latencies_are_clamped_not_lost() {
    let recorder = Recorder::new();
    recorder.success(0, OperationKind::Read, 0, 1);
    recorder.success(0, OperationKind::Read, u64::MAX, 1);
    let summary = recorder.drain().reads.summary(1.0);
    assert_eq!(summary.operations, 2);
    assert!(summary.max_us >= MAX_US);
}

#[test]
fn starts_are_evenly_spaced() {
    let schedule = Schedule::new(1_000, 4_000.0);
    let starts: Vec<u64> = (0..4).map(|_| schedule.next_start_ns()).collect();
    assert_eq!(starts, [1_000, 251_000, 501_000, 751_000]);
}

/// One client, 1,000 operations a second, each taking 0.1 ms, and one pause of the server of one second: a closed loop
/// would report a single slow operation, an open loop must report about a thousand.
#[test]
fn a_pause_of_the_server_is_charged_to_every_operation_it_delayed() {
    let recorder = Recorder::new();
    let schedule = Schedule::new(0, 1_000.0);
    let mut now_ns = 0_u64;
    for operation in 0..5_000 {
        let intended_ns = schedule.next_start_ns();
        let was_idle = now_ns < intended_ns;
        now_ns = now_ns.max(intended_ns);
        let start_ns = charged_start_ns(intended_ns, was_idle, now_ns);
        now_ns += if operation == 1_000 { 1_000_000_000 } else { 100_000 };
        recorder.success(0, OperationKind::Read, now_ns - start_ns, 1);
    }
    let tally = recorder.drain().reads;
    let delayed = tally.latency_us.count_between(10_000, MAX_US);
    assert!((1_000..1_200).contains(&delayed), "{delayed} operations were charged for the pause");
    assert!((100..=101).contains(&tally.summary(5.0).p50_us));
    assert!(tally.summary(5.0).p99_us > 900_000);
}

#[test]
fn only_an_idle_task_is_forgiven_the_timer_and_only_so_much() {
    assert_eq!(charged_start_ns(1_000_000, true, 2_000_000), 2_000_000);
    assert_eq!(charged_start_ns(1_000_000, false, 2_000_000), 1_000_000);
    assert_eq!(charged_start_ns(1_000_000, true, 1_000_000 + TIMER_SLACK_NS + 1), 1_000_000);
}
