//! The limits of Diorite: those that the parser, the planner, the encoders and the decoders share, and the ranges of
//! the settings that an operator may change for the whole cluster. `docs/cql.md` shows the first table,
//! `docs/operate.md` the second, and a test compares them.
//!
//! Always true: the writer and the reader of something use the same constant for its limit. Left out: limits that a
//! node's options set (memory, connections), and those that only one module uses.

use thiserror::Error;

/// One limit, as documents show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The name of its constant.
    pub name: &'static str,
    /// The greatest allowed value.
    pub value: u64,
    /// The unit.
    pub unit: &'static str,
    /// The limited quantity.
    pub of: &'static str,
}

/// The range of a setting, as documents show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingLimits {
    /// The name of its constant.
    pub name: &'static str,
    /// The smallest value.
    pub least: u64,
    /// The greatest value.
    pub greatest: u64,
    /// Zero is allowed too, and means that there is no limit, or that the action never happens.
    pub may_be_zero: bool,
    /// The unit.
    pub unit: &'static str,
    /// The setting.
    pub of: &'static str,
}

/// A value is over a limit, or below the least that is allowed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{what} of {found} {unit} is {} the limit of {limit} {unit} ({name})", side(.found, .limit))]
pub struct Exceeded {
    /// The name of the value.
    pub what: String,
    /// The value.
    pub found: u64,
    /// The limit.
    pub limit: u64,
    /// The unit.
    pub unit: &'static str,
    /// The name of the limit.
    pub name: &'static str,
}

fn side(found: &u64, limit: &u64) -> &'static str {
    if found < limit { "under" } else { "over" }
}

/// Compares with a limit; the error names it. `what` is called only for the error.
#[inline]
pub fn check(limit: &Limit, found: usize, what: impl FnOnce() -> String) -> Result<(), Exceeded> {
    if found as u64 <= limit.value {
        return Ok(());
    }
    Err(Exceeded { what: what(), found: found as u64, limit: limit.value, unit: limit.unit, name: limit.name })
}

/// Compares with the range of a setting; the error names the limit that is exceeded.
pub fn check_setting(limits: &SettingLimits, found: u64) -> Result<(), Exceeded> {
    let limit = match found {
        0 if limits.may_be_zero => return Ok(()),
        _ if found < limits.least => limits.least,
        _ if found > limits.greatest => limits.greatest,
        _ => return Ok(()),
    };
    Err(Exceeded { what: limits.of.to_owned(), found, limit, unit: limits.unit, name: limits.name })
}

macro_rules! limits {
    ($($name:ident, $entry:ident: $kind:ty = $value:expr, $unit:literal, $of:literal;)*) => {
        $(
            #[doc = $of]
            pub const $name: $kind = $value;
            #[doc = concat!("The entry of [`", stringify!($name), "`].")]
            pub const $entry: Limit =
                Limit { name: stringify!($entry), value: $name as u64, unit: $unit, of: $of };
        )*
        /// All limits, in the order in which documents show them.
        pub const TABLE: &[Limit] = &[$($entry),*];
    };
}

