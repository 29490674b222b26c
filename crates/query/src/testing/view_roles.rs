//! Materialized views and roles: permissions on a view are those on its table.

use super::Database;
use super::requests::refused;
use crate::session::Session;
use diorite_cql::protocol::ErrorCode;

const CREATE: &str = "CREATE MATERIALIZED VIEW ks.w AS SELECT k FROM ks.t WHERE k IS NOT NULL PRIMARY KEY (k)";

#[test]
fn permissions_on_a_view_are_those_on_its_table() {
    let database = Database::with_keyspace();
    for statement in [
        "CREATE TABLE t (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k)",
        "CREATE ROLE ann WITH LOGIN = true",
        "CREATE ROLE bob WITH LOGIN = true",
        "CREATE ROLE cid WITH LOGIN = true",
        "GRANT SELECT ON ks.t TO ann",
        "GRANT ALTER ON ks.t TO bob",
        "GRANT ALL PERMISSIONS ON ks.v TO cid",
    ] {
        database.run(statement).unwrap();
    }
    let as_role = |role: &str| {
        let guarded = Database { session: Session::guarded(), ..database.another() };
        guarded.session.log_in(role);
        guarded
    };
    let (ann, bob, cid) = (as_role("ann"), as_role("bob"), as_role("cid"));
    let select = "SELECT * FROM ks.v WHERE v = 1";
    let changes = [CREATE, "ALTER MATERIALIZED VIEW ks.w WITH comment = 'x'", "DROP MATERIALIZED VIEW ks.w"];
    assert!(ann.run(select).is_ok() && ann.prepare(select).is_ok());
    for who in [&bob, &cid] {
        assert_eq!(refused(who.run(select)).0, ErrorCode::Unauthorized);
        assert_eq!(who.prepare(select).unwrap_err().code(), ErrorCode::Unauthorized);
    }
    for text in changes {
        for who in [&ann, &cid] {
            assert_eq!(refused(who.run(text)).0, ErrorCode::Unauthorized, "{text}");
        }
        bob.run(text).unwrap();
    }
    let write = "INSERT INTO ks.v (k, v) VALUES (1, 1)";
    assert_eq!(refused(bob.run(write)).0, ErrorCode::Unauthorized);
    assert_eq!(refused(database.run(write)).0, ErrorCode::Invalid);
}
