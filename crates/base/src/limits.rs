//! The limits of Diorite, one table of them: what the parser, the planner, the encoders and the decoders agree on. `docs/cql.md` shows the same
//! table, and a test says that it does.
//!
//! Always true: a limit is used by this name on both sides, where something is made and where it is read. Left out: limits that an operator sets
//! (memory, connections), and those of one module alone.

use thiserror::Error;

/// One limit, as documents show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The name of its constant.
    pub name: &'static str,
    /// The greatest allowed value.
    pub value: u64,
    /// What is counted.
    pub unit: &'static str,
    /// What is limited.
    pub of: &'static str,
}

/// Something is over a limit.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{what} of {found} {unit} is over the limit of {limit} {unit} ({name})")]
pub struct Exceeded {
    /// What it is.
    pub what: String,
    /// How much there is of it.
    pub found: u64,
    /// The limit.
    pub limit: u64,
    /// What is counted.
    pub unit: &'static str,
    /// The name of the limit.
    pub name: &'static str,
}

/// Compares with a limit; the error names it. `what` is called only to say what is over the limit.
#[inline]
pub fn check(limit: &Limit, found: usize, what: impl FnOnce() -> String) -> Result<(), Exceeded> {
    if found as u64 <= limit.value {
        return Ok(());
    }
    Err(Exceeded { what: what(), found: found as u64, limit: limit.value, unit: limit.unit, name: limit.name })
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
    MAX_EDIT_BYTES, EDIT_BYTES: usize = 64 << 20, "bytes", "What the edits of lists and documents in one write to one tablet come to when they are applied.";
    MAX_MUTATION_BYTES, MUTATION_BYTES: usize = 16 << 20, "bytes", "What one statement or batch writes to one tablet.";
    MAX_TABLETS_PER_TABLE, TABLETS_PER_TABLE: u32 = 10_000, "tablets", "Tablets that a table is created with.";
    MAX_CATALOG_COMMAND_BYTES, CATALOG_COMMAND_BYTES: usize = 8 << 20, "bytes", "One change of the schema or of roles, as it is encoded.";
    MAX_CATALOG_CHANGE_BYTES, CATALOG_CHANGE_BYTES: usize = 64 << 20, "bytes", "What one change of the schema stores anew.";
    MAX_CATALOG_DEPTH, CATALOG_DEPTH: usize = 120, "levels", "JSON objects and arrays within each other, of a definition as it is stored: a level of user-defined types takes five.";
    MAX_PASSWORD_BYTES, PASSWORD_BYTES: usize = 1_024, "bytes", "A password.";
    MAX_PASSWORD_HASH_BYTES, PASSWORD_HASH_BYTES: usize = 512, "bytes", "The text of a `HASHED PASSWORD`.";
    MAX_PASSWORD_HASH_KIB, PASSWORD_HASH_KIB: u32 = 65_536, "KiB", "Memory that checking a `HASHED PASSWORD` takes (`m`).";
    MAX_PASSWORD_HASH_PASSES, PASSWORD_HASH_PASSES: u32 = 4, "passes", "Passes over that memory (`t`).";
    MAX_PASSWORD_HASH_LANES, PASSWORD_HASH_LANES: u32 = 8, "lanes", "Lanes that the memory is cut into (`p`).";
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

    /// `UPDATE_GOLDEN=1` writes the table anew.
    #[test]
    fn documents_show_the_limits_that_there_are() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cql.md");
        let text = std::fs::read_to_string(path).expect("docs/cql.md");
        let table: String = TABLE.iter().map(shown).collect();
        let table = format!("| limit of | at most | name |\n|---|---|---|\n{table}");
        let (before, rest) = text.split_once(BEGIN).expect("the place of the table");
        let (found, after) = rest.split_once(END).expect("the end of the table");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).expect("docs/cql.md");
            return;
        }
        assert_eq!(found, table, "docs/cql.md: run this test with UPDATE_GOLDEN=1");
    }

    #[test]
    fn what_is_over_a_limit_is_told_by_its_name() {
        assert_eq!(check(&TYPE_DEPTH, MAX_TYPE_DEPTH, || unreachable!("not over the limit")), Ok(()));
        let error = check(&TYPE_DEPTH, MAX_TYPE_DEPTH + 1, || "type t".to_owned()).expect_err("over the limit");
        assert_eq!(error.to_string(), "type t of 33 levels is over the limit of 32 levels (TYPE_DEPTH)");
    }
}