limits! {
    MAX_FRAME_BYTES, FRAME_BYTES: usize = 32 << 20, "bytes", "The body of one request.";
    MAX_REQUEST_MEMORY_BYTES, REQUEST_MEMORY_BYTES: usize = 256 << 20, "bytes", "The memory of one request, from its text to its answer.";
    MAX_STATEMENT_PARTS, STATEMENT_PARTS: usize = 1 << 19, "parts", "Terms, selectors, relations, assignments, types and statements in one text.";
    MAX_NESTING, NESTING: usize = 100, "levels", "Terms, selectors, conditions and types within each other, as they are written.";
    MAX_MARKERS, MARKERS: usize = 65_535, "markers", "Bind markers of one statement or batch.";
    MAX_SELECTORS, SELECTORS: usize = 16_384, "selectors", "Selectors of one `SELECT`.";
    MAX_BATCH_STATEMENTS, BATCH_STATEMENTS: usize = 65_535, "statements", "Statements of one batch.";
    MAX_PLAN_STEPS, PLAN_STEPS: u64 = 32 << 20, "steps", "Work of planning one statement.";
    MAX_PLAN_BYTES, PLAN_BYTES: u64 = 128 << 20, "bytes", "Memory of the plan of one statement.";
    MAX_CONDITION_DEPTH, CONDITION_DEPTH: usize = 128, "levels", "`AND`, `OR` and `NOT` within each other in an `IF`.";
    MAX_TYPE_DEPTH, TYPE_DEPTH: usize = 32, "levels", "Types within each other, user-defined types with their fields' types included.";
    MAX_TYPE_PARTS, TYPE_PARTS: usize = 16_384, "types", "Types within one type, user-defined types with their fields' types included.";
    MAX_COLUMNS, COLUMNS: usize = 16_384, "columns", "Columns of one table.";
    MAX_COLLECTION_ELEMENTS, COLLECTION_ELEMENTS: usize = 65_535, "keys", "Keys that the `IN`s of one statement name together.";
    MAX_KEY_BYTES, KEY_BYTES: usize = 65_535, "bytes", "The partition key or the clustering key of a row, a key of a map, an element of a set, the name of a column.";
    MAX_NUMBER_BYTES, NUMBER_BYTES: usize = 4_096, "bytes", "A `varint` or `decimal` that a client sends or an operation gives.";
    MAX_NUMBER_DIGITS, NUMBER_DIGITS: usize = 9_800, "digits", "A `varint` or `decimal` that is given as text.";
    MAX_EDIT_BYTES, EDIT_BYTES: usize = 64 << 20, "bytes", "The values that the edits of lists and documents in one write to one tablet produce.";
    MAX_REREAD_BYTES, REREAD_BYTES: usize = 32 << 20, "bytes", "Rows that the statements of a transaction block, or of a batch with arithmetic, read and change again; at least 4 KiB each time.";
    MAX_MUTATION_BYTES, MUTATION_BYTES: usize = 16 << 20, "bytes", "What one statement or batch writes to one tablet.";
    MAX_INDEX_BYTES, INDEX_BYTES: usize = 64 << 20, "bytes", "The entries of indexes that one statement or batch writes in one tablet.";
    MAX_ROW_BYTES, ROW_BYTES: usize = 64 << 20, "bytes", "A row, or the deletions of ranges in one partition, as it is stored: nothing is added to a larger one.";
    MAX_CONDITION_ROWS, CONDITION_ROWS: usize = 1_024, "rows", "Rows that the conditions of one batch name, or that a write to one tablet reads first for views and unique indexes.";
    MAX_GUARDED_ROWS, GUARDED_ROWS: usize = 10_000, "rows", "Rows of a table with views that one statement or batch deletes by ranges in one tablet.";
    MAX_SHOWN_BYTES, SHOWN_BYTES: usize = 1 << 20, "bytes", "The rows that a refused batch returns beside that of the failed condition.";
    MAX_NODE_FRAME_BYTES, NODE_FRAME_BYTES: usize = 64 << 20, "bytes", "What one node sends another at once: a row as it is stored, for example.";
    MAX_TABLETS_PER_TABLE, TABLETS_PER_TABLE: u32 = 10_000, "tablets", "Tablets that a table is created with.";
    MAX_CATALOG_COMMAND_BYTES, CATALOG_COMMAND_BYTES: usize = 8 << 20, "bytes", "One change of the schema or of roles, as it is encoded.";
    MAX_CATALOG_CHANGE_BYTES, CATALOG_CHANGE_BYTES: usize = 64 << 20, "bytes", "The objects that one change of the schema stores.";
    MAX_CATALOG_DEPTH, CATALOG_DEPTH: usize = 120, "levels", "JSON objects and arrays within each other, of a definition as it is stored: a level of user-defined types takes five.";
    MAX_ZONE_BYTES, ZONE_BYTES: usize = 255, "bytes", "The name of a zone.";
    MAX_LEADER_ZONES, LEADER_ZONES: usize = 64, "zones", "Zones that leaders are preferred in.";
    MAX_JOIN_TOKENS, JOIN_TOKENS: usize = 64, "tokens", "Join tokens of a cluster that are valid at a time.";
    MAX_JOIN_TOKEN_NODES, JOIN_TOKEN_NODES: u32 = 1_024, "nodes", "Nodes that join with one join token.";
    MAX_CIDR_GROUPS, CIDR_GROUPS: usize = 256, "groups", "CIDR groups of a cluster.";
    MAX_CIDRS_OF_GROUP, CIDRS_OF_GROUP: usize = 1_024, "networks", "Networks of one CIDR group.";
    MAX_PASSWORD_BYTES, PASSWORD_BYTES: usize = 1_024, "bytes", "A password.";
    MAX_PASSWORD_HASH_BYTES, PASSWORD_HASH_BYTES: usize = 512, "bytes", "The text of a `HASHED PASSWORD`.";
    MAX_PASSWORD_HASH_KIB, PASSWORD_HASH_KIB: u32 = 65_536, "KiB", "Memory that checking a `HASHED PASSWORD` takes (`m`).";
    MAX_PASSWORD_HASH_PASSES, PASSWORD_HASH_PASSES: u32 = 4, "passes", "Passes over that memory (`t`).";
    MAX_PASSWORD_HASH_LANES, PASSWORD_HASH_LANES: u32 = 8, "lanes", "Lanes that the memory is cut into (`p`).";
}

