//! The bytes of programs (versions 1 to 5); see `docs/formats/programs.md`.
//!
//! Always true: decoding checks everything and never panics; encoding what was decoded gives the same bytes. Left out:
//! versions that do not exist yet.

use super::definition::{
    ColumnTest, ListEdit, Maintained, PathStep, Program, ProgramOperation, RowCondition, RowTest, TestTree, TestedPart,
    Turn, Unchanged, ValueTest,
};
use super::types::{put_type, read_type};
use super::wire::{
    UNCHANGED, UNCHANGED_EXTENDED, put_i64_option, put_optional, put_views, read_bool, read_i64_option, read_list,
    read_optional, read_usize, read_views,
};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::limits::{self, Exceeded, MAX_CONDITION_DEPTH};
use diorite_base::program::{LoggedProgram, Target};
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::row::Expiry;
use diorite_model::types::CqlType;
use diorite_model::value::is_summable;
use std::collections::HashSet;

pub(super) const VERSION: u8 = 1;

/// Programs that name dropped columns.
const VERSION_WITH_DROPPED: u8 = 2;

/// Programs with boolean expressions or places in documents; they may name dropped columns.
const VERSION_WITH_TREES: u8 = 3;

/// Programs whose conditions and operations follow one another; they may name dropped columns.
const VERSION_IN_TURNS: u8 = 4;

/// Before a program of one of the other versions: how it maintains unique indexes.
pub(super) const VERSION_MAINTAINED: u8 = 5;

/// A write with guards, for whoever meets their limit.
const READ_FIRST: &str = "a write to one tablet whose rows are read first, for a materialized view, a covering or a \
                          unique index of the table,";

const OPERATORS: [ComparisonOperator; 6] = [
    ComparisonOperator::Equal,
    ComparisonOperator::NotEqual,
    ComparisonOperator::Less,
    ComparisonOperator::LessOrEqual,
    ComparisonOperator::Greater,
    ComparisonOperator::GreaterOrEqual,
];

