//! The engine: takes requests of a connection, finds or makes their plans, and has them executed.
//!
//! [`QueryEngine::execute_now`] (in [`crate::hot`]) is tried first for EXECUTE; what it declines, and all other requests, come to
//! [`QueryEngine::answer`].
//!
//! Always true: a request is executed against the newest catalog this node has when it begins; a request's future owns all it needs. What
//! was refused because its tablets are gone (`TRUNCATE` came between) is carried out once more with the current ones; a failed write is answered by
//! [`crate::exec::parts`] alone. Left out: encoding answers (the node), other retries (the client's: what may be retried says so by its error).

mod long;
mod write;

use self::long::{Discarded, yield_now};
pub(crate) use self::long::{LONG_BYTES, parsed_bytes, planning_work};
use crate::activity::{Activity, Note, Operation, Running, RunningRequest, StatementActivity};
use crate::auth;
use crate::budget::{Budget, Ended};
use crate::ddl;
use crate::error::{at_consistency, invalid};
use crate::exec::keys::written_count;
use crate::exec::modify::{Defaults, TablePart, Writes};
use crate::exec::parts::{Failure, Means, Progress};
use crate::exec::select::{PageRequest, Read};
use crate::exec::source::{Entries, Source};
use crate::exec::write::{explicit_timestamp, pack_virtual_rows};
use crate::functions::{Environment, UuidSource};
use crate::kv::Kv;
use crate::plan::modify::ModifyPlan;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use crate::plan::{self, Plan, Planned, check_batch};
use crate::prepared::{CurrentPlan, PreparedCache, PreparedStatement, statement_id};
use crate::session::Session;
use crate::system;
use crate::table::{self, TableContext};
use crate::tablets;
use diorite_base::random::SplitMix64;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{self, Statement};
use diorite_cql::language::{ParseErrorKind, parse, redacted};
use diorite_cql::protocol::request::{BatchStatementSource, Prepare};
use diorite_cql::protocol::response::ReplyHead;
use diorite_cql::protocol::{
    Batch, BatchKind, Consistency, CqlError, Envelope, ErrorKind, Execute, Message, Opcode, Prepared, Query,
    QueryParameters, Request, Response, Rows, Value, Values, Version, WriteType,
};
use diorite_model::row::UNSTAMPED;
use diorite_model::schema::{TableEntry, TabletRange};
use futures::future::poll_immediate;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What can be set about the engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Tablets of a new table per node.
    pub shards_per_node: u32,
    /// Whether timestamps that drivers attach to requests by themselves count like `USING TIMESTAMP`.
    pub client_timestamps: bool,
    /// The most bytes of prepared statements.
    pub prepared_cache_bytes: usize,
    /// A page ends after the row that brings it to this many bytes.
    pub page_bytes: usize,
    /// A batch over more partitions than this is answered with a warning.
    pub batch_partitions_warning: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            shards_per_node: 1,
            client_timestamps: false,
            prepared_cache_bytes: 64 << 20,
            page_bytes: 4 << 20,
            batch_partitions_warning: 10_000,
        }
    }
}

/// A request that is executed while its connection goes on reading.
#[derive(Debug, Clone)]
pub struct OwnedRequest {
    /// Its kind: QUERY, PREPARE, EXECUTE or BATCH
    pub opcode: Opcode,
    /// The version of the connection
    pub version: Version,
    /// The flags of its header, without compression
    pub flags: u8,
    /// Its body, no longer compressed
    pub body: Vec<u8>,
    /// It was just found that its row is not in memory ([`ExecuteNow::NeedsDisk`])
    pub needs_disk: bool,
    /// Who sent it
    pub client: Option<SocketAddr>,
    /// When it arrived, on the monotonic clock
    pub arrived_ns: u64,
    /// What it may use
    pub budget: Arc<Budget>,
}

impl OwnedRequest {
    /// It as a message.
    pub(crate) fn envelope(&self) -> Envelope<'_> {
        Envelope { version: self.version, flags: self.flags, stream: 0, opcode: self.opcode, body: &self.body }
    }

    /// Has it end when the statement says that it should, at the latest.
    fn end_in_time(&self, planned: &Planned, bound: &Bound<'_>) -> Result<(), CqlError> {
        let timeout_ns = planned.timeout.as_ref().map(|timeout| timeout.ns(bound)).transpose()?.flatten();
        timeout_ns.into_iter().for_each(|timeout_ns| self.budget.end_by(self.arrived_ns.saturating_add(timeout_ns)));
        Ok(())
    }
}

