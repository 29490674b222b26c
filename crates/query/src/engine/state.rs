//! The engine's state, which all requests share.
//!
//! Always true: a request sees the newest catalog that this node has when it begins. Left out: the requests.

use super::in_advance::InAdvance;
use super::long::LONG_BYTES;
use super::outcomes::TransactionOutcomes;
use super::request::OwnedRequest;
use crate::activity::Activity;
use crate::audit::Auditor;
use crate::error::{invalid, not_begun};
use crate::exec::attempts::Attempts;
use crate::exec::modify::Defaults;
use crate::functions::{Environment, UuidSource};
use crate::kv::Kv;
use crate::prepared::PreparedCache;
use crate::table::TableContext;
use crate::trace::Traces;
use diorite_base::random::{Random, SplitMix64};
use diorite_base::{NodeId, TabletId};
use diorite_cql::protocol::CqlError;
use diorite_model::row::UNSTAMPED;
use diorite_model::schema::TableEntry;
use std::sync::Arc;

/// Options of the engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Tablets of a new table for each node.
    pub tablets_per_node: u32,
    /// The most replicas of tablets that a node can hold.
    pub most_tablets_per_node: u32,
    /// Whether the default timestamps that drivers attach to requests count like `USING TIMESTAMP`.
    pub client_timestamps: bool,
    /// The most memory for prepared statements, bytes.
    pub prepared_cache_bytes: usize,
    /// A page ends after the row that brings it to this many bytes.
    pub page_bytes: usize,
    /// A batch over more partitions than this is answered with a warning.
    pub batch_partitions_warning: usize,
    /// Who keeps the audit log.
    pub auditor: Auditor,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            tablets_per_node: 1,
            most_tablets_per_node: u32::MAX,
            client_timestamps: false,
            prepared_cache_bytes: 64 << 20,
            page_bytes: 4 << 20,
            batch_partitions_warning: 10_000,
            auditor: Auditor::default(),
        }
    }
}

/// How often a read is planned again because a tablet does not exist any more. More than once, as the tablet that
/// replaces it may be split or merged too.
pub(super) const REPLANS: usize = 8;

/// Takes requests of connections and answers them; see [`crate::engine`].
#[derive(Debug)]
pub struct QueryEngine<K> {
    pub(super) kv: Arc<K>,
    pub(super) config: EngineConfig,
    pub(super) prepared: PreparedCache,
    pub(super) uuids: UuidSource,
    pub(super) activity: Activity,
    pub(super) outcomes: TransactionOutcomes,
    pub(super) attempts: Arc<Attempts>,
    pub(super) in_advance: Arc<InAdvance>,
    pub(super) traces: Traces,
    /// This node.
    pub(super) node: NodeId,
}

impl<K: Kv> QueryEngine<K> {
    /// An engine over `kv`.
    pub fn new(kv: Arc<K>, config: EngineConfig) -> Arc<Self> {
        Self::with_random(kv, config, SplitMix64::from_entropy())
    }

    /// An engine over `kv` whose UUIDs come from `random`.
    pub fn with_random(kv: Arc<K>, config: EngineConfig, random: SplitMix64) -> Arc<Self> {
        let prepared = PreparedCache::new(config.prepared_cache_bytes);
        let node = kv.local_node().node;
        let traces = Traces::new(node, random.clone().next_u64());
        let uuids = UuidSource::new(random);
        let (activity, outcomes, in_advance) = (Activity::default(), TransactionOutcomes::default(), Arc::default());
        let attempts = Arc::default();
        Arc::new(Self { kv, config, prepared, uuids, activity, outcomes, attempts, in_advance, traces, node })
    }

    /// Statistics of requests by statement. The caller of the engine records their durations.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The traced requests that this node keeps. The caller of the engine begins them.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// How the transactions over several tablets that this node has coordinated have ended.
    pub fn transaction_outcomes(&self) -> &TransactionOutcomes {
        &self.outcomes
    }

    /// Memory that prepared statements take, about.
    pub fn prepared_bytes(&self) -> usize {
        self.prepared.bytes()
    }

    /// How many statements are prepared, for metrics.
    pub fn prepared_statements(&self) -> usize {
        self.prepared.len()
    }

    /// Does work on this many bytes: on another thread if it is long, unless that is refused. For what comes before a request has an effect.
    pub(super) async fn work<T: Send>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, CqlError> + Send,
    ) -> Result<T, CqlError> {
        if bytes <= LONG_BYTES {
            return work();
        }
        self.kv.run_long(work).await.unwrap_or_else(|refused| Err(not_begun(&refused)))
    }

    /// The same; it is never refused. For what comes after.
    pub(super) async fn finish<T: Send>(&self, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        if bytes <= LONG_BYTES { work() } else { self.kv.finish_long(work).await }
    }

    pub(super) fn environment_now(&self) -> Environment<'_> {
        Environment::new(self.kv.now_us(), &self.uuids)
    }

    /// The environment of a request, which may set the current second itself.
    pub(super) fn environment<'e>(
        &'e self,
        request: &'e OwnedRequest,
        now_in_seconds: Option<i32>,
    ) -> Result<Environment<'e>, CqlError> {
        let environment = Environment { budget: &request.budget, ..self.environment_now() };
        let Some(now_s) = now_in_seconds else { return Ok(environment) };
        let now_s = u32::try_from(now_s).map_err(|_| invalid("now_in_seconds must not be negative"))?;
        Ok(Environment { now_s, ..environment })
    }

    pub(super) fn defaults(&self, attached_us: Option<i64>) -> Result<Defaults, CqlError> {
        match attached_us.filter(|_| self.config.client_timestamps) {
            Some(UNSTAMPED) => Err(invalid("The timestamp is out of range")),
            timestamp_us => Ok(Defaults { timestamp_us, is_explicit: false }),
        }
    }

    /// The table with its tablets, as the catalog has them now.
    pub(super) fn entry(&self, table: &TableContext) -> Result<Arc<TableEntry>, CqlError> {
        let catalog = self.kv.catalog();
        let entry = catalog.table_by_id(table.table().id);
        let entry = entry.ok_or_else(|| invalid(format!("table {} does not exist", table.table().name)))?;
        Ok(Arc::clone(entry))
    }

    /// The same for a write.
    pub(super) fn entry_to_write(&self, table: &TableContext) -> Result<Arc<TableEntry>, CqlError> {
        let entry = self.entry(table)?;
        // What was planned without a view must not reach tablets that do not know the view yet: those of a table that
        // was truncated meanwhile.
        if table.table().lacks_views_of(&entry.table) {
            return Err(CqlError::overloaded("the table has got a materialized view or a covering index: try again"));
        }
        Ok(entry)
    }

    /// Whether the tablet is known to be led by another node.
    #[inline]
    pub(super) fn is_led_elsewhere(&self, tablet: TabletId) -> bool {
        self.kv.leader(tablet).is_some_and(|leader| leader != self.node)
    }
}
