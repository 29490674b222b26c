//! Transactions over several tablets: this node coordinates them, with [`Coordinator`] deciding what is sent.
//!
//! Always true: all that a step sends is sent at once; what is left to do once the client can be answered, or when its
//! request is ended, is done beside it, and by the tablets themselves if this node dies; nothing is planned again
//! once a commit was sent that may have been carried out. Left out: the parts of a transaction
//! ([`crate::exec::modify::transaction`]), and the protocol ([`diorite_transact`]).

use super::ends::{ends as ends_of, unheard};
use super::in_advance::{InAdvance, Report};
use super::outcomes::TransactionEnd;
use super::state::QueryEngine;
use super::write::{Gathered, WriteAnswer, Writing};
use crate::budget::Budget;
use crate::error::{invalid, malformed_row};
use crate::exec::homes::tablet_at;
use crate::exec::modify::Writes;
use crate::exec::modify::transaction::TransactionPart;
use crate::exec::parts::Failure;
use crate::exec::table_part::TablePart;
use crate::kv::{Kv, KvError};
use crate::program::{DAMAGED, ProgramReply};
use diorite_base::level::Level;
use diorite_base::write::Waited;
use diorite_base::{NodeId, TabletId};
use diorite_cql::language::ast::BatchKind;
use diorite_cql::protocol::{CqlError, Response};
use diorite_transact::coordinator::{Action, Coordinator, Outcome, Part, Plan};
use diorite_transact::message::{HomePart, Program, Refusal, Reply, Request, Status};
use diorite_transact::step::Ending;
use diorite_transact::targets::Targets;
use diorite_transact::timing::Timing;
use diorite_transact::wire::{Answer, Call};
use diorite_transact::{Participant, TransactionId};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::HashSet;
use std::sync::Arc;

/// How often the bytes of a transaction's programs are in memory at once: in the plan, and twice when they are sent.
const COPIES: usize = 3;
/// The transactions that have ended in this time are reported to their home together.
const REPORTS_AFTER_NS: u64 = 20_000_000;
/// The first wait before something is sent again that was not answered, and the longest.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_PAUSE_NS: u64 = 100_000_000;
/// The most requests in a row that are not answered, for each part and whatever the clock says.
const MAX_IN_VAIN: usize = 1_000;
/// What clients take for "certainly not done, try again"; the words are YCQL's.
pub(super) const CONFLICT: &str = "Operation failed. Conflicts with higher priority transaction";

/// Why the client can be answered.
#[derive(Debug)]
pub(super) enum Ended {
    Answered(Outcome),
    /// A condition of a program in this tablet does not hold, or it is impossible: its reply.
    Refused(TabletId, Vec<u8>),
    /// The tablet has refused its part for good. Nothing was done.
    Impossible(TabletId, KvError),
}

impl Ended {
    /// What it is counted as.
    pub(super) fn kind(&self) -> TransactionEnd {
        let is_impossible = |reply: &[u8]| matches!(ProgramReply::decode(reply), Ok(ProgramReply::Failed(_)));
        match self {
            Self::Answered(Outcome::Applied(_)) => TransactionEnd::Applied,
            Self::Refused(_, reply) if is_impossible(reply) => TransactionEnd::Impossible,
            Self::Answered(Outcome::ConditionFailed) | Self::Refused(..) => TransactionEnd::ConditionFailed,
            Self::Answered(Outcome::Conflict) => TransactionEnd::Conflict,
            Self::Answered(Outcome::Unknown) => TransactionEnd::Unknown,
            Self::Impossible(_, KvError::NoSuchTablet(_) | KvError::TooLarge(_) | KvError::DiskFull(_)) => {
                TransactionEnd::Impossible
            }
            Self::Answered(Outcome::Unavailable) | Self::Impossible(..) => TransactionEnd::Unavailable,
        }
    }
}

/// A request that was sent, and its answer.
struct Sent {
    /// As the plan names it.
    tablet: TabletId,
    /// The tablet that has taken the request: another one, if the first is no more.
    to: TabletId,
    /// Without its program.
    request: Request,
    outcome: Result<Answer, KvError>,
}

/// The node that coordinates transactions.
pub(super) struct Coordinating<K> {
    pub(super) kv: Arc<K>,
    pub(super) node: NodeId,
    pub(super) in_advance: Arc<InAdvance>,
}

