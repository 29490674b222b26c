//! From restrictions and bound values to keys and key ranges.
//!
//! Always true: ranges are disjoint and in key order; partition keys are in the order of their columns' types, without duplicates. Clustering
//! ranges are relative to a partition: they begin with the row-kind byte. Left out: tokens of ranges ([`super::select`]).

use crate::budget::Budget;
use crate::error::{invalid, key_error, value_error};
use crate::kv::several::Span;
use crate::plan::restrictions::{ClusteringRestriction, Filter, PartitionRestriction, Restrictions};
use crate::plan::term::{Bound, Term};
use crate::plan::values::{SliceBound, TupleTerm, TupleValues, Values};
use crate::table::TableContext;
use diorite_base::limits::{MAX_COLLECTION_ELEMENTS, MAX_KEY_BYTES};
use diorite_cql::protocol::{CqlError, Value};
use diorite_model::key::{self, Bound as KeyBound, KeyError};
use diorite_model::value::collection;
use std::borrow::Cow;
use std::ops::Range;

/// The partition part of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionKey {
    /// Its token.
    pub token: i64,
    /// Token and partition columns.
    pub prefix: Vec<u8>,
}

/// Keys of rows in a partition, without the partition part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key after the range; `None` if the range is the one key `start`.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// The part of the range after the key at which the former page ended.
    pub fn beyond(&self, after: Option<&[u8]>, is_reversed: bool) -> Option<Self> {
        let Some(after) = after else { return Some(self.clone()) };
        let Some(end) = &self.end else {
            let is_beyond = if is_reversed { self.start.as_slice() < after } else { self.start.as_slice() > after };
            return is_beyond.then(|| self.clone());
        };
        if is_reversed {
            let end = end.as_slice().min(after).to_vec();
            return (self.start < end).then(|| Self { start: self.start.clone(), end: Some(end) });
        }
        let mut start = self.start.clone();
        if start.as_slice() <= after {
            start = after.to_vec();
            start.push(0);
        }
        (start < *end).then(|| Self { start, end: Some(end.clone()) })
    }

    /// The keys in the partition with this prefix, as a span of a fetch.
    pub fn span(&self, prefix: &[u8]) -> Span {
        let start = [prefix, &self.start].concat();
        match &self.end {
            None => Span::key(start),
            Some(end) => Span::range(start, [prefix, end].concat()),
        }
    }
}

/// The values a column is restricted to; in the order of the text, duplicates included.
pub fn values_of<'a>(values: &'a Values, bound: &Bound<'a>, name: &str) -> Result<Vec<Cow<'a, [u8]>>, CqlError> {
    match values {
        Values::One(term) => Ok(vec![term.require(bound, name)?]),
        Values::Many(terms) => {
            bound.environment.budget.take(terms.len() * size_of::<Cow<'_, [u8]>>())?;
            terms.iter().map(|term| term.require(bound, name)).collect()
        }
        Values::List(term) => list_elements(term, bound, name),
    }
}

fn list_elements<'a>(term: &'a Term, bound: &Bound<'a>, name: &str) -> Result<Vec<Cow<'a, [u8]>>, CqlError> {
    let list = term.require(bound, name)?;
    // An element takes at least four bytes on the wire, and a vector here.
    bound.environment.budget.take(list.len() + list.len() / 4 * size_of::<Cow<'_, [u8]>>())?;
    let copy = |element: &[u8]| Cow::Owned(element.to_vec());
    let elements = collection::elements(&list).map_err(value_error)?;
    elements.map(|element| element.map(copy).map_err(value_error)).collect()
}

/// The columns of one tuple.
fn tuple_of<'a>(tuple: &'a TupleTerm, bound: &Bound<'a>, columns: usize) -> Result<Vec<Cow<'a, [u8]>>, CqlError> {
    match tuple {
        TupleTerm::Terms(terms) => terms.iter().map(|term| term.require(bound, "of a tuple")).collect(),
        TupleTerm::Whole(term) => split_tuple(&term.require(bound, "of a tuple")?, columns),
    }
}

/// The bound of one column.
fn one_of<'a>(tuple: &'a TupleTerm, bound: &Bound<'a>, name: &str) -> Result<Cow<'a, [u8]>, CqlError> {
    if let TupleTerm::Terms(terms) = tuple
        && let [term] = terms.as_slice()
    {
        return term.require(bound, name);
    }
    let values = tuple_of(tuple, bound, 1)?;
    values.into_iter().next().ok_or_else(|| invalid("Expected 1 elements in value tuple, but got 0"))
}

fn split_tuple<'a>(wire: &[u8], columns: usize) -> Result<Vec<Cow<'a, [u8]>>, CqlError> {
    let mut parts = Vec::with_capacity(columns);
    for field in collection::fields(wire) {
        match field.map_err(value_error)? {
            Some(bytes) => parts.push(Cow::Owned(bytes.to_vec())),
            None => return Err(invalid("Invalid null value in condition for a tuple of columns")),
        }
    }
    if parts.len() != columns {
        return Err(invalid(format!("Expected {columns} elements in value tuple, but got {}", parts.len())));
    }
    Ok(parts)
}

/// All tuples several columns are restricted to.
pub fn tuples_of<'a>(
    values: &'a TupleValues,
    bound: &Bound<'a>,
    columns: usize,
) -> Result<Vec<Vec<Cow<'a, [u8]>>>, CqlError> {
    match values {
        TupleValues::Many(tuples) => tuples.iter().map(|tuple| tuple_of(tuple, bound, columns)).collect(),
        TupleValues::List(term) => {
            let tuples = list_elements(term, bound, "of tuples")?;
            tuples.iter().map(|tuple| split_tuple(tuple, columns)).collect()
        }
    }
}

