//! What a tablet stores about an index.
//!
//! ```text
//! value      := 0x00 · version u8 (1) · progress · definition slice
//! progress   := 0x01 the index is complete | 0x00 · slice: rows before this key are indexed
//!             | 0x02 · slice · slice: and of the row with this key the elements up to that path
//! definition := list<key column> · what
//! key column := 0 partition | 1 ascending | 2 descending, then a type
//! what       := 0 · column varint · static u8 · target u8 · type | 1 partition column varint | 2 clustering column varint
//!             | 3 · column varint · static u8 · path, as in programs
//! ```
//!
//! Always true: the definition of an index never changes. Left out: its name, which only the catalog knows.

use crate::program::{put_path, put_type, read_path, read_type};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_base::row_index::FIRST_ROW_KEY;
use diorite_model::index::{Indexed, RowIndex, SPECIFICATION_PREFIX, TabletIndexes, specification_key};
use diorite_model::json::place::is_indexable;
use diorite_model::key::KeyLayout;
use diorite_model::schema::{ColumnKind, Index, IndexTarget, Order, Table};
use diorite_model::types::CqlType;

/// The first byte of a value that is neither a row nor a partition header.
const NO_ROW: u8 = 0;
const VERSION: u8 = 1;
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

/// What a tablet knows of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Specification {
    /// The columns of the table's key.
    pub key: Vec<(CqlType, ColumnKind)>,
    /// What the index is made of.
    pub indexed: Indexed,
    /// How much is indexed.
    pub progress: Progress,
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
        Some(Self { key, indexed, progress: Progress::Before(FIRST_ROW_KEY.to_vec()) })
    }

    /// Whether all rows of the tablet are indexed.
    pub fn is_complete(&self) -> bool {
        self.progress == Progress::Complete
    }

    /// Derives the entries of this index alone.
    pub fn indexes(&self, id: u64) -> TabletIndexes {
        TabletIndexes::new(self.layout(), vec![RowIndex { id, indexed: self.indexed.clone() }])
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
        match &self.indexed {
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
        let mut key = Vec::new();
        for _ in 0..reader.varint()? {
            let kind = match reader.u8()? {
                0 => ColumnKind::PartitionKey,
                1 => ColumnKind::Clustering(Order::Asc),
                2 => ColumnKind::Clustering(Order::Desc),
                _ => return Err(Malformed),
            };
            key.push((read_type(&mut reader)?, kind));
        }
        let what = reader.u8()?;
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
        Ok(Self { key, indexed, progress: Progress::Before(FIRST_ROW_KEY.to_vec()) })
    }

    /// The value under which it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![NO_ROW, VERSION];
        match &self.progress {
            Progress::Complete => out.push(1),
            Progress::Before(key) => {
                out.push(0);
                put_slice(&mut out, key);
            }
            Progress::Within { row, path } => {
                out.push(2);
                put_slice(&mut out, row);
                put_slice(&mut out, path);
            }
        }
        put_slice(&mut out, &self.definition());
        out
    }

    /// Reads a stored value.
    pub fn decode(value: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(value);
        if (reader.u8()?, reader.u8()?) != (NO_ROW, VERSION) {
            return Err(Malformed);
        }
        let progress = match reader.u8()? {
            0 => Progress::Before(reader.slice()?.to_vec()),
            1 => Progress::Complete,
            2 => Progress::Within { row: reader.slice()?.to_vec(), path: reader.slice()?.to_vec() },
            _ => return Err(Malformed),
        };
        let specification = Self::from_definition(reader.slice()?)?;
        if reader.is_empty() { Ok(Self { progress, ..specification }) } else { Err(Malformed) }
    }

    /// What a tablet stores about an index, if it knows it.
    pub(super) fn stored(index: u64, view: &dyn TabletView) -> Result<Option<Self>, EvaluationFailed> {
        let stored = view.get(&specification_key(index))?;
        stored.map(|value| Self::decode(&value).map_err(|_| unreadable(index))).transpose()
    }
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
    let indexes = all.into_iter().map(|(id, specification)| RowIndex { id, indexed: specification.indexed });
    Ok(Some(TabletIndexes::new(layout, indexes.collect())))
}
