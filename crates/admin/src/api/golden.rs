//! The golden bytes of questions from node to node, and of the reasons of failures.

use super::{
    Ask, Change, CompactionOrder, ComparedUpTo, Failure, FailureKind, IndexId, LogChange, LogFilter, NodeQuestion,
    PartHere, ScrubOrder, TabletFilter, TabletOrder, TabletState, WantedCheck, WantedPart,
};
use diorite_base::{Hold, Level, Levels, NodeId, TableId, TabletId};
use diorite_golden::{Decoded, Golden, kinds};
use serde::Serialize;
use std::collections::BTreeMap;

kinds!(ASKS, ask_kind(Ask):
    Status, Nodes, Tables, Tablets, Table, Tablet, Replica, SetAside, Moves, Transactions, TransactionsHere, Indexes, Index,
    IndexesHere, CheckIndex, CheckIndexHere, LimitIndexes, LimitIndexesHere, RestartPlan, Recovery, Upgrade, AgreeToLevelHere, NoteHoldHere, History, Outline, Scrub, ScrubHere, Compaction, CompactionHere, Node, JoinTokens,
    CidrGroups, Change);
kinds!(CHANGES, change_kind(Change):
    FinishUpgrade, HoldUpgrade, ResumeUpgrade, Drain, Undrain, Remove, Replace, MoveLeaders, SetZone, Split, Merge, CancelSplit,
    CancelMerge, SetRate, SetBalancing, SetReplaceAfter, SetSplitSize, SetSplitLoad, SetMergeSize, SetLeaderZones,
    CreateJoinToken, RevokeJoinToken, SetCidrGroup, DropCidrGroup, RequireLogin);
kinds!(SCRUBS, scrub_kind(ScrubOrder): Look, Begin, Stop);
kinds!(COMPACTIONS, compaction_kind(CompactionOrder): Look, Begin, Limit);
kinds!(QUESTIONS, question_kind(NodeQuestion): History, Queries, Memory, Logs, Configuration, Logging, Cancel, Trace);
kinds!(ORDERS, order_kind(TabletOrder): Tablet, Table, FirstToken, Bytes, SstFiles, Leader, State);
kinds!(STATES, state_kind(TabletState): Ok, Moving, UnderReplicated, Leaderless, Unavailable);
kinds!(FAILURES, failure_kind(FailureKind):
    NotFound, Unauthenticated, Forbidden, Refused, Invalid, Unavailable, NotBegun);

fn changes() -> Vec<Change> {
    let (node, tablet) = (NodeId(2), TabletId(1_000));
    vec![
        Change::FinishUpgrade,
        Change::HoldUpgrade,
        Change::ResumeUpgrade,
        Change::Drain { node },
        Change::Undrain { node },
        Change::Remove { node },
        Change::Replace { node },
        Change::MoveLeaders { node, back: true },
        Change::SetZone { node, zone: Some("z".to_owned()) },
        Change::SetZone { node, zone: None },
        Change::Split { tablet },
        Change::Merge { tablet, into: Some(TabletId(1_001)) },
        Change::Merge { tablet, into: None },
        Change::CancelSplit { tablet },
        Change::CancelMerge { tablet },
        Change::SetRate { bytes_per_second: 300 },
        Change::SetBalancing { is_paused: true },
        Change::SetReplaceAfter { milliseconds: 300 },
        Change::SetSplitSize { bytes: 300 },
        Change::SetSplitLoad { operations_per_second: 300 },
        Change::SetMergeSize { bytes: 300 },
        Change::SetLeaderZones { zones: vec!["z".to_owned()] },
        Change::CreateJoinToken { lifetime_ms: 300, nodes: 3 },
        Change::RevokeJoinToken { id: "0123456789abcdef".to_owned() },
        Change::SetCidrGroup { name: "office".to_owned(), cidrs: vec!["10.0.0.0/8".to_owned()] },
        Change::DropCidrGroup { name: "office".to_owned() },
        Change::RequireLogin { required: true },
    ]
}

