//! The sub-options of `compaction` and `compression`: their names and values.
//!
//! Always true: a name that Cassandra does not know is refused, since a misspelt one would have no effect, and so is a
//! value that Cassandra refuses. Left out: what one compressor only knows is accepted for all of them, and thresholds
//! are accepted for every strategy.

use crate::ddl::text;
use diorite_cql::protocol::CqlError;
use std::collections::BTreeMap;

pub(super) const COMPACTION_PACKAGE: &str = "org.apache.cassandra.db.compaction.";
pub(super) const COMPRESSION_PACKAGE: &str = "org.apache.cassandra.io.compress.";
const COMPRESSORS: [&str; 5] =
    ["LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"];

/// The greatest level of Zstandard.
const MAX_ZSTD_LEVEL: i64 = 22;
/// The longest chunk.
const MAX_CHUNK_KIB: i64 = 1_024;
/// The greatest `int` of Java.
const INT: i64 = i32::MAX as i64;

/// What the value of a sub-option has to be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Boolean,
    /// Whole, from the first to the second.
    Integer(i64, i64),
    /// From the first to the second.
    Number(f64, f64),
    /// From 0 to 1, also as a percentage.
    Share,
    /// One of these, in upper or lower case.
    Word(&'static [&'static str]),
}

type SubOptions = &'static [(&'static str, Kind)];

/// Of every strategy.
const COMMON: SubOptions = &[
    ("enabled", Kind::Boolean),
    ("log", Kind::Text),
    ("log_all", Kind::Boolean),
    ("max_threshold", Kind::Integer(1, INT)),
    ("min_threshold", Kind::Integer(2, INT)),
    ("only_purge_repaired_tombstones", Kind::Boolean),
    ("provide_overlapping_tombstones", Kind::Word(&["NONE", "ROW", "CELL"])),
    ("tombstone_compaction_interval", Kind::Integer(0, i64::MAX)),
    ("tombstone_threshold", Kind::Number(0.0, f64::MAX)),
    ("unchecked_tombstone_compaction", Kind::Boolean),
];
/// Of the strategies that merge files of similar size at some place.
const SIZE_TIERED: SubOptions = &[
    ("bucket_high", Kind::Number(0.0, f64::MAX)),
    ("bucket_low", Kind::Number(0.0, f64::MAX)),
    ("min_sstable_size", Kind::Integer(0, i64::MAX)),
];
const LEVELED: SubOptions = &[
    ("fanout_size", Kind::Integer(1, INT)),
    ("single_sstable_uplevel", Kind::Boolean),
    ("sstable_size_in_mb", Kind::Integer(1, INT)),
];
/// Of the strategies that drop files whose rows have all expired.
const EXPIRING: SubOptions = &[
    ("expired_sstable_check_frequency_seconds", Kind::Integer(0, i64::MAX)),
    ("unsafe_aggressive_sstable_expiration", Kind::Boolean),
];
/// Of the strategies that look at the timestamps of rows.
const TIMESTAMPS: SubOptions = &[(
    "timestamp_resolution",
    Kind::Word(&["NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"]),
)];
const TIME_WINDOW: SubOptions = &[
    ("compaction_window_size", Kind::Integer(1, INT)),
    ("compaction_window_unit", Kind::Word(&["MINUTES", "HOURS", "DAYS"])),
];
const DATE_TIERED: SubOptions = &[
    ("base_time_seconds", Kind::Integer(1, i64::MAX)),
    ("max_sstable_age_days", Kind::Number(0.0, f64::MAX)),
    ("max_window_size_seconds", Kind::Integer(0, i64::MAX)),
];
const UNIFIED: SubOptions = &[
    ("base_shard_count", Kind::Integer(1, INT)),
    ("flush_size_override", Kind::Text),
    ("max_sstables_to_compact", Kind::Integer(i64::MIN, INT)),
    ("min_sstable_size", Kind::Text),
    ("overlap_inclusion_method", Kind::Word(&["NONE", "SINGLE", "TRANSITIVE"])),
    ("parallelize_output_shards", Kind::Boolean),
    ("scaling_parameters", Kind::Text),
    ("sstable_growth", Kind::Share),
    ("target_sstable_size", Kind::Text),
];