impl<K> Coordinating<K> {
    pub(super) fn of(engine: &QueryEngine<K>) -> Self {
        Self { kv: Arc::clone(&engine.kv), node: engine.node, in_advance: Arc::clone(&engine.in_advance) }
    }
}

/// A transaction that is being carried out.
struct Transaction<K: Kv> {
    kv: Arc<K>,
    in_advance: Arc<InAdvance>,
    /// The request's, whose memory it holds until it ends.
    budget: Arc<Budget>,
    plan: Arc<Plan>,
    coordinator: Coordinator,
    /// The tablets in which it only deletes.
    deletes_only: HashSet<TabletId>,
    sent: FuturesUnordered<BoxFuture<'static, Sent>>,
    /// How many requests in a row have failed.
    in_vain: usize,
    /// The last failure of a tablet.
    last: Option<(TabletId, KvError)>,
    /// A commit without a reservation may still arrive at the home although it was not answered.
    may_arrive: bool,
    /// No further attempt is begun: a tablet has refused its part for good.
    begins_no_more: bool,
    /// The attempt in which that happened has ended, and nothing of it will be committed.
    has_stopped: bool,
}

fn plan_of<K: Kv>(kv: &K, node: NodeId, parts: Vec<TransactionPart>) -> Plan {
    // With the table of an index the records of transactions go whose home it is.
    let is_near = |part: &TransactionPart| !part.is_of_index && kv.leader(part.part.tablet) == Some(node);
    let nearest = parts.iter().position(is_near).unwrap_or(0);
    let part = |part: TransactionPart| Part {
        participant: Participant { table: part.part.table, tablet: part.part.tablet, key: part.key },
        targets: Targets::default(),
        program: Program(part.program),
        readers_ask: part.has_transactions,
    };
    Plan { parts: parts.into_iter().map(part).collect(), nearest: Some(nearest) }
}

/// What a request of the coordinator is about, for a trace.
fn shown(request: &Request) -> &'static str {
    match request {
        Request::Reserve { .. } => "reserve",
        Request::Prepare { .. } => "prepare",
        Request::Commit { .. } => "commit",
        Request::Release(_) => "release",
        Request::Status { .. } => "status",
        Request::Finish { .. } => "finish",
        Request::Forget(_) => "forget",
    }
}

/// Takes the program out of a request that has been encoded.
fn without_program(mut request: Request) -> Request {
    if let Request::Reserve { program, .. }
    | Request::Prepare { program, .. }
    | Request::Commit { part: Some(HomePart { program, .. }), .. } = &mut request
    {
        *program = Program(Vec::new());
    }
    request
}

async fn report<K: Kv>(kv: Arc<K>, home: TabletId, ended: Vec<TransactionId>) {
    let call = Call::Request(Request::Forget(ended));
    // The home does without.
    let _ = kv.write(home, call.to_mutation(), None).await;
}

impl<K: Kv> Transaction<K> {
    fn new(of: &Coordinating<K>, budget: Arc<Budget>, plan: Plan, deletes_only: HashSet<TabletId>) -> Self {
        let (kv, in_advance) = (Arc::clone(&of.kv), Arc::clone(&of.in_advance));
        let nearest = plan.nearest.map(|nearest| plan.parts[nearest].participant.tablet);
        let id = nearest.and_then(|home| in_advance.take(home, kv.monotonic_ns()));
        let plan = Arc::new(plan);
        let coordinator = Coordinator::new(Arc::clone(&plan), Timing::default(), id);
        let sent = FuturesUnordered::new();
        Self {
            kv,
            in_advance,
            budget,
            plan,
            coordinator,
            deletes_only,
            sent,
            in_vain: 0,
            last: None,
            may_arrive: false,
            begins_no_more: false,
            has_stopped: false,
        }
    }

    /// Where a request for a tablet of the plan is sent now: the tablet may have been split since.
    fn current(&self, tablet: TabletId, request: &Request) -> TabletId {
        let catalog = self.kv.catalog();
        let begins = matches!(request, Request::Reserve { .. } | Request::Prepare { .. });
        if begins || catalog.placement(tablet).is_some() {
            return tablet;
        }
        let part = self.plan.parts.iter().map(|part| &part.participant).find(|part| part.tablet == tablet);
        part.and_then(|part| tablet_at(&catalog, part.table, &part.key)).unwrap_or(tablet)
    }