fn filters() -> Vec<TabletFilter> {
    let full = TabletFilter {
        keyspace: Some("ks".to_owned()),
        table: Some("t".to_owned()),
        node: Some(1),
        tablet: Some(1_000),
        leader: Some(2),
        search: Some("10".to_owned()),
        state: Some(TabletState::Ok),
        after: Some(999),
        skip: Some(3),
        limit: Some(10),
        sort: TabletOrder::Tablet,
        descending: true,
    };
    let orders = [
        TabletOrder::Tablet,
        TabletOrder::Table,
        TabletOrder::FirstToken,
        TabletOrder::Bytes,
        TabletOrder::SstFiles,
        TabletOrder::Leader,
        TabletOrder::State,
    ];
    let states = [TabletState::Moving, TabletState::UnderReplicated, TabletState::Leaderless, TabletState::Unavailable];
    let sorted = orders.map(|sort| TabletFilter { sort, ..TabletFilter::default() });
    let in_state = states.map(|state| TabletFilter { state: Some(state), ..TabletFilter::default() });
    sorted.into_iter().chain(in_state).chain([full]).collect()
}

fn asks() -> Vec<Ask> {
    let (tablet, node, level) = (TabletId(1_000), Some(NodeId(2)), Level(2));
    let (keyspace, name) = ("ks".to_owned(), "t".to_owned());
    let of = IndexId { table: TableId(5), index: 7 };
    let from = ComparedUpTo { first_token: -1, tablet, place: Some("entries:00".to_owned()) };
    let part = WantedPart { tablet: Some(tablet), from: Some(from) };
    let check = |part| WantedCheck { keyspace: "ks".to_owned(), name: "t_by_v".to_owned(), part };
    let mut asks = vec![
        Ask::Status,
        Ask::Nodes,
        Ask::Tables,
        Ask::Table { keyspace, name },
        Ask::Tablet { tablet },
        Ask::Replica { tablet },
        Ask::SetAside,
        Ask::Moves,
        Ask::RestartPlan { elapsed_ms: 300 },
        Ask::Recovery,
        Ask::Upgrade,
        Ask::AgreeToLevelHere { level, overruled: 3 },
        Ask::NoteHoldHere(Hold { level, number: 3, is_held: true }),
        Ask::History,
        Ask::Outline,
        Ask::JoinTokens,
        Ask::CidrGroups,
        Ask::Transactions,
        Ask::TransactionsHere,
        Ask::Indexes,
        Ask::Index { keyspace: "ks".to_owned(), name: "t_by_v".to_owned() },
        Ask::IndexesHere { of: None },
        Ask::CheckIndex(check(WantedPart::default())),
        Ask::CheckIndex(check(part)),
        Ask::CheckIndexHere(PartHere { of, tablet, place: None }),
        Ask::CheckIndexHere(PartHere { of, tablet, place: Some("rows:0000000000000001".to_owned()) }),
        Ask::LimitIndexes { rate_bytes: 300 },
        Ask::LimitIndexesHere { rate_bytes: 300 },
        Ask::IndexesHere { of: Some(of) },
    ];
    asks.extend([ScrubOrder::Look, ScrubOrder::Begin { rate_bytes: 300 }, ScrubOrder::Stop].map(Ask::Scrub));
    asks.push(Ask::ScrubHere(ScrubOrder::Look));
    let orders = [CompactionOrder::Look, CompactionOrder::Begin, CompactionOrder::Limit { rate_bytes: 300 }];
    asks.extend(orders.map(Ask::Compaction));
    asks.push(Ask::CompactionHere(CompactionOrder::Look));
    let questions = [
        NodeQuestion::History,
        NodeQuestion::Queries,
        NodeQuestion::Memory,
        NodeQuestion::Logs(LogFilter { level: Some("warn".to_owned()), limit: Some(5) }),
        NodeQuestion::Configuration,
        NodeQuestion::Logging(LogChange { levels: Some("debug".to_owned()), slow_query: Some("off".to_owned()) }),
        NodeQuestion::Cancel { number: 7 },
        NodeQuestion::Trace { session: "50554d6e-29bb-11e5-b345-d10000000002".to_owned() },
    ];
    asks.extend(questions.map(|question| Ask::Node { node, question }));
    asks.push(Ask::Node { node: None, question: NodeQuestion::History });
    asks.extend(filters().into_iter().map(Ask::Tablets));
    asks.extend(changes().into_iter().map(Ask::Change));
    asks
}

