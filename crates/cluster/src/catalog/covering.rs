//! Transitions of covering indexes: their hidden views are made, become ready, fail, and are removed.
//!
//! Always true: the hidden view of an index is made with it, as a table without a name; what has been ready is never built
//! again. An index whose view readers may use leaves a retired view behind when it is dropped: writes maintain it until
//! it is removed by a command of its own, which is proposed once every node serves the definition without the index. So
//! nobody reads a view that is not maintained any more. Left out: which indexes are covering, and when rows have been
//! compared (the `query` crate).

use super::command::CoveringOutcome;
use super::outcome::Rejection;
use super::placement::add_tablets;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use super::tables::{check_types, remove_table, replace_table};
use diorite_base::TableId;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_model::schema::{Covering, CoveringState, Index, Table, TableEntry};
use std::sync::Arc;

fn covering_of(index: &mut Index) -> Option<&mut Covering> {
    index.covering.as_deref_mut()
}

/// Gives a changed definition the hidden views that its indexes ask for, and removes those that nobody may read. Which
/// view an index has, and in which state, is not the command's to say.
pub(super) fn follow(catalog: &mut Catalog, entry: &TableEntry, changed: &mut Table) -> Result<(), Rejected> {
    for index in &mut changed.indexes {
        if let Some(before) = entry.table.indexes.iter().find(|before| before.id == index.id) {
            index.covering.clone_from(&before.covering);
        }
    }
    let is_kept = |id: u64| changed.indexes.iter().any(|index| index.id == id);
    let unread = entry.table.hidden_views().filter_map(|(view, of)| {
        let (index, covering) = of?;
        (!is_kept(index.id) && !covering.is_ready()).then_some(view.table)
    });
    for table in unread.collect::<Vec<_>>() {
        remove_view(catalog, changed, table);
    }
    let known = |index: &Index| entry.table.indexes.iter().any(|before| before.id == index.id);
    let fresh: Vec<Index> =
        changed.indexes.iter().filter(|index| index.covering.is_some() && !known(index)).cloned().collect();
    for index in fresh {
        add_view(catalog, entry, changed, &index)?;
    }
    Ok(())
}

fn add_view(catalog: &mut Catalog, entry: &TableEntry, changed: &mut Table, index: &Index) -> Result<(), Rejected> {
    // The numbers of indexes and views are versions of their table, and none is used twice.
    let number = changed.version + 1;
    let id = TableId(catalog.identity.next_table);
    let Some((table, view)) = changed.covering_view(index, id, number) else {
        let message = format!("the covering index {} is of columns that cannot be in it", index.name);
        return Err(Rejected(Rejection::Invalid, message));
    };
    check_types(catalog, &table)?;
    catalog.identity.next_table += 1;
    catalog.toggle_digest(&table);
    let tablets = u32::try_from(entry.tablets.len()).unwrap_or(MAX_TABLETS_PER_TABLE);
    add_tablets(catalog, Arc::new(table), tablets, tablets);
    changed.version = number;
    changed.views.push(view);
    let of_index = changed.indexes.iter_mut().filter(|known| known.id == index.id);
    for covering in of_index.filter_map(covering_of) {
        (covering.view, covering.state) = (number, CoveringState::Building);
    }
    Ok(())
}

fn remove_view(catalog: &mut Catalog, changed: &mut Table, table: TableId) {
    changed.views.retain(|of| of.table != table);
    if let Some(view) = catalog.tables.get(&table).cloned() {
        remove_table(catalog, &view);
    }
}

/// What becomes of a hidden view. A repeated command changes nothing.
pub(super) fn finish(catalog: &mut Catalog, table: TableId, view: u64, outcome: &CoveringOutcome) -> Step {
    let Some(entry) = catalog.tables.get(&table).cloned() else { return Ok(Done::Nothing) };
    let found = entry.table.hidden_views().find(|(of, _)| of.id == view);
    let Some((of, index)) = found else { return Ok(Done::Nothing) };
    let mut changed = Table { version: entry.table.version + 1, ..Table::clone(&entry.table) };
    match (outcome, index) {
        (CoveringOutcome::Removed, None) => remove_view(catalog, &mut changed, of.table),
        (CoveringOutcome::Ready | CoveringOutcome::Failed(_), Some((index, covering)))
            if covering.state == CoveringState::Building =>
        {
            let state = match outcome {
                CoveringOutcome::Failed(why) => {
                    remove_view(catalog, &mut changed, of.table);
                    CoveringState::Failed(why.clone())
                }
                _ => CoveringState::Ready,
            };
            let of_index = changed.indexes.iter_mut().filter(|known| known.id == index.id);
            of_index.filter_map(covering_of).for_each(|covering| covering.state = state.clone());
        }
        _ => return Ok(Done::Nothing),
    }
    replace_table(catalog, &entry, changed);
    Ok(Done::Changed)
}