    /// Whether the table of a tablet of the plan does not exist any more.
    fn is_dropped(&self, tablet: TabletId) -> bool {
        let catalog = self.kv.catalog();
        let mut participants = self.plan.parts.iter().map(|part| &part.participant);
        participants.any(|part| part.tablet == tablet && catalog.table_by_id(part.table).is_none())
    }

    fn trace_sending(&self, to: TabletId, request: &Request) {
        if let Some(trace) = self.budget.trace() {
            let (what, place) = (shown(request), trace.place(self.kv.leader(to)));
            trace.note(format!("Transaction: sending {what} to tablet {} {place}", to.0));
        }
    }

    fn send(&self, tablet: TabletId, request: Request) {
        let to = self.current(tablet, &request);
        self.trace_sending(to, &request);
        let begins = matches!(request, Request::Reserve { .. } | Request::Prepare { .. });
        let call = Call::Request(request);
        let mut mutation = call.to_mutation();
        if self.deletes_only.contains(&tablet) {
            mutation.mark_deletion();
        }
        let Call::Request(request) = call else { return };
        let request = without_program(request);
        // What has been begun goes on when the request has ended.
        let deadline_ns = self.budget.deadline().filter(|_| begins);
        let (kv, pause_ns) = (Arc::clone(&self.kv), self.pause_ns());
        self.sent.push(Box::pin(async move {
            if pause_ns > 0 {
                kv.pause(pause_ns).await;
            }
            let outcome = kv.write(to, mutation, deadline_ns).await.and_then(|reply| {
                Answer::decode(&reply).map_err(|_| KvError::Storage(format!("an answer of {to} cannot be decoded")))
            });
            Sent { tablet, to, request, outcome }
        }));
    }

    /// Whether so many requests in a row were not answered that nothing more is sent.
    fn goes_on(&self) -> bool {
        self.in_vain < MAX_IN_VAIN * self.plan.parts.len()
    }

    /// How long a request waits before it is sent, after others in a row have failed.
    fn pause_ns(&self) -> u64 {
        let doublings = self.in_vain.min(16) as u32;
        if doublings > 1 { (FIRST_PAUSE_NS << doublings).min(MAX_PAUSE_NS) } else { 0 }
    }

    /// Carries out what the coordinator asks for; returns the answer for the client, if it has one now.
    fn carry_out(&mut self) -> Option<Outcome> {
        let (mut answer, mut ends) = (None, Vec::new());
        while let Some(action) = self.coordinator.action() {
            match action {
                Action::Send(_, Request::Reserve { .. }) if self.begins_no_more => self.has_stopped = true,
                Action::Send(tablet, Request::Finish { id, ending: ending @ Ending::Committed { .. } }) => {
                    ends.push((tablet, id, ending));
                }
                Action::Send(tablet, request) => self.send(tablet, request),
                Action::Answer(outcome) => answer = Some(outcome),
                Action::Ended(home, id) => self.report_end(home, id),
            }
        }
        let is_over = matches!(answer, Some(Outcome::Applied(_))) && self.sent.is_empty();
        if is_over && self.kv.submits_requests() {
            self.leave(&ends);
        } else {
            ends.into_iter().for_each(|(tablet, id, ending)| self.send(tablet, Request::Finish { id, ending }));
        }
        answer
    }

    /// Ends a transaction at its participants. The client can be answered, and nothing else is left to do.
    fn leave(&self, ends: &[(TabletId, TransactionId, Ending)]) {
        let Some((_, id, _)) = ends.first().copied() else { return };
        let home = id.tablet;
        // Store threads hold the sink, which must not hold them.
        let (kv, pool) = (Arc::downgrade(&self.kv), Arc::clone(&self.in_advance));
        let ended = move || {
            if let (Some(ended), Some(kv)) = (pool.ended_unheard(home, id), kv.upgrade()) {
                let call = Call::Request(Request::Forget(ended));
                // The home does without.
                drop(kv.submit(home, call.to_mutation(), &unheard(id), 0));
                kv.kick_soon();
            }
        };
        let sink = ends_of(id, ends.len(), ended);
        if self.in_advance.begins_to_end(home) {
            self.report_soon(home);
        }
        for (tablet, id, ending) in ends {
            let request = Request::Finish { id: *id, ending: *ending };
            let to = self.current(*tablet, &request);
            self.trace_sending(to, &request);
            // The home's leader finishes what is left.
            drop(self.kv.submit(to, Call::Request(request).to_mutation(), &sink, 0));
        }
        self.kv.kick_soon();
    }

