//! Point reads whose row is not in this node's memory: it is read from the disk, or by the node that leads its tablet.
//!
//! Always true: what is sent is byte for byte what the general path would send, to which every read goes that is unusual. Left out: reads
//! of several rows.

use super::point::{MAX_ROW_BYTES, StoredRow, encode_key, is_approved};
use super::request::{OwnedRequest, Reply};
use super::state::QueryEngine;
use crate::activity::{Note, Operation, Running};
use crate::error::{at_consistency, kv_error};
use crate::exec::read::tablet_of;
use crate::kv::{Fetch, FetchRows, Kv, KvError};
use crate::plan::point::{MAX_KEY_COLUMNS, MAX_VALUES};
use crate::plan::select::SelectPlan;
use crate::plan::{Plan, Planned};
use crate::prepared::Resolved;
use crate::program::PARTITION_DELETIONS;
use crate::session::Session;
use diorite_base::TabletId;
use diorite_cql::protocol::{CqlError, Message, Request, Response, Rows, Value};
use diorite_model::deletions::Deletions;
use diorite_model::key;
use diorite_model::row::NOTHING_DELETED;
use std::ops::Deref;
use std::sync::Arc;

/// The key of a row.
struct RowKey {
    tablet: TabletId,
    bytes: Vec<u8>,
    /// The length of its partition's part.
    partition_len: usize,
}

/// A row and the timestamp of the deletion over it.
struct Found<P> {
    value: Place<P>,
    deleted_us: i64,
}

/// The value of a row, where it was read.
enum Place<P> {
    Disk(P),
    Elsewhere(Vec<u8>),
}

impl<P: Deref<Target = [u8]>> Place<P> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Disk(value) => value,
            Self::Elsewhere(value) => value,
        }
    }
}

/// Why a row was not read.
enum Failure {
    /// The general path reads it, or reports the error.
    Declined,
    Failed(KvError),
    Refused(CqlError),
}

/// The reading of one row.
pub(super) struct RowRead<'a, K> {
    pub(super) engine: &'a QueryEngine<K>,
    pub(super) session: &'a Session,
    pub(super) request: &'a OwnedRequest,
    pub(super) running: &'a Running,
}

