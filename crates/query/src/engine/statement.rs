//! QUERY, PREPARE and EXECUTE: finding or making the plan, and executing it.
//!
//! Always true: a statement is planned again when its table has changed, also after a write that was refused for that and had no
//! effect; a statement whose tablets are gone (`TRUNCATE` came in between) is executed again on the current ones. Left out: batches of the protocol ([`super::batch`]).

use super::again::is_outdated;
use super::covering::{covering_plan, is_lost, lost_page};
use super::explain::explain;
use super::long::{Discarded, parsed_bytes, planning_work};
use super::request::{OwnedRequest, Reply};
use super::snapshot::{NotRead, Selecting};
use super::state::{QueryEngine, REPLANS};
use super::traced::{note_plan, note_read, traces_of};
use super::transaction::is_atomic;
use super::write::{Writing, batch_write_type, check_write_consistency, work_of};
use crate::activity::{Note, Operation, Running, StatementActivity};
use crate::audit::{self, Watched};
use crate::auth;
use crate::bind;
use crate::budget::Budget;
use crate::ddl;
use crate::error::invalid;
use crate::exec::modify::{Defaults, Writes};
use crate::exec::parts::{Failure, Means, Progress};
use crate::exec::read::{PageRequest, Read};
use crate::exec::source::{Entries, Source};
use crate::exec::table_part::TablePart;
use crate::exec::write::{explicit_timestamp, pack_virtual_rows};
use crate::kv::Kv;
use crate::plan::index::IndexPlan;
use crate::plan::modify::ModifyPlan;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use crate::plan::{BatchPlan, BlockPlan, Plan, Planned};
use crate::prepared::{CurrentPlan, PreparedStatement};
use crate::session::Session;
use crate::statement_id::statement_id;
use crate::system;
use crate::table;
use crate::tablets;
use diorite_base::TabletId;
use diorite_base::level::Level;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::Statement;
use diorite_cql::language::{ParseErrorKind, named_tables, parse, redacted};
use diorite_cql::protocol::request::Prepare;
use diorite_cql::protocol::{
    Consistency, CqlError, Execute, Query, QueryParameters, Response, Rows, Value, Values, WriteType,
};
use diorite_model::schema::TabletRange;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A running request and its session.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) session: &'a Session,
    pub(super) request: &'a OwnedRequest,
    pub(super) running: &'a Running,
}

/// A statement that is to be planned.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    /// Whose permissions are checked; absent if they were checked before.
    pub(super) session: Option<&'a Session>,
    /// The keyspace of unqualified names.
    pub(super) keyspace: Option<&'a str>,
    pub(super) text: &'a str,
    pub(super) budget: &'a Budget,
}

/// The common part of QUERY and EXECUTE, once the values are in the order of the markers.
struct Run<'a> {
    asked: Asked<'a>,
    keyspace: Option<&'a str>,
    values: &'a [Value<'a>],
    parameters: &'a QueryParameters<'a>,
}

impl Run<'_> {
    fn means(&self, work: usize, is_batch: bool) -> Means<'_> {
        let Asked { request, running, .. } = self.asked;
        let (budget, arrived_ns) = (&request.budget, request.arrived_ns);
        Means { work, is_batch, arrived_ns, budget, progress: &running.progress }
    }
}

