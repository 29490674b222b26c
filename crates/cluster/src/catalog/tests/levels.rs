//! The level of the cluster.

use super::access;
use super::evaluator::evaluated;
use super::limits::reloaded;
use super::*;
use diorite_base::program::Unprovable;
use diorite_golden::kinds;

fn applied(catalog: &Catalog, line: &str) -> (Catalog, Outcome) {
    catalog.apply(&parse(catalog, line))
}

fn made(lines: &[&str]) -> Catalog {
    lines.iter().fold(Catalog::default(), |catalog, line| {
        let (next, outcome) = applied(&catalog, line);
        assert!(!matches!(outcome, Outcome::Rejected { .. }), "{line}: {outcome:?}");
        next
    })
}

/// All gated commands, with the lowest level at which they may be proposed.
const GATED: [(&str, u32); 8] = [
    ("raise 2 members=1", 1),
    ("raise 3 members=1", 2),
    ("register n levels=1-2", 2),
    ("update m node=1 levels=1-2", 2),
    ("join n token=t levels=1-2", 2),
    ("alter-table ks.t index=by_v", 2),
    ("create-view ks.v", 2),
    ("drop-view ks.v", 2),
];

#[test]
fn nothing_is_proposed_below_its_level() {
    let catalog = made(&["bootstrap demo", "register m"]);
    for (line, needed) in GATED {
        let (command, needed) = (parse(&catalog, line), Level(needed));
        for level in [Level(1), Level(2), Level(3)] {
            match command.proven_at(level) {
                Ok(proven) => {
                    assert!(level >= needed, "{line} at level {level}");
                    assert_eq!(Command::decode(proven.as_bytes()), Ok(command.clone()));
                }
                Err(error) => assert_eq!(error, Unprovable::Early { needed, level }, "{line}"),
            }
        }
    }
}

/// What a program of level 1 does with the entries of level 2: it stops, and applies none of them as something else.
#[test]
fn what_is_of_a_later_level_has_a_format_that_earlier_programs_refuse() {
    const KNOWN_AT_LEVEL_1: &str = "{\"v\":4,";
    let catalog = made(&["bootstrap demo", "register m"]);
    for (line, _) in GATED.iter().filter(|(line, _)| !line.starts_with("raise")) {
        let encoded = String::from_utf8(parse(&catalog, line).encode()).unwrap();
        assert!(encoded.as_str() > KNOWN_AT_LEVEL_1 && !encoded.starts_with(KNOWN_AT_LEVEL_1), "{line}: {encoded}");
    }
    let raised = made(&["bootstrap demo", "register m", "raise 2 members=1"]);
    let stored = |catalog: &Catalog| {
        let puts = catalog.puts_since(&Catalog::default());
        String::from_utf8(puts.into_iter().find(|(key, _)| key == b"cluster").unwrap().1.unwrap()).unwrap()
    };
    assert!(stored(&catalog).starts_with("{\"format\":1,") && !stored(&catalog).contains("level"));
    assert!(stored(&raised).starts_with("{\"format\":4,") && stored(&raised).contains("\"level\":2"));
    assert_eq!(reloaded(&raised), Ok(raised));
}

#[test]
fn a_program_that_does_not_know_the_level_stops_at_the_entry_that_raises_it() {
    let raise = |level| Command::RaiseLevel { level: Level(level), members: vec![NodeId(1)] };
    let catalog = made(&["bootstrap demo", "register m"]);
    // It has joined since, with that program: the command is rejected by all.
    let rejected = evaluated(&made(&["bootstrap demo", "register m", "register n"]), Levels::FIRST, &raise(2));
    assert!(matches!(rejected, Ok(Outcome::Rejected { rejection: Rejection::Conflict, .. })));
    assert!(evaluated(&catalog, Levels::FIRST, &raise(2)).is_err());
    assert!(evaluated(&catalog, Levels::OWN, &raise(2)).is_ok());
    let raised = made(&["bootstrap demo", "register m", "raise 2 members=1", "update m node=1 levels=2-3"]);
    assert!(evaluated(&raised, Levels::OWN, &raise(3)).is_err());
    let evaluator = CatalogEvaluator::new(Catalog::default(), |_: &Arc<Catalog>| {}).knowing(Levels::FIRST);
    let stored = raised.puts_since(&Catalog::default()).into_iter().map(|(key, value)| (key, value.unwrap()));
    let refused = LoadError::OtherLevel { found: Level(2), known: Levels::FIRST };
    assert_eq!(evaluator.reload(stored), Err(refused));
}

/// The folder with the bytes of a level, which never change once a release knows it.
fn bytes_of(level: u32) -> std::path::PathBuf {
    diorite_golden::crate_folder().join(format!("testdata/level-{level}"))
}

