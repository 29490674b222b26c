//! The system tables: their definitions, and their rows for a small cluster.

#![allow(clippy::unwrap_used, reason = "test data is known")]

use super::*;
use crate::budget::Budget;
use crate::kv::NodeInfo;
use crate::trace::{Trace, TraceEvent};
use diorite_base::{Level, NodeId};
use diorite_cluster::catalog::{Catalog, Command, Permitted, Role, RoleCommand};
use diorite_model::schema::{ColumnKind, Table};
use diorite_model::types::CqlType;
use diorite_model::value::literal_text;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

fn node(number: u8) -> NodeInfo {
    NodeInfo {
        node: NodeId(u64::from(number)),
        host_id: Uuid::from_u128(u128::from(number)),
        address: [127, 0, 0, number].into(),
        cql_port: 9042,
        data_center: "datacenter1".to_owned(),
        rack: format!("rack{number}"),
        tokens: vec![i64::MIN + i64::from(number), 0],
    }
}

/// A source whose catalog has gone through some statements.
fn source() -> Source {
    let mut catalog = Catalog::default();
    let node_of = |number: u8| diorite_cluster::catalog::NodeDescription {
        host_id: Uuid::from_u128(u128::from(number)),
        address: [127, 0, 0, number].into(),
        cql_port: 9042,
        rpc_port: 7100,
        http_port: 7000,
        data_center: "datacenter1".to_owned(),
        zone: format!("rack{number}"),
        node_address: None,
        levels: None,
    };
    let mut commands = vec![
        Command::Bootstrap {
            cluster_id: Uuid::from_u128(9),
            name: "demo".to_owned(),
            replication_factor: 1,
            requires_login: None,
            level: Level::FIRST,
        },
        Command::RegisterNode { node: node_of(1) },
        Command::RegisterNode { node: node_of(2) },
    ];
    let statements = [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE ks.address (street text, zip int)",
        "CREATE TABLE ks.events (\"Who\" text, day date, at timestamp, seq int, s text static, v frozen<address>, \
         PRIMARY KEY ((\"Who\", day), at, seq)) WITH CLUSTERING ORDER BY (at DESC, seq ASC) \
         AND comment = 'it''s' AND default_time_to_live = 60 AND extensions = {'x': 0xCAFE}",
        "CREATE TABLE ks.hits (k int PRIMARY KEY, n counter)",
        "CREATE TABLE ks.documents (k int PRIMARY KEY, j jsonb, m map<int, frozen<tuple<jsonb, int>>>)",
    ];
    for statement in statements {
        for command in commands.drain(..) {
            catalog = catalog.apply(&command).0;
        }
        let defaults = crate::ddl::Defaults { tablets_per_node: 1, most_tablets_per_node: u32::MAX };
        let context = crate::ddl::Context { catalog: &catalog, keyspace: None, defaults, nonce: 1 };
        let parsed = diorite_cql::language::parse(statement).unwrap();
        let crate::ddl::Plan::Propose { command, .. } = crate::ddl::plan(&context, &parsed.statement).unwrap() else {
            panic!("a change")
        };
        commands.push(command);
    }
    catalog = catalog.apply(&commands[0]).0;
    let (local, peers, peer_schemas) = (node(1), vec![node(2)], vec![Uuid::from_u128(7)]);
    Source { catalog: Arc::new(catalog), local, peers, peer_schemas, traces: Vec::new() }
}

/// A row as column → CQL literal; every cell is validated.
fn shown(table: &Table, row: &Row) -> BTreeMap<String, String> {
    assert_eq!(row.len(), table.columns.len());
    let mut shown = BTreeMap::new();
    for (column, cell) in table.columns.iter().zip(row) {
        let Some(cell) = cell else {
            assert!(matches!(column.kind, ColumnKind::Regular | ColumnKind::Static), "keys are never null");
            continue;
        };
        column.data_type.validate(cell).unwrap();
        let mut text = String::new();
        literal_text(&column.data_type, cell, &mut text).unwrap();
        shown.insert(column.name.clone(), text);
    }
    shown
}