/// An answer with how it is to be sent.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The result.
    pub response: Response,
    /// For people.
    pub warnings: Vec<String>,
    /// The result's columns may be left out.
    pub skip_metadata: bool,
    /// The columns the client knows (v5).
    pub known_metadata_id: Option<Vec<u8>>,
    /// For the driver's extensions.
    pub custom_payload: Vec<(String, Vec<u8>)>,
}

impl Reply {
    pub(crate) fn plain(response: Response) -> Self {
        Self {
            response,
            warnings: Vec::new(),
            skip_metadata: false,
            known_metadata_id: None,
            custom_payload: Vec::new(),
        }
    }

    /// Bytes of its rows.
    pub fn body_bytes(&self) -> usize {
        match &self.response {
            Response::Rows(rows) => rows.body.len(),
            _ => 0,
        }
    }

    /// Rows in it.
    pub fn row_count(&self) -> u64 {
        match &self.response {
            Response::Rows(rows) => rows.row_count as u64,
            _ => 0,
        }
    }

    /// Appends the RESULT. Warnings and payload go into `head` by the caller, who owns the other extras as well.
    pub fn encode(&self, out: &mut Vec<u8>, head: &ReplyHead<'_>) {
        self.response.encode(out, head, self.skip_metadata, self.known_metadata_id.as_deref());
    }
}

/// What became of a request.
#[derive(Debug)]
pub struct Answered {
    /// What was learned of it.
    pub note: Note,
    /// The answer.
    pub outcome: Result<Reply, CqlError>,
}

pub use crate::hot::{ExecuteNow, ReplyTo, slot_of, write_type_of};

/// How often a statement is sent anew because a tablet is gone. More than once: a tablet is closed before another is given what it held, and that one
/// may be split or merged as well.
const REPLANS: usize = 8;

/// See the top of this module.
#[derive(Debug)]
pub struct QueryEngine<K> {
    pub(crate) kv: Arc<K>,
    pub(crate) config: EngineConfig,
    pub(crate) prepared: PreparedCache,
    pub(crate) uuids: UuidSource,
    pub(crate) activity: Activity,
    /// This node.
    pub(crate) node: NodeId,
}

impl Run<'_> {
    fn means(&self, work: usize, is_batch: bool) -> Means<'_> {
        Means { work, is_batch, budget: &self.request.budget, progress: self.progress }
    }
}

/// What QUERY and EXECUTE have in common once values are in order.
struct Run<'a> {
    values: &'a [Value<'a>],
    parameters: &'a QueryParameters<'a>,
    request: &'a OwnedRequest,
    progress: &'a Progress,
}

impl<K: Kv> QueryEngine<K> {
    /// An engine over `kv`.
    pub fn new(kv: Arc<K>, config: EngineConfig) -> Arc<Self> {
        Self::with_random(kv, config, SplitMix64::from_entropy())
    }

    /// An engine over `kv` whose UUIDs come from `random`.
    pub fn with_random(kv: Arc<K>, config: EngineConfig, random: SplitMix64) -> Arc<Self> {
        let prepared = PreparedCache::new(config.prepared_cache_bytes);
        let uuids = UuidSource::new(random);
        let node = kv.local_node().node;
        Arc::new(Self { kv, config, prepared, uuids, activity: Activity::default(), node })
    }

    /// What requests do, by statement. Whoever calls the engine takes in how long they took.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Memory that prepared statements take, about.
    pub fn prepared_bytes(&self) -> usize {
        self.prepared.bytes()
    }

    /// How many statements are prepared, for metrics.
    pub fn prepared_statements(&self) -> usize {
        self.prepared.len()
    }

