//! The CQL options decide how files are written.

use super::*;
use diorite_base::TableId;
use diorite_model::schema::{Column, ColumnKind, Table};
use diorite_model::types::CqlType;
use uuid::Uuid;

fn of_options(options: &[(&str, &str)]) -> TableOptions {
    let column = |id, name: &str, kind| Column { id, name: name.to_owned(), data_type: CqlType::Text, kind };
    let table = Table {
        id: TableId(0),
        uuid: Uuid::from_u128(1),
        keyspace: "shop".to_owned(),
        name: "t".to_owned(),
        version: 0,
        columns: vec![column(0, "k", ColumnKind::PartitionKey), column(1, "v", ColumnKind::Regular)],
        next_column_id: 2,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        default_ttl_s: 0,
        gc_grace_s: 864_000,
        options: options.iter().map(|(name, literal)| ((*name).to_owned(), (*literal).to_owned())).collect(),
    };
    of(&table)
}

#[test]
fn a_table_that_says_nothing_has_the_defaults() {
    assert_eq!(of_options(&[]), TableOptions::default());
    assert_eq!(of_options(&[("comment", "'x'"), ("bloom_filter_fp_chance", "1.0")]), TableOptions::default());
}

#[test]
fn filters_are_everywhere_where_a_chance_is_given() {
    let filters = |chance| of_options(&[("bloom_filter_fp_chance", chance)]).filters;
    assert_eq!(filters("0.01"), Filters::Everywhere { fp_chance: 0.01 });
    assert_eq!(filters("0.1"), Filters::Everywhere { fp_chance: 0.1 });
}

#[test]
fn compression_is_that_of_the_class() {
    let compression = |text: &str| of_options(&[("compression", text)]);
    const CLASS: &str = "org.apache.cassandra.io.compress.";
    let zstd = compression(&format!(
        "{{'chunk_length_in_kb': '32', 'class': '{CLASS}ZstdCompressor', 'compression_level': '7'}}"
    ));
    assert_eq!((zstd.compression, zstd.block_bytes), (Compression::Zstd { level: 7 }, Some(32 << 10)));
    assert_eq!(compression("{'enabled': 'false'}").compression, Compression::None);
    let colder =
        compression(&format!("{{'class': '{CLASS}LZ4Compressor', 'last_level_class': '{CLASS}ZstdCompressor'}}"));
    let expected = (Compression::Lz4, Some(Compression::Zstd { level: 3 }));
    assert_eq!((colder.compression, colder.last_level_compression), expected);
    assert_eq!(compression(&format!("{{'class': '{CLASS}NoopCompressor'}}")).compression, Compression::None);
}

#[test]
fn classes_of_compaction() {
    const CLASS: &str = "org.apache.cassandra.db.compaction.";
    let style = |text: String| of_options(&[("compaction", &text)]).compaction;
    let windows = |options: &str| style(format!("{{'class': '{CLASS}TimeWindowCompactionStrategy'{options}}}"));
    for (options, window_s) in [
        ("", 86_400),
        (", 'compaction_window_unit': 'MINUTES'", 60),
        (", 'compaction_window_size': '6', 'compaction_window_unit': 'hours'", 6 * 3_600),
        (", 'compaction_window_size': '7'", 7 * 86_400),
        (", 'compaction_window_size': '2147483647'", u32::MAX),
    ] {
        assert_eq!(windows(options), CompactionStyle::TimeWindow { window_s });
    }
    assert_eq!(style(format!("{{'class': '{CLASS}LeveledCompactionStrategy'}}")), CompactionStyle::Leveled);
    assert_eq!(style(format!("{{'class': '{CLASS}UnifiedCompactionStrategy'}}")), CompactionStyle::SizeTiered);
}