/// The beginning of a row's key, from the row-kind byte on.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    key: Vec<u8>,
    /// The size of its columns in wire form, to which the limit applies.
    wire_bytes: usize,
}

/// How many columns a bound is about.
fn bound_columns(bound: &SliceBound, available: usize) -> usize {
    match &bound.value {
        TupleTerm::Terms(terms) => terms.len(),
        TupleTerm::Whole(Term::Marker { data_type: diorite_model::types::CqlType::Tuple(types), .. }) => types.len(),
        TupleTerm::Whole(_) => available,
    }
}

/// The error for an impossible partition key, with its columns.
fn partition_error(table: &TableContext, error: KeyError) -> CqlError {
    named_key_error(error, "partition key", table, 0..table.partition_columns())
}

/// The error for an impossible clustering key, with its columns.
fn clustering_error(table: &TableContext, error: KeyError) -> CqlError {
    named_key_error(error, "clustering columns", table, table.partition_columns()..table.key_columns())
}

fn named_key_error(error: KeyError, part: &str, table: &TableContext, columns: Range<usize>) -> CqlError {
    if let KeyError::Invalid(_) = error {
        return key_error(error);
    }
    let names: Vec<&str> = columns.map(|at| table.column(at).name.as_str()).collect();
    invalid(format!("{error} ({part} {} of {})", names.join(", "), table.full_name()))
}

fn too_many() -> CqlError {
    invalid(format!("the IN restrictions name more than {MAX_COLLECTION_ELEMENTS} keys"))
}

/// The most values that a list can have which is given as one term.
fn list_len(term: &Term, bound: &Bound<'_>) -> usize {
    match term.as_marker().map(|index| bound.values[usize::from(index)]) {
        // An element takes four bytes at least.
        Some(Value::Set(bytes)) => bytes.len() / 4,
        _ => 1,
    }
}

fn value_count(values: &Values, bound: &Bound<'_>) -> usize {
    match values {
        Values::One(_) => 1,
        Values::Many(terms) => terms.len(),
        Values::List(term) => list_len(term, bound),
    }
}

/// How many partitions are named, and how many rows in each, at most.
fn named_counts(restrictions: &Restrictions, bound: &Bound<'_>) -> (usize, usize) {
    let partitions = match &restrictions.partition {
        PartitionRestriction::Keys(keys) => {
            keys.iter().map(|values| value_count(values, bound)).fold(1, usize::saturating_mul)
        }
        _ => 1,
    };
    let of_clustering = |restriction: &ClusteringRestriction| match restriction {
        ClusteringRestriction::Values(values) => value_count(values, bound),
        ClusteringRestriction::Tuples(_, TupleValues::Many(tuples)) => tuples.len(),
        ClusteringRestriction::Tuples(_, TupleValues::List(term)) => list_len(term, bound),
        ClusteringRestriction::Slice { .. } => 1,
    };
    (partitions, restrictions.clustering.iter().map(of_clustering).fold(1, usize::saturating_mul))
}

/// The most values and keys that the restrictions can name.
pub fn key_count(restrictions: &Restrictions, bound: &Bound<'_>) -> usize {
    let (partitions, rows) = named_counts(restrictions, bound);
    let filters = restrictions.filters.iter().map(|filter| match filter {
        Filter::In(_, values) => value_count(values, bound),
        Filter::InTuples(_, _, TupleValues::Many(tuples)) => tuples.len(),
        Filter::InTuples(_, _, TupleValues::List(term)) => list_len(term, bound),
        _ => 1,
    });
    partitions.saturating_add(rows).saturating_add(filters.sum())
}

/// How many rows the restrictions of a write name, at most: each of the partitions with each of the rows.
pub fn written_count(restrictions: &Restrictions, bound: &Bound<'_>) -> usize {
    let (partitions, rows) = named_counts(restrictions, bound);
    partitions.saturating_mul(rows)
}

