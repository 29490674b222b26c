//! The shortest way: EXECUTE of a point read or a single-row write, answered or submitted without waiting.
//!
//! Looks up the statement, checks that its plan is the catalog's, encodes the key into a scratch buffer, finds the tablet, and either reads
//! the row from memory into the reply or hands the write to the tablet. Anything unusual (a value that does not fit, another shape of
//! statement, a row that is not in memory) is declined before it has any effect and takes the general way, which knows all errors.
//!
//! Always true: no lock is shared between connections, nothing is allocated but the mutation; what is sent is byte for byte what the general
//! way would send. Left out: everything else.

use crate::activity::{Note, Operation, Running, Slot};
use crate::engine::{OwnedRequest, QueryEngine, Reply};
use crate::exec::evaluate::now_seconds;
use crate::exec::select::tablet_of;
use crate::exec::write::{Timing, expiry, explicit_timestamp, pack_row};
use crate::kv::{Kv, KvError, Now, WriteSink};
use crate::plan::modify::{AnswerAs, ModifyKind, ModifyPlan, Scope};
use crate::plan::restrictions::{ClusteringRestriction, PartitionRestriction, Restrictions, Values};
use crate::plan::select::SelectPlan;
use crate::plan::term::{Bound, Term};
use crate::plan::{Plan, Planned};
use crate::prepared::{CurrentPlan, PreparedStatement, Resolved};
use crate::program::PARTITION_DELETIONS;
use crate::session::Session;
use crate::table::{Source, TableContext};
use diorite_base::TabletId;
use diorite_base::mutation::{Mutation, OperationKind};
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::response::{ReplyHead, encode_error};
use diorite_cql::protocol::rows::{put_cell, put_null};
use diorite_cql::protocol::{Execute, Message, Request, Response, Rows, RowsWriter, Value, Version, WriteType};
use diorite_model::deletions::Deletions;
use diorite_model::key;
use diorite_model::row::{LiveContent, LiveRow, NOTHING_DELETED, UNSTAMPED, is_plain};
use diorite_model::types::CqlType;
use std::cell::RefCell;
use std::sync::Arc;

/// The most bind markers and key columns of a statement that goes this way.
const MAX_VALUES: usize = 64;
const MAX_KEY_COLUMNS: usize = 16;
/// Larger rows are answered where it holds up nobody: those that are copied, and those that are put together element by element.
const MAX_PLAIN_ROW_BYTES: usize = 1 << 20;
const MAX_ROW_BYTES: usize = 256 << 10;

/// Where the answer of a request goes.
#[derive(Clone, Copy)]
pub struct ReplyTo<'a> {
    /// The version of the connection
    pub version: Version,
    /// The stream of the request
    pub stream: i16,
    /// Where the outcome of a submitted write goes
    pub sink: &'a Arc<dyn WriteSink>,
    /// What names the request there; bits 16 to 27 are left to the engine, see [`slot_of`] and [`write_type_of`]
    pub token: u64,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecuteNow {
    /// The answer of a read is in the buffer.
    Replied {
        /// The statement's number (`activity`).
        slot: Slot,
        /// Rows in it.
        rows: u64,
    },
    /// A write was not taken: the error is in the buffer.
    Refused,
    /// A write is on its way; its outcome goes to the sink: empty for success (answer VOID), or an error.
    Submitted,
    /// Nothing was done: the request has to take the general way.
    NeedsWait,
    /// The same, because the row is not in memory: the general way need not look there again.
    NeedsDisk,
}

/// The number of the statement of a submitted write, by the token that came back with its outcome.
pub fn slot_of(token: u64) -> Slot {
    (token >> 16) as Slot & 0x7FF
}

/// Set in the token of a write to a counter.
const COUNTS: u64 = 1 << 27;

/// What a submitted write is called in errors, by the token that came back with its outcome.
pub fn write_type_of(token: u64) -> WriteType {
    if token & COUNTS == 0 { WriteType::Simple } else { WriteType::Counter }
}

