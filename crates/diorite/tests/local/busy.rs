//! No request may fail while an operator changes a cluster; unless a node says of itself that it stood still.
//!
//! A write that waits 1.8 s is timed out, and a node whose heartbeats are missing for 0.8 s loses its leases. On a machine that
//! many processes share that happens to nodes which are right. Always true: failures are excused only by what a node has
//! logged or counted, and only those after which a client may try again. Left out: whether that node was asked.

use crate::{Local, server};

/// More nodes than any cluster of these tests has.
const NODES: u32 = 9;

/// What a node logs after its process was not scheduled for a second.
const DID_NOT_RUN: &str = "this process did not run";

/// How long most syncs of a log take, at most: a bound of their histogram, in seconds. A write may wait for several.
const SHORT_SYNC: &str = "0.524288";

/// No request has failed; or a node stood still, and those that failed may be sent again.
pub fn expect_no_failures(local: &Local, failures: &[String]) {
    if failures.is_empty() {
        return;
    }
    let may_repeat =
        |failure: &String| ["WriteTimeout", "ReadTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    let stood_still: Vec<u32> = (1..=NODES).filter(|number| stood_still(local, *number)).collect();
    assert!(
        !stood_still.is_empty() && failures.iter().all(may_repeat),
        "{failures:?}; nodes that stood still: {stood_still:?}"
    );
    println!("{} requests failed, as nodes {stood_still:?} stood still", failures.len());
}

fn stood_still(local: &Local, number: u32) -> bool {
    let log = local.directory().join(format!("node-{number}/log.txt"));
    std::fs::read_to_string(log).is_ok_and(|log| log.contains(DID_NOT_RUN))
        || server::get(&local.address(number), "/metrics").is_some_and(|metrics| has_long_syncs(&metrics))
}

fn has_long_syncs(metrics: &str) -> bool {
    let value = |name: &str| -> Option<u64> {
        let mut of_syncs =
            metrics.lines().filter_map(|line| line.strip_prefix("diorite_raft_log_sync_duration_seconds_"));
        of_syncs.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let short = value(&format!("bucket{{le=\"{SHORT_SYNC}\"}}"));
    short.is_some() && value("count") > short
}

#[test]
fn long_syncs_are_those_beyond_a_bucket() {
    let metrics = |count: u64| {
        format!(
            "diorite_raft_log_sync_duration_seconds_count {count}\n\
             diorite_raft_log_sync_duration_seconds_bucket{{le=\"0.262144\"}} 5\n\
             diorite_raft_log_sync_duration_seconds_bucket{{le=\"0.524288\"}} 7\n"
        )
    };
    assert!(has_long_syncs(&metrics(8)) && !has_long_syncs(&metrics(7)) && !has_long_syncs(""));
}
