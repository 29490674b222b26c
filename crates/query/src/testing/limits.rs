//! Values over a limit are refused as `Invalid`, with a message that names the columns and the sizes; values at the
//! limit are accepted.

use super::Database;
use crate::kv::Kv;
use diorite_base::limits::{MAX_KEY_BYTES, MAX_MUTATION_BYTES};
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::error::ErrorCode;
use diorite_cql::protocol::{CqlError, Value};
use diorite_model::value::collection;
use proptest::prelude::*;

fn refused(outcome: Result<ClientResponse, CqlError>) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid, "{}", error.message);
    error.message.into_owned()
}

fn bytes(length: usize) -> Vec<u8> {
    vec![b'x'; length]
}

/// Binds values of a statement, in both ways where there are two.
fn bound(database: &Database, statement: &str, values: &[&[u8]]) -> Result<ClientResponse, CqlError> {
    let prepared = database.prepare(statement).unwrap();
    let values: Vec<Value<'_>> = values.iter().map(|value| Value::Set(value)).collect();
    database.execute(&prepared, &values)
}

#[test]
fn keys_have_64_kib_at_most() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE one (k text PRIMARY KEY, v int)").unwrap();
    database.run("CREATE TABLE two (a text, b text, v int, PRIMARY KEY ((a, b)))").unwrap();
    database.run("CREATE TABLE rows (k int, c text, d text, v int, PRIMARY KEY (k, c, d))").unwrap();
    let (fits, long, half) = (bytes(MAX_KEY_BYTES), bytes(MAX_KEY_BYTES + 1), bytes(33_000));
    let (one, empty) = (1i32.to_be_bytes(), Vec::new());
    bound(&database, "INSERT INTO one (k, v) VALUES (?, 1)", &[&fits]).unwrap();
    assert_eq!(database.rows("SELECT count(*) FROM one"), ["count=1"]);
    for statement in
        ["INSERT INTO one (k, v) VALUES (?, 1)", "SELECT v FROM one WHERE k = ?", "DELETE FROM one WHERE k = ?"]
    {
        assert_eq!(
            refused(bound(&database, statement, &[&long])),
            "Key length of 65536 is longer than maximum of 65535 (partition key k of ks.one)"
        );
    }
    assert_eq!(
        refused(bound(&database, "INSERT INTO one (k, v) VALUES (?, 1)", &[&empty])),
        "Key may not be empty (partition key k of ks.one)"
    );
    assert_eq!(
        refused(bound(&database, "INSERT INTO two (a, b, v) VALUES (?, ?, 1)", &[&half, &half])),
        "Key length of 66006 is longer than maximum of 65535 (partition key a, b of ks.two)"
    );
    for (c, d, length) in [(&half, &half, 66_000), (&long, &empty, 65_536)] {
        assert_eq!(
            refused(bound(&database, "INSERT INTO rows (k, c, d, v) VALUES (?, ?, ?, 1)", &[&one, c, d])),
            format!("Key length of {length} is longer than maximum of 65535 (clustering columns c, d of ks.rows)")
        );
    }
    bound(&database, "INSERT INTO rows (k, c, d, v) VALUES (?, ?, ?, 1)", &[&one, &fits, &empty]).unwrap();
    assert!(
        refused(bound(&database, "SELECT v FROM rows WHERE k = ? AND c > ?", &[&one, &long]))
            .contains("clustering columns c, d of ks.rows")
    );
}

#[test]
fn values_of_a_unique_index_have_64_kib_together() {
    let database = Database::with_keyspace();
    let table = "CREATE TABLE person (id int PRIMARY KEY, name text, note text) WITH transactions = {'enabled': true}";
    database.run(table).unwrap();
    database.run("CREATE UNIQUE INDEX by_both ON person (name, note)").unwrap();
    let half = bytes(40_000);
    let message = refused(bound(&database, "INSERT INTO person (id, name, note) VALUES (1, ?, ?)", &[&half, &half]));
    assert!(message.starts_with("values of the unique index by_both (name, note) take 80"), "{message}");
    assert!(message.ends_with(" bytes, at most 65535"), "{message}");
}

