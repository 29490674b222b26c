//! What a tablet stores about an index.
//!
//! ```text
//! value      := 0x00 · version u8 (1) · progress · definition slice
//! progress   := 0x01 the index is complete | 0x00 · slice: rows before this key are indexed
//!             | 0x02 · slice · slice: and of the row with this key the elements up to that path
//!             | 0x03 · progress · round varint · compared, of a unique index or a materialized view
//! compared   := 0x00 no row | 0x01 · slice: rows before this key | 0x02 all | 0x03 · slice: not all, and why
//! definition := list<key column> · what
//! key column := 0 partition | 1 ascending | 2 descending, then a type
//! what       := 0 · column varint · static u8 · target u8 · type | 1 partition column varint | 2 clustering column varint
//!             | 3 · column varint · static u8 · path, as in programs | 4 unique · list<column varint> · what
//!             | 5 materialized view · list<column varint> · follows rows u8
//!             | 6 materialized view · columns since varint · list<column varint> · follows rows u8
//! ```
//!
//! Always true: the definition of an index never changes, but for a materialized view of all columns, which gets those
//! that are added to its table; each time it is of a later version of the table ([`Dependent::columns_since`]). Left out:
//! its name, which only the catalog knows.

use crate::program::{put_path, put_type, read_list, read_path, read_type};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_base::row_index::FIRST_ROW_KEY;
use diorite_model::index::{Indexed, RowIndex, SPECIFICATION_PREFIX, TabletIndexes, specification_key};
use diorite_model::json::place::is_indexable;
use diorite_model::key::KeyLayout;
use diorite_model::schema::{ColumnId, ColumnKind, Index, IndexTarget, Order, Table, ViewOf};
use diorite_model::types::CqlType;

/// The first byte of a value that is neither a row nor a partition header.
const NO_ROW: u8 = 0;
const VERSION: u8 = 1;
/// Before the progress of a dependent.
const WITH_COMPARED: u8 = 3;
/// Before what a unique index is made of.
const UNIQUE: u8 = 4;
/// Before the columns of a materialized view.
const VIEW: u8 = 5;
/// Before the columns of a materialized view that has got some since it was made.
const EXTENDED_VIEW: u8 = 6;
const TARGETS: [IndexTarget; 5] =
    [IndexTarget::Value, IndexTarget::Values, IndexTarget::Keys, IndexTarget::Entries, IndexTarget::Full];

/// How much of a tablet is indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The rows before this key.
    Before(Vec<u8>),
    /// The rows before one, and the first elements of its collection.
    Within {
        /// The key of that row.
        row: Vec<u8>,
        /// The path of the last element.
        path: Vec<u8>,
    },
    /// All.
    Complete,
}

impl Progress {
    /// All rows before one are indexed, and of it the elements up to a path, if there is one.
    pub(super) fn before(row: &[u8], path: Option<&[u8]>) -> Self {
        let row = row.to_vec();
        match path {
            None => Self::Before(row),
            Some(path) => Self::Within { row, path: path.to_vec() },
        }
    }

    /// The key from which on rows are to be indexed.
    pub fn next(&self) -> Option<&[u8]> {
        match self {
            Self::Before(row) | Self::Within { row, .. } => Some(row),
            Self::Complete => None,
        }
    }

    /// Whether rows are to be indexed from this key on.
    pub(super) fn goes_on_at(&self, key: &[u8]) -> bool {
        self.next() == Some(key)
    }

    /// Up to which path the elements of this row are indexed.
    pub(super) fn path_within(&self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Within { row, path } if row == key => Some(path),
            Self::Before(_) | Self::Within { .. } | Self::Complete => None,
        }
    }

    /// Whether something of this row, or of one after it, counts as indexed.
    pub(super) fn is_after(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(row) => row.as_slice() > key,
            Self::Within { row, .. } => row.as_slice() >= key,
            Self::Complete => true,
        }
    }
}

/// How many of a tablet's rows have been compared with what a dependent says of them: for a unique index that is with
/// all other rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compared {
    /// None: transactions that were begun before the dependent may not have ended.
    Nothing,
    /// The rows before this key.
    Before(Vec<u8>),
    /// All: no two have the same values, or the view has what follows from them.
    All,
    /// Rows are not to be compared any more: two have the same values, for example.
    Failed(String),
}

