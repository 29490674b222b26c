//! The tables, and what tablets of rows are made with.

use super::kv::SimKv;
use super::same::Said;
use super::seen::VisibleRows;
use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::options::Planting;
use diorite_base::account::Meter;
use diorite_base::random::SplitMix64;
use diorite_base::{Horizon, TableId, TabletId};
use diorite_cluster::catalog::{Command, CoveringOutcome};
use diorite_cql::protocol::client::{
    ClientRequest, ClientResponse, Parameters, RequestHead, decode_response, encode_request,
};
use diorite_cql::protocol::envelope::HEADER_BYTES;
use diorite_cql::protocol::response::ReplyHead;
use diorite_cql::protocol::{CqlError, Envelope, Opcode, Version};
use diorite_model::entry;
use diorite_model::schema::{Table, TableEntry};
use diorite_model::token::token;
use diorite_query::budget::Budget;
use diorite_query::engine::{Answered, EngineConfig, OwnedRequest, RowComparer};
use diorite_query::kv::Kv as _;
use diorite_query::{QueryEngine, Session};
use diorite_storage::{CompactionVerdict, ValueSemantics};
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Partitions that clients write to.
pub const PARTITIONS: u64 = 6;

/// Counters that are incremented by themselves.
pub const COUNTERS: u64 = 3;

/// Partitions that [`RowWorld::partition_of`] knows.
const KNOWN_PARTITIONS: u64 = 200;

/// A statement that is carried out.
pub type Running = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// What tablets of rows are made with, and who plans statements for them.
pub struct RowWorld {
    /// The seam below.
    pub kv: Arc<SimKv>,
    engine: Arc<QueryEngine<SimKv>>,
    session: Arc<Session>,
    /// The tablets of both tables.
    pub tablets: Vec<TabletId>,
    /// A partition of the first table for each of its tablets.
    partitions: BTreeMap<TabletId, u64>,
    /// Two counters, in different tablets if there are several, that are incremented together.
    pub pair: [u64; 2],
    said: Arc<Said>,
    /// The table with a covering index, and the number of the index's view.
    covered: (TableId, u64),
    /// A bug: the covering index is taken for complete at once.
    finishes_early: bool,
}

