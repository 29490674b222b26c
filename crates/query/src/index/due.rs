//! What a tablet lacks of the indexes of its table.
//!
//! Always true: what is due follows from the table's definition and from what the tablet stores. An index that the
//! definition does not have is dropped only if the definition is not older than the index. So a node that serves an
//! older definition drops nothing that a newer one has; at worst it defines again what was dropped, until a node with
//! the newer definition leads. Left out: when to look, and how fast to go on (the node).

use super::specification::{Compared, Dependent, Specification};
use super::step::IndexStep;
use diorite_base::row_index::FIRST_ROW_KEY;
use diorite_model::schema::Table;

/// The next thing to do in a tablet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Propose a step.
    Step(IndexStep),
    /// Index the rows from this key on.
    Build {
        /// The index.
        index: u64,
        /// The first key.
        from: Vec<u8>,
    },
    /// Compare the rows from this key on with what a dependent says of them, and propose [`IndexStep::Compare`].
    Compare {
        /// The unique index or the materialized view.
        index: u64,
        /// The round of the comparison.
        round: u64,
        /// The first key.
        from: Vec<u8>,
    },
}

/// The next thing to do, if there is something; `stored`: the tablet's specifications.
pub fn due(table: &Table, stored: &[(u64, Specification)]) -> Option<Due> {
    let is_wanted = |id: u64| table.maintained().any(|(known, _)| known == id);
    let gone = stored.iter().find(|(id, _)| !is_wanted(*id) && *id <= table.version);
    if let Some((index, _)) = gone {
        return Some(Due::Step(IndexStep::Drop { index: *index }));
    }
    let of = |id: u64| stored.iter().find(|(known, _)| *known == id).map(|(_, specification)| specification);
    let indexes = table.indexes.iter().filter(|index| of(index.id).is_none());
    let indexes = indexes.filter_map(|index| Some((index.id, Specification::of(table, index)?)));
    let views = table.views.iter();
    let views = views.filter(|view| of(view.id).is_none_or(|known| known.columns_since() < view.columns_since));
    let views = views.map(|view| (view.id, Specification::of_view(table, view)));
    // Writes that maintain a view wait until the tablet knows it.
    if let Some((index, specification)) = views.chain(indexes).next() {
        return Some(Due::Step(IndexStep::Define { index, definition: specification.definition() }));
    }
    let built = table.indexes.iter().find_map(|index| {
        let from = of(index.id)?.progress.next()?;
        Some(Due::Build { index: index.id, from: from.to_vec() })
    });
    // A view with columns of which this definition does not know is compared by those who know them.
    let is_newer = |id: u64| {
        let of_table = table.views.iter().find(|view| view.id == id);
        of_table.zip(of(id)).is_some_and(|(view, known)| known.columns_since() > view.columns_since)
    };
    built.or_else(|| {
        table.maintained().filter(|(index, _)| !is_newer(*index)).find_map(|(index, _)| {
            let Dependent { round, compared, .. } = of(index)?.dependent.as_ref()?;
            let round = *round;
            match compared {
                Compared::Nothing => {
                    let (from, to) = (Compared::Nothing, Compared::Before(FIRST_ROW_KEY.to_vec()));
                    Some(Due::Step(IndexStep::Compare { index, round, from, to }))
                }
                Compared::Before(from) => Some(Due::Compare { index, round, from: from.clone() }),
                Compared::All | Compared::Failed(_) => None,
            }
        })
    })
}