    /// Executes a request.
    pub fn answer(
        self: &Arc<Self>,
        session: Arc<Session>,
        request: OwnedRequest,
    ) -> impl Future<Output = Answered> + Send + 'static {
        self.answer_in_turn(session, request, std::future::ready(()))
    }

    /// Executes a request when it is its turn, which lasts until what `turn` gives is dropped. While it waits it can be seen, and ended, as when it runs.
    pub fn answer_in_turn<T: Send>(
        self: &Arc<Self>,
        session: Arc<Session>,
        request: OwnedRequest,
        turn: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Answered> + Send + 'static {
        let engine = Arc::clone(self);
        async move {
            let (mut note, progress) = (Note::default(), Progress::default());
            let budget = &request.budget;
            let work = async {
                let running = engine.begin(&request, progress.clone());
                // A single row, which holds less than a request may gather in its turn.
                if let Some(reply) = engine.read_row(&session, &request, &mut note, &running).await {
                    return Ok(reply);
                }
                let mut turn = std::pin::pin!(turn);
                let _turn = match poll_immediate(turn.as_mut()).await {
                    Some(turn) => turn,
                    None => {
                        running.name(engine.activity.waiting());
                        let turn = turn.await;
                        running.name(engine.activity.others());
                        turn
                    }
                };
                engine.carry_out(&session, &request, &mut note, &running).await
            };
            let outcome = budget.unless_ended(work).await;
            let outcome = match (outcome, budget.ended()) {
                (Ok(Ok(reply)), _) => Ok(reply),
                // What it failed with is that it has ended.
                (Err(why), _) | (Ok(Err(_)), Some(why)) => Err(engine.ended(&request, note.operation, why, &progress)),
                (Ok(outcome), None) => outcome,
            };
            Answered { note, outcome }
        }
    }

    /// What a client is told whose request was ended. A write that has been begun may take effect: nobody says that it did not.
    fn ended(&self, request: &OwnedRequest, operation: Operation, why: Ended, progress: &Progress) -> CqlError {
        let reason = match why {
            Ended::Expired => "the request took longer than it may",
            Ended::Cancelled => "the request was ended by an operator",
        };
        let (asked, serial) = asked_consistency(request);
        if let Some(error) = progress.ended(&*self.kv, reason) {
            return at_consistency(error, asked, serial);
        }
        let message = format!("Operation timed out - {reason}");
        let required = i32::try_from(self.kv.replicas(TabletId(GroupId::CATALOG.0)).required).unwrap_or(i32::MAX);
        let consistency = Consistency::Quorum;
        let write_type = match operation {
            Operation::Read | Operation::Scan | Operation::Aggregate => None,
            // What is not known yet has not done anything.
            Operation::Prepare | Operation::Other => return CqlError::overloaded(message),
            Operation::Conditional => Some(WriteType::Cas),
            Operation::Batch => Some(WriteType::Batch),
            Operation::Write | Operation::Schema | Operation::Access => Some(WriteType::Simple),
        };
        let kind = match write_type {
            Some(write_type) => {
                ErrorKind::WriteTimeout { consistency, received: 0, required, write_type, contentions: 0 }
            }
            None => ErrorKind::ReadTimeout { consistency, received: 0, required, data_present: false },
        };
        at_consistency(CqlError::new(kind, message), asked, serial)
    }

    /// Does work on so many bytes: on another thread if they are many.
    async fn work<T: Send>(&self, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        if bytes <= LONG_BYTES { work() } else { self.kv.run_long(work).await }
    }

    async fn carry_out(
        &self,
        session: &Session,
        request: &OwnedRequest,
        note: &mut Note,
        running: &Running,
    ) -> Result<Reply, CqlError> {
        let envelope = request.envelope();
        let message = self.work(request.body.len(), || Message::decode(&envelope)).await?;
        let asked_by = |parameters: &QueryParameters<'_>| (parameters.consistency, parameters.serial_consistency);
        let (outcome, (asked, serial)) = match message.request {
            Request::Query(query) => {
                (self.query(session, request, &query, note, running).await, asked_by(&query.parameters))
            }
            Request::Prepare(prepare) => {
                note.operation = Operation::Prepare;
                return self.prepare(session, request, &prepare).await;
            }
            Request::Execute(execute) => {
                (self.execute(session, request, &execute, note, running).await, asked_by(&execute.parameters))
            }
            Request::Batch(batch) => {
                note.operation = Operation::Batch;
                (
                    self.batch(session, request, &batch, note, running).await,
                    (batch.consistency, batch.serial_consistency),
                )
            }
            _ => return Err(CqlError::protocol("the query engine takes QUERY, PREPARE, EXECUTE and BATCH")),
        };
        outcome.map_err(|error| at_consistency(error, asked, serial))
    }

    pub(crate) fn environment_now(&self) -> Environment<'_> {
        Environment::new(self.kv.now_us(), &self.uuids)
    }

    /// The surroundings of a request, which may say itself what second it is.
    fn environment<'e>(
        &'e self,
        request: &'e OwnedRequest,
        now_in_seconds: Option<i32>,
    ) -> Result<Environment<'e>, CqlError> {
        let environment = Environment { budget: &request.budget, ..self.environment_now() };
        let Some(now_s) = now_in_seconds else { return Ok(environment) };
        let now_s = u32::try_from(now_s).map_err(|_| invalid("now_in_seconds must not be negative"))?;
        Ok(Environment { now_s, ..environment })
    }

    async fn plan_text(
        &self,
        catalog: &Catalog,
        session: Option<&Session>,
        keyspace: Option<&str>,
        text: &str,
        budget: &Budget,
    ) -> Result<Planned, CqlError> {
        self.work(planning_work(text), || Self::plan_now(catalog, session, keyspace, text, budget)).await
    }

    /// Plans a text, if the session (absent: one that was allowed to before) may do what it says.
    fn plan_now(
        catalog: &Catalog,
        session: Option<&Session>,
        keyspace: Option<&str>,
        text: &str,
        budget: &Budget,
    ) -> Result<Planned, CqlError> {
        let _parsed = budget.hold(parsed_bytes(text))?;
        let parsed = parse(text).map_err(|error| match error.kind {
            ParseErrorKind::Syntax => CqlError::syntax(error.to_string()),
            ParseErrorKind::Invalid => invalid(error.message.clone()),
        })?;
        budget.check()?;
        if let Some(session) = session {
            auth::check_parsed(catalog, session, keyspace, &parsed.statement)?;
        }
        let planned = plan::plan(catalog, keyspace, &parsed)?;
        // The plan is held until the request is over; its own budget has bounded it meanwhile.
        budget.take(usize::try_from(planned.cost.bytes()).unwrap_or(usize::MAX))?;
        Ok(planned)
    }

    async fn query(
        &self,
        session: &Session,
        request: &OwnedRequest,
        query: &Query<'_>,
        note: &mut Note,
        running: &Running,
    ) -> Result<Reply, CqlError> {
        let current = session.keyspace();
        let keyspace = query.parameters.keyspace.or(current.as_ref().map(|keyspace| keyspace.as_str()));
        let catalog = self.kv.catalog();
        let planned = self.plan_text(&catalog, Some(session), keyspace, query.statement, &request.budget).await?;
        let planned = Discarded::new(&*self.kv, planned, planning_work(query.statement), &request.budget);
        note.operation = Operation::of(&planned);
        let redacted = self.work(query.statement.len(), || redacted(query.statement)).await;
        self.name(note, running, self.activity.place_redacted(keyspace, redacted));
        auth::check(&catalog, session, &planned)?;
        let values = bind(&planned, &query.parameters.values)?;
        let mut reply = self
            .run(
                session,
                keyspace,
                &planned,
                Run { values: &values, parameters: &query.parameters, request, progress: &running.progress },
            )
            .await?;
        reply.skip_metadata = false;
        Ok(reply)
    }

    async fn prepare(
        &self,
        session: &Session,
        request: &OwnedRequest,
        prepare: &Prepare<'_>,
    ) -> Result<Reply, CqlError> {
        let current = session.keyspace();
        let keyspace = prepare.keyspace.or(current.as_ref().map(|keyspace| keyspace.as_str()));
        let id = self.work(prepare.statement.len(), || statement_id(keyspace, prepare.statement)).await;
        let catalog = self.kv.catalog();
        if let Some(known) = self.prepared.get(&id) {
            let current = known.current.load();
            if current.planned.is_current(&catalog) {
                // Somebody else may have prepared it: what columns there are is told to those only who may use them.
                auth::check(&catalog, session, &current.planned)?;
                known.must_prepare_again.store(false, Ordering::Relaxed);
                return Ok(Reply::plain(Response::Prepared(Arc::clone(&current.reply))));
            }
        }
        let planned = self.plan_text(&catalog, Some(session), keyspace, prepare.statement, &request.budget).await?;
        let had_others = planned.may_have_had_other_columns();
        let current = current_plan(id, planned, &catalog);
        let reply = Arc::clone(&current.reply);
        let redacted = self.work(prepare.statement.len(), || redacted(prepare.statement)).await;
        let activity = self.activity.place_redacted(keyspace, redacted);
        let text = prepare.statement.to_owned();
        let statement = PreparedStatement::new(id, keyspace.map(str::to_owned), text, activity, current);
        // A client that prepared it on another node before the table was changed comes here as well, and nothing tells it apart.
        statement.result_changed.store(had_others, Ordering::Relaxed);
        if let Some(known) = self.prepared.get(&id) {
            // Other clients still know the columns it had before.
            let changed = had_others || known.current.load().reply.result.id() != reply.result.id();
            let changed = changed || known.result_changed.load(Ordering::Relaxed);
            statement.result_changed.store(changed, Ordering::Relaxed);
        }
        self.prepared.insert(Arc::new(statement));
        Ok(Reply::plain(Response::Prepared(reply)))
    }

    /// The plan of a prepared statement, made again if its table has changed.
    async fn current(
        &self,
        id: &[u8],
        budget: &Budget,
    ) -> Result<(Arc<PreparedStatement>, Arc<CurrentPlan>), CqlError> {
        let statement = self.prepared.get(id).ok_or_else(|| CqlError::unprepared(id))?;
        let current = statement.current.load_full();
        let catalog = self.kv.catalog();
        if current.planned.is_current(&catalog) {
            return Ok((statement, current));
        }
        let planned = self.plan_text(&catalog, None, statement.keyspace.as_deref(), &statement.text, budget).await?;
        let fresh = Arc::new(current_plan(statement.id, planned, &catalog));
        if fresh.reply.markers != current.reply.markers {
            // The client encodes values for the old markers: it has to learn the new ones.
            self.prepared.remove(&statement.id);
            return Err(CqlError::unprepared(id));
        }
        if fresh.reply.result.id() != current.reply.result.id() {
            statement.result_changed.store(true, Ordering::Relaxed);
            statement.must_prepare_again.store(true, Ordering::Relaxed);
        }
        statement.current.store(Arc::clone(&fresh));
        Ok((statement, fresh))
    }

    async fn execute(
        &self,
        session: &Session,
        request: &OwnedRequest,
        execute: &Execute<'_>,
        note: &mut Note,
        running: &Running,
    ) -> Result<Reply, CqlError> {
        let version = request.version;
        let (statement, current) = self.current(execute.id, &request.budget).await?;
        note.operation = Operation::of(&current.planned);
        self.name(note, running, Arc::clone(&statement.activity));
        if statement.would_mislead(version, execute.parameters.skip_metadata) {
            return Err(CqlError::unprepared(execute.id));
        }
        auth::check(&self.kv.catalog(), session, &current.planned)?;
        let values = bind(&current.planned, &execute.parameters.values)?;
        let session_keyspace = session.keyspace();
        let keyspace = statement.keyspace.as_deref().or(session_keyspace.as_ref().map(|keyspace| keyspace.as_str()));
        let progress = &running.progress;
        let run = Run { values: &values, parameters: &execute.parameters, request, progress };
        let mut reply = self.run(session, keyspace, &current.planned, run).await?;
        if let Plan::Select(_) = current.planned.plan {
            reply.skip_metadata = execute.parameters.skip_metadata && statement.may_skip_metadata(version);
            reply.known_metadata_id = execute.result_metadata_id.map(<[u8]>::to_vec);
        }
        if session.learns_tablets() {
            let environment = self.environment(request, execute.parameters.now_in_seconds)?;
            let payload = self.tablet_payload(&current.planned, &Bound { values: &values, environment });
            reply.custom_payload.extend(payload.map(|payload| (tablets::PAYLOAD.to_owned(), payload)));
        }
        Ok(reply)
    }

    async fn run(
        &self,
        session: &Session,
        keyspace: Option<&str>,
        planned: &Planned,
        run: Run<'_>,
    ) -> Result<Reply, CqlError> {
        let environment = self.environment(run.request, run.parameters.now_in_seconds)?;
        let bound = Bound { values: run.values, environment };
        run.request.end_in_time(planned, &bound)?;
        match &planned.plan {
            Plan::Select(select) => {
                if run.parameters.consistency == Consistency::Any {
                    return Err(invalid("ANY ConsistencyLevel is only supported for writes"));
                }
                let rows = self.select(select, &bound, run.parameters, run.request.needs_disk).await?;
                let warnings = select.warning().map(str::to_owned).into_iter().collect();
                Ok(Reply { warnings, ..Reply::plain(Response::Rows(rows)) })
            }
            Plan::Modify(modify) => {
                check_write_consistency(run.parameters.consistency)?;
                let write_type = match &modify.condition {
                    Some(_) => WriteType::Cas,
                    None if modify.table.table().is_counter() => WriteType::Counter,
                    None => WriteType::Simple,
                };
                let defaults = self.defaults(run.parameters.default_timestamp_us)?;
                let gather = |written: &[TablePart]| {
                    let mut writes = Writes::besides(written);
                    writes.add(modify, &bound, &self.entry(&modify.table)?.tablets, defaults)?;
                    Ok(writes)
                };
                let work = work_of(run.request, [(&**modify, &bound)]);
                self.write(gather, &[modify], write_type, run.means(work, false)).await
            }
            Plan::Batch(batch) => {
                check_write_consistency(run.parameters.consistency)?;
                let mut defaults = self.defaults(run.parameters.default_timestamp_us)?;
                if let Some(term) = &batch.timestamp {
                    defaults.timestamp_us = explicit_timestamp(term, &bound)?;
                }
                let gather = |written: &[TablePart]| {
                    let mut writes = Writes::besides(written);
                    for statement in &batch.statements {
                        writes.add(statement, &bound, &self.entry(&statement.table)?.tablets, defaults)?;
                    }
                    Ok(writes)
                };
                let plans: Vec<&ModifyPlan> = batch.statements.iter().collect();
                let work = work_of(run.request, plans.iter().map(|plan| (*plan, &bound)));
                let (write_type, means) = (batch_write_type(batch.kind), run.means(work, true));
                if plans.iter().any(|plan| plan.answer.status_row) {
                    return self.status_batch(&plans, |_| bound, defaults, write_type, means).await;
                }
                self.write(gather, &plans, write_type, means).await
            }
            Plan::Use(name) => self.define(session, keyspace, &Statement::Use(name.clone()), &run.request.budget).await,
            Plan::Definition(statement) => {
                // What has changed the catalog is told so, however long that took.
                if !matches!(statement, Statement::Describe(_)) {
                    run.request.budget.end_never();
                }
                self.define(session, keyspace, statement, &run.request.budget).await
            }
        }
    }

    async fn define(
        &self,
        session: &Session,
        keyspace: Option<&str>,
        statement: &Statement,
        budget: &Budget,
    ) -> Result<Reply, CqlError> {
        if auth::handles(statement) {
            return auth::execute(&*self.kv, session, keyspace, statement).await.map(Reply::plain);
        }
        auth::check_definition(&self.kv.catalog(), session, keyspace, statement)?;
        let defaults = ddl::Defaults { shards_per_node: self.config.shards_per_node };
        let (response, warnings) = ddl::execute(&*self.kv, defaults, keyspace, statement, budget).await?;
        if let Response::SetKeyspace(name) = &response {
            session.set_keyspace(name);
        }
        if let (Response::SchemaChange(_), Some(resource)) = (&response, auth::made_by(keyspace, statement)) {
            let granted = auth::grant_to_maker(&*self.kv, session, &resource).await;
            // The object is there, whatever became of its grant.
            let progress = Progress::default();
            (0..2).for_each(|_| progress.add_part());
            progress.answered(None);
            granted.map_err(|error| progress.answer(&*self.kv, Failure::Statement(error)))?;
        }
        Ok(Reply { warnings, ..Reply::plain(response) })
    }

    fn defaults(&self, attached_us: Option<i64>) -> Result<Defaults, CqlError> {
        match attached_us.filter(|_| self.config.client_timestamps) {
            Some(UNSTAMPED) => Err(invalid("The timestamp is out of range")),
            timestamp_us => Ok(Defaults { timestamp_us }),
        }
    }

    /// The table with its tablets, as the catalog has them now.
    fn entry(&self, table: &TableContext) -> Result<Arc<TableEntry>, CqlError> {
        let catalog = self.kv.catalog();
        let entry = catalog.table_by_id(table.table().id);
        let entry = entry.ok_or_else(|| invalid(format!("table {} does not exist", table.table().name)))?;
        Ok(Arc::clone(entry))
    }

    async fn select(
        &self,
        plan: &SelectPlan,
        bound: &Bound<'_>,
        parameters: &QueryParameters<'_>,
        needs_disk: bool,
    ) -> Result<Rows, CqlError> {
        let page = PageRequest {
            page_size: parameters.page_size,
            state: parameters.paging_state,
            max_bytes: self.config.page_bytes,
        };
        if plan.table.source() == table::Source::Virtual {
            let source = Source::Memory { kv: &*self.kv, entries: self.virtual_rows(plan, bound).await? };
            let tablets = &[TabletRange { tablet: TabletId(0), first_token: i64::MIN }];
            return Read { plan, bound, source: &source, tablets }.execute(page).await;
        }
        let staleness_ms = plan.table.staleness_ms(parameters.consistency);
        let mut tries = 0..=REPLANS;
        loop {
            let budget = bound.environment.budget;
            let (entry, source) =
                (self.entry(&plan.table)?, Source::tablets(&*self.kv, needs_disk, staleness_ms, budget));
            let outcome = Read { plan, bound, source: &source, tablets: &entry.tablets }.execute(page).await;
            tries.next();
            // The table has been given other tablets meanwhile, or is gone. Nothing was sent yet: read anew.
            if tries.is_empty() || !source.met_missing_tablet() {
                return outcome;
            }
        }
    }

    /// The rows of a system table, packed.
    async fn virtual_rows(&self, plan: &SelectPlan, bound: &Bound<'_>) -> Result<Entries, CqlError> {
        let definition = plan.table.table();
        let source = system::Source::new(&*self.kv);
        let pack = || {
            let rows = source.rows(&definition.keyspace, &definition.name, bound.environment.budget)?;
            pack_virtual_rows(&plan.table, &rows)
        };
        if system::is_short(&definition.keyspace) { pack() } else { self.kv.run_long(pack).await }
    }

    async fn batch(
        &self,
        session: &Session,
        request: &OwnedRequest,
        batch: &Batch<'_>,
        note: &mut Note,
        running: &Running,
    ) -> Result<Reply, CqlError> {
        check_write_consistency(batch.consistency)?;
        let session_keyspace = session.keyspace();
        let keyspace = batch.keyspace.or(session_keyspace.as_ref().map(|keyspace| keyspace.as_str()));
        let catalog = self.kv.catalog();
        let (planned, values) = self.plan_batch(session, request, batch, &catalog, keyspace).await?;
        self.name_batch(batch, keyspace, note, running).await;
        if planned.iter().any(|plan| Operation::of(plan) == Operation::Conditional) {
            note.operation = Operation::Conditional;
        }
        let mut plans = Vec::with_capacity(planned.len());
        for planned in planned.iter() {
            match &planned.plan {
                Plan::Modify(modify) => plans.push(&**modify),
                _ => {
                    return Err(invalid(
                        "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
                    ));
                }
            }
        }
        if plans.is_empty() {
            return Ok(Reply::plain(Response::Void));
        }
        let kind = match batch.kind {
            BatchKind::Logged => ast::BatchKind::Logged,
            BatchKind::Unlogged => ast::BatchKind::Unlogged,
            BatchKind::Counter => ast::BatchKind::Counter,
        };
        let defaults = self.defaults(batch.default_timestamp_us)?;
        let environment = self.environment(request, batch.now_in_seconds)?;
        let bind_all = || {
            check_batch(kind, false, &plans)?;
            let bound = planned.iter().zip(&values).map(|(planned, values)| bind(planned, values));
            let values = bound.collect::<Result<Vec<_>, _>>()?;
            for (planned, values) in planned.iter().zip(&values) {
                request.end_in_time(planned, &Bound { values, environment })?;
            }
            Ok::<_, CqlError>(values)
        };
        let values = self.work(request.body.len(), bind_all).await?;
        let bounds: Vec<Bound<'_>> = values.iter().map(|values| Bound { values, environment }).collect();
        let gather = |written: &[TablePart]| {
            let mut writes = Writes::besides(written);
            let mut entries: Vec<Arc<TableEntry>> = Vec::new();
            for (bound, plan) in bounds.iter().zip(&plans) {
                let id = plan.table.table().id;
                let known = entries.iter().position(|entry| entry.table.id == id);
                let at = known.unwrap_or(entries.len());
                if known.is_none() {
                    entries.push(self.entry(&plan.table)?);
                }
                writes.add(plan, bound, &entries[at].tablets, defaults)?;
            }
            Ok(writes)
        };
        let work = work_of(request, plans.iter().copied().zip(&bounds));
        let means = Means { work, is_batch: true, budget: &request.budget, progress: &running.progress };
        if plans.iter().any(|plan| plan.answer.status_row) {
            return self.status_batch(&plans, |at: usize| bounds[at], defaults, batch_write_type(kind), means).await;
        }
        self.write(gather, &plans, batch_write_type(kind), means).await
    }

    /// The plans of a batch's statements, and their values.
    async fn plan_batch<'r, 'b>(
        &'r self,
        session: &Session,
        request: &'r OwnedRequest,
        batch: &Batch<'b>,
        catalog: &Catalog,
        keyspace: Option<&str>,
    ) -> Result<(Discarded<'r, K, Vec<Arc<Planned>>>, Vec<Values<'b>>), CqlError> {
        let budget = &request.budget;
        let (count, work) = (batch.statements.len(), request.body.len());
        let mut planned = Discarded::new(&*self.kv, Vec::with_capacity(count), work, budget);
        let mut values = Vec::with_capacity(count);
        // How much was done since others had their turn.
        let mut done_bytes = 0;
        for statement in batch.statements.iter() {
            budget.check()?;
            budget.take(BATCH_STATEMENT_BYTES)?;
            let plan = match statement.source {
                BatchStatementSource::Text(text) => {
                    done_bytes += planning_work(text) + BATCH_STATEMENT_BYTES;
                    let is_much = done_bytes > LONG_BYTES;
                    let plan = || Self::plan_now(catalog, Some(session), keyspace, text, budget);
                    done_bytes = if is_much { 0 } else { done_bytes };
                    Arc::new(if is_much { self.kv.run_long(plan).await } else { plan() }?)
                }
                BatchStatementSource::Prepared(id) => {
                    done_bytes += PREPARED_STATEMENT_BYTES;
                    if done_bytes > LONG_BYTES {
                        done_bytes = 0;
                        yield_now().await;
                    }
                    Arc::clone(&self.current(id, budget).await?.1.planned)
                }
            };
            auth::check(catalog, session, &plan)?;
            planned.push(plan);
            values.push(statement.values);
        }
        Ok((planned, values))
    }

    /// A request begins, and runs until what is returned is dropped.
    fn begin(&self, request: &OwnedRequest, progress: Progress) -> Running {
        let request = RunningRequest {
            statement: self.activity.others(),
            client: request.client,
            arrived_ns: request.arrived_ns,
            budget: Arc::clone(&request.budget),
            number: 0,
        };
        self.activity.begin(request, progress)
    }

    /// It is known what a request carries out.
    pub(crate) fn name(&self, note: &mut Note, running: &Running, statement: Arc<StatementActivity>) {
        note.statement = Some(Arc::clone(&statement));
        running.name(statement);
    }

    /// A batch is known by the first of its statements.
    async fn name_batch(&self, batch: &Batch<'_>, keyspace: Option<&str>, note: &mut Note, running: &Running) {
        let first = match batch.statements.iter().next().map(|first| first.source) {
            Some(BatchStatementSource::Text(text)) => Some(self.work(text.len(), || redacted(text)).await),
            Some(BatchStatementSource::Prepared(id)) => self.prepared.get(id).map(|known| known.activity.text.clone()),
            None => None,
        };
        let Some(first) = first else { return };
        let more = if batch.statements.len() > 1 { " …;" } else { "" };
        let text = format!("BEGIN BATCH {first};{more} APPLY BATCH");
        self.name(note, running, self.activity.place_redacted(keyspace, text));
    }
}