#[test]
fn keys_of_maps_and_elements_of_sets_have_64_kib_at_most() {
    let database = Database::with_keyspace();
    database
        .run("CREATE TABLE t (k int PRIMARY KEY, s set<text>, m map<text, text>, l list<text>, f frozen<set<text>>)")
        .unwrap();
    let (fits, long) = (bytes(MAX_KEY_BYTES), bytes(MAX_KEY_BYTES + 1));
    let set = |element: &[u8]| {
        let mut wire = Vec::new();
        collection::push_count(1, &mut wire);
        collection::push_element(Some(element), &mut wire);
        wire
    };
    let map = |key: &[u8], value: &[u8]| {
        let mut wire = set(key);
        collection::push_element(Some(value), &mut wire);
        wire
    };
    bound(&database, "UPDATE t SET s = ? WHERE k = 1", &[&set(&fits)]).unwrap();
    bound(&database, "UPDATE t SET m = ? WHERE k = 1", &[&map(&fits, &long)]).unwrap();
    bound(&database, "UPDATE t SET l = ?, f = ? WHERE k = 1", &[&set(&long), &set(&long)]).unwrap();
    for statement in
        ["UPDATE t SET s = ? WHERE k = 1", "UPDATE t SET s = s + ? WHERE k = 1", "UPDATE t SET s = s - ? WHERE k = 1"]
    {
        assert_eq!(
            refused(bound(&database, statement, &[&set(&long)])),
            "Set value is too long. Set values are limited to 65535 bytes but 65536 bytes were provided (column s)"
        );
    }
    let told = "Map key is too long. Map keys are limited to 65535 bytes but 65536 bytes were provided (column m)";
    assert_eq!(refused(bound(&database, "UPDATE t SET m = ? WHERE k = 1", &[&map(&long, b"v")])), told);
    assert_eq!(refused(bound(&database, "UPDATE t SET m[?] = 'v' WHERE k = 1", &[&long])), told);
}

#[test]
fn a_write_has_a_greatest_size() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v blob)").unwrap();
    let huge = bytes(MAX_MUTATION_BYTES);
    let message = refused(bound(&database, "INSERT INTO t (k, v) VALUES (1, ?)", &[&huge]));
    assert!(message.starts_with("Mutation of "), "{message}");
    assert!(message.ends_with(&format!("is too large for the maximum size of {MAX_MUTATION_BYTES} (table ks.t)")));
}

#[test]
fn names_of_columns_and_fields_have_64_kib_at_most() {
    let database = Database::with_keyspace();
    let (fits, long) = ("n".repeat(MAX_KEY_BYTES), "n".repeat(MAX_KEY_BYTES + 1));
    database.run(&format!("CREATE TABLE t (k int PRIMARY KEY, {fits} int)")).unwrap();
    for statement in [
        format!("CREATE TABLE u (k int PRIMARY KEY, {long} int)"),
        format!("ALTER TABLE t ADD {long} int"),
        format!("ALTER TABLE t RENAME k TO {long}"),
        format!("CREATE TYPE p ({long} int)"),
    ] {
        let message = refused(database.run(&statement));
        assert!(message.ends_with("… is too long: 65536 bytes, the maximum is 65535"), "{message}");
        assert!(message.len() < 200);
    }
    let table = "t".repeat(49);
    let error = database.run(&format!("CREATE TABLE {table} (k int PRIMARY KEY)")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ConfigError);
}

/// `OR` and `AND` in turn, each within parentheses: a tree of two levels for each.
fn nested_condition(parentheses: usize) -> String {
    format!("{}v = 1{}", "v = 1 OR v = 2 AND (".repeat(parentheses), ")".repeat(parentheses))
}

#[test]
fn what_can_be_written_can_be_applied_or_names_its_limit() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    database.run("INSERT INTO t (k, v) VALUES (1, 1)").unwrap();
    let shallow = nested_condition(63);
    database.run(&format!("UPDATE t SET v = 1 WHERE k = 1 IF {shallow}")).unwrap();
    for parentheses in 64..90 {
        let statement = format!("UPDATE t SET v = 1 WHERE k = 1 IF {}", nested_condition(parentheses));
        let message = refused(database.run(&statement));
        assert!(message.contains("128 levels (CONDITION_DEPTH)"), "{message}");
    }
    // Implicit levels: a range is two comparisons, a missing operator is a negation.
    for (last, fits) in [("v BETWEEN 1 AND 2", 62), ("NOT EXISTS", 62), ("NOT (v = 1 OR v = 2)", 61)] {
        let nested = |parentheses| nested_condition(parentheses).replace("(v = 1)", &format!("({last} OR v = 3)"));
        for parentheses in fits - 2..fits + 3 {
            let statement = format!("UPDATE t SET v = 1 WHERE k = 1 IF {}", nested(parentheses));
            if let Err(error) = database.run(&statement) {
                assert_eq!(error.code(), ErrorCode::Invalid);
                assert!(error.message.contains("(CONDITION_DEPTH)"), "{}", error.message);
            }
        }
    }
    assert_eq!(database.rows("SELECT v FROM t"), ["v=1"]);
}

