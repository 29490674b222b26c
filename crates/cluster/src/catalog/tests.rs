//! Golden scripts of the catalog (`scripts/*.txt`) and properties over random command sequences.
//!
//! A script line is a command; below it stand the outcome, the changes and the stored keys that it touched. `UPDATE_GOLDEN=1` rewrites them.

#![allow(clippy::unwrap_used, reason = "test data is known")]

use super::*;
use diorite_base::limits;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_model::schema::{Column, ColumnKind, Table};
use diorite_model::types::{CqlType, Frozen};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;

fn uuid_of(name: &str) -> Uuid {
    uuid::Builder::from_md5_bytes(Md5::digest(name).into()).into_uuid()
}

/// A node with an address of its own.
fn node_description(name: &str, data_center: &str, zone: &str) -> NodeDescription {
    let [.., a, b, c] = *uuid_of(name).as_bytes();
    NodeDescription {
        host_id: uuid_of(name),
        address: [127, a, b, c].into(),
        cql_port: 9042,
        rpc_port: 7100,
        http_port: 7000,
        data_center: data_center.to_owned(),
        zone: zone.to_owned(),
        node_address: None,
    }
}

/// A node as a script line describes it: `at=b` is where node b would be.
fn described<'a>(name: &str, option: &dyn Fn(&str) -> Option<&'a str>) -> NodeDescription {
    let (data_center, zone) = (option("dc").unwrap_or("datacenter1"), option("zone").unwrap_or("rack1"));
    let node = node_description(name, data_center, zone);
    let port = |name, usual| option(name).map_or(usual, |port| port.parse().unwrap());
    NodeDescription {
        address: option("at").map_or(node.address, |other| node_description(other, data_center, zone).address),
        cql_port: port("cql", node.cql_port),
        rpc_port: port("rpc", node.rpc_port),
        ..node
    }
}

/// `rf=2` → SimpleStrategy, `dcs=east:2,west:1` → NetworkTopologyStrategy.
fn replication_of(rf: Option<&str>, data_centers: Option<&str>) -> BTreeMap<String, String> {
    let class = if data_centers.is_some() { "NetworkTopologyStrategy" } else { "SimpleStrategy" };
    let factors = data_centers.into_iter().flat_map(|all| all.split(',')).map(|one| one.split_once(':').unwrap());
    let mut options: BTreeMap<String, String> =
        factors.map(|(data_center, factor)| (data_center.to_owned(), factor.to_owned())).collect();
    options.insert("class".to_owned(), format!("org.apache.cassandra.locator.{class}"));
    options.extend(rf.map(|rf| ("replication_factor".to_owned(), rf.to_owned())));
    options
}

fn keyspace_of(name: &str, replication: BTreeMap<String, String>) -> Keyspace {
    Keyspace { name: name.to_owned(), replication, durable_writes: true }
}

fn type_of(keyspace: &str, name: &str, fields: &[&str]) -> UserType {
    let fields = fields.iter().map(|field| ((*field).to_owned(), CqlType::Int)).collect();
    UserType { keyspace: keyspace.to_owned(), name: name.to_owned(), fields }
}

fn table_of(keyspace: &str, name: &str, value: CqlType) -> Table {
    let column = |id, name: &str, kind, data_type| Column { id, name: name.to_owned(), data_type, kind };
    Table {
        id: TableId(0),
        uuid: uuid_of(&format!("{keyspace}.{name}")),
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        version: 0,
        columns: vec![
            column(0, "k", ColumnKind::PartitionKey, CqlType::Text),
            column(1, "v", ColumnKind::Regular, value),
        ],
        next_column_id: 2,
        default_ttl_s: 0,
        gc_grace_s: 864_000,
        options: BTreeMap::new(),
    }
}

/// `1000` → that tablet.
fn tablet_of(word: &str) -> TabletId {
    TabletId(word.parse().unwrap())
}

