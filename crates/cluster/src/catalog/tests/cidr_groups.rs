//! Groups of networks: who may connect by them, which change is refused, and how they are stored.

use super::*;

fn after(catalog: &Catalog, lines: &[&str]) -> Catalog {
    lines.iter().fold(catalog.clone(), |catalog, line| {
        let command = Command::decode(&parse(&catalog, line).encode()).unwrap();
        let (next, outcome) = catalog.apply(&command);
        assert!(!matches!(outcome, Outcome::Rejected { .. }), "{line}: {outcome:?}");
        let stored = next.puts_since(&Catalog::default()).into_iter().map(|(key, value)| (key, value.unwrap()));
        assert_eq!(Catalog::load(stored.collect::<Vec<_>>()).unwrap(), next, "after {line}");
        next
    })
}

fn rejected(catalog: &Catalog, line: &str) -> (Rejection, String) {
    match catalog.apply(&parse(catalog, line)) {
        (next, Outcome::Rejected { rejection, message, .. }) => {
            assert_eq!(next, *catalog, "{line}");
            (rejection, message)
        }
        other => panic!("{line}: {other:?}"),
    }
}

fn may_connect(catalog: &Catalog, role: &str, address: &str) -> bool {
    catalog.may_connect_from(catalog.role(role).unwrap(), address.parse().unwrap())
}

fn founded() -> Catalog {
    after(&Catalog::default(), &["bootstrap demo rf=1"])
}

#[test]
fn a_role_connects_from_its_groups_and_from_its_networks() {
    let catalog = after(
        &founded(),
        &[
            "cidrs east 10.0.0.0/8",
            "cidrs office 10.1.0.0/16",
            "role ann from=east,192.168.0.0/16",
            "role bob from=office",
            "role cay from=10.0.0.0/8",
            "role dan",
        ],
    );
    for (role, address, may) in [
        ("ann", "10.2.0.1", true),
        ("ann", "::ffff:10.2.0.1", true),
        ("ann", "192.168.0.1", true),
        // It belongs to the office, whose network is longer.
        ("ann", "10.1.0.1", false),
        ("ann", "172.16.0.1", false),
        ("bob", "10.1.0.1", true),
        ("bob", "10.2.0.1", false),
        // A network of the role itself has all its addresses, whatever the groups have.
        ("cay", "10.1.0.1", true),
        ("cay", "11.0.0.1", false),
        ("dan", "11.0.0.1", true),
        ("dan", "::1", true),
    ] {
        assert_eq!(may_connect(&catalog, role, address), may, "{role} from {address}");
    }
    let moved = after(&catalog, &["cidrs office 10.3.0.0/16"]);
    assert!(may_connect(&moved, "ann", "10.1.0.1") && !may_connect(&moved, "bob", "10.1.0.1"));
    assert!(!moved.shares_roles_with(&catalog), "open connections are looked at again");
    assert!(after(&moved, &["create-keyspace ks"]).shares_roles_with(&moved));
}

#[test]
fn groups_are_known_before_roles_name_them_and_stay_as_long() {
    let catalog = after(&founded(), &["cidrs a 10.0.0.0/8", "cidrs b 10.0.0.0/9", "role ann from=a"]);
    let (rejection, message) = rejected(&catalog, "role bob from=a,north,south");
    assert_eq!(
        (rejection, message.as_str()),
        (Rejection::Invalid, "Invalid CIDR group(s): [north, south]. Available CIDR Groups are: [a, b]")
    );
    let alter = |cidrs: &str| Command::Roles {
        change: RoleCommand::Alter {
            name: "ann".to_owned(),
            is_superuser: None,
            can_login: None,
            password_hash: None,
            datacenters: None,
            cidrs: Some(Permitted::Only([cidrs.to_owned()].into())),
            if_exists: false,
        },
    };
    assert!(matches!(catalog.apply(&alter("north")).1, Outcome::Rejected { rejection: Rejection::Invalid, .. }));
    let (rejection, message) = rejected(&catalog, "drop-cidrs a");
    assert_eq!(rejection, Rejection::InUse);
    assert!(message.contains("used by roles: ann;"), "{message}");
    assert_eq!(rejected(&catalog, "drop-cidrs c").0, Rejection::NoSuchCidrGroup);
    let freed = catalog.apply(&alter("b")).0;
    assert_eq!(after(&freed, &["drop-cidrs a"]).cidr_groups().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
    // A role that may connect from everywhere uses no group.
    let many = (0..20)
        .fold(after(&catalog, &["role dan"]), |catalog, at| after(&catalog, &[&format!("role r{at:02} from=b")]));
    let (_, message) = rejected(&many, "drop-cidrs b");
    assert!(message.contains("r00, r01") && message.contains("r15 and 4 others"), "{message}");
}

#[test]
fn there_are_so_many_groups_and_networks() {
    let most = diorite_base::limits::MAX_CIDR_GROUPS;
    let full =
        (0..most).fold(founded(), |catalog, at| catalog.apply(&parse(&catalog, &format!("cidrs g{at} 10.0.0.0/8"))).0);
    assert_eq!(full.cidr_groups().count(), most);
    let (_, message) = rejected(&full, "cidrs one-more 10.0.0.0/8");
    assert!(message.contains("CIDR_GROUPS"), "{message}");
    after(&full, &["cidrs g7 11.0.0.0/8"]);
    let networks =
        |count: usize| (0..count).map(|at| format!(" 10.{}.{}.0/24", at / 256, at % 256)).collect::<String>();
    let most = diorite_base::limits::MAX_CIDRS_OF_GROUP;
    after(&founded(), &[&format!("cidrs big{}", networks(most))]);
    let (_, message) = rejected(&founded(), &format!("cidrs big{}", networks(most + 1)));
    assert!(message.contains("CIDRS_OF_GROUP"), "{message}");
}

/// A program that did not know groups would shut out whoever connects from one, or would not refuse what others refuse:
/// it stops instead.
#[test]
fn groups_have_a_format_of_their_own_while_there_are_any() {
    let format = |catalog: &Catalog| {
        let puts = catalog.puts_since(&Catalog::default());
        let stored = puts.into_iter().find_map(|(key, value)| (key == b"cluster").then_some(value)).flatten().unwrap();
        serde_json::from_slice::<serde_json::Value>(&stored).unwrap()["format"].as_u64().unwrap()
    };
    let made = after(&founded(), &["cidrs office 10.0.0.0/8"]);
    let dropped = after(&made, &["drop-cidrs office"]);
    assert_eq!([&founded(), &made, &dropped].map(format), [1, 4, 1]);
    let set = parse(&founded(), "cidrs office 10.0.0.0/8 ::1/128");
    assert!(set.at(Level::FIRST).is_err(), "while nodes may go back to a program without groups");
    assert!(set.at(Level::RECORDED).is_ok());
    assert_eq!(
        String::from_utf8(set.encode()).unwrap(),
        r#"{"v":5,"limited":true,"command":{"kind":"set_cidr_group","name":"office","cidrs":["10.0.0.0/8","::1/128"]}}"#
    );
    let wrong = br#"{"v":5,"limited":true,"command":{"kind":"set_cidr_group","name":"office","cidrs":["10.0.0.1/8"]}}"#;
    assert!(matches!(Command::decode(wrong), Err(EncodedCommandError::Malformed(_))));
}
