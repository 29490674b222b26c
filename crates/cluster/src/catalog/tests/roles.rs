//! Roles, their memberships and their permissions.

use super::*;
use crate::catalog::roles::forget_permissions;
use crate::catalog::{FIRST_SUPERUSER, Role, RoleCommand};

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
        if_exists: false,
    };
    assert!(!applied(&catalog, alter).has_initial_password());
}
