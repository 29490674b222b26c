//! The `WITH` options of tables: their names, allowed values, and defaults.
//!
//! Every option of Cassandra 4 and 5 and of YugabyteDB is accepted, checked and shown again by `DESCRIBE` and `system_schema`; most do not
//! change what the server does. Those that do: `default_time_to_live`, `gc_grace_seconds`, `compaction` (its class and windows), `compression`,
//! `bloom_filter_fp_chance`, `tablets`, `id`, `follower_read_staleness_ms`.
//!
//! Always true: an option is stored as a canonical CQL literal, so that equal values have equal texts; an option that
//! is not stored has its default.

mod sub_options;

use super::text;
use crate::table::FOLLOWER_STALENESS;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_cql::language::ast::{Literal, Property, PropertyValue};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::Table;
use std::collections::BTreeMap;
use sub_options::{COMPACTION_PACKAGE, COMPRESSION_PACKAGE, compaction, compression};
use uuid::Uuid;

/// Twenty years, in seconds: Cassandra's limit.
pub const MAX_TTL_S: u32 = 20 * 365 * 24 * 60 * 60;

/// `gc_grace_seconds` when a statement does not say it: ten days.
pub const DEFAULT_GC_GRACE_S: u32 = 864_000;

/// The kind of an option's value.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Boolean,
    /// At least this.
    Integer(i64),
    /// Any number.
    Double,
    /// Up to 1, and above 0 or from 0, as the flag says.
    Fraction {
        above_zero: bool,
    },
    Retry,
    ReadRepair,
    Caching,
    Compaction,
    Compression,
    Transactions,
    /// Names to bytes.
    Extensions,
}

/// Every option that is only stored, with the value that `DESCRIBE` and `system_schema` show if it was not given
/// (`None`: none).
const OPTIONS: &[(&str, Kind, Option<&str>)] = &[
    ("additional_write_policy", Kind::Retry, Some("'99p'")),
    ("allow_auto_snapshot", Kind::Boolean, None),
    // Most of the data has no filters unless they are asked for: an absent key may always cost a read.
    ("bloom_filter_fp_chance", Kind::Fraction { above_zero: true }, Some("1.0")),
    ("caching", Kind::Caching, Some("{'keys': 'ALL', 'rows_per_partition': 'NONE'}")),
    ("cdc", Kind::Boolean, Some("false")),
    ("comment", Kind::Text, Some("''")),
    (
        "compaction",
        Kind::Compaction,
        Some(
            "{'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', \
             'max_threshold': '32', 'min_threshold': '4'}",
        ),
    ),
    (
        "compression",
        Kind::Compression,
        Some("{'chunk_length_in_kb': '8', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}"),
    ),
    ("crc_check_chance", Kind::Fraction { above_zero: false }, Some("1.0")),
    ("dclocal_read_repair_chance", Kind::Fraction { above_zero: false }, None),
    ("extensions", Kind::Extensions, Some("{}")),
    (FOLLOWER_STALENESS, Kind::Integer(0), None),
    ("incremental_backups", Kind::Boolean, None),
    ("index_interval", Kind::Integer(1), None),
    ("max_index_interval", Kind::Integer(1), Some("2048")),
    ("memtable", Kind::Text, Some("'default'")),
    ("memtable_flush_period_in_ms", Kind::Integer(0), Some("0")),
    ("min_index_interval", Kind::Integer(1), Some("128")),
    ("populate_io_cache_on_flush", Kind::Boolean, None),
    ("read_repair", Kind::ReadRepair, Some("'BLOCKING'")),
    ("read_repair_chance", Kind::Fraction { above_zero: false }, None),
    ("replicate_on_write", Kind::Boolean, None),
    ("speculative_retry", Kind::Retry, Some("'99p'")),
    ("speculative_write_threshold", Kind::Double, None),
    ("transactions", Kind::Transactions, None),
];

