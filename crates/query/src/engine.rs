//! The engine: takes requests of a connection, finds or makes their plans, and has them executed.
//!
//! [`QueryEngine::execute_now`] (in [`crate::hot`]) is tried first for EXECUTE; what it declines, and all other requests, come to
//! [`QueryEngine::answer`].
//!
//! Always true: a request is executed against the newest catalog this node has when it begins; a request's future owns all it needs. What
//! was refused because its tablets are gone (`TRUNCATE` came between) is carried out once more with the current ones. Left out: encoding answers
//! (the node), other retries (the client's: what may be retried says so by its error).

use crate::activity::{Activity, Note, Operation, Running, RunningRequest, StatementActivity};
use crate::auth;
use crate::ddl;
use crate::error::{at_consistency, invalid, kv_error};
use crate::exec::modify::{Defaults, TablePart, Writes};
use crate::exec::outcome;
use crate::exec::select::{PageRequest, Read};
use crate::exec::source::Source;
use crate::exec::write::{explicit_timestamp, pack_virtual_rows};
use crate::functions::{Environment, UuidSource};
use crate::kv::{Kv, KvError, WriteReply};
use crate::plan::modify::ModifyPlan;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use crate::plan::{self, Plan, Planned, check_batch};
use crate::prepared::{CurrentPlan, PreparedCache, PreparedStatement, statement_id};
use crate::program::ProgramReply;
use crate::session::Session;
use crate::system;
use crate::table::{self, TableContext};
use crate::tablets;
use diorite_base::random::SplitMix64;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{self, Statement};
use diorite_cql::language::{ParseErrorKind, parse, redacted};
use diorite_cql::protocol::request::{BatchStatementSource, Prepare};
use diorite_cql::protocol::response::ReplyHead;
use diorite_cql::protocol::{
    Batch, BatchKind, Consistency, CqlError, Envelope, Execute, Message, Opcode, Prepared, Query, QueryParameters,
    Request, Response, Rows, Value, Values, Version, WriteType,
};
use diorite_model::row::UNSTAMPED;
use diorite_model::schema::{TableEntry, TabletRange};
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
    fn plain(response: Response) -> Self {
        Self {
            response,
            warnings: Vec::new(),
            skip_metadata: false,
            known_metadata_id: None,
            custom_payload: Vec::new(),
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

pub use crate::hot::{ExecuteNow, ReplyTo, slot_of};

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

/// What QUERY and EXECUTE have in common once values are in order.
struct Run<'a> {
    values: &'a [Value<'a>],
    parameters: &'a QueryParameters<'a>,
    needs_disk: bool,
}

/// How often a statement is sent anew because a tablet is gone. More than once: a tablet is closed before another is given what it held, and that one
/// may be split or merged as well.
const REPLANS: usize = 8;

/// What arrived of a write.
#[derive(Default)]
struct Sent {
    /// Where it took effect.
    written: Vec<TablePart>,
    /// What programs answered.
    replies: Vec<WriteReply>,
}

impl<K: Kv> QueryEngine<K> {
    /// An engine over `kv`.
    pub fn new(kv: Arc<K>, config: EngineConfig) -> Arc<Self> {
        let prepared = PreparedCache::new(config.prepared_cache_bytes);
        let uuids = UuidSource::new(SplitMix64::from_entropy());
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
        let engine = Arc::clone(self);
        async move {
            let mut note = Note::default();
            let outcome = engine.carry_out(&session, &request, &mut note).await;
            Answered { note, outcome }
        }
    }

    async fn carry_out(&self, session: &Session, request: &OwnedRequest, note: &mut Note) -> Result<Reply, CqlError> {
        let envelope = Envelope {
            version: request.version,
            flags: request.flags,
            stream: 0,
            opcode: request.opcode,
            body: &request.body,
        };
        let message = Message::decode(&envelope)?;
        let asked_by = |parameters: &QueryParameters<'_>| (parameters.consistency, parameters.serial_consistency);
        let (outcome, (asked, serial)) = match message.request {
            Request::Query(query) => (self.query(session, request, &query, note).await, asked_by(&query.parameters)),
            Request::Prepare(prepare) => {
                note.operation = Operation::Prepare;
                return self.prepare(session, &prepare);
            }
            Request::Execute(execute) => {
                (self.execute(session, request, &execute, note).await, asked_by(&execute.parameters))
            }
            Request::Batch(batch) => {
                note.operation = Operation::Batch;
                (self.batch(session, request, &batch, note).await, (batch.consistency, batch.serial_consistency))
            }
            _ => return Err(CqlError::protocol("the query engine takes QUERY, PREPARE, EXECUTE and BATCH")),
        };
        outcome.map_err(|error| at_consistency(error, asked, serial))
    }