fn select(source: &Source, keyspace: &str, name: &str) -> Vec<BTreeMap<String, String>> {
    let table = table(keyspace, name).unwrap();
    rows(source, keyspace, name, Budget::unlimited()).unwrap().iter().map(|row| shown(&table, row)).collect()
}

#[test]
fn definitions_are_valid_and_rows_fit_them() {
    let source = source();
    let mut ids = std::collections::BTreeSet::new();
    let mut count = 0;
    for (keyspace, tables) in keyspaces() {
        assert!(crate::ddl::is_reserved_keyspace(&keyspace.name));
        for definition in tables {
            assert!(ids.insert(definition.id) && ids.insert(diorite_base::TableId(definition.uuid.as_u64_pair().0)));
            select(&source, &keyspace.name, &definition.name);
            count += 1;
        }
    }
    assert!(count >= 30);
    assert_eq!(table("system", "nothing"), None);
    assert!(rows(&source, "system", "nothing", Budget::unlimited()).unwrap().is_empty());
}

#[test]
fn nodes_are_told_as_drivers_want_them() {
    let source = source();
    let local = &select(&source, "system", "local")[0];
    assert_eq!(local["key"], "'local'");
    assert_eq!(local["cluster_name"], "'demo'");
    assert_eq!(local["release_version"], "'4.1.0'");
    assert_eq!(local["partitioner"], "'org.apache.cassandra.dht.Murmur3Partitioner'");
    assert_eq!(local["rpc_address"], "'127.0.0.1'");
    assert_eq!(local["rpc_port"], "9042");
    assert_eq!(local["tokens"], "{'-9223372036854775807', '0'}");
    let peer = &select(&source, "system", "peers")[0];
    assert_eq!((&peer["peer"][..], &peer["rpc_address"][..]), ("'127.0.0.2'", "'127.0.0.2'"));
    let peer_v2 = &select(&source, "system", "peers_v2")[0];
    assert_eq!((&peer_v2["native_port"][..], &peer_v2["peer_port"][..]), ("9042", "7100"));
    assert_eq!(local["schema_version"], source.catalog.schema_version().to_string());
    for row in [peer, peer_v2] {
        assert_eq!(row["schema_version"], Uuid::from_u128(7).to_string(), "a peer's own");
        assert_eq!(row["tokens"], "{'-9223372036854775806', '0'}");
        let told = ["data_center", "host_id", "rack", "release_version"].map(|column| row[column].as_str());
        let host = Uuid::from_u128(2).to_string();
        assert_eq!(told, ["'datacenter1'", &host, "'rack2'", "'4.1.0'"]);
    }
    let keyspace = &select(&source, "system_schema", "scylla_keyspaces")[0];
    assert_eq!((&keyspace["keyspace_name"][..], &keyspace["initial_tablets"][..]), ("'ks'", "0"));
    assert!(select(&source, "system", "partitions").is_empty());
}

