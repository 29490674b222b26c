//! The golden bytes of steps of indexes, and of what a tablet stores about an index.

use super::golden;
use crate::index::{Compared, Dependent, IndexReply, IndexStep, Progress, Specification};
use diorite_base::program::LoggedProgram;
use diorite_golden::{Decoded, kinds};
use diorite_model::index::Indexed;
use diorite_model::json::place::PathStep;
use diorite_model::schema::{ColumnKind, IndexTarget, Order};
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

kinds!(STEPS, step_kind(IndexStep): Define, Build, Remove, Drop, Compare);
kinds!(REPLIES, reply_kind(IndexReply): Done, Overtaken);
kinds!(INDEXED, indexed_kind(Indexed): Cell, Place, Partition, Clustering, Nothing);
kinds!(TARGETS, target_kind(IndexTarget): Value, Values, Keys, Entries, Full);
kinds!(PROGRESS, progress_kind(Progress): Before, Within, Complete);
kinds!(COMPARED, compared_kind(Compared): Nothing, Before, All, Failed);

fn specification(indexed: Indexed, progress: Progress) -> Specification {
    let key = vec![
        (CqlType::Int, ColumnKind::PartitionKey),
        (CqlType::Text, ColumnKind::PartitionKey),
        (CqlType::Bigint, ColumnKind::Clustering(Order::Asc)),
        (CqlType::Uuid, ColumnKind::Clustering(Order::Desc)),
    ];
    Specification { key, indexed, progress, dependent: None }
}

fn failed() -> Compared {
    Compared::Failed("two rows".to_owned())
}

fn unique(compared: Compared) -> Specification {
    let dependent =
        Some(Dependent { columns: vec![300, 7], follows_rows: false, columns_since: 0, round: 300, compared });
    Specification { dependent, ..specification(cell(false, IndexTarget::Value), Progress::Complete) }
}

fn view(follows_rows: bool, compared: Compared) -> Specification {
    view_since(0, follows_rows, compared)
}

fn view_since(columns_since: u64, follows_rows: bool, compared: Compared) -> Specification {
    let columns = if follows_rows { vec![] } else { vec![7, 300] };
    let dependent = Some(Dependent { columns, follows_rows, columns_since, round: 300, compared });
    Specification { dependent, ..specification(Indexed::Nothing, Progress::Complete) }
}

fn cell(is_static: bool, target: IndexTarget) -> Indexed {
    let data_type = CqlType::Map(Arc::new(CqlType::Text), Arc::new(CqlType::Int), Frozen::No);
    Indexed::Cell { column: 300, is_static, data_type, target }
}

fn place() -> Indexed {
    let path = vec![PathStep::Member("name".to_owned()), PathStep::Element(258)];
    Indexed::Place { column: 300, is_static: true, path }
}

#[test]
fn steps_have_their_bytes() {
    let definition = specification(cell(true, IndexTarget::Keys), Progress::Complete).definition();
    let of_view = view(true, Compared::Nothing).definition();
    let of_extended = view_since(300, false, Compared::Nothing).definition();
    let (from, to) = (b"from".to_vec(), b"to".to_vec());
    let steps = [
        ("define", IndexStep::Define { index: 300, definition }),
        ("define a view", IndexStep::Define { index: 300, definition: of_view }),
        ("define the columns of a view", IndexStep::Define { index: 300, definition: of_extended }),
        ("build", IndexStep::Build { index: 300, from, to, is_last: true }),
        ("remove", IndexStep::Remove { index: 300, entries: vec![b"one".to_vec(), b"two".to_vec()] }),
        ("drop", IndexStep::Drop { index: 300 }),
        (
            "compare the first",
            IndexStep::Compare { index: 300, round: 0, from: Compared::Nothing, to: Compared::Before(b"row".to_vec()) },
        ),
        (
            "compare the last",
            IndexStep::Compare { index: 300, round: 300, from: Compared::Before(vec![]), to: Compared::All },
        ),
        ("compare in vain", IndexStep::Compare { index: 300, round: 7, from: Compared::All, to: failed() }),
    ];
    golden("index-steps", &[STEPS]).check(&steps.map(|(name, step)| (name, step.encode())), |_, bytes| {
        let step = IndexStep::decode(bytes).unwrap();
        Decoded { kinds: vec![step_kind(&step)], shown: format!("{step:?}"), encoded: Some(step.encode()) }
    });
    let replies = [("done", IndexReply::Done), ("overtaken", IndexReply::Overtaken)];
    golden("index-replies", &[REPLIES]).check(&replies.map(|(name, reply)| (name, reply.encode())), |_, bytes| {
        let reply = IndexReply::decode(bytes).unwrap();
        Decoded { kinds: vec![reply_kind(&reply)], shown: format!("{reply:?}"), encoded: Some(reply.encode()) }
    });
}

#[test]
fn specifications_have_their_bytes() {
    let before = || Progress::Before(b"row".to_vec());
    let stored = [
        ("value", specification(cell(false, IndexTarget::Value), before())),
        ("values", specification(cell(false, IndexTarget::Values), Progress::Complete)),
        ("keys of a static column", specification(cell(true, IndexTarget::Keys), before())),
        ("entries", specification(cell(false, IndexTarget::Entries), before())),
        ("full", specification(cell(false, IndexTarget::Full), before())),
        ("partition", specification(Indexed::Partition(1, CqlType::Text), before())),
        (
            "within a row",
            specification(
                cell(false, IndexTarget::Keys),
                Progress::Within { row: b"row".to_vec(), path: b"path".to_vec() },
            ),
        ),
        ("place", specification(place(), before())),
        ("clustering", specification(Indexed::Clustering(1, CqlType::Uuid), Progress::Complete)),
    ];
    let dependents = [
        ("view", view(false, Compared::All)),
        ("view that follows rows", view(true, Compared::Nothing)),
        ("view that has got columns", view_since(300, false, Compared::All)),
        ("unique, nothing is compared", unique(Compared::Nothing)),
        ("unique, some rows are compared", unique(Compared::Before(b"row".to_vec()))),
        ("unique", unique(Compared::All)),
        ("not unique", unique(failed())),
    ];
    let written: Vec<_> = stored.into_iter().chain(dependents).map(|(name, stored)| (name, stored.encode())).collect();
    golden("index-specifications", &[INDEXED, TARGETS, PROGRESS, COMPARED]).check(&written, |_, bytes| {
        let stored = Specification::decode(bytes).unwrap();
        let mut kinds = vec![indexed_kind(&stored.indexed), progress_kind(&stored.progress)];
        if let Indexed::Cell { target, .. } = &stored.indexed {
            kinds.push(target_kind(target));
        }
        kinds.extend(stored.dependent.iter().map(|dependent| compared_kind(&dependent.compared)));
        // As specifications were shown before there were unique ones, before there were views, and before these got columns.
        let shown = format!("{stored:?}").replace(", dependent: None", "").replace(", columns_since: 0", "");
        let shown = match stored.is_of_view() {
            true => shown,
            false => shown.replace("dependent: Some(Dependent {", "unique: Some(UniqueColumns {"),
        };
        let shown = shown.replace(", follows_rows: false", "");
        Decoded { kinds, shown, encoded: Some(stored.encode()) }
    });
}
