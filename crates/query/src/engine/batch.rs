//! BATCH of the protocol: statements as text or prepared, whose writes are sent together.
//!
//! Always true: every error that can be found without writing is found before anything is written. Left out: `BEGIN BATCH` as text ([`super::statement`]).

use super::again::is_outdated;
use super::long::{Discarded, LONG_BYTES, planning_work, yield_now};
use super::request::Reply;
use super::state::QueryEngine;
use super::statement::{Asked, Text, in_marker_order};
use super::transaction::is_atomic;
use super::write::{Writing, batch_write_type, check_write_consistency, work_of};
use crate::activity::{Note, Operation, Running};
use crate::audit::{self, Watched};
use crate::auth;
use crate::error::invalid;
use crate::exec::modify::Writes;
use crate::exec::parts::Means;
use crate::exec::table_part::TablePart;
use crate::kv::Kv;
use crate::plan::term::Bound;
use crate::plan::{Plan, Planned, check_batch};
use diorite_base::TableId;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::{ast, named_tables, redacted};
use diorite_cql::protocol::request::BatchStatementSource;
use diorite_cql::protocol::{Batch, BatchKind, CqlError, ErrorKind, Response, Values};
use diorite_model::schema::TableEntry;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Memory of a statement of a batch beside its text and values.
const BATCH_STATEMENT_BYTES: usize = 1 << 10;

/// The work of looking up a prepared statement, in the measure of [`LONG_BYTES`].
const PREPARED_STATEMENT_BYTES: usize = 64;

impl<K: Kv> QueryEngine<K> {
    pub(super) async fn batch(&self, asked: Asked<'_>, batch: &Batch<'_>, note: &mut Note) -> Result<Reply, CqlError> {
        let Asked { session, request, running } = asked;
        check_write_consistency(batch.consistency)?;
        let session_keyspace = session.keyspace();
        let keyspace = batch.keyspace.or(session_keyspace.as_ref().map(|keyspace| keyspace.as_str()));
        let catalog = self.kv.catalog();
        let (mut planned, values) = match self.plan_batch(asked, batch, &catalog, keyspace).await {
            Ok(planned) => planned,
            Err(error) => {
                self.tell_unplanned(asked, batch, keyspace, &error).await;
                return Err(error);
            }
        };
        if let Some(trace) = request.budget.trace() {
            trace.note(format!("Planned a batch of {} statements", planned.len()));
        }
        self.name_batch(batch, keyspace, note, running).await?;
        let text = note.statement.as_ref().map_or("", |statement| &statement.text);
        let of_plans = planned.iter().map(|planned| &**planned);
        let watched = self.config.auditor.watch_rows((session, request.client), keyspace, of_plans, text);
        let outcome = loop {
            let outcome = self.write_batch(asked, batch, note, (&planned, &values)).await;
            let (of_plans, progress) = (planned.iter().map(|planned| &**planned), &running.progress);
            if !outcome.as_ref().is_err_and(|error| is_outdated(&*self.kv, of_plans, (request, progress), error)) {
                break outcome;
            }
            match self.plan_batch(asked, batch, &self.kv.catalog(), keyspace).await {
                Ok((fresh, _)) => planned = fresh,
                Err(error) => break Err(error),
            }
        };
        Watched::end(watched, &outcome);
        outcome
    }

    async fn write_batch(
        &self,
        asked: Asked<'_>,
        batch: &Batch<'_>,
        note: &mut Note,
        (planned, values): (&[Arc<Planned>], &[Values<'_>]),
    ) -> Result<Reply, CqlError> {
        let Asked { request, running, .. } = asked;
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
            let bound =
                planned.iter().zip(values).map(|(planned, values)| in_marker_order(planned, values, &request.budget));
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
            let mut entries: HashMap<TableId, Arc<TableEntry>> = HashMap::new();
            for (bound, plan) in bounds.iter().zip(&plans) {
                let entry = match entries.entry(plan.table.table().id) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => place.insert(self.entry_to_write(&plan.table)?),
                };
                writes.add(plan, bound, &entry.tablets, defaults)?;
            }
            Ok(writes)
        };
        let work = work_of(request, plans.iter().copied().zip(&bounds));
        let (budget, arrived_ns) = (&request.budget, request.arrived_ns);
        let means = Means { work, is_batch: true, arrived_ns, budget, progress: &running.progress };
        let (write_type, is_atomic) = (batch_write_type(kind), is_atomic(&*self.kv, kind));
        let writing = Writing { engine: self, plans: &plans, write_type, means, is_block: false, is_atomic };
        if plans.iter().any(|plan| plan.answer.status_row) {
            return writing.statuses(|at: usize| bounds[at], defaults).await;
        }
        writing.write(gather).await
    }