impl<K: Kv> RowRead<'_, K> {
    /// The reply to a point read that was declined because this node's memory does not hold the row. `None`: the request takes the general
    /// path.
    pub(super) async fn reply(&self, note: &mut Note) -> Option<Result<Reply, CqlError>> {
        let Self { engine, session, request, running } = *self;
        if !request.needs_disk {
            return None;
        }
        let Request::Execute(execute) = Message::decode(&request.envelope()).ok()?.request else { return None };
        let statement = engine.prepared.get(execute.id)?;
        let current = statement.current.load_full();
        let (point, resolved) = (current.planned.point.as_ref()?, current.resolved.as_ref()?);
        let Plan::Select(plan) = &current.planned.plan else { return None };
        if point.is_of_view {
            return None;
        }
        let parameters = &execute.parameters;
        let count = parameters.values.len();
        let fits = count == current.planned.marker_count && count <= MAX_VALUES;
        if !fits || !self.is_current_and_allowed(&current.planned, resolved) || current.planned.timeout.is_some() {
            return None;
        }
        if statement.would_mislead(request.version, parameters.skip_metadata) {
            return None;
        }
        let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
        let key = {
            let mut values = [Value::Unset; MAX_VALUES];
            values.iter_mut().zip(parameters.values.iter()).for_each(|(slot, value)| *slot = value);
            let mut bytes = Vec::new();
            let encoded = encode_key(point, &plan.table, &values[..count], &mut columns, &mut bytes);
            let (token, partition_len) = encoded.ok()?;
            RowKey { tablet: tablet_of(&resolved.entry.tablets, token), bytes, partition_len }
        };
        let (tablet, is_elsewhere) = (key.tablet, engine.is_led_elsewhere(key.tablet));
        if is_elsewhere && session.learns_tablets() {
            // The general path sends the driver the node that leads the tablet.
            return None;
        }
        note.operation = Operation::Read;
        engine.name(note, running, Arc::clone(&statement.activity));
        let found = if is_elsewhere {
            self.elsewhere(key, plan.table.staleness_ms(parameters.consistency)).await
        } else {
            self.on_disk(key).await
        };
        let row = match found {
            Ok(row) => row,
            Err(Failure::Declined) => return None,
            Err(Failure::Failed(error)) => {
                let error = kv_error(&error, None, engine.kv.replicas(tablet));
                return Some(Err(at_consistency(error, parameters.consistency, parameters.serial_consistency)));
            }
            Err(Failure::Refused(error)) => return Some(Err(error)),
        };
        Some(Ok(Reply {
            skip_metadata: parameters.skip_metadata && statement.may_skip_metadata(request.version),
            known_metadata_id: execute.result_metadata_id.map(<[u8]>::to_vec),
            ..Reply::plain(Response::Rows(self.rows(plan, &columns, row.as_ref())?))
        }))
    }

    /// Whether the plan is the catalog's and the session may read. The check from before is repeated only if the catalog has changed.
    fn is_current_and_allowed(&self, planned: &Planned, resolved: &Resolved) -> bool {
        resolved.catalog_version == self.engine.kv.catalog_version()
            && (self.session.is_trusted(resolved.catalog_version) || is_approved(self.session, planned, resolved))
    }

    /// The rows of the reply; `None` if the general path has to make them.
    fn rows(
        &self,
        plan: &SelectPlan,
        columns: &[&[u8]; MAX_KEY_COLUMNS],
        found: Option<&Found<K::Pinned>>,
    ) -> Option<Rows> {
        let mut rows = Rows::new(Arc::clone(&plan.selection.metadata));
        if let Some(found) = found {
            let value = found.value.bytes();
            if value.len() > MAX_ROW_BYTES {
                return None;
            }
            let stored = StoredRow { columns, value, deleted_us: found.deleted_us, judged_s: None };
            let is_there = self.engine.put_row(plan, &stored, &mut Vec::new(), &mut rows.body);
            rows.row_count = u32::from(is_there.ok()?);
        }
        Some(rows)
    }

    /// Reads a row of a tablet that this node leads, without a deletion over it, from the disk.
    async fn on_disk(&self, key: RowKey) -> Result<Option<Found<K::Pinned>>, Failure> {
        let RowKey { tablet, bytes, .. } = key;
        let (kv, budget) = (&self.engine.kv, &self.request.budget);
        let read = kv.get(tablet, bytes, budget.deadline()).await;
        let row = read.ok().flatten().ok_or(Failure::Declined)?;
        // The flags after the row, as in `Point::stored`; with them raised, row and header are read at one moment elsewhere.
        if kv.flags(tablet).map_err(|_| Failure::Declined)? & PARTITION_DELETIONS != 0 {
            return Err(Failure::Declined);
        }
        let Some(value) = row else { return Ok(None) };
        budget.take(2 * value.len()).map_err(|_| Failure::Declined)?;
        Ok(Some(Found { value: Place::Disk(value), deleted_us: NOTHING_DELETED }))
    }

    /// Reads a row, and the deletion over it, on the node that leads its tablet.
    async fn elsewhere(&self, key: RowKey, staleness_ms: Option<u32>) -> Result<Option<Found<K::Pinned>>, Failure> {
        let RowKey { tablet, bytes, partition_len } = key;
        let (kv, budget) = (&self.engine.kv, &self.request.budget);
        let mut header = Vec::with_capacity(partition_len + 1);
        header.extend_from_slice(&bytes[..partition_len]);
        key::push_header(&mut header);
        // The part of the key after its partition and the mark of a row.
        let clustering = bytes[partition_len + 1..].to_vec();
        let fetch = Fetch {
            header: Some((PARTITION_DELETIONS, header)),
            rows: FetchRows::One(bytes),
            staleness_ms,
            deadline_ns: budget.deadline(),
            ..Fetch::default()
        };
        let mut fetched = match kv.fetch(tablet, fetch).await {
            Ok(fetched) => fetched,
            // The table has other tablets by now, or was dropped; or a transaction has prepared the row.
            Err(KvError::NoSuchTablet(_) | KvError::Locked(_)) => return Err(Failure::Declined),
            Err(error) => return Err(Failure::Failed(error)),
        };
        // Twice: for the row and for the reply.
        budget.take(2 * fetched.to_be_charged()).map_err(Failure::Refused)?;
        let Some(value) = fetched.row else { return Ok(None) };
        let deleted_us = match &fetched.header {
            None => NOTHING_DELETED,
            Some(found) => {
                let deletions = Deletions::decode(found).map_err(|_| Failure::Declined)?;
                deletions.deletion_for(&clustering, &value)
            }
        };
        Ok(Some(Found { value: Place::Elsewhere(value), deleted_us }))
    }
}
