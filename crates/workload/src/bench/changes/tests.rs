//! Made-up clusters: when a change has ended, and what its numbers are.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;
use crate::bench::operator::tests::sight;
use crate::bench::published::Reference;
use crate::latency::Tally;

fn progress() -> Progress {
    Progress { quiet_s: 10.0, timeout_s: 60.0, quiet_since_s: None, even_since_s: None, last: Vec::new(), last_s: 0.0 }
}

fn moving(mut sight: Sight, moves: u64) -> Sight {
    sight.cluster.balancer.moves = moves;
    sight
}

fn phase(p99_us: u64, errors: u64) -> PhaseResult {
    let mut reads = Tally::default().summary(1.0);
    (reads.p99_us, reads.errors) = (p99_us, errors);
    let plan =
        Plan { writers: 1, readers: 1, writes: None, reads: None, duration: None, rate: None, seed: 1, until: None };
    let outcome = Outcome { tallies: Default::default(), seconds: 1.0, interrupted: false, errors: BTreeMap::new() };
    let usage = crate::process::Usage::default();
    let spec = PhaseSpec { reference: Reference::default(), ..PhaseSpec::new("phase", "", plan) };
    let mut phase = PhaseResult::new(&spec, 0.0, 1.0, &outcome, &usage, &usage);
    phase.reads = reads;
    phase
}

fn value(figures: &[Figure], name: &str) -> Option<f64> {
    figures.iter().find(|figure| figure.name.contains(name)).unwrap_or_else(|| panic!("no figure {name}")).value
}

#[test]
fn an_even_cluster_is_done_after_a_short_rest_and_an_uneven_one_after_a_long_one() {
    let quiet = sight(&[(9, 3, 100), (9, 3, 100)]);
    let mut even = progress();
    assert_eq!(even.look(Some(&moving(quiet.clone(), 3)), false, 1.0), Verdict::GoesOn);
    assert_eq!(even.look(Some(&quiet), true, 2.0), Verdict::GoesOn, "a pause between two moves");
    assert_eq!(even.look(Some(&moving(quiet.clone(), 1)), true, 2.5), Verdict::GoesOn);
    assert_eq!(even.look(Some(&quiet), true, 3.0), Verdict::GoesOn);
    assert_eq!(even.look(None, false, 3.5), Verdict::GoesOn, "nobody answers: nobody knows");
    assert_eq!(even.look(Some(&quiet), true, 4.0), Verdict::GoesOn);
    assert_eq!(even.look(Some(&quiet), true, 5.5), Verdict::Ended { at_s: 4.0 });
    let mut led_later = progress();
    assert_eq!(led_later.look(Some(&quiet), false, 1.0), Verdict::GoesOn);
    assert_eq!(led_later.look(Some(&quiet), true, 4.0), Verdict::GoesOn);
    assert_eq!(led_later.look(Some(&quiet), true, 5.5), Verdict::Ended { at_s: 4.0 }, "leaders come after replicas");
    let mut uneven = progress();
    assert_eq!(uneven.look(Some(&quiet), false, 1.0), Verdict::GoesOn);
    assert_eq!(uneven.look(Some(&quiet), false, 10.9), Verdict::GoesOn);
    assert_eq!(uneven.look(Some(&quiet), false, 11.0), Verdict::Ended { at_s: 1.0 });
}

#[test]
fn a_change_has_stalled_when_nothing_comes_of_it() {
    let quiet = sight(&[(9, 3, 100), (9, 3, 100)]);
    let mut progress = progress();
    assert_eq!(progress.look(Some(&moving(quiet.clone(), 3)), false, 50.0), Verdict::GoesOn);
    assert_eq!(progress.look(Some(&moving(quiet.clone(), 2)), false, 100.0), Verdict::GoesOn);
    assert_eq!(progress.look(Some(&moving(quiet.clone(), 2)), false, 159.0), Verdict::GoesOn);
    let last = moving(quiet, 2);
    assert_eq!(progress.look(Some(&last), false, 161.0), Verdict::Stalled);
    let text = progress.stalled("adding a node", Some(&last));
    assert!(text.contains("no progress for 60 s") && text.contains("2 replicas move"), "{text}");
}

