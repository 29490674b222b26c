//! Roles, their memberships and their permissions.

use super::*;
use crate::catalog::roles::forget_permissions;
use crate::catalog::{FIRST_SUPERUSER, Permitted, Role, RoleCommand};

fn role(name: &str) -> RoleCommand {
    let role = Role { name: name.to_owned(), can_login: true, ..Role::default() };
    RoleCommand::Create { role, if_not_exists: false }
}

fn applied(catalog: &Catalog, change: RoleCommand) -> Catalog {
    let command = Command::Roles { change };
    let (next, outcome) = catalog.apply(&Command::decode(&command.encode()).unwrap());
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    next
}

fn refused(catalog: &Catalog, change: RoleCommand) -> String {
    match catalog.apply(&Command::Roles { change }).1 {
        Outcome::Rejected { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

fn named(role: &str, member: &str) -> (String, String) {
    (role.to_owned(), member.to_owned())
}

fn grant(catalog: &Catalog, to: &str, permission: &str, on: &str) -> Catalog {
    let (role, resource) = named(to, on);
    applied(catalog, RoleCommand::Grant { role, resource, permissions: [permission.to_owned()].into() })
}

#[test]
fn permissions_come_from_above_and_from_roles_that_one_belongs_to() {
    let mut catalog = Catalog::default();
    for name in ["reader", "writer", "ann"] {
        catalog = applied(&catalog, role(name));
    }
    catalog = grant(&catalog, "reader", "SELECT", "data/ks");
    let (role, member) = named("reader", "writer");
    catalog = applied(&catalog, RoleCommand::AddMember { role, member });
    let (role, member) = named("writer", "ann");
    catalog = applied(&catalog, RoleCommand::AddMember { role, member });
    assert!(catalog.may("ann", "SELECT", "data/ks/t"));
    assert!(!catalog.may("ann", "SELECT", "data/other/t"));
    assert!(!catalog.may("ann", "MODIFY", "data/ks/t"));
    assert!(!catalog.may("nobody", "SELECT", "data/ks/t"));
    let (role, member) = named("ann", "reader");
    assert_eq!(refused(&catalog, RoleCommand::AddMember { role, member }), "ann is a member of reader");

    let stored = catalog.puts_since(&Catalog::default());
    let loaded = Catalog::load(stored.into_iter().map(|(key, value)| (key, value.unwrap()))).unwrap();
    assert_eq!(loaded, catalog, "roles are stored with the rest");

    let dropped = applied(&catalog, RoleCommand::Drop { name: "reader".to_owned(), if_exists: false });
    assert!(!dropped.may("ann", "SELECT", "data/ks/t"));
    assert!(dropped.role("writer").unwrap().member_of.is_empty());
}

#[test]
fn dropped_objects_take_their_permissions_along() {
    let mut catalog = grant(&applied(&Catalog::default(), role("ann")), "ann", "SELECT", "data/ks/t");
    forget_permissions(&mut catalog, "data/ks");
    assert!(!catalog.may("ann", "SELECT", "data/ks/t"));
}

#[test]
fn a_new_password_ends_the_initial_one() {
    let first =
        Role { name: FIRST_SUPERUSER.to_owned(), has_initial_password: true, is_superuser: true, ..Role::default() };
    assert!(Catalog::default().has_initial_password());
    let catalog = applied(&Catalog::default(), RoleCommand::Create { role: first, if_not_exists: true });
    assert!(catalog.has_initial_password() && catalog.may(FIRST_SUPERUSER, "DROP", "data"));
    let alter = RoleCommand::Alter {
        name: FIRST_SUPERUSER.to_owned(),
        is_superuser: None,
        can_login: None,
        password_hash: Some("hash".to_owned()),
        datacenters: None,
        cidrs: None,
        if_exists: false,
    };
    assert!(!applied(&catalog, alter).has_initial_password());
}

fn set_reach(datacenters: Option<Permitted>, cidrs: Option<Permitted>) -> RoleCommand {
    let name = "ann".to_owned();
    RoleCommand::Alter {
        name,
        is_superuser: None,
        can_login: None,
        password_hash: None,
        datacenters,
        cidrs,
        if_exists: false,
    }
}

#[test]
fn restrictions_are_stored_in_a_format_of_their_own() {
    let only = |name: &str| Some(Permitted::Only([name.to_owned()].into()));
    let format_of = |catalog: &Catalog| {
        let stored = catalog.puts_since(&Catalog::default());
        let stored: Vec<_> = stored.into_iter().map(|(key, value)| (key, value.unwrap())).collect();
        assert_eq!(Catalog::load(stored.clone()).unwrap(), *catalog);
        let cluster = stored.into_iter().find(|(key, _)| key == b"cluster").unwrap().1;
        serde_json::from_slice::<serde_json::Value>(&cluster).unwrap()["format"].as_u64().unwrap()
    };
    let is_newer = |change: &RoleCommand| {
        let command = Command::Roles { change: change.clone() };
        String::from_utf8(command.encode()).unwrap().starts_with(r#"{"v":2"#)
    };
    let catalog = applied(&Catalog::default(), role("ann"));
    assert!(format_of(&catalog) == 1 && !is_newer(&role("ann")) && !is_newer(&set_reach(None, None)));
    for change in [set_reach(only("dc1"), None), set_reach(None, only("10.0.0.0/8"))] {
        let restricted = applied(&catalog, change.clone());
        assert!(format_of(&restricted) == 2 && is_newer(&change), "{change:?}");
        let free = applied(&restricted, set_reach(Some(Permitted::All), Some(Permitted::All)));
        assert_eq!((format_of(&free), free.role("ann")), (1, catalog.role("ann")));
    }
    let created = Role { cidrs: only("10.0.0.0/8").unwrap(), ..Role::default() };
    assert!(is_newer(&RoleCommand::Create { role: created, if_not_exists: false }));
}

/// The names of roles may contain whatever resources are written with.
#[test]
fn a_role_is_not_confused_with_another_one() {
    let mut catalog = Catalog::default();
    for name in ["ann", "bob", "bob/x", "data"] {
        catalog = applied(&catalog, role(name));
    }
    catalog = grant(&catalog, "ann", "ALTER", "roles/bob");
    assert!(catalog.may("ann", "ALTER", "roles/bob"));
    assert!(!catalog.may("ann", "ALTER", "roles/bob/x"), "another role whose name begins alike");
    catalog = grant(&catalog, "ann", "DROP", "roles");
    assert!(catalog.may("ann", "DROP", "roles/bob/x") && catalog.may("ann", "DROP", "roles/bob"));
    assert!(!catalog.may("ann", "DROP", "data") && !catalog.may("ann", "DROP", "data/ks"));
}