    /// All participants of the transaction have finished.
    fn report_end(&self, home: TabletId, id: TransactionId) {
        match self.in_advance.ended(home, id) {
            Report::Not => {}
            Report::Now(ended) => self.kv.spawn(report(Arc::clone(&self.kv), home, ended)),
            Report::Soon => self.report_soon(home),
        }
    }

    /// Reports what has ended in the next moments.
    fn report_soon(&self, home: TabletId) {
        let (kv, pool) = (Arc::clone(&self.kv), Arc::clone(&self.in_advance));
        self.kv.spawn(async move {
            kv.pause(REPORTS_AFTER_NS).await;
            let ended = pool.take_ended(home);
            if !ended.is_empty() {
                report(kv, home, ended).await;
            }
        });
    }

    /// Remembers what a home has said for the transactions that follow.
    fn remember(&self, request: &Request, reply: &Reply, now_ns: u64) {
        match (request, reply) {
            (_, Reply::Committed { id, next: Some(number), .. }) => {
                self.in_advance.put(TransactionId { number: *number, ..*id }, now_ns);
            }
            (Request::Commit { id, .. }, Reply::NotReserved { refusal: Refusal::Held, .. })
            | (Request::Prepare { id, .. }, Reply::NotPrepared { refusal: Refusal::Held, .. }) => {
                self.in_advance.was_held(id.tablet, now_ns);
            }
            (Request::Commit { id, part: Some(_), .. }, Reply::Lost(_)) => self.in_advance.forget_ids(id.tablet),
            _ => {}
        }
    }

    /// Passes an answer to the coordinator.
    fn take(&mut self, sent: Sent) -> Option<Ended> {
        let Sent { tablet, to, request, outcome } = sent;
        let now_ns = self.kv.monotonic_ns();
        let begins = matches!(request, Request::Reserve { .. } | Request::Prepare { .. });
        match outcome {
            // It never knew the transaction, which the tablet before it may have committed.
            Ok(Answer::Reply { reply: Reply::Lost(_) | Reply::Status { status: Status::Aborted, .. }, .. })
                if to != tablet =>
            {
                if let Request::Commit { id, part: Some(_), .. } = request {
                    self.commit_failed(tablet, id, KvError::NoSuchTablet(tablet), now_ns);
                    return None;
                }
                self.failed(tablet, &request, KvError::NoSuchTablet(tablet), now_ns);
                None
            }
            Ok(Answer::Reply { reply, of_program }) => {
                self.in_vain = 0;
                self.remember(&request, &reply, now_ns);
                let is_refusal = matches!(
                    reply,
                    Reply::NotReserved { refusal: Refusal::ConditionFailed, .. }
                        | Reply::NotPrepared { refusal: Refusal::ConditionFailed, .. }
                );
                self.coordinator.replied(tablet, reply, now_ns);
                is_refusal.then_some(Ended::Refused(tablet, of_program))
            }
            // Requests to which there is no reply.
            Ok(Answer::Done) => None,
            Ok(_) => {
                self.failed(tablet, &request, KvError::Storage("an answer is of another kind".to_owned()), now_ns);
                None
            }
            // Its table was dropped, and all that was prepared there with it.
            Err(KvError::NoSuchTablet(_)) if self.is_dropped(tablet) && matches!(request, Request::Finish { .. }) => {
                if let Request::Finish { id, .. } = request {
                    self.coordinator.replied(tablet, Reply::Finished(id), now_ns);
                }
                None
            }
            Err(error) => {
                let is_final = error.is_of_plan() || matches!(error, KvError::TooLarge(_) | KvError::DiskFull(_));
                if let Request::Commit { id, part: Some(_), .. } = request {
                    self.commit_failed(tablet, id, error, now_ns);
                    return None;
                }
                let is_final = is_final && begins;
                self.failed(tablet, &request, error.clone(), now_ns);
                is_final.then_some(Ended::Impossible(tablet, error))
            }
        }
    }