#[test]
fn the_schema_is_told_column_by_column() {
    let source = source();
    let columns = select(&source, "system_schema", "columns");
    let events: Vec<String> = columns
        .iter()
        .filter(|row| row["keyspace_name"] == "'ks'" && row["table_name"] == "'events'")
        .map(|row| {
            let field = |name: &str| row[name].trim_matches('\'').to_owned();
            ["column_name", "kind", "position", "clustering_order", "type"].map(field).join(" ")
        })
        .collect();
    assert_eq!(
        events,
        [
            "Who partition_key 0 none text",
            "at clustering 0 desc timestamp",
            "day partition_key 1 none date",
            "s static -1 none text",
            "seq clustering 1 asc int",
            "v regular -1 none frozen<address>",
        ]
    );
    let documents = columns.iter().filter(|row| row["table_name"] == "'documents'");
    let types: Vec<&str> = documents.map(|row| &row["type"][..]).collect();
    assert_eq!(types, ["'text'", "'int'", "'map<int, frozen<tuple<text, int>>>'"], "those of the protocol");
    // The tables that describe the schema describe themselves.
    assert!(columns.iter().any(|row| row["table_name"] == "'columns'" && row["column_name"] == "'position'"));
    let tables = select(&source, "system_schema", "tables");
    let find = |name: &str| {
        let of_ks = tables.iter().filter(|row| row["keyspace_name"] == "'ks'");
        of_ks.into_iter().find(|row| row["table_name"] == format!("'{name}'")).unwrap()
    };
    let events = find("events");
    assert_eq!(events["comment"], "'it''s'");
    assert_eq!(events["default_time_to_live"], "60");
    assert_eq!(events["extensions"], "{'x': 0xcafe}");
    assert_eq!(events["flags"], "{'compound'}");
    assert_eq!(events["bloom_filter_fp_chance"], "1.0");
    assert_eq!(find("hits")["flags"], "{'compound', 'counter'}");
    let types = select(&source, "system_schema", "types");
    assert_eq!((&types[0]["field_names"][..], &types[0]["field_types"][..]), ("['street', 'zip']", "['text', 'int']"));
    let keyspaces = select(&source, "system_schema", "keyspaces");
    let ks = keyspaces.iter().find(|row| row["keyspace_name"] == "'ks'").unwrap();
    let replication = "{'class': 'org.apache.cassandra.locator.SimpleStrategy', 'replication_factor': '1'}";
    assert_eq!(ks["replication"], replication);
    assert!(keyspaces.iter().all(|row| row["keyspace_name"] != "'system_virtual_schema'"));
    assert_eq!(select(&source, "system_virtual_schema", "keyspaces")[0]["keyspace_name"], "'system_virtual_schema'");
    assert_eq!(select(&source, "system_virtual_schema", "tables").len(), 3);
}

#[test]
fn columns_of_the_schema_tables_are_those_of_the_release() {
    let names = |keyspace: &str, name: &str| -> Vec<String> {
        table(keyspace, name).unwrap().columns.iter().map(|column| column.name.clone()).collect()
    };
    assert_eq!(
        names("system_schema", "tables"),
        [
            "keyspace_name",
            "table_name",
            "additional_write_policy",
            "bloom_filter_fp_chance",
            "caching",
            "cdc",
            "comment",
            "compaction",
            "compression",
            "crc_check_chance",
            "dclocal_read_repair_chance",
            "default_time_to_live",
            "extensions",
            "flags",
            "gc_grace_seconds",
            "id",
            "max_index_interval",
            "memtable",
            "memtable_flush_period_in_ms",
            "min_index_interval",
            "read_repair",
            "read_repair_chance",
            "speculative_retry",
            // YugabyteDB's.
            "transactions",
        ]
    );
    let caching = table("system_schema", "tables").unwrap().column("caching").unwrap().data_type.clone();
    assert_eq!(caching.to_string(), "frozen<map<text, text>>");
    let tokens = table("system", "local").unwrap().column("tokens").unwrap().data_type.clone();
    assert!(matches!(tokens, CqlType::Set(..)) && tokens.is_multi_cell());
}

