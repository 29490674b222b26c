//! Materialized views.

use super::*;
use diorite_model::schema::{View, ViewOf};

/// A command about views. A view has its table's second column as its key, and the key of the table after that.
pub(super) fn command(catalog: &Catalog, verb: &str, words: &[&str]) -> Command {
    let flag = |name: &str| words.contains(&name);
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let (keyspace, name) = words[0].split_once('.').unwrap();
    let (keyspace, name) = (keyspace.to_owned(), name.to_owned());
    match verb {
        "create-view" => {
            let base = catalog.table(&keyspace, option("of").unwrap_or("t"));
            let (base, version) = base.map_or((TableId(99), 1), |entry| (entry.table.id, entry.table.version));
            Command::CreateView {
                view: Box::new(view_of(catalog, &keyspace, &name, base, flag("all"))),
                base_version: option("version").map_or(version, |version| version.parse().unwrap()),
                columns: vec![1],
                follows_rows: flag("follows"),
                tablets: option("tablets").map_or(1, |tablets| tablets.parse().unwrap()),
                if_not_exists: flag("if-not-exists"),
            }
        }
        "drop-view" => Command::DropView { keyspace, name, if_exists: flag("if-exists") },
        "rename" => {
            let mut table = Table::clone(&catalog.table(&keyspace, &name).unwrap().table);
            let column = table.columns.iter_mut().find(|column| column.name == words[1]).unwrap();
            column.name = words[2].to_owned();
            Command::AlterTable { table }
        }
        "add" => {
            let mut table = Table::clone(&catalog.table(&keyspace, &name).unwrap().table);
            add(&mut table, &words[1..], ColumnKind::Regular);
            Command::AlterTable { table }
        }
        other => panic!("unknown script command {other}"),
    }
}

fn add(table: &mut Table, names: &[&str], kind: ColumnKind) {
    for name in names {
        let id = table.next_column_id;
        table.columns.push(Column { id, name: (*name).to_owned(), data_type: CqlType::Int, kind });
        table.next_column_id += 1;
    }
}

fn view_of(catalog: &Catalog, keyspace: &str, name: &str, base: TableId, selects_all: bool) -> Table {
    let literal = "7".to_owned();
    let condition = IndexCondition { column: 1, operator: IndexOperator::Less, literal };
    let predicate = if selects_all { Vec::new() } else { vec![condition] };
    let mut table = table_of(keyspace, name, CqlType::Int);
    if let Some(of) = catalog.table_by_id(base) {
        table.columns.clone_from(&of.table.columns);
    }
    table.columns.reverse();
    table.columns[0].kind = ColumnKind::PartitionKey;
    table.columns[1].kind = ColumnKind::Clustering(diorite_model::schema::Order::Asc);
    Table { view: Some(Box::new(View { base, selects_all, predicate })), ..table }
}

fn made(lines: &[&str]) -> Catalog {
    let first = ["bootstrap demo level=2", "register m levels=1-2", "create-keyspace ks rf=1", "create-table ks.t"];
    first.iter().chain(lines).fold(Catalog::default(), |catalog, line| {
        let (next, outcome) = catalog.apply(&parse(&catalog, line));
        assert!(!matches!(outcome, Outcome::Rejected { .. }), "{line}: {outcome:?}");
        next
    })
}

fn table(catalog: &Catalog, name: &str) -> Table {
    Table::clone(&catalog.table("ks", name).unwrap().table)
}