/// The sub-options of each strategy.
const STRATEGIES: [(&str, &[SubOptions]); 5] = [
    ("SizeTieredCompactionStrategy", &[COMMON, SIZE_TIERED]),
    ("LeveledCompactionStrategy", &[COMMON, SIZE_TIERED, LEVELED]),
    ("TimeWindowCompactionStrategy", &[COMMON, SIZE_TIERED, EXPIRING, TIMESTAMPS, TIME_WINDOW]),
    ("DateTieredCompactionStrategy", &[COMMON, SIZE_TIERED, EXPIRING, TIMESTAMPS, DATE_TIERED]),
    ("UnifiedCompactionStrategy", &[COMMON, EXPIRING, UNIFIED]),
];

/// Of compression, beside its classes; the bounds of text are checked with what they depend on.
const COMPRESSION: SubOptions = &[
    ("chunk_length_in_kb", Kind::Text),
    ("chunk_length_kb", Kind::Text),
    ("class", Kind::Text),
    ("compression_level", Kind::Text),
    ("crc_check_chance", Kind::Number(0.0, 1.0)),
    ("enabled", Kind::Boolean),
    ("last_level_class", Kind::Text),
    ("last_level_compression_level", Kind::Text),
    ("lz4_compressor_type", Kind::Word(&["fast", "high"])),
    ("lz4_high_compressor_level", Kind::Integer(1, 17)),
    ("min_compress_ratio", Kind::Number(0.0, f64::MAX)),
    ("sstable_compression", Kind::Text),
];

/// Checks the values of those that are known, and returns the names of the others.
fn unknown<'e>(entries: &'e BTreeMap<String, String>, known: &[SubOptions]) -> Result<Vec<&'e str>, CqlError> {
    let mut unknown = Vec::new();
    for (name, raw) in entries {
        match known.iter().copied().flatten().find(|(known, _)| known == name) {
            Some((_, kind)) => check(name, *kind, raw)?,
            None => unknown.push(name.as_str()),
        }
    }
    Ok(unknown)
}

fn check(name: &str, kind: Kind, raw: &str) -> Result<(), CqlError> {
    let value = raw.trim();
    let refusal = match kind {
        Kind::Text => None,
        Kind::Boolean => {
            let is_boolean = value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false");
            (!is_boolean).then(|| format!("'{name}' should be either 'true' or 'false', not '{raw}'"))
        }
        Kind::Integer(least, most) => match value.parse::<i64>().ok().filter(|value| *value <= most) {
            Some(value) => (value < least).then(|| format!("{name} must be at least {least}, but was {value}")),
            None => Some(format!("{raw} is not a parsable int (base10) for {name}")),
        },
        Kind::Number(least, most) => match value.parse::<f64>().ok().filter(|value| value.is_finite()) {
            Some(value) if value < least => Some(format!("{name} must be at least {least}, but was {value}")),
            Some(value) if value > most => Some(format!("{name} must be at most {most}, but was {value}")),
            Some(_) => None,
            None => Some(format!("{raw} is not a parsable number for {name}")),
        },
        Kind::Share => {
            let (digits, whole) = value.strip_suffix('%').map_or((value, 1.0), |percent| (percent, 100.0));
            let is_share = digits.trim().parse::<f64>().is_ok_and(|share| (0.0..=whole).contains(&share));
            (!is_share).then(|| format!("{raw} is not valid for {name}: it has to be from 0 to 1, or from 0% to 100%"))
        }
        Kind::Word(words) => {
            let is_word = words.iter().any(|word| word.eq_ignore_ascii_case(value));
            (!is_word).then(|| format!("{raw} is not valid for {name}"))
        }
    };
    refusal.map_or(Ok(()), |message| Err(CqlError::config(message)))
}

/// A number that was checked, or what it is if it is not given.
fn number(entries: &BTreeMap<String, String>, name: &str, default: f64) -> f64 {
    entries.get(name).and_then(|raw| raw.trim().parse().ok()).unwrap_or(default)
}