/// How long the key of a row may be in its stored form, which no client sees: escapes at most double the bytes of a
/// partition key and of a clustering key, and each column adds a few.
pub const MAX_STORED_KEY_BYTES: usize = 8 * MAX_KEY_BYTES;
/// The entry of [`MAX_STORED_KEY_BYTES`], for messages between nodes.
pub const STORED_KEY_BYTES: Limit = Limit {
    name: "STORED_KEY_BYTES",
    value: MAX_STORED_KEY_BYTES as u64,
    unit: "bytes",
    of: "The key of a row as it is stored.",
};

macro_rules! setting_limits {
    ($($name:ident: $least:expr, $greatest:expr, $may_be_zero:expr, $unit:literal, $of:literal;)*) => {
        $(
            #[doc = concat!("Between which values ", $of, " is.")]
            pub const $name: SettingLimits = SettingLimits {
                name: stringify!($name),
                least: $least,
                greatest: $greatest,
                may_be_zero: $may_be_zero,
                unit: $unit,
                of: $of,
            };
        )*
        /// All of them, in the order in which documents show them.
        pub const SETTINGS: &[SettingLimits] = &[$($name),*];
    };
}

// The least value is one with which a cluster still works: a node counts as failed only after longer than an election
// takes, tablets are large enough for a group of their own, copies come to an end.
setting_limits! {
    COPY_RATE: 64 << 10, 1 << 40, false, "bytes/s", "the rate of copies";
    REPLACE_AFTER: 1_000, 30 * 24 * 3_600 * 1_000, false, "ms", "the time to replace a silent node";
    SPLIT_SIZE: 1 << 20, 1 << 50, true, "bytes", "the size to split at";
    SPLIT_LOAD: 10, 1_000_000_000, true, "operations/s", "the load to split at";
    MERGE_SIZE: 1 << 20, 1 << 40, true, "bytes", "the size to merge up to";
    COMPACTION_RATE: 1 << 20, 1 << 40, true, "bytes/s", "the rate of flushes and compactions";
    INDEX_RATE: 1 << 20, 1 << 40, true, "bytes/s", "the rate of index builds";
    SCRUB_RATE: 64 << 10, 1 << 40, true, "bytes/s", "the rate of reading everything once";
    JOIN_TOKEN_LIFETIME: 1_000, 30 * 24 * 3_600 * 1_000, false, "ms", "the lifetime of a join token";
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "test data is known")]
    use super::*;

    const BEGIN: &str = "<!-- limits: begin -->\n";
    const END: &str = "<!-- limits: end -->\n";

    fn number(value: u64) -> String {
        let digits = value.to_string();
        let mut shown = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                shown.push(',');
            }
            shown.push(digit);
        }
        shown
    }

    fn shown(limit: &Limit) -> String {
        let value = match (limit.unit, limit.value) {
            ("bytes", bytes) if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
            (unit, value) => format!("{} {unit}", number(value)),
        };
        format!("| {} | {value} | `{}` |\n", limit.of.trim_end_matches('.'), limit.name)
    }

    fn shown_setting(limits: &SettingLimits) -> String {
        let amount = |value: u64| match (limits.unit, value) {
            ("bytes" | "bytes/s", value) if value >= 1 << 10 => {
                let power = value.ilog2() / 10;
                let unit = ["", "KiB", "MiB", "GiB", "TiB", "PiB"][power as usize];
                format!("{} {unit}{}", value >> (10 * power), limits.unit.trim_start_matches("bytes"))
            }
            ("ms", value) if value >= 24 * 3_600_000 => format!("{} days", value / 24 / 3_600_000),
            ("ms", value) => format!("{} s", value / 1_000),
            (unit, value) => format!("{} {unit}", number(value)),
        };
        let zero = if limits.may_be_zero { "0, or " } else { "" };
        let (least, greatest) = (amount(limits.least), amount(limits.greatest));
        format!("| {} | {zero}{least} | {greatest} | `{}` |\n", limits.of, limits.name)
    }

    /// `UPDATE_GOLDEN=1` writes the table anew.
    fn check_document(name: &str, table: &str) {
        let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs the test");
        let path = format!("{folder}/../../docs/{name}");
        let text = std::fs::read_to_string(&path).expect(name);
        let (before, rest) = text.split_once(BEGIN).expect("the place of the table");
        let (found, after) = rest.split_once(END).expect("the end of the table");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).expect(name);
            return;
        }
        assert_eq!(found, table, "docs/{name}: run this test with UPDATE_GOLDEN=1");
    }

    #[test]
    fn documents_show_the_limits_that_there_are() {
        let table: String = TABLE.iter().map(shown).collect();
        check_document("cql.md", &format!("| limit of | at most | name |\n|---|---|---|\n{table}"));
        let table: String = SETTINGS.iter().map(shown_setting).collect();
        check_document("operate.md", &format!("| setting | at least | at most | name |\n|---|---|---|---|\n{table}"));
    }

    #[test]
    fn settings_are_between_their_limits_or_zero_where_that_means_something() {
        for limits in SETTINGS {
            assert_eq!(check_setting(limits, 0).is_ok(), limits.may_be_zero, "{}", limits.name);
            assert_eq!(check_setting(limits, limits.least), Ok(()));
            assert_eq!(check_setting(limits, limits.greatest), Ok(()));
            assert!(check_setting(limits, limits.greatest + 1).is_err() && check_setting(limits, u64::MAX).is_err());
        }
        let error = check_setting(&SPLIT_SIZE, 1).expect_err("under the limit");
        assert_eq!(
            error.to_string(),
            "the size to split at of 1 bytes is under the limit of 1048576 bytes (SPLIT_SIZE)"
        );
    }

    #[test]
    fn what_is_over_a_limit_is_told_by_its_name() {
        assert_eq!(check(&TYPE_DEPTH, MAX_TYPE_DEPTH, || unreachable!("not over the limit")), Ok(()));
        let error = check(&TYPE_DEPTH, MAX_TYPE_DEPTH + 1, || "type t".to_owned()).expect_err("over the limit");
        assert_eq!(error.to_string(), "type t of 33 levels is over the limit of 32 levels (TYPE_DEPTH)");
    }
}