#[test]
fn types_are_bounded_wherever_they_are_named() {
    let database = Database::with_keyspace();
    let nested = |depth: usize| format!("{}int{}", "frozen<list<".repeat(depth - 1), ">>".repeat(depth - 1));
    database.run(&format!("CREATE TABLE fits (k int PRIMARY KEY, v {})", nested(32))).unwrap();
    database.run("UPDATE fits SET v = [] WHERE k = 1 IF v = null").unwrap();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    let tuple = format!("tuple<{}int>", "int, ".repeat(65_535));
    for statement in [
        format!("CREATE TABLE u (k int PRIMARY KEY, v {})", nested(33)),
        format!("ALTER TABLE t ADD w {}", nested(40)),
        format!("CREATE TYPE p (f {})", nested(32)),
        format!("SELECT ({}) v FROM t", nested(33)),
    ] {
        let message = refused(database.run(&statement));
        assert!(message.contains("is over the limit of 32 levels (TYPE_DEPTH)"), "{message}");
    }
    for statement in [
        format!("CREATE TABLE u (k int PRIMARY KEY, v {tuple})"),
        format!("ALTER TABLE t ADD w {tuple}"),
        format!("CREATE TYPE p (f {tuple})"),
        format!("SELECT ({tuple}) (1) FROM t"),
    ] {
        let message = refused(database.run(&statement));
        assert!(message.contains("is over the limit of 16384 types (TYPE_PARTS)"), "{message}");
    }
}

#[test]
fn types_that_are_joined_stay_within_the_limits() {
    let database = Database::with_keyspace();
    for chain in ["a", "b"] {
        database.run(&format!("CREATE TYPE {chain}0 (f int)")).unwrap();
        for n in 1..14 {
            database.run(&format!("CREATE TYPE {chain}{n} (f frozen<{chain}{}>)", n - 1)).unwrap();
        }
    }
    database.run("CREATE TABLE t (k int PRIMARY KEY, v frozen<a13>)").unwrap();
    let before = database.kv.catalog();
    let message = refused(database.run("ALTER TYPE a0 ADD g frozen<b13>"));
    assert!(message.contains("CATALOG_DEPTH"), "{message}");
    assert_eq!(database.kv.catalog(), before, "nothing was done");
    database.run("ALTER TYPE a0 ADD g frozen<b5>").unwrap();
    // A tree of pairs: a few bytes a level, twice the size each.
    database.run("CREATE TYPE pair0 (f int)").unwrap();
    let message = (1..20).find_map(|n| {
        let below = n - 1;
        let statement = format!("CREATE TYPE pair{n} (f frozen<pair{below}>, g frozen<pair{below}>)");
        let outcome = database.run(&statement);
        outcome.is_err().then(|| refused(outcome))
    });
    assert!(message.is_some_and(|message| message.contains("(TYPE_PARTS)")));
}

/// A condition of every kind that there is, nested.
fn any_condition() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("v = 1"),
        Just("v != null"),
        Just("v IN (1, 2, null)"),
        Just("v BETWEEN 1 AND 2"),
        Just("s CONTAINS 1"),
        Just("m CONTAINS KEY 'a'"),
        Just("m['a'] > 1"),
        Just("l[0] = 1"),
        Just("u.f = 1"),
        Just("j->'a'->>1 = 'x'"),
        Just("w = {f: 1}"),
        Just("EXISTS"),
        Just("NOT EXISTS"),
    ];
    leaf.prop_map(str::to_owned).prop_recursive(6, 40, 4, |inner| {
        let joined = |word: &'static str, inner: BoxedStrategy<String>| {
            prop::collection::vec(inner, 1..4).prop_map(move |parts| format!("({})", parts.join(word)))
        };
        prop_oneof![
            joined(" AND ", inner.clone().boxed()),
            joined(" OR ", inner.clone().boxed()),
            inner.prop_map(|part| format!("NOT ({part})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Planned writes encode, decode and encode again to the same bytes, or the error names the exceeded limit.
    #[test]
    fn what_is_planned_can_be_read_by_replicas(conditions in prop::collection::vec(any_condition(), 1..4)) {
        let database = Database::with_keyspace();
        database.run("CREATE TYPE pair (f int, g int)").unwrap();
        database
            .run("CREATE TABLE t (k int PRIMARY KEY, v int, s set<int>, m map<text, int>, l list<int>, u pair, w frozen<pair>, j jsonb)")
            .unwrap();
        for condition in conditions {
            for change in ["l = l - [1, 2]", "l[0] = 3", "v = 1", "j->'a' = '1'", "m['a'] = 1, u.f = 2"] {
                let statement = format!("UPDATE t SET {change} WHERE k = 1 IF {condition}");
                if let Err(error) = database.run(&statement) {
                    prop_assert!(!error.message.contains("could not read"), "{}: {}", statement, error.message);
                    prop_assert_eq!(error.code(), ErrorCode::Invalid, "{}: {}", statement, error.message);
                }
            }
        }
    }
}