/// The `WITH` clause of a table, checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TableProperties {
    pub default_ttl_s: Option<u32>,
    pub gc_grace_s: Option<u32>,
    pub tablets: Option<u32>,
    pub id: Option<Uuid>,
    /// The others, as canonical literals.
    pub others: BTreeMap<String, String>,
}

impl TableProperties {
    /// Reads and checks options; each may be given once.
    pub fn read(properties: &[Property]) -> Result<Self, CqlError> {
        let mut read = Self::default();
        for property in properties {
            let (name, value) = (property.name.as_str(), &property.value);
            let twice = match name {
                "default_time_to_live" => read.default_ttl_s.replace(bounded(name, value, 0, MAX_TTL_S)?).is_some(),
                "gc_grace_seconds" => read.gc_grace_s.replace(bounded(name, value, 0, i32::MAX as u32)?).is_some(),
                "tablets" => {
                    let tablets = bounded(name, value, 1, MAX_TABLETS_PER_TABLE)?;
                    // Remembered as well, so that DESCRIBE gives a statement that makes the table as it was asked for.
                    read.others.insert(name.to_owned(), tablets.to_string());
                    read.tablets.replace(tablets).is_some()
                }
                "id" => read.id.replace(uuid(value)?).is_some(),
                _ => {
                    let kind = OPTIONS.iter().find(|(known, ..)| *known == name).map(|(_, kind, _)| *kind);
                    let kind = kind.ok_or_else(|| CqlError::syntax(format!("Unknown property '{name}'")))?;
                    read.others.insert(name.to_owned(), canonical(name, kind, value)?).is_some()
                }
            };
            if twice {
                return Err(CqlError::syntax(format!("Multiple definitions for property '{name}'")));
            }
        }
        Ok(read)
    }
}

/// Options that constrain one another, over the whole of a table's options.
pub(super) fn check_together(table: &Table) -> Result<(), CqlError> {
    let integer = |name| option(table, name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let (least, most) = (integer("min_index_interval"), integer("max_index_interval"));
    if most < least {
        return Err(CqlError::config(format!(
            "max_index_interval must be greater than or equal to min_index_interval ({least}) (got {most})"
        )));
    }
    Ok(())
}

/// The literal of an option: as given, or its default; `None` if it is not shown unless given.
pub fn option<'a>(table: &'a Table, name: &str) -> Option<&'a str> {
    let given = table.options.get(name).map(String::as_str);
    given.or_else(|| OPTIONS.iter().find(|(known, ..)| *known == name).and_then(|(.., default)| *default))
}

/// The literal of an option as given; `None` if it was not.
pub fn given<'a>(table: &'a Table, name: &str) -> Option<&'a str> {
    table.options.get(name).map(String::as_str)
}

/// All options to be shown, as name and literal, by name; `default_time_to_live` and `gc_grace_seconds` among them.
pub fn shown(table: &Table) -> BTreeMap<&str, String> {
    let mut shown: BTreeMap<&str, String> = OPTIONS
        .iter()
        .filter_map(|(name, ..)| option(table, name).map(|literal| (*name, literal.to_owned())))
        .collect();
    shown.extend(table.options.iter().map(|(name, literal)| (name.as_str(), literal.clone())));
    shown.insert("default_time_to_live", table.default_ttl_s.to_string());
    shown.insert("gc_grace_seconds", table.gc_grace_s.to_string());
    shown
}

