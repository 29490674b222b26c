//! The run with rows of all kinds: batches over tablets, counters, lists, cells with a lifetime, static columns beside rows, conditional batches; amid
//! kills, pauses and broken networks, while replicas move and tablets are split and merged.
//!
//! `DIORITE_TORTURE_MINUTES` says for how long (45 seconds if not given), `DIORITE_SEED` repeats a run's faults, requests and orders. Four nodes with three replicas each, so
//! that replicas have somewhere to go.

pub mod load;
mod orders;

use crate::cluster::Cluster;
use crate::faults::Nemesis;
use crate::load::{StopWhenDropped, read_all};
use crate::session::{KEYSPACE, number};
use crate::{seed, turn};
use diorite_base::random::{Random, SplitMix64};
use diorite_history::{
    Append, Expiring, Look, Several, Violation, check_appended, check_counter, check_expiring, check_linearizable,
    check_several,
};
use load::{COUNTERS, LIST_LENGTH, MARGIN, PLACES, Rows, TABLES};
use orders::Orders;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const NODES: usize = 4;
const CLIENTS: u32 = 8;

/// One cluster is tortured for no longer than this: all lists and histories of a round are judged at once.
const LONGEST_ROUND: Duration = Duration::from_secs(240);

#[test]
fn rows_of_all_kinds_survive_faults_moves_splits_and_merges() {
    let _turn = turn();
    let minutes = std::env::var("DIORITE_TORTURE_MINUTES").ok().map_or(0.75, |text| text.parse::<f64>().unwrap());
    let total = Duration::from_secs_f64(minutes * 60.0);
    let rounds = (total.as_secs_f64() / LONGEST_ROUND.as_secs_f64()).ceil() as u32;
    let seed = seed();
    for round in 0..rounds {
        println!("round {}: {:?}", round + 1, total / rounds);
        torture(total / rounds, SplitMix64::new(seed.wrapping_add(u64::from(round))));
    }
}

fn torture(duration: Duration, mut random: SplitMix64) {
    // Small limits, so that faults also meet flushes, compactions and log truncation.
    let cluster = Cluster::start(NODES, &["--replay-limit", "1MiB", "--memory-limit", "96MiB"]);
    cluster.run(0, KEYSPACE);
    TABLES.iter().for_each(|table| cluster.run(NODES - 1, table));
    let rows = Rows::new(&cluster);
    let orders = Orders::new(&cluster);
    let done = std::thread::scope(|scope| {
        let _stop = StopWhenDropped(&rows.stop);
        for client in 0..CLIENTS {
            let random = SplitMix64::new(random.next_u64());
            let rows = &rows;
            scope.spawn(move || rows.work(client, random));
        }
        let giver = SplitMix64::new(random.next_u64());
        let orders_run = {
            let _stop = StopWhenDropped(&orders.stop);
            let orders = &orders;
            let running = scope.spawn(move || orders.give(giver));
            let done = Nemesis::new(&cluster, SplitMix64::new(random.next_u64())).run(Instant::now() + duration);
            (running, done)
        };
        orders_run.0.join().expect("no order panics");
        // Under load, but without faults: what has to be given once was given, and ends.
        orders.finish();
        // How much clients get done beside the faults depends on the machine, and what is judged must be there.
        cluster.wait_for("clients to have been told enough", || rows.told().is_enough());
        orders_run.1
    });
    println!("  done: {done:?}; ordered: {:?}", orders.accepted());
    judge(&rows);
}

/// Reads everything through every node and judges it by what clients were told; then plants a violation of each kind, which has to be found.
pub fn judge(rows: &Rows<'_>) {
    rows.read_whole_everywhere();
    let told = rows.told();
    println!("  {}", told.summary());
    assert!(told.is_enough(), "the cluster hardly answered");
    let mut found = Found::default();
    for node in 0..rows.cluster.len() {
        found = Found::read(rows.cluster, node);
        let verdict = found.judge(&told);
        assert!(verdict.is_ok(), "asked of node {node}: {}{}", verdict.unwrap_err(), rows.cluster.logs());
    }
    rows.look_at_what_has_expired();
    let told = rows.told();
    let verdict = check_expiring(&told.expiring, &told.looks, MARGIN.as_nanos() as u64);
    assert!(verdict.is_ok(), "{}{}", verdict.unwrap_err(), rows.cluster.logs());
    if let Err(violation) = check_linearizable(&rows.recorder.operations()) {
        panic!("{violation}{}", rows.cluster.logs());
    }
    plant(&found, &told);
}

/// What clients were told.
#[derive(Clone)]
pub struct Told {
    /// Increments acknowledged and of unknown outcome, by counter.
    counts: BTreeMap<u64, (u64, u64)>,
    appends: BTreeMap<u64, Vec<Append>>,
    batches: Vec<Several>,
    expiring: Vec<Expiring>,
    looks: Vec<Look>,
    errors: BTreeMap<String, u64>,
    reads_of_whole: u64,
}