    pub(crate) fn environment_now(&self) -> Environment<'_> {
        Environment::new(self.kv.now_us(), &self.uuids)
    }

    /// The surroundings of a request, which may say itself what second it is.
    fn environment(&self, now_in_seconds: Option<i32>) -> Result<Environment<'_>, CqlError> {
        let environment = self.environment_now();
        let Some(now_s) = now_in_seconds else { return Ok(environment) };
        let now_s = u32::try_from(now_s).map_err(|_| invalid("now_in_seconds must not be negative"))?;
        Ok(Environment { now_s, ..environment })
    }

    fn plan_text(&self, catalog: &Catalog, keyspace: Option<&str>, text: &str) -> Result<Planned, CqlError> {
        let parsed = parse(text).map_err(|error| match error.kind {
            ParseErrorKind::Syntax => CqlError::syntax(error.to_string()),
            ParseErrorKind::Invalid => invalid(error.message.clone()),
        })?;
        plan::plan(catalog, keyspace, &parsed)
    }

    async fn query(
        &self,
        session: &Session,
        request: &OwnedRequest,
        query: &Query<'_>,
        note: &mut Note,
    ) -> Result<Reply, CqlError> {
        let current = session.keyspace();
        let keyspace = query.parameters.keyspace.or(current.as_ref().map(|keyspace| keyspace.as_str()));
        let catalog = self.kv.catalog();
        let planned = self.plan_text(&catalog, keyspace, query.statement)?;
        note.operation = Operation::of(&planned);
        let _running = self.begin(request, note, self.activity.place(keyspace, query.statement));
        auth::check(&catalog, session, &planned)?;
        let values = bind(&planned, &query.parameters.values)?;
        let mut reply = self
            .run(session, keyspace, &planned, Run { values: &values, parameters: &query.parameters, needs_disk: false })
            .await?;
        reply.skip_metadata = false;
        Ok(reply)
    }

    fn prepare(&self, session: &Session, prepare: &Prepare<'_>) -> Result<Reply, CqlError> {
        let current = session.keyspace();
        let keyspace = prepare.keyspace.or(current.as_ref().map(|keyspace| keyspace.as_str()));
        let id = statement_id(keyspace, prepare.statement);
        let catalog = self.kv.catalog();
        if let Some(known) = self.prepared.get(&id) {
            let current = known.current.load();
            if current.planned.is_current(&catalog) {
                known.must_prepare_again.store(false, Ordering::Relaxed);
                return Ok(Reply::plain(Response::Prepared(Arc::clone(&current.reply))));
            }
        }
        let planned = self.plan_text(&catalog, keyspace, prepare.statement)?;
        let had_others = planned.may_have_had_other_columns();
        let current = current_plan(id, planned, &catalog);
        let reply = Arc::clone(&current.reply);
        let activity = self.activity.place(keyspace, prepare.statement);
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
    pub(crate) fn current(&self, id: &[u8]) -> Result<(Arc<PreparedStatement>, Arc<CurrentPlan>), CqlError> {
        let statement = self.prepared.get(id).ok_or_else(|| CqlError::unprepared(id))?;
        let current = statement.current.load_full();
        let catalog = self.kv.catalog();
        if current.planned.is_current(&catalog) {
            return Ok((statement, current));
        }
        let planned = self.plan_text(&catalog, statement.keyspace.as_deref(), &statement.text)?;
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
    ) -> Result<Reply, CqlError> {
        let (version, needs_disk) = (request.version, request.needs_disk);
        let (statement, current) = self.current(execute.id)?;
        note.operation = Operation::of(&current.planned);
        let _running = self.begin(request, note, Arc::clone(&statement.activity));
        if statement.would_mislead(version, execute.parameters.skip_metadata) {
            return Err(CqlError::unprepared(execute.id));
        }
        auth::check(&self.kv.catalog(), session, &current.planned)?;
        let values = bind(&current.planned, &execute.parameters.values)?;
        let session_keyspace = session.keyspace();
        let keyspace = statement.keyspace.as_deref().or(session_keyspace.as_ref().map(|keyspace| keyspace.as_str()));
        let run = Run { values: &values, parameters: &execute.parameters, needs_disk };
        let mut reply = self.run(session, keyspace, &current.planned, run).await?;
        if let Plan::Select(_) = current.planned.plan {
            reply.skip_metadata = execute.parameters.skip_metadata && statement.may_skip_metadata(version);
            reply.known_metadata_id = execute.result_metadata_id.map(<[u8]>::to_vec);
        }
        if session.learns_tablets() {
            let environment = self.environment(execute.parameters.now_in_seconds)?;
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
        let bound = Bound { values: run.values, environment: self.environment(run.parameters.now_in_seconds)? };
        match &planned.plan {
            Plan::Select(select) => {
                if run.parameters.consistency == Consistency::Any {
                    return Err(invalid("ANY ConsistencyLevel is only supported for writes"));
                }
                let rows = self.select(select, &bound, run.parameters, run.needs_disk).await?;
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
                self.write(gather, &[modify], write_type, false).await
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
                if plans.iter().any(|plan| plan.answer.status_row) {
                    return self.status_batch(&plans, |_| bound, defaults, batch_write_type(batch.kind)).await;
                }
                self.write(gather, &plans, batch_write_type(batch.kind), true).await
            }
            Plan::Use(name) => self.define(session, keyspace, &Statement::Use(name.clone())).await,
            Plan::Definition(statement) => self.define(session, keyspace, statement).await,
        }
    }

    async fn define(
        &self,
        session: &Session,
        keyspace: Option<&str>,
        statement: &Statement,
    ) -> Result<Reply, CqlError> {
        if auth::handles(statement) {
            return auth::execute(&*self.kv, session, keyspace, statement).await.map(Reply::plain);
        }
        auth::check_definition(&self.kv.catalog(), session, keyspace, statement)?;
        let defaults = ddl::Defaults { shards_per_node: self.config.shards_per_node };
        let (response, warnings) = ddl::execute(&*self.kv, defaults, keyspace, statement).await?;
        if let Response::SetKeyspace(name) = &response {
            session.set_keyspace(name);
        }
        if let (Response::SchemaChange(_), Some(resource)) = (&response, auth::made_by(keyspace, statement)) {
            auth::grant_to_maker(&*self.kv, session, &resource).await?;
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
            let definition = plan.table.table();
            let rows = system::rows(&*self.kv, &definition.keyspace, &definition.name);
            let source = Source::<K>::Memory(pack_virtual_rows(&plan.table, &rows)?);
            let tablets = &[TabletRange { tablet: TabletId(0), first_token: i64::MIN }];
            return Read { plan, bound, source: &source, tablets }.execute(page).await;
        }
        let staleness_ms = plan.table.staleness_ms(parameters.consistency);
        let mut tries = 0..=REPLANS;
        loop {
            let (entry, source) = (self.entry(&plan.table)?, Source::tablets(&*self.kv, needs_disk, staleness_ms));
            let outcome = Read { plan, bound, source: &source, tablets: &entry.tablets }.execute(page).await;
            tries.next();
            // The table has been given other tablets meanwhile, or is gone. Nothing was sent yet: read anew.
            if tries.is_empty() || !source.met_missing_tablet() {
                return outcome;
            }
        }
    }

    /// Sends what `gather` gives to the tablets and makes the answer.
    async fn write(
        &self,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync,
        plans: &[&ModifyPlan],
        write_type: WriteType,
        is_batch: bool,
    ) -> Result<Reply, CqlError> {
        let writes = gather(&[])?;
        let is_conditional = writes.is_conditional();
        if writes.strays_from_condition() {
            return Err(invalid("Batch with conditions cannot span multiple partitions"));
        }
        let write_type = if is_conditional { WriteType::Cas } else { write_type };
        let mut warnings = Vec::new();
        if is_batch && writes.partitions > self.config.batch_partitions_warning {
            warnings.push(format!("the batch touches {} partitions; it is atomic per tablet only", writes.partitions));
        }
        let mut sent = Sent::default();
        let failed = |tablet, error: KvError| kv_error(&error, Some(write_type), self.kv.replicas(tablet));
        let mut missing = self.send(writes, &mut sent, &failed).await?;
        // Refused, as a tablet is gone: the table has others by now, or is gone as well. What took effect elsewhere is not sent again.
        for _ in 0..REPLANS {
            if missing.is_none() {
                break;
            }
            missing = self.send(gather(&sent.written)?, &mut sent, &failed).await?;
        }
        if let Some(error) = missing {
            return Err(error);
        }
        let answer = plans.first().map(|plan| plan.answer).unwrap_or_default();
        let mut response = match answer.status_row && !is_batch {
            true => Response::Rows(outcome::status(&plans[0].table, true, None, None)?),
            false => Response::Void,
        };
        for reply in sent.replies {
            let reply = ProgramReply::decode(&reply)
                .map_err(|_| CqlError::server("the answer of a conditional write cannot be decoded"))?;
            match reply {
                ProgramReply::Failed(message) if answer.status_row && !is_batch => {
                    response = Response::Rows(outcome::status(&plans[0].table, false, Some(&message), None)?);
                }
                ProgramReply::Failed(message) => return Err(invalid(message)),
                ProgramReply::Applied if answer.status_row && !is_batch => {}
                ProgramReply::Refused(_) if plans.iter().any(|plan| plan.answer.error) => {
                    return Err(invalid(format!(
                        "Condition on table {} was not satisfied.",
                        plans[0].table.full_name()
                    )));
                }
                ProgramReply::Refused(seen) if answer.status_row && !is_batch => {
                    let mut shown = outcome::shown_columns(plans, true);
                    shown.sort_unstable();
                    let seen = Some((shown.as_slice(), &seen));
                    response = Response::Rows(outcome::status(&plans[0].table, false, None, seen)?);
                }
                ProgramReply::Applied if is_conditional => {
                    response = Response::Rows(outcome::applied(&plans[0].table));
                }
                ProgramReply::Applied => {}
                ProgramReply::Refused(seen) => {
                    let shown = outcome::shown_columns(plans, is_batch);
                    response = Response::Rows(outcome::refused(&plans[0].table, &shown, &seen)?);
                }
            }
        }
        Ok(Reply { warnings, ..Reply::plain(response) })
    }

    /// Sends to each tablet what is for it. Gives the error of a tablet that does not exist, if that is all that
    /// is wrong.
    async fn send(
        &self,
        writes: Writes,
        sent: &mut Sent,
        failed: &(impl Fn(TabletId, KvError) -> CqlError + Sync),
    ) -> Result<Option<CqlError>, CqlError> {
        let pending = writes.finish()?.into_iter().map(|write| async move {
            let outcome = self.kv.write(write.part.tablet, write.mutation).await;
            (write.part, outcome.map(|reply| write.is_evaluated.then_some(reply)))
        });
        let (mut missing, mut first_failure) = (None, None);
        for (part, outcome) in futures::future::join_all(pending).await {
            match outcome {
                Ok(reply) => {
                    sent.written.push(part);
                    sent.replies.extend(reply);
                }
                Err(error @ KvError::NoSuchTablet(_)) => missing = Some(failed(part.tablet, error)),
                Err(error) => first_failure = first_failure.or_else(|| Some(failed(part.tablet, error))),
            }
        }
        first_failure.map_or(Ok(missing), Err)
    }

    async fn batch(
        &self,
        session: &Session,
        request: &OwnedRequest,
        batch: &Batch<'_>,
        note: &mut Note,
    ) -> Result<Reply, CqlError> {
        check_write_consistency(batch.consistency)?;
        let session_keyspace = session.keyspace();
        let keyspace = batch.keyspace.or(session_keyspace.as_ref().map(|keyspace| keyspace.as_str()));
        let catalog = self.kv.catalog();
        let mut planned: Vec<(Arc<Planned>, Values<'_>)> = Vec::with_capacity(batch.statements.len());
        for statement in batch.statements.iter() {
            let plan = match statement.source {
                BatchStatementSource::Text(text) => Arc::new(self.plan_text(&catalog, keyspace, text)?),
                BatchStatementSource::Prepared(id) => Arc::clone(&self.current(id)?.1.planned),
            };
            auth::check(&catalog, session, &plan)?;
            planned.push((plan, statement.values));
        }
        let _running = self.begin_batch(request, batch, keyspace, note);
        if planned.iter().any(|(plan, _)| Operation::of(plan) == Operation::Conditional) {
            note.operation = Operation::Conditional;
        }
        let mut plans = Vec::with_capacity(planned.len());
        for (planned, _) in &planned {
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
        check_batch(kind, false, &plans)?;
        let defaults = self.defaults(batch.default_timestamp_us)?;
        let environment = self.environment(batch.now_in_seconds)?;
        let values = planned.iter().map(|(planned, values)| bind(planned, values)).collect::<Result<Vec<_>, _>>()?;
        let gather = |written: &[TablePart]| {
            let mut writes = Writes::besides(written);
            let mut entries: Vec<Arc<TableEntry>> = Vec::new();
            for (values, plan) in values.iter().zip(&plans) {
                let id = plan.table.table().id;
                let known = entries.iter().position(|entry| entry.table.id == id);
                let at = known.unwrap_or(entries.len());
                if known.is_none() {
                    entries.push(self.entry(&plan.table)?);
                }
                writes.add(plan, &Bound { values, environment }, &entries[at].tablets, defaults)?;
            }
            Ok(writes)
        };
        if plans.iter().any(|plan| plan.answer.status_row) {
            let bound = |at: usize| Bound { values: &values[at], environment };
            return self.status_batch(&plans, bound, defaults, batch_write_type(kind)).await;
        }
        self.write(gather, &plans, batch_write_type(kind), true).await
    }

    /// A request begins, and runs until what is returned is dropped.
    fn begin(&self, request: &OwnedRequest, note: &mut Note, statement: Arc<StatementActivity>) -> Running {
        note.statement = Some(Arc::clone(&statement));
        self.activity.begin(RunningRequest { statement, client: request.client, arrived_ns: request.arrived_ns })
    }

    /// A batch begins: it is known by the first of its statements.
    fn begin_batch(
        &self,
        request: &OwnedRequest,
        batch: &Batch<'_>,
        keyspace: Option<&str>,
        note: &mut Note,
    ) -> Option<Running> {
        let first = match batch.statements.iter().next()?.source {
            BatchStatementSource::Text(text) => redacted(text),
            BatchStatementSource::Prepared(id) => self.prepared.get(id)?.activity.text.clone(),
        };
        let more = if batch.statements.len() > 1 { " …;" } else { "" };
        let text = format!("BEGIN BATCH {first};{more} APPLY BATCH");
        Some(self.begin(request, note, self.activity.place_redacted(keyspace, text)))
    }

    /// A batch whose statements return their status: each is carried out by itself, in order, and gives one row.
    async fn status_batch<'v>(
        &self,
        plans: &[&ModifyPlan],
        bound: impl Fn(usize) -> Bound<'v> + Send + Sync,
        defaults: Defaults,
        write_type: WriteType,
    ) -> Result<Reply, CqlError> {
        let table = &plans[0].table;
        if plans.iter().any(|plan| !plan.answer.status_row) {
            return Err(invalid(
                "batch execution mixing statements with and without RETURNS STATUS AS ROW is not supported",
            ));
        }
        if plans.iter().any(|plan| plan.table.table().id != table.table().id) {
            return Err(invalid(
                "batch execution with RETURNS STATUS AS ROW of statements on different tables is not supported",
            ));
        }
        let mut rows = outcome::status_rows(table);
        for (at, plan) in plans.iter().enumerate() {
            let gather = |written: &[TablePart]| {
                let mut writes = Writes::besides(written);
                writes.add(plan, &bound(at), &self.entry(&plan.table)?.tablets, defaults)?;
                Ok(writes)
            };
            let reply = self.write(gather, &[plan], write_type, false).await?;
            if let Response::Rows(one) = reply.response {
                rows.body.extend_from_slice(&one.body);
                rows.row_count += one.row_count;
            }
        }
        Ok(Reply::plain(Response::Rows(rows)))
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
