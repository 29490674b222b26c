//! Point statements: EXECUTE of a point read or a single-row write, answered or submitted without waiting.
//!
//! Looks up the statement, checks that its plan is the catalog's, encodes the key into a scratch buffer, finds the tablet, and either reads
//! the row from memory into the reply or submits the write to the tablet. Anything unusual (a value that does not fit, another shape of
//! statement, a row that is not in memory) is declined before it has any effect and takes the general path, which reports all errors.
//!
//! Always true: no lock is shared between connections, nothing is allocated but the mutation; what is sent is byte for byte what the general
//! path would send. Left out: everything else.

use super::state::QueryEngine;
use crate::activity::Slot;
use crate::budget::refused;
use crate::error::write_error;
use crate::exec::read::tablet_of;
use crate::exec::write::{Timing, expiry, explicit_timestamp, pack_row};
use crate::kv::{Kv, Now, WriteSink};
use crate::plan::modify::{ModifyKind, ModifyPlan};
use crate::plan::point::{MAX_KEY_COLUMNS, MAX_VALUES, PointPlan};
use crate::plan::select::SelectPlan;
use crate::plan::term::{Bound, Term};
use crate::plan::{Plan, Planned};
use crate::prepared::{CurrentPlan, PreparedStatement, Resolved};
use crate::program::PARTITION_DELETIONS;
use crate::session::Session;
use crate::table::TableContext;
use diorite_base::TabletId;
use diorite_base::account::Meter;
use diorite_base::limits::MAX_MUTATION_BYTES;
use diorite_base::mutation::{Mutation, OperationKind};
use diorite_cql::protocol::response::{ReplyHead, encode_error};
use diorite_cql::protocol::rows::{put_cell, put_null};
use diorite_cql::protocol::{Consistency, Execute, RowsWriter, Value, Version, WriteType};
use diorite_model::deletions::Deletions;
use diorite_model::key;
use diorite_model::row::{LiveContent, LiveRow, NOTHING_DELETED, UNSTAMPED, is_plain, now_seconds};
use diorite_model::types::CqlType;
use std::cell::RefCell;
use std::sync::Arc;

/// Larger rows take the general path, where they do not delay other connections: plain rows, and rows whose values are assembled.
const MAX_PLAIN_ROW_BYTES: usize = 1 << 20;

pub(super) const MAX_ROW_BYTES: usize = 256 << 10;

/// The destination of the answer to a request.
#[derive(Clone, Copy)]
pub struct ReplyTo<'a> {
    /// The version of the connection
    pub version: Version,
    /// The stream of the request
    pub stream: i16,
    /// The sink for the outcome of a submitted write
    pub sink: &'a Arc<dyn WriteSink>,
    /// The meter that a submitted write is charged to in advance; the receiver of its outcome returns [`held_bytes_of`]
    pub meter: &'a Meter,
    /// The bytes of the request that its connection keeps until a submitted write is answered, for the charge of the write
    pub kept_bytes: usize,
    /// Identifies the request at the sink; bits 16 to 31 belong to the engine, see [`slot_of`], [`write_type_of`] and [`held_bytes_of`]
    pub token: u64,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecuteNow {
    /// The answer of a read is in the buffer.
    Replied {
        /// The statement's number (`activity`).
        slot: Slot,
        /// Rows in it.
        rows: u64,
    },
    /// The write was refused: the error is in the buffer.
    Refused,
    /// The write was submitted; its outcome goes to the sink: empty for success (answer VOID), or an error.
    Submitted,
    /// Nothing was done: the request takes the general path.
    NeedsWait,
    /// Declined, because this node's memory does not hold the row: [`QueryEngine::answer`] reads it from the disk or another node at once.
    NeedsDisk,
}

/// Where the number of the statement is in the token of a write.
const SLOT_SHIFT: u32 = 16;

/// The number of the statement of a submitted write, by the token that came back with its outcome.
pub fn slot_of(token: u64) -> Slot {
    (token >> SLOT_SHIFT) as Slot & 0x7FF
}

/// Set in the token of a write to a counter.
const COUNTS: u64 = 1 << 27;