/// A unique index or a materialized view: its table is elsewhere, and is kept up to date by whoever writes to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    /// The columns that are unique, or that decide what the view has for a row.
    pub columns: Vec<ColumnId>,
    /// It is a view that has a row for each row that exists.
    pub follows_rows: bool,
    /// The version of the table that has added columns to the view last. Zero: none has.
    pub columns_since: u64,
    /// Counts how often the comparison has begun again: steps of earlier rounds have no effect.
    pub round: u64,
    /// How many rows have been compared.
    pub compared: Compared,
}

/// What a tablet knows of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Specification {
    /// The columns of the table's key.
    pub key: Vec<(CqlType, ColumnKind)>,
    /// What the index is made of.
    pub indexed: Indexed,
    /// How much is indexed.
    pub progress: Progress,
    /// Of a unique index or a materialized view.
    pub dependent: Option<Dependent>,
}

impl Specification {
    /// That of an index of a table; `None` if the table does not have the column, or the path is over its limits.
    pub fn of(table: &Table, index: &Index) -> Option<Self> {
        let column = table.column_by_id(index.column)?;
        let data_type = column.data_type.clone();
        let indexed = match column.kind {
            ColumnKind::PartitionKey => {
                Indexed::Partition(table.partition_key().position(|of| of.id == column.id)?, data_type)
            }
            ColumnKind::Clustering(_) => {
                Indexed::Clustering(table.clustering().position(|of| of.id == column.id)?, data_type)
            }
            ColumnKind::Static | ColumnKind::Regular => {
                let is_static = column.kind == ColumnKind::Static;
                match index.path.as_slice() {
                    [] => Indexed::Cell { column: column.id, is_static, data_type, target: index.target },
                    path if is_indexable(path) => Indexed::Place { column: column.id, is_static, path: path.to_vec() },
                    _ => return None,
                }
            }
        };
        let key = table.partition_key().chain(table.clustering());
        let key = key.map(|column| (column.data_type.clone(), column.kind)).collect();
        let dependent = index.unique.as_ref().map(|unique| Dependent::new(unique.columns.clone(), false));
        Some(Self { key, indexed, progress: Progress::Before(FIRST_ROW_KEY.to_vec()), dependent })
    }

    /// That of a materialized view of a table.
    pub fn of_view(table: &Table, view: &ViewOf) -> Self {
        let key = table.partition_key().chain(table.clustering());
        Self {
            key: key.map(|column| (column.data_type.clone(), column.kind)).collect(),
            indexed: Indexed::Nothing,
            progress: Progress::Complete,
            dependent: Some(Dependent {
                columns_since: view.columns_since,
                ..Dependent::new(view.columns.clone(), view.follows_rows)
            }),
        }
    }

    /// The version of the table that has added columns to the view last; zero, if none has.
    pub fn columns_since(&self) -> u64 {
        self.dependent.as_ref().map_or(0, |dependent| dependent.columns_since)
    }

    /// This specification of a view with the columns of a later one. What has been compared stays so: rows have no values
    /// yet in columns that this one does not know. `None`: the other one is not later.
    pub(super) fn extended(mut self, later: &Self) -> Option<Self> {
        let are_of_views = self.is_of_view() && later.is_of_view();
        let (own, later) = (self.dependent.as_mut()?, later.dependent.as_ref()?);
        if !are_of_views || later.columns_since <= own.columns_since {
            return None;
        }
        own.columns.clone_from(&later.columns);
        own.columns_since = later.columns_since;
        Some(self)
    }

    /// Whether it is that of a materialized view.
    pub fn is_of_view(&self) -> bool {
        self.indexed == Indexed::Nothing
    }

    /// Whether all rows of the tablet are indexed.
    pub fn is_complete(&self) -> bool {
        self.progress == Progress::Complete
    }

    /// Whether nothing is left to do: all rows are indexed, and compared if it is that of a dependent.
    pub fn is_done(&self) -> bool {
        self.is_complete() && self.dependent.as_ref().is_none_or(|dependent| dependent.compared == Compared::All)
    }