/// A command about nodes and where replicas are.
fn operation(catalog: &Catalog, verb: &str, words: &[&str]) -> Command {
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let node = || NodeId(words[0].parse().unwrap());
    match verb {
        "place" => {
            let tablet = tablet_of(words[0]);
            let nodes = |list: &str| list.split(',').map(|id| NodeId(id.parse().unwrap())).collect::<Vec<_>>();
            let current = catalog.placement(tablet).map_or_else(Vec::new, |placement| placement.replicas.clone());
            let expected = option("expected").map_or(current, nodes);
            Command::Place { tablet, expected, replicas: nodes(option("on").unwrap()) }
        }
        "settle" => {
            let tablet = tablet_of(words[0]);
            let voters = catalog.placement(tablet).map_or_else(Vec::new, |placement| placement.replicas.clone());
            Command::FinishMoves { tablets: vec![FinishedTablet { tablet, voters }] }
        }
        "split" => {
            Command::BeginSplit { tablet: tablet_of(words[0]), at: option("at").unwrap().parse().unwrap(), stays: true }
        }
        "merge" => Command::BeginMerge { tablet: tablet_of(words[0]), into: tablet_of(words[1]) },
        "serve-merge" => {
            let number = option("number").map(|number| number.parse().unwrap());
            Command::ServeMerge { tablet: tablet_of(words[0]), into: tablet_of(words[1]), number }
        }
        "cancel-merge" => {
            let number = option("number").map(|number| number.parse().unwrap());
            let cancelled = CancelledMerge { reason: "by hand".to_owned(), unix_ms: 5 };
            Command::CancelMerge { tablet: tablet_of(words[0]), number, cancelled }
        }
        "end-merge" => Command::EndCancelledMerge {
            tablet: tablet_of(words[0]),
            number: option("number").unwrap().parse().unwrap(),
        },
        "cancel-split" => Command::CancelSplit { tablet: tablet_of(words[0]) },
        "commit-split" => {
            let children = [tablet_of(words[1]), tablet_of(words[2])];
            Command::CommitSplit { tablet: tablet_of(words[0]), children }
        }
        "serve-split" => Command::ServeSplit { tablet: tablet_of(words[0]), index: 40, term: 3 },
        "state" => {
            let state = serde_json::from_value(serde_json::Value::from(words[1])).unwrap();
            Command::SetNodeState { node: node(), state }
        }
        "zone" => Command::AssignZone { node: node(), zone: words.get(1).map(|z| (*z).to_owned()) },
        "leading" => Command::SetLeading { node: node(), leads_nothing: words[1] == "false" },
        "remove" => Command::RemoveNode { node: node() },
        "set" => {
            let setting = match words[0] {
                "rate" => Setting::CopyRate { bytes_per_second: words[1].parse().unwrap() },
                "paused" => Setting::Balancing { is_paused: words[1].parse().unwrap() },
                "replace-after" => Setting::ReplaceAfter { milliseconds: words[1].parse().unwrap() },
                "split-size" => Setting::SplitSize { bytes: words[1].parse().unwrap() },
                "split-load" => Setting::SplitLoad { operations_per_second: words[1].parse().unwrap() },
                _ => {
                    Setting::PreferredLeaderZones { zones: words[1..].iter().map(|zone| (*zone).to_owned()).collect() }
                }
            };
            Command::Set { setting }
        }
        other => panic!("unknown script command {other}"),
    }
}

/// Turns a script line into a command; the catalog is consulted as the `query` crate would.
fn parse(catalog: &Catalog, line: &str) -> Command {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap();
    let words: Vec<&str> = words.collect();
    let flag = |name: &str| words.contains(&name);
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let name = words[0].to_owned();
    let (keyspace, object) = words[0].split_once('.').unwrap_or((words[0], ""));
    let (keyspace, object) = (keyspace.to_owned(), object.to_owned());
    match verb {
        "bootstrap" => {
            let replication_factor = option("rf").map_or(1, |value| value.parse().unwrap());
            Command::Bootstrap { cluster_id: uuid_of(&name), name, replication_factor }
        }
        "register" => Command::RegisterNode { node: described(&name, &option) },
        "update" => Command::UpdateNode {
            node: NodeId(option("node").unwrap().parse().unwrap()),
            description: described(&name, &option),
        },
        "forget" => {
            let tablets = catalog.dropped_tablets().map(|(tablet, _)| tablet).collect();
            Command::ForgetDropped { node: NodeId(words[0].parse().unwrap()), tablets }
        }
        "create-keyspace" => {
            let keyspace = keyspace_of(&name, replication_of(option("rf"), option("dcs")));
            Command::CreateKeyspace { keyspace, if_not_exists: flag("if-not-exists") }
        }
        "alter-keyspace" => {
            let durable_writes = option("durable").map(|value| value.parse().unwrap());
            let replication = replication_of(option("rf"), option("dcs"));
            let replication = (option("rf").is_some() || option("dcs").is_some()).then_some(replication);
            Command::AlterKeyspace { name, replication, durable_writes, if_exists: flag("if-exists") }
        }
        "drop-keyspace" => Command::DropKeyspace { name, if_exists: flag("if-exists") },
        "create-table" => {
            let value = option("type").map_or(CqlType::Int, |of| {
                let user_type = catalog.user_type(&keyspace, of).cloned();
                CqlType::UserDefined(user_type.unwrap_or_else(|| Arc::new(type_of(&keyspace, of, &[]))), Frozen::Yes)
            });
            let tablets = option("tablets").map_or(1, |value| value.parse().unwrap());
            let table = table_of(&keyspace, &object, value);
            Command::CreateTable { table, tablets, if_not_exists: flag("if-not-exists") }
        }
        "alter-table" => {
            let mut table = catalog
                .table(&keyspace, &object)
                .map_or_else(|| table_of(&keyspace, &object, CqlType::Int), |entry| Table::clone(&entry.table));
            table.default_ttl_s = option("ttl").unwrap().parse().unwrap();
            table.version = option("version").map_or(table.version, |value| value.parse().unwrap());
            Command::AlterTable { table }
        }
        "drop-table" => Command::DropTable { keyspace, name: object, if_exists: flag("if-exists") },
        "truncate" => Command::TruncateTable { keyspace, name: object },
        "create-type" => {
            let fields: Vec<&str> = option("fields").unwrap().split(',').collect();
            let user_type = type_of(&keyspace, &object, &fields);
            Command::CreateType { user_type, if_not_exists: flag("if-not-exists") }
        }
        "alter-type" => {
            let fields: Vec<&str> = option("fields").unwrap().split(',').collect();
            let expected = catalog.user_type(&keyspace, &object).map(|found| UserType::clone(found));
            let changed = type_of(&keyspace, &object, &fields);
            Command::AlterType { expected: expected.unwrap_or_else(|| changed.clone()), changed }
        }
        "drop-type" => Command::DropType { keyspace, name: object, if_exists: flag("if-exists") },
        other => operation(catalog, other, &words),
    }
}