    /// A commit without a reservation was not carried out, or not answered. If it certainly never reached the home, the next
    /// attempt reserves, and finds what is final.
    fn commit_failed(&mut self, tablet: TabletId, id: TransactionId, error: KvError, now_ns: u64) {
        self.in_vain += 1;
        self.may_arrive |= !error.is_refusal();
        self.last = Some((tablet, error));
        match self.may_arrive {
            true => self.coordinator.commit_failed(id),
            false => self.coordinator.replied(tablet, Reply::Lost(id), now_ns),
        }
    }

    fn failed(&mut self, tablet: TabletId, request: &Request, error: KvError, now_ns: u64) {
        self.in_vain += 1;
        self.last = Some((tablet, error));
        self.coordinator.unanswered(tablet, request, now_ns);
    }

    /// Goes on until the client can be answered.
    async fn until_answered(&mut self) -> Ended {
        self.coordinator.start(self.kv.monotonic_ns());
        let mut ended = None;
        loop {
            // If that was an answer to the attempt that is going on, the coordinator gives it up and begins another.
            self.begins_no_more = matches!(ended, Some(Ended::Impossible(..)));
            match (self.carry_out(), ended.take()) {
                (Some(Outcome::ConditionFailed), Some(refused @ Ended::Refused(..))) => return refused,
                (Some(Outcome::Unavailable), Some(impossible @ Ended::Impossible(..))) => return impossible,
                (Some(outcome), _) => return Ended::Answered(outcome),
                (None, Some(impossible @ Ended::Impossible(..))) if self.has_stopped => return impossible,
                (None, _) => {}
            }
            let Some(sent) = self.sent.next().await.filter(|_| self.goes_on()) else {
                return Ended::Answered(Outcome::Unknown);
            };
            ended = self.take(sent);
        }
    }

    /// What is left to do once the client was answered, or its request was ended.
    async fn rest(mut self) {
        loop {
            self.carry_out();
            let Some(sent) = self.sent.next().await.filter(|_| self.goes_on()) else { return };
            drop(self.take(sent));
        }
    }
}

/// Hands what is left of a transaction over when it is dropped, whether the client was answered or its request ended.
struct Handed<K: Kv>(Option<Transaction<K>>);

impl<K: Kv> Drop for Handed<K> {
    fn drop(&mut self) {
        // What the coordinator wants is sent before anything is waited for.
        if let Some(mut transaction) = self.0.take().filter(|transaction| !transaction.sent.is_empty()) {
            transaction.coordinator.client_left();
            let kv = Arc::clone(&transaction.kv);
            kv.spawn(transaction.rest());
        }
    }
}

/// Whether a batch is a transaction if it has several tablets: all but unlogged ones.
pub(super) fn is_atomic<K: Kv>(kv: &K, kind: BatchKind) -> bool {
    kind != BatchKind::Unlogged && kv.catalog().level() >= Level::RECORDED
}

/// Carries out parts until whoever has asked for them can be answered; also returns the names of their tables.
pub(super) async fn attempt<K: Kv>(
    of: &Coordinating<K>,
    mut parts: Vec<TransactionPart>,
    budget: &Arc<Budget>,
) -> Result<(Ended, Vec<(TabletId, String)>), CqlError> {
    budget.take(COPIES * parts.iter().map(|part| part.program.len() + part.key.len()).sum::<usize>())?;
    let tables = parts.iter_mut().map(|part| (part.part.tablet, std::mem::take(&mut part.table))).collect();
    let deletes_only = parts.iter().filter(|part| part.deletes_only).map(|part| part.part.tablet).collect();
    let plan = plan_of(&*of.kv, of.node, parts);
    let transaction = Transaction::new(of, Arc::clone(budget), plan, deletes_only);
    let mut handed = Handed(Some(transaction));
    let Some(transaction) = &mut handed.0 else { unreachable!("it was just made") };
    let mut ended = transaction.until_answered().await;
    if let (Ended::Answered(Outcome::Unavailable), Some((tablet, error))) = (&ended, transaction.last.take())
        && error.is_refusal()
    {
        ended = Ended::Impossible(tablet, error);
    }
    Ok((ended, tables))
}