    /// Why rows are not compared any more, for a dependent.
    pub fn failure(&self) -> Option<&str> {
        match &self.dependent.as_ref()?.compared {
            Compared::Failed(why) => Some(why),
            Compared::Nothing | Compared::Before(_) | Compared::All => None,
        }
    }

    /// Derives the entries of this index alone.
    pub fn indexes(&self, id: u64) -> TabletIndexes {
        let row_index = (!self.is_of_view()).then(|| RowIndex { id, indexed: self.indexed.clone() });
        let mut indexes = TabletIndexes::new(self.layout(), row_index.into_iter().collect());
        if let Some(dependent) = &self.dependent {
            dependent.add_to(&mut indexes, id);
        }
        indexes
    }

    fn layout(&self) -> KeyLayout {
        KeyLayout::of_types(self.key.iter().map(|(data_type, kind)| (data_type, *kind)))
    }

    /// The definition, encoded.
    pub fn definition(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.key.len() as u64);
        for (data_type, kind) in &self.key {
            out.push(match kind {
                ColumnKind::Clustering(Order::Asc) => 1,
                ColumnKind::Clustering(Order::Desc) => 2,
                ColumnKind::PartitionKey | ColumnKind::Static | ColumnKind::Regular => 0,
            });
            put_type(&mut out, data_type);
        }
        if let Some(Dependent { columns, columns_since, .. }) = &self.dependent {
            match (self.is_of_view(), *columns_since) {
                (false, _) => out.push(UNIQUE),
                (true, 0) => out.push(VIEW),
                (true, since) => {
                    out.push(EXTENDED_VIEW);
                    put_varint(&mut out, since);
                }
            }
            put_varint(&mut out, columns.len() as u64);
            columns.iter().for_each(|column| put_varint(&mut out, u64::from(*column)));
        }
        match &self.indexed {
            Indexed::Nothing => out.push(self.dependent.as_ref().map_or(0, |of| u8::from(of.follows_rows))),
            Indexed::Cell { column, is_static, data_type, target } => {
                out.push(0);
                put_varint(&mut out, u64::from(*column));
                let target = TARGETS.iter().position(|known| known == target).unwrap_or_default();
                out.extend([u8::from(*is_static), target as u8]);
                put_type(&mut out, data_type);
            }
            Indexed::Place { column, is_static, path } => {
                out.push(3);
                put_varint(&mut out, u64::from(*column));
                out.push(u8::from(*is_static));
                put_path(&mut out, path);
            }
            Indexed::Partition(at, _) | Indexed::Clustering(at, _) => {
                out.push(if matches!(self.indexed, Indexed::Partition(..)) { 1 } else { 2 });
                put_varint(&mut out, *at as u64);
            }
        }
        out
    }

    /// Reads a definition; nothing is indexed yet.
    pub fn from_definition(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let key = read_list(&mut reader, read_key_column)?;
        let mut what = reader.u8()?;
        let mut dependent = None;
        if what == VIEW || what == EXTENDED_VIEW {
            let dependent = Some(Dependent::read_view(&mut reader, what == EXTENDED_VIEW)?);
            if !reader.is_empty() {
                return Err(Malformed);
            }
            return Ok(Self { key, indexed: Indexed::Nothing, progress: Progress::Complete, dependent });
        }
        if what == UNIQUE {
            let columns = read_list(&mut reader, read_column)?;
            dependent =
                Some(columns).filter(|columns| !columns.is_empty()).map(|columns| Dependent::new(columns, false));
            what = reader.u8()?;
        }
        let number = reader.varint()?;
        let of_kind = |is_partition: bool| {
            let among = key.iter().filter(|(_, kind)| (*kind == ColumnKind::PartitionKey) == is_partition);
            let at = usize::try_from(number).map_err(|_| Malformed)?;
            Ok((at, among.map(|(data_type, _)| data_type.clone()).nth(at).ok_or(Malformed)?))
        };
        let indexed = match what {
            0 => {
                let column = u32::try_from(number).map_err(|_| Malformed)?;
                let is_static = reader.u8()? != 0;
                let target = *TARGETS.get(usize::from(reader.u8()?)).ok_or(Malformed)?;
                Indexed::Cell { column, is_static, data_type: read_type(&mut reader)?, target }
            }
            3 => {
                let column = u32::try_from(number).map_err(|_| Malformed)?;
                let is_static = match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed),
                };
                let path = read_path(&mut reader)?;
                if !is_indexable(&path) {
                    return Err(Malformed);
                }
                Indexed::Place { column, is_static, path }
            }
            1 => of_kind(true).map(|(at, data_type)| Indexed::Partition(at, data_type))?,
            2 => of_kind(false).map(|(at, data_type)| Indexed::Clustering(at, data_type))?,
            _ => return Err(Malformed),
        };
        if !reader.is_empty() {
            return Err(Malformed);
        }
        Ok(Self { key, indexed, progress: Progress::Before(FIRST_ROW_KEY.to_vec()), dependent })
    }

    /// The value under which it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![NO_ROW, VERSION];
        if self.dependent.is_some() {
            out.push(WITH_COMPARED);
        }
        self.progress.put(&mut out);
        if let Some(dependent) = &self.dependent {
            put_varint(&mut out, dependent.round);
            dependent.compared.put(&mut out);
        }
        put_slice(&mut out, &self.definition());
        out
    }

    /// Reads a stored value.
    pub fn decode(value: &[u8]) -> Result<Self, Malformed> {
        let Parts { progress, compared, definition } = parts(value)?;
        let mut read = Self { progress, ..Self::from_definition(definition)? };
        match (&mut read.dependent, compared) {
            (Some(dependent), Some((round, compared))) => (dependent.round, dependent.compared) = (round, compared),
            (None, None) => {}
            _ => return Err(Malformed),
        }
        Ok(read)
    }

    /// What a tablet stores about an index, if it knows it.
    pub fn stored(index: u64, view: &dyn TabletView) -> Result<Option<Self>, EvaluationFailed> {
        let stored = view.get(&specification_key(index))?;
        stored.map(|value| Self::decode(&value).map_err(|_| unreadable(index))).transpose()
    }

    /// [`Self::columns_since`] of what a tablet stores about a view, if it knows it. Every write that maintains views asks
    /// for it, so no more is read of it than that.
    pub(crate) fn stored_columns_since(index: u64, view: &dyn TabletView) -> Result<Option<u64>, EvaluationFailed> {
        let stored = view.get(&specification_key(index))?;
        stored.map(|value| columns_since_of(&value).map_err(|_| unreadable(index))).transpose()
    }
}

