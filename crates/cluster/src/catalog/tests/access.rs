//! Commands for golden bytes that the scripts do not have: roles, who may connect, and the rest of the settings.

use super::*;

fn change(change: RoleCommand) -> Command {
    Command::Roles { change }
}

fn create(role: Role) -> Command {
    change(RoleCommand::Create { role, if_not_exists: true })
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn role(name: &str) -> Role {
    Role { name: name.to_owned(), can_login: true, password_hash: Some("$argon2id$x".to_owned()), ..Role::default() }
}

/// Of every release.
fn of_roles() -> Vec<Command> {
    let (granted, resource) = (names(&["MODIFY", "SELECT"]), "data/ks".to_owned());
    let (a, b) = (|| "a".to_owned(), || "b".to_owned());
    let alter = |datacenters, cidrs| {
        let (is_superuser, can_login, password_hash) = (Some(true), Some(false), Some("$argon2id$y".to_owned()));
        change(RoleCommand::Alter {
            name: b(),
            is_superuser,
            can_login,
            password_hash,
            datacenters,
            cidrs,
            if_exists: false,
        })
    };
    let grant = RoleCommand::Grant { role: a(), resource: resource.clone(), permissions: granted };
    let nothing = RoleCommand::Alter {
        name: a(),
        is_superuser: None,
        can_login: None,
        password_hash: None,
        datacenters: None,
        cidrs: None,
        if_exists: true,
    };
    vec![
        create(Role { is_superuser: true, has_initial_password: true, ..role("a") }),
        create(role("b")),
        create(role("c")),
        change(nothing),
        alter(None, None),
        change(RoleCommand::AddMember { role: a(), member: b() }),
        change(RoleCommand::AddMember { role: a(), member: "c".to_owned() }),
        change(RoleCommand::RemoveMember { role: a(), member: "c".to_owned() }),
        change(grant),
        change(RoleCommand::Revoke { role: a(), resource, permissions: names(&["MODIFY"]) }),
        Command::RequireLogin { required: false, if_undecided: false },
        alter(Some(Permitted::Only(names(&["dc1"]))), Some(Permitted::Only(names(&["10.0.0.0/8"])))),
        create(Role { datacenters: Permitted::Only(names(&["dc1"])), ..role("d") }),
    ]
}

fn begun(lines: &[&str]) -> Vec<Command> {
    let mut catalog = Catalog::default();
    let mut commands = Vec::new();
    for line in lines {
        let command = parse(&catalog, line);
        catalog = catalog.apply(&command).0;
        commands.push(command);
    }
    commands
}

/// Commands that follow each other, none of which is rejected.
pub(super) fn histories() -> Vec<Vec<Command>> {
    let settings = [
        Setting::ReplaceAfter { milliseconds: 1_000_000 },
        Setting::MergeSize { bytes: 1_000_000_000 },
        Setting::SplitSize { bytes: 10_000_000_000 },
    ];
    let mut first = begun(&["bootstrap demo", "register m", "create-keyspace ks rf=1", "create-type ks.u fields=x,y"]);
    first.push(Command::SetNodeState { node: NodeId(1), state: NodeState::Draining });
    first.push(Command::SetNodeState { node: NodeId(1), state: NodeState::Active });
    first.extend(settings.map(|setting| Command::Set { setting }));
    first.extend(of_roles());
    let mut second = begun(&["bootstrap demo level=2", "register m levels=1-2", "cidrs office 10.0.0.0/8 fd00::/8"]);
    second.extend(begun(&["cidrs other 10.1.0.0/16", "drop-cidrs other", "role e from=office,10.2.0.0/16"]));
    second.extend(begun(&["token t nodes=2", "join n token=t levels=1-2"]));
    vec![first, second]
}