impl RowWorld {
    /// Tables with so many tablets each.
    pub fn new(time: TrueTime, tablets: u32, dice: &mut Dice, bug: Option<Planting>) -> Self {
        let kv = Arc::new(SimKv::new(time));
        if bug == Some(Planting::LeaveTestsOut) {
            kv.leave_tests_out();
        }
        let config = EngineConfig { tablets_per_node: tablets, ..EngineConfig::default() };
        let engine = QueryEngine::with_random(Arc::clone(&kv), config, SplitMix64::new(dice.bits()));
        let mut world = Self {
            kv,
            engine,
            session: Session::new(),
            tablets: Vec::new(),
            partitions: BTreeMap::new(),
            pair: [COUNTERS, COUNTERS + 1],
            said: Arc::default(),
            covered: (TableId(0), 0),
            finishes_early: bug == Some(Planting::CoverEarly),
        };
        let grace_s = *dice.pick(&[0, 0, 1, 3]);
        world.define("CREATE KEYSPACE ks");
        world.define("USE ks");
        world.define(&format!(
            "CREATE TABLE t (k int, c int, s int static, v int, w int, a int, l list<int>, m map<int, int>, PRIMARY KEY (k, c)) \
             WITH gc_grace_seconds = {grace_s} AND transactions = {{'enabled': true}}"
        ));
        world.define("CREATE INDEX ON t (a) USING 'sai'");
        world.define("CREATE TABLE n (k int PRIMARY KEY, n counter)");
        world.define(&format!(
            "CREATE TABLE u (k int PRIMARY KEY, v int, w int) \
             WITH gc_grace_seconds = {grace_s} AND transactions = {{'enabled': true}}"
        ));
        // Its rows are compared while clients are at work.
        drop(poll(&mut world.begin("CREATE UNIQUE INDEX ON u (v)")));
        world.kv.before_views();
        drop(poll(&mut world.begin(
            "CREATE MATERIALIZED VIEW uv AS SELECT * FROM u WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)",
        )));
        drop(poll(&mut world.begin("CREATE INDEX ON u (v) INCLUDE (w)")));
        // The view of all columns gets it, while clients write to it, and nodes that do not know it write to the view.
        world.kv.before_columns();
        drop(poll(&mut world.begin("ALTER TABLE u ADD x int")));
        world.kv.take_new();
        for partition in PARTITIONS..KNOWN_PARTITIONS {
            let tablet = world.tablet_of(&format!("INSERT INTO t (k, c, v) VALUES ({partition}, 0, 0)"));
            world.partitions.entry(tablet).or_insert(partition);
        }
        let mut all: Vec<TabletId> = world.partitions.keys().copied().collect();
        let mut of_counters = Vec::new();
        for counter in 0..KNOWN_PARTITIONS {
            let tablet = world.tablet_of(&format!("UPDATE n SET n = n + 1 WHERE k = {counter}"));
            if !all.contains(&tablet) {
                all.push(tablet);
            }
            of_counters.push(tablet);
        }
        all.extend(world.unique().tablets.iter().map(|range| range.tablet));
        let (catalog, unique) = (world.kv.catalog(), world.unique());
        for view in unique.table.views.iter().filter_map(|view| catalog.table_by_id(view.table)) {
            all.extend(view.tablets.iter().map(|range| range.tablet));
        }
        let (hidden, _) = unique.table.hidden_views().next().expect("it was created");
        world.covered = (unique.table.id, hidden.id);
        let mut others = COUNTERS..KNOWN_PARTITIONS;
        let first = of_counters[COUNTERS as usize];
        world.pair[1] = others.find(|counter| of_counters[*counter as usize] != first).unwrap_or(world.pair[1]);
        all.sort_unstable();
        world.tablets = all;
        world
    }

    fn define(&self, statement: &str) {
        let mut running = self.begin(statement);
        let Poll::Ready(answered) = poll(&mut running) else { panic!("{statement}: waits") };
        assert!(answered.outcome.is_ok(), "{statement}: {:?}", answered.outcome);
    }

    /// Where a statement writes, which is not carried out.
    fn tablet_of(&self, statement: &str) -> TabletId {
        let mut running = self.begin(statement);
        assert!(poll(&mut running).is_pending(), "{statement}: does not write");
        let asked = self.kv.take_new();
        assert!(asked.len() == 1, "{statement}: writes once");
        asked[0].1
    }

    /// A token at which a tablet of either table may be split: that of a partition that clients write to, or of one beside.
    pub fn cut(dice: &mut Dice) -> i64 {
        token(&(dice.range(0, KNOWN_PARTITIONS) as i32).to_be_bytes())
    }