    /// The plans of the statements of a batch, and their values.
    async fn plan_batch<'r, 'b>(
        &'r self,
        asked: Asked<'r>,
        batch: &Batch<'b>,
        catalog: &Catalog,
        keyspace: Option<&str>,
    ) -> Result<(Discarded<'r, K, Vec<Arc<Planned>>>, Vec<Values<'b>>), CqlError> {
        let Asked { session, request, .. } = asked;
        let budget = &request.budget;
        let (count, work) = (batch.statements.len(), request.body.len());
        let mut planned = Discarded::new(&*self.kv, Vec::with_capacity(count), work, budget);
        let mut values = Vec::with_capacity(count);
        // The work done since this task last yielded.
        let mut done_bytes = 0;
        // Batches often repeat one statement.
        let mut last: Option<(&[u8], Arc<Planned>)> = None;
        for statement in batch.statements.iter() {
            budget.check()?;
            budget.take(BATCH_STATEMENT_BYTES)?;
            let plan = match statement.source {
                BatchStatementSource::Text(text) => {
                    done_bytes += planning_work(text) + BATCH_STATEMENT_BYTES;
                    let work = done_bytes;
                    let text = Text { session: Some(session), keyspace, text, budget };
                    let plan = || Self::plan_now(catalog, text);
                    done_bytes = if work > LONG_BYTES { 0 } else { work };
                    Arc::new(self.work(work, plan).await?)
                }
                BatchStatementSource::Prepared(id) => {
                    done_bytes += PREPARED_STATEMENT_BYTES;
                    if done_bytes > LONG_BYTES {
                        done_bytes = 0;
                        yield_now().await;
                    }
                    if let Some((_, plan)) = last.as_ref().filter(|(last, _)| *last == id) {
                        planned.push(Arc::clone(plan));
                        values.push(statement.values);
                        continue;
                    }
                    let plan = Arc::clone(&self.current(id, budget).await?.1.planned);
                    last = Some((id, Arc::clone(&plan)));
                    plan
                }
            };
            auth::check(catalog, session, &plan)?;
            planned.push(plan);
            values.push(statement.values);
        }
        Ok((planned, values))
    }

    /// Tells the audit log of a batch that failed before all of its statements were planned.
    async fn tell_unplanned(&self, asked: Asked<'_>, batch: &Batch<'_>, keyspace: Option<&str>, error: &CqlError) {
        let auditor = &self.config.auditor;
        // A driver prepares what this node does not know, and sends the batch again.
        if !auditor.keeps_rows() || matches!(error.kind, ErrorKind::Unprepared { .. }) {
            return;
        }
        let Asked { session, request, .. } = asked;
        let gather = || {
            let mut tables = BTreeSet::new();
            for statement in batch.statements.iter() {
                match statement.source {
                    BatchStatementSource::Text(text) => {
                        tables.extend(named_tables(text).iter().flat_map(|named| audit::qualified(named, keyspace)));
                    }
                    BatchStatementSource::Prepared(id) => {
                        let known = self.prepared.get(id).map(|known| known.current.load_full());
                        let named = known.iter().flat_map(|current| &current.planned.tables);
                        tables.extend(named.map(|table| (table.table().keyspace.clone(), table.table().name.clone())));
                    }
                }
            }
            tables
        };
        let tables = self.finish(request.body.len(), gather).await;
        auditor.unplanned((session, request.client), keyspace, ("BATCH", &tables), error);
    }

    /// Counts a batch under the text of its first statement.
    async fn name_batch(
        &self,
        batch: &Batch<'_>,
        keyspace: Option<&str>,
        note: &mut Note,
        running: &Running,
    ) -> Result<(), CqlError> {
        let first = match batch.statements.iter().next().map(|first| first.source) {
            Some(BatchStatementSource::Text(text)) => Some(self.work(text.len(), || Ok(redacted(text))).await?),
            Some(BatchStatementSource::Prepared(id)) => self.prepared.get(id).map(|known| known.activity.text.clone()),
            None => None,
        };
        let Some(first) = first else { return Ok(()) };
        let more = if batch.statements.len() > 1 { " …;" } else { "" };
        let text = format!("BEGIN BATCH {first};{more} APPLY BATCH");
        self.name(note, running, self.activity.place_redacted(keyspace, text));
        Ok(())
    }
}