/// The partition with these values of its columns.
fn partition_key<'a>(
    table: &TableContext,
    values: impl Iterator<Item = &'a [u8]> + Clone,
    budget: &Budget,
) -> Result<PartitionKey, CqlError> {
    // Few values may be part of many keys; an encoded value takes up to twice its size.
    budget.take(8 + 2 * values.clone().map(<[u8]>::len).sum::<usize>())?;
    budget.check()?;
    let mut prefix = Vec::new();
    let token = table.layout().encode_partition(values, &mut prefix).map_err(|error| partition_error(table, error))?;
    Ok(PartitionKey { token, prefix })
}

/// The partitions named by a restricted partition key.
pub fn partition_keys(table: &TableContext, keys: &[Values], bound: &Bound<'_>) -> Result<Vec<PartitionKey>, CqlError> {
    if let [Values::One(term)] = keys {
        let value = term.require(bound, &table.column(0).name)?;
        return Ok(vec![partition_key(table, std::iter::once(&*value), bound.environment.budget)?]);
    }
    let mut columns = Vec::with_capacity(keys.len());
    for (at, values) in keys.iter().enumerate() {
        columns.push(values_of(values, bound, &table.column(at).name)?);
    }
    let count = columns.iter().try_fold(1usize, |product, values| product.checked_mul(values.len()));
    let count = count.filter(|count| *count <= MAX_COLLECTION_ELEMENTS).ok_or_else(too_many)?;
    let budget = bound.environment.budget;
    budget.take(count * size_of::<PartitionKey>())?;
    let mut found = Vec::with_capacity(count);
    for number in 0..count {
        // `number` counts through the product, the last column fastest.
        let mut rest = number;
        let mut chosen: Vec<&[u8]> = Vec::with_capacity(columns.len());
        for values in columns.iter().rev() {
            chosen.push(&values[rest % values.len()]);
            rest /= values.len();
        }
        chosen.reverse();
        found.push(partition_key(table, chosen.iter().copied(), budget)?);
    }
    found.sort_by(|a, b| a.prefix[8..].cmp(&b.prefix[8..]));
    found.dedup();
    Ok(found)
}

/// The ranges of rows in each partition.
pub fn clustering_ranges(
    table: &TableContext,
    restrictions: &Restrictions,
    bound: &Bound<'_>,
) -> Result<Vec<KeyRange>, CqlError> {
    let budget = bound.environment.budget;
    let mut first = Prefix::default();
    key::push_row(&mut first.key);
    let mut prefixes = vec![first];
    let mut next = 0;
    for restriction in &restrictions.clustering {
        match restriction {
            ClusteringRestriction::Values(values) => {
                let name = &table.column(table.partition_columns() + next).name;
                let tuples = values_of(values, bound, name)?.into_iter().map(|value| vec![value]).collect();
                prefixes = extend(table, &prefixes, next, tuples, budget)?;
                next += 1;
            }
            ClusteringRestriction::Tuples(columns, values) => {
                prefixes = extend(table, &prefixes, next, tuples_of(values, bound, *columns)?, budget)?;
                next += columns;
            }
            ClusteringRestriction::Slice { lower, upper } => {
                let mut ranges = Vec::new();
                for prefix in &prefixes {
                    budget.take(2 * prefix.key.len() + size_of::<KeyRange>())?;
                    budget.check()?;
                    let under = Under { table, prefix: &prefix.key, first: next };
                    under.slice(lower.as_ref(), upper.as_ref(), bound, &mut ranges)?;
                }
                return Ok(ranges);
            }
        }
    }
    let is_full = next == table.clustering_columns();
    let range = |start: Vec<u8>| {
        let end = (!is_full).then(|| {
            let mut end = start.clone();
            key::push_after(&mut end);
            end
        });
        KeyRange { start, end }
    };
    Ok(prefixes.into_iter().map(|prefix| range(prefix.key)).collect())
}

fn extend(
    table: &TableContext,
    prefixes: &[Prefix],
    first: usize,
    tuples: Vec<Vec<Cow<'_, [u8]>>>,
    budget: &Budget,
) -> Result<Vec<Prefix>, CqlError> {
    if prefixes.len().saturating_mul(tuples.len()) > MAX_COLLECTION_ELEMENTS {
        return Err(too_many());
    }
    let count = prefixes.len() * tuples.len();
    budget.take(count * size_of::<Prefix>())?;
    let mut extended = Vec::with_capacity(count);
    for prefix in prefixes {
        for tuple in &tuples {
            budget.take(prefix.key.len() + 2 * tuple.iter().map(|value| value.len()).sum::<usize>())?;
            budget.check()?;
            let mut prefix = prefix.clone();
            for (offset, value) in tuple.iter().enumerate() {
                prefix.wire_bytes += value.len();
                if prefix.wire_bytes > MAX_KEY_BYTES {
                    return Err(clustering_error(table, KeyError::TooLong(prefix.wire_bytes, MAX_KEY_BYTES)));
                }
                table
                    .layout()
                    .push_clustering(first + offset, value, &mut prefix.key)
                    .map_err(|error| clustering_error(table, error))?;
            }
            extended.push(prefix);
        }
    }
    extended.sort();
    extended.dedup();
    Ok(extended)
}