impl Told {
    fn summary(&self) -> String {
        let increments = self.counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        let seen = self.looks.iter().filter(|look| look.is_seen).count();
        format!(
            "{increments:?} increments known and unknown, {} appends, {} batches, {} cells with a lifetime looked at {} times ({seen} seen), \
             {} reads of what is whole; errors {:?}",
            self.appends.values().map(Vec::len).sum::<usize>(),
            self.batches.len(),
            self.expiring.len(),
            self.looks.len(),
            self.reads_of_whole,
            self.errors
        )
    }

    /// Some of everything was acknowledged, and cells were looked at both while they lived and later.
    pub fn is_enough(&self) -> bool {
        use diorite_history::Ended::Done;
        let acknowledged = self.counts.values().map(|count| count.0).sum::<u64>();
        let appended = self.appends.values().flatten().filter(|append| append.ended == Done).count();
        let batches = self.batches.iter().filter(|batch| batch.ended == Done).count();
        let seen = self.looks.iter().filter(|look| look.is_seen).count();
        acknowledged > 50
            && appended > 20
            && batches > 20
            && seen > 20
            && seen < self.looks.len()
            && self.reads_of_whole > 50
    }
}

/// What is there, as one node tells it.
#[derive(Default, Clone)]
struct Found {
    counters: BTreeMap<u64, u64>,
    lists: BTreeMap<u64, Vec<u64>>,
    /// In how many partitions each batch is.
    batches: BTreeMap<u64, usize>,
}

impl Found {
    fn read(cluster: &Cluster, node: usize) -> Self {
        let mut found = Self::default();
        for row in read_all(cluster, node, "SELECT k, n FROM torture.counters") {
            found.counters.insert(number(&row[0]), number(&row[1]));
        }
        for row in read_all(cluster, node, "SELECT k, l FROM torture.lists") {
            found.lists.insert(number(&row[0]), numbers(row[1].as_deref().expect("a list that was appended to")));
        }
        for row in read_all(cluster, node, "SELECT c FROM torture.batches") {
            *found.batches.entry(number(&row[0])).or_insert(0) += 1;
        }
        found
    }

    fn judge(&self, told: &Told) -> Result<(), Violation> {
        for counter in 0..COUNTERS {
            let (acknowledged, unknown) = told.counts.get(&counter).copied().unwrap_or_default();
            check_counter(acknowledged, unknown, self.counters.get(&counter).copied().unwrap_or(0))?;
        }
        for (list, appends) in &told.appends {
            check_appended(appends, self.lists.get(list).map(Vec::as_slice).unwrap_or_default())?;
        }
        check_several(&told.batches, &self.batches, PLACES)
    }
}

/// What is wrong is found: one violation of each kind.
fn plant(found: &Found, told: &Told) {
    use diorite_history::Ended::Done;
    let is_found = |what: &str, change: &dyn Fn(&mut Found)| {
        let mut wrong = found.clone();
        change(&mut wrong);
        assert!(wrong.judge(told).is_err(), "{what} is found");
    };
    let batch = told.batches.iter().find(|batch| batch.ended == Done).expect("looked at before").number;
    let (list, append) = told
        .appends
        .iter()
        .find_map(|(list, appends)| Some((*list, appends.iter().find(|append| append.ended == Done)?.value)))
        .expect("looked at before");
    let (acknowledged, unknown) = told.counts[&0];
    is_found("a planted lost increment", &|wrong| *wrong.counters.get_mut(&0).unwrap() = acknowledged - 1);
    is_found("a planted increment that was counted twice", &|wrong| {
        wrong.counters.insert(0, acknowledged + unknown + 1);
    });
    is_found("a planted part of a batch that is lost", &|wrong| *wrong.batches.get_mut(&batch).unwrap() -= 1);
    is_found("a planted batch that nobody wrote", &|wrong| wrong.batches.extend([(u64::MAX, PLACES)]));
    is_found("a planted element that is lost", &|wrong| {
        wrong.lists.get_mut(&list).unwrap().retain(|value| *value != append);
    });
    is_found("a planted element that is there twice", &|wrong| wrong.lists.get_mut(&list).unwrap().push(append));
    let cell = told.expiring.iter().find(|cell| cell.ended == Done).expect("looked at before");
    let late_ns = cell.answered_ns + cell.lifetime_ns + MARGIN.as_nanos() as u64 + 1;
    let look = Look { key: cell.key, is_seen: true, sent_ns: late_ns, answered_ns: late_ns };
    assert!(check_expiring(&told.expiring, &[look], MARGIN.as_nanos() as u64).is_err(), "a planted late cell is found");
}

/// A list of bigint: how many, then each with its length before it.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let elements = bytes[4..].chunks(12).map(|element| number(&Some(element[4..].to_vec())));
    elements.collect()
}

#[test]
fn a_list_is_filled_before_the_next_one_begins() {
    assert_eq!((load::list_of(0), load::list_of(LIST_LENGTH), load::list_of(2 * LIST_LENGTH - 1)), (0, 1, 1));
    assert_eq!(numbers(&[0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7]), [7]);
}
