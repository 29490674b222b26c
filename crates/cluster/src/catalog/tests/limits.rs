//! Definitions and settings at and beyond their limits: an applied definition can be loaded again, and an applied
//! setting leaves a cluster that works.

use super::*;
use diorite_base::{Level, limits};

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

/// The stored catalog, as a starting node loads it.
pub(super) fn reloaded(catalog: &Catalog) -> Result<Catalog, LoadError> {
    let stored = catalog.puts_since(&Catalog::default());
    Catalog::load(stored.into_iter().map(|(key, value)| (key, value.unwrap())))
}

/// Two chains of types, each of which can be loaded, become one that no node could load.
#[test]
fn what_is_applied_can_be_loaded_again() {
    let (outer, other) = (nested(20), UserType { name: "other".to_owned(), ..nested(20) });
    let inner = type_of("ks", "t1", &["f"]);
    let catalog = with_types([inner.clone(), outer, other.clone()]);
    let mut changed = inner.clone();
    changed.fields.push(("g".to_owned(), CqlType::UserDefined(Arc::new(other), Frozen::Yes)));
    let command = Command::AlterType { expected: inner, changed };
    for rules in [Rules::Limited, Rules::Loadable] {
        let (after, outcome) = catalog.apply_by(&command, rules, 0);
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
    let (after, outcome) = catalog.apply_by(&read, rules, 0);
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    assert_eq!(reloaded(&after), Ok(after));
    assert!(matches!(catalog.apply(&command).1, Outcome::Rejected { rejection: Rejection::Invalid, .. }));
}

#[test]
fn a_command_over_a_limit_cannot_be_proposed() {
    let proposed = |user_type| (Command::CreateType { user_type, if_not_exists: false }).proven_at(Level::FIRST);
    assert!(proposed(nested(20)).is_ok());
    assert!(proposed(nested(40)).unwrap_err().to_string().contains("TYPE_DEPTH"));
    // Within the limit of a type, but too deep for the JSON of a command.
    assert!(proposed(nested(30)).is_err());
    let huge = UserType { name: "n".repeat(9 << 20), ..type_of("ks", "", &[]) };
    assert!(proposed(huge).unwrap_err().to_string().contains("CATALOG_COMMAND_BYTES"));
    let mut wide = table_of("ks", "t", CqlType::Int);
    wide.columns = vec![wide.columns[1].clone(); limits::MAX_COLUMNS + 1];
    let command = Command::CreateTable { table: wide, tablets: 1, if_not_exists: false };
    assert!(command.proven_at(Level::FIRST).unwrap_err().to_string().contains("COLUMNS"));
}

/// A setting with which the cluster would not work is refused when it is proposed and when it is applied.
#[test]
fn a_setting_beyond_its_limits_is_neither_proposed_nor_applied() {
    let set = |setting| Command::Set { setting };
    let zone = |bytes: usize| Command::AssignZone { node: NodeId(1), zone: Some("z".repeat(bytes)) };
    let beyond = [
        (set(Setting::CopyRate { bytes_per_second: 0 }), "COPY_RATE"),
        (set(Setting::CopyRate { bytes_per_second: 1 }), "COPY_RATE"),
        (set(Setting::ReplaceAfter { milliseconds: 0 }), "REPLACE_AFTER"),
        (set(Setting::ReplaceAfter { milliseconds: 1 }), "REPLACE_AFTER"),
        (set(Setting::ReplaceAfter { milliseconds: u64::MAX }), "REPLACE_AFTER"),
        (set(Setting::SplitSize { bytes: 1 }), "SPLIT_SIZE"),
        (set(Setting::SplitLoad { operations_per_second: 1 }), "SPLIT_LOAD"),
        (set(Setting::MergeSize { bytes: u64::MAX }), "MERGE_SIZE"),
        (set(Setting::PreferredLeaderZones { zones: vec!["z".to_owned(); 65] }), "LEADER_ZONES"),
        (set(Setting::PreferredLeaderZones { zones: vec!["z".repeat(256)] }), "ZONE_BYTES"),
        (zone(256), "ZONE_BYTES"),
    ];
    let catalog = with_types([]);
    for (command, limit) in beyond {
        let refused = command.proven_at(Level::FIRST).unwrap_err().to_string();
        assert!(refused.contains(limit), "{command:?}: {refused}");
        let (after, outcome) = catalog.apply(&command);
        let Outcome::Rejected { rejection: Rejection::Invalid, message, .. } = outcome else { panic!("{outcome:?}") };
        assert!(message.contains(limit) && after == catalog, "{message}");
    }
    let within = [
        Setting::ReplaceAfter { milliseconds: 1_000 },
        Setting::SplitSize { bytes: 0 },
        Setting::SplitLoad { operations_per_second: 0 },
        Setting::MergeSize { bytes: 0 },
        Setting::PreferredLeaderZones { zones: Vec::new() },
    ];
    for setting in within {
        let (_, outcome) = catalog.apply(&Command::Set { setting });
        assert!(!matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    }
}

/// Replicas of an earlier version have applied it.
#[test]
fn a_setting_that_was_logged_before_there_were_limits_is_applied_as_it_was_then() {
    let command = Command::Set { setting: Setting::SplitSize { bytes: 1 } };
    let (after, outcome) = with_types([]).apply_by(&command, Rules::Loadable, 0);
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    assert_eq!(after.identity().settings.split_bytes, 1);
}