/// Why the short way ends early: the request takes the general one.
struct Declined;

/// How a statement goes the short way.
#[derive(Debug)]
pub struct HotPlan {
    /// One term per key column: partition key, then clustering.
    keys: Vec<Term>,
}

#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    value: Vec<u8>,
    /// The last request was declined because its row is not in memory.
    needs_disk: bool,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The table of a plan as the catalog has it, if the plan may go the short way.
pub fn resolve(planned: &Planned, catalog: &Catalog) -> Option<Resolved> {
    planned.hot.as_ref()?;
    let [table] = planned.tables.as_slice() else { return None };
    let entry = catalog.table_by_id(table.table().id)?;
    (entry.table.version == table.table().version)
        .then(|| Resolved { catalog_version: catalog.version(), entry: Arc::clone(entry) })
}

/// Whether a plan may go the short way.
pub fn hot_plan(plan: &Plan, marker_count: usize) -> Option<HotPlan> {
    if marker_count > MAX_VALUES {
        return None;
    }
    match plan {
        Plan::Select(select) if is_hot_select(select) => key_terms(&select.table, &select.restrictions),
        Plan::Modify(modify) if is_hot_modify(modify) => key_terms(&modify.table, &modify.restrictions),
        _ => None,
    }
}

fn is_hot_select(plan: &SelectPlan) -> bool {
    let selects_statics = plan.selection.reads.iter().enumerate().any(|(at, read)| *read && plan.table.is_static(at));
    plan.table.source() == Source::Tablets
        && plan.selection.plain_columns.is_some()
        && plan.restrictions.filters.is_empty()
        && plan.ordering.is_empty()
        && plan.grouping.is_none()
        && plan.offset.is_none()
        && !plan.is_distinct
        && !selects_statics
        && plan.restrictions.fixed_clustering == plan.table.clustering_columns()
        && matches!(plan.limit, None | Some(Term::Constant(_)))
        && matches!(plan.per_partition_limit, None | Some(Term::Constant(_)))
}

fn is_hot_modify(plan: &ModifyPlan) -> bool {
    plan.condition.is_none()
        && plan.answer == AnswerAs::default()
        && plan.scope == Scope::Rows
        && !plan.reads_row
        && !plan.operations.iter().any(|operation| plan.table.is_static(operation.column))
}

fn key_terms(table: &TableContext, restrictions: &Restrictions) -> Option<HotPlan> {
    let PartitionRestriction::Keys(partition) = &restrictions.partition else { return None };
    let mut keys = Vec::with_capacity(table.key_columns());
    for values in partition {
        let Values::One(term) = values else { return None };
        keys.push(term.clone());
    }
    for restriction in &restrictions.clustering {
        let ClusteringRestriction::Values(Values::One(term)) = restriction else { return None };
        keys.push(term.clone());
    }
    let is_scalar = |at: usize| table.column(at).data_type.native_name().is_some();
    let is_direct = |term: &Term| matches!(term, Term::Marker { .. } | Term::Constant(Some(_)));
    let fits = keys.len() == table.key_columns() && keys.len() <= MAX_KEY_COLUMNS;
    (fits && (0..keys.len()).all(is_scalar) && keys.iter().all(is_direct)).then_some(HotPlan { keys })
}

