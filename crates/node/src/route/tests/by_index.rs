//! Reads by index from memory: of one moment, and by what the tablet knows of its index at that moment.

use super::{Cluster, RouteOptions, sent};
use diorite_base::TabletId;
use diorite_base::mutation::{Mutation, OperationKind};
use diorite_base::row_index::{AFTER_ALL_ROWS, FIRST_ROW_KEY};
use diorite_model::index::{Indexed, value_form};
use diorite_model::key::{self, KeyLayout};
use diorite_model::row::{Content, RowReader, RowWriter, UNSTAMPED};
use diorite_model::schema::{ColumnKind, IndexTarget, Order};
use diorite_model::types::CqlType;
use diorite_query::index::{IndexStep, Progress, Specification};
use diorite_query::kv::several::{self, Span};
use diorite_query::kv::{Fetch, FetchRows, Fetched, IndexScan, Now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const INDEX: u64 = 9;
const COLUMN: u32 = 1;
const ROWS: u8 = 6;
/// How often all rows are written.
const WRITES: u8 = 200;

fn specification() -> Specification {
    Specification {
        key: vec![(CqlType::Int, ColumnKind::PartitionKey), (CqlType::Blob, ColumnKind::Clustering(Order::Asc))],
        indexed: Indexed::Cell {
            column: COLUMN,
            is_static: false,
            data_type: CqlType::Blob,
            target: IndexTarget::Value,
        },
        progress: Progress::Before(FIRST_ROW_KEY.to_vec()),
        dependent: None,
    }
}

fn row(number: u8) -> Vec<u8> {
    let layout = KeyLayout::of_types(specification().key.iter().map(|(data_type, kind)| (data_type, *kind)));
    let mut row = Vec::new();
    layout.encode_partition(std::iter::once(&[0, 0, 0, 7][..]), &mut row).unwrap();
    key::push_row(&mut row);
    layout.push_clustering(0, &[number], &mut row).unwrap();
    row
}

/// Writes the same value to some rows of a partition.
fn write(rows: impl Iterator<Item = u8>, value: u8) -> Mutation {
    let mut packed = Vec::new();
    RowWriter::new(&mut packed, UNSTAMPED).cell(COLUMN, UNSTAMPED, None, &[value]);
    let mut mutation = Mutation::blind(None);
    rows.for_each(|number| mutation.push(OperationKind::Overwrite, false, &row(number), &packed));
    mutation
}

/// The rows with a value.
fn with_value(value: u8) -> Fetch {
    let form = value_form(&CqlType::Blob, &[value]).unwrap();
    let rows = FetchRows::Index(IndexScan {
        index: INDEX,
        spans: several::encode(&[Span::key(form)]),
        start: FIRST_ROW_KEY.to_vec(),
        end: AFTER_ALL_ROWS.to_vec(),
        partition_len: 0,
        max_entries: 100,
        max_bytes: 1 << 16,
        with_statics: false,
        whole_partitions: false,
        may_scan: false,
    });
    Fetch { rows, ..Fetch::default() }
}

/// How many of the rows that were read have the value.
fn count(fetched: &Fetched, wanted: u8) -> usize {
    let has_value = |value: &[u8]| {
        let row = RowReader::new(value).unwrap();
        row.cells().any(|cell| matches!(cell.unwrap().content, Content::Value(value, _) if value == [wanted]))
    };
    fetched.chunk.entries().filter(|(_, value)| has_value(value)).count()
}

async fn step(cluster: &Cluster, tablet: TabletId, step: IndexStep) {
    cluster.router(1).write(tablet, step.mutation().unwrap()).await.unwrap();
}

async fn define(cluster: &Cluster, tablet: TabletId) {
    step(cluster, tablet, IndexStep::Define { index: INDEX, definition: specification().definition() }).await;
}

async fn build(cluster: &Cluster, tablet: TabletId) {
    let (from, to) = (FIRST_ROW_KEY.to_vec(), AFTER_ALL_ROWS.to_vec());
    step(cluster, tablet, IndexStep::Build { index: INDEX, from, to, is_last: true }).await;
}

async fn started() -> (Cluster, TabletId) {
    let cluster = Cluster::start(1, 1, RouteOptions::default()).await;
    let tablet = cluster.tablet(|_| true);
    cluster.wait_for_leader(tablet).await;
    (cluster, tablet)
}

/// Reads in memory; what has just been written is there.
fn now(cluster: &Cluster, tablet: TabletId, value: u8) -> Fetched {
    match cluster.router(1).fetch_now(tablet, &with_value(value)).unwrap() {
        Now::Ready(fetched) => fetched,
        Now::WouldBlock => panic!("it is in memory"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_an_index_names_are_of_one_moment() {
    let (cluster, tablet) = started().await;
    define(&cluster, tablet).await;
    build(&cluster, tablet).await;
    let is_done = Arc::new(AtomicBool::new(false));
    let writes = {
        let (router, is_done) = (Arc::clone(&cluster.members[&1].router), Arc::clone(&is_done));
        tokio::spawn(async move {
            for number in 0..=WRITES {
                sent(&router, router.write(tablet, write(0..ROWS, number % 2))).await.unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        })
    };
    let is_whole = |fetched: &Fetched| [0, usize::from(ROWS)].contains(&count(fetched, 0));
    while !is_done.load(Ordering::Relaxed) {
        if let Now::Ready(fetched) = cluster.router(1).fetch_now(tablet, &with_value(0)).unwrap() {
            assert!(is_whole(&fetched), "two moments: {fetched:?}");
        }
        let fetched = cluster.fetch(1, tablet, with_value(0)).await.unwrap();
        assert!(is_whole(&fetched), "two moments: {fetched:?}");
        tokio::task::yield_now().await;
    }
    writes.await.unwrap();
    assert_eq!(count(&now(&cluster, tablet, WRITES % 2), WRITES % 2), usize::from(ROWS));
    assert_eq!(count(&now(&cluster, tablet, 1 - WRITES % 2), 1 - WRITES % 2), 0);
}

/// What is noted of an index says no more once the index is dropped, or has to be built again.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_follows_the_index_as_it_is() {
    let (cluster, tablet) = started().await;
    cluster.router(1).write(tablet, write(0..ROWS, 1)).await.unwrap();
    cluster.router(1).write(tablet, write(0..1, 2)).await.unwrap();
    let all = usize::from(ROWS);
    let read = || now(&cluster, tablet, 2).chunk.ends.len();
    assert_eq!(read(), all, "there is no index: all rows are read");
    for _ in 0..3 {
        define(&cluster, tablet).await;
        assert_eq!(read(), all, "the index is not built");
        build(&cluster, tablet).await;
        assert_eq!((read(), read()), (1, 1));
        cluster.router(1).write(tablet, write(1..2, 2)).await.unwrap();
        assert_eq!((read(), read()), (2, 2));
        cluster.router(1).write(tablet, write(1..2, 1)).await.unwrap();
        step(&cluster, tablet, IndexStep::Drop { index: INDEX }).await;
        assert_eq!((read(), read()), (all, all), "the index is dropped");
    }
}

/// More rows than are read at once are read by a thread that may wait, with the same result.
#[tokio::test(flavor = "multi_thread")]
async fn long_reads_are_not_carried_out_at_once() {
    let (cluster, tablet) = started().await;
    define(&cluster, tablet).await;
    build(&cluster, tablet).await;
    cluster.router(1).write(tablet, write(0..200, 1)).await.unwrap();
    cluster.router(1).write(tablet, write(200..205, 2)).await.unwrap();
    let found = cluster.router(1).fetch_now(tablet, &with_value(1)).unwrap();
    assert!(matches!(found, Now::WouldBlock), "{found:?}");
    let fetched = cluster.fetch(1, tablet, with_value(1)).await.unwrap();
    assert_eq!((count(&fetched, 1), fetched.chunk.exhausted), (100, false));
    let fetched = cluster.fetch(1, tablet, with_value(2)).await.unwrap();
    assert_eq!(fetched, now(&cluster, tablet, 2));
    assert_eq!((count(&fetched, 2), fetched.chunk.exhausted), (5, true));
}