impl<K: Kv> Writing<'_, K> {
    /// As [`Self::transact`], for a caller that it calls itself.
    pub(super) fn transact_boxed<'f>(
        &'f self,
        gathered: Gathered,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync + 'f,
    ) -> BoxFuture<'f, Result<WriteAnswer, Failure>> {
        Box::pin(self.transact(gathered, gather))
    }

    /// Carries out a transaction over several tablets, and answers the client.
    pub(super) async fn transact(
        &self,
        gathered: Gathered,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync,
    ) -> Result<WriteAnswer, Failure> {
        let (means, progress) = (self.means, self.means.progress);
        progress.begin(gathered.is_conditional);
        progress.add_part();
        progress.send();
        let (mut gathered, mut again) = (gathered, None);
        loop {
            let attempted = self.attempt(std::mem::take(&mut gathered.transaction)).await;
            let (ended, tables) = attempted.map_err(|error| self.refused(error))?;
            let (tablet, error) = match ended {
                Ended::Impossible(tablet, error) if error.is_of_plan() => (tablet, error),
                ended => return self.answer_transaction(ended, &tables),
            };
            if !self.may_plan_again(&mut again, error == KvError::Unmaintained).await {
                return self.answer_transaction(Ended::Impossible(tablet, error), &tables);
            }
            // The table has other tablets by now, or was dropped, or its tablets have dropped something. Nothing was done.
            let rest = self.engine.finish(means.work, || self.gathered(gather(&[])?)).await;
            gathered = rest.map_err(|error| self.refused(error))?;
            if gathered.transaction.is_empty() {
                progress.replanned();
                return self.write_gathered(gathered, gather).await;
            }
            tracing::debug!(%tablet, %error, "a transaction is planned again");
        }
    }

    /// Carries out parts until the client can be answered.
    pub(super) async fn attempt(
        &self,
        parts: Vec<TransactionPart>,
    ) -> Result<(Ended, Vec<(TabletId, String)>), CqlError> {
        attempt(&Coordinating::of(self.engine), parts, self.means.budget).await
    }

    /// A transaction has done nothing and never will.
    pub(super) fn refused(&self, error: CqlError) -> Failure {
        self.means.progress.answered(true);
        Failure::Statement(error)
    }

    pub(super) fn answer_transaction(
        &self,
        ended: Ended,
        tables: &[(TabletId, String)],
    ) -> Result<WriteAnswer, Failure> {
        let (progress, kv) = (self.means.progress, &*self.engine.kv);
        self.engine.outcomes.note(ended.kind());
        let first = tables.first().map_or(TabletId(0), |(tablet, _)| *tablet);
        let table_of = |tablet: TabletId| {
            let known = tables.iter().find(|(known, _)| *known == tablet);
            known.map_or("", |(_, table)| table.as_str())
        };
        let failed = |tablet: TabletId, error: KvError| {
            progress.failed(kv, tablet, &error);
            Err(Failure::Tablet(tablet, error))
        };
        match ended {
            Ended::Answered(Outcome::Applied(_)) => {
                progress.answered(false);
                Ok(WriteAnswer { response: Response::Void, is_cut: false })
            }
            Ended::Refused(tablet, of_program) => Err(self.refused(match ProgramReply::decode(&of_program) {
                Ok(ProgramReply::Failed(message)) if message == DAMAGED => malformed_row(kv, table_of(tablet), tablet),
                Ok(ProgramReply::Failed(message)) => invalid(message),
                _ => {
                    let table = table_of(tablet);
                    // YCQL's words.
                    invalid(format!("Execution Error. Condition on table {table} was not satisfied."))
                }
            })),
            Ended::Answered(Outcome::ConditionFailed) => {
                Err(self.refused(invalid("Execution Error. A condition was not satisfied.")))
            }
            Ended::Answered(Outcome::Conflict) => Err(self.refused(CqlError::overloaded(CONFLICT))),
            Ended::Answered(Outcome::Unavailable) => failed(first, KvError::Unavailable(first)),
            Ended::Answered(Outcome::Unknown) => {
                let after_ms = Timing::default().definite_ns / 1_000_000;
                failed(first, KvError::Timeout(Waited { after_ms, received: 0, required: 0 }))
            }
            Ended::Impossible(tablet, error) => failed(tablet, error),
        }
    }
}
