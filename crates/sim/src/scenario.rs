//! The scenario of a seed: number of nodes, kind of network, kinds and frequency of faults.
//!
//! Each run has only some kinds of fault, so that rare combinations of few occur as well as storms of all.

use crate::dice::Dice;
use crate::faults::{FaultKind, KINDS};
use crate::network::Weather;
use crate::options::Options;
use diorite_base::{NodeId, TabletId};
use diorite_raft::DRIFT_PERMILLE;

const SECOND: u64 = 1_000_000_000;

/// The lowest tablet number; those below it are reserved.
const FIRST_TABLET: u64 = 1_000;

/// Of how many of 1,000 seeds tablets are split.
const SPLITS: u64 = 400;

/// Of how many of those they are merged as well.
const MERGES: u64 = 600;

/// Of how many of 1,000 seeds tablets hold real rows.
const ROWS: u64 = 150;

/// In how many of 1,000 seeds machines sleep.
const SLEEPS: u64 = 200;

/// The network without faults.
pub const WITHOUT_FAULTS: Weather = Weather { usual_us: 400, slow_permille: 0, slow_us: 0, breaks: 0 };

/// The intervals of the nodes' periodic work, milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Reports.
    pub report_ms: u64,
    /// The balancer's ticks.
    pub steer_ms: u64,
    /// How often splits are advanced and complete ones are reported.
    pub finish_ms: u64,
    /// Merges.
    pub merge_ms: u64,
}

/// The parameters that one seed gives.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The nodes of the beginning.
    pub nodes: Vec<NodeId>,
    /// The tablets of the beginning.
    pub tablets: Vec<TabletId>,
    /// The cluster's replication factor.
    pub replicas: usize,
    /// Clients.
    pub clients: u32,
    /// The longest time for which a client does nothing between two requests, nanoseconds.
    pub think_ns: u64,
    /// Clients that change the schema.
    pub ddl_clients: u32,
    /// Whether tablets are split.
    pub splits: bool,
    /// Whether they are merged.
    pub merges: bool,
    /// Whether operators move tablets, or try to, while these are split and merged.
    pub moves_reshaping: bool,
    /// How often nodes do their periodic duties.
    pub rhythm: Rhythm,
    /// Whether the balancer moves what need not be moved.
    pub balances: bool,
    /// How long faults are made, nanoseconds.
    pub chaos_ns: u64,
    /// The network in between.
    pub weather: Weather,
    /// Which faults there are.
    pub kinds: Vec<FaultKind>,
    /// The longest time between two faults, nanoseconds.
    pub fault_every_ns: u64,
    /// The greatest error of the monotonic clocks' rates, parts per million in either direction.
    pub rate_error_ppm: i64,
    /// How long a sync usually takes at most, microseconds.
    pub sync_us: u64,
    /// Tablets hold real rows: so many of each of two tables.
    pub row_tablets: Option<u32>,
    /// How many data disks a node has.
    pub disks: usize,
    /// In this many of 1,000 flushes of a tablet of rows it is compacted.
    pub compactions: u64,
    /// Logs are synced this often and not before writes are acknowledged, milliseconds (`--durability interval`). `None`: they are synced first.
    pub sync_every_ms: Option<u64>,
    /// In this many of 1,000 flushes the log is truncated even if other members need it, so that they need copies of
    /// the data.
    pub hard_cuts: u64,
    /// Flushes of a tablet on a node happen at most this far apart, nanoseconds.
    pub flush_every_ns: u64,
}

impl Scenario {
    /// The scenario of a seed. Parts that were added later draw from `more`, and then `latest`, so that they do not
    /// change the rest.
    pub fn new(dice: &mut Dice, more: &mut Dice, latest: &mut Dice, options: &Options) -> Self {
        let nodes = *dice.pick(&[3, 3, 3, 3, 4, 4, 5, 5]);
        let replicas = if nodes > 3 && dice.chance(700) { 3 } else { *dice.pick(&[nodes, nodes, nodes, 1]) };
        let tablets = dice.range(1, 4);
        let many = dice.range(2, KINDS.len() as u64);
        let mut kinds: Vec<FaultKind> = (0..many).map(|_| *dice.pick(&KINDS)).collect();
        if !kinds.contains(&FaultKind::Crash) && dice.chance(700) {
            kinds.push(FaultKind::Crash);
        }
        if !kinds.contains(&FaultKind::Move) && dice.chance(300) {
            kinds.push(FaultKind::Move);
        }
        kinds.extend(options.further);
        let has_rows = latest.chance(ROWS) || options.rows;
        if latest.chance(SLEEPS) {
            kinds.push(FaultKind::Sleep);
        }
        let disks = *latest.pick(&[1, 1, 2, 3]);
        if disks > 1 && latest.chance(600) {
            kinds.push(FaultKind::DiskFailure);
        }
        Self {
            nodes: (1..=nodes).map(NodeId).collect(),
            tablets: (0..tablets).map(|n| TabletId(FIRST_TABLET + n)).collect(),
            replicas: replicas as usize,
            clients: dice.range(2, 6) as u32,
            think_ns: dice.milliseconds(2, 30),
            ddl_clients: if has_rows { 0 } else { *more.pick(&[0, 1, 1, 2]) },
            splits: more.chance(SPLITS) && !options.without_splits,
            merges: more.chance(MERGES) && !options.without_splits && !options.without_merges,
            rhythm: Rhythm {
                report_ms: *more.pick(&[100, 300]),
                steer_ms: *more.pick(&[100, 250]),
                finish_ms: *more.pick(&[60, 250]),
                merge_ms: *more.pick(&[60, 250]),
            },
            moves_reshaping: latest.chance(500),
            balances: more.chance(500),
            chaos_ns: dice.range(3 * SECOND, 7 * SECOND),
            weather: weather(dice),
            kinds,
            fault_every_ns: dice.milliseconds(150, 1_500),
            // Two clocks may differ by the stated drift, so each is off by at most half of that.
            rate_error_ppm: (DRIFT_PERMILLE * 1_000 / 2) as i64,
            sync_us: *dice.pick(&[50, 500, 3_000]),
            row_tablets: has_rows.then(|| more.range(1, 4) as u32),
            disks,
            compactions: *latest.pick(&[0, 200, 700]),
            sync_every_ms: options.interval.then(|| *more.pick(&[10, 100, 1_000])),
            hard_cuts: *dice.pick(&[0, 0, 20, 300]),
            flush_every_ns: dice.milliseconds(20, 1_000),
        }
    }
}

fn weather(dice: &mut Dice) -> Weather {
    match dice.range(0, 4) {
        0 => WITHOUT_FAULTS,
        1 => Weather { usual_us: 1_000, slow_permille: 20, slow_us: 50_000, breaks: 0 },
        2 => Weather { usual_us: 3_000, slow_permille: 50, slow_us: 200_000, breaks: 300 },
        _ => Weather { usual_us: 800, slow_permille: 5, slow_us: 400_000, breaks: 1_500 },
    }
}
