//! The golden bytes of outcomes.

use super::*;
use diorite_golden::{Decoded, Golden, kinds};

kinds!(OUTCOMES, outcome_kind(Outcome): Applied, Registered, Unchanged, Rejected);
kinds!(REJECTIONS, rejection_kind(Rejection):
    AlreadyExists, NoSuchKeyspace, NoSuchTable, NoSuchType, NoSuchNode, NoSuchToken, NoSuchCidrGroup, Conflict, InUse,
    Invalid);

#[test]
fn outcomes_have_their_bytes() {
    let rejections = [
        ("already exists", Rejection::AlreadyExists),
        ("no such keyspace", Rejection::NoSuchKeyspace),
        ("no such table", Rejection::NoSuchTable),
        ("no such type", Rejection::NoSuchType),
        ("no such node", Rejection::NoSuchNode),
        ("no such token", Rejection::NoSuchToken),
        ("conflict", Rejection::Conflict),
        ("in use", Rejection::InUse),
        ("invalid", Rejection::Invalid),
        // Of level 2.
        ("no such group of networks", Rejection::NoSuchCidrGroup),
    ];
    let rejected = |rejection| Outcome::Rejected { version: 7, rejection, message: "why".to_owned() };
    let mut written = vec![
        ("applied", Outcome::Applied { version: 7 }),
        ("registered", Outcome::Registered { node: NodeId(3), version: 7 }),
        ("unchanged", Outcome::Unchanged { version: 7 }),
    ];
    written.extend(rejections.map(|(name, rejection)| (name, rejected(rejection))));
    let written: Vec<_> = written.into_iter().map(|(name, outcome)| (name, outcome.encode())).collect();
    let golden = Golden { level: Levels::OWN.greatest.0, format: "outcomes", kinds: &[OUTCOMES, REJECTIONS] };
    golden.check(&written, |_, bytes| {
        let outcome = Outcome::decode(bytes).unwrap();
        let mut kinds = vec![outcome_kind(&outcome)];
        if let Outcome::Rejected { rejection, .. } = &outcome {
            kinds.push(rejection_kind(rejection));
        }
        Decoded { kinds, shown: format!("{outcome:?}"), encoded: Some(outcome.encode()) }
    });
}
