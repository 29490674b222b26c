//! Golden scripts of schema statements (`scripts/*.cql`): each statement is planned, its command applied to an in-memory catalog, and the
//! answer written below it. DESCRIBE shows what came of it. `UPDATE_GOLDEN=1` rewrites them.

#![allow(clippy::unwrap_used, reason = "test data is known")]

mod contended;
mod deferred;
mod views;
use super::context::{Context, Defaults, Plan};
use super::statement::rejected;
use super::*;
use crate::budget::Budget;
use crate::error::invalid;
use diorite_base::Level;
use diorite_cluster::catalog::{Catalog, Command, NodeDescription, Outcome};
use diorite_cql::language::ast::{Statement, TypeName};
use diorite_cql::language::{ParseErrorKind, parse};
use diorite_cql::protocol::{CqlError, ErrorKind, Response, Rows};
use diorite_model::schema::ColumnKind;
use proptest::prelude::*;
use std::fmt::Write;
use std::sync::Arc;
use uuid::Uuid;

/// A catalog with nodes in these data centres, and nothing else.
fn founded(replication_factor: u32, data_centers: &[&str]) -> Catalog {
    let bootstrap = Command::Bootstrap {
        cluster_id: Uuid::from_u128(2),
        name: "test".to_owned(),
        replication_factor,
        requires_login: None,
        level: Level::FIRST,
    };
    let (mut catalog, ..) = Catalog::default().apply(&bootstrap);
    for (number, data_center) in (1u8..).zip(data_centers) {
        let node = NodeDescription {
            host_id: Uuid::from_u128(u128::from(number)),
            address: [127, 0, 0, number].into(),
            cql_port: 9042,
            rpc_port: 7100,
            http_port: 7000,
            data_center: (*data_center).to_owned(),
            zone: "rack1".to_owned(),
            node_address: None,
            levels: None,
        };
        catalog = catalog.apply(&Command::RegisterNode { node }).0;
    }
    catalog
}

struct Database {
    catalog: Catalog,
    keyspace: Option<String>,
    /// The warnings of the statements so far.
    warnings: Vec<String>,
}

impl Database {
    fn new() -> Self {
        Self::over(founded(1, &["datacenter1"]))
    }

    fn over(catalog: Catalog) -> Self {
        Self { catalog, keyspace: None, warnings: Vec::new() }
    }