/// What a statement of a batch costs beside its text and values.
const BATCH_STATEMENT_BYTES: usize = 1 << 10;
/// How much work it is to find a prepared one, in bytes.
const PREPARED_STATEMENT_BYTES: usize = 64;
/// How much work it is to make the mutations of a write, in bytes: its own, for each of the rows that its `IN`s may name.
fn work_of<'a>(request: &OwnedRequest, statements: impl IntoIterator<Item = (&'a ModifyPlan, &'a Bound<'a>)>) -> usize {
    let rows = statements.into_iter().map(|(plan, bound)| written_count(&plan.restrictions, bound)).max();
    request.body.len().saturating_mul(rows.unwrap_or(1))
}

/// The consistency levels that a request asked for.
fn asked_consistency(request: &OwnedRequest) -> (Consistency, Option<Consistency>) {
    let OwnedRequest { version, flags, opcode, body, .. } = request;
    let envelope = Envelope { version: *version, flags: *flags, stream: 0, opcode: *opcode, body };
    match Message::decode(&envelope).map(|message| message.request) {
        Ok(Request::Query(query)) => (query.parameters.consistency, query.parameters.serial_consistency),
        Ok(Request::Execute(execute)) => (execute.parameters.consistency, execute.parameters.serial_consistency),
        Ok(Request::Batch(batch)) => (batch.consistency, batch.serial_consistency),
        _ => (Consistency::Quorum, None),
    }
}

