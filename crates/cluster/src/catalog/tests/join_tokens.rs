//! Join tokens: who joins with them, until when, and how often.

use super::*;

const SECOND_US: i64 = 1_000_000;

fn founded() -> Catalog {
    ["bootstrap demo rf=1", "register a"]
        .iter()
        .fold(Catalog::default(), |catalog, line| catalog.apply(&parse(&catalog, line)).0)
}

/// The catalog after a command of the log with this stamp, as it is decoded, and loaded again from what it has stored.
fn at(catalog: &Catalog, line: &str, stamp_us: i64) -> (Catalog, Outcome) {
    let command = Command::decode(&parse(catalog, line).encode()).unwrap();
    let (next, outcome) = catalog.apply_by(&command, Rules::Limited, stamp_us);
    let stored = next.puts_since(&Catalog::default()).into_iter().map(|(key, value)| (key, value.unwrap()));
    assert_eq!(Catalog::load(stored.collect::<Vec<_>>()).unwrap(), next, "after {line}");
    (next, outcome)
}

fn after(catalog: &Catalog, line: &str, stamp_us: i64) -> Catalog {
    let (next, outcome) = at(catalog, line, stamp_us);
    assert!(!matches!(outcome, Outcome::Rejected { .. }), "{line}: {outcome:?}");
    next
}

/// The kind and the words of a rejection, which changes nothing.
fn rejected(catalog: &Catalog, line: &str, stamp_us: i64) -> (Rejection, String) {
    match at(catalog, line, stamp_us) {
        (next, Outcome::Rejected { rejection, message, .. }) => {
            assert_eq!(next, *catalog, "{line}");
            (rejection, message)
        }
        other => panic!("{line}: {other:?}"),
    }
}

fn left(catalog: &Catalog) -> Vec<u32> {
    catalog.join_tokens().map(|(_, token)| token.nodes).collect()
}

#[test]
fn of_two_nodes_that_use_a_token_for_one_the_first_in_the_log_joins() {
    let made = after(&founded(), "token t expires=9000", SECOND_US);
    for (first, second) in [("b", "c"), ("c", "b")] {
        let one = after(&made, &format!("join {first} token=t"), 2 * SECOND_US);
        assert_eq!((one.nodes().count(), left(&one)), (2, vec![]));
        let (rejection, _) = rejected(&one, &format!("join {second} token=t"), 2 * SECOND_US);
        assert_eq!(rejection, Rejection::NoSuchToken);
    }
}

#[test]
fn a_host_that_asks_again_neither_fails_nor_uses_a_second_place() {
    let made = after(&founded(), "token t nodes=3 expires=9000", 0);
    let joined = after(&made, "join b token=t", 0);
    let again = after(&joined, "join b token=t", 0);
    assert_eq!((&again, left(&again)), (&joined, vec![2]));
    let changed = after(&joined, "join b token=t zone=other", 0);
    assert_eq!(
        (changed.nodes().count(), left(&changed)),
        (2, vec![2]),
        "its record is changed, as of a member that returns"
    );
    // Its answer was lost, and meanwhile the token has expired, or was revoked or used up.
    let revoked = after(&joined, "revoke t", 0);
    assert_eq!(after(&revoked, "join b token=t", 9 * SECOND_US).nodes().count(), 2);
    // Once it was removed, it is a stranger again.
    let removed = after(&revoked, "remove 2", 0);
    assert_eq!(rejected(&removed, "join b token=t", 0).0, Rejection::NoSuchToken);
}

#[test]
fn the_stamp_in_the_log_decides_whether_a_token_has_expired() {
    let made = after(&founded(), "token t nodes=2 expires=5000", SECOND_US);
    assert_eq!(after(&made, "join b token=t", 5 * SECOND_US - 1).nodes().count(), 2);
    let (rejection, message) = rejected(&made, "join b token=t", 5 * SECOND_US);
    assert_eq!((rejection, message.as_str()), (Rejection::NoSuchToken, "join token 7474747474747474 has expired"));
    assert_eq!(left(&made), [2], "a rejection removes nothing");
    assert_eq!(left(&after(&made, "token u expires=9000", 4 * SECOND_US)).len(), 2);
    assert_eq!(left(&after(&made, "token u expires=9000", 5 * SECOND_US)), [1], "the expired one is removed");
    let both = after(&made, "token u expires=9000", 0);
    assert_eq!(left(&after(&both, "revoke u", 5 * SECOND_US)), [0; 0]);
    assert_eq!(left(&after(&both, "join b token=u", 5 * SECOND_US)), [0; 0]);
}

