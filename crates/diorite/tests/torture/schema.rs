//! Several clients change the schema at once, through different nodes, while a node is lost and comes back.
//!
//! Always true: each statement is asked once and its answer kept. In the end every node has the same schema, of which each answer is true: what was
//! acknowledged is there (once: nobody is told that it existed already), what was refused for sure is not, and of what timed out either all is there or
//! nothing. Left out: which of two statements that contradict each other comes first, as long as it is one of them.

use crate::client::Client;
use crate::cluster::{Cluster, State};
use crate::load::StopWhenDropped;
use crate::turn;
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::{CqlError, ErrorCode};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KEYSPACE: &str =
    "CREATE KEYSPACE IF NOT EXISTS schemas WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";

/// Changes of each client before the loss, while the node is gone, and after it has come back.
const CHANGES: u64 = 12;

/// A change may take as long as nodes wait for each other.
const TIMEOUT: Duration = Duration::from_secs(180);

/// What a client knows about a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Done,
    NotDone,
    Unknown,
    /// Another client was faster.
    Exists,
}

/// What all clients share.
struct Changes<'a> {
    cluster: &'a Cluster,
    /// Every statement, once.
    answers: Mutex<BTreeMap<String, Answer>>,
    /// Statements that each client got through.
    done: Vec<AtomicU64>,
    stop: AtomicBool,
}

/// What an error says about the statement. Everything else than what is named here no loss of a node may lead to.
fn judge(statement: &str, error: &CqlError) -> Answer {
    match error.code() {
        ErrorCode::Unavailable => Answer::NotDone,
        ErrorCode::WriteTimeout => Answer::Unknown,
        ErrorCode::AlreadyExists if statement.starts_with("CREATE TABLE schemas.raced_") => Answer::Exists,
        _ => panic!("{statement}: {error:?}"),
    }
}

