//! What is too large is refused as `Invalid`, by a text that names the columns and the sizes; what just fits is taken.

use super::Database;
use diorite_base::limits::{MAX_KEY_BYTES, MAX_MUTATION_BYTES};
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::error::ErrorCode;
use diorite_cql::protocol::{CqlError, Value};
use diorite_model::value::collection;

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