#[test]
fn a_token_is_not_a_way_to_another_members_place() {
    let made = after(&founded(), "token t nodes=9 expires=9000", 0);
    let joined = after(&made, "join b token=t", 0);
    let (rejection, message) = rejected(&joined, "join b token=t at=x", 0);
    assert_eq!(rejection, Rejection::AlreadyExists);
    assert!(message.contains("belongs to node n2, which is at another address"), "{message}");
    assert_eq!(
        rejected(&joined, "join c token=t at=b", 0).0,
        Rejection::AlreadyExists,
        "a joined node is in its place"
    );
    assert_eq!(
        rejected(&joined, "join c token=t at=b secret=u", 0).0,
        Rejection::NoSuchToken,
        "which a stranger is not told"
    );
    for wrong in ["join c token=t secret=u", "join c token=u", "join c token=u secret=t"] {
        assert_eq!(rejected(&joined, wrong, 0).0, Rejection::NoSuchToken, "{wrong}");
    }
    assert_eq!(left(&joined), [8]);
}

#[test]
fn there_are_so_many_tokens_at_a_time_that_are_valid() {
    let made = |catalog: &Catalog, number: u64, expires_ms, stamp_us| {
        let token = JoinToken { digest: Hex([1; 32]), expires_ms, nodes: 1 };
        let command = Command::CreateJoinToken { id: Hex(number.to_be_bytes()), token };
        catalog.apply_by(&command, Rules::Limited, stamp_us)
    };
    let most = diorite_base::limits::MAX_JOIN_TOKENS as u64;
    let full = (0..most).fold(founded(), |catalog, number| made(&catalog, number, 1_000, 0).0);
    assert_eq!(full.join_tokens().count() as u64, most);
    let (same, outcome) = made(&full, most, 9_000, 0);
    assert!(matches!(&outcome, Outcome::Rejected { message, .. } if message.contains("JOIN_TOKENS")), "{outcome:?}");
    assert_eq!(same, full);
    assert_eq!(made(&full, most, 9_000, SECOND_US).0.join_tokens().count(), 1, "expired ones do not count");
    for nodes in [0, diorite_base::limits::MAX_JOIN_TOKEN_NODES + 1] {
        let (rejection, _) = rejected(&founded(), &format!("token t nodes={nodes}"), 0);
        assert_eq!(rejection, Rejection::Invalid, "{nodes}");
    }
}

/// A program that did not know tokens would reject what others accept, or lose them: it stops instead.
#[test]
fn tokens_have_a_format_of_their_own_while_there_are_any() {
    let format = |catalog: &Catalog| {
        let puts = catalog.puts_since(&Catalog::default());
        let stored = puts.into_iter().find_map(|(key, value)| (key == b"cluster").then_some(value)).flatten().unwrap();
        let stored: serde_json::Value = serde_json::from_slice(&stored).unwrap();
        stored["format"].as_u64().unwrap()
    };
    let made = after(&founded(), "token t", 0);
    assert_eq!(
        [&founded(), &made, &after(&made, "revoke t", 0), &after(&made, "join b token=t", 0)].map(format),
        [1, 3, 1, 1]
    );
    let version = |line: &str| String::from_utf8(parse(&founded(), line).encode()).unwrap()[..7].to_owned();
    for line in ["token t", "revoke t", "join b token=t"] {
        assert_eq!(version(line), "{\"v\":3,", "{line}");
    }
    assert_eq!((version("register b"), version("login on")), ("{\"v\":1,".to_owned(), "{\"v\":2,".to_owned()));
}

/// What is stored and logged stays as it is.
#[test]
fn tokens_are_written_as_the_document_says() {
    let made = after(&founded(), "token t nodes=2 expires=7", 0);
    let puts = made.puts_since(&founded()).into_iter();
    let stored: BTreeMap<String, String> = puts
        .map(|(key, value)| (String::from_utf8(key).unwrap(), String::from_utf8(value.unwrap()).unwrap()))
        .collect();
    let digest = "74".repeat(32);
    assert_eq!(stored["join_token/7474747474747474"], format!(r#"{{"digest":"{digest}","expires_ms":7,"nodes":2}}"#));
    let logged = |line: &str| String::from_utf8(parse(&founded(), line).encode()).unwrap();
    assert_eq!(
        logged("token t nodes=2 expires=7"),
        format!(
            r#"{{"v":3,"limited":true,"command":{{"kind":"create_join_token","id":"7474747474747474","token":{{"digest":"{digest}","expires_ms":7,"nodes":2}}}}}}"#
        )
    );
    assert_eq!(
        logged("revoke t"),
        r#"{"v":3,"limited":true,"command":{"kind":"revoke_join_token","id":"7474747474747474"}}"#
    );
    let join = logged("join b token=t");
    assert!(join.starts_with(r#"{"v":3,"limited":true,"command":{"kind":"join","node":{"host_id":"#), "{join}");
    assert!(join.ends_with(&format!(r#""token":{{"id":"7474747474747474","digest":"{digest}"}}}}}}"#)), "{join}");
}