    /// The first table.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.kv.catalog().table("ks", "t").expect("it was created").table)
    }

    /// The table with a unique index, a view, and a covering index.
    pub fn unique(&self) -> Arc<TableEntry> {
        Arc::clone(self.kv.catalog().table("ks", "u").expect("it was created"))
    }

    /// Compares rows for the unique index.
    pub fn comparer(&self) -> RowComparer<SimKv> {
        RowComparer::of(&self.engine)
    }

    /// Looks whether the covering index is complete, as a node does, and says so if it is.
    pub fn look_at_covering(&self) {
        let ((table, view), comparer, kv) = (self.covered, self.comparer(), Arc::clone(&self.kv));
        if self.finishes_early {
            let command = Command::FinishCovering { table, view, outcome: CoveringOutcome::Ready };
            return self.kv.spawn(async move { drop(kv.change_catalog(&command, None).await) });
        }
        self.kv.spawn(async move { drop(comparer.finish_covering(table, view, false).await) });
    }

    /// A partition of a tablet of the first table; `None` for one of the second.
    pub fn partition_of(&self, tablet: TabletId) -> Option<u64> {
        self.partitions.get(&tablet).copied()
    }

    /// Begins to carry out a statement.
    pub fn begin(&self, statement: &str) -> Running {
        let mut bytes = Vec::new();
        let request = ClientRequest::Query { statement, parameters: Parameters::default() };
        encode_request(&mut bytes, &RequestHead::new(Version::V5, 0), &request);
        let owned = OwnedRequest {
            opcode: Opcode::Query,
            version: Version::V5,
            flags: 0,
            body: bytes[HEADER_BYTES..].to_vec(),
            needs_disk: false,
            client: None,
            arrived_ns: 0,
            budget: unlimited(),
        };
        Box::pin(self.engine.answer(Arc::clone(&self.session), owned))
    }

    /// What programs have answered.
    pub fn said(&self) -> Arc<Said> {
        Arc::clone(&self.said)
    }

    /// What values mean. `is_early`, a bug: compactions remove what expires soon.
    pub fn semantics(is_early: bool) -> Arc<dyn ValueSemantics> {
        Arc::new(Rows { is_early })
    }

    /// What reads tablets of all tables: all partition keys are like those of the first, but for the table of the unique
    /// index, whose tablets stay the same.
    pub fn visible(&self) -> VisibleRows {
        let catalog = self.kv.catalog();
        let unique = self.unique();
        let index_tables = unique.table.unique_indexes().filter_map(|(_, unique)| catalog.table_by_id(unique.table));
        let index_table = index_tables.into_iter().next().expect("the index has a table");
        let tablets = index_table.tablets.iter().map(|range| range.tablet).collect();
        VisibleRows::new(&self.table(), (&index_table.table, tablets))
    }
}

/// Statements of the simulation are small.
pub fn unlimited() -> Arc<Budget> {
    Arc::new(Budget::new(Meter::alone(usize::MAX), u64::MAX))
}

/// Polls once.
pub fn poll(running: &mut Running) -> Poll<Answered> {
    pin!(running).poll(&mut Context::from_waker(std::task::Waker::noop()))
}

/// The answer that a client gets.
pub fn response(answered: Answered) -> Result<ClientResponse, CqlError> {
    let mut out = Vec::new();
    answered.outcome?.encode(&mut out, &ReplyHead::new(Version::V5, 0));
    let envelope =
        Envelope { version: Version::V5, flags: out[1], stream: 0, opcode: Opcode::Result, body: &out[HEADER_BYTES..] };
    let decoded = decode_response(&envelope).expect("the server's own encoding");
    Ok(decoded.response)
}

/// By how much compactions are early that are, seconds.
const EARLY_S: u32 = 2;

/// The node's own semantics do the same.
struct Rows {
    is_early: bool,
}

impl ValueSemantics for Rows {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut folded = Vec::new();
        entry::fold(existing, operands, &mut folded).ok()?;
        Some(folded)
    }

    fn fold_apart(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        if !entry::can_fold_apart(operands.iter().copied()) {
            return None;
        }
        self.fold(None, &mut operands.iter().copied())
    }

    fn compact(&self, _: &[u8], value: &[u8], horizon: &Horizon) -> CompactionVerdict {
        let early_s = if self.is_early { EARLY_S } else { 0 };
        match entry::compact(value, Horizon { now_s: horizon.now_s + early_s, ..*horizon }) {
            entry::Compaction::Keep => CompactionVerdict::Keep,
            entry::Compaction::Remove => CompactionVerdict::Remove,
            entry::Compaction::Replace(value) => CompactionVerdict::Replace(value),
        }
    }
}

impl std::fmt::Debug for RowWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowWorld({:?})", self.tablets)
    }
}
