//! EXECUTE of a read by a covering index, answered without waiting: all rows of its hidden view whose keys begin with the
//! values that are asked for, if they are few and in this node's memory.
//!
//! Always true: the rows are those of one range of one tablet, in which nothing has changed while they were read, and the
//! expiry of all is judged at one second after that; what is sent is byte for byte what the general path would send, to
//! which every read goes that is unusual. Left out: pages, limits, conditions.

use super::point::{Declined, ExecuteNow, MAX_ROW_BYTES, Point, Scratch, StoredRow, encode_key, is_large};
use crate::exec::read::tablet_of;
use crate::kv::{Fetch, FetchRows, Kv, Now, ScanRequest};
use crate::plan::point::{MAX_KEY_COLUMNS, PointPlan};
use crate::plan::select::SelectPlan;
use crate::program::PARTITION_DELETIONS;
use diorite_cql::protocol::RowsWriter;
use diorite_cql::protocol::response::ReplyHead;
use diorite_model::key::{self, DecodedKey};
use diorite_model::row::{NOTHING_DELETED, now_seconds};

/// More rows, or bytes, take the general path, where they do not delay other connections.
const MAX_ROWS: usize = 64;
const MAX_BYTES: usize = 64 << 10;

impl<K: Kv> Point<'_, K> {
    /// Answers the read.
    pub(super) fn read_view(
        &self,
        plan: &SelectPlan,
        point: &PointPlan,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<ExecuteNow, Declined> {
        let Point { engine, statement, request, reply, .. } = *self;
        let of_view = &plan.covering.as_ref().ok_or(Declined)?.plan;
        let (table, entry) = (&of_view.table, self.resolved.view.as_ref().ok_or(Declined)?);
        let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
        let (token, _) = encode_key(point, table, self.values, &mut columns, &mut scratch.key)?;
        let tablet = tablet_of(&entry.tablets, token);
        let skips_metadata = request.parameters.skip_metadata;
        if statement.would_mislead(reply.version, skips_metadata) {
            return Err(Declined);
        }
        let mut end = scratch.key.clone();
        key::push_after(&mut end);
        let most = request.parameters.page_size.map_or(MAX_ROWS, |size| MAX_ROWS.min(size as usize));
        let start = scratch.key.clone();
        let range = ScanRequest { start, end, reverse: false, max_entries: most + 1, max_bytes: MAX_BYTES };
        let fetch = Fetch { rows: FetchRows::Range(range), ..Fetch::default() };
        // It is looked for prepared rows before the rows are read: one transaction may have been finished after the look, and
        // another one that it follows not.
        let version = engine.kv.version(tablet).ok_or(Declined)?;
        let Ok(Now::Ready(fetched)) = engine.kv.fetch_now(tablet, &fetch) else { return Err(Declined) };
        let chunk = &fetched.chunk;
        // A header that was written after the rows may be about them: the general path reads both at once.
        let has_deletions = engine.kv.flags(tablet).map_err(|_| Declined)? & PARTITION_DELETIONS != 0;
        if !chunk.exhausted || chunk.ends.len() > most || has_deletions || engine.kv.version(tablet) != Some(version) {
            return Err(Declined);
        }
        let judged_s = Some(now_seconds(engine.kv.now_us()));
        let skip = skips_metadata && statement.may_skip_metadata(reply.version);
        let metadata = &plan.selection.metadata;
        let send = metadata.to_send(skip, request.result_metadata_id);
        let head = ReplyHead::new(reply.version, reply.stream);
        let mut rows = RowsWriter::begin(out, &head, metadata, send, None);
        let (mut decoded, mut count) = (DecodedKey::default(), 0);
        let partition = table.partition_columns();
        for (key, value) in chunk.entries() {
            if value.len() > MAX_ROW_BYTES && is_large(value) {
                return Err(Declined);
            }
            table.layout().decode(key, &mut decoded).map_err(|_| Declined)?;
            let mut columns: [&[u8]; MAX_KEY_COLUMNS] = [&[]; MAX_KEY_COLUMNS];
            for (at, column) in columns.iter_mut().enumerate().take(table.key_columns()) {
                *column = match at.checked_sub(partition) {
                    None => decoded.partition(at),
                    Some(at) => decoded.clustering(at).ok_or(Declined)?,
                };
            }
            let stored = StoredRow { columns: &columns, value, deleted_us: NOTHING_DELETED, judged_s };
            if engine.put_row(of_view, &stored, &mut scratch.value, rows.cells())? {
                rows.end_row();
                count += 1;
            }
        }
        rows.finish();
        Ok(ExecuteNow::Replied { slot: statement.activity.slot(), rows: count })
    }
}
