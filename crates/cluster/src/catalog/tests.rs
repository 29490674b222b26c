//! Golden scripts of the catalog (`scripts/*.txt`), and tests of its stored form.
//!
//! A script line is a command; below it are the outcome, the changes and the stored keys that it has changed.
//! `UPDATE_GOLDEN=1` rewrites them.

#![allow(clippy::unwrap_used, reason = "test data is known")]

mod access;
mod cidr_groups;
mod covering;
mod evaluator;
mod golden;
mod join_tokens;
mod levels;
mod limits;
mod login;
mod properties;
mod roles;
mod views;

use super::*;
use diorite_base::hex::Hex;
use diorite_base::{Level, Levels, NodeId, TableId, TabletId};
use diorite_model::json::place::PathStep;
use diorite_model::schema::{Column, ColumnKind, Index, IndexCondition, IndexOperator, IndexTarget, Keyspace, Table};
use diorite_model::types::{CqlType, Frozen, UserType};
use md5::{Digest, Md5};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

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
        levels: None,
    }
}

/// A node as a script line describes it: `at=b` gives it the address of node b.
fn described<'a>(name: &str, option: &dyn Fn(&str) -> Option<&'a str>) -> NodeDescription {
    let (data_center, zone) = (option("dc").unwrap_or("datacenter1"), option("zone").unwrap_or("rack1"));
    let node = node_description(name, data_center, zone);
    let port = |name, usual| option(name).map_or(usual, |port| port.parse().unwrap());
    NodeDescription {
        address: option("at").map_or(node.address, |other| node_description(other, data_center, zone).address),
        cql_port: port("cql", node.cql_port),
        rpc_port: port("rpc", node.rpc_port),
        levels: option("levels").map(|levels| {
            let (least, greatest) = levels.split_once('-').unwrap();
            Levels { least: level_of(least), greatest: level_of(greatest) }
        }),
        ..node
    }
}

fn level_of(word: &str) -> Level {
    Level(word.parse().unwrap())
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
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        default_ttl_s: 0,
        gc_grace_s: 864_000,
        options: BTreeMap::new(),
    }
}

/// An index of the second column.
fn index_of(name: &str, id: u64) -> Index {
    let options = [("note".to_owned(), "text".to_owned())].into();
    let class = Some("sai".to_owned());
    let (name, filtered, path, predicate) = (name.to_owned(), vec![0], Vec::new(), Vec::new());
    let (target, unique, covering) = (IndexTarget::Value, None, None);
    Index { id, name, column: 1, target, path, filtered, class, options, predicate, unique, covering }
}

/// An index of the second column with a predicate on both.
fn partial_index_of(name: &str, id: u64) -> Index {
    let condition = |column, operator, literal: &str| IndexCondition { column, operator, literal: literal.to_owned() };
    let predicate = vec![
        condition(0, IndexOperator::Equal, "'it''s'"),
        condition(0, IndexOperator::NotEqual, "''"),
        condition(1, IndexOperator::Less, "7"),
        condition(1, IndexOperator::LessOrEqual, "6"),
        condition(1, IndexOperator::Greater, "-7"),
        condition(1, IndexOperator::GreaterOrEqual, "-6"),
    ];
    Index { predicate, ..index_of(name, id) }
}

/// An index of a place in the documents of the second column.
fn place_index_of(name: &str, id: u64) -> Index {
    let path = vec![PathStep::Member("a'b".to_owned()), PathStep::Element(7)];
    Index { path, ..index_of(name, id) }
}

/// The token that a script calls by this letter.
fn shown(name: &str) -> ShownToken {
    let byte = name.as_bytes()[0];
    ShownToken { id: Hex([byte; 8]), digest: Hex([byte; 32]) }
}

/// `1000` → the tablet with this id.
fn tablet_of(word: &str) -> TabletId {
    TabletId(word.parse().unwrap())
}