/// The parts of a file; adds those of `fresh` that it lacks if that is asked for.
fn kept(level: u32, name: &str, separator: &str, fresh: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let path = bytes_of(level).join(name);
    let parts = |text: String| -> Vec<String> {
        text.split(separator).map(|part| part.trim_end().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let mut known = parts(std::fs::read_to_string(&path).unwrap_or_default());
        let missing: Vec<_> = fresh().into_iter().filter(|part| !known.contains(part)).collect();
        known.extend(missing);
        std::fs::create_dir_all(bytes_of(level)).unwrap();
        std::fs::write(&path, known.join(separator) + separator).unwrap();
    }
    parts(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The commands and the final catalogs of the golden scripts, and of what they lack.
fn scripted() -> (Vec<Command>, Vec<Catalog>) {
    let (mut commands, mut catalogs) = (Vec::new(), Vec::new());
    let folder = diorite_golden::crate_folder().join("src/catalog/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        let mut catalog = Catalog::default();
        for line in text.lines().filter_map(|line| line.strip_prefix("> ")).filter(|line| !line.starts_with("time")) {
            let command = parse(&catalog, line);
            catalog = catalog.apply(&command).0;
            commands.push(command);
        }
        catalogs.push(catalog);
    }
    for lines in access::histories() {
        commands.extend(lines.iter().cloned());
        catalogs.push(lines.iter().fold(Catalog::default(), |catalog, command| {
            let (next, outcome) = catalog.apply(command);
            assert!(!matches!(outcome, Outcome::Rejected { .. }), "{command:?}: {outcome:?}");
            next
        }));
    }
    (commands, catalogs)
}

kinds!(COMMANDS, command_kind(Command):
    Bootstrap, RequireLogin, RegisterNode, CreateJoinToken, RevokeJoinToken, Join, UpdateNode, ForgetDropped, Place,
    FinishMoves, BeginSplit, CommitSplit, CancelSplit, ServeSplit, BeginMerge, ServeMerge, CancelMerge,
    EndCancelledMerge, SetNodeState, AssignZone, SetLeading, RemoveNode, RaiseLevel, Set, CreateKeyspace, AlterKeyspace,
    DropKeyspace, CreateTable, AlterTable, DropTable, TruncateTable, CreateView, DropView, FinishCovering, CreateType,
    AlterType, DropType, Roles, SetCidrGroup, DropCidrGroup);
kinds!(SETTINGS, setting_kind(Setting):
    CopyRate, Balancing, ReplaceAfter, PreferredLeaderZones, SplitSize, SplitLoad, MergeSize);
kinds!(ROLE_COMMANDS, role_kind(RoleCommand): Create, Alter, Drop, AddMember, RemoveMember, Grant, Revoke);
kinds!(STATES, state_kind(NodeState): Active, Draining, Dead);

fn kinds_of(command: &Command) -> Vec<&'static str> {
    let within = match command {
        Command::Set { setting } => Some(setting_kind(setting)),
        Command::Roles { change } => Some(role_kind(change)),
        Command::SetNodeState { state, .. } => Some(state_kind(state)),
        _ => None,
    };
    within.into_iter().chain([command_kind(command)]).collect()
}

/// The first level whose programs know the encoded form.
fn level_of_form(command: &str) -> u32 {
    if command.starts_with("{\"v\":5,") || command.contains("\"raise_level\"") { 2 } else { 1 }
}

#[test]
fn commands_of_every_level_are_read_for_ever_and_written_as_before() {
    let mut kinds = BTreeSet::new();
    for level in [1, 2] {
        let commands = kept(level, "commands.txt", "\n", || {
            let all = scripted().0.into_iter().map(|command| String::from_utf8(command.encode()).unwrap());
            all.filter(|command| level_of_form(command) == level).collect::<BTreeSet<_>>().into_iter().collect()
        });
        for line in commands {
            let command = Command::decode(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(String::from_utf8(command.encode()).unwrap(), line);
            assert!(command.least_level() <= Level(level), "{line}");
            kinds.extend(kinds_of(&command));
        }
    }
    let all = [COMMANDS, SETTINGS, ROLE_COMMANDS, STATES].concat().into_iter().collect();
    assert_eq!(kinds, all, "a command without golden bytes");
}

/// What stands before the first slash of a stored key.
const KEYS: [&str; 10] =
    ["cidr_group", "cluster", "dropped", "join_token", "keyspace", "node", "role", "table", "tablet", "type"];

#[test]
fn stored_catalogs_of_every_level_are_read_for_ever_and_written_as_before() {
    let mut kinds = BTreeSet::new();
    for level in [1, 2] {
        let catalogs = kept(level, "keys.txt", "\n\n", || {
            // Some scripts do not care for levels.
            let is_early = |catalog: &Catalog| catalog.level().is_first() && catalog.cidr_groups().next().is_some();
            let catalogs = scripted().1.into_iter().filter(|catalog| !is_early(catalog));
            let catalogs = catalogs.filter(|catalog| catalog.level().0.min(2) == level);
            let line = |(key, value): (Vec<u8>, Option<Vec<u8>>)| {
                format!("{} = {}", String::from_utf8(key).unwrap(), String::from_utf8(value.unwrap()).unwrap())
            };
            let stored = |catalog: Catalog| catalog.puts_since(&Catalog::default()).into_iter().map(line);
            catalogs.map(|catalog| stored(catalog).collect::<Vec<_>>().join("\n")).collect()
        });
        for stored in catalogs {
            let entries: Vec<(&str, &str)> = stored.lines().map(|line| line.split_once(" = ").unwrap()).collect();
            let catalog = Catalog::load(entries.iter().copied()).unwrap();
            assert_eq!(catalog.level().0.min(2), level);
            let written = catalog.puts_since(&Catalog::default());
            let written: BTreeMap<String, String> = written
                .into_iter()
                .map(|(key, value)| (String::from_utf8(key).unwrap(), String::from_utf8(value.unwrap()).unwrap()))
                .collect();
            kinds.extend(written.keys().map(|key| key.split('/').next().unwrap().to_owned()));
            assert_eq!(written, entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
        }
    }
    assert_eq!(kinds.iter().collect::<Vec<_>>(), KEYS, "a key without golden bytes");
}