/// The type of a submitted write in errors, by the token that came back with its outcome.
pub fn write_type_of(token: u64) -> WriteType {
    if token & COUNTS == 0 { WriteType::Simple } else { WriteType::Counter }
}

/// Where the size class of a write is in its token.
const SIZE_SHIFT: u32 = 28;
/// The memory of a submitted write beside its key, its values and its request, until it is answered.
const WRITE_BYTES: usize = 512;
/// The capacity of the smallest size class; each of the fifteen others has twice that of the one before.
const SMALLEST_CLASS_BYTES: usize = 1 << 10;

/// The size class of a write whose key and values, and whose request, are this long together, where its token has it.
fn size_class(content_bytes: usize) -> u64 {
    let classes = (content_bytes + WRITE_BYTES).div_ceil(SMALLEST_CLASS_BYTES).next_power_of_two();
    u64::from(classes.trailing_zeros().min(15)) << SIZE_SHIFT
}

/// The bytes charged for a submitted write, by the tag that came back with its outcome.
pub fn held_bytes_of(token: u64) -> usize {
    SMALLEST_CLASS_BYTES << (token >> SIZE_SHIFT & 0xF)
}

/// The request takes the general path.
pub(super) struct Declined;

#[derive(Default)]
pub(super) struct Scratch {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// The last request was declined because its row is not in memory.
    needs_disk: bool,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Whether an earlier check, at this version of the catalog, allowed the session's role to do this.
#[cold]
pub(super) fn is_approved(session: &Session, planned: &Planned, resolved: &Resolved) -> bool {
    let is_write = matches!(planned.plan, Plan::Modify(_));
    session.is_approved(resolved.catalog_version, resolved.entry.table.id, is_write)
}

/// Whether a row of more than [`MAX_ROW_BYTES`] takes too long for the connection's thread.
#[cold]
pub(super) fn is_large(value: &[u8]) -> bool {
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

/// Appends the row's key, or its beginning, to `out`; returns its token and the length of its partition part. Puts the wire values of the key columns into
/// `columns`.
#[inline]
pub(super) fn encode_key<'a>(
    plan: &'a PointPlan,
    table: &TableContext,
    values: &[Value<'a>],
    columns: &mut [&'a [u8]; MAX_KEY_COLUMNS],
    out: &mut Vec<u8>,
) -> Result<(i64, usize), Declined> {
    for (column, term) in columns.iter_mut().zip(&plan.keys) {
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
    let clustering = &columns[table.partition_columns()..plan.keys.len()];
    table.layout().push_clusterings(clustering.iter().copied(), out).map_err(|_| Declined)?;
    Ok((token, partition_len))
}

/// A row as it was read.
pub(super) struct StoredRow<'r> {
    /// The wire values of its key columns.
    pub(super) columns: &'r [&'r [u8]; MAX_KEY_COLUMNS],
    pub(super) value: &'r [u8],
    /// The timestamp of the deletion over it.
    pub(super) deleted_us: i64,
    /// The second at which its expiry is judged; `None`: this one.
    pub(super) judged_s: Option<u32>,
}

/// A point statement that is being executed.
pub(super) struct Point<'a, K> {
    pub(super) engine: &'a QueryEngine<K>,
    session: &'a Session,
    pub(super) statement: &'a PreparedStatement,
    current: &'a CurrentPlan,
    pub(super) resolved: &'a Resolved,
    pub(super) request: &'a Execute<'a>,
    pub(super) values: &'a [Value<'a>],
    pub(super) reply: ReplyTo<'a>,
}