/// A command about nodes and placements.
fn operation(catalog: &Catalog, verb: &str, words: &[&str]) -> Command {
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let node = || NodeId(words[0].parse().unwrap());
    match verb {
        "place" => {
            let tablet = tablet_of(words[0]);
            let nodes = |list: &str| list.split(',').map(|id| NodeId(id.parse().unwrap())).collect::<Vec<_>>();
            let current = catalog.placement(tablet).map_or_else(Vec::new, |placement| placement.replicas.clone());
            let expected = option("expected").map_or(current, nodes);
            let replicas = nodes(option("on").unwrap());
            Command::Place { tablet, expected, replicas, is_numbered: !words.contains(&"unnumbered") }
        }
        "finish" => {
            let tablet = tablet_of(words[0]);
            let voters = catalog.placement(tablet).map_or_else(Vec::new, |placement| placement.replicas.clone());
            let move_number = option("number").map(|number| number.parse().unwrap());
            Command::FinishMoves { tablets: vec![FinishedTablet { tablet, voters, move_number }] }
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
        "remove" => Command::RemoveNode { node: node(), only_without_vote: words.contains(&"without-vote") },
        "login" => Command::RequireLogin { required: words[0] == "on", if_undecided: words.contains(&"if-undecided") },
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
        "create-view" | "drop-view" | "rename" | "add" => views::command(catalog, verb, words),
        "cover" | "uncover" | "finish-covering" => covering::command(catalog, verb, words),
        other => about_access(other, words),
    }
}

/// A command about join tokens, roles and groups of networks.
fn about_access(verb: &str, words: &[&str]) -> Command {
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    match verb {
        "token" => {
            let expires_ms = option("expires").map_or(1, |end| end.parse().unwrap());
            let nodes = option("nodes").map_or(1, |nodes| nodes.parse().unwrap());
            let token = JoinToken { digest: shown(words[0]).digest, expires_ms, nodes };
            Command::CreateJoinToken { id: shown(words[0]).id, token }
        }
        "cidrs" => {
            let cidrs = words[1..].iter().map(|cidr| cidr.parse().unwrap()).collect();
            Command::SetCidrGroup { name: words[0].to_owned(), cidrs }
        }
        "drop-cidrs" => Command::DropCidrGroup { name: words[0].to_owned() },
        "role" => {
            let cidrs = option("from").map(|all| Permitted::Only(all.split(',').map(str::to_owned).collect()));
            let role = Role { name: words[0].to_owned(), cidrs: cidrs.unwrap_or_default(), ..Role::default() };
            Command::Roles { change: RoleCommand::Create { role, if_not_exists: false } }
        }
        "drop-role" => Command::Roles { change: RoleCommand::Drop { name: words[0].to_owned(), if_exists: false } },
        "revoke" => Command::RevokeJoinToken { id: shown(words[0]).id },
        "join" => {
            let digest = shown(option("secret").or(option("token")).unwrap()).digest;
            let token = ShownToken { digest, ..shown(option("token").unwrap()) };
            Command::Join { node: described(words[0], &option), token }
        }
        other => panic!("unknown script command {other}"),
    }
}

fn bootstrap_of<'a>(name: String, option: &dyn Fn(&str) -> Option<&'a str>) -> Command {
    let replication_factor = option("rf").map_or(1, |value| value.parse().unwrap());
    let requires_login = option("login").map(|value| value.parse().unwrap());
    let level = option("level").map_or(Level::FIRST, level_of);
    Command::Bootstrap { cluster_id: uuid_of(&name), name, replication_factor, requires_login, level }
}

fn raise_of(level: &str, members: &str) -> Command {
    let members = members.split(',').map(|node| NodeId(node.parse().unwrap())).collect();
    Command::RaiseLevel { level: level_of(level), members }
}

/// Turns a script line into a command; reads the catalog as the `query` crate would.
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
        "bootstrap" => bootstrap_of(name, &option),
        "raise" => raise_of(words[0], option("members").unwrap()),
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
            table.default_ttl_s = option("ttl").map_or(table.default_ttl_s, |value| value.parse().unwrap());
            table.indexes.extend(option("index").map(|name| index_of(name, table.version + 1)));
            table.indexes.extend(option("place").map(|name| place_index_of(name, table.version + 1)));
            table.indexes.extend(option("partial").map(|name| partial_index_of(name, table.version + 1)));
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
    let folder = diorite_golden::crate_folder().join("src/catalog/scripts");
    diorite_golden::check_folder(&folder, 4, |_, script| run_script(script));
}

