//! Counts the blocks, by kind, that a random read of a cold key reads with one choice of options: the defaults follow
//! from the table in `benches/notes`.
//!
//! Rows like the benchmark's, keys in random order, one tablet, a cache of half of the data divided by `--ratio`. Every
//! miss of the block cache is a read of a file, so the counts do not depend on the disk, on the page cache or on other
//! work of the machine.
//!
//! `cargo run --release -p diorite-storage --example block_reads -- --rows 3000000 --block 8192 --restart 16 --filters upper`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for whoever chooses defaults")]

use diorite_base::Horizon;
use diorite_base::random::{Random, SplitMix64};
use diorite_storage::{
    AppliedState, Batch, CompactionVerdict, Filters, Shared, StorageOptions, TableOptions, Tablet, TabletBatch, Ticker,
    ValueSemantics, Values,
};
use std::sync::Arc;

/// Values are not merged here.
struct Plain;

impl ValueSemantics for Plain {
    fn fold<'a>(&self, _: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        operands.last().map(<[u8]>::to_vec)
    }

    fn compact(&self, _: &[u8], _: &[u8], _: &Horizon) -> CompactionVerdict {
        CompactionVerdict::Keep
    }
}

fn argument(name: &str, default: &str) -> String {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == &format!("--{name}"));
    at.and_then(|at| arguments.get(at + 1)).map_or(default, String::as_str).to_owned()
}

fn number(name: &str, default: u64) -> u64 {
    argument(name, &default.to_string()).parse().unwrap()
}

/// The key of a row: a token, evenly distributed like a hash, and a text.
fn key(row: u64) -> Vec<u8> {
    let token = SplitMix64::new(row).next_u64();
    let mut key = token.to_be_bytes().to_vec();
    key.extend_from_slice(format!("{row:050}").as_bytes());
    key
}

/// A value that LZ4 cannot compress.
fn value(row: u64, bytes: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(row ^ 0x5eed);
    let mut value: Vec<u8> = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    value.truncate(bytes);
    value
}

struct Load<'t> {
    tablet: &'t Arc<Tablet>,
    batch: Batch,
    index: u64,
    waiting: usize,
}

impl Load<'_> {
    fn put(&mut self, row: u64) {
        self.batch.put(&key(row), &value(row, 269));
        self.waiting += 1;
        if self.waiting == 256 {
            self.write();
        }
    }

    fn write(&mut self) {
        self.index += 1;
        let state = AppliedState { index: self.index, term: 1, ..AppliedState::default() };
        self.tablet.apply(&mut self.batch, &state).unwrap();
        self.batch.clear();
        self.waiting = 0;
    }
}

/// Cache misses of data, index and filter blocks, and the bytes that were read for them.
fn misses(shared: &Shared) -> [u64; 4] {
    [
        Ticker::BlockCacheDataMiss,
        Ticker::BlockCacheIndexMiss,
        Ticker::BlockCacheFilterMiss,
        Ticker::BlockCacheBytesWrite,
    ]
    .map(|ticker| shared.ticker(ticker))
}

fn reads(shared: &Shared, tablet: &Arc<Tablet>, what: &str, reads: u64, key_of: impl Fn(u64) -> Vec<u8>) {
    let mut random = SplitMix64::new(7);
    // The first reads load the index and filter blocks that stay cached.
    let mut read = |count: u64| {
        let before = misses(shared);
        for _ in 0..count {
            std::hint::black_box(tablet.get(&key_of(random.next_u64())).unwrap());
        }
        let after = misses(shared);
        std::array::from_fn::<f64, 4, _>(|at| (after[at] - before[at]) as f64 / count as f64)
    };
    read(reads / 2);
    let [data, index, filter, bytes] = read(reads);
    println!(
        "{{\"what\": \"{what}\", \"data\": {data:.3}, \"index\": {index:.3}, \"filter\": {filter:.3}, \"all\": {:.3}, \"bytes\": {bytes:.0}}}",
        data + index + filter
    );
}

fn main() {
    let (rows, ratio) = (number("rows", 3_000_000), number("ratio", 150));
    let data_bytes = rows * (8 + 50 + 269);
    let filters = match argument("filters", "upper").as_str() {
        "everywhere" => Filters::Everywhere { fp_chance: 0.01 },
        _ => Filters::UpperRuns,
    };
    let table = TableOptions { filters, ..TableOptions::default() };
    let options = StorageOptions {
        cache_bytes: (data_bytes / ratio / 2) as usize,
        memtable_bytes: 16 << 20,
        block_bytes: number("block", 8 << 10) as usize,
        index_restart_interval: number("restart", 16) as i32,
        bloom_bits: argument("bits", "10").parse().unwrap(),
        has_ribbon_filters: argument("ribbon", "true").parse().unwrap(),
        pins_upper_runs: argument("pin", "true").parse().unwrap(),
        ..StorageOptions::for_memory(1 << 30, 2)
    };
    println!("{{\"options\": \"{}\"}}", std::env::args().skip(1).collect::<Vec<_>>().join(" "));
    let home = std::path::PathBuf::from(argument("directory", "/tmp/block_reads"));
    let _ = std::fs::remove_dir_all(&home);
    let shared = Shared::new(options, Arc::new(Plain)).unwrap();
    let tablet = Arc::new(Tablet::open(&shared, &home, Values::Rows, table).unwrap());
    let mut load = Load { tablet: &tablet, batch: Batch::default(), index: 0, waiting: 0 };
    (0..rows).for_each(|row| load.put(row));
    load.write();
    tablet.flush(true).unwrap();
    tablet.compact();
    let sizes = |what: &str| {
        tablet.measure_contents();
        let files = tablet.files();
        let contents = files.contents.unwrap();
        let per_tb = |bytes: u64| bytes as f64 / contents.data_bytes as f64 * 1e3;
        println!(
            "{{\"what\": \"{what}\", \"files\": {}, \"bytes\": {}, \"index_gb_per_tb\": {:.2}, \"filter_gb_per_tb\": {:.2}}}",
            files.files,
            files.bytes,
            per_tb(contents.index_bytes),
            per_tb(contents.filter_bytes)
        );
    };
    sizes("compacted");
    let count = number("reads", 200_000);
    let existing = |random: u64| key(random % rows);
    reads(&shared, &tablet, "compacted", count, existing);
    reads(&shared, &tablet, "absent, compacted", count, |random| key(rows + random % rows));
    // A fifth of the rows is overwritten, in random order.
    let mut random = SplitMix64::new(11);
    for _ in 0..rows / 5 {
        load.put(random.next_u64() % rows);
    }
    load.write();
    tablet.flush(true).unwrap();
    sizes("a fifth overwritten");
    reads(&shared, &tablet, "a fifth overwritten", count, existing);
    reads(&shared, &tablet, "absent, a fifth overwritten", count, |random| key(rows + random % rows));
    drop(tablet);
    let _ = std::fs::remove_dir_all(&home);
}