impl<K: Kv> QueryEngine<K> {
    pub(super) async fn query(&self, asked: Asked<'_>, query: &Query<'_>, note: &mut Note) -> Result<Reply, CqlError> {
        let Asked { session, request, running } = asked;
        let current = session.keyspace();
        let keyspace = query.parameters.keyspace.or(current.as_ref().map(|keyspace| keyspace.as_str()));
        let mut catalog = self.kv.catalog();
        let text = Text { session: Some(session), keyspace, text: query.statement, budget: &request.budget };
        let planned = self.plan_text(&catalog, text).await;
        let planned = self.or_told(planned, asked, text, "").await?;
        request.budget.note("Parsed and planned the statement");
        let work = planning_work(query.statement);
        let mut planned = Discarded::new(&*self.kv, planned, work, &request.budget);
        note.operation = Operation::of(&planned);
        let redacted = self.work(query.statement.len(), || Ok(redacted(query.statement))).await?;
        let auditor = &self.config.auditor;
        let watched = auditor.watch_rows((session, request.client), keyspace, [&*planned], &redacted);
        self.name(note, running, self.activity.place_redacted(keyspace, redacted));
        let outcome = loop {
            let carrying_out = async {
                auth::check(&catalog, session, &planned)?;
                let values = in_marker_order(&planned, &query.parameters.values, &request.budget)?;
                let run = Run { asked, keyspace, values: &values, parameters: &query.parameters };
                self.run(&planned, run).await
            };
            match carrying_out.await {
                Err(error) if is_outdated(&*self.kv, [&*planned], (request, &running.progress), &error) => {}
                outcome => break outcome,
            }
            catalog = self.kv.catalog();
            match self.plan_text(&catalog, text).await {
                Ok(fresh) => planned = Discarded::new(&*self.kv, fresh, work, &request.budget),
                Err(error) => break Err(error),
            }
        };
        Watched::end(watched, &outcome);
        Ok(Reply { skip_metadata: false, ..outcome? })
    }

    pub(super) async fn prepare(&self, asked: Asked<'_>, prepare: &Prepare<'_>) -> Result<Reply, CqlError> {
        let Asked { session, request, .. } = asked;
        let current = session.keyspace();
        let keyspace = prepare.keyspace.or(current.as_ref().map(|keyspace| keyspace.as_str()));
        let id = self.work(prepare.statement.len(), || Ok(statement_id(keyspace, prepare.statement))).await?;
        let catalog = self.kv.catalog();
        let text = Text { session: Some(session), keyspace, text: prepare.statement, budget: &request.budget };
        if let Some(known) = self.prepared.get(&id) {
            let current = known.current.load();
            if current.planned.is_current(&catalog) {
                // Another role may have prepared it; the columns are shown only to roles that may use the table.
                let permitted = auth::check(&catalog, session, &current.planned);
                self.or_told(permitted, asked, text, "PREPARE ").await?;
                known.must_prepare_again.store(false, Ordering::Relaxed);
                note_prepared(&request.budget, "The statement was prepared before", &known.activity);
                return Ok(Reply::plain(Response::Prepared(Arc::clone(&current.reply))));
            }
        }
        let planned = self.plan_text(&catalog, text).await;
        let planned = self.or_told(planned, asked, text, "PREPARE ").await?;
        let had_others = planned.may_have_had_other_columns();
        let may_be_short = !self.config.auditor.keeps_rows_of(&planned);
        let current = CurrentPlan::new(id, planned, &catalog, may_be_short);
        let reply = Arc::clone(&current.reply);
        let redacted = self.work(prepare.statement.len(), || Ok(redacted(prepare.statement))).await?;
        let activity = self.activity.place_redacted(keyspace, redacted);
        note_prepared(&request.budget, "Parsed and planned the statement", &activity);
        let text = prepare.statement.to_owned();
        let statement = PreparedStatement::new(id, keyspace.map(str::to_owned), text, activity, current);
        // A client may have prepared it on another node before the table was changed, which its requests do not show.
        statement.result_changed.store(had_others, Ordering::Relaxed);
        if let Some(known) = self.prepared.get(&id) {
            // Other clients still know the former columns.
            let changed = had_others || known.current.load().reply.result.id() != reply.result.id();
            let changed = changed || known.result_changed.load(Ordering::Relaxed);
            statement.result_changed.store(changed, Ordering::Relaxed);
        }
        self.prepared.insert(Arc::new(statement));
        Ok(Reply::plain(Response::Prepared(reply)))
    }

    /// The plan of a prepared statement, planned again if its table has changed.
    pub(super) async fn current(
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
        let keyspace = statement.keyspace.as_deref();
        let text = Text { session: None, keyspace, text: &statement.text, budget };
        let planned = self.plan_text(&catalog, text).await?;
        let may_be_short = !self.config.auditor.keeps_rows_of(&planned);
        let fresh = CurrentPlan::new(statement.id, planned, &catalog, may_be_short);
        match statement.replaced(&current, fresh, &catalog) {
            Some(fresh) => Ok((statement, fresh)),
            None => {
                // The client would encode values for the old markers: it has to prepare again.
                self.prepared.remove(&statement);
                Err(CqlError::unprepared(id))
            }
        }
    }