fn show_changes(changes: &[Change], out: &mut String) {
    for change in changes {
        match change {
            Change::OpenTablets { table, tablets } => {
                writeln!(out, "  open tablets of {}.{} ({})", table.keyspace, table.name, table.id).unwrap();
                for NewTablet { tablet, first_token, last_token, replicas } in tablets {
                    writeln!(out, "    {tablet} [{first_token}, {last_token}] on {replicas:?}").unwrap();
                }
            }
            Change::ReplicasMoved { table, tablets } => {
                writeln!(out, "  move replicas of {}.{} ({})", table.keyspace, table.name, table.id).unwrap();
                tablets.iter().for_each(|(tablet, nodes)| writeln!(out, "    {tablet} opened on {nodes:?}").unwrap());
            }
            Change::AlterTable(table) => writeln!(out, "  alter {} to version {}", table.id, table.version).unwrap(),
            other => writeln!(out, "  {other:?}").unwrap(),
        }
    }
}

fn warnings(catalog: &Catalog, command: &Command) -> Vec<String> {
    match command {
        Command::CreateKeyspace { keyspace, .. } => catalog.replication_warnings(&keyspace.replication),
        Command::AlterKeyspace { replication: Some(replication), .. } => catalog.replication_warnings(replication),
        _ => Vec::new(),
    }
}

fn run_script(script: &str) -> String {
    let (mut catalog, mut stored) = (Catalog::default(), BTreeMap::new());
    let mut out = String::new();
    for line in script.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            writeln!(out, "{}#{comment}", if out.is_empty() { "" } else { "\n" }).unwrap();
            continue;
        }
        let Some(command) = line.strip_prefix("> ") else { continue };
        let command_of = parse(&catalog, command);
        let (next, outcome) = catalog.apply(&command_of);
        let changes = next.changes_since(&catalog);
        writeln!(out, "\n> {command}\n{outcome:?}").unwrap();
        for warning in warnings(&catalog, &command_of) {
            writeln!(out, "  warning: {warning}").unwrap();
        }
        show_changes(&changes, &mut out);
        for (key, value) in next.puts_since(&catalog) {
            let key = String::from_utf8(key).unwrap();
            writeln!(out, "  {} {key}", if value.is_some() { "put" } else { "delete" }).unwrap();
            match value {
                Some(value) => stored.insert(key, value),
                None => stored.remove(&key),
            };
        }
        assert_eq!(Catalog::load(stored.iter()).unwrap(), next, "what is stored is the catalog, after {command}");
        catalog = next;
    }
    writeln!(out, "\nstored at the end:").unwrap();
    for (key, value) in &stored {
        writeln!(out, "{key} = {}", String::from_utf8_lossy(value)).unwrap();
    }
    out
}

#[test]
fn golden_scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/catalog/scripts");
    diorite_golden::check_folder(&folder, 4, |_, script| run_script(script));
}

#[test]
fn a_newer_stored_format_is_refused_by_name() {
    let (catalog, ..) = Catalog::default().apply(&parse(&Catalog::default(), "bootstrap demo"));
    let mut puts = catalog.puts_since(&Catalog::default());
    let newer = String::from_utf8(puts[0].1.take().unwrap()).unwrap().replace("\"format\":1", "\"format\":2");
    let error = Catalog::load([(b"cluster".as_slice(), newer.as_bytes())]).unwrap_err();
    assert_eq!(error, LoadError::NewerFormat { found: 2 });
    assert_eq!(error.to_string(), "the stored catalog has format 2, this program knows up to 1: upgrade it");
}

