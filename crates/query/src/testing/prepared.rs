//! Prepared statements whose table changes: no client has to prepare one twice for one change.

use super::Database;
use crate::bind;
use crate::kv::Kv;
use crate::prepared::{CurrentPlan, PreparedCache, PreparedStatement};
use crate::statement_id::statement_id;
use diorite_cql::language::parse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SELECT: &str = "SELECT * FROM t WHERE k = ?";

/// A plan for the table as it is now.
fn planned(database: &Database) -> CurrentPlan {
    let catalog = database.kv.catalog();
    let planned = bind::plan(&catalog, Some("ks"), &parse(SELECT).unwrap()).unwrap();
    CurrentPlan::new(statement_id(Some("ks"), SELECT), planned, &catalog, true)
}

fn prepared(database: &Database) -> Arc<PreparedStatement> {
    let activity = database.engine.activity().place(Some("ks"), SELECT);
    let id = statement_id(Some("ks"), SELECT);
    Arc::new(PreparedStatement::new(id, Some("ks".to_owned()), SELECT.to_owned(), activity, planned(database)))
}

fn database() -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    database
}

/// A request that has found the former one may drop it late.
#[test]
fn a_statement_that_was_prepared_again_is_not_dropped_with_the_former_one() {
    let database = database();
    let cache = PreparedCache::new(1 << 20);
    let (former, later) = (prepared(&database), prepared(&database));
    cache.insert(Arc::clone(&former));
    cache.insert(Arc::clone(&later));
    cache.remove(&former);
    assert!(cache.get(&later.id).is_some_and(|known| Arc::ptr_eq(&known, &later)));
    cache.remove(&later);
    assert_eq!((cache.get(&later.id).is_none(), cache.bytes()), (true, 0));
}

#[test]
fn a_request_that_is_late_to_plan_a_statement_again_does_not_have_it_prepared_again() {
    let database = database();
    let statement = prepared(&database);
    let found = statement.current.load_full();
    database.run("ALTER TABLE t ADD x int").unwrap();
    let catalog = database.kv.catalog();
    let of_two = [planned(&database), planned(&database)];
    let [first, second] = of_two.map(|fresh| {
        let replaced = statement.replaced(&found, fresh, &catalog);
        // The first one says that the columns are others, and then a client prepares the statement.
        (replaced.unwrap(), statement.must_prepare_again.swap(false, Ordering::Relaxed))
    });
    assert!(first.1 && !second.1, "the client would prepare it again");
    assert!(Arc::ptr_eq(&first.0, &second.0));
    assert!(statement.result_changed.load(Ordering::Relaxed), "clients of older protocols get the columns");
}