/// The parts of a stored value.
struct Parts<'v> {
    progress: Progress,
    /// The round, and how much has been compared in it.
    compared: Option<(u64, Compared)>,
    definition: &'v [u8],
}

fn parts(value: &[u8]) -> Result<Parts<'_>, Malformed> {
    let mut reader = Reader::new(value);
    if (reader.u8()?, reader.u8()?) != (NO_ROW, VERSION) {
        return Err(Malformed);
    }
    let (mut kind, mut compared) = (reader.u8()?, None);
    let has_compared = kind == WITH_COMPARED;
    if has_compared {
        kind = reader.u8()?;
    }
    let progress = match kind {
        0 => Progress::Before(reader.slice()?.to_vec()),
        1 => Progress::Complete,
        2 => Progress::Within { row: reader.slice()?.to_vec(), path: reader.slice()?.to_vec() },
        _ => return Err(Malformed),
    };
    if has_compared {
        compared = Some((reader.shortest_varint()?, Compared::read(&mut reader)?));
    }
    let definition = reader.slice()?;
    if reader.is_empty() { Ok(Parts { progress, compared, definition }) } else { Err(Malformed) }
}

fn columns_since_of(value: &[u8]) -> Result<u64, Malformed> {
    let mut reader = Reader::new(parts(value)?.definition);
    for _ in 0..reader.varint()? {
        read_key_column(&mut reader)?;
    }
    if reader.u8()? == EXTENDED_VIEW { reader.shortest_varint() } else { Ok(0) }
}

impl Progress {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Complete => out.push(1),
            Self::Before(key) => {
                out.push(0);
                put_slice(out, key);
            }
            Self::Within { row, path } => {
                out.push(2);
                put_slice(out, row);
                put_slice(out, path);
            }
        }
    }
}

impl Dependent {
    fn new(columns: Vec<ColumnId>, follows_rows: bool) -> Self {
        Self { columns, follows_rows, columns_since: 0, round: 0, compared: Compared::Nothing }
    }