fn batch_write_type(kind: ast::BatchKind) -> WriteType {
    match kind {
        ast::BatchKind::Logged => WriteType::Batch,
        ast::BatchKind::Unlogged => WriteType::UnloggedBatch,
        ast::BatchKind::Counter => WriteType::Counter,
    }
}

fn check_write_consistency(consistency: Consistency) -> Result<(), CqlError> {
    if consistency.is_serial() {
        return Err(invalid("You must use conditional updates for serializable writes"));
    }
    Ok(())
}

/// A plan with what clients are told about it.
fn current_plan(id: [u8; 16], planned: Planned, catalog: &Catalog) -> CurrentPlan {
    let reply = Prepared { id: id.to_vec(), markers: planned.markers.clone(), result: Arc::clone(&planned.result) };
    let resolved = crate::hot::resolve(&planned, catalog);
    CurrentPlan { planned: Arc::new(planned), reply: Arc::new(reply), resolved }
}

/// Puts values in the order of the markers.
fn bind<'a>(planned: &Planned, values: &Values<'a>) -> Result<Vec<Value<'a>>, CqlError> {
    let wanted = planned.marker_count;
    if !values.is_named() {
        if values.len() != wanted {
            return Err(invalid(format!(
                "Invalid amount of bind variables: {wanted} expected, {} given",
                values.len()
            )));
        }
        return Ok(values.iter().collect());
    }
    let given: Vec<(Option<&str>, Value<'a>)> = values.iter_named().collect();
    let mut bound = Vec::with_capacity(wanted);
    for marker in &planned.markers.columns {
        let found = given.iter().rfind(|(name, _)| *name == Some(marker.name.as_str()));
        match found {
            Some((_, value)) => bound.push(*value),
            None => return Err(invalid(format!("Invalid amount of bind variables: no value for {}", marker.name))),
        }
    }
    Ok(bound)
}