    pub(super) async fn execute(
        &self,
        asked: Asked<'_>,
        execute: &Execute<'_>,
        note: &mut Note,
    ) -> Result<Reply, CqlError> {
        let Asked { session, request, running } = asked;
        let (mut statement, mut current) = self.current(execute.id, &request.budget).await?;
        request.budget.note("Found the plan of the prepared statement");
        note.operation = Operation::of(&current.planned);
        self.name(note, running, Arc::clone(&statement.activity));
        let (keyspace, text) = (statement.keyspace.as_deref(), &statement.activity.text);
        let auditor = &self.config.auditor;
        let watched = auditor.watch_rows((session, request.client), keyspace, [&*current.planned], text);
        let outcome = loop {
            match self.execute_current(asked, execute, &statement, &current).await {
                Err(error) if is_outdated(&*self.kv, [&*current.planned], (request, &running.progress), &error) => {}
                outcome => break outcome,
            }
            match self.current(execute.id, &request.budget).await {
                Ok(fresh) => (statement, current) = fresh,
                Err(error) => break Err(error),
            }
        };
        Watched::end(watched, &outcome);
        outcome
    }

    async fn execute_current(
        &self,
        asked: Asked<'_>,
        execute: &Execute<'_>,
        statement: &PreparedStatement,
        current: &CurrentPlan,
    ) -> Result<Reply, CqlError> {
        let Asked { session, request, .. } = asked;
        let version = request.version;
        if statement.would_mislead(version, execute.parameters.skip_metadata) {
            return Err(CqlError::unprepared(execute.id));
        }
        auth::check(&self.kv.catalog(), session, &current.planned)?;
        let values = in_marker_order(&current.planned, &execute.parameters.values, &request.budget)?;
        let session_keyspace = session.keyspace();
        let keyspace = statement.keyspace.as_deref().or(session_keyspace.as_ref().map(|keyspace| keyspace.as_str()));
        let run = Run { asked, keyspace, values: &values, parameters: &execute.parameters };
        let mut reply = self.run(&current.planned, run).await?;
        if let Plan::Select(_) = current.planned.plan {
            reply.skip_metadata = execute.parameters.skip_metadata && statement.may_skip_metadata(version);
            reply.known_metadata_id = execute.result_metadata_id.map(<[u8]>::to_vec);
        }
        if session.learns_tablets() {
            let environment = self.environment(request, execute.parameters.now_in_seconds)?;
            let payload =
                tablets::payload(&*self.kv, self.node, &current.planned, &Bound { values: &values, environment });
            reply.custom_payload.extend(payload.map(|payload| (tablets::PAYLOAD.to_owned(), payload)));
        }
        Ok(reply)
    }

    /// What came of planning or checking a client's text; if it failed, the audit log is told.
    async fn or_told<T>(
        &self,
        outcome: Result<T, CqlError>,
        asked: Asked<'_>,
        text: Text<'_>,
        how: &str,
    ) -> Result<T, CqlError> {
        let auditor = &self.config.auditor;
        if let (Err(error), true) = (&outcome, auditor.keeps_rows())
            && let Some(named) = self.finish(text.text.len(), || named_tables(text.text)).await
        {
            let tables = audit::qualified(&named, text.keyspace).collect();
            let kind = format!("{how}{}", named.kind);
            auditor.unplanned((asked.session, asked.request.client), text.keyspace, (&kind, &tables), error);
        }
        outcome
    }

    async fn plan_text(&self, catalog: &Catalog, text: Text<'_>) -> Result<Planned, CqlError> {
        self.work(planning_work(text.text), || Self::plan_now(catalog, text)).await
    }

    /// Plans a text, if its session has the permissions.
    pub(super) fn plan_now(catalog: &Catalog, text: Text<'_>) -> Result<Planned, CqlError> {
        let Text { session, keyspace, text, budget } = text;
        let _parsed = budget.hold(parsed_bytes(text))?;
        let parsed = parse(text).map_err(|error| match error.kind {
            ParseErrorKind::Syntax => CqlError::syntax(error.to_string()),
            ParseErrorKind::Invalid => invalid(error.message.clone()),
        })?;
        budget.check()?;
        if let Some(session) = session {
            auth::check_parsed(catalog, session, keyspace, &parsed.statement)?;
        }
        let planned = bind::plan(catalog, keyspace, &parsed)?;
        // The plan is held until the request ends; the planner's own budget has bounded it so far.
        budget.take(usize::try_from(planned.cost.bytes()).unwrap_or(usize::MAX))?;
        Ok(planned)
    }