impl<K: Kv> QueryEngine<K> {
    /// Answers or submits EXECUTE, if that needs no waiting. It appends one whole message to `out`, or nothing.
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
                // The general path checks, and remembers the result.
                return Err(Declined);
            }
            let mut few = [Value::Unset; MAX_VALUES];
            let count = parameters.values.len();
            if count != current.planned.marker_count {
                return Err(Declined);
            }
            few.iter_mut().zip(parameters.values.iter()).for_each(|(slot, value)| *slot = value);
            let values = &few[..count];
            let point = Point { engine: self, session, statement, current: &current, resolved, request, values, reply };
            SCRATCH.with_borrow_mut(|scratch| point.run(scratch, out))
        });
        match outcome {
            Some(Ok(outcome)) => outcome,
            Some(Err(Declined)) if SCRATCH.with_borrow_mut(|scratch| std::mem::take(&mut scratch.needs_disk)) => {
                ExecuteNow::NeedsDisk
            }
            Some(Err(Declined)) | None => ExecuteNow::NeedsWait,
        }
    }

    /// Appends the cells of the row, if it exists.
    #[inline]
    pub(super) fn put_row(
        &self,
        plan: &SelectPlan,
        stored: &StoredRow<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Declined> {
        let StoredRow { columns, value, deleted_us, judged_s } = *stored;
        // Only rows with an expiry or a deletion depend on the time.
        let now_s = if is_plain(value) { 0 } else { judged_s.unwrap_or_else(|| now_seconds(self.kv.now_us())) };
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

    /// Marks a plan as current after a change of the catalog that did not change its table. The next request uses it.
    fn refresh(&self, statement: &PreparedStatement, current: &Arc<CurrentPlan>) {
        let Some(resolved) = Resolved::of(&current.planned, &self.kv.catalog()) else { return };
        let fresh = CurrentPlan {
            planned: Arc::clone(&current.planned),
            reply: Arc::clone(&current.reply),
            resolved: Some(resolved),
        };
        // Another plan that was stored meanwhile stays.
        statement.current.compare_and_swap(current, Arc::new(fresh));
    }
}

impl<K: Kv> Point<'_, K> {
    #[inline]
    fn run(&self, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<ExecuteNow, Declined> {
        let point = self.current.planned.point.as_ref().ok_or(Declined)?;
        match &self.current.planned.plan {
            // Which levels are for writes only, the general path says.
            Plan::Select(plan) if self.request.parameters.consistency != Consistency::Any => match point.is_of_view {
                true => self.read_view(plan, point, scratch, out),
                false => self.read(plan, point, scratch, out),
            },
            Plan::Modify(plan) if !self.request.parameters.consistency.is_serial() => {
                self.submit(plan, point, scratch, out)
            }
            _ => Err(Declined),
        }
    }

    #[inline]
    fn read(
        &self,
        plan: &SelectPlan,
        point: &PointPlan,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<ExecuteNow, Declined> {
        let Point { statement, request, reply, .. } = *self;
        let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
        let (token, partition_len) = encode_key(point, &plan.table, self.values, &mut columns, &mut scratch.key)?;
        let tablet = tablet_of(&self.resolved.entry.tablets, token);
        let skips_metadata = request.parameters.skip_metadata;
        if statement.would_mislead(reply.version, skips_metadata) {
            return Err(Declined);
        }
        let skip = skips_metadata && statement.may_skip_metadata(reply.version);
        let metadata = &plan.selection.metadata;
        let send = metadata.to_send(skip, request.result_metadata_id);
        let row = self.stored(tablet, &scratch.key, partition_len, &mut scratch.needs_disk)?;
        if row.as_ref().is_some_and(|(value, _)| value.len() > MAX_ROW_BYTES && is_large(value)) {
            return Err(Declined);
        }
        let head = ReplyHead::new(reply.version, reply.stream);
        let mut rows = RowsWriter::begin(out, &head, metadata, send, None);
        let mut is_there = false;
        if let Some((value, deleted_us)) = &row {
            let stored = StoredRow { columns: &columns, value, deleted_us: *deleted_us, judged_s: None };
            is_there = self.engine.put_row(plan, &stored, &mut scratch.value, rows.cells())?;
        }
        if is_there {
            rows.end_row();
        }
        rows.finish();
        Ok(ExecuteNow::Replied { slot: statement.activity.slot(), rows: u64::from(is_there) })
    }

    /// The stored row and the deletion over it, if both are in memory.
    #[inline]
    fn stored(
        &self,
        tablet: TabletId,
        key: &[u8],
        partition_len: usize,
        needs_disk: &mut bool,
    ) -> Result<Option<(K::Pinned, i64)>, Declined> {
        let mut now = |key: &[u8]| match self.engine.kv.get_now(tablet, key) {
            Ok(Now::Ready(value)) => Ok(value),
            Ok(Now::WouldBlock) => {
                *needs_disk = true;
                Err(Declined)
            }
            Err(_) => Err(Declined),
        };
        let Some(value) = now(key)? else { return Ok(None) };
        let mut deleted_us = NOTHING_DELETED;
        if self.engine.kv.flags(tablet).map_err(|_| Declined)? & PARTITION_DELETIONS != 0 {
            let mut header = key[..partition_len].to_vec();
            key::push_header(&mut header);
            if let Some(found) = now(&header)? {
                // Row and header must be of one moment. If the row has changed in between, the general path reads both at once.
                if now(key)?.as_deref() != Some(&*value) {
                    return Err(Declined);
                }
                let deletions = Deletions::decode(&found).map_err(|_| Declined)?;
                deleted_us = deletions.deletion_for(&key[partition_len + 1..], &value);
            }
        }
        Ok(Some((value, deleted_us)))
    }

    #[inline]
    fn submit(
        &self,
        plan: &ModifyPlan,
        point: &PointPlan,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<ExecuteNow, Declined> {
        let Point { engine, request, values, reply, .. } = *self;
        let has_views = plan.table.has_views();
        if plan.concerns_dependents() || has_views && plan.timestamp.is_some() {
            return Err(Declined);
        }
        let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
        let (token, _) = encode_key(point, &plan.table, values, &mut columns, &mut scratch.key)?;
        let bound = Bound { values, environment: engine.environment_now() };
        let now_s = bound.environment.now_s;
        let table = plan.table.table();
        let given = match &plan.timestamp {
            Some(term) => explicit_timestamp(term, &bound).map_err(|_| Declined)?,
            None => None,
        };
        let is_counter = table.is_counter();
        let takes_attached = engine.config.client_timestamps && !is_counter && !has_views;
        let attached = request.parameters.default_timestamp_us.filter(|_| takes_attached);
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
        let tablet = tablet_of(&self.resolved.entry.tablets, token);
        if self.session.learns_tablets() && engine.is_led_elsewhere(tablet) {
            // The general path sends the driver the node that leads the tablet.
            return Err(Declined);
        }
        let slot = u64::from(self.statement.activity.slot()) << SLOT_SHIFT;
        let class = size_class(scratch.key.len() + scratch.value.len() + reply.kept_bytes);
        let tag = reply.token | slot | class | if is_counter { COUNTS } else { 0 };
        // Charged before it is allocated.
        if let Err(error) = reply.meter.take(held_bytes_of(tag)) {
            encode_error(out, &ReplyHead::new(reply.version, reply.stream), &refused(error));
            return Ok(ExecuteNow::Refused);
        }
        let mut mutation = Mutation::blind(timing.explicit_us);
        mutation.push_row(kind, is_stamped, packed.is_unplaced, &scratch.key, &scratch.value);
        if plan.kind == ModifyKind::Delete {
            mutation.mark_deletion();
        }
        let outcome = self.submit_charged(tablet, mutation, tag, out);
        if !matches!(outcome, Ok(ExecuteNow::Submitted)) {
            reply.meter.give(held_bytes_of(tag));
        }
        outcome
    }

    /// Submits a write that is charged.
    #[inline]
    fn submit_charged(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        tag: u64,
        out: &mut Vec<u8>,
    ) -> Result<ExecuteNow, Declined> {
        let Point { engine, request, reply, .. } = *self;
        if mutation.size_bytes() > MAX_MUTATION_BYTES {
            return Err(Declined);
        }
        match engine.kv.submit(tablet, mutation, reply.sink, tag) {
            Ok(()) => Ok(ExecuteNow::Submitted),
            // The general path plans it again.
            Err(error) if error.is_of_plan() => Err(Declined),
            Err(error) => {
                let asked = request.parameters.consistency;
                let error = write_error(&*engine.kv, &error, write_type_of(tag), asked);
                encode_error(out, &ReplyHead::new(reply.version, reply.stream), &error);
                Ok(ExecuteNow::Refused)
            }
        }
    }
}