/// Reads a stored map literal (`{'key': 'value', …}`) back.
pub fn read_map(literal: &str) -> BTreeMap<String, String> {
    let mut strings = Vec::new();
    let mut rest = literal;
    // Only canonical literals are stored: strings in quotes (doubled inside) and blobs, separated by colons and commas.
    while let Some(start) = rest.find(['\'', '0']) {
        let mut found = String::new();
        if let Some(hex) = rest[start..].strip_prefix("0x") {
            let end = hex.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(hex.len());
            found.push_str(&rest[start..start + 2 + end]);
            rest = &hex[end..];
        } else {
            rest = &rest[start + 1..];
            while let Some(end) = rest.find('\'') {
                found.push_str(&rest[..end]);
                rest = &rest[end + 1..];
                match rest.strip_prefix('\'') {
                    Some(after) => rest = after,
                    None => break,
                }
                found.push('\'');
            }
        }
        strings.push(found);
    }
    strings.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Reads a stored string literal back.
pub fn read_text(literal: &str) -> String {
    let inner = literal.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    inner.unwrap_or(literal).replace("''", "'")
}

/// The compaction class of a table without its package, such as `LeveledCompactionStrategy`.
pub fn compaction_class(table: &Table) -> String {
    let mut compaction = read_map(option(table, "compaction").unwrap_or_default());
    let class = compaction.remove("class").unwrap_or_default();
    class.strip_prefix(COMPACTION_PACKAGE).map_or(class.clone(), str::to_owned)
}

/// The length of the time windows of a table, seconds: a day unless it says something else.
pub fn window_s(table: &Table) -> u32 {
    let compaction = read_map(option(table, "compaction").unwrap_or_default());
    let unit_s = match compaction.get("compaction_window_unit").map(|unit| unit.to_ascii_uppercase()).as_deref() {
        Some("MINUTES") => 60,
        Some("HOURS") => 3_600,
        _ => 86_400,
    };
    let size = compaction.get("compaction_window_size").and_then(|size| size.trim().parse::<u32>().ok());
    size.unwrap_or(1).max(1).saturating_mul(unit_s)
}

/// A compressor among the sub-options of `compression` without its package, such as `ZstdCompressor`.
pub fn compression_class<'m>(compression: &'m BTreeMap<String, String>, name: &str) -> Option<&'m str> {
    let class = compression.get(name)?;
    Some(class.strip_prefix(COMPRESSION_PACKAGE).unwrap_or(class))
}

fn scalar(name: &str, value: &PropertyValue) -> Result<String, CqlError> {
    match value {
        PropertyValue::Literal(literal) => Ok(text::raw(literal)),
        PropertyValue::Identifier(word) => Ok(word.clone()),
        PropertyValue::Map(_) | PropertyValue::Set(_) => {
            Err(CqlError::syntax(format!("Invalid value for property '{name}'. It should be a string")))
        }
    }
}

fn entries(name: &str, value: &PropertyValue) -> Result<BTreeMap<String, String>, CqlError> {
    match value {
        PropertyValue::Map(entries) => {
            // Spaces around values are not stored: not every reader would pass over them.
            Ok(entries.iter().map(|(key, value)| (text::raw(key), text::raw(value).trim().to_owned())).collect())
        }
        _ => Err(CqlError::syntax(format!("Invalid value for property '{name}'. It should be a map."))),
    }
}

fn integer(name: &str, value: &PropertyValue) -> Result<i64, CqlError> {
    let raw = scalar(name, value)?;
    raw.parse().map_err(|_| CqlError::syntax(format!("Invalid integer value {raw} for '{name}'")))
}

fn double(name: &str, value: &PropertyValue) -> Result<f64, CqlError> {
    let raw = scalar(name, value)?;
    let parsed = raw.parse::<f64>().ok().filter(|value| value.is_finite());
    parsed.ok_or_else(|| CqlError::syntax(format!("Invalid double value {raw} for '{name}'")))
}

fn bounded(name: &str, value: &PropertyValue, least: u32, most: u32) -> Result<u32, CqlError> {
    let value = integer(name, value)?;
    if value < i64::from(least) {
        return Err(CqlError::config(format!("{name} must be greater than or equal to {least} (got {value})")));
    }
    u32::try_from(value)
        .ok()
        .filter(|value| *value <= most)
        .ok_or_else(|| CqlError::config(format!("{name} must be less than or equal to {most} (got {value})")))
}

fn uuid(value: &PropertyValue) -> Result<Uuid, CqlError> {
    let raw = scalar("id", value)?;
    Uuid::parse_str(&raw).map_err(|_| CqlError::config(format!("Invalid table id {raw}")))
}