#[test]
fn groups_of_networks_are_told_as_cassandra_does() {
    let mut catalog = Catalog::default();
    let group = |name: &str, cidrs: &[&str]| Command::SetCidrGroup {
        name: name.to_owned(),
        cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
    };
    let role = |name: &str, cidrs: &[&str]| {
        let cidrs = Permitted::Only(cidrs.iter().map(|cidr| (*cidr).to_owned()).collect());
        let role = Role { name: name.to_owned(), cidrs, ..Role::default() };
        Command::Roles { change: RoleCommand::Create { role, if_not_exists: false } }
    };
    for command in [
        group("office", &["::1/128", "200.0.0.0/8", "10.0.0.0/8", "10.0.0.0/16"]),
        group("east", &["2001:db8::/32"]),
        role("ann", &["office", "192.168.0.0/16"]),
    ] {
        let (next, outcome) = catalog.apply(&command);
        assert!(matches!(outcome, diorite_cluster::catalog::Outcome::Applied { .. }), "{outcome:?}");
        catalog = next;
    }
    let (local, peers, peer_schemas) = (node(1), Vec::new(), Vec::new());
    let source = Source { catalog: Arc::new(catalog), local, peers, peer_schemas, traces: Vec::new() };
    let groups = select(&source, "system_auth", "cidr_groups");
    let told: Vec<(&str, &str)> =
        groups.iter().map(|row| (row["cidr_group"].as_str(), row["cidrs"].as_str())).collect();
    assert_eq!(
        told,
        [
            ("'east'", "{('2001:db8::', 32)}"),
            ("'office'", "{('::1', 128), ('10.0.0.0', 8), ('10.0.0.0', 16), ('200.0.0.0', 8)}")
        ]
    );
    let permissions = select(&source, "system_auth", "cidr_permissions");
    assert_eq!(permissions.len(), 1);
    assert_eq!(
        (&permissions[0]["role"][..], &permissions[0]["cidr_groups"][..]),
        ("'ann'", "{'192.168.0.0/16', 'office'}")
    );
    let cidrs = table("system_auth", "cidr_groups").unwrap().column("cidrs").unwrap().data_type.clone();
    assert_eq!(cidrs.to_string(), "frozen<set<frozen<tuple<inet, smallint>>>>");
}

/// A trace of a request to node 2 that took 1.5 ms.
fn trace() -> Trace {
    let event =
        |activity: &str, elapsed_ns| TraceEvent { activity: activity.to_owned(), elapsed_ns, thread: "cql".to_owned() };
    Trace {
        id: uuid::Builder::from_gregorian_timestamp(7, 8, &[9; 6]).into_uuid(),
        node: NodeId(2),
        client: Some([10, 0, 0, 7].into()),
        request: "Execute CQL3 query".to_owned(),
        parameters: [("query", "SELECT v FROM t WHERE k = ?"), ("page_size", "100")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        started_us: 1_795_302_605_000_999,
        duration_us: 1_500,
        events: vec![event("first", 2_000), event("last", u64::MAX)],
    }
}

#[test]
fn traces_are_told_as_drivers_want_them() {
    let source = Source { traces: vec![Arc::new(trace())], ..source() };
    let session = &select(&source, "system_traces", "sessions")[0];
    let id = trace().id.to_string();
    let names = ["session_id", "client", "coordinator", "coordinator_port", "duration", "command", "request"];
    let told = names.map(|column| session[column].as_str());
    let wanted = [id.as_str(), "'10.0.0.7'", "'127.0.0.2'", "7100", "1500", "'QUERY'", "'Execute CQL3 query'"];
    assert_eq!(told, wanted);
    assert_eq!(session["parameters"], "{'page_size': '100', 'query': 'SELECT v FROM t WHERE k = ?'}");
    let events = select(&source, "system_traces", "events");
    let columns = ["session_id", "activity", "source", "source_port", "source_elapsed", "thread"];
    let told: Vec<_> = events.iter().map(|event| columns.map(|column| event[column].as_str())).collect();
    assert_eq!(
        told,
        [
            [id.as_str(), "'first'", "'127.0.0.2'", "7100", "2", "'cql'"],
            [id.as_str(), "'last'", "'127.0.0.2'", "7100", "2147483647", "'cql'"]
        ]
    );
    let unknown = Source { traces: vec![Arc::new(Trace { node: NodeId(9), client: None, ..trace() })], ..source };
    let session = &select(&unknown, "system_traces", "sessions")[0];
    assert!(!session.contains_key("coordinator") && !session.contains_key("client"), "{session:?}");
    assert!(!select(&unknown, "system_traces", "events")[0].contains_key("source"));
}
