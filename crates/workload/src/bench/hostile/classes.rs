//! The hostile requests, by class.
//!
//! Always true: the requests of a class depend only on their number; each class is named after the resource that it
//! overuses. Left out: sending them ([`super::attack`]).

use std::fmt::Write as _;

/// Tables that the classes use.
pub const TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS hostile_rows (k int, c int, v text, l list<int>, m map<int, int>, PRIMARY KEY (k, c))",
    "CREATE TABLE IF NOT EXISTS hostile_pairs (a text, b text, v int, PRIMARY KEY ((a, b)))",
    "CREATE TABLE IF NOT EXISTS hostile_tuples (k int PRIMARY KEY, t tuple<int, int>)",
    "CREATE TABLE IF NOT EXISTS hostile_grown (k int PRIMARY KEY, m map<int, int>)",
    "CREATE TABLE IF NOT EXISTS hostile_static (k int, c int, s int static, v text, PRIMARY KEY (k, c))",
    "CREATE TYPE IF NOT EXISTS hostile_fields (f0 int, f1 int, f2 int, f3 int, f4 int, f5 int, f6 int, f7 int)",
    "CREATE TABLE IF NOT EXISTS hostile_typed (k int PRIMARY KEY, u frozen<hostile_fields>)",
];

/// Elements that a list or tuple of too many has.
const MANY: usize = 65_536;
/// Elements of the map that grows, and how often it is read while it does.
const GROWN: u64 = 20_000;
const READ_EVERY: u64 = 500;

/// A class.
#[derive(Debug)]
pub struct Class {
    pub name: &'static str,
    pub what: &'static str,
    /// The statement that is sent once before the phase.
    pub before: Option<fn() -> String>,
    pub sends: Sends,
}

/// The requests of a class.
#[derive(Debug)]
pub enum Sends {
    /// One statement again and again, each time once it is answered.
    Statement(fn() -> String),
    /// Statements that differ, by how many were sent before.
    Statements(fn(u64) -> String),
    /// A header that announces the largest body there is, before any STARTUP, on a new connection each time.
    OversizedFrames,
    /// Requests of 32 MiB that never end, before any STARTUP.
    UnfinishedRequests,
    /// Connections that begin a session and go.
    Connections,
}

/// All classes.
pub const CLASSES: &[Class] = &[
    statement("nesting", "conditions in 64 parentheses", nesting),
    statement("functions", "functions of functions, 22 deep", functions),
    statements("in-product", "400 × 400 keys of two IN", in_product),
    statement("list-removal", "65,535 values removed from a list", list_removal),
    statement("decimals", "quotients of decimals with 65,000 digits", decimals),
    statement("json", "JSON arrays of 250,000 numbers", json),
    Class { before: Some(large_cell_row), ..statement("large-cell", "a cell of 1 MiB selected 200 times", large_cell) },
    Class {
        before: Some(large_cell_row),
        ..statement("order-by-in", "ORDER BY over an IN of 2,000 keys", order_by_in)
    },
    statement("contains", "500 CONTAINS on one map", contains),
    Class {
        name: "oversized-frames",
        what: "frames of 2 GiB before login",
        before: None,
        sends: Sends::OversizedFrames,
    },
    Class {
        name: "unfinished",
        what: "requests of 32 MiB that never end",
        before: None,
        sends: Sends::UnfinishedRequests,
    },
    Class { name: "connections", what: "connections that come and go", before: None, sends: Sends::Connections },
    statement("tuple", "a tuple of 65,536 elements", tuple),
    statements("range-deletes", "batches of 200 range deletes, and reads", range_deletes),
    statements("wide-tables", "tables of 4,000 columns that are made, and read as schema", wide_tables),
    statements("grown-map", "a map that grows by one element 20,000 times, and is read", grown_map),
    statements("refused-batch", "batches whose 200 conditions on rows of 256 KiB are refused", refused_batch),
    statement("conditional-batch", "batches of 4,000 conditional updates", conditional_batch),
    statements("static-condition", "refused conditions on a static column beside deleted rows", static_condition),
    statement("fields", "4,000 fields of a user-defined type selected", fields),
];

const fn statement(name: &'static str, what: &'static str, sends: fn() -> String) -> Class {
    Class { name, what, before: None, sends: Sends::Statement(sends) }
}

const fn statements(name: &'static str, what: &'static str, sends: fn(u64) -> String) -> Class {
    Class { name, what, before: None, sends: Sends::Statements(sends) }
}

fn joined(count: usize, item: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for at in 0..count {
        let _ = write!(text, "{}{}", if at == 0 { "" } else { ", " }, item(at));
    }
    text
}

fn nesting() -> String {
    let (open, close) = ("(".repeat(64), ")".repeat(64));
    format!("UPDATE hostile_rows SET v = 'x' WHERE k = 1 AND c = 1 IF v = 'a' OR v = 'b' AND {open}v = 'c'{close}")
}

fn functions() -> String {
    let call = (0..22).fold("now()".to_owned(), |inner, at| match at % 2 {
        0 => format!("todate({inner})"),
        _ => format!("totimestamp({inner})"),
    });
    format!("SELECT {call} FROM system.local")
}

fn in_product(round: u64) -> String {
    let keys = |which: &str| joined(400, |at| format!("'{which}-{round}-{at}-{}'", "x".repeat(200)));
    format!("SELECT v FROM hostile_pairs WHERE a IN ({}) AND b IN ({})", keys("a"), keys("b"))
}