/// Checks a value and writes it as the literal that is stored.
fn canonical(name: &str, kind: Kind, value: &PropertyValue) -> Result<String, CqlError> {
    Ok(match kind {
        Kind::Text => text::string(&scalar(name, value)?),
        Kind::Boolean => match scalar(name, value)?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => "true".to_owned(),
            "false" | "no" | "0" => "false".to_owned(),
            other => return Err(CqlError::syntax(format!("Invalid boolean value {other} for '{name}'"))),
        },
        Kind::Integer(least) => {
            let value = integer(name, value)?;
            if value < least {
                let message = format!("{name} must be greater than or equal to {least} (got {value})");
                return Err(CqlError::config(message));
            }
            value.to_string()
        }
        Kind::Double => text::double(double(name, value)?),
        Kind::Fraction { above_zero } => text::double(fraction(name, above_zero, double(name, value)?)?),
        Kind::Retry => retry(&scalar(name, value)?)?,
        Kind::ReadRepair => {
            let raw = scalar(name, value)?.to_ascii_uppercase();
            if raw != "BLOCKING" && raw != "NONE" {
                return Err(CqlError::config(format!("Invalid value {raw} for '{name}': use BLOCKING or NONE")));
            }
            text::string(&raw)
        }
        Kind::Caching => caching(entries(name, value)?)?,
        Kind::Compaction => compaction(entries(name, value)?)?,
        Kind::Compression => compression(entries(name, value)?)?,
        Kind::Transactions => transactions(entries(name, value)?)?,
        Kind::Extensions => extensions(value)?,
    })
}

fn fraction(name: &str, above_zero: bool, value: f64) -> Result<f64, CqlError> {
    // The least false positive chance that Cassandra's bloom filters reach.
    const LEAST_CHANCE: f64 = 6.71e-5;
    if above_zero && !(value > LEAST_CHANCE && value <= 1.0) {
        return Err(CqlError::config(format!(
            "{name} must be larger than {LEAST_CHANCE} and less than or equal to 1.0 (got {value})"
        )));
    }
    if !(0.0..=1.0).contains(&value) {
        return Err(CqlError::config(format!(
            "{name} must be larger than or equal to 0 and smaller than or equal to 1.0 (got {value})"
        )));
    }
    Ok(value)
}

/// `NONE`, `ALWAYS`, `99p`, `99PERCENTILE`, `10ms`, `MIN(99p,10ms)`, `MAX(…)`.
fn retry(raw: &str) -> Result<String, CqlError> {
    fn simple(policy: &str) -> bool {
        let number = |digits: &str| digits.parse::<f64>().is_ok_and(|value| value.is_finite() && value >= 0.0);
        let policy = policy.trim().to_ascii_lowercase();
        let percentile = policy.strip_suffix("percentile").or_else(|| policy.strip_suffix('p'));
        match (percentile, policy.strip_suffix("ms")) {
            (Some(percent), _) => number(percent) && percent.parse::<f64>().is_ok_and(|value| value <= 100.0),
            (_, Some(millis)) => number(millis),
            _ => policy == "none" || policy == "always",
        }
    }
    let inner = raw.trim().to_ascii_lowercase();
    let hybrid = inner.strip_prefix("min(").or_else(|| inner.strip_prefix("max("));
    let valid = match hybrid.and_then(|rest| rest.strip_suffix(')')).and_then(|rest| rest.split_once(',')) {
        Some((first, second)) => simple(first) && simple(second),
        None => simple(raw),
    };
    if !valid {
        return Err(CqlError::config(format!("Specified Speculative Retry Policy [{raw}] is not supported")));
    }
    Ok(text::string(raw))
}

