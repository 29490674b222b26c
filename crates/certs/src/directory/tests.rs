//! Certificates in directories: what is made, renewed, shown and refused.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;
use crate::node::{NodeCredentials, covers, is_node};
use std::os::unix::fs::PermissionsExt;
use std::slice::from_ref;

const NOW_S: i64 = 1_800_000_000;
const YEAR: Lifetime = Lifetime { now_s: NOW_S, days: 365 };

fn at(days: i64) -> Lifetime {
    Lifetime { now_s: NOW_S + days * DAY_S, days: 365 }
}

fn node(names: &[&str]) -> Subject {
    Subject::node(names.iter().map(|name| name.parse().unwrap()).collect()).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn new() -> (tempfile::TempDir, Directory) {
    let home = tempfile::tempdir().unwrap();
    let directory = Directory::new(&home.path().join("certs"));
    directory.init(Lifetime { now_s: NOW_S, days: 3_650 }, false).unwrap();
    (home, directory)
}

fn read(node: &Path, now_s: i64) -> Result<NodeCredentials, String> {
    NodeCredentials::read(node, now_s).map_err(|error| error.to_string())
}

#[test]
fn what_is_made_can_be_used_and_read_by_its_owner_only() {
    let (home, directory) = new();
    let first = directory.issue(&node(&["10.0.0.5", "db-1", "::1"]), YEAR, false).unwrap();
    let client = directory.issue(&Subject::client("a/b").unwrap(), YEAR, false).unwrap();
    assert_eq!(first, home.path().join("certs/nodes/10.0.0.5"));
    assert_eq!(client, home.path().join("certs/clients/a%2Fb"));
    for private in
        ["ca.pem", "ca.key", "nodes/10.0.0.5/node.key", "nodes/10.0.0.5/node.pem", "clients/a%2Fb/client.key"]
    {
        assert_eq!(mode(&home.path().join("certs").join(private)), 0o600, "{private}");
    }
    for entered in ["", "nodes", "nodes/10.0.0.5", "clients/a%2Fb"] {
        assert_eq!(mode(&home.path().join("certs").join(entered)), 0o700, "{entered}");
    }
    let (certificate, _) = super::first(&first.join("node.pem")).unwrap();
    assert!(is_node(&certificate) && !is_node(&super::first(&client.join("client.pem")).unwrap().0));
    for (address, is_covered) in [("10.0.0.5", true), ("::1", true), ("::ffff:10.0.0.5", true), ("10.0.0.6", false)] {
        assert_eq!(covers(&certificate, address.parse().unwrap()), is_covered, "{address}");
    }
    let credentials = read(&first, NOW_S).unwrap();
    assert_eq!(credentials.description().names, ["10.0.0.5", "db-1", "::1"]);
}

#[test]
fn all_certificates_are_shown() {
    let (_home, directory) = new();
    directory.issue(&node(&["10.0.0.5"]), YEAR, false).unwrap();
    directory.issue(&Subject::client("app").unwrap(), YEAR, false).unwrap();
    let shown = directory.show(NOW_S + DAY_S).unwrap();
    let seen: Vec<_> = shown
        .iter()
        .map(|shown| (shown.certificate.usage.name(), shown.certificate.usage.role(), shown.days_left))
        .collect();
    assert_eq!(seen, [("authority", None, 3_649), ("node", None, 364), ("client", Some("app"), 364)]);
    assert_eq!(shown[1].certificate.subject, "CN=10.0.0.5");
    let of_node = Directory::new(shown[1].file.parent().unwrap()).show(NOW_S).unwrap();
    assert_eq!(of_node.len(), 2, "the directory of a node can be shown by itself");
    assert_eq!(directory.show(NOW_S + 366 * DAY_S).unwrap()[1].days_left, -1);
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(
        (&json[2]["kind"], &json[2]["role"], &json[2]["days_left"]),
        (&"client".into(), &"app".into(), &364.into())
    );
}

#[test]
fn nothing_is_overwritten_unless_asked_for() {
    let (home, directory) = new();
    let exists = |refused: Result<PathBuf, CertsError>, name: &str| match refused {
        Err(CertsError::Exists(path)) => assert!(path.ends_with(name), "{}", path.display()),
        other => panic!("{other:?}"),
    };
    let subject = node(&["10.0.0.5"]);
    let path = directory.issue(&subject, YEAR, false).unwrap();
    let content = || {
        std::fs::read_to_string(path.join("node.pem")).unwrap()
            + &std::fs::read_to_string(path.join("node.key")).unwrap()
    };
    let before = content();
    exists(directory.init(YEAR, false), "ca.pem");
    exists(directory.issue(&subject, YEAR, false), "node.pem");
    assert_eq!(content(), before);
    directory.issue(&subject, YEAR, true).unwrap();
    assert_ne!(content(), before);
    directory.init(YEAR, true).unwrap();
    assert!(read(&path, NOW_S).is_ok(), "the node has the authority that has signed its certificate");
    std::fs::remove_file(home.path().join("certs/ca.pem")).unwrap();
    exists(directory.init(YEAR, false), "ca.key");
}

#[test]
fn a_renewed_certificate_says_the_same_and_has_another_key() {
    let (_home, directory) = new();
    let path = directory.issue(&node(&["10.0.0.5", "db-1"]), YEAR, false).unwrap();
    let client = directory.issue(&Subject::client("naïve").unwrap(), YEAR, false).unwrap();
    let describe = |path: &Path| super::first(path).unwrap().1;
    let (before, before_client) = (describe(&path.join("node.pem")), describe(&client.join("client.pem")));
    assert!(directory.renew(&[], Some(30), at(1)).unwrap().is_empty(), "they are valid for longer");
    assert_eq!(directory.renew(&["nodes/10.0.0.5".to_owned()], None, at(300)).unwrap(), from_ref(&path));
    assert_eq!(describe(&client.join("client.pem")), before_client);
    assert_eq!(directory.renew(&[], Some(66), at(300)).unwrap(), from_ref(&client));
    let after = describe(&path.join("node.pem"));
    assert_eq!((after.expires_s, after.begins_s), (NOW_S + 665 * DAY_S, NOW_S + 300 * DAY_S - 3_600));
    assert_ne!((&after.public_key, &after.serial), (&before.public_key, &before.serial));
    let same = Description {
        begins_s: after.begins_s,
        expires_s: after.expires_s,
        serial: after.serial.clone(),
        public_key: after.public_key.clone(),
        ..before
    };
    assert_eq!(after, same);
    assert_eq!(describe(&client.join("client.pem")).usage, before_client.usage);
    assert!(read(&path, NOW_S + 600 * DAY_S).is_ok());
    let unknown = directory.renew(&["10.0.0.9".to_owned()], None, YEAR).unwrap_err().to_string();
    assert!(unknown.contains("there is no certificate of '10.0.0.9'"), "{unknown}");
}

#[test]
fn an_authority_is_replaced_in_three_steps() {
    let (home, directory) = new();
    let path = directory.issue(&node(&["10.0.0.5"]), YEAR, false).unwrap();
    directory.add_authority(Lifetime { now_s: NOW_S, days: 3_650 }).unwrap();
    assert_eq!(files::certificates(&path.join("ca.pem")).unwrap().len(), 2, "the node trusts both");
    assert!(read(&path, NOW_S).is_ok(), "its certificate is the former authority's");
    let early = directory.remove_authorities().unwrap_err().to_string();
    assert!(early.contains("nodes/10.0.0.5/node.pem: a former authority has signed it"), "{early}");
    directory.renew(&[], None, YEAR).unwrap();
    assert_eq!(directory.remove_authorities().unwrap(), 1);
    assert_eq!(directory.remove_authorities().unwrap(), 0);
    for place in [&path, &home.path().join("certs")] {
        assert_eq!(files::certificates(&place.join("ca.pem")).unwrap().len(), 1);
    }
    assert!(read(&path, NOW_S).is_ok());
}

#[test]
fn no_certificate_outlives_its_authority() {
    let home = tempfile::tempdir().unwrap();
    let directory = Directory::new(home.path());
    directory.init(Lifetime { now_s: NOW_S, days: 10 }, false).unwrap();
    let path = directory.issue(&node(&["10.0.0.5"]), YEAR, false).unwrap();
    assert_eq!(super::first(&path.join("node.pem")).unwrap().1.expires_s, NOW_S + 10 * DAY_S);
    let late = directory.issue(&node(&["10.0.0.6"]), at(11), false).unwrap_err().to_string();
    assert!(late.contains("the authority has expired"), "{late}");
}

#[test]
fn a_node_refuses_what_it_cannot_use_with_one_line() {
    let (home, directory) = new();
    let path = directory.issue(&node(&["10.0.0.5"]), YEAR, false).unwrap();
    let client = directory.issue(&Subject::client("app").unwrap(), YEAR, false).unwrap();
    let refused = |expected: &str, now_s: i64| {
        let said = read(&path, now_s).map(drop).unwrap_err();
        assert!(said.contains(expected) && !said.contains('\n'), "{said}");
    };
    refused("node.pem: invalid peer certificate: certificate expired", NOW_S + 400 * DAY_S);
    refused("node.pem: invalid peer certificate: certificate not valid yet", NOW_S - DAY_S);
    let credentials = read(&path, NOW_S).unwrap();
    let elsewhere = credentials.check_address("10.0.0.6".parse().unwrap()).unwrap_err().to_string();
    assert!(
        elsewhere.contains("it does not cover 10.0.0.6") && elsewhere.contains("diorite certs node 10.0.0.6"),
        "{elsewhere}"
    );
    assert!(credentials.check_address("10.0.0.5".parse().unwrap()).is_ok());
    let open = |mode: u32| std::fs::set_permissions(path.join("node.key"), PermissionsExt::from_mode(mode)).unwrap();
    open(0o644);
    refused("node.key: others may read or change this key (mode 644)", NOW_S);
    open(0o600);
    // A client's certificate is no node's, whatever its file is called.
    let copy = |from: &str, to: &str| std::fs::copy(client.join(from), path.join(to)).map(drop).unwrap();
    copy("client.pem", "node.pem");
    refused("node.pem: ", NOW_S);
    copy("client.key", "node.key");
    refused("node.pem: it is the certificate of a client, not of a node", NOW_S);
    std::fs::write(path.join("node.pem"), "nothing").unwrap();
    refused("node.pem: there is no certificate in it", NOW_S);
    std::fs::remove_file(path.join("node.pem")).unwrap();
    refused("node.pem: No such file or directory", NOW_S);
    // Signed by an authority that is not trusted.
    let other = Directory::new(&home.path().join("other"));
    other.init(YEAR, false).unwrap();
    let stranger = other.issue(&node(&["10.0.0.5"]), YEAR, false).unwrap();
    for file in ["node.pem", "node.key"] {
        std::fs::copy(stranger.join(file), path.join(file)).unwrap();
    }
    refused("node.pem: invalid peer certificate: UnknownIssuer", NOW_S);
}

#[test]
fn a_directory_that_others_enter_is_refused_unless_it_is_empty() {
    let home = tempfile::tempdir().unwrap();
    let open = home.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(open.join("file"), "").unwrap();
    let said = Directory::new(&open).init(YEAR, false).unwrap_err().to_string();
    assert!(said.contains("others may enter it (mode 755)"), "{said}");
    std::fs::remove_file(open.join("file")).unwrap();
    Directory::new(&open).init(YEAR, false).unwrap();
    assert_eq!(mode(&open), 0o700);
    let none = Directory::new(&home.path().join("none"));
    let said = none.show(NOW_S).unwrap_err().to_string();
    assert!(said.contains("there are no certificates in it"), "{said}");
    let said = none.issue(&node(&["10.0.0.5"]), YEAR, false).unwrap_err().to_string();
    assert!(said.contains("ca.key: there is no authority's key"), "{said}");
}
