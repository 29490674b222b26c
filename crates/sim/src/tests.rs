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

/// Seeds that have found bugs when replicas began to move, and what they were.
const FOUND: [(u64, &str); 7] = [
    (11, "a replica that came back empty believed its old commit index"),
    (292, "after a loss of power nobody knew that those who were closed had been members only until then"),
    (416, "a leader that carried out its own removal, proposed by the one before it, led on as nobody's member"),
    (448, "a replica that may not vote was given a vote as the log was short, and the group waited for it for ever"),
    (712, "a sole voter did not see to the confirmation of its members"),
    (1_356, "a replica opened after its first members had not reached the disk"),
    (2_649, "a sole voter kept a learner that was to go"),
];

/// The same, where tablets are split, when none was merged yet.
const FOUND_WITH_SPLITS: &[(u64, &str)] = &[
    (1_787, "a follower whose data a slow copy took the place of was not told again what is committed"),
    (4_283, "the same, of one of five"),
];

#[test]
fn seeds_that_have_found_bugs_pass() {
    // Found when nothing was split yet.
    let without = FOUND.iter().map(|found| (found, true));
    for (&(seed, bug), without_splits) in without.chain(FOUND_WITH_SPLITS.iter().map(|found| (found, false))) {
        let finding = run(seed, &Options { without_splits, without_merges: true, ..Options::default() }).finding;
        assert!(finding.is_none(), "seed {seed} ({bug}): {}", finding.map_or_else(String::new, |it| it.to_string()));
    }
}

/// Sees that the bug is found, by this checker if one is named: others may find it too.
fn expect_found(bug: Planting, clients_only: bool, checker: Option<&str>) {
    // A run that is held up by splits meets other bugs less often.
    let without_merges = bug != Planting::NeverClose;
    let without_splits = without_merges && !matches!(bug, Planting::KeepLeaseWhenSplit | Planting::ForgetParentsLog);
    let options = Options { bug: Some(bug), clients_only, without_splits, without_merges, ..Options::default() };
    let is_expected = |seed| {
        let finding = run(seed, &options).finding;
        finding.is_some_and(|finding| checker.is_none_or(|checker| finding.checker == checker))
    };
    assert!((1..=BUG_SEEDS).any(is_expected), "{bug:?} is not found by {checker:?} in {BUG_SEEDS} seeds");
}

#[test]
fn a_log_that_is_not_synced_is_found() {
    expect_found(Planting::SkipFsync, false, None);
}

#[test]
fn a_vote_without_the_wait_after_a_restart_is_found() {
    expect_found(Planting::IgnoreRestartWait, false, Some("leaseholder"));
}

#[test]
fn an_entry_that_is_applied_twice_is_found_in_the_data_and_by_clients() {
    expect_found(Planting::ApplyTwice, false, Some("replicas"));
    expect_found(Planting::ApplyTwice, true, Some("acknowledged"));
}

#[test]
fn answers_without_a_lease_are_found_in_the_leases_and_by_clients() {
    expect_found(Planting::AnswerWithoutLease, false, Some("leaseholder"));
    expect_found(Planting::AnswerWithoutLease, true, Some("linearizable"));
}

#[test]
fn a_replica_that_comes_back_empty_and_votes_is_found() {
    expect_found(Planting::ForgetFloor, false, None);
}

#[test]
fn clocks_that_drift_beyond_the_bound_are_found() {
    expect_found(Planting::FastClock, false, Some("leaseholder"));
}

#[test]
fn a_tablet_that_is_split_and_answers_on_is_found_in_the_leases_and_by_clients() {
    expect_found(Planting::KeepLeaseWhenSplit, false, Some("leaseholder"));
    expect_found(Planting::KeepLeaseWhenSplit, true, None);
}

#[test]
fn a_child_that_begins_where_it_was_prepared_is_found_in_the_data_and_by_clients() {
    expect_found(Planting::ForgetParentsLog, false, None);
    expect_found(Planting::ForgetParentsLog, true, None);
}

#[test]
fn a_tablet_that_is_written_to_while_it_is_taken_in_is_found_in_the_leases_and_by_clients() {
    expect_found(Planting::NeverClose, false, Some("leaseholder"));
    expect_found(Planting::NeverClose, true, None);
}