    /// Does what [`execute`] does, without waiting.
    fn run(&mut self, text: &str) -> Result<Response, CqlError> {
        let statement = parse(text).map_err(|error| match error.kind {
            ParseErrorKind::Syntax => CqlError::syntax(error.to_string()),
            ParseErrorKind::Invalid => invalid(error.to_string()),
        });
        let statement = statement?.statement;
        if let Statement::Describe(request) = &statement {
            let scope = describe::Scope { catalog: Arc::new(self.catalog.clone()), keyspace: self.keyspace.clone() };
            let response = describe::execute(&scope, request, Budget::unlimited())?;
            if let Response::Rows(rows) = &response {
                assert_eq!(rows.metadata.columns(), describe::result_columns(request).columns());
            }
            return Ok(response);
        }
        let context = Context {
            catalog: &self.catalog,
            keyspace: self.keyspace.as_deref(),
            defaults: Defaults { tablets_per_node: 2, most_tablets_per_node: MOST_TABLETS },
            nonce: 7,
        };
        let (command, change, warnings) = match plan(&context, &statement)? {
            Plan::Answer(response) => {
                if let Response::SetKeyspace(name) = &response {
                    self.keyspace = Some(name.clone());
                }
                return Ok(response);
            }
            Plan::Propose { command, change, warnings } => (command, change, warnings),
        };
        self.warnings.extend(warnings);
        let (next, outcome) = self.catalog.apply(&Command::decode(&command.encode()).unwrap());
        self.catalog = next;
        match outcome {
            Outcome::Applied { .. } => Ok(change.map_or(Response::Void, Response::SchemaChange)),
            Outcome::Rejected { rejection, message, .. } => Err(rejected(rejection, message)),
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// The cells of a result of texts.
fn texts(rows: &Rows) -> Vec<Vec<String>> {
    let (mut rest, width) = (&rows.body[..], rows.metadata.columns().len());
    let mut cells = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (cell, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        cells.push(String::from_utf8(cell.to_vec()).unwrap());
        rest = after;
    }
    assert_eq!(cells.len(), width * rows.row_count as usize);
    cells.chunks(width).map(<[String]>::to_vec).collect()
}

fn show(result: &Result<Response, CqlError>) -> String {
    match result {
        Ok(Response::Void) => "void\n".to_owned(),
        Ok(Response::SetKeyspace(name)) => format!("keyspace {name}\n"),
        Ok(Response::SchemaChange(change)) => format!("{} {:?}\n", change.change.name(), change.target),
        Ok(Response::Rows(rows)) => texts(rows).into_iter().fold(String::new(), |mut out, row| {
            let _ = writeln!(out, "| {}", row.join(" | ").replace('\n', "\n| "));
            out
        }),
        Ok(other) => panic!("{other:?}"),
        Err(error) => format!("{:?}: {}\n", error.code(), error.message),
    }
}

/// Statements end with a semicolon at the end of a line; lines with `-->` or `|` are the former answer.
fn run_script(mut database: Database, script: &str) -> String {
    let (mut out, mut statement) = (String::new(), String::new());
    for line in script.lines() {
        if line.starts_with("--> ") || line.starts_with('|') || (line.is_empty() && statement.is_empty()) {
            continue;
        }
        if line.starts_with("-- ") && statement.is_empty() {
            let _ = writeln!(out, "{}{line}", if out.is_empty() { "" } else { "\n" });
            continue;
        }
        statement.push_str(line);
        if !line.ends_with(';') {
            statement.push('\n');
            continue;
        }
        let shown = show(&database.run(&statement));
        let arrow = if shown.starts_with('|') || shown.is_empty() { "" } else { "--> " };
        let _ = write!(out, "\n{statement}\n{arrow}{shown}");
        for warning in database.warnings.drain(..) {
            let _ = writeln!(out, "--> warning: {warning}");
        }
        statement.clear();
    }
    assert!(statement.is_empty(), "the last statement ends with a semicolon");
    out
}

#[test]
fn golden_scripts() {
    let folder = diorite_golden::crate_folder().join("src/ddl/scripts");
    diorite_golden::check_folder(&folder, 5, |path, script| {
        let database = match path.file_name().and_then(|name| name.to_str()) {
            Some("replication.cql") => Database::over(founded(2, &["east", "west", "west"])),
            Some("views.cql" | "covering.cql" | "deferred.cql") => views::raised(),
            _ => Database::new(),
        };
        run_script(database, script)
    });
}

/// Statements that make a bit of everything.
const EVERYTHING: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
    "CREATE KEYSPACE \"Mixed\" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} \
     AND durable_writes = false",
    "USE ks",
    "CREATE TYPE z_inner (a int, \"Odd name\" frozen<list<text>>)",
    "CREATE TYPE a_outer (i frozen<z_inner>, \"select\" map<text, frozen<set<int>>>)",
    "CREATE TYPE \"table\" (a int)",
    "CREATE TABLE simple (k text PRIMARY KEY, v blob)",
    "CREATE TABLE \"Quoted\" (\"K\" int, \"order\" text, c timeuuid, s decimal static, u frozen<a_outer>, \
     n z_inner, w frozen<\"table\">, t tuple<int, frozen<list<varint>>>, l list<frozen<map<int, inet>>>, \
     v vector<float, 3>, PRIMARY KEY ((\"K\", \"order\"), c)) WITH CLUSTERING ORDER BY (c DESC) \
     AND comment = 'it''s' AND default_time_to_live = 60 AND compaction = {'class': 'LeveledCompactionStrategy'} \
     AND extensions = {'x': 0xCAFE} AND tablets = 5 AND transactions = {'enabled': true} AND speculative_retry = 'MIN(99p,5ms)'",
    "CREATE TABLE counts (a int, b int, c int, n counter, PRIMARY KEY (a, b, c)) \
     WITH CLUSTERING ORDER BY (b ASC, c DESC) AND gc_grace_seconds = 5 AND caching = {'keys': 'none'} \
     AND compression = {'enabled': false}",
    "CREATE TABLE \"Mixed\".t (k int PRIMARY KEY)",
];

#[test]
fn described_schemas_make_themselves_again() {
    let mut original = Database::new();
    for statement in EVERYTHING {
        original.run(statement).unwrap();
    }
    for request in ["DESCRIBE SCHEMA", "DESCRIBE SCHEMA WITH INTERNALS"] {
        let Response::Rows(rows) = original.run(request).unwrap() else { panic!("rows") };
        let mut again = Database::new();
        for row in texts(&rows) {
            let response = again.run(&row[3]).unwrap_or_else(|error| panic!("{}: {error}", row[3]));
            assert!(matches!(response, Response::SchemaChange(_)));
        }
        let Response::Rows(rows_again) = again.run(request).unwrap() else { panic!("rows") };
        if request.ends_with("INTERNALS") {
            assert_eq!(texts(&rows), texts(&rows_again));
        }
        for entry in original.catalog.tables() {
            let table = &entry.table;
            let made = &again.catalog.table(&table.keyspace, &table.name).unwrap().table;
            assert_eq!((&made.columns, made.default_ttl_s), (&table.columns, table.default_ttl_s));
            assert_eq!(options::shown(made), options::shown(table), "{}", table.name);
            let count =
                |database: &Database| database.catalog.table(&table.keyspace, &table.name).unwrap().tablets.len();
            assert_eq!(count(&again), count(&original));
        }
        for name in ["ks", "Mixed"] {
            assert_eq!(again.catalog.keyspace(name), original.catalog.keyspace(name));
            assert!(again.catalog.types_in(name).eq(original.catalog.types_in(name)));
        }
    }
}

#[test]
fn a_table_that_the_nodes_cannot_hold_is_refused() {
    let mut database = Database::new();
    database.run("CREATE KEYSPACE ks").unwrap();
    let mut create = |name: &str, tablets: u32| {
        database.run(&format!("CREATE TABLE ks.{name} (k int PRIMARY KEY) WITH tablets = {tablets}"))
    };
    create("a", 800).unwrap();
    let error = create("b", 101).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(
        error.message,
        "101 tablets are too many: the nodes hold 800 replicas of tablets, and the limit of open files allows 1000 on a \
         node; raise that limit and restart the nodes, or create fewer tablets"
    );
    create("b", 100).unwrap();
}

#[test]
fn the_schema_of_a_table_has_the_types_that_it_needs_and_no_others() {
    let mut database = Database::new();
    for statement in [
        "CREATE KEYSPACE ks",
        "CREATE TYPE ks.a_point (x int, y int)",
        "CREATE TYPE ks.z_line (from_point frozen<a_point>, to_point frozen<a_point>)",
        "CREATE TYPE ks.other (n int)",
        "CREATE TABLE ks.t (k int PRIMARY KEY, lines list<frozen<z_line>>)",
        "CREATE TABLE ks.plain (k int PRIMARY KEY)",
    ] {
        database.run(statement).unwrap();
    }
    let schema = describe::table_schema(&database.catalog, "ks", "t").unwrap();
    let places: Vec<usize> = ["CREATE TYPE ks.a_point", "CREATE TYPE ks.z_line", "CREATE TABLE ks.t"]
        .iter()
        .map(|statement| schema.find(statement).unwrap_or_else(|| panic!("{statement} is not in {schema}")))
        .collect();
    assert!(places.is_sorted(), "{schema}");
    assert!(!schema.contains("ks.other"), "{schema}");
    assert!(describe::table_schema(&database.catalog, "ks", "plain").unwrap().starts_with("CREATE TABLE ks.plain"));
    assert_eq!(describe::table_schema(&database.catalog, "ks", "none"), None);
}

#[test]
fn describing_twice_the_types_takes_little_more_than_twice_the_steps() {
    let steps = |count: usize| {
        let mut database = Database::new();
        database.run("CREATE KEYSPACE ks").unwrap();
        for at in 0..count {
            let inner = if at % 20 == 0 { "int".to_owned() } else { format!("frozen<t{}>", at - 1) };
            database.run(&format!("CREATE TYPE ks.t{at} (a int, b {inner})")).unwrap();
        }
        let (described, steps) = crate::steps::of(|| database.run("DESCRIBE KEYSPACE ks"));
        described.unwrap();
        steps
    };
    let (once, twice) = (steps(100), steps(200));
    assert!(once > 100 && twice <= once * 5 / 2, "{once} and {twice}");
}

#[test]
fn column_ids_are_never_reused() {
    let mut database = Database::new();
    for statement in ["CREATE KEYSPACE ks", "CREATE TABLE ks.t (k int PRIMARY KEY, a int, b int)"] {
        database.run(statement).unwrap();
    }
    let id = |database: &Database, name: &str| {
        database.catalog.table("ks", "t").unwrap().table.column(name).map(|column| column.id)
    };
    assert_eq!((id(&database, "k"), id(&database, "a"), id(&database, "b")), (Some(0), Some(1), Some(2)));
    database.run("ALTER TABLE ks.t DROP b").unwrap();
    database.run("ALTER TABLE ks.t ADD (b text, aa int)").unwrap();
    assert_eq!((id(&database, "b"), id(&database, "aa")), (Some(3), Some(4)));
    let names: Vec<_> =
        database.catalog.table("ks", "t").unwrap().table.columns.iter().map(|c| c.name.clone()).collect();
    assert_eq!(names, ["k", "a", "aa", "b"]);
}

#[test]
fn every_native_type_is_a_column_type_and_reads_back() {
    let types = "ascii bigint blob boolean date decimal double duration float inet int smallint text time timestamp \
                 timeuuid tinyint uuid varint";
    let mut database = Database::new();
    database.run("CREATE KEYSPACE ks").unwrap();
    for name in types.split_whitespace() {
        let key = if name == "duration" { "int" } else { name };
        let statement = format!(
            "CREATE TABLE ks.t_{name} (k {key}, c {key}, v {name}, l list<{name}>, m map<{key}, {name}>, \
             s set<{key}>, PRIMARY KEY (k, c))"
        );
        database.run(&statement).unwrap();
        let table = &database.catalog.table("ks", &format!("t_{name}")).unwrap().table;
        assert_eq!(table.column("v").unwrap().data_type.to_string(), name);
        assert_eq!(table.columns.iter().filter(|column| column.kind == ColumnKind::Regular).count(), 4);
    }
    let custom = TypeName::Custom("org.apache.cassandra.db.marshal.Int32Type".to_owned());
    assert_eq!(resolve_type(&database.catalog, "ks", &custom).unwrap().to_string(), "int");
}

/// The most tablets of a node in these tests.
const MOST_TABLETS: u32 = 1_000;

const DEFAULTS: Defaults = Defaults { tablets_per_node: 1, most_tablets_per_node: u32::MAX };

/// Types that any column may have, and types that a key column may not have.
const KEY_TYPES: [&str; 6] =
    ["int", "text", "frozen<list<text>>", "frozen<map<int, uuid>>", "frozen<tuple<int, inet>>", "frozen<point>"];
const VALUE_TYPES: [&str; 6] =
    ["duration", "list<int>", "map<text, frozen<point>>", "point", "vector<double, 2>", "set<frozen<set<date>>>"];
/// Names, quoted where they must be.
const NAMES: [&str; 8] = ["a", "b_1", "key", "\"B\"", "\"select\"", "\"with space\"", "\"quo\"\"te\"", "\"ünï\""];

proptest! {
    #[test]
    fn any_table_is_described_by_what_makes_it(
        names in Just(NAMES).prop_shuffle(),
        kinds in (1..3usize, 0..3usize, 0..2usize, 0..3usize),
        types in prop::array::uniform8(0..12usize),
        descending in prop::array::uniform8(any::<bool>()),
        comment in "[a-z' ]{0,9}",
    ) {
        let (partition, clustering, statics, regular) = kinds;
        let statics = if clustering == 0 { 0 } else { statics };
        let key = partition + clustering;
        let mut columns = Vec::new();
        for (at, name) in names.iter().enumerate().take(key + statics + regular) {
            let data_type = if at < key { KEY_TYPES[types[at] % 6] } else { [KEY_TYPES, VALUE_TYPES].concat()[types[at]] };
            let part = if (key..key + statics).contains(&at) { " static" } else { "" };
            columns.push(format!("{name} {data_type}{part}"));
        }
        let order = |at: usize| format!("{} {}", names[at], if descending[at] { "DESC" } else { "ASC" });
        let orders: Vec<_> = (partition..key).map(order).collect();
        let orders = if orders.is_empty() { String::new() } else { format!("CLUSTERING ORDER BY ({}) AND ", orders.join(", ")) };
        let key: Vec<_> = std::iter::once(format!("({})", names[..partition].join(", ")))
            .chain(names[partition..key].iter().map(|name| (*name).to_owned()))
            .collect();
        let statement = format!(
            "CREATE TABLE ks.t ({}, PRIMARY KEY ({})) WITH {orders}comment = {}",
            columns.join(", "), key.join(", "), text::string(&comment)
        );
        let run = |statement: &str| {
            let mut database = Database::new();
            for setup in ["CREATE KEYSPACE ks", "CREATE TYPE ks.point (x int, \"Y\" int)", statement] {
                database.run(setup).unwrap_or_else(|error| panic!("{setup}: {error}"));
            }
            let Ok(Response::Rows(rows)) = database.run("DESCRIBE TABLE ks.t") else { panic!("rows") };
            let described = texts(&rows)[0][3].clone();
            (database.catalog.table("ks", "t").unwrap().table.clone(), described)
        };
        let (made, described) = run(&statement);
        let (again, described_again) = run(&described);
        prop_assert_eq!(&again.columns, &made.columns);
        prop_assert_eq!(options::shown(&again), options::shown(&made));
        prop_assert_eq!(described_again, described);
    }
}

/// Statements that make and change a schema: types that mention earlier ones, tables that use them.
fn schema() -> impl Strategy<Value = Vec<String>> {
    let change = (0..7usize, 0..4usize, 0..6usize, 0..8usize, any::<bool>());
    (1..4usize, 1..4usize, prop::collection::vec(change, 0..10)).prop_map(|(types, tables, changes)| {
        let mut statements = vec![
            "CREATE KEYSPACE \"Ks\" WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 2} AND durable_writes = false"
                .to_owned(),
            "USE \"Ks\"".to_owned(),
        ];
        for at in 0..types {
            let inner = if at == 0 { "int".to_owned() } else { format!("frozen<list<frozen<\"Type_{}\">>>", at - 1) };
            statements.push(format!("CREATE TYPE \"Type_{at}\" (a {inner}, \"B c\" text)"));
        }
        for at in 0..tables {
            let of = at % types;
            statements.push(format!(
                "CREATE TABLE \"Table_{at}\" (k int, c text, s frozen<\"Type_{of}\"> static, u \"Type_{of}\", m map<text, frozen<\"Type_{of}\">>, \
                 PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)"
            ));
        }
        for (number, (kind, table, value, name, flag)) in changes.into_iter().enumerate() {
            let (table, of) = (table % tables, value % types);
            let (data_type, name) = (VALUE_TYPES[value].replace("point", &format!("\"Type_{of}\"")), NAMES[name]);
            statements.push(match kind {
                0 | 1 => format!("ALTER TABLE \"Table_{table}\" ADD {name} {data_type}"),
                2 => format!("ALTER TABLE \"Table_{table}\" DROP {name}"),
                3 => format!("ALTER TABLE \"Table_{table}\" RENAME c TO \"C{number}\""),
                4 if flag => format!("ALTER TYPE \"Type_{of}\" ADD f{number} int"),
                4 => format!("ALTER TYPE \"Type_{of}\" RENAME a TO \"A{number}\""),
                5 if flag => format!("ALTER TABLE \"Table_{table}\" WITH comment = 'it''s {number}' AND gc_grace_seconds = {number}"),
                5 => format!("ALTER TABLE \"Table_{table}\" WITH compaction = {{'class': 'LeveledCompactionStrategy'}} AND default_time_to_live = {number}"),
                _ => format!("CREATE TABLE counts_{number} (k int PRIMARY KEY, n counter)"),
            });
        }
        statements
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_schema_is_described_by_what_makes_it_again(statements in schema()) {
        let mut original = Database::new();
        for statement in &statements {
            // Some changes are impossible: the name exists or does not, or the type is not allowed there.
            let outcome = original.run(statement);
            prop_assert!(outcome.is_ok() || statement.starts_with("ALTER"), "{statement}: {outcome:?}");
        }
        let described = |database: &mut Database, request: &str| {
            let Ok(Response::Rows(rows)) = database.run(request) else { panic!("{request}") };
            texts(&rows).into_iter().filter(|row| !row[0].starts_with("system")).collect::<Vec<_>>()
        };
        let whole = described(&mut original, "DESCRIBE SCHEMA");
        for request in [
            "DESCRIBE SCHEMA",
            "DESCRIBE SCHEMA WITH INTERNALS",
            "DESCRIBE FULL SCHEMA",
            "DESCRIBE KEYSPACE",
            "DESCRIBE KEYSPACE \"Ks\" WITH INTERNALS",
            "DESCRIBE \"Ks\"",
        ] {
            let mut again = Database::new();
            for row in described(&mut original, request) {
                again.run(&row[3]).unwrap_or_else(|error| panic!("{}: {error}", row[3]));
            }
            prop_assert_eq!(&described(&mut again, "DESCRIBE SCHEMA"), &whole, "{}", request);
            if request.ends_with("INTERNALS") {
                let (internals, of_original) = (described(&mut again, "DESCRIBE SCHEMA WITH INTERNALS"), described(&mut original, "DESCRIBE SCHEMA WITH INTERNALS"));
                prop_assert_eq!(internals, of_original);
            }
        }
        // Each object by itself, by its kind and by its name alone.
        for row in &whole {
            let (kind, name) = (row[1].as_str(), row[2].as_str());
            let by_kind = if kind == "keyspace" { format!("ONLY KEYSPACE {name}") } else { format!("{kind} {name}") };
            let alone = described(&mut original, &format!("DESCRIBE {by_kind}"));
            prop_assert_eq!(std::slice::from_ref(row), alone.as_slice());
            if kind != "keyspace" {
                let by_name = described(&mut original, &format!("DESCRIBE \"Ks\".{name}"));
                prop_assert_eq!(&alone, &by_name);
            }
        }
    }
}