#[test]
fn a_placement_stored_without_founders_was_founded_by_its_replicas() {
    let placement: Placement = serde_json::from_str(r#"{"table":1,"replicas":[2,1]}"#).unwrap();
    assert_eq!(placement.founders, [NodeId(2), NodeId(1)]);
    let stored = serde_json::to_string(&Placement { replicas: vec![NodeId(3)], ..placement }).unwrap();
    assert_eq!(stored, r#"{"table":1,"replicas":[3],"founders":[2,1]}"#);
}

/// How many tablets each node is the preferred leader of.
fn leaders(catalog: &Catalog) -> BTreeMap<NodeId, usize> {
    let mut leaders: BTreeMap<NodeId, usize> = catalog.nodes().map(|node| (node.id, 0)).collect();
    for (_, placement) in catalog.tablets() {
        *leaders.get_mut(&placement.replicas[0]).unwrap() += 1;
    }
    leaders
}

#[test]
fn preferred_leaders_are_spread_evenly_whatever_the_size_of_the_tables() {
    for counts in [vec![1; 10], vec![2; 7], vec![4, 1, 3, 6, 2], vec![30]] {
        let mut catalog = Catalog::default();
        for line in
            ["bootstrap demo rf=3", "register a", "register b", "register c", "register d", "create-keyspace ks"]
        {
            catalog = catalog.apply(&parse(&catalog, line)).0;
        }
        for (at, count) in counts.iter().enumerate() {
            catalog = catalog.apply(&parse(&catalog, &format!("create-table ks.t{at} tablets={count}"))).0;
        }
        let leaders = leaders(&catalog);
        let (least, most) = (leaders.values().min().unwrap(), leaders.values().max().unwrap());
        assert!(most - least <= 1, "{counts:?}: {leaders:?}");
    }
}

#[test]
fn the_first_nodes_vote_in_the_catalogs_group_and_the_others_learn() {
    let mut catalog = Catalog::default().apply(&parse(&Catalog::default(), "bootstrap demo rf=2")).0;
    assert_eq!(catalog.catalog_members().voters, CATALOG_FOUNDERS);
    let mut members = Vec::new();
    for name in ["a", "b", "c"] {
        catalog = catalog.apply(&parse(&catalog, &format!("register {name}"))).0;
        let CatalogMembers { voters, learners } = catalog.catalog_members();
        members.push((voters.len(), learners.len()));
    }
    assert_eq!(members, [(1, 0), (2, 0), (2, 1)]);
}

#[test]
fn versions_that_were_let_pass_are_told_at_once() {
    let mut catalog = Catalog::default();
    for line in ["bootstrap demo rf=2", "register a", "create-keyspace ks", "create-table ks.old"] {
        catalog = catalog.apply(&parse(&catalog, line)).0;
    }
    let before = catalog.clone();
    let lines = [
        "create-type ks.y fields=f",
        "create-table ks.t type=y",
        "truncate ks.t",
        "alter-type ks.y fields=f,g",
        "create-keyspace passing",
        "create-table passing.t",
        "drop-keyspace passing",
        "drop-table ks.old",
        "create-table ks.old",
        "register b",
    ];
    for line in lines {
        let (next, outcome) = catalog.apply(&parse(&catalog, line));
        assert!(matches!(outcome, Outcome::Applied { .. } | Outcome::Registered { .. }), "{line}: {outcome:?}");
        catalog = next;
    }
    let mut shown = String::new();
    show_changes(&catalog.changes_since(&before), &mut shown);
    let expected = "  open tablets of ks.t (t2)
    tablet-1002 [-9223372036854775808, 9223372036854775807] on [NodeId(1)]
  open tablets of ks.old (t4)
    tablet-1004 [-9223372036854775808, 9223372036854775807] on [NodeId(1)]
  NodeChanged(NodeId(2))
  DropTablets { table: TableId(1), tablets: [TabletId(1000)] }
  Schema(SchemaEvent { change: Dropped, keyspace: \"ks\", target: Table(\"old\") })
  Schema(SchemaEvent { change: Created, keyspace: \"ks\", target: Type(\"y\") })
  Schema(SchemaEvent { change: Created, keyspace: \"ks\", target: Table(\"t\") })
  Schema(SchemaEvent { change: Created, keyspace: \"ks\", target: Table(\"old\") })
";
    assert_eq!(shown, expected);
}

#[test]
fn keys_that_are_no_catalogs_are_refused() {
    for (key, value) in [("cluster", "{}"), ("colour/red", "1"), ("table/zz", "{}"), ("keyspace/a", "not json")] {
        let error = Catalog::load([(key, value)]).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    let keyspace = serde_json::to_vec(&keyspace_of("a", BTreeMap::new())).unwrap();
    let error = Catalog::load([("keyspace/a", keyspace)]).unwrap_err();
    assert!(error.to_string().contains("there is no key \"cluster\""), "{error}");
    assert_eq!(Catalog::load(Vec::<(&str, &str)>::new()).unwrap(), Catalog::default());
}

/// A user-defined type with so many others within each other.
fn chain(levels: usize) -> UserType {
    let of = |at: usize, field| UserType {
        keyspace: "ks".to_owned(),
        name: format!("t{at}"),
        fields: vec![("f".to_owned(), field)],
    };
    (1..levels).fold(of(0, CqlType::Int), |inner, at| of(at, CqlType::UserDefined(Arc::new(inner), Frozen::Yes)))
}

#[test]
fn a_catalog_with_types_that_are_too_deep_is_loaded_and_they_can_be_dropped() {
    let (founded, _) = Catalog::default().apply(&Command::Bootstrap {
        cluster_id: Uuid::from_u128(1),
        name: "c".to_owned(),
        replication_factor: 1,
    });
    let mut stored: BTreeMap<Vec<u8>, Vec<u8>> =
        founded.puts_since(&Catalog::default()).into_iter().map(|(key, value)| (key, value.unwrap())).collect();
    let keyspace = serde_json::to_vec(&keyspace_of("ks", BTreeMap::new())).unwrap();
    stored.insert(b"keyspace/ks".to_vec(), keyspace);
    // As earlier versions stored what `ALTER TYPE` had joined.
    let deep = serde_json::to_vec(&chain(60)).unwrap();
    assert!(serde_json::from_slice::<UserType>(&deep).is_err() && is_too_deep(&deep));
    stored.insert(b"type/ks/t59".to_vec(), deep);
    let loaded = Catalog::load(stored.clone()).unwrap();
    let outer = loaded.user_type("ks", "t59").unwrap();
    let (mut depth, mut inner) = (1, &outer.fields[0].1);
    while let CqlType::UserDefined(user_type, _) = inner {
        (depth, inner) = (depth + 1, &user_type.fields[0].1);
    }
    assert!((18..40).contains(&depth) && *inner == CqlType::Blob, "{depth} levels end with {inner:?}");
    let drop = Command::DropType { keyspace: "ks".to_owned(), name: "t59".to_owned(), if_exists: false };
    let (dropped, outcome) = loaded.apply(&drop);
    assert!(dropped.user_type("ks", "t59").is_none(), "{outcome:?}");
}

#[test]
fn commands_of_a_newer_format_are_told_apart_from_garbage() {
    let command = Command::DropKeyspace { name: "a".to_owned(), if_exists: true };
    assert_eq!(Command::decode(&command.encode()).unwrap(), command);
    let newer = br#"{"v":2,"command":{"kind":"balance"}}"#;
    assert_eq!(Command::decode(newer), Err(EncodedCommandError::Newer { found: 2 }));
    assert!(matches!(Command::decode(b"rubbish"), Err(EncodedCommandError::Malformed(_))));
}

#[derive(Default)]
struct Tablet(BTreeMap<Vec<u8>, Vec<u8>>);

impl TabletView for Tablet {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), EvaluationFailed> {
        Ok(())
    }
}

impl TabletChanges for Tablet {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key.to_vec(), value.to_vec());
    }

    fn merge(&mut self, _: &[u8], _: &[u8]) {
        panic!("the catalog writes whole values");
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    fn delete_range(&mut self, _: &[u8], _: &[u8]) {
        panic!("the catalog removes single keys");
    }

    fn raise_flags(&mut self, _: u64) {}

    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

#[test]
fn the_evaluator_stores_publishes_tells_and_replies() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let heard = heard.clone();
        move |catalog: &Arc<Catalog>| heard.lock().unwrap().push(catalog.version())
    };
    let evaluator = CatalogEvaluator::new(Catalog::default(), listener);
    let context = EvaluationContext { stamp_us: 1, newest_explicit_us: i64::MIN };
    let mut tablet = Tablet::default();
    for line in ["bootstrap demo", "register a", "create-keyspace ks", "create-keyspace ks", "create-table ks.t"] {
        let program = parse(&evaluator.current(), line).encode();
        let reply = evaluator.evaluate(&program, context, &Tablet::default(), &mut tablet).unwrap();
        Outcome::decode(&reply).unwrap();
    }
    assert_eq!(evaluator.current().version(), 4);
    assert_eq!(Catalog::load(tablet.0.iter()).unwrap(), *evaluator.current());
    assert_eq!(*heard.lock().unwrap(), [1, 2, 3, 4]);

    // After a crash another evaluator starts from the stored keys.
    let again = CatalogEvaluator::new(Catalog::default(), |_: &Arc<Catalog>| {});
    assert_eq!(again.reload(tablet.0.iter()).unwrap(), evaluator.current());

    let mut untouched = Tablet::default();
    let reply = again.evaluate(b"rubbish", context, &Tablet::default(), &mut untouched).unwrap();
    assert!(matches!(Outcome::decode(&reply).unwrap(), Outcome::Rejected { rejection: Rejection::Invalid, .. }));
    assert!(untouched.0.is_empty());
    let newer = again.evaluate(br#"{"v":9,"command":{}}"#, context, &Tablet::default(), &mut untouched);
    assert!(newer.unwrap_err().to_string().contains("format 9"));
}

fn any_replication() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        (1..4u32).prop_map(|factor| format!("rf={factor}")),
        (0..3u32, 1..3u32).prop_map(|(east, west)| format!("dcs=east:{east},west:{west}")),
    ]
}

/// A line of a random script, over few names so that they collide.
fn any_line() -> impl Strategy<Value = String> {
    let keyspace = prop_oneof![Just("a"), Just("b")];
    let object = (prop_oneof![Just("a"), Just("b")], prop_oneof![Just("x"), Just("y")])
        .prop_map(|(keyspace, name)| format!("{keyspace}.{name}"));
    prop_oneof![
        3 => (prop_oneof![Just("m"), Just("n"), Just("o"), Just("p")], prop_oneof![Just("east"), Just("west")])
            .prop_map(|(node, dc)| format!("register {node} zone={node} dc={dc}")),
        4 => (keyspace.clone(), any_replication()).prop_map(|(name, rf)| format!("create-keyspace {name} {rf}")),
        2 => (keyspace.clone(), any_replication()).prop_map(|(name, rf)| format!("alter-keyspace {name} {rf}")),
        1 => keyspace.clone().prop_map(|name| format!("drop-keyspace {name} if-exists")),
        1 => (keyspace, any::<bool>()).prop_map(|(name, durable)| format!("alter-keyspace {name} durable={durable}")),
        6 => (object.clone(), 1..9u32).prop_map(|(name, count)| format!("create-table {name} tablets={count}")),
        3 => object.clone().prop_map(|name| format!("create-table {name} type=y")),
        2 => (object.clone(), 0..9u32).prop_map(|(name, ttl)| format!("alter-table {name} ttl={ttl}")),
        2 => object.clone().prop_map(|name| format!("drop-table {name}")),
        2 => object.clone().prop_map(|name| format!("truncate {name}")),
        3 => object.clone().prop_map(|name| format!("create-type {name} fields=f")),
        1 => object.clone().prop_map(|name| format!("alter-type {name} fields=f,g")),
        1 => object.prop_map(|name| format!("drop-type {name}")),
        1 => (1..3u64).prop_map(|node| format!("forget {node}")),
        8 => (1_000..1_012u64, any_replicas()).prop_map(|(tablet, on)| format!("place {tablet} on={on}")),
        4 => (1_000..1_012u64).prop_map(|tablet| format!("settle {tablet}")),
        4 => (1_000..1_012u64, -9i64..9).prop_map(|(tablet, at)| format!("split {tablet} at={}", at << 60)),
        4 => (1_000..1_012u64).prop_map(|tablet| format!("serve-split {tablet}")),
        1 => (1_000..1_012u64).prop_map(|tablet| format!("cancel-split {tablet}")),
        2 => (1_000..1_012u64, 1_000..1_012u64).prop_map(|(tablet, into)| format!("merge {tablet} {into}")),
        2 => (1_000..1_012u64, 1_000..1_012u64).prop_map(|(tablet, into)| format!("serve-merge {tablet} {into}")),
        1 => (1..4u64).prop_map(|node| format!("update m node={node}")),
        2 => (1..4u64, prop::sample::select(vec!["active", "draining", "dead"])).prop_map(|(node, state)| format!("state {node} {state}")),
        1 => (1..4u64).prop_map(|node| format!("remove {node}")),
        1 => (1..4u64, "[ab]").prop_map(|(node, zone)| format!("zone {node} {zone}")),
        1 => (1..3u64).prop_map(|rate| format!("set rate {rate}")),
    ]
}

/// Some order of some of the first nodes.
fn any_replicas() -> impl Strategy<Value = String> {
    (prop::sample::subsequence(vec![1u64, 2, 3, 4], 1..=4).prop_shuffle()).prop_map(|nodes| {
        let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
        nodes.join(",")
    })
}

/// Tables and tablets that a command brought into being.
fn new_ids(before: &Catalog, after: &Catalog) -> (Vec<TableId>, Vec<TabletId>) {
    let tables = after.tables().map(|entry| entry.table.id).filter(|id| before.table_by_id(*id).is_none()).collect();
    let tablets = after.tablets().map(|(id, _)| id).filter(|id| before.placement(*id).is_none()).collect();
    (tables, tablets)
}

/// No replica twice, all of them on members; new tablets have as many as wanted or as there are active nodes; founders as they were; whoever
/// held a replica holds it until the group has settled.
fn check_placements(before: &Catalog, after: &Catalog) -> Result<(), TestCaseError> {
    for (tablet, placement) in after.tablets() {
        let holders: BTreeSet<NodeId> = placement.holders().collect();
        prop_assert_eq!(holders.len(), placement.holders().count());
        prop_assert!(holders.iter().all(|node| after.node(*node).is_some()));
        prop_assert!(placement.arriving.iter().all(|node| placement.replicas.contains(node)));
        let Some(old) = before.placement(tablet) else {
            prop_assert_eq!(&placement.founders, &placement.replicas);
            prop_assert!(!placement.is_moving());
            check_new_placement(after, placement)?;
            continue;
        };
        prop_assert_eq!(&old.founders, &placement.founders);
        let has_settled = old.is_moving() && !placement.is_moving() && old.replicas == placement.replicas;
        prop_assert!(has_settled || old.holders().all(|node| holders.contains(&node)));
        prop_assert!(
            has_settled
                || placement
                    .replicas
                    .iter()
                    .all(|node| old.replicas.contains(node) || placement.arriving.contains(node))
        );
    }
    if after.nodes().next().is_none() {
        return Ok(());
    }
    let members = after.catalog_members();
    let all: BTreeSet<NodeId> = members.voters.iter().chain(&members.learners).copied().collect();
    prop_assert_eq!(all, after.nodes().map(|node| node.id).collect::<BTreeSet<_>>());
    prop_assert_eq!(members.voters.len(), after.nodes().count().min(after.identity().replication_factor as usize));
    Ok(())
}

fn check_new_placement(catalog: &Catalog, placement: &Placement) -> Result<(), TestCaseError> {
    let keyspace = &catalog.table_by_id(placement.table).unwrap().table.keyspace;
    let active: Vec<_> = catalog.nodes().filter(|node| node.state.is_active()).collect();
    match catalog.replication_of(keyspace) {
        Replication::Anywhere(wanted) => prop_assert!(placement.replicas.len() >= active.len().min(wanted as usize)),
        Replication::PerDataCenter(wanted) => {
            for (data_center, wanted) in wanted {
                let nodes = active.iter().filter(|node| node.description.data_center == data_center);
                let held = nodes.clone().filter(|node| placement.replicas.contains(&node.id)).count();
                prop_assert!(held >= nodes.count().min(wanted as usize), "in {data_center}");
            }
        }
    }
    Ok(())
}

/// Does with a set of open replicas what nodes do with theirs.
fn carry_out(changes: &[Change], open: &mut BTreeSet<(TabletId, NodeId)>) {
    for change in changes {
        match change {
            Change::OpenTablets { tablets, .. } => {
                for new in tablets {
                    open.extend(new.replicas.iter().map(|node| (new.tablet, *node)));
                }
            }
            Change::ReplicasMoved { tablets, .. } => {
                for (tablet, nodes) in tablets {
                    open.extend(nodes.iter().map(|node| (*tablet, *node)));
                }
            }
            Change::ReplicasGone { tablets } => open.retain(|replica| !tablets.contains(replica)),
            Change::DropTablets { tablets, .. } => open.retain(|(tablet, _)| !tablets.contains(tablet)),
            _ => {}
        }
    }
}

fn replicas_of(catalog: &Catalog) -> BTreeSet<(TabletId, NodeId)> {
    let tablets = catalog.tablets();
    tablets.flat_map(|(tablet, placement)| placement.holders().map(move |node| (tablet, node))).collect()
}

proptest! {
    #[test]
    fn random_histories_keep_the_invariants(lines in prop::collection::vec(any_line(), 1..60)) {
        let start = ["bootstrap demo rf=2", "register m zone=m"].map(str::to_owned);
        let (mut catalog, mut stored) = (Catalog::default(), HashMap::new());
        let (mut tables_seen, mut tablets_seen) = (BTreeSet::new(), BTreeSet::new());
        let first = catalog.clone();
        let mut open = BTreeSet::new();
        for line in start.into_iter().chain(lines) {
            let command = parse(&catalog, &line);
            let (next, outcome) = catalog.apply(&command);
            let changes = next.changes_since(&catalog);
            prop_assert_eq!(&catalog.apply(&command), &(next.clone(), outcome.clone()));
            prop_assert_eq!(outcome.version(), next.version());
            let changed = matches!(outcome, Outcome::Applied { .. } | Outcome::Registered { .. });
            prop_assert_eq!(next.version(), catalog.version() + u64::from(changed));
            prop_assert!(changed || next == catalog);
            prop_assert_eq!(Outcome::decode(&outcome.encode()).unwrap(), outcome);

            let (tables, tablets) = new_ids(&catalog, &next);
            for id in tables {
                prop_assert!(tables_seen.insert(id), "{id} was used before");
            }
            for id in tablets {
                prop_assert!(tablets_seen.insert(id), "{id} was used before");
            }
            for (key, value) in next.puts_since(&catalog) {
                match value {
                    Some(value) => { stored.insert(key, value); }
                    None => { prop_assert!(stored.remove(&key).is_some()); }
                }
            }
            prop_assert_eq!(&Catalog::load(stored.iter()).unwrap(), &next);
            check_placements(&catalog, &next)?;
            carry_out(&changes, &mut open);
            prop_assert_eq!(&open, &replicas_of(&next));
            let mut at_once = BTreeSet::new();
            carry_out(&next.changes_since(&first), &mut at_once);
            prop_assert_eq!(&at_once, &open);
            for entry in next.tables() {
                prop_assert_eq!(entry.tablets[0].first_token, i64::MIN);
                prop_assert!(entry.tablets.is_sorted_by_key(|range| range.first_token));
                prop_assert!(entry.tablets.iter().all(|range| next.placement(range.tablet).is_some()));
                prop_assert_eq!(entry.tablet_of(i64::MAX), entry.tablets[entry.tablets.len() - 1].tablet);
            }
            let same_schema = next.keyspaces().eq(catalog.keyspaces())
                && next.tables().map(|entry| &entry.table).eq(catalog.tables().map(|entry| &entry.table))
                && ["a", "b"].iter().all(|name| next.types_in(name).eq(catalog.types_in(name)));
            prop_assert_eq!(next.schema_version() == catalog.schema_version(), same_schema);
            catalog = next;
        }
    }
}

fn nested(levels: usize) -> UserType {
    (1..levels).fold(type_of("ks", "t1", &["f"]), |inner, level| {
        let field = CqlType::UserDefined(Arc::new(inner), Frozen::Yes);
        UserType { fields: vec![("f".to_owned(), field)], ..type_of("ks", &format!("t{}", level + 1), &[]) }
    })
}

fn with_types(types: impl IntoIterator<Item = UserType>) -> Catalog {
    let keyspace = keyspace_of("ks", replication_of(Some("1"), None));
    let mut catalog = Catalog::default().apply(&Command::CreateKeyspace { keyspace, if_not_exists: false }).0;
    for user_type in types {
        let command = Command::CreateType { user_type, if_not_exists: false };
        let (next, outcome) = catalog.apply(&Command::decode(&command.encode()).unwrap());
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        catalog = next;
    }
    catalog
}

/// What is stored of a catalog, as a node that starts reads it.
fn reloaded(catalog: &Catalog) -> Result<Catalog, LoadError> {
    let stored = catalog.puts_since(&Catalog::default());
    Catalog::load(stored.into_iter().map(|(key, value)| (key, value.unwrap())))
}

/// Two chains of types that are stored well become one that no node could load.
#[test]
fn what_is_applied_can_be_loaded_again() {
    let (outer, other) = (nested(20), UserType { name: "other".to_owned(), ..nested(20) });
    let inner = type_of("ks", "t1", &["f"]);
    let catalog = with_types([inner.clone(), outer, other.clone()]);
    let mut changed = inner.clone();
    changed.fields.push(("g".to_owned(), CqlType::UserDefined(Arc::new(other), Frozen::Yes)));
    let command = Command::AlterType { expected: inner, changed };
    for rules in [Rules::Limited, Rules::Loadable] {
        let (after, outcome) = catalog.apply_by(&command, rules);
        let Outcome::Rejected { rejection: Rejection::Invalid, message, .. } = outcome else { panic!("{outcome:?}") };
        let told = if rules == Rules::Limited { "TYPE_DEPTH" } else { "could not be loaded again" };
        assert!(message.contains(told), "{message}");
        assert_eq!(after, catalog);
    }
    assert_eq!(reloaded(&catalog), Ok(catalog));
}

/// Replicas that have stored the effect of an older command, and those that have not, must agree on it.
#[test]
fn what_was_logged_before_there_were_limits_is_applied_as_it_was_then() {
    let nested = (0..40).fold(CqlType::Int, |inner, _| CqlType::List(Arc::new(inner), Frozen::Yes));
    let user_type = UserType { fields: vec![("f".to_owned(), nested)], ..type_of("ks", "deep", &[]) };
    let command = Command::CreateType { user_type, if_not_exists: false };
    let logged = command.encode();
    assert_eq!(Command::decode_logged(&logged).unwrap().1, Rules::Limited);
    let older = String::from_utf8(logged).unwrap().replace(r#""limited":true,"#, "");
    let (read, rules) = Command::decode_logged(older.as_bytes()).unwrap();
    assert_eq!((&read, rules), (&command, Rules::Loadable));
    let catalog = with_types([]);
    let (after, outcome) = catalog.apply_by(&read, rules);
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    assert_eq!(reloaded(&after), Ok(after));
    assert!(matches!(catalog.apply(&command).1, Outcome::Rejected { rejection: Rejection::Invalid, .. }));
}

#[test]
fn a_command_over_a_limit_cannot_be_proposed() {
    use diorite_base::program::ProvenProgram;
    let proposed = |user_type| ProvenProgram::new(&Command::CreateType { user_type, if_not_exists: false });
    assert!(proposed(nested(20)).is_ok());
    assert!(proposed(nested(40)).unwrap_err().to_string().contains("TYPE_DEPTH"));
    // Not too deep for a type, but for the JSON of a command.
    assert!(proposed(nested(30)).is_err());
    let huge = UserType { name: "n".repeat(9 << 20), ..type_of("ks", "", &[]) };
    assert!(proposed(huge).unwrap_err().to_string().contains("CATALOG_COMMAND_BYTES"));
    let mut wide = table_of("ks", "t", CqlType::Int);
    wide.columns = vec![wide.columns[1].clone(); limits::MAX_COLUMNS + 1];
    let command = Command::CreateTable { table: wide, tablets: 1, if_not_exists: false };
    assert!(ProvenProgram::new(&command).unwrap_err().to_string().contains("COLUMNS"));
}