impl Program {
    /// The encoded form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        if let Some(Maintained { version, guards }) = &self.maintained {
            out.push(VERSION_MAINTAINED);
            put_varint(&mut out, *version);
            put_varint(&mut out, guards.len() as u64);
            guards.iter().for_each(|guard| guard.encode(&mut out));
        }
        match &self.turns {
            Some(turns) => self.encode_in_turns(turns, &mut out),
            None => self.encode_together(&mut out),
        }
        out
    }

    /// Encodes a program all of whose parts see the tablet as it was.
    fn encode_together(&self, out: &mut Vec<u8>) {
        let version = match (self.needs_trees(), self.dropped_columns.is_empty()) {
            (true, _) => VERSION_WITH_TREES,
            (false, false) => VERSION_WITH_DROPPED,
            (false, true) => VERSION,
        };
        out.push(version);
        if version != VERSION {
            self.put_dropped(out);
        }
        put_varint(out, self.conditions.len() as u64);
        self.conditions.iter().for_each(|condition| condition.encode(out));
        put_varint(out, self.operations.len() as u64);
        self.operations.iter().for_each(|operation| operation.encode(out));
    }

    /// Reads an encoded program.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION_MAINTAINED {
            return Self::decode_after(version, &mut reader);
        }
        let version = reader.shortest_varint()?;
        let maintained = Some(Maintained { version, guards: read_list(&mut reader, RowCondition::decode)? });
        let version = reader.u8()?;
        Ok(Self { maintained, ..Self::decode_after(version, &mut reader)? })
    }

    /// Reads what follows this version.
    fn decode_after(version: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let column = |reader: &mut Reader<'_>| u32::try_from(reader.varint()?).map_err(|_| Malformed);
        let dropped_columns = match version {
            VERSION_IN_TURNS => return Self::decode_in_turns(reader),
            VERSION => Vec::new(),
            VERSION_WITH_TREES => read_list(reader, column)?,
            VERSION_WITH_DROPPED => {
                Some(read_list(reader, column)?).filter(|columns| !columns.is_empty()).ok_or(Malformed)?
            }
            _ => return Err(Malformed),
        };
        let conditions = read_list(reader, RowCondition::decode)?;
        let operations = read_list(reader, ProgramOperation::decode)?;
        let program = Self { conditions, operations, dropped_columns, ..Self::default() };
        if program.operations.iter().any(|operation| matches!(operation, ProgramOperation::Sum { .. })) {
            return Err(Malformed);
        }
        // The version follows from the content, so a program has exactly one encoded form.
        let fits = program.needs_trees() == (version == VERSION_WITH_TREES);
        if reader.is_empty() && fits { Ok(program) } else { Err(Malformed) }
    }

    fn put_dropped(&self, out: &mut Vec<u8>) {
        put_varint(out, self.dropped_columns.len() as u64);
        self.dropped_columns.iter().for_each(|column| put_varint(out, u64::from(*column)));
    }

    fn encode_in_turns(&self, turns: &[Turn], out: &mut Vec<u8>) {
        let of_operations = turns.iter().filter(|turn| matches!(turn, Turn::Operation | Turn::SameStatement)).count();
        let parts = (self.operations.len(), self.conditions.len());
        assert_eq!(parts, (of_operations, turns.len() - of_operations), "each part of a program has its turn");
        out.push(VERSION_IN_TURNS);
        self.put_dropped(out);
        put_varint(out, turns.len() as u64);
        let (mut conditions, mut operations) = (self.conditions.iter(), self.operations.iter());
        for turn in turns {
            out.push(match turn {
                Turn::Operation => 0,
                Turn::Condition => 1,
                Turn::ConditionElseError => 2,
                Turn::SameStatement => 3,
            });
            match turn {
                Turn::Operation | Turn::SameStatement => {
                    operations.next().into_iter().for_each(|operation| operation.encode(out))
                }
                _ => conditions.next().into_iter().for_each(|condition| condition.encode(out)),
            }
        }
    }

    fn decode_in_turns(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let dropped_columns = read_list(reader, |reader| u32::try_from(reader.varint()?).map_err(|_| Malformed))?;
        let mut program = Self { dropped_columns, ..Self::default() };
        let mut is_in_statement = false;
        let turns = read_list(reader, |reader| {
            let turn = match reader.u8()? {
                0 => Turn::Operation,
                1 => Turn::Condition,
                2 => Turn::ConditionElseError,
                3 if is_in_statement => Turn::SameStatement,
                _ => return Err(Malformed),
            };
            is_in_statement = matches!(turn, Turn::Operation | Turn::SameStatement);
            match turn {
                Turn::Operation | Turn::SameStatement => program.operations.push(ProgramOperation::decode(reader)?),
                _ => program.conditions.push(RowCondition::decode(reader)?),
            }
            Ok(turn)
        })?;
        program.turns = Some(turns);
        if reader.is_empty() { Ok(program) } else { Err(Malformed) }
    }

    /// Whether it holds something that only version 3 and later have.
    fn needs_trees(&self) -> bool {
        let is_path = |test: &ColumnTest| matches!(test.part, TestedPart::Path(..)) || test.data_type == CqlType::Jsonb;
        self.conditions.iter().any(|condition| match &condition.test {
            RowTest::Tree(_) => true,
            RowTest::Columns(columns) => columns.iter().any(is_path),
            RowTest::Exists | RowTest::NotExists | RowTest::Unchanged(_) => false,
        }) || self.operations.iter().any(|operation| matches!(operation, ProgramOperation::Document { .. }))
    }
}

/// The version of the table with which an encoded program was planned that maintains unique indexes, without a look at
/// the rest.
pub(super) fn planned_version(bytes: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(bytes);
    if reader.u8().ok()? == VERSION_MAINTAINED { reader.shortest_varint().ok() } else { None }
}

impl LoggedProgram for Program {
    const TARGET: Target = Target::Rows;
    type Error = &'static str;

    fn check(&self) -> Result<(), Exceeded> {
        let guards = self.maintained.iter().flat_map(|maintained| &maintained.guards);
        let conditions = self.conditions.iter().chain(guards.clone());
        let rows: HashSet<Place<'_>, ahash::RandomState> = conditions.clone().map(RowCondition::place).collect();
        let what = if guards.clone().next().is_some() { READ_FIRST } else { "a batch with conditions" };
        limits::check(&limits::CONDITION_ROWS, rows.len(), || what.to_owned())?;
        let guarded = conditions.clone().map(RowCondition::rows).fold(0, u64::saturating_add);
        let guarded = usize::try_from(guarded).unwrap_or(usize::MAX);
        limits::check(&limits::GUARDED_ROWS, guarded, || "a write to a table with views".to_owned())?;
        conditions.into_iter().try_for_each(|condition| match &condition.test {
            RowTest::Exists | RowTest::NotExists | RowTest::Unchanged(_) => Ok(()),
            RowTest::Columns(columns) => columns.iter().try_for_each(|column| column.data_type.check_limits()),
            RowTest::Tree(tree) => tree.check(1),
        })
    }

