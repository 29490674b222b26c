//! The scalar functions, one variant for each overload.
//!
//! Always true: a variant holds the types that its overload depends on. Left out: applying them ([`super::call`]), their names
//! ([`mod@super::overloads`], [`super::generic`]).

use super::document::Step;
use super::mask::Mask;
use super::math::MathFunction;
use super::vector::Similarity;
use diorite_cql::language::ast::ArithmeticOperator;
use diorite_model::types::CqlType;

/// A function, one overload of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Function {
    /// `now()`, `currentTimeuuid()`
    Now,
    /// `uuid()`
    RandomUuid,
    /// `currentTimestamp()`
    CurrentTimestamp,
    /// `currentDate()`
    CurrentDate,
    /// `currentTime()`
    CurrentTime,
    /// `minTimeuuid(timestamp)`
    MinTimeuuid,
    /// `maxTimeuuid(timestamp)`
    MaxTimeuuid,
    /// From one kind of moment to another: `timeuuid`, `timestamp`, `date` to `timestamp`, `date`, `bigint` (milliseconds)
    Moment(CqlType, CqlType),
    /// `…AsBlob`: the same bytes
    AsBlob,
    /// `blobAs…`: the same bytes, checked
    BlobAs(CqlType),
    /// `token(partition key)`
    Token,
    /// `partition_hash(partition key)`: the token's upper 16 bits, from 0 on
    PartitionHash,
    /// The first or (`true`) last token with a `partition_hash`
    TokenOfHash(bool),
    /// `CAST(x AS type)`
    Cast(CqlType, CqlType),
    /// An operator, and the types of its operands
    Arithmetic(ArithmeticOperator, CqlType, CqlType),
    /// The sign
    Negate(CqlType),
    /// `abs(x)` and its like
    Math(MathFunction, CqlType),
    /// `floor(moment, duration[, start])`
    Floor(CqlType),
    /// `map_keys(map)`
    MapKeys(CqlType),
    /// `map_values(map)`
    MapValues(CqlType),
    /// `collection_count(collection)`
    CollectionCount(CqlType),
    /// `collection_min(collection)`, `collection_max(collection)` (`true`)
    CollectionExtreme(CqlType, bool),
    /// `collection_sum(collection)`, `collection_avg(collection)` (`true`)
    CollectionSum(CqlType, bool),
    /// `similarity_…(vector, vector)` of vectors of this many floats
    Similarity(Similarity, u16),
    /// `mask_…(value, …)`
    Mask(Mask, CqlType),
    /// `to_json(value)`
    ToJson(CqlType),
    /// `from_json(text)`
    FromJson(CqlType),
    /// `document->step…`, as text with `->>` (`true`)
    JsonPath(Vec<Step>, bool),
}

/// The signature of an overload.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Which function.
    pub function: Function,
    /// The types of its arguments.
    pub arguments: Vec<CqlType>,
    /// The type of its result.
    pub returns: CqlType,
}
