//! Scans by the entries of one value of an index: all tablets are asked, and most of them have no row or a few.
//!
//! What is in memory is read as it is needed. Where that is not possible, several tablets are asked at a time: each for
//! a short first piece, so that little is read in vain if the page is full before.
//!
//! Always true: rows come in the order of the scans, and a page ends where it would if the tablets were asked one after
//! the other; a failure counts only if the page needs the tablet; the pieces that wait for their turn are charged to the
//! request, and are at most [`PARALLEL_PIECES`]. Left out: what follows the first piece of a tablet ([`super::scan`]).

use super::collect::{Collector, Step};
use super::read::{CHUNK_BYTES, PARALLEL_PIECES, PageRequest, Read, TabletScan, check_result_size};
use crate::budget::refused;
use crate::kv::{Fetch, FetchRows, IndexScan, Kv, Now, ScanChunk};
use diorite_base::account::Held;
use diorite_cql::protocol::CqlError;
use futures::stream::{FuturesOrdered, StreamExt};
use std::task::Poll;

/// The most entries and bytes of a piece that is read before it is known whether the page needs it.
const AHEAD_ENTRIES: usize = 256;
const AHEAD_BYTES: usize = 64 << 10;
/// The tablets that are asked together at first; they become more as long as the page is not full.
const FIRST_TOGETHER: usize = 4;
/// After so many tablets that are read without waiting, other requests of the thread go on.
const TABLETS_PER_TURN: usize = 32;

/// The first rows of a scan.
struct Piece<'p> {
    chunk: ScanChunk,
    /// Its memory; `None` if the caller charges it.
    _held: Option<Held<'p>>,
}

/// Whether the scans are by the entries of one value.
pub(super) fn are_by_one_value(scans: &[TabletScan]) -> bool {
    !scans.is_empty() && scans.iter().all(|scan| scan.by.as_ref().is_some_and(|by| by.is_one_value()))
}

/// Feeds scans by one value to the collector. The first chunk of the first scan may have been read before.
pub(super) async fn scans_by_value<K: Kv>(
    read: &Read<'_, K>,
    scans: &[TabletScan],
    first: Option<ScanChunk>,
    collector: &mut Collector<'_>,
    page: &PageRequest<'_>,
) -> Result<Step, CqlError> {
    let mut running = FuturesOrdered::new();
    let (mut begun, mut together, mut at_once) = (0, FIRST_TOGETHER, 0);
    let mut first = first.map(|chunk| Piece { chunk, _held: None });
    for (at, scan) in scans.iter().enumerate() {
        let mut piece = first.take();
        if piece.is_none() && running.is_empty() {
            piece = read_now(read, scan, collector)?;
            at_once += usize::from(piece.is_some());
        }
        if piece.is_none() {
            begun = begun.max(at);
            let entries = read.chunk_entries(collector).min(AHEAD_ENTRIES);
            while begun < scans.len().min(at + together) {
                running.push_back(read_ahead(read, &scans[begun], entries));
                begun += 1;
            }
            together = (2 * together).min(PARALLEL_PIECES);
            piece = running.next().await.transpose()?;
        }
        let Some(piece) = piece else { break };
        if piece.chunk.exhausted && piece.chunk.ends.is_empty() {
            read.budget().check()?;
        } else if read.range(scan.clone(), Some(piece.chunk), collector).await? == Step::Full {
            return Ok(Step::Full);
        }
        check_result_size(collector, page)?;
        if at_once == TABLETS_PER_TURN {
            at_once = 0;
            let_others_go_on().await;
        }
    }
    Ok(Step::More)
}

/// Reads the first rows of a scan if that needs no waiting.
fn read_now<'r, K: Kv>(
    read: &'r Read<'_, K>,
    scan: &TabletScan,
    collector: &Collector<'_>,
) -> Result<Option<Piece<'r>>, CqlError> {
    let rows = first_rows(read, scan, read.chunk_entries(collector), CHUNK_BYTES);
    match read.source.fetch_now(scan.tablet, Fetch { rows, ..Fetch::default() })? {
        Now::WouldBlock => Ok(None),
        Now::Ready(mut fetched) => {
            let held = read.budget().hold(fetched.to_be_charged())?;
            Ok(Some(Piece { chunk: fetched.chunk, _held: Some(held) }))
        }
    }
}

/// Reads the first rows of a scan, for its turn.
async fn read_ahead<'r, K: Kv>(
    read: &'r Read<'_, K>,
    scan: &TabletScan,
    entries: usize,
) -> Result<Piece<'r>, CqlError> {
    let mut held = read.budget().hold(0)?;
    let rows = first_rows(read, scan, entries, AHEAD_BYTES);
    let mut fetched = read.source.fetch(scan.tablet, Fetch { rows, ..Fetch::default() }).await?;
    held.grow(fetched.to_be_charged()).map_err(refused)?;
    Ok(Piece { chunk: fetched.chunk, _held: Some(held) })
}

fn first_rows<K: Kv>(read: &Read<'_, K>, scan: &TabletScan, entries: usize, max_bytes: usize) -> FetchRows {
    let Some(by) = &scan.by else { return FetchRows::Nothing };
    let rows = read.index_fetch(by, (&scan.start, &scan.end), &[], entries);
    match rows {
        FetchRows::Index(scan) => FetchRows::Index(IndexScan { max_bytes, ..scan }),
        other => other,
    }
}

/// Lets other requests of the thread go on.
async fn let_others_go_on() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
