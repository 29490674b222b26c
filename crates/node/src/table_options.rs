//! From the `WITH` options of a table to the options of its files.
//!
//! Always true: the options were checked when they were given (`query::ddl::options`); invalid ones that earlier
//! versions accepted count as not given. Left out: opening a tablet again after they have changed
//! (`replica::Store::set_table_options`).

use diorite_model::schema::Table;
use diorite_query::ddl::options::{compaction_class, compression_class, given, read_map, window_s};
use diorite_storage::{CompactionStyle, Compression, Filters, TableOptions};
use std::collections::BTreeMap;

/// Zstandard's default level.
const ZSTD_LEVEL: i32 = 3;

/// The file options of a table.
pub(crate) fn of(table: &Table) -> TableOptions {
    let compression = given(table, "compression").map(read_map).unwrap_or_default();
    let is_off = compression.get("enabled").is_some_and(|enabled| enabled.eq_ignore_ascii_case("false"));
    let block_kib = compression.get("chunk_length_in_kb").and_then(|text| text.parse::<usize>().ok());
    TableOptions {
        compaction: style(table),
        filters: filters(given(table, "bloom_filter_fp_chance")),
        compression: match compression_class(&compression, "class") {
            _ if is_off => Compression::None,
            class => algorithm(class, &compression, "compression_level").unwrap_or_default(),
        },
        last_level_compression: algorithm(
            compression_class(&compression, "last_level_class"),
            &compression,
            "last_level_compression_level",
        ),
        block_bytes: block_kib.map(|kib| kib.clamp(4, 64) << 10),
    }
}

fn style(table: &Table) -> CompactionStyle {
    match compaction_class(table).as_str() {
        "LeveledCompactionStrategy" => CompactionStyle::Leveled,
        "TimeWindowCompactionStrategy" => CompactionStyle::TimeWindow { window_s: window_s(table) },
        _ => CompactionStyle::SizeTiered,
    }
}

fn filters(fp_chance: Option<&str>) -> Filters {
    match fp_chance.and_then(|text| text.parse::<f64>().ok()) {
        Some(fp_chance) if fp_chance < 1.0 => Filters::Everywhere { fp_chance },
        _ => Filters::UpperRuns,
    }
}

/// Snappy is not linked: LZ4 is as fast and compresses as well. Deflate is not linked: Zstandard's fastest level is
/// faster and compresses better.
fn algorithm(class: Option<&str>, options: &BTreeMap<String, String>, level: &str) -> Option<Compression> {
    let level = options.get(level).and_then(|text| text.parse().ok());
    Some(match class? {
        "NoopCompressor" => Compression::None,
        "ZstdCompressor" => Compression::Zstd { level: level.unwrap_or(ZSTD_LEVEL) },
        "DeflateCompressor" => Compression::Zstd { level: 1 },
        _ => Compression::Lz4,
    })
}

#[cfg(test)]
mod tests;