    async fn run(&self, planned: &Planned, run: Run<'_>) -> Result<Reply, CqlError> {
        let Run { asked: Asked { session, request, .. }, keyspace, .. } = run;
        let budget = &request.budget;
        let environment = self.environment(request, run.parameters.now_in_seconds)?;
        let bound = Bound { values: run.values, environment };
        request.end_in_time(planned, &bound)?;
        note_plan(budget, &planned.plan);
        match &planned.plan {
            Plan::Select(select) => {
                if run.parameters.consistency == Consistency::Any {
                    return Err(invalid("ANY ConsistencyLevel is only supported for writes"));
                }
                let rows = self.select(select, &bound, run.parameters, request.needs_disk).await?;
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
                    writes.add(modify, &bound, &self.entry_to_write(&modify.table)?.tablets, defaults)?;
                    Ok(writes)
                };
                let work = work_of(request, [(&**modify, &bound)]);
                let means = run.means(work, false);
                let writing =
                    Writing { engine: self, plans: &[modify], write_type, means, is_block: false, is_atomic: false };
                writing.write(gather).await
            }
            Plan::Batch(batch) => self.text_batch(batch, bound, &run).await,
            Plan::Block(block) => self.block(block, &bound, &run).await,
            Plan::Explain(plan) => explain(self, plan, planned, &bound, run.parameters.consistency),
            Plan::Use(name) => self.define(session, keyspace, &Statement::Use(name.clone()), budget).await,
            Plan::Definition(statement) => {
                // A change of the catalog that was made is reported.
                if !matches!(statement, Statement::Describe(_)) {
                    budget.set_uninterrupted();
                }
                let watched = self.config.auditor.watch(session, request.client, keyspace, statement);
                let defined = self.define(session, keyspace, statement, budget).await;
                if let Some(watched) = watched {
                    watched.ended(&defined);
                }
                defined
            }
        }
    }

    /// A batch that was given as text.
    async fn text_batch(&self, batch: &BatchPlan, bound: Bound<'_>, run: &Run<'_>) -> Result<Reply, CqlError> {
        check_write_consistency(run.parameters.consistency)?;
        let mut defaults = self.defaults(run.parameters.default_timestamp_us)?;
        if let Some(term) = &batch.timestamp {
            defaults.timestamp_us = explicit_timestamp(term, &bound)?;
            defaults.is_explicit = defaults.timestamp_us.is_some();
        }
        let gather = |written: &[TablePart]| {
            let mut writes = Writes::besides(written);
            for statement in &batch.statements {
                writes.add(statement, &bound, &self.entry_to_write(&statement.table)?.tablets, defaults)?;
            }
            Ok(writes)
        };
        let plans: Vec<&ModifyPlan> = batch.statements.iter().collect();
        let work = work_of(run.asked.request, plans.iter().map(|plan| (*plan, &bound)));
        let write_type = batch_write_type(batch.kind);
        let means = run.means(work, true);
        let is_atomic = is_atomic(&*self.kv, batch.kind);
        let writing = Writing { engine: self, plans: &plans, write_type, means, is_block: false, is_atomic };
        if plans.iter().any(|plan| plan.answer.status_row) {
            return writing.statuses(|_| bound, defaults).await;
        }
        writing.write(gather).await
    }

    /// A transaction block: all statements or none, in their order.
    async fn block(&self, block: &BlockPlan, bound: &Bound<'_>, run: &Run<'_>) -> Result<Reply, CqlError> {
        check_write_consistency(run.parameters.consistency)?;
        let gather = |written: &[TablePart]| {
            let mut writes = Writes::of_block(written);
            for statement in &block.statements {
                // All rows have the timestamp of the block, whatever the driver attached.
                writes.add(statement, bound, &self.entry_to_write(&statement.table)?.tablets, Defaults::default())?;
            }
            Ok(writes)
        };
        let plans: Vec<&ModifyPlan> = block.statements.iter().collect();
        let work = work_of(run.asked.request, plans.iter().map(|plan| (*plan, bound)));
        let (write_type, means) = (WriteType::Batch, run.means(work, true));
        Writing { engine: self, plans: &plans, write_type, means, is_block: true, is_atomic: true }.write(gather).await
    }

    async fn define(
        &self,
        session: &Session,
        keyspace: Option<&str>,
        statement: &Statement,
        budget: &Budget,
    ) -> Result<Reply, CqlError> {
        let answer_by_ns = budget.answer_by(self.kv.monotonic_ns());
        if auth::handles(statement) {
            return auth::execute(&*self.kv, session, keyspace, statement, answer_by_ns).await.map(Reply::plain);
        }
        auth::check_definition(&self.kv.catalog(), session, keyspace, statement)?;
        let defaults = ddl::Defaults {
            tablets_per_node: self.config.tablets_per_node,
            most_tablets_per_node: self.config.most_tablets_per_node,
        };
        let (response, warnings) = ddl::execute(&*self.kv, defaults, keyspace, statement, budget).await?;
        if let Response::SetKeyspace(name) = &response {
            session.set_keyspace(name);
        }
        if let (Response::SchemaChange(_), Some(resource)) = (&response, auth::made_by(keyspace, statement)) {
            let finish_by_ns = budget.finish_by(self.kv.monotonic_ns());
            let granted = auth::grant_to_maker(&*self.kv, session, &resource, finish_by_ns).await;
            // The object exists, even if the grant fails.
            let progress = Progress::default();
            (0..2).for_each(|_| progress.add_part());
            progress.answered(false);
            granted.map_err(|error| progress.answer(&*self.kv, Failure::Statement(error)))?;
        }
        Ok(Reply { warnings, ..Reply::plain(response) })
    }

    async fn select(
        &self,
        plan: &SelectPlan,
        bound: &Bound<'_>,
        parameters: &QueryParameters<'_>,
        needs_disk: bool,
    ) -> Result<Rows, CqlError> {
        if let Some(of_view) = covering_plan(plan, (&self.kv.catalog(), bound), parameters.paging_state)? {
            note_read(bound.environment.budget, plan, true);
            let outcome = self.select_by(of_view, bound, parameters, needs_disk).await;
            let was_lost = |error: &CqlError| is_lost(&self.kv.catalog(), of_view, error);
            if !outcome.as_ref().is_err_and(was_lost) {
                return outcome;
            }
            if parameters.paging_state.is_some() {
                let is_gone = self.kv.catalog().table_by_id(of_view.table.table().id).is_none();
                return if is_gone { Err(lost_page()) } else { outcome };
            }
        }
        note_read(bound.environment.budget, plan, false);
        self.select_by(plan, bound, parameters, needs_disk).await
    }

    /// Reads by a plan. Where its index is still being built, by another one.
    async fn select_by(
        &self,
        plan: &SelectPlan,
        bound: &Bound<'_>,
        parameters: &QueryParameters<'_>,
        needs_disk: bool,
    ) -> Result<Rows, CqlError> {
        let budget = bound.environment.budget;
        let before_bytes = budget.meter().used_bytes();
        let (mut index, mut others) = (plan.restrictions.index.as_ref(), plan.other_indexes.iter());
        loop {
            match (self.select_with((plan, index), bound, parameters, needs_disk).await, others.next()) {
                (Err(NotRead::Unbuilt(_)), Some(other)) => index = Some(other),
                (outcome, _) => return outcome.map_err(NotRead::into_error),
            }
            budget.note("The index is still being built: reading in another way");
            // What was read was dropped: its memory is given back.
            budget.give(budget.meter().used_bytes().saturating_sub(before_bytes));
        }
    }

    /// Reads by a plan, with one of its indexes.
    async fn select_with(
        &self,
        (plan, index): (&SelectPlan, Option<&IndexPlan>),
        bound: &Bound<'_>,
        parameters: &QueryParameters<'_>,
        needs_disk: bool,
    ) -> Result<Rows, NotRead> {
        let page = PageRequest {
            page_size: parameters.page_size,
            state: parameters.paging_state,
            max_bytes: self.config.page_bytes,
        };
        if plan.table.source() == table::Source::Virtual {
            let source = Source::Memory { kv: &*self.kv, entries: self.virtual_rows(plan, bound).await? };
            let tablets = &[TabletRange { tablet: TabletId(0), first_token: i64::MIN }];
            let outcome = Read { plan, index, bound, source: &source, tablets }.execute(page).await;
            return outcome.map_err(NotRead::from);
        }
        let staleness_ms = plan.table.staleness_ms(parameters.consistency);
        if plan.table.has_transactions() && self.kv.catalog().level() >= Level::RECORDED {
            return Selecting { plan, index, bound, page, needs_disk, staleness_ms }.rows(self).await;
        }
        let mut tries = 0..=REPLANS;
        loop {
            let (budget, now_s) = (bound.environment.budget, bound.environment.now_s);
            let entry = self.entry(&plan.table)?;
            let source = Source::tablets(&*self.kv, needs_disk, staleness_ms, budget).judged_at(now_s);
            let outcome = Read { plan, index, bound, source: &source, tablets: &entry.tablets }.execute(page).await;
            tries.next();
            // The table has other tablets by now, or was dropped. Nothing was sent to the client yet: read again.
            if tries.is_empty() || !source.met_missing_tablet() {
                return outcome.map_err(|error| NotRead::of(error, &source));
            }
        }
    }

    /// The rows of a system table, packed.
    async fn virtual_rows(&self, plan: &SelectPlan, bound: &Bound<'_>) -> Result<Entries, CqlError> {
        let definition = plan.table.table();
        let mut source = system::Source::new(&*self.kv);
        if system::has_traces(&definition.keyspace) {
            source.traces = traces_of(self, plan, bound).await?;
        }
        let pack = || {
            let rows = system::rows(&source, &definition.keyspace, &definition.name, bound.environment.budget)?;
            pack_virtual_rows(&plan.table, &rows)
        };
        self.work(if system::is_short(&definition.keyspace) { 0 } else { usize::MAX }, pack).await
    }

    /// Records which statement a request executes.
    pub(super) fn name(&self, note: &mut Note, running: &Running, statement: Arc<StatementActivity>) {
        note.statement = Some(Arc::clone(&statement));
        running.name(statement);
    }
}

