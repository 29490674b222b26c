//! Statements that other changes of the catalog overtake.

use super::{DEFAULTS, Database, founded, show};
use crate::budget::Budget;
use crate::ddl::{Context, Plan, execute, plan};
use crate::kv::{Fetch, Fetched, Kv, KvError, NodeInfo, Now, WriteReply, WriteSink};
use diorite_base::mutation::Mutation;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, Outcome};
use diorite_cql::language::ast::Statement;
use diorite_cql::language::parse;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Tables and tablets are not needed here: a catalog whose every change meets another one.
struct Contended {
    catalog: Mutex<Arc<Catalog>>,
    interference: Mutex<Vec<&'static str>>,
    now_ns: AtomicU64,
}

impl Contended {
    fn new(catalog: Catalog, interference: &[&'static str]) -> Self {
        Self {
            catalog: Mutex::new(Arc::new(catalog)),
            interference: Mutex::new(interference.to_vec()),
            now_ns: AtomicU64::new(0),
        }
    }

    fn apply(&self, command: &Command) -> Outcome {
        let mut catalog = self.catalog.lock();
        let (next, outcome) = catalog.apply(command);
        *catalog = Arc::new(next);
        outcome
    }
}

impl Kv for Contended {
    type Pinned = Vec<u8>;

    fn get_now(&self, tablet: TabletId, _: &[u8]) -> Result<Now<Option<Vec<u8>>>, KvError> {
        Err(KvError::NoSuchTablet(tablet))
    }

    async fn fetch(&self, tablet: TabletId, _: Fetch) -> Result<Fetched, KvError> {
        Err(KvError::NoSuchTablet(tablet))
    }

    fn flags(&self, tablet: TabletId) -> Result<u64, KvError> {
        Err(KvError::NoSuchTablet(tablet))
    }

    fn submit(&self, tablet: TabletId, _: Mutation, _: &Arc<dyn WriteSink>, _: u64) -> Result<(), KvError> {
        Err(KvError::NoSuchTablet(tablet))
    }

    fn kick(&self) {}

    async fn write(&self, tablet: TabletId, _: Mutation, _: Option<u64>) -> Result<WriteReply, KvError> {
        Err(KvError::NoSuchTablet(tablet))
    }

    fn leader(&self, _: TabletId) -> Option<NodeId> {
        None
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.lock().clone()
    }

    async fn change_catalog(&self, command: &Command, _: Option<u64>) -> Result<Vec<u8>, KvError> {
        let interfering = self.interference.lock().pop();
        if let Some(text) = interfering {
            let catalog = self.catalog();
            let context = Context { catalog: &catalog, keyspace: None, defaults: DEFAULTS, nonce: 0 };
            let Plan::Propose { command, .. } = plan(&context, &parse(text).unwrap().statement).unwrap() else {
                panic!("a change")
            };
            assert!(matches!(self.apply(&command), Outcome::Applied { .. }));
        }
        command.proven_at(self.catalog().level())?;
        Ok(self.apply(command).encode())
    }

    fn local_node(&self) -> NodeInfo {
        NodeInfo {
            node: NodeId(1),
            host_id: Uuid::from_u128(1),
            address: [127, 0, 0, 1].into(),
            cql_port: 9042,
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens: vec![0],
        }
    }

    fn peers(&self) -> Vec<NodeInfo> {
        Vec::new()
    }

    async fn pause(&self, duration_ns: u64) {
        self.now_ns.fetch_add(duration_ns, Ordering::Relaxed);
    }

    fn now_us(&self) -> i64 {
        1
    }

    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
}

/// Executes `text` while `interference` gets in first; nothing here ever waits.
fn contended(setup: &[&str], interference: &[&'static str], text: &str) -> (Catalog, String) {
    let mut database = Database::new();
    for statement in setup {
        database.run(statement).unwrap();
    }
    let kv = Contended::new(database.catalog, interference);
    let statement = parse(text).unwrap().statement;
    let mut running = std::pin::pin!(execute(&kv, DEFAULTS, None, &statement, Budget::unlimited()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(result) = running.as_mut().poll(&mut context) else { panic!("it waits") };
    let shown = show(&result.map(|(response, _)| response));
    (Catalog::clone(&kv.catalog()), shown)
}

#[test]
fn a_statement_that_was_overtaken_is_planned_again() {
    let setup = ["CREATE KEYSPACE ks", "CREATE TABLE ks.t (k int PRIMARY KEY)"];
    let others = ["ALTER TABLE ks.t ADD a int", "ALTER TABLE ks.t ADD b int"];
    let (catalog, shown) = contended(&setup, &others, "ALTER TABLE ks.t ADD c int");
    assert_eq!(shown, "UPDATED Table { keyspace: \"ks\", name: \"t\" }\n");
    assert_eq!(catalog.table("ks", "t").unwrap().table.columns.len(), 4);

    let (_, shown) = contended(&setup, &["DROP TABLE ks.t"], "ALTER TABLE ks.t ADD c int");
    assert_eq!(shown, "Invalid: Table 'ks.t' doesn't exist\n");
    let create = "CREATE TABLE ks.u (k int PRIMARY KEY)";
    let (_, shown) = contended(&setup, &[create], create);
    assert_eq!(shown, "AlreadyExists: table ks.u already exists\n");
    let (_, shown) = contended(&setup, &["DROP KEYSPACE ks"], create);
    assert_eq!(shown, "Invalid: Keyspace 'ks' doesn't exist\n");
    let (_, shown) = contended(&setup, &[create], "CREATE TABLE IF NOT EXISTS ks.u (k int PRIMARY KEY)");
    assert_eq!(shown, "void\n");
}

#[test]
fn execution_can_move_between_threads() {
    fn assert_send<T: Send>(_: &T) {}
    let kv = Contended::new(founded(1, &["datacenter1"]), &[]);
    let statement = Statement::Use("system".to_owned());
    assert_send(&execute(&kv, DEFAULTS, None, &statement, Budget::unlimited()));
}
