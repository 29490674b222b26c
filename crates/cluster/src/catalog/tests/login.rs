//! Whether clients have to log in: who decides it, and in which order decisions count.

use super::*;
use crate::catalog::{FIRST_SUPERUSER, Role, RoleCommand};

fn require(required: bool, if_undecided: bool) -> Command {
    Command::RequireLogin { required, if_undecided }
}

fn founded(requires_login: Option<bool>) -> Catalog {
    let name = "demo".to_owned();
    let command = Command::Bootstrap {
        cluster_id: uuid_of(&name),
        name,
        replication_factor: 1,
        requires_login,
        level: Level::FIRST,
    };
    Catalog::default().apply(&Command::decode(&command.encode()).unwrap()).0
}

fn after(catalog: &Catalog, command: &Command) -> Catalog {
    let (next, outcome) = catalog.apply(&Command::decode(&command.encode()).unwrap());
    assert!(!matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    next
}

fn with_role(catalog: &Catalog, role: Role) -> Catalog {
    after(catalog, &Command::Roles { change: RoleCommand::Create { role, if_not_exists: false } })
}

fn superuser(name: &str) -> Role {
    let password_hash = Some("hash".to_owned());
    Role { name: name.to_owned(), is_superuser: true, can_login: true, password_hash, ..Role::default() }
}

fn stored(catalog: &Catalog) -> BTreeMap<String, String> {
    let puts = catalog.puts_since(&Catalog::default()).into_iter();
    puts.map(|(key, value)| (String::from_utf8(key).unwrap(), String::from_utf8(value.unwrap()).unwrap())).collect()
}

#[test]
fn it_is_decided_when_the_cluster_is_created() {
    for requires_login in [None, Some(false), Some(true)] {
        let catalog = founded(requires_login);
        assert_eq!(catalog.requires_login(), requires_login);
        let stored = stored(&catalog);
        assert_eq!(Catalog::load(stored.iter()).unwrap(), catalog, "{stored:?}");
    }
    let again = Command::Bootstrap {
        cluster_id: uuid_of("demo"),
        name: "demo".to_owned(),
        replication_factor: 1,
        requires_login: Some(false),
        level: Level::FIRST,
    };
    assert_eq!(after(&founded(Some(true)), &again).requires_login(), Some(true), "once");
}

/// A program that did not know the decision would let everybody in: it stops instead, at the command and at the stored catalog.
#[test]
fn a_decision_has_a_format_of_its_own_and_nothing_else_has() {
    let format_of = |catalog: &Catalog| stored(catalog)["cluster"].contains("\"format\":2");
    assert!(!format_of(&founded(None)) && format_of(&founded(Some(false))) && format_of(&founded(Some(true))));
    let version_of = |command: &Command| String::from_utf8(command.encode()).unwrap().contains("\"v\":2");
    assert!(version_of(&require(true, true)) && version_of(&require(false, false)));
    assert!(!version_of(&Command::DropKeyspace { name: "a".to_owned(), if_exists: true }));
}

#[test]
fn a_catalog_of_an_earlier_version_is_undecided() {
    let older = br#"{"format":1,"cluster_id":"fe01ce2a-7fba-38fa-baed-7c982a04e229","name":"demo","replication_factor":2,"version":31,"next_node":4,"next_table":3,"next_tablet":1003}"#;
    let catalog = Catalog::load([(b"cluster".as_slice(), older.as_slice())]).unwrap();
    assert_eq!((catalog.requires_login(), catalog.version()), (None, 31));
    let older = br#"{"v":1,"limited":true,"command":{"kind":"bootstrap","cluster_id":"fe01ce2a-7fba-38fa-baed-7c982a04e229","name":"demo","replication_factor":2}}"#;
    assert_eq!(after(&Catalog::default(), &Command::decode(older).unwrap()).requires_login(), None);
}

/// Two nodes that both believe to lead the catalog decide differently, or an operator is faster: the first decision counts.
#[test]
fn a_decision_for_an_undecided_catalog_changes_no_other() {
    for first in [false, true] {
        let decided = after(&founded(None), &require(first, true));
        assert_eq!(decided.requires_login(), Some(first));
        let late = after(&decided, &require(!first, true));
        assert_eq!((late.requires_login(), late.version()), (Some(first), decided.version()));
    }
    let by_operator = after(&with_role(&founded(None), superuser("ann")), &require(true, false));
    assert_eq!(after(&by_operator, &require(false, true)).requires_login(), Some(true));
}

#[test]
fn an_operator_does_not_lock_everybody_out_nor_let_everybody_in() {
    let open = founded(Some(false));
    let refused = |catalog: &Catalog| match catalog.apply(&require(true, false)) {
        (after, Outcome::Rejected { rejection: Rejection::Invalid, message, .. }) => {
            assert_eq!(after, *catalog);
            message
        }
        other => panic!("{other:?}"),
    };
    assert!(refused(&open).contains("CREATE ROLE"));
    for useless in [
        Role { can_login: false, ..superuser("ann") },
        Role { password_hash: None, ..superuser("ann") },
        Role { is_superuser: false, ..superuser("ann") },
        Role { has_initial_password: true, ..superuser(FIRST_SUPERUSER) },
    ] {
        refused(&with_role(&open, useless));
    }
    let first = Role { has_initial_password: true, ..superuser(FIRST_SUPERUSER) };
    refused(&with_role(&with_role(&open, superuser("ann")), first));
    let ready = with_role(&open, superuser("ann"));
    let closed = after(&ready, &require(true, false));
    assert_eq!(closed.requires_login(), Some(true));
    assert_eq!(after(&closed, &require(true, false)).version(), closed.version());
    assert_eq!(after(&closed, &require(false, false)).requires_login(), Some(false));
}

#[test]
fn members_of_a_superuser_role_count_as_superusers() {
    let ann = Role { is_superuser: false, ..superuser("ann") };
    let admins = Role { can_login: false, password_hash: None, ..superuser("admins") };
    let catalog = with_role(&with_role(&founded(Some(false)), ann), admins);
    let member = RoleCommand::AddMember { role: "admins".to_owned(), member: "ann".to_owned() };
    let catalog = after(&catalog, &Command::Roles { change: member });
    assert_eq!(after(&catalog, &require(true, false)).requires_login(), Some(true));
}
