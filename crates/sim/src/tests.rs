//! Many seeds pass, a seed is one run, and bugs that are planted are found. A test that fails names the seed: `diorite-sim --seed` shows it.

use crate::{Options, Planting, Report, run};

/// How many seeds `make test` runs, in two halves.
const SEEDS: u64 = 1_000;

/// Within how many seeds a planted bug has to be found.
const BUG_SEEDS: u64 = 2_000;

fn passes(seeds: std::ops::Range<u64>) {
    let (mut reads, mut writes, mut faults) = (0, 0, 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let report = run(seed, &Options::default());
        assert!(
            report.finding.is_none(),
            "seed {seed}: {}",
            report.finding.map_or_else(String::new, |it| it.to_string())
        );
        reads += report.tally.reads;
        writes += report.tally.writes;
        faults += report.faults;
    }
    // A cluster that does nothing does nothing wrong.
    assert!(reads > 100 * count && writes > 150 * count && faults > 3 * count, "{reads} {writes} {faults}");
}

#[test]
fn the_first_half_of_the_seeds_passes() {
    passes(1..1 + SEEDS / 2);
}

#[test]
fn the_second_half_of_the_seeds_passes() {
    passes(1 + SEEDS / 2..1 + SEEDS);
}

#[test]
fn the_same_seed_is_the_same_run_event_by_event() {
    let outline = |report: &Report| (report.hash, report.events, report.recovery_ns);
    for seed in 1..=20 {
        let (one, other) = (run(seed, &Options::default()), run(seed, &Options::default()));
        assert_eq!(outline(&one), outline(&other), "seed {seed}");
    }
    assert_ne!(run(1, &Options::default()).hash, run(2, &Options::default()).hash);
}

/// The checker that finds the bug.
fn found_by(bug: Planting, clients_only: bool) -> &'static str {
    let options = Options { bug: Some(bug), clients_only, print: false };
    let finding = (1..=BUG_SEEDS).find_map(|seed| run(seed, &options).finding);
    finding.unwrap_or_else(|| panic!("{bug:?} is not found in {BUG_SEEDS} seeds")).checker
}

#[test]
fn a_log_that_is_not_synced_is_found() {
    found_by(Planting::SkipFsync, false);
}

#[test]
fn a_vote_without_the_wait_after_a_restart_is_found() {
    assert_eq!(found_by(Planting::IgnoreRestartWait, false), "leaseholder");
}

#[test]
fn an_entry_that_is_applied_twice_is_found_in_the_data_and_by_clients() {
    assert_eq!(found_by(Planting::ApplyTwice, false), "replicas");
    assert_eq!(found_by(Planting::ApplyTwice, true), "acknowledged");
}

#[test]
fn answers_without_a_lease_are_found_in_the_leases_and_by_clients() {
    assert_eq!(found_by(Planting::AnswerWithoutLease, false), "leaseholder");
    assert_eq!(found_by(Planting::AnswerWithoutLease, true), "linearizable");
}

#[test]
fn a_replica_that_comes_back_empty_and_votes_is_found() {
    found_by(Planting::ForgetFloor, false);
}

#[test]
fn clocks_that_drift_beyond_the_bound_are_found() {
    assert_eq!(found_by(Planting::FastClock, false), "leaseholder");
}
