//! Answering a request: waiting for its turn, ending it early, and the error of a request that was ended.
//!
//! Always true: a request that was ended is answered by what is known of its writes. Left out: what each kind of request does
//! ([`super::statement`], [`super::batch`]).

use super::request::{Answered, OwnedRequest, Reply};
use super::row::RowRead;
use super::state::QueryEngine;
use super::statement::Asked;
use crate::activity::{Note, Operation, Running, RunningRequest};
use crate::audit;
use crate::budget::Ended;
use crate::error::at_consistency;
use crate::exec::parts::Progress;
use crate::kv::Kv;
use crate::session::Session;
use diorite_base::{GroupId, TabletId};
use diorite_cql::protocol::request::{Message, Request};
use diorite_cql::protocol::{Consistency, CqlError, ErrorKind, QueryParameters, WriteType};
use futures::future::poll_immediate;
use std::sync::Arc;

impl<K: Kv> QueryEngine<K> {
    /// Executes a request.
    pub fn answer(
        self: &Arc<Self>,
        session: Arc<Session>,
        request: OwnedRequest,
    ) -> impl Future<Output = Answered> + Send + 'static {
        self.answer_in_turn(session, request, std::future::ready(()))
    }

    /// Executes a request once `turn` is ready; the turn lasts until the value of `turn` is dropped. A request that waits is listed, and can be
    /// ended, like one that runs.
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
                let row = RowRead { engine: &engine, session: &session, request: &request, running: &running };
                if let Some(outcome) = row.reply(&mut note).await {
                    return outcome;
                }
                let mut turn = std::pin::pin!(turn);
                let _turn = match poll_immediate(turn.as_mut()).await {
                    Some(turn) => turn,
                    None => {
                        running.name(engine.activity.waiting());
                        budget.note("Waiting for its turn");
                        let turn = turn.await;
                        budget.note("Its turn has come");
                        running.name(engine.activity.others());
                        turn
                    }
                };
                engine.carry_out(&session, &request, &mut note, &running).await
            };
            let outcome = budget.unless_ended(work).await;
            let outcome = match (outcome, budget.ended()) {
                (Ok(Ok(reply)), _) => Ok(reply),
                // The error is a consequence of its end.
                (Err(why), _) | (Ok(Err(_)), Some(why)) => Err(engine.ended(&request, note.operation, why, &progress)),
                (Ok(outcome), None) => outcome,
            };
            engine.keep_trace(&request, &note, &outcome);
            Answered { note, outcome }
        }
    }

    /// Keeps the trace of a request that is about to be answered, if its client has asked for one.
    fn keep_trace(&self, request: &OwnedRequest, note: &Note, outcome: &Result<Reply, CqlError>) {
        let Some(trace) = request.budget.trace() else { return };
        if let Some(statement) = &note.statement {
            trace.name(&statement.text);
        }
        // The message of an error may have values.
        let ending = match outcome {
            Ok(reply) => format!("Request complete: {} rows, {} bytes", reply.row_count(), reply.body_bytes()),
            Err(error) => format!("Request failed: {}", audit::kind_of(error)),
        };
        self.traces.finish(trace, ending);
    }

    /// The error of a request that was ended. A write that was sent may take effect, so the error does not deny it.
    fn ended(&self, request: &OwnedRequest, operation: Operation, why: Ended, progress: &Progress) -> CqlError {
        let reason = match why {
            Ended::Expired => "the request took longer than its timeout",
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
            // A request whose kind is not known yet has done nothing.
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

    async fn carry_out(
        &self,
        session: &Session,
        request: &OwnedRequest,
        note: &mut Note,
        running: &Running,
    ) -> Result<Reply, CqlError> {
        let envelope = request.envelope();
        let message = self.work(request.body.len(), || Message::decode(&envelope)).await?;
        let asked = Asked { session, request, running };
        let of = |parameters: &QueryParameters<'_>| (parameters.consistency, parameters.serial_consistency);
        // Each kind is boxed alone: a box is made by moving all bytes that its future may ever need.
        let (outcome, (consistency, serial)) = match message.request {
            Request::Query(query) => (Box::pin(self.query(asked, &query, note)).await, of(&query.parameters)),
            Request::Prepare(prepare) => {
                note.operation = Operation::Prepare;
                return Box::pin(self.prepare(asked, &prepare)).await;
            }
            Request::Execute(execute) => (Box::pin(self.execute(asked, &execute, note)).await, of(&execute.parameters)),
            Request::Batch(batch) => {
                note.operation = Operation::Batch;
                let outcome = Box::pin(self.batch(asked, &batch, note)).await;
                (outcome, (batch.consistency, batch.serial_consistency))
            }
            _ => return Err(CqlError::protocol("the query engine takes QUERY, PREPARE, EXECUTE and BATCH")),
        };
        outcome.map_err(|error| at_consistency(error, consistency, serial))
    }

    /// Lists a request as running until the result is dropped.
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
}

/// The consistency level and the serial consistency level of a request.
fn asked_consistency(request: &OwnedRequest) -> (Consistency, Option<Consistency>) {
    match Message::decode(&request.envelope()).map(|message| message.request) {
        Ok(Request::Query(query)) => (query.parameters.consistency, query.parameters.serial_consistency),
        Ok(Request::Execute(execute)) => (execute.parameters.consistency, execute.parameters.serial_consistency),
        Ok(Request::Batch(batch)) => (batch.consistency, batch.serial_consistency),
        _ => (Consistency::Quorum, None),
    }
}
