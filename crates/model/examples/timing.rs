//! Times the hot path: key encoding, row encoding, reading, merging. `cargo run --release -p diorite-model --example timing`

use diorite_base::{Clock, Horizon, SystemClock, TableId};
use diorite_model::entry::{compact, fold, merge};
use diorite_model::key::{DecodedKey, KeyLayout, push_row};
use diorite_model::row::{LiveContent, LiveRow, Marker, NOTHING_DELETED, RowWriter, UNSTAMPED, list_path_append};
use diorite_model::schema::{Column, ColumnKind, Order, Table};
use diorite_model::types::CqlType;
use std::hint::black_box;

const ROUNDS: u64 = 2_000_000;

fn table() -> Table {
    let column = |id, name: &str, data_type, kind| Column { id, name: name.into(), data_type, kind };
    Table {
        id: TableId(1),
        uuid: uuid::Uuid::nil(),
        keyspace: "k".into(),
        name: "t".into(),
        version: 1,
        columns: vec![
            column(0, "k", CqlType::Text, ColumnKind::PartitionKey),
            column(1, "c", CqlType::Bigint, ColumnKind::Clustering(Order::Desc)),
            column(2, "v", CqlType::Blob, ColumnKind::Regular),
        ],
        next_column_id: 3,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        default_ttl_s: 0,
        gc_grace_s: 0,
        options: Default::default(),
    }
}

fn time(clock: &impl Clock, what: &str, mut work: impl FnMut()) {
    let start = clock.monotonic_ns();
    (0..ROUNDS).for_each(|_| work());
    println!("{what:32} {:6.1} ns", (clock.monotonic_ns() - start) as f64 / ROUNDS as f64);
}

/// Times how a row that grew by one element or change at a time is folded, as a read does it.
fn time_folding(clock: &impl Clock, what: &str, count: u32, write: impl Fn(&mut RowWriter<'_>, u32, i64)) {
    let operand = |at: u32| {
        let (mut out, at_us) = (Vec::new(), 1_700_000_000_000_000 + i64::from(at));
        write(&mut RowWriter::new(&mut out, at_us), at, at_us);
        out
    };
    let operands: Vec<Vec<u8>> = (0..count).map(operand).collect();
    let (mut out, start) = (Vec::new(), clock.monotonic_ns());
    for _ in 0..10 {
        fold(None, operands.iter().map(Vec::as_slice), &mut out).expect("own encoding");
        black_box(&out);
    }
    println!("{what:32} {:6.2} ms", (clock.monotonic_ns() - start) as f64 / 1e7);
}

fn main() {
    let clock = SystemClock::new();
    let layout = KeyLayout::new(&table());
    let (name, number, value) = (b"key:123456789", 42i64.to_be_bytes(), [7u8; 256]);
    let mut key = Vec::new();
    let encode = |key: &mut Vec<u8>| {
        key.clear();
        layout.encode_partition(std::iter::once(&name[..]), key).expect("a valid key");
        push_row(key);
        layout.push_clustering(0, &number, key).expect("a valid key");
    };
    time(&clock, "encode key", || encode(black_box(&mut key)));
    let mut decoded = DecodedKey::default();
    time(&clock, "decode key", || layout.decode(black_box(&key), &mut decoded).expect("own encoding"));

    let mut row = Vec::new();
    let write = |row: &mut Vec<u8>, base_us| {
        row.clear();
        let mut writer = RowWriter::new(row, base_us);
        writer.marker(Marker { timestamp_us: base_us, expiry: None });
        writer.cell(2, base_us, None, &value);
    };
    time(&clock, "encode row of 256 bytes", || write(black_box(&mut row), UNSTAMPED));
    let (mut older, mut newer, mut out) = (Vec::new(), Vec::new(), Vec::new());
    write(&mut older, 1);
    write(&mut newer, 2);
    time(&clock, "read row", || {
        let live = LiveRow::new(black_box(&older), 9, NOTHING_DELETED).expect("own encoding");
        for cell in live.cells() {
            if let LiveContent::Value(value) = cell.expect("own encoding").content {
                black_box(value);
            }
        }
    });
    time(&clock, "merge two rows", || {
        out.clear();
        merge(black_box(&older), black_box(&newer), &mut out).expect("own encoding");
    });
    time(&clock, "compact plain row", || {
        black_box(compact(black_box(&older), Horizon { now_s: 9, rows_s: 9, ranges_s: 9 }));
    });
    time_folding(&clock, "fold 20,000 entries of a map", 20_000, |writer, at, at_us| {
        writer.begin_complex(2, None);
        writer.element(&at.wrapping_mul(2_654_435_761).to_be_bytes(), at_us, None, b"some value of it");
        writer.end_complex();
    });
    time_folding(&clock, "fold 10,000 appends to a list", 10_000, |writer, _, at_us| {
        writer.begin_complex(2, None);
        writer.element(&list_path_append(at_us, 7, 0), at_us, None, b"some value of it");
        writer.end_complex();
    });
    time_folding(&clock, "fold 30,000 increments", 30_000, |writer, _, at_us| writer.counter(2, at_us, 1));
}