impl HotPlan {
    /// Appends the row's key to `out`; returns its token and how much of it is the partition's. The wire values of the key columns go to `columns`.
    #[inline]
    fn key<'a>(
        &'a self,
        table: &TableContext,
        values: &[Value<'a>],
        columns: &mut [&'a [u8]; MAX_KEY_COLUMNS],
        out: &mut Vec<u8>,
    ) -> Result<(i64, usize), Declined> {
        for (column, term) in columns.iter_mut().zip(&self.keys) {
            *column = match term {
                Term::Marker { index, data_type } => match values[usize::from(*index)] {
                    Value::Set(bytes) => {
                        data_type.validate(bytes).map_err(|_| Declined)?;
                        bytes
                    }
                    Value::Null | Value::Unset => return Err(Declined),
                },
                Term::Constant(Some(bytes)) => bytes,
                _ => return Err(Declined),
            };
        }
        out.clear();
        let partition = &columns[..table.partition_columns()];
        let token = table.layout().encode_partition(partition.iter().copied(), out).map_err(|_| Declined)?;
        let partition_len = out.len();
        key::push_row(out);
        let clustering = &columns[table.partition_columns()..table.key_columns()];
        table.layout().push_clusterings(clustering.iter().copied(), out).map_err(|_| Declined)?;
        Ok((token, partition_len))
    }
}

/// Whether the session's role was found to be allowed this before, by this version of the catalog.
#[cold]
fn is_approved(session: &Session, planned: &Planned, resolved: &Resolved) -> bool {
    let is_write = matches!(planned.plan, Plan::Modify(_));
    session.is_approved(resolved.catalog_version, resolved.entry.table.id, is_write)
}

impl<K: Kv> QueryEngine<K> {
    /// Answers or submits EXECUTE, if that needs no waiting. What it appends to `out` is one whole message, or nothing.
    pub fn execute_now(
        &self,
        session: &Session,
        request: &Execute<'_>,
        reply: ReplyTo<'_>,
        out: &mut Vec<u8>,
    ) -> ExecuteNow {
        let parameters = &request.parameters;
        if parameters.values.is_named() || parameters.paging_state.is_some() || parameters.now_in_seconds.is_some() {
            return ExecuteNow::NeedsWait;
        }
        let outcome = self.prepared.with(request.id, |statement| {
            let current = statement.current.load();
            let resolved = current.resolved.as_ref().ok_or(Declined)?;
            if resolved.catalog_version != self.kv.catalog_version() {
                self.refresh(statement, &current);
                return Err(Declined);
            }
            if !session.is_trusted(resolved.catalog_version) && !is_approved(session, &current.planned, resolved) {
                // The general way checks, and remembers that it did.
                return Err(Declined);
            }
            let mut few = [Value::Unset; MAX_VALUES];
            let count = parameters.values.len();
            if count != current.planned.marker_count {
                return Err(Declined);
            }
            few.iter_mut().zip(parameters.values.iter()).for_each(|(slot, value)| *slot = value);
            SCRATCH.with_borrow_mut(|scratch| {
                self.run_hot(session, statement, &current, resolved, request, &few[..count], reply, scratch, out)
            })
        });
        match outcome {
            Some(Ok(outcome)) => outcome,
            Some(Err(Declined)) if SCRATCH.with_borrow_mut(|scratch| std::mem::take(&mut scratch.needs_disk)) => {
                ExecuteNow::NeedsDisk
            }
            Some(Err(Declined)) | None => ExecuteNow::NeedsWait,
        }
    }

    /// After a change of the catalog that left the table alone, the plan is good for the new version as well: from the next request on.
    fn refresh(&self, statement: &PreparedStatement, current: &Arc<CurrentPlan>) {
        let Some(resolved) = resolve(&current.planned, &self.kv.catalog()) else { return };
        let fresh = CurrentPlan {
            planned: Arc::clone(&current.planned),
            reply: Arc::clone(&current.reply),
            resolved: Some(resolved),
        };
        // If another plan was stored meanwhile it stays.
        statement.current.compare_and_swap(current, Arc::new(fresh));
    }