    fn read_view(reader: &mut Reader<'_>, is_extended: bool) -> Result<Self, Malformed> {
        let columns_since = if is_extended { reader.shortest_varint()? } else { 0 };
        if is_extended && columns_since == 0 {
            return Err(Malformed);
        }
        let columns = read_list(reader, read_column)?;
        let follows_rows = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        Ok(Self { columns_since, ..Self::new(columns, follows_rows) })
    }

    /// Adds it to what a tablet maintains: with the version of the table that had it first as it is, so that what was
    /// planned with an earlier one is found.
    fn add_to(&self, indexes: &mut TabletIndexes, id: u64) {
        indexes.add_dependent(id.max(self.columns_since), &self.columns, self.follows_rows);
    }

    /// Begins again: rows have been added that were written to another tablet.
    pub(super) fn begin_again(&mut self) {
        if !matches!(self.compared, Compared::Failed(_)) {
            (self.round, self.compared) = (self.round + 1, Compared::Nothing);
        }
    }
}

impl Compared {
    /// Appends the encoded form.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nothing => out.push(0),
            Self::Before(key) => {
                out.push(1);
                put_slice(out, key);
            }
            Self::All => out.push(2),
            Self::Failed(why) => {
                out.push(3);
                put_slice(out, why.as_bytes());
            }
        }
    }

    /// Reads what [`Self::put`] wrote.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            0 => Self::Nothing,
            1 => Self::Before(reader.slice()?.to_vec()),
            2 => Self::All,
            3 => Self::Failed(String::from_utf8(reader.slice()?.to_vec()).map_err(|_| Malformed)?),
            _ => return Err(Malformed),
        })
    }
}

fn read_key_column(reader: &mut Reader<'_>) -> Result<(CqlType, ColumnKind), Malformed> {
    let kind = match reader.u8()? {
        0 => ColumnKind::PartitionKey,
        1 => ColumnKind::Clustering(Order::Asc),
        2 => ColumnKind::Clustering(Order::Desc),
        _ => return Err(Malformed),
    };
    Ok((read_type(reader)?, kind))
}

fn read_column(reader: &mut Reader<'_>) -> Result<ColumnId, Malformed> {
    u32::try_from(reader.varint()?).map_err(|_| Malformed)
}

fn unreadable(index: u64) -> EvaluationFailed {
    EvaluationFailed(format!("the specification of index {index} is malformed or of a newer version"))
}

/// All indexes that a tablet stores specifications of.
pub fn specifications(view: &dyn TabletView) -> Result<Vec<(u64, Specification)>, EvaluationFailed> {
    let (mut found, mut failed) = (Vec::new(), None);
    let mut end = SPECIFICATION_PREFIX;
    end[SPECIFICATION_PREFIX.len() - 1] += 1;
    view.scan(&SPECIFICATION_PREFIX, &end, &mut |key, value| {
        let id = key.get(SPECIFICATION_PREFIX.len()..).and_then(|id| <[u8; 8]>::try_from(id).ok());
        let id = id.map_or(u64::MAX, u64::from_be_bytes);
        match Specification::decode(value) {
            Ok(specification) => found.push((id, specification)),
            Err(Malformed) => failed = Some(unreadable(id)),
        }
        failed.is_none()
    })?;
    failed.map_or(Ok(found), Err)
}

/// Derives the entries of all indexes of a tablet; `None` if it has none.
pub(crate) fn tablet_indexes(view: &dyn TabletView) -> Result<Option<TabletIndexes>, EvaluationFailed> {
    let all = specifications(view)?;
    let Some((_, first)) = all.first() else { return Ok(None) };
    let layout = first.layout();
    let of_rows = all.iter().filter(|(_, specification)| !specification.is_of_view());
    let of_rows = of_rows.map(|(id, specification)| RowIndex { id: *id, indexed: specification.indexed.clone() });
    let mut indexes = TabletIndexes::new(layout, of_rows.collect());
    for (id, dependent) in all.iter().filter_map(|(id, specification)| Some((*id, specification.dependent.as_ref()?))) {
        dependent.add_to(&mut indexes, id);
    }
    Ok(Some(indexes))
}