    fn encode(&self) -> Vec<u8> {
        Program::encode(self)
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        let read = Program::decode(bytes).map_err(|_| "a program is malformed, of a newer version or over a limit")?;
        let is_applicable = read.operations.iter().all(ProgramOperation::is_applicable);
        is_applicable.then_some(read).ok_or("a program writes what is no row, or has no room for its timestamp")
    }
}

impl TestTree {
    fn check(&self, depth: usize) -> Result<(), Exceeded> {
        limits::check(&limits::CONDITION_DEPTH, depth, || "a condition".to_owned())?;
        match self {
            TestTree::Column(test) => test.data_type.check_limits(),
            TestTree::All(parts) | TestTree::Any(parts) => parts.iter().try_for_each(|part| part.check(depth + 1)),
            TestTree::Not(inner) => inner.check(depth + 1),
            TestTree::Exists => Ok(()),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut all = |tag: u8, parts: &[TestTree]| {
            out.push(tag);
            put_varint(out, parts.len() as u64);
            parts.iter().for_each(|part| part.encode(out));
        };
        match self {
            TestTree::All(parts) => all(1, parts),
            TestTree::Any(parts) => all(2, parts),
            TestTree::Column(test) => {
                out.push(0);
                test.encode(out);
            }
            TestTree::Not(inner) => {
                out.push(3);
                inner.encode(out);
            }
            TestTree::Exists => out.push(4),
        }
    }

    fn decode(reader: &mut Reader<'_>, depth: usize) -> Result<Self, Malformed> {
        let depth = depth.checked_sub(1).ok_or(Malformed)?;
        let all = |reader: &mut Reader<'_>| read_list(reader, |reader| Self::decode(reader, depth));
        Ok(match reader.u8()? {
            0 => TestTree::Column(Box::new(ColumnTest::decode(reader)?)),
            1 => TestTree::All(all(reader)?),
            2 => TestTree::Any(all(reader)?),
            3 => TestTree::Not(Box::new(Self::decode(reader, depth)?)),
            4 => TestTree::Exists,
            _ => return Err(Malformed),
        })
    }
}

/// Appends a path into a document.
pub(crate) fn put_path(out: &mut Vec<u8>, path: &[PathStep]) {
    put_varint(out, path.len() as u64);
    for step in path {
        match step {
            PathStep::Member(name) => {
                out.push(0);
                put_slice(out, name.as_bytes());
            }
            PathStep::Element(index) => {
                out.push(1);
                out.extend_from_slice(&index.to_le_bytes());
            }
        }
    }
}

/// Reads a path into a document.
pub(crate) fn read_path(reader: &mut Reader<'_>) -> Result<Vec<PathStep>, Malformed> {
    read_list(reader, |reader| match reader.u8()? {
        0 => String::from_utf8(reader.slice()?.to_vec()).map(PathStep::Member).map_err(|_| Malformed),
        1 => Ok(PathStep::Element(i32::from_le_bytes(reader.array()?))),
        _ => Err(Malformed),
    })
}

fn put_expiry(out: &mut Vec<u8>, expiry: Option<&Expiry>) {
    out.push(u8::from(expiry.is_some()));
    if let Some(expiry) = expiry {
        out.extend_from_slice(&expiry.ttl_s.to_le_bytes());
        out.extend_from_slice(&expiry.at_s.to_le_bytes());
    }
}

fn read_expiry(reader: &mut Reader<'_>) -> Result<Option<Expiry>, Malformed> {
    Ok(match read_bool(reader)? {
        true => Some(Expiry { ttl_s: reader.u32()?, at_s: reader.u32()? }),
        false => None,
    })
}

/// A partition, a row, and the end of a range that begins there.
type Place<'c> = (&'c [u8], &'c [u8], Option<&'c [u8]>);