    #[allow(clippy::too_many_arguments, reason = "everything is borrowed from different owners on the way here")]
    #[inline]
    fn run_hot(
        &self,
        session: &Session,
        statement: &PreparedStatement,
        current: &CurrentPlan,
        resolved: &Resolved,
        request: &Execute<'_>,
        values: &[Value<'_>],
        reply: ReplyTo<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<ExecuteNow, Declined> {
        let hot = current.planned.hot.as_ref().ok_or(Declined)?;
        match &current.planned.plan {
            Plan::Select(plan) => {
                let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
                let (token, partition_len) = hot.key(&plan.table, values, &mut columns, &mut scratch.key)?;
                let tablet = tablet_of(&resolved.entry.tablets, token);
                if statement.would_mislead(reply.version, request.parameters.skip_metadata) {
                    return Err(Declined);
                }
                let skip = request.parameters.skip_metadata && statement.may_skip_metadata(reply.version);
                let metadata = &plan.selection.metadata;
                let send = metadata.to_send(skip, request.result_metadata_id);
                let row = self.read_now(tablet, &scratch.key, partition_len, &mut scratch.needs_disk)?;
                if row.as_ref().is_some_and(|(value, _)| value.len() > MAX_ROW_BYTES && is_large(value)) {
                    return Err(Declined);
                }
                let head = ReplyHead::new(reply.version, reply.stream);
                let mut rows = RowsWriter::begin(out, &head, metadata, send, None);
                let mut is_there = false;
                if let Some((value, deleted_us)) = &row {
                    is_there = self.put_row(plan, &columns, value, *deleted_us, &mut scratch.value, rows.cells())?;
                }
                if is_there {
                    rows.end_row();
                }
                rows.finish();
                Ok(ExecuteNow::Replied { slot: statement.activity.slot(), rows: u64::from(is_there) })
            }
            Plan::Modify(plan) if !request.parameters.consistency.is_serial() => {
                let token = reply.token | u64::from(statement.activity.slot()) << 16;
                let reply = ReplyTo { token, ..reply };
                self.submit(session, plan, hot, resolved, request, values, reply, scratch, out)
            }
            _ => Err(Declined),
        }
    }

    /// The stored row and the deletion over it, if both are in memory.
    #[inline]
    fn read_now(
        &self,
        tablet: TabletId,
        key: &[u8],
        partition_len: usize,
        needs_disk: &mut bool,
    ) -> Result<Option<(K::Pinned, i64)>, Declined> {
        let mut now = |key: &[u8]| match self.kv.get_now(tablet, key) {
            Ok(Now::Ready(value)) => Ok(value),
            Ok(Now::WouldBlock) => {
                *needs_disk = true;
                Err(Declined)
            }
            Err(_) => Err(Declined),
        };
        let Some(value) = now(key)? else { return Ok(None) };
        let mut deleted_us = NOTHING_DELETED;
        if self.kv.flags(tablet).map_err(|_| Declined)? & PARTITION_DELETIONS != 0 {
            let mut header = key[..partition_len].to_vec();
            key::push_header(&mut header);
            if let Some(found) = now(&header)? {
                // The row that the header was over when it was read: if it has changed since, both are read at one moment elsewhere.
                if now(key)?.as_deref() != Some(&*value) {
                    return Err(Declined);
                }
                let deletions = Deletions::decode(&found).map_err(|_| Declined)?;
                deleted_us = deletions.deletion_for(&key[partition_len + 1..], &value);
            }
        }
        Ok(Some((value, deleted_us)))
    }

    /// Appends the cells of the row, if it is there.
    #[inline]
    fn put_row(
        &self,
        plan: &SelectPlan,
        columns: &[&[u8]; MAX_KEY_COLUMNS],
        value: &[u8],
        deleted_us: i64,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Declined> {
        // The time matters only to rows with something that expires or is deleted.
        let now_s = if is_plain(value) { 0 } else { now_seconds(self.kv.now_us()) };
        let row = LiveRow::new(value, now_s, deleted_us).map_err(|_| Declined)?;
        if !plan.table.row_exists(&row).map_err(|_| Declined)? {
            return Ok(false);
        }
        let table = &plan.table;
        let selected = plan.selection.plain_columns.as_deref().ok_or(Declined)?;
        // Stored cells ascend by column id, and selected columns mostly do: one pass serves both.
        let mut cells = row.cells();
        let mut next = None;
        let mut last_id = None;
        for &at in selected {
            if at < table.key_columns() {
                put_cell(out, columns[at]);
                continue;
            }
            let column = table.column(at);
            let content = if last_id.is_none_or(|last| last < column.id) {
                while next.is_none_or(|cell: diorite_model::row::LiveCell<'_>| cell.column < column.id) {
                    match cells.next() {
                        Some(cell) => next = Some(cell.map_err(|_| Declined)?),
                        None => break,
                    }
                }
                last_id = Some(column.id);
                next.filter(|cell| cell.column == column.id)
            } else {
                row.cell(column.id).map_err(|_| Declined)?
            };
            put_content(content.map(|cell| cell.content), &column.data_type, scratch, out)?;
        }
        Ok(true)
    }

    /// The reply to a point read that was declined because its row is not in memory: reads the row from disk. `None`: nothing has been done, and the request has to
    /// take the general way.
    pub(crate) async fn read_row(
        &self,
        session: &Session,
        request: &OwnedRequest,
        note: &mut Note,
        running: &Running,
    ) -> Option<Reply> {
        if !request.needs_disk {
            return None;
        }
        let Request::Execute(execute) = Message::decode(&request.envelope()).ok()?.request else { return None };
        let statement = self.prepared.get(execute.id)?;
        let current = statement.current.load_full();
        let (hot, resolved) = (current.planned.hot.as_ref()?, current.resolved.as_ref()?);
        let Plan::Select(plan) = &current.planned.plan else { return None };
        // As before it was declined, but for what has changed since.
        let is_current = resolved.catalog_version == self.kv.catalog_version();
        let is_allowed =
            session.is_trusted(resolved.catalog_version) || is_approved(session, &current.planned, resolved);
        let parameters = &execute.parameters;
        let misleads = statement.would_mislead(request.version, parameters.skip_metadata);
        let count = parameters.values.len();
        let fits = count == current.planned.marker_count && count <= MAX_VALUES;
        if !is_current || !is_allowed || misleads || !fits || current.planned.timeout.is_some() {
            return None;
        }
        let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
        let mut key = Vec::new();
        let tablet = {
            let mut values = [Value::Unset; MAX_VALUES];
            values.iter_mut().zip(parameters.values.iter()).for_each(|(slot, value)| *slot = value);
            let (token, _) = hot.key(&plan.table, &values[..count], &mut columns, &mut key).ok()?;
            tablet_of(&resolved.entry.tablets, token)
        };
        note.operation = Operation::Read;
        self.name(note, running, Arc::clone(&statement.activity));
        // The general way knows all errors.
        let row = self.kv.get(tablet, key, request.budget.deadline()).await.ok().flatten()?;
        // The flags after the row, as in `read_now`; with them raised, row and header are read at one moment elsewhere.
        if self.kv.flags(tablet).ok()? & PARTITION_DELETIONS != 0 {
            return None;
        }
        let mut rows = Rows::new(Arc::clone(&plan.selection.metadata));
        if let Some(value) = &row {
            if value.len() > MAX_ROW_BYTES || request.budget.take(2 * value.len()).is_err() {
                return None;
            }
            let is_there = self.put_row(plan, &columns, value, NOTHING_DELETED, &mut Vec::new(), &mut rows.body);
            rows.row_count = u32::from(is_there.ok()?);
        }
        Some(Reply {
            skip_metadata: parameters.skip_metadata && statement.may_skip_metadata(request.version),
            known_metadata_id: execute.result_metadata_id.map(<[u8]>::to_vec),
            ..Reply::plain(Response::Rows(rows))
        })
    }

    #[allow(clippy::too_many_arguments, reason = "as for `run_hot`")]
    #[inline]
    fn submit(
        &self,
        session: &Session,
        plan: &ModifyPlan,
        hot: &HotPlan,
        resolved: &Resolved,
        request: &Execute<'_>,
        values: &[Value<'_>],
        reply: ReplyTo<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<ExecuteNow, Declined> {
        let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
        let (token, _) = hot.key(&plan.table, values, &mut columns, &mut scratch.key)?;
        let bound = Bound { values, environment: self.environment_now() };
        let now_s = bound.environment.now_s;
        let table = plan.table.table();
        let given = match &plan.timestamp {
            Some(term) => explicit_timestamp(term, &bound).map_err(|_| Declined)?,
            None => None,
        };
        let is_counter = table.is_counter();
        let attached = request.parameters.default_timestamp_us.filter(|_| self.config.client_timestamps && !is_counter);
        if attached == Some(UNSTAMPED) {
            return Err(Declined);
        }
        let timing = Timing {
            explicit_us: given.or(attached),
            now_s,
            expiry: match plan.kind {
                ModifyKind::Delete => None,
                _ if is_counter => None,
                _ => expiry(plan.ttl.as_ref(), table, now_s, &bound).map_err(|_| Declined)?,
            },
        };
        scratch.value.clear();
        let packed = pack_row(plan, false, &bound, &timing, &mut scratch.value).map_err(|_| Declined)?;
        if packed.is_empty || !packed.list_edits.is_empty() {
            return Err(Declined);
        }
        let is_stamped = timing.explicit_us.is_none();
        let deletes_row = plan.kind == ModifyKind::Delete && plan.operations.is_empty();
        let is_whole = is_stamped && !packed.has_unset && (plan.names_every_column || deletes_row);
        let kind = if is_whole { OperationKind::Overwrite } else { OperationKind::Merge };
        let mut mutation = Mutation::blind(timing.explicit_us);
        mutation.push_row(kind, is_stamped, packed.is_unplaced, &scratch.key, &scratch.value);
        if plan.kind == ModifyKind::Delete {
            mutation.mark_deletion();
        }
        if mutation.size_bytes() > diorite_base::limits::MAX_MUTATION_BYTES {
            return Err(Declined);
        }
        let tablet = tablet_of(&resolved.entry.tablets, token);
        if session.learns_tablets() && self.is_led_elsewhere(tablet) {
            // The general way tells who leads it, so that the next one goes there.
            return Err(Declined);
        }
        let token = reply.token | if is_counter { COUNTS } else { 0 };
        match self.kv.submit(tablet, mutation, reply.sink, token) {
            Ok(()) => Ok(ExecuteNow::Submitted),
            // The general way looks again which tablets there are.
            Err(KvError::NoSuchTablet(_)) => Err(Declined),
            Err(error) => {
                let asked = request.parameters.consistency;
                let error = crate::error::write_error(&*self.kv, &error, write_type_of(token), asked);
                encode_error(out, &ReplyHead::new(reply.version, reply.stream), &error);
                Ok(ExecuteNow::Refused)
            }
        }
    }
}

/// Whether a row of more than [`MAX_ROW_BYTES`] is too much to be answered at once.
#[cold]
fn is_large(value: &[u8]) -> bool {
    value.len() > MAX_PLAIN_ROW_BYTES || !is_plain(value)
}

#[inline]
fn put_content(
    content: Option<LiveContent<'_>>,
    data_type: &CqlType,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), Declined> {
    match content {
        None => put_null(out),
        Some(LiveContent::Value(bytes)) => put_cell(out, bytes),
        Some(LiveContent::Counter(sum)) => put_cell(out, &sum.to_be_bytes()),
        Some(LiveContent::Complex(complex)) => {
            scratch.clear();
            complex.assemble(data_type, scratch).map_err(|_| Declined)?;
            put_cell(out, scratch);
        }
    }
    Ok(())
}