fn kinds_of(ask: &Ask) -> Vec<&'static str> {
    let mut kinds = vec![ask_kind(ask)];
    match ask {
        Ask::Change(change) => kinds.push(change_kind(change)),
        Ask::Scrub(order) | Ask::ScrubHere(order) => kinds.push(scrub_kind(order)),
        Ask::Compaction(order) | Ask::CompactionHere(order) => kinds.push(compaction_kind(order)),
        Ask::Node { question, .. } => kinds.push(question_kind(question)),
        Ask::Tablets(filter) => {
            kinds.push(order_kind(&filter.sort));
            kinds.extend(filter.state.as_ref().map(state_kind));
        }
        _ => {}
    }
    kinds
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("string keys")
}

/// Each with a name: its variants, and a number if others have the same.
fn named(asks: &[Ask]) -> Vec<(String, Vec<u8>)> {
    let mut counts = BTreeMap::<_, u32>::new();
    let mut name = |ask: &Ask| {
        let kinds = kinds_of(ask).join(" ");
        let count = counts.entry(kinds.clone()).or_default();
        *count += 1;
        if *count == 1 { kinds } else { format!("{kinds} {count}") }
    };
    asks.iter().map(|ask| (name(ask), json(ask))).collect()
}

/// Programs of level 1 know the questions in the file of that level and no others: these may be asked on any
/// connection.
#[test]
fn questions_have_their_bytes() {
    for level in (Levels::OWN.least.0..=Levels::OWN.greatest.0).map(Level) {
        let asks: Vec<Ask> = asks().into_iter().filter(|ask| ask.least_level() <= level).collect();
        let is_later = |kind: &&str| match level {
            Level::FIRST => LATER.contains(kind),
            _ => false,
        };
        let kinds = [ASKS, CHANGES, SCRUBS, COMPACTIONS, QUESTIONS, ORDERS, STATES].concat();
        let known: Vec<&str> = kinds.into_iter().filter(|kind| !is_later(kind)).collect();
        let written = named(&asks);
        let written: Vec<_> = written.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
        Golden { level: level.0, format: "questions", kinds: &[&known] }.check(&written, |_, bytes| {
            let ask: Ask = serde_json::from_slice(bytes).expect("a question");
            assert!(ask.least_level() <= level, "programs of level {level} do not know {ask:?}");
            Decoded { kinds: kinds_of(&ask), shown: format!("{ask:?}"), encoded: Some(json(&ask)) }
        });
    }
}

/// What level 2 has added.
const LATER: &[&str] = &[
    "Ask::Upgrade",
    "Ask::AgreeToLevelHere",
    "Ask::NoteHoldHere",
    "Ask::CidrGroups",
    "Ask::Transactions",
    "Ask::TransactionsHere",
    "Ask::Indexes",
    "Ask::Index",
    "Ask::IndexesHere",
    "Ask::CheckIndex",
    "Ask::CheckIndexHere",
    "Ask::LimitIndexes",
    "Ask::LimitIndexesHere",
    "Change::FinishUpgrade",
    "Change::HoldUpgrade",
    "Change::ResumeUpgrade",
    "Change::SetCidrGroup",
    "Change::DropCidrGroup",
    // Until then it could not be written: a request of another node could not be cancelled.
    "NodeQuestion::Cancel",
    "NodeQuestion::Trace",
];

#[test]
fn failures_have_their_bytes() {
    let kinds = [
        ("not found", FailureKind::NotFound),
        ("unauthenticated", FailureKind::Unauthenticated),
        ("forbidden", FailureKind::Forbidden),
        ("refused", FailureKind::Refused),
        ("invalid", FailureKind::Invalid),
        ("unavailable", FailureKind::Unavailable),
        ("not begun", FailureKind::NotBegun),
    ];
    let written = kinds.map(|(name, kind)| (name, json(&Failure::new(kind, "no"))));
    Golden { level: Levels::OWN.greatest.0, format: "failures", kinds: &[FAILURES] }.check(&written, |_, bytes| {
        let failure: Failure = serde_json::from_slice(bytes).expect("a failure");
        Decoded {
            kinds: vec![failure_kind(&failure.kind)],
            shown: format!("{failure:?}"),
            encoded: Some(json(&failure)),
        }
    });
}
