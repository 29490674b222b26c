//! The level of the cluster.

use super::evaluator::evaluated;
use super::limits::reloaded;
use super::*;
use diorite_base::program::Unprovable;

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
const GATED: [(&str, u32); 5] = [
    ("raise 2 members=1", 1),
    ("raise 3 members=1", 2),
    ("register n levels=1-2", 2),
    ("update m node=1 levels=1-2", 2),
    ("join n token=t levels=1-2", 2),
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
    for (line, _) in GATED {
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
    assert!(evaluated(&catalog, Levels::FIRST, &raise(2)).is_err());
    assert!(evaluated(&catalog, Levels::OWN, &raise(2)).is_ok());
    assert!(evaluated(&catalog, Levels::OWN, &raise(3)).is_err());
    let raised = made(&["bootstrap demo", "register m", "raise 2 members=1"]);
    let evaluator = CatalogEvaluator::new(Catalog::default(), |_: &Arc<Catalog>| {}).knowing(Levels::FIRST);
    let stored = raised.puts_since(&Catalog::default()).into_iter().map(|(key, value)| (key, value.unwrap()));
    let refused = LoadError::OtherLevel { found: Level(2), known: Levels::FIRST };
    assert_eq!(evaluator.reload(stored), Err(refused));
}