#[test]
fn even_means_that_the_new_node_has_its_share_of_bytes_and_leaders() {
    let fifth = "127.0.0.5".parse().unwrap();
    let of = |bytes: u64, leaders: u64| {
        is_even(&sight(&[(12, 4, 100), (12, 4, 100), (12, 4, 100), (12, 4, 100), (12, leaders, bytes)]), fifth)
    };
    assert!(of(95, 4) && of(105, 3), "whole tablets cannot be spread better");
    assert!(!of(80, 4), "too few bytes");
    assert!(!of(100, 2), "too few leaders");
    assert!(!is_even(&sight(&[(12, 4, 100)]), fifth), "it is not there yet");
}

#[test]
fn a_cluster_is_whole_when_nothing_is_counted_on_the_lost_node() {
    let lost = "127.0.0.2".parse().unwrap();
    let mut seen = sight(&[(9, 3, 100), (9, 3, 100)]);
    assert!(!is_whole_without(&seen, lost), "nobody has missed it yet");
    seen.nodes[1].is_up = false;
    assert!(!is_whole_without(&seen, lost));
    seen.nodes[1].replicas = 0;
    seen.cluster.under_replicated = 1;
    assert!(!is_whole_without(&seen, lost));
    seen.cluster.under_replicated = 0;
    assert!(is_whole_without(&seen, lost));
    seen.nodes.pop();
    assert!(is_whole_without(&seen, lost), "or when it is no member any more");
}

#[test]
fn the_figures_of_adding_a_node() {
    let fifth = "127.0.0.5".parse().unwrap();
    let four = [(15, 5, 1_000), (15, 5, 1_000), (15, 5, 1_000), (15, 5, 1_000)];
    let mut growth = Growth::default();
    growth.look(&sight(&[&four[..], &[(0, 0, 0)]].concat()), fifth, 1.0);
    growth.look(&moving(sight(&[&four[..], &[(4, 0, 0)]].concat()), 4), fifth, 2.0);
    growth.look(&moving(sight(&[&four[..], &[(8, 1, 400)]].concat()), 4), fifth, 4.0);
    growth.look(&moving(sight(&[(12, 4, 800); 5]), 1), fifth, 7.0);
    growth.look(&sight(&[(12, 4, 800); 5]), fifth, 8.0);
    growth.balanced_s = Some(8.0);
    for (at_s, bytes) in [(2.0, 0.0), (3.0, 1e7), (4.0, 1.9e8), (5.0, 3.7e8), (6.0, 4.6e8), (7.0, 4.6e8)] {
        assert!(growth.is_to_be_metered(at_s));
        growth.meter(at_s, Some(bytes));
        assert!(!growth.is_to_be_metered(at_s + 0.9));
    }
    growth.arrived = Some(BTreeMap::from([(5, 900_000_000), (2, 50_000_000)]));
    let figures = growth_figures(&growth, Some(&phase(3_000, 0)), &[&phase(1_000, 0), &phase(3_000, 0)]);
    assert_eq!(value(&figures, "first tablet"), Some(4.0));
    assert_eq!(value(&figures, "balanced"), Some(8.0));
    assert_eq!(value(&figures, "bytes copied"), Some(950.0));
    assert_eq!(value(&figures, "of the limit"), Some(90.0));
    assert_eq!(value(&figures, "bytes per node"), Some(0.0));
    assert_eq!(value(&figures, "failed requests"), Some(0.0));
    assert_eq!(value(&figures, "p99 of reads"), Some(1.5));
    assert_eq!(value(&figures, "p99 of writes"), None, "there were none before");
}

#[test]
fn the_figures_of_losing_a_node() {
    let healing = Healing {
        writable_ms: Some(900.0),
        whole_s: Some(12.0),
        arrived: Some(BTreeMap::from([(1, 30_000_000), (2, 20_000_000)])),
        unfinished: None,
    };
    let kinds = BTreeMap::from([("connection lost", 7)]);
    let figures = healing_figures(&healing, 5_000, &kinds, Some(&phase(4_000, 7)), &[&phase(2_000, 0)]);
    assert_eq!(value(&figures, "takes writes"), Some(900.0));
    assert_eq!(value(&figures, "given up after"), Some(5.0));
    assert_eq!(value(&figures, "all its replicas"), Some(12.0));
    assert_eq!(value(&figures, "bytes copied"), Some(50.0));
    assert_eq!(value(&figures, "failed requests: connection lost"), Some(7.0));
    let unknown = healing_figures(&Healing::default(), 5_000, &BTreeMap::new(), None, &[]);
    assert_eq!((value(&unknown, "all its replicas"), value(&unknown, "bytes copied")), (None, None));
}