/// The canonical literal of `compaction`.
pub(super) fn compaction(mut entries: BTreeMap<String, String>) -> Result<String, CqlError> {
    let class = entries.remove("class");
    let class = class.ok_or_else(|| CqlError::config("Missing sub-option 'class' for the 'compaction' option."))?;
    let short = class.strip_prefix(COMPACTION_PACKAGE).unwrap_or(&class);
    let Some((_, known)) = STRATEGIES.iter().find(|(strategy, _)| *strategy == short) else {
        let class = if class.contains('.') { class } else { format!("{COMPACTION_PACKAGE}{class}") };
        return Err(CqlError::config(format!("Unable to find compaction strategy class '{class}'")));
    };
    let unknown = unknown(&entries, known)?;
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        return Err(CqlError::config(format!("Properties specified [{unknown}] are not understood by {short}")));
    }
    let (least, most) = (number(&entries, "min_threshold", 4.0), number(&entries, "max_threshold", 32.0));
    if least > most {
        return Err(CqlError::config(format!(
            "Min compaction threshold (got {least}) cannot be greater than max compaction threshold (got {most})"
        )));
    }
    let (low, high) = (number(&entries, "bucket_low", 0.5), number(&entries, "bucket_high", 1.5));
    if high <= low {
        return Err(CqlError::config(format!(
            "bucket_high value ({high:?}) is less than or equal to the bucket_low value ({low:?})"
        )));
    }
    entries.insert("class".to_owned(), format!("{COMPACTION_PACKAGE}{short}"));
    Ok(text::map(&entries))
}

/// A sub-option that is a number within bounds, if it is given.
fn sub_integer(entries: &BTreeMap<String, String>, name: &str, least: i64, most: i64) -> Result<Option<i64>, CqlError> {
    let Some(raw) = entries.get(name) else { return Ok(None) };
    let value = raw.trim().parse::<i64>().ok().filter(|value| (least..=most).contains(value));
    let refused = || CqlError::config(format!("{raw} is not valid for {name}: it has to be from {least} to {most}"));
    value.map(Some).ok_or_else(refused)
}

/// The canonical literal of `compression`.
pub(super) fn compression(mut entries: BTreeMap<String, String>) -> Result<String, CqlError> {
    if let Some(name) = unknown(&entries, &[COMPRESSION])?.first() {
        return Err(CqlError::config(format!("Unknown compression options {name}")));
    }
    let off = entries.get("enabled").is_some_and(|enabled| enabled.trim().eq_ignore_ascii_case("false"));
    // The names that these options had before Cassandra 3.
    let class = entries.remove("class").or_else(|| entries.remove("sstable_compression"));
    if let Some(chunk) = entries.remove("chunk_length_kb") {
        entries.entry("chunk_length_in_kb".to_owned()).or_insert(chunk);
    }
    let Some(class) = class.filter(|class| !class.is_empty()) else {
        if !off && !entries.is_empty() {
            return Err(CqlError::config("Missing sub-option 'class' for the 'compression' option."));
        }
        return Ok(text::map(&BTreeMap::from([("enabled".to_owned(), "false".to_owned())])));
    };
    entries.insert("class".to_owned(), compressor(&class)?);
    if let Some(last) = entries.remove("last_level_class") {
        entries.insert("last_level_class".to_owned(), compressor(&last)?);
    }
    for level in ["compression_level", "last_level_compression_level"] {
        sub_integer(&entries, level, 1, MAX_ZSTD_LEVEL)?;
    }
    let chunk = sub_integer(&entries, "chunk_length_in_kb", 1, MAX_CHUNK_KIB)?;
    if chunk.is_some_and(|chunk| chunk.count_ones() != 1) {
        return Err(CqlError::config("chunk_length_in_kb must be a power of 2"));
    }
    Ok(text::map(&entries))
}

/// The whole name of a compressor.
fn compressor(class: &str) -> Result<String, CqlError> {
    let short = class.strip_prefix(COMPRESSION_PACKAGE).unwrap_or(class);
    if COMPRESSORS.contains(&short) {
        Ok(format!("{COMPRESSION_PACKAGE}{short}"))
    } else {
        Err(CqlError::config(format!("Could not create Compression for type {class}")))
    }
}
