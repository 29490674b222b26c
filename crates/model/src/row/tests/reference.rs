//! A deliberately naive model of rows: it keeps everything ever written and resolves it when it is read.

use crate::row::{Deletion, Expiry, Marker, RowWriter};
use crate::schema::ColumnId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The content of one cell or marker of a test row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Held {
    Value(Vec<u8>, Option<Expiry>),
    Tombstone(u32),
}

type Written = (i64, Held);
type Elements = BTreeMap<Vec<u8>, Written>;

/// One row as it is written.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub base_us: i64,
    pub marker: Option<Marker>,
    pub deletion: Option<Deletion>,
    simple: BTreeMap<ColumnId, Written>,
    complex: BTreeMap<ColumnId, (Option<Deletion>, Elements)>,
}

impl Input {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = RowWriter::new(&mut out, self.base_us);
        if let Some(marker) = self.marker {
            writer.marker(marker);
        }
        if let Some(deletion) = self.deletion {
            writer.deletion(deletion);
        }
        for (column, (timestamp_us, held)) in &self.simple {
            match held {
                Held::Value(value, expiry) => writer.cell(*column, *timestamp_us, *expiry, value),
                Held::Tombstone(local_s) => {
                    writer.tombstone(*column, Deletion { timestamp_us: *timestamp_us, local_s: *local_s });
                }
            }
        }
        for (column, (deletion, elements)) in &self.complex {
            writer.begin_complex(*column, *deletion);
            for (path, (timestamp_us, held)) in elements {
                match held {
                    Held::Value(value, expiry) => writer.element(path, *timestamp_us, *expiry, value),
                    Held::Tombstone(local_s) => {
                        let deletion = Deletion { timestamp_us: *timestamp_us, local_s: *local_s };
                        writer.element_tombstone(path, deletion);
                    }
                }
            }
            writer.end_complex();
        }
        out
    }

    pub fn is_plain(&self) -> bool {
        self.deletion.is_none()
            && self.columns() == self.simple.len()
            && self.marker.is_none_or(|marker| marker.expiry.is_none())
            && self.simple.values().all(|(_, held)| matches!(held, Held::Value(_, None)))
    }

    pub fn is_empty(&self) -> bool {
        self.columns() == 0 && self.marker.is_none() && self.deletion.is_none()
    }

    /// How many columns are stored: one without deletion and elements is not.
    pub fn columns(&self) -> usize {
        let stored = self.complex.values().filter(|(deletion, elements)| deletion.is_some() || !elements.is_empty());
        self.simple.len() + stored.count()
    }

    /// Moves the base, and all timestamps at it or (complex deletions) just before it.
    pub fn move_base(&mut self, to: i64) {
        let from = self.base_us;
        let moved = |timestamp_us: &mut i64| {
            if *timestamp_us == from {
                *timestamp_us = to;
            }
        };
        let moved_deletion = |deletion: &mut Deletion| {
            if deletion.timestamp_us == from - 1 {
                deletion.timestamp_us = to.wrapping_sub(1);
            } else {
                moved(&mut deletion.timestamp_us);
            }
        };
        self.base_us = to;
        self.marker.iter_mut().for_each(|marker| moved(&mut marker.timestamp_us));
        self.deletion.iter_mut().for_each(moved_deletion);
        self.simple.values_mut().for_each(|(timestamp_us, _)| moved(timestamp_us));
        for (deletion, elements) in self.complex.values_mut() {
            deletion.iter_mut().for_each(moved_deletion);
            elements.values_mut().for_each(|(timestamp_us, _)| moved(timestamp_us));
        }
    }
}

/// The place of a live value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Simple(ColumnId),
    Element(ColumnId, Vec<u8>),
}

/// The view of a reader.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct View {
    pub marker: bool,
    pub cells: Vec<(Place, i64, Option<Expiry>, Vec<u8>)>,
}

/// The rules one after the other: whether `a` beats `b`.
fn beats(a: &Written, b: &Written) -> bool {
    if a.0 != b.0 {
        return a.0 > b.0;
    }
    match (&a.1, &b.1) {
        (Held::Tombstone(a), Held::Tombstone(b)) => a > b,
        (Held::Tombstone(_), Held::Value(..)) => true,
        (Held::Value(..), Held::Tombstone(_)) => false,
        (Held::Value(_, Some(_)), Held::Value(_, None)) => true,
        (Held::Value(_, None), Held::Value(_, Some(_))) => false,
        (Held::Value(a, Some(a_expiry)), Held::Value(b, Some(b_expiry))) => {
            if a_expiry.at_s != b_expiry.at_s {
                a_expiry.at_s > b_expiry.at_s
            } else if a_expiry.ttl_s != b_expiry.ttl_s {
                a_expiry.ttl_s < b_expiry.ttl_s
            } else {
                a > b
            }
        }
        (Held::Value(a, None), Held::Value(b, None)) => a > b,
    }
}