impl Changes<'_> {
    /// Asks once.
    fn ask(&self, client: &mut Option<Client>, node: usize, statement: &str) -> Option<Answer> {
        if client.is_none() {
            *client = Client::connect_within(&self.cluster.addresses[node], TIMEOUT).ok();
        }
        let answered: io::Result<ClientResponse> = client.as_mut()?.try_query(statement);
        let answer = match answered {
            Ok(ClientResponse::SchemaChange(_)) => Answer::Done,
            Ok(ClientResponse::Error(error)) => judge(statement, &error),
            Ok(other) => panic!("{statement} was answered {other:?}"),
            Err(_) => {
                *client = None;
                Answer::Unknown
            }
        };
        let before = self.answers.lock().unwrap().insert(statement.to_owned(), answer);
        assert_eq!(before, None, "asked once: {statement}");
        if answer == Answer::Done {
            self.done[node].fetch_add(1, Ordering::Relaxed);
        }
        Some(answer)
    }

    /// The client of one node changes the schema until the end.
    fn run(&self, node: usize) {
        let mut client = None;
        for number in 0.. {
            for statement in statements(node, number) {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                // A drop follows only what is certainly there.
                let creation = statement.strip_prefix("DROP TABLE ").map(create);
                let is_certain =
                    creation.is_none_or(|create| self.answers.lock().unwrap().get(&create) == Some(&Answer::Done));
                if is_certain && self.ask(&mut client, node, &statement).is_none() {
                    // Nobody is there to ask.
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn answer(&self, statement: &str) -> Option<Answer> {
        self.answers.lock().unwrap().get(statement).copied()
    }

    /// Waits until every client on a node that is up has got so much further.
    fn wait_for_progress(&self, when: &str) {
        let from: Vec<u64> = self.done.iter().map(|done| done.load(Ordering::Relaxed)).collect();
        for (node, from) in from.into_iter().enumerate() {
            self.cluster.wait_for(&format!("changes through node {node} {when}"), || {
                self.cluster.state(node) == State::Down || self.done[node].load(Ordering::Relaxed) >= from + CHANGES
            });
        }
    }
}

/// A table with a little of everything, made by one statement.
fn create(table: &str) -> String {
    format!("CREATE TABLE {table} (k bigint PRIMARY KEY, number int, words list<text>, \"when\" timestamp)")
}

const COLUMNS: [(&str, &str); 4] = [("k", "bigint"), ("number", "int"), ("when", "timestamp"), ("words", "list<text>")];

/// The statements of one round of one client: a table of its own, one that it dropped again, a column of a shared table, and a table that all try to make.
fn statements(client: usize, number: u64) -> Vec<String> {
    vec![
        create(&format!("schemas.own_{client}_{number}")),
        format!("ALTER TABLE schemas.shared ADD by_{client}_{number} int"),
        format!("CREATE TABLE schemas.raced_{number} (k bigint PRIMARY KEY, by_{client} int)"),
        create(&format!("schemas.gone_{client}_{number}")),
        format!("DROP TABLE schemas.gone_{client}_{number}"),
    ]
}

/// The rows of a query that a healthy node answers, as text where they are text and as bytes where they are ids.
fn rows(cluster: &Cluster, node: usize, query: &str) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    cluster.wait_for(&format!("node {node} to answer {query}"), || {
        let Ok(mut client) = Client::connect_within(&cluster.addresses[node], TIMEOUT) else { return false };
        let Ok(ClientResponse::Rows(rows)) = client.try_query(query) else { return false };
        assert_eq!(rows.metadata.paging_state, None, "all of it is one page");
        let text = |cell: &Option<Vec<u8>>| match cell {
            None => "null".to_owned(),
            Some(bytes) => String::from_utf8(bytes.clone()).unwrap_or_else(|_| format!("{bytes:x?}")),
        };
        found = rows.rows.iter().map(|row| row.iter().map(text).collect()).collect();
        true
    });
    found
}

/// The versions of the schema that a node names, its own and those of the others.
fn versions(cluster: &Cluster, node: usize) -> BTreeSet<Vec<String>> {
    let mut versions = rows(cluster, node, "SELECT schema_version FROM system.local");
    versions.extend(rows(cluster, node, "SELECT schema_version FROM system.peers"));
    versions
}

/// Table → column → type, as every node has it.
fn agreed_schema(cluster: &Cluster) -> BTreeMap<String, BTreeMap<String, String>> {
    cluster.wait_for("agreement on the schema", || {
        let all: BTreeSet<_> = (0..cluster.len()).flat_map(|node| versions(cluster, node)).collect();
        all.len() == 1
    });
    let of_node = |node| {
        let tables =
            rows(cluster, node, "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = 'schemas'");
        let columns = "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = 'schemas'";
        (tables, rows(cluster, node, columns))
    };
    let (tables, columns) = of_node(0);
    for node in 1..cluster.len() {
        assert_eq!(of_node(node), (tables.clone(), columns.clone()), "node {node} has another schema than node 0");
    }
    let mut schema: BTreeMap<String, BTreeMap<String, String>> =
        tables.into_iter().map(|table| (table[0].clone(), BTreeMap::new())).collect();
    for column in columns {
        let [table, name, data_type] = column.try_into().expect("three columns");
        schema.get_mut(&table).expect("a column of a table that is there").insert(name, data_type);
    }
    schema
}

/// What was acknowledged is there, what was refused is not, and nothing is there by half.
fn check(changes: &Changes<'_>, schema: &BTreeMap<String, BTreeMap<String, String>>) {
    let whole: BTreeMap<String, String> = COLUMNS.map(|(name, of)| (name.to_owned(), of.to_owned())).into();
    for (statement, answer) in changes.answers.lock().unwrap().iter() {
        let words: Vec<&str> = statement.split(' ').collect();
        let table = words[2].trim_start_matches("schemas.");
        match (words[0], words.get(4)) {
            ("ALTER", Some(column)) => {
                let found = schema["shared"].get(*column).map(String::as_str);
                let expected: &[Option<&str>] = match answer {
                    Answer::Done => &[Some("int")],
                    Answer::NotDone => &[None],
                    _ => &[Some("int"), None],
                };
                assert!(expected.contains(&found), "{statement} was {answer:?}, the column is {found:?}");
            }
            ("CREATE", Some(_)) if !table.starts_with("raced_") => {
                let is_there = schema.contains_key(table);
                // Some were dropped again.
                assert!(*answer != Answer::Done || is_there || table.starts_with("gone_"), "{statement} is lost");
                assert!(*answer != Answer::NotDone || !is_there, "{statement} was refused");
                assert!(!is_there || schema[table] == whole, "{statement} is there by half: {:?}", schema[table]);
            }
            ("CREATE", Some(_)) => {
                let column = words[7];
                let found = schema.get(table);
                let is_ours = found.is_some_and(|columns| columns.contains_key(column));
                assert!(found.is_none_or(|columns| columns.len() == 2), "{table} is of two statements: {found:?}");
                assert!(*answer != Answer::Done || is_ours, "{statement}: {found:?}");
                assert!(*answer != Answer::NotDone || !is_ours, "{statement} was refused");
                assert!(*answer != Answer::Exists || (found.is_some() && !is_ours), "{statement}: {found:?}");
            }
            ("DROP", None) if *answer == Answer::Done => {
                assert!(!schema.contains_key(table), "{statement} was acknowledged");
            }
            ("DROP", None) if *answer == Answer::NotDone => {
                assert_eq!(schema.get(table), Some(&whole), "{statement} was refused");
            }
            _ => {}
        }
    }
}

/// Every table takes and gives rows through every node, and what is not there can be made.
fn use_all(cluster: &Cluster, changes: &Changes<'_>, schema: &BTreeMap<String, BTreeMap<String, String>>) {
    for (number, table) in schema.keys().enumerate() {
        let key = number % cluster.len();
        cluster.run(key, &format!("INSERT INTO schemas.{table} (k) VALUES ({key})"));
        for node in 0..cluster.len() {
            let found = rows(cluster, node, &format!("SELECT k FROM schemas.{table} WHERE k = {key}"));
            assert_eq!(found.len(), 1, "{table} as node {node} serves it");
        }
    }
    let absent: Vec<String> = {
        let answers = changes.answers.lock().unwrap();
        let creations = answers.keys().filter_map(|statement| statement.strip_prefix("CREATE TABLE schemas."));
        let names = creations.map(|rest| rest.split(' ').next().expect("a name").to_owned());
        names.filter(|name| !schema.contains_key(name) && !name.starts_with("raced_")).collect()
    };
    let mut client = cluster.client(0);
    for table in absent.iter().take(5) {
        let create = create(&format!("schemas.{table}"));
        cluster.wait_for(&format!("{table} to be made again"), || match client.query(&create) {
            Ok(ClientResponse::SchemaChange(_)) => true,
            // The node that leads the catalog may be missed for a moment, if it is busy.
            Err(error) if error.code() == ErrorCode::Unavailable => false,
            other => panic!("{table} is gone and cannot be made: {other:?}"),
        });
    }
}

/// Changes the schema through all nodes while the node that `choose` names is killed and started again.
fn change_while_a_node_is_lost(choose: impl Fn(&Cluster, usize) -> usize) {
    let _turn = turn();
    let cluster = Cluster::start(3, &["--tablets-per-node", "1"]);
    cluster.run(0, KEYSPACE);
    cluster.run(0, "CREATE TABLE IF NOT EXISTS schemas.shared (k bigint PRIMARY KEY)");
    let mut leader = None;
    cluster.wait_for("a leader of the catalog", || {
        leader = cluster.leader_of_catalog();
        leader.is_some()
    });
    let victim = choose(&cluster, leader.expect("waited for"));
    let done = (0..cluster.len()).map(|_| AtomicU64::new(0)).collect();
    let changes = Changes { cluster: &cluster, answers: Mutex::default(), done, stop: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let _stop = StopWhenDropped(&changes.stop);
        for node in 0..cluster.len() {
            let changes = &changes;
            scope.spawn(move || changes.run(node));
        }
        changes.wait_for_progress("before the loss");
        cluster.kill(victim);
        changes.wait_for_progress("while a node is gone");
        cluster.start_node(victim);
        changes.wait_for_progress("after it has come back");
    });
    let schema = agreed_schema(&cluster);
    check(&changes, &schema);
    use_all(&cluster, &changes, &schema);
    let count = |of| changes.answers.lock().unwrap().values().filter(|answer| **answer == of).count();
    let counts = [Answer::Done, Answer::Exists, Answer::NotDone, Answer::Unknown].map(count);
    println!("{} tables, done, existed, refused, unknown: {counts:?}", schema.len());
    assert!(changes.answer(&create("schemas.own_0_0")).is_some());
}

#[test]
fn changes_of_the_schema_are_whole_and_agreed_on_when_the_node_that_leads_the_catalog_is_lost() {
    change_while_a_node_is_lost(|_, leader| leader);
}

#[test]
fn changes_of_the_schema_are_whole_and_agreed_on_when_another_node_is_lost() {
    change_while_a_node_is_lost(|cluster, leader| (leader + 1) % cluster.len());
}