fn rejection(catalog: &Catalog, command: &Command) -> (Rejection, String) {
    match catalog.apply(command) {
        (_, Outcome::Rejected { rejection, message, .. }) => (rejection, message),
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn a_table_knows_its_views_and_a_view_its_table() {
    let catalog = made(&["create-view ks.v all", "create-view ks.w follows"]);
    let (base, v, w) = (table(&catalog, "t"), table(&catalog, "v"), table(&catalog, "w"));
    let of = |id, view: &Table, follows_rows| ViewOf {
        id,
        name: view.name.clone(),
        table: view.id,
        columns: vec![1],
        columns_since: 0,
        follows_rows,
        index: None,
    };
    assert_eq!((base.version, &base.views), (3, &vec![of(2, &v, false), of(3, &w, true)]));
    assert_eq!(v.view, Some(Box::new(View { base: base.id, selects_all: true, predicate: Vec::new() })));
    assert_eq!((v.version, v.views), (1, Vec::new()));
    let (dropped, _) = catalog.apply(&parse(&catalog, "drop-view ks.v"));
    assert_eq!(dropped.table("ks", "v"), None);
    let base = table(&dropped, "t");
    assert_eq!((base.version, base.views), (4, vec![of(3, &w, true)]));
    // Its number is not used again.
    let (again, _) = dropped.apply(&parse(&dropped, "create-view ks.v"));
    assert_eq!(table(&again, "t").views[1].id, 5);
}

#[test]
fn a_command_changes_neither_the_views_of_a_table_nor_a_view() {
    let catalog = made(&["create-view ks.v"]);
    let (base, view) = (table(&catalog, "t"), table(&catalog, "v"));
    let (changed, outcome) = catalog.apply(&Command::AlterTable { table: Table { views: Vec::new(), ..base.clone() } });
    assert!(matches!(outcome, Outcome::Applied { .. }));
    assert_eq!(table(&changed, "t").views, base.views);
    let none = rejection(&catalog, &Command::AlterTable { table: Table { view: None, ..view.clone() } });
    assert_eq!(none, (Rejection::Invalid, "a materialized view keeps what makes it one".to_owned()));
    let mut renamed = view.clone();
    renamed.columns[0].name = "x".to_owned();
    assert_eq!(rejection(&catalog, &Command::AlterTable { table: renamed }).0, Rejection::Invalid);
    let indexed = Table { indexes: vec![index_of("i", 2)], ..view.clone() };
    assert_eq!(rejection(&catalog, &Command::AlterTable { table: indexed }).0, Rejection::Invalid);
    let (later, _) = catalog.apply(&Command::AlterTable { table: Table { gc_grace_s: 5, ..view } });
    assert_eq!((table(&later, "v").gc_grace_s, table(&later, "v").version), (5, 2));
    let fresh = Table { name: "x".to_owned(), ..base };
    let create = Command::CreateTable { table: fresh, tablets: 1, if_not_exists: false };
    assert_eq!(rejection(&catalog, &create).0, Rejection::Invalid);
}

#[test]
fn views_follow_the_names_and_the_transactions_of_their_table() {
    let catalog = made(&["create-view ks.v", "rename ks.t k key"]);
    assert_eq!(table(&catalog, "t").columns[0].name, "key");
    let view = table(&catalog, "v");
    let names: Vec<&str> = view.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!((names, view.version), (vec!["v", "key"], 2));
    let mut base = table(&catalog, "t");
    base.options.insert("transactions".to_owned(), "{'enabled': 'true'}".to_owned());
    base.options.insert("comment".to_owned(), "'x'".to_owned());
    let (changed, _) = catalog.apply(&Command::AlterTable { table: base.clone() });
    let view = table(&changed, "v");
    assert_eq!(view.options, [("transactions".to_owned(), "{'enabled': 'true'}".to_owned())].into());
    assert_eq!(view.version, 3);
    base.columns.pop();
    let lost = rejection(&catalog, &Command::AlterTable { table: base });
    assert_eq!(lost, (Rejection::InUse, "the materialized view v needs a column that would be dropped".to_owned()));
}

#[test]
fn a_view_of_something_else_is_rejected() {
    let catalog = made(&["create-view ks.v"]);
    let create = |change: &dyn Fn(&mut Table)| {
        let mut command = parse(&catalog, "create-view ks.w");
        if let Command::CreateView { view, .. } = &mut command {
            change(view);
        }
        rejection(&catalog, &command).0
    };
    assert_eq!(create(&|view| view.view = None), Rejection::Invalid);
    assert_eq!(create(&|view| view.view.as_mut().unwrap().base = TableId(99)), Rejection::NoSuchTable);
    assert_eq!(create(&|view| view.keyspace = "other".to_owned()), Rejection::Invalid);
    assert_eq!(create(&|view| view.columns[0].id = 7), Rejection::Invalid);
    assert_eq!(create(&|view| view.columns[0].data_type = CqlType::Text), Rejection::Invalid);
    assert_eq!(create(&|view| view.indexes = vec![index_of("i", 2)]), Rejection::Invalid);
    assert_eq!(create(&|view| view.index_of = Some(TableId(1))), Rejection::Invalid);
    let of_view = parse(&catalog, "create-view ks.w of=v");
    assert_eq!(rejection(&catalog, &of_view).0, Rejection::Invalid);
}

#[test]
fn permissions_on_a_view_go_with_it() {
    let catalog = made(&["create-view ks.v", "role ann"]);
    let resource = "data/ks/v".to_owned();
    let permissions: BTreeSet<String> = ["SELECT".to_owned()].into();
    let change = RoleCommand::Grant { role: "ann".to_owned(), resource: resource.clone(), permissions };
    let (granted, _) = catalog.apply(&Command::Roles { change });
    assert!(granted.may("ann", "SELECT", &resource));
    let (dropped, _) = granted.apply(&parse(&granted, "drop-view ks.v"));
    assert!(!dropped.may("ann", "SELECT", &resource));
}

#[test]
fn views_of_all_columns_get_those_that_their_table_gets() {
    let catalog = made(&["create-view ks.v all", "create-view ks.w", "create-view ks.x all", "add ks.t b a"]);
    let base = table(&catalog, "t");
    let of = |at: usize| (base.views[at].id, base.views[at].columns_since, base.views[at].columns.clone());
    assert_eq!([of(0), of(1), of(2)], [(2, 6, vec![1, 2, 3]), (3, 0, vec![1]), (4, 7, vec![1, 2, 3])]);
    assert_eq!((base.version, base.next_column_id), (7, 4));
    let names = |name: &str| -> Vec<String> {
        table(&catalog, name).columns.iter().map(|column| column.name.clone()).collect()
    };
    assert_eq!(
        (names("v"), names("w")),
        (["v", "k", "a", "b"].map(str::to_owned).to_vec(), vec!["v".into(), "k".into()])
    );
    assert_eq!((table(&catalog, "v").version, table(&catalog, "v").next_column_id), (2, 4));
    assert_eq!((table(&catalog, "w").version, table(&catalog, "x").version), (1, 2));
    for column in table(&catalog, "v").columns {
        let of = base.column_by_id(column.id).unwrap();
        assert_eq!((&of.name, &of.data_type), (&column.name, &column.data_type));
    }
}

#[test]
fn views_get_neither_static_columns_nor_such_as_may_have_values() {
    let catalog = made(&["create-view ks.v all"]);
    let mut base = table(&catalog, "t");
    add(&mut base, &["s"], ColumnKind::Static);
    let (catalog, _) = catalog.apply(&Command::AlterTable { table: base });
    let unchanged = table(&catalog, "t");
    assert_eq!((unchanged.views[0].columns_since, table(&catalog, "v").columns.len()), (0, 2));
    // A column of an earlier number may have been dropped, and have values.
    let mut base = unchanged;
    base.columns.retain(|column| column.name != "s");
    let (catalog, _) = catalog.apply(&Command::AlterTable { table: base.clone() });
    base.version = table(&catalog, "t").version;
    base.columns.push(Column { id: 2, name: "r".to_owned(), data_type: CqlType::Int, kind: ColumnKind::Regular });
    let (catalog, outcome) = catalog.apply(&Command::AlterTable { table: base });
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    assert_eq!((table(&catalog, "t").views[0].columns_since, table(&catalog, "v").columns.len()), (0, 2));
}