/// Notes that a statement is prepared now, and which one.
fn note_prepared(budget: &Budget, activity: &str, statement: &StatementActivity) {
    if let Some(trace) = budget.trace() {
        trace.name(&statement.text);
        trace.note(activity);
    }
}

/// So many values, by position, take no memory that counts.
const FEW_VALUES: usize = 64;

/// Puts values in the order of the markers. An `EXPLAIN` needs none, and takes no notice of them.
pub(super) fn in_marker_order<'a>(
    planned: &Planned,
    values: &Values<'a>,
    budget: &Budget,
) -> Result<Vec<Value<'a>>, CqlError> {
    if let Plan::Explain(_) = planned.plan {
        return Ok(Vec::new());
    }
    let wanted = planned.marker_count;
    if !values.is_named() {
        if values.len() != wanted {
            return Err(invalid(format!(
                "Invalid amount of bind variables: {wanted} expected, {} given",
                values.len()
            )));
        }
        if wanted > FEW_VALUES {
            budget.take(wanted * size_of::<Value<'_>>())?;
        }
        return Ok(values.iter().collect());
    }
    // A table of names has up to twice as many places as names.
    let _names = budget.hold(values.len() * 2 * size_of::<(&str, Value<'_>)>())?;
    budget.take(wanted * size_of::<Value<'_>>())?;
    // Of two values of one name the later counts.
    let named = values.iter_named().filter_map(|(name, value)| Some((name?, value)));
    let given: HashMap<&str, Value<'a>, ahash::RandomState> = named.collect();
    let mut bound = Vec::with_capacity(wanted);
    for marker in &planned.markers.columns {
        match given.get(marker.name.as_str()) {
            Some(value) => bound.push(*value),
            None => return Err(invalid(format!("Invalid amount of bind variables: no value for {}", marker.name))),
        }
    }
    Ok(bound)
}
