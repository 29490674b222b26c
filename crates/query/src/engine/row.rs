//! Point reads whose row is not in this node's memory: it is read from the disk, or by the node that leads its tablet.
//!
//! Always true: what is sent is byte for byte what the general path would send, to which every read goes that is unusual. Left out: reads
//! of several rows.

use super::point::{MAX_ROW_BYTES, StoredRow, encode_key, is_approved};
use super::request::{OwnedRequest, Reply};
use super::state::QueryEngine;
use crate::activity::{Note, Operation, Running};
use crate::budget::Budget;
use crate::error::{at_consistency, kv_error};
use crate::exec::read::tablet_of;
use crate::kv::{Fetch, FetchRows, Kv, KvError};
use crate::plan::Plan;
use crate::plan::point::{MAX_KEY_COLUMNS, MAX_VALUES};
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

impl<K: Kv> QueryEngine<K> {
    /// The reply to a point read that was declined because this node's memory does not hold the row. `None`: the request takes the general
    /// path.
    pub(super) async fn read_row(
        &self,
        session: &Session,
        request: &OwnedRequest,
        note: &mut Note,
        running: &Running,
    ) -> Option<Result<Reply, CqlError>> {
        if !request.needs_disk {
            return None;
        }
        let Request::Execute(execute) = Message::decode(&request.envelope()).ok()?.request else { return None };
        let statement = self.prepared.get(execute.id)?;
        let current = statement.current.load_full();
        let (point, resolved) = (current.planned.point.as_ref()?, current.resolved.as_ref()?);
        let Plan::Select(plan) = &current.planned.plan else { return None };
        // The check from before, repeated only if the catalog has changed.
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
        let mut bytes = Vec::new();
        let (tablet, partition_len) = {
            let mut values = [Value::Unset; MAX_VALUES];
            values.iter_mut().zip(parameters.values.iter()).for_each(|(slot, value)| *slot = value);
            let encoded = encode_key(point, &plan.table, &values[..count], &mut columns, &mut bytes);
            let (token, partition_len) = encoded.ok()?;
            (tablet_of(&resolved.entry.tablets, token), partition_len)
        };
        let is_elsewhere = self.is_led_elsewhere(tablet);
        if is_elsewhere && session.learns_tablets() {
            // The general path sends the driver the node that leads the tablet.
            return None;
        }
        note.operation = Operation::Read;
        self.name(note, running, Arc::clone(&statement.activity));
        let key = RowKey { tablet, bytes, partition_len };
        let found = if is_elsewhere {
            self.row_elsewhere(key, plan.table.staleness_ms(parameters.consistency), &request.budget).await
        } else {
            self.row_on_disk(key, &request.budget).await
        };
        let row = match found {
            Ok(row) => row,
            Err(Failure::Declined) => return None,
            Err(Failure::Failed(error)) => {
                let error = kv_error(&error, None, self.kv.replicas(tablet));
                return Some(Err(at_consistency(error, parameters.consistency, parameters.serial_consistency)));
            }
            Err(Failure::Refused(error)) => return Some(Err(error)),
        };
        let mut rows = Rows::new(Arc::clone(&plan.selection.metadata));
        if let Some(found) = &row {
            let value = found.value.bytes();
            if value.len() > MAX_ROW_BYTES {
                return None;
            }
            let stored = StoredRow { columns: &columns, value, deleted_us: found.deleted_us };
            let is_there = self.put_row(plan, &stored, &mut Vec::new(), &mut rows.body);
            rows.row_count = u32::from(is_there.ok()?);
        }
        Some(Ok(Reply {
            skip_metadata: parameters.skip_metadata && statement.may_skip_metadata(request.version),
            known_metadata_id: execute.result_metadata_id.map(<[u8]>::to_vec),
            ..Reply::plain(Response::Rows(rows))
        }))
    }

    /// Reads a row of a tablet that this node leads, without a deletion over it, from the disk.
    async fn row_on_disk(&self, key: RowKey, budget: &Budget) -> Result<Option<Found<K::Pinned>>, Failure> {
        let RowKey { tablet, bytes, .. } = key;
        let read = self.kv.get(tablet, bytes, budget.deadline()).await;
        let row = read.ok().flatten().ok_or(Failure::Declined)?;
        // The flags after the row, as in `Point::stored`; with them raised, row and header are read at one moment elsewhere.
        if self.kv.flags(tablet).map_err(|_| Failure::Declined)? & PARTITION_DELETIONS != 0 {
            return Err(Failure::Declined);
        }
        let Some(value) = row else { return Ok(None) };
        budget.take(2 * value.len()).map_err(|_| Failure::Declined)?;
        Ok(Some(Found { value: Place::Disk(value), deleted_us: NOTHING_DELETED }))
    }

    /// Reads a row, and the deletion over it, on the node that leads its tablet.
    async fn row_elsewhere(
        &self,
        key: RowKey,
        staleness_ms: Option<u32>,
        budget: &Budget,
    ) -> Result<Option<Found<K::Pinned>>, Failure> {
        let RowKey { tablet, bytes, partition_len } = key;
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
        let mut fetched = match self.kv.fetch(tablet, fetch).await {
            Ok(fetched) => fetched,
            // The table has other tablets by now, or was dropped.
            Err(KvError::NoSuchTablet(_)) => return Err(Failure::Declined),
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