#[test]
fn a_newer_stored_format_is_refused_by_name() {
    let (catalog, ..) = Catalog::default().apply(&parse(&Catalog::default(), "bootstrap demo"));
    let mut puts = catalog.puts_since(&Catalog::default());
    let newer = String::from_utf8(puts[0].1.take().unwrap()).unwrap().replace("\"format\":1", "\"format\":5");
    let error = Catalog::load([(b"cluster".as_slice(), newer.as_bytes())]).unwrap_err();
    assert_eq!(error, LoadError::NewerFormat { found: 5 });
    assert_eq!(error.to_string(), "the stored catalog has format 5, this program knows up to 4: upgrade it");
}

#[test]
fn a_placement_stored_without_initial_voters_began_with_its_replicas() {
    let placement: Placement = serde_json::from_str(r#"{"table":1,"replicas":[2,1]}"#).unwrap();
    assert_eq!(placement.initial_voters, [NodeId(2), NodeId(1)]);
    let stored = serde_json::to_string(&Placement { replicas: vec![NodeId(3)], ..placement }).unwrap();
    assert_eq!(stored, include_str!("tests/stored_placement.json").trim_end());
}

/// The number of tablets of which each node is the preferred leader.
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
    assert_eq!(catalog.catalog_members().voters, CATALOG_INITIAL_VOTERS);
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

/// A chain of this many nested user-defined types.
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
    let (first, _) = Catalog::default().apply(&Command::Bootstrap {
        cluster_id: Uuid::from_u128(1),
        name: "c".to_owned(),
        replication_factor: 1,
        requires_login: None,
        level: Level::FIRST,
    });
    let mut stored: BTreeMap<Vec<u8>, Vec<u8>> =
        first.puts_since(&Catalog::default()).into_iter().map(|(key, value)| (key, value.unwrap())).collect();
    let keyspace = serde_json::to_vec(&keyspace_of("ks", BTreeMap::new())).unwrap();
    stored.insert(b"keyspace/ks".to_vec(), keyspace);
    // The form in which earlier versions stored a type that `ALTER TYPE` had extended.
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
fn what_an_earlier_version_would_pass_over_has_a_format_of_its_own() {
    let catalog = Catalog::default();
    for (line, format) in [
        ("place 1000 on=1", 4),
        ("place 1000 on=1 unnumbered", 1),
        ("finish 1000 number=6", 4),
        ("finish 1000", 1),
        ("remove 1 without-vote", 4),
        ("remove 1", 1),
        ("raise 2 members=1", 1),
        ("bootstrap demo level=2", 5),
        ("bootstrap demo", 1),
        ("update m node=1 levels=1-2", 5),
        ("update m node=1", 1),
        ("cidrs office 10.0.0.0/8", 5),
        ("drop-cidrs office", 5),
        ("role ann from=office,192.168.0.0/16", 5),
        ("role ann from=192.168.0.0/16", 2),
        ("role ann", 1),
    ] {
        let command = parse(&catalog, line);
        let encoded = String::from_utf8(command.encode()).unwrap();
        assert!(encoded.starts_with(&format!("{{\"v\":{format},")), "{line}: {encoded}");
        assert_eq!(Command::decode(encoded.as_bytes()), Ok(command));
    }
}

#[test]
fn commands_of_a_newer_format_are_told_apart_from_garbage() {
    let command = Command::DropKeyspace { name: "a".to_owned(), if_exists: true };
    assert_eq!(Command::decode(&command.encode()).unwrap(), command);
    let newer = br#"{"v":6,"command":{"kind":"balance"}}"#;
    assert_eq!(Command::decode(newer), Err(EncodedCommandError::Newer { found: 6 }));
    assert!(matches!(Command::decode(b"rubbish"), Err(EncodedCommandError::Malformed(_))));
}