/// The rows under a prefix whose clustering columns from `first` on are restricted.
#[derive(Clone, Copy)]
struct Under<'k> {
    table: &'k TableContext,
    prefix: &'k [u8],
    first: usize,
}

impl Under<'_> {
    /// The ranges between two bounds, each on one or several columns.
    fn slice(
        &self,
        lower: Option<&SliceBound>,
        upper: Option<&SliceBound>,
        bound: &Bound<'_>,
        ranges: &mut Vec<KeyRange>,
    ) -> Result<(), CqlError> {
        let available = self.table.clustering_columns() - self.first;
        let one_column = |side: Option<&SliceBound>| side.is_none_or(|side| bound_columns(side, available) == 1);
        if one_column(lower) && one_column(upper) {
            let name = &self.table.column(self.table.partition_columns() + self.first).name;
            let lower_value = lower.map(|side| one_of(&side.value, bound, name)).transpose()?;
            let upper_value = upper.map(|side| one_of(&side.value, bound, name)).transpose()?;
            let lower = key_bound(lower.zip(lower_value.as_ref()).map(|(side, value)| (&**value, side.is_inclusive)));
            let upper = key_bound(upper.zip(upper_value.as_ref()).map(|(side, value)| (&**value, side.is_inclusive)));
            ranges.extend(self.between(lower, upper)?);
            return Ok(());
        }
        let mut allowed: Option<Vec<KeyRange>> = None;
        for (side, is_lower) in [(lower, true), (upper, false)] {
            let Some(side) = side else { continue };
            let values = tuple_of(&side.value, bound, bound_columns(side, available))?;
            let half = self.half_open(&values, side.is_inclusive, is_lower)?;
            allowed = Some(match allowed {
                None => half,
                Some(other) => intersect(&other, &half),
            });
        }
        ranges.extend(allowed.unwrap_or_default());
        Ok(())
    }

    /// The range between two bounds on the first column; `None` if it is empty.
    fn between(&self, lower: KeyBound<'_>, upper: KeyBound<'_>) -> Result<Option<KeyRange>, CqlError> {
        let range = self.table.layout().slice(self.prefix, self.first, lower, upper);
        let (start, end) = range.map_err(|error| clustering_error(self.table, error))?;
        Ok((start < end).then_some(KeyRange { start, end: Some(end) }))
    }

    /// All keys on one side of a tuple: those that differ first in the last column, in the one before it, and so on. Columns may be
    /// stored in different directions, so these are separate ranges.
    fn half_open(
        &self,
        values: &[Cow<'_, [u8]>],
        is_inclusive: bool,
        is_lower: bool,
    ) -> Result<Vec<KeyRange>, CqlError> {
        let mut ranges = Vec::with_capacity(values.len());
        let mut equal = self.prefix.to_vec();
        for (offset, value) in values.iter().enumerate() {
            let is_last = offset + 1 == values.len();
            let side = if is_last && is_inclusive { KeyBound::Inclusive(value) } else { KeyBound::Exclusive(value) };
            let (lower, upper) = if is_lower { (side, KeyBound::Unbounded) } else { (KeyBound::Unbounded, side) };
            let column = self.first + offset;
            ranges.extend(Under { prefix: &equal, first: column, ..*self }.between(lower, upper)?);
            let pushed = self.table.layout().push_clustering(column, value, &mut equal);
            pushed.map_err(|error| clustering_error(self.table, error))?;
        }
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        Ok(ranges)
    }
}

fn key_bound(side: Option<(&[u8], bool)>) -> KeyBound<'_> {
    match side {
        None => KeyBound::Unbounded,
        Some((value, true)) => KeyBound::Inclusive(value),
        Some((value, false)) => KeyBound::Exclusive(value),
    }
}

fn intersect(a: &[KeyRange], b: &[KeyRange]) -> Vec<KeyRange> {
    let mut both = Vec::new();
    for one in a {
        for other in b {
            let start = one.start.clone().max(other.start.clone());
            let end = one.end.clone().min(other.end.clone());
            if end.as_ref().is_some_and(|end| start < *end) {
                both.push(KeyRange { start, end });
            }
        }
    }
    both.sort_by(|a, b| a.start.cmp(&b.start));
    both
}