fn list_removal() -> String {
    format!("UPDATE hostile_rows SET l = l - [{}] WHERE k = 1 AND c = 1", joined(MANY - 1, |at| at.to_string()))
}

fn decimals() -> String {
    format!("SELECT (decimal) 1{}.5 / (decimal) 3 FROM system.local", "0".repeat(65_000))
}

fn json() -> String {
    let numbers = joined(250_000, |at| (at % 10).to_string());
    format!("INSERT INTO hostile_rows JSON '{{\"k\": 1, \"c\": 2, \"l\": [{numbers}]}}'")
}

fn large_cell_row() -> String {
    format!("INSERT INTO hostile_rows (k, c, v) VALUES (7, 7, '{}')", "x".repeat(1 << 20))
}

fn large_cell() -> String {
    format!("SELECT {} FROM hostile_rows WHERE k = 7 AND c = 7", joined(200, |_| "v".to_owned()))
}

fn order_by_in() -> String {
    format!("SELECT * FROM hostile_rows WHERE k IN ({}) ORDER BY c", joined(2_000, |at| at.to_string()))
}

fn contains() -> String {
    let tests: Vec<String> = (0..500).map(|at| format!("m CONTAINS {at}")).collect();
    format!("SELECT k FROM hostile_rows WHERE {} ALLOW FILTERING", tests.join(" AND "))
}

fn tuple() -> String {
    format!("INSERT INTO hostile_tuples (k, t) VALUES (1, ({}))", joined(MANY, |_| "1".to_owned()))
}

fn range_deletes(round: u64) -> String {
    if round % 4 == 3 {
        return "SELECT c FROM hostile_rows WHERE k = 9".to_owned();
    }
    let first = round * 400;
    let delete = |at: u64| {
        let (from, to) = (first + 2 * at, first + 2 * at + 1);
        format!("DELETE FROM hostile_rows WHERE k = 9 AND c >= {from} AND c < {to};")
    };
    format!("BEGIN BATCH {} APPLY BATCH", (0..200).map(delete).collect::<Vec<_>>().join(" "))
}

fn wide_tables(round: u64) -> String {
    match round % 8 {
        // As many as few clients make in a run: they go with the keyspace.
        0 if round < 128 => {
            let columns = joined(4_000, |at| format!("column_{at} text"));
            format!(
                "CREATE TABLE IF NOT EXISTS hostile_wide_{} (k int PRIMARY KEY, {columns}) WITH tablets = 1",
                round / 8
            )
        }
        1 => "DESCRIBE SCHEMA".to_owned(),
        _ => "SELECT * FROM system_schema.columns".to_owned(),
    }
}

fn grown_map(round: u64) -> String {
    if round % READ_EVERY == READ_EVERY - 1 {
        return "SELECT m FROM hostile_grown WHERE k = 1".to_owned();
    }
    let element = round % GROWN;
    format!("UPDATE hostile_grown SET m = m + {{{element}: {element}}} WHERE k = 1")
}

/// The first rounds write the rows.
fn refused_batch(round: u64) -> String {
    if round < 200 {
        return format!("INSERT INTO hostile_rows (k, c, v) VALUES (11, {round}, '{}')", "x".repeat(256 << 10));
    }
    let update = |at: u64| format!("UPDATE hostile_rows SET l = [1] WHERE k = 11 AND c = {at} IF v = 'other';");
    format!("BEGIN BATCH {} APPLY BATCH", (0..200).map(update).collect::<Vec<_>>().join(" "))
}

fn conditional_batch() -> String {
    let update = |at: u64| format!("UPDATE hostile_rows SET v = 'x' WHERE k = 12 AND c = {at} IF v = 'other';");
    format!("BEGIN BATCH {} APPLY BATCH", (0..4_000).map(update).collect::<Vec<_>>().join(" "))
}

/// Three rounds of four write rows, and delete them one by one.
fn static_condition(round: u64) -> String {
    if round % 4 == 3 {
        return "UPDATE hostile_static SET s = 1 WHERE k = 1 IF s = 99".to_owned();
    }
    let both = |at: u64| {
        let row = round * 250 + at;
        format!(
            "INSERT INTO hostile_static (k, c, v) VALUES (1, {row}, 'x') USING TIMESTAMP 1; \
             DELETE FROM hostile_static USING TIMESTAMP 2 WHERE k = 1 AND c = {row};"
        )
    };
    format!("BEGIN BATCH {} APPLY BATCH", (0..250).map(both).collect::<Vec<_>>().join(" "))
}

fn fields() -> String {
    format!("SELECT {} FROM hostile_typed WHERE k = 1", joined(4_000, |at| format!("u.f{}", at % 8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names_of_their_own_and_statements_fit_into_a_request() {
        let mut names: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CLASSES.len());
        for class in CLASSES {
            let before = class.before.map(|before| before().len()).unwrap_or_default();
            assert!(before < 16 << 20, "{}", class.name);
            let text = match class.sends {
                Sends::Statement(statement) => statement(),
                Sends::Statements(statement) => statement(3),
                _ => continue,
            };
            assert!(!text.is_empty() && text.len() < 16 << 20, "{}", class.name);
        }
        assert!(functions().contains("todate(totimestamp(todate("));
        assert!(grown_map(READ_EVERY - 1).starts_with("SELECT"));
    }
}