fn caching(mut entries: BTreeMap<String, String>) -> Result<String, CqlError> {
    for (option, value) in &entries {
        let valid = match option.as_str() {
            "keys" => matches!(value.to_ascii_uppercase().as_str(), "ALL" | "NONE"),
            "rows_per_partition" => {
                matches!(value.to_ascii_uppercase().as_str(), "ALL" | "NONE") || value.parse::<u32>().is_ok()
            }
            _ => return Err(CqlError::config(format!("Invalid caching sub-option '{option}'"))),
        };
        if !valid {
            return Err(CqlError::config(format!("Invalid value '{value}' for caching sub-option '{option}'")));
        }
    }
    entries.values_mut().for_each(|value| value.make_ascii_uppercase());
    entries.entry("keys".to_owned()).or_insert_with(|| "ALL".to_owned());
    entries.entry("rows_per_partition".to_owned()).or_insert_with(|| "NONE".to_owned());
    Ok(text::map(&entries))
}

fn transactions(entries: BTreeMap<String, String>) -> Result<String, CqlError> {
    for (option, value) in &entries {
        let valid = match option.as_str() {
            "enabled" => matches!(value.to_ascii_lowercase().as_str(), "true" | "false"),
            "consistency_level" => matches!(value.as_str(), "strong" | "user_enforced"),
            _ => return Err(CqlError::syntax(format!("Unknown property '{option}' of 'transactions'"))),
        };
        if !valid {
            return Err(CqlError::syntax(format!("Invalid value '{value}' for '{option}' of 'transactions'")));
        }
    }
    Ok(text::map(&entries))
}

fn extensions(value: &PropertyValue) -> Result<String, CqlError> {
    let PropertyValue::Map(entries) = value else {
        return Err(CqlError::syntax("Invalid value for property 'extensions'. It should be a map."));
    };
    let mut written = BTreeMap::new();
    for (key, value) in entries {
        let Literal::Blob(bytes) = value else {
            return Err(CqlError::syntax("Invalid value for property 'extensions'. Its values should be blobs."));
        };
        written.insert(text::string(&text::raw(key)), text::blob(bytes));
    }
    let written: Vec<_> = written.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    Ok(format!("{{{}}}", written.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_back_as_written() {
        let entries = [("class", "x"), ("it's", "'quoted' 0x"), ("", "0")];
        let entries: BTreeMap<_, _> = entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        assert_eq!(read_map(&text::map(&entries)), entries);
        assert_eq!(read_map("{'k': 0xcafe}"), BTreeMap::from([("k".to_owned(), "0xcafe".to_owned())]));
        assert_eq!(read_map("{}"), BTreeMap::new());
        assert_eq!(read_text(&text::string("it's")), "it's");
    }

    #[test]
    fn values_are_stored_without_the_spaces_around_them() {
        let string = |text: &str| Literal::String(text.to_owned());
        let given = [
            ("class", " TimeWindowCompactionStrategy "),
            ("compaction_window_unit", " HOURS"),
            ("compaction_window_size", "2 "),
        ];
        let given = PropertyValue::Map(given.map(|(key, value)| (string(key), string(value))).to_vec());
        let stored = entries("compaction", &given).unwrap();
        let wanted = [("class", "TimeWindowCompactionStrategy"), ("compaction_window_unit", "HOURS")];
        let wanted = wanted.into_iter().chain([("compaction_window_size", "2")]);
        let wanted: BTreeMap<_, _> = wanted.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!(stored, wanted);
        assert!(compaction(stored).is_ok());
    }

    #[test]
    fn a_growth_is_a_share_or_a_percentage() {
        let is_accepted = |growth: &str| {
            let entries = [("class", "UnifiedCompactionStrategy"), ("sstable_growth", growth)];
            compaction(entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()).is_ok()
        };
        assert!(["0", "0.333", "1", "33.3%", "100%"].into_iter().all(is_accepted));
        assert!(!["1.1", "-0.1", "101%", "%", "NaN", "x"].into_iter().any(is_accepted));
    }

    #[test]
    fn defaults_are_canonical() {
        for (name, _, default) in OPTIONS {
            if let Some(literal) = default.filter(|literal| literal.starts_with('{')) {
                assert_eq!(text::map(&read_map(literal)), *literal, "{name}");
            }
        }
    }
}
