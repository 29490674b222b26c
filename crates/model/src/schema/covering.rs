//! Covering indexes: an index and a hidden materialized view, from which reads are answered that need only its columns.
//!
//! Always true: the view's definition follows from those of the table and of the index; its key has the whole key of the
//! table. A view is hidden if it is of an index; it is retired once its table has no such index any more. Left out:
//! which indexes are covering (the `query` crate), and who makes and removes the view (the catalog).

use super::{Column, ColumnId, ColumnKind, Covering, CoveringState, Index, Order, Table, View, ViewOf, clone_pair};
use diorite_base::TableId;
use std::collections::BTreeSet;
use uuid::Uuid;

/// The end of the names of hidden views; no statement can give such a name.
const HIDDEN: &str = ".covering";

impl Covering {
    /// Whether its view has what follows from all rows.
    pub fn is_ready(&self) -> bool {
        self.state == CoveringState::Ready
    }
}

impl ViewOf {
    /// Whether statements can name it.
    pub fn is_named(&self) -> bool {
        self.index.is_none()
    }

    /// Whether it is the hidden view of an index with this name.
    pub fn is_of_index(&self, index: &str) -> bool {
        self.name.strip_suffix(HIDDEN) == Some(index)
    }

    /// What people are told that it is.
    pub fn title(&self) -> String {
        title(self.index.is_some(), &self.name)
    }
}

fn title(is_hidden: bool, name: &str) -> String {
    if !is_hidden {
        return format!("materialized view {name}");
    }
    let name = name.strip_suffix(HIDDEN).unwrap_or(name);
    format!("covering index {}", name.rsplit('.').next().unwrap_or(name))
}

impl Table {
    /// What people are told that a view is.
    pub fn view_title(&self) -> String {
        title(self.index_of.is_some(), &self.name)
    }

    /// Whether a later definition of this table has a view that this one does not have, or not with all of its columns.
    pub fn lacks_views_of(&self, later: &Table) -> bool {
        let knows = |view: &ViewOf| {
            self.views.iter().any(|known| known.id == view.id && known.columns_since >= view.columns_since)
        };
        !later.views.iter().all(knows)
    }

    /// The materialized views that statements can name.
    pub fn named_views(&self) -> impl Iterator<Item = &ViewOf> {
        self.views.iter().filter(|view| view.is_named())
    }

    /// The hidden views of covering indexes, each with its index; `None`: it is retired.
    pub fn hidden_views(&self) -> impl Iterator<Item = (&ViewOf, Option<(&Index, &Covering)>)> {
        self.views.iter().filter(|view| !view.is_named()).map(|view| {
            let index = self.indexes.iter().find(|index| Some(index.id) == view.index);
            let covering = index.and_then(|index| Some((index, index.covering.as_deref()?)));
            (view, covering.filter(|(_, covering)| covering.view == view.id))
        })
    }

    /// The hidden view of a covering index, as a table and as this table knows it. `None`: a column is not there.
    pub fn covering_view(&self, index: &Index, table: TableId, number: u64) -> Option<(Table, ViewOf)> {
        let covering = index.covering.as_deref()?;
        let mut columns: Vec<Column> = Vec::new();
        let partition = covering.partition.iter().map(|id| (*id, ColumnKind::PartitionKey));
        let clustering = covering.clustering.iter().map(|of| (of.column, ColumnKind::Clustering(of.order)));
        for (id, kind) in partition.chain(clustering) {
            columns.push(Column { kind, ..self.column_by_id(id)?.clone() });
        }
        for column in self.partition_key().chain(self.clustering()) {
            if columns.iter().any(|known| known.id == column.id) {
                continue;
            }
            let kind = match column.kind {
                ColumnKind::Clustering(order) => ColumnKind::Clustering(order),
                _ => ColumnKind::Clustering(Order::Asc),
            };
            columns.push(Column { kind, ..column.clone() });
        }
        let is_in_key = |id: ColumnId| columns.iter().any(|column| column.id == id);
        let in_key: BTreeSet<ColumnId> =
            self.regulars().filter(|column| is_in_key(column.id)).map(|column| column.id).collect();
        let mut others: Vec<Column> = Vec::new();
        for id in covering.included.iter().filter(|id| !is_in_key(**id)) {
            others.push(self.column_by_id(*id).filter(|column| column.kind == ColumnKind::Regular)?.clone());
        }
        others.sort_by(|one, other| one.name.cmp(&other.name));
        let of = ViewOf {
            id: number,
            name: format!("{}{HIDDEN}", index.name),
            table,
            columns: in_key
                .iter()
                .copied()
                .chain(others.iter().map(|column| column.id))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            columns_since: 0,
            follows_rows: in_key.is_empty(),
            index: Some(index.id),
        };
        columns.extend(others);
        let view = Table {
            id: table,
            uuid: Uuid::from_u128(self.uuid.as_u128() ^ (u128::from(number) << 64)),
            keyspace: self.keyspace.clone(),
            name: format!("{}.{}{HIDDEN}", self.name, index.name),
            version: 1,
            columns,
            next_column_id: self.next_column_id,
            default_ttl_s: 0,
            gc_grace_s: self.gc_grace_s,
            options: self.options.iter().filter(|(name, _)| *name == "transactions").map(clone_pair).collect(),
            indexes: Vec::new(),
            deferred_indexes: Vec::new(),
            index_of: Some(self.id),
            views: Vec::new(),
            view: Some(Box::new(View { base: self.id, selects_all: false, predicate: Vec::new() })),
        };
        Some((view, of))
    }
}