fn best<'a>(history: impl Iterator<Item = &'a Written>) -> Option<&'a Written> {
    history.fold(None, |best, one| match best {
        Some(best) if !beats(one, best) => Some(best),
        _ => Some(one),
    })
}

/// The view that a reader has of a history of rows.
pub(super) fn visible(history: &[Input], now_s: u32, deleted_us: i64) -> View {
    let row_us = history.iter().filter_map(|row| row.deletion).map(|deletion| deletion.timestamp_us).max();
    let row_us = row_us.unwrap_or(i64::MIN).max(deleted_us);
    let mut places: BTreeSet<Place> = BTreeSet::new();
    for row in history {
        places.extend(row.simple.keys().map(|column| Place::Simple(*column)));
        for (column, (_, elements)) in &row.complex {
            places.extend(elements.keys().map(|path| Place::Element(*column, path.clone())));
        }
    }
    let mut cells = Vec::new();
    for place in places {
        let (winner, shadow_us) = match &place {
            Place::Simple(column) => (best(history.iter().filter_map(|row| row.simple.get(column))), row_us),
            Place::Element(column, path) => {
                let columns = || history.iter().filter_map(|row| row.complex.get(column));
                let deletions = columns().filter_map(|(deletion, _)| *deletion);
                let shadow_us = deletions.map(|deletion| deletion.timestamp_us).max().unwrap_or(i64::MIN).max(row_us);
                (best(columns().filter_map(|(_, elements)| elements.get(path))), shadow_us)
            }
        };
        if let Some((timestamp_us, Held::Value(value, expiry))) = winner
            && *timestamp_us > shadow_us
            && expiry.is_none_or(|expiry| now_s < expiry.at_s)
        {
            cells.push((place, *timestamp_us, *expiry, value.clone()));
        }
    }
    View { marker: marker_is_live(history, now_s, row_us), cells }
}

fn marker_is_live(history: &[Input], now_s: u32, row_us: i64) -> bool {
    let mut best: Option<Marker> = None;
    for marker in history.iter().filter_map(|row| row.marker) {
        let supersedes = best.is_none_or(|best| match (marker.expiry, best.expiry) {
            _ if marker.timestamp_us != best.timestamp_us => marker.timestamp_us > best.timestamp_us,
            (Some(one), Some(other)) => one.at_s > other.at_s,
            (one, other) => one.is_some() && other.is_none(),
        });
        if supersedes {
            best = Some(marker);
        }
    }
    best.is_some_and(|marker| marker.timestamp_us > row_us && marker.expiry.is_none_or(|expiry| now_s < expiry.at_s))
}

fn expiry() -> impl Strategy<Value = Expiry> {
    (1u32..5, 5u32..12).prop_map(|(ttl_s, at_s)| Expiry { ttl_s, at_s })
}

fn held() -> impl Strategy<Value = Held> {
    let value = || prop::sample::select(vec![b"".to_vec(), b"a".to_vec(), b"b".to_vec()]);
    prop_oneof![
        3 => value().prop_map(|value| Held::Value(value, None)),
        2 => (value(), expiry()).prop_map(|(value, expiry)| Held::Value(value, Some(expiry))),
        2 => (0u32..10).prop_map(Held::Tombstone),
    ]
}

/// A row with few distinct timestamps, so that ties are common.
pub(super) fn input(step: i64, offset: i64) -> impl Strategy<Value = Input> {
    let stamp = move || (1i64..6).prop_map(move |at| at * step + offset);
    let deletion = move || (stamp(), 0u32..10).prop_map(|(timestamp_us, local_s)| Deletion { timestamp_us, local_s });
    let marker = (stamp(), prop::option::of(expiry()));
    let marker = marker.prop_map(|(timestamp_us, expiry)| Marker { timestamp_us, expiry });
    let simple = prop::collection::btree_map(0u32..3, (stamp(), held()), 0..3);
    let path = prop::collection::vec(0u8..3, 1..3);
    let elements = prop::collection::btree_map(path, (stamp(), held()), 0..3);
    let rarely = |one| prop::option::weighted(0.3, one);
    let complex = prop::collection::btree_map(200u32..202, (rarely(deletion()), elements), 0..3);
    (stamp(), prop::option::of(marker), prop::option::weighted(0.3, deletion()), simple, complex)
        .prop_map(|(base_us, marker, deletion, simple, complex)| Input { base_us, marker, deletion, simple, complex })
}