impl RowCondition {
    /// Of what it is: a row, or a range of rows with its end.
    fn place(&self) -> Place<'_> {
        let end = match &self.test {
            RowTest::Unchanged(Unchanged { end, .. }) => end.as_deref(),
            _ => None,
        };
        (&self.partition, &self.row, end)
    }

    /// How many rows of a range it reads.
    fn rows(&self) -> u64 {
        match &self.test {
            RowTest::Unchanged(Unchanged { end: Some(_), rows, .. }) => *rows,
            _ => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_slice(out, &self.partition);
        put_slice(out, &self.row);
        match &self.test {
            RowTest::Exists => out.push(0),
            RowTest::NotExists => out.push(1),
            RowTest::Columns(columns) => {
                out.push(2);
                put_varint(out, columns.len() as u64);
                columns.iter().for_each(|column| column.encode(out));
            }
            RowTest::Tree(tree) => {
                out.push(3);
                tree.encode(out);
            }
            RowTest::Unchanged(Unchanged { views, columns, end, rows, digest }) => {
                put_views(out, views);
                out.push(u8::from(columns.is_some()));
                if let Some(columns) = columns {
                    put_varint(out, columns.len() as u64);
                    columns.iter().for_each(|column| put_varint(out, u64::from(*column)));
                }
                put_optional(out, end.as_deref());
                put_varint(out, *rows);
                out.extend_from_slice(digest);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (partition, row) = (reader.slice()?.to_vec(), reader.slice()?.to_vec());
        let test = match reader.u8()? {
            0 => RowTest::Exists,
            1 => RowTest::NotExists,
            2 => RowTest::Columns(read_list(reader, ColumnTest::decode)?),
            3 => RowTest::Tree(TestTree::decode(reader, MAX_CONDITION_DEPTH)?),
            tag @ (UNCHANGED | UNCHANGED_EXTENDED) => RowTest::Unchanged(Unchanged {
                views: read_views(reader, tag == UNCHANGED_EXTENDED)?,
                columns: match read_bool(reader)? {
                    true => {
                        let column =
                            |reader: &mut Reader<'_>| u32::try_from(reader.shortest_varint()?).map_err(|_| Malformed);
                        Some(read_list(reader, column)?)
                    }
                    false => None,
                },
                end: read_optional(reader)?,
                rows: reader.shortest_varint()?,
                digest: reader.array()?,
            }),
            _ => return Err(Malformed),
        };
        Ok(Self { partition, row, test })
    }
}

impl ColumnTest {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.column));
        out.push(u8::from(self.is_static));
        put_type(out, &self.data_type);
        match &self.part {
            TestedPart::Whole => out.push(0),
            TestedPart::Element(key) => {
                out.push(1);
                put_slice(out, key);
            }
            TestedPart::Field(index) => {
                out.push(2);
                put_varint(out, u64::from(*index));
            }
            TestedPart::Path(path, as_text) => {
                out.push(3);
                put_path(out, path);
                out.push(u8::from(*as_text));
            }
        }
        match &self.test {
            ValueTest::Compare(operator, value) => {
                let number = OPERATORS.iter().position(|known| known == operator);
                out.push(number.expect("every operator is listed") as u8);
                put_optional(out, value.as_deref());
            }
            ValueTest::In(values) => {
                out.push(0x10);
                put_varint(out, values.len() as u64);
                values.iter().for_each(|value| put_optional(out, value.as_deref()));
            }
            ValueTest::Contains(value) => {
                out.push(0x11);
                put_slice(out, value);
            }
            ValueTest::ContainsKey(key) => {
                out.push(0x12);
                put_slice(out, key);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let column = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let is_static = read_bool(reader)?;
        let data_type = read_type(reader)?;
        let part = match reader.u8()? {
            0 => TestedPart::Whole,
            1 => TestedPart::Element(reader.slice()?.to_vec()),
            2 => TestedPart::Field(u16::try_from(reader.varint()?).map_err(|_| Malformed)?),
            3 => TestedPart::Path(read_path(reader)?, read_bool(reader)?),
            _ => return Err(Malformed),
        };
        let test = match reader.u8()? {
            0x10 => ValueTest::In(read_list(reader, read_optional)?),
            0x11 => ValueTest::Contains(reader.slice()?.to_vec()),
            0x12 => ValueTest::ContainsKey(reader.slice()?.to_vec()),
            number => {
                let operator = OPERATORS.get(usize::from(number)).ok_or(Malformed)?;
                ValueTest::Compare(*operator, read_optional(reader)?)
            }
        };
        Ok(Self { column, is_static, data_type, part, test })
    }
}

impl ProgramOperation {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ProgramOperation::Row { is_overwrite, is_stamped, is_unplaced, key, value } => {
                out.push(0);
                out.push(u8::from(*is_overwrite) | u8::from(*is_stamped) << 1 | u8::from(*is_unplaced) << 2);
                put_slice(out, key);
                put_slice(out, value);
            }
            ProgramOperation::Delete { partition, range, explicit_us } => {
                out.push(1);
                put_slice(out, partition);
                out.push(u8::from(range.is_some()));
                if let Some((start, end)) = range {
                    put_slice(out, start);
                    put_slice(out, end);
                }
                put_i64_option(out, *explicit_us);
            }
            ProgramOperation::List { key, partition_len, column, edit, explicit_us, expiry } => {
                out.push(2);
                put_slice(out, key);
                put_varint(out, *partition_len as u64);
                put_varint(out, u64::from(*column));
                match edit {
                    ListEdit::Set(index, value) => {
                        out.push(0);
                        out.extend_from_slice(&index.to_le_bytes());
                        put_optional(out, value.as_deref());
                    }
                    ListEdit::Remove(values) => {
                        out.push(1);
                        put_varint(out, values.len() as u64);
                        values.iter().for_each(|value| put_slice(out, value));
                    }
                }
                put_i64_option(out, *explicit_us);
                put_expiry(out, expiry.as_ref());
            }
            ProgramOperation::Document { key, partition_len, column, edits, explicit_us, expiry } => {
                out.push(3);
                put_slice(out, key);
                put_varint(out, *partition_len as u64);
                put_varint(out, u64::from(*column));
                put_varint(out, edits.len() as u64);
                for (path, value) in edits {
                    put_path(out, path);
                    put_slice(out, value);
                }
                put_i64_option(out, *explicit_us);
                put_expiry(out, expiry.as_ref());
            }
            ProgramOperation::Sum { key, partition_len, column, data_type, subtracts, number, expiry } => {
                out.push(4);
                put_slice(out, key);
                put_varint(out, *partition_len as u64);
                put_varint(out, u64::from(*column));
                put_type(out, data_type);
                out.push(u8::from(*subtracts));
                put_slice(out, number);
                put_expiry(out, expiry.as_ref());
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.u8()? {
            0 => {
                let flags = reader.u8()?;
                if flags > 7 {
                    return Err(Malformed);
                }
                let (key, value) = (reader.slice()?.to_vec(), reader.slice()?.to_vec());
                let [is_overwrite, is_stamped, is_unplaced] = [1, 2, 4].map(|flag| flags & flag != 0);
                Ok(Self::Row { is_overwrite, is_stamped, is_unplaced, key, value })
            }
            1 => {
                let partition = reader.slice()?.to_vec();
                let range = match read_bool(reader)? {
                    true => Some((reader.slice()?.to_vec(), reader.slice()?.to_vec())),
                    false => None,
                };
                Ok(Self::Delete { partition, range, explicit_us: read_i64_option(reader)? })
            }
            2 => {
                let key = reader.slice()?.to_vec();
                let partition_len = read_usize(reader)?;
                if partition_len >= key.len() {
                    return Err(Malformed);
                }
                let column = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
                let edit = match reader.u8()? {
                    0 => ListEdit::Set(i32::from_le_bytes(reader.array()?), read_optional(reader)?),
                    1 => ListEdit::Remove(read_list(reader, |reader| reader.slice().map(<[u8]>::to_vec))?),
                    _ => return Err(Malformed),
                };
                let explicit_us = read_i64_option(reader)?;
                let expiry = read_expiry(reader)?;
                Ok(Self::List { key, partition_len, column, edit, explicit_us, expiry })
            }
            3 => {
                let key = reader.slice()?.to_vec();
                let partition_len = read_usize(reader)?;
                if partition_len >= key.len() {
                    return Err(Malformed);
                }
                let column = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
                let edits = read_list(reader, |reader| Ok((read_path(reader)?, reader.slice()?.to_vec())))?;
                let explicit_us = read_i64_option(reader)?;
                let expiry = read_expiry(reader)?;
                Ok(Self::Document { key, partition_len, column, edits, explicit_us, expiry })
            }
            4 => Self::decode_sum(reader),
            _ => Err(Malformed),
        }
    }
    fn decode_sum(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let key = reader.slice()?.to_vec();
        let partition_len = read_usize(reader)?;
        let column = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let data_type = read_type(reader)?;
        if partition_len >= key.len() || !is_summable(&data_type) {
            return Err(Malformed);
        }
        let subtracts = read_bool(reader)?;
        let number = reader.slice()?.to_vec();
        let expiry = read_expiry(reader)?;
        Ok(Self::Sum { key, partition_len, column, data_type, subtracts, number, expiry })
    }
}
