//! The scalar functions of CQL over wire values.
//!
//! Always true: a function sees valid values of its argument types and gives a valid value of its result type; a null argument gives
//! null, except where a signature says otherwise. Time and randomness come from the [`Environment`]. Left out: aggregates
//! ([`crate::exec`]), user-defined functions, and the functions of how a cell was written, which need the cell.

pub mod arithmetic;
mod cast;
mod collections;
pub mod document;
pub mod generic;
pub mod mask;
pub mod math;
pub mod number;
pub mod vector;

pub use cast::{cast, is_castable};

use crate::budget::Budget;
use crate::error::invalid;
use crate::exec::evaluate::now_seconds;
use arithmetic::apply as calculate;
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::language::ast::ArithmeticOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::token;
use diorite_model::types::CqlType;
use diorite_model::value::calendar::{self, Span};
use document::{JsonRow, Step};
use mask::Mask;
use math::MathFunction;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::atomic::{AtomicI64, Ordering};
use vector::Similarity;

/// Ticks of 100 ns between the start of the Gregorian calendar (what UUIDs count from) and 1970.
const GREGORIAN_OFFSET: i64 = 0x01B2_1DD2_1381_4000;
/// The day number of 1970-01-01 in a `date`.
const DATE_EPOCH: i64 = 1 << 31;
const MS_PER_DAY: i64 = 86_400_000;

/// Makes UUIDs: version 1 ones never repeat and never go back in time, version 4 ones are random.
#[derive(Debug)]
pub struct UuidSource {
    last_ticks: AtomicI64,
    node: [u8; 8],
    random: Mutex<SplitMix64>,
}

impl UuidSource {
    /// A source of its own node number.
    pub fn new(mut random: SplitMix64) -> Self {
        let mut node = random.next_u64().to_be_bytes();
        // Variant 1 in the clock sequence; the multicast bit says that the node number is not a hardware address.
        node[0] = (node[0] & 0x3F) | 0x80;
        node[2] |= 0x01;
        Self { last_ticks: AtomicI64::new(0), node, random: Mutex::new(random) }
    }

    /// A time-based UUID for this moment.
    pub fn time_based(&self, now_us: i64) -> [u8; 16] {
        let wanted = now_us.saturating_mul(10);
        let mut last = self.last_ticks.load(Ordering::Relaxed);
        loop {
            let next = wanted.max(last + 1);
            match self.last_ticks.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return timeuuid(next, self.node),
                Err(seen) => last = seen,
            }
        }
    }

    /// A random UUID.
    pub fn random(&self) -> [u8; 16] {
        let mut random = self.random.lock();
        let halves = [random.next_u64(), random.next_u64()];
        drop(random);
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&halves[0].to_be_bytes());
        uuid[8..].copy_from_slice(&halves[1].to_be_bytes());
        uuid[6] = (uuid[6] & 0x0F) | 0x40;
        uuid[8] = (uuid[8] & 0x3F) | 0x80;
        uuid
    }
}

/// A version 1 UUID: `ticks` of 100 ns since 1970, then clock sequence and node as given.
fn timeuuid(ticks: i64, rest: [u8; 8]) -> [u8; 16] {
    let ticks = (ticks.wrapping_add(GREGORIAN_OFFSET)) as u64;
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    uuid[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    uuid[6..8].copy_from_slice(&(((ticks >> 48) as u16 & 0x0FFF) | 0x1000).to_be_bytes());
    uuid[8..].copy_from_slice(&rest);
    uuid
}

/// Milliseconds since 1970 of a version 1 UUID.
fn timeuuid_ms(uuid: &[u8]) -> Option<i64> {
    let low = u32::from_be_bytes(uuid.get(..4)?.try_into().ok()?);
    let middle = u16::from_be_bytes(uuid.get(4..6)?.try_into().ok()?);
    let high = u16::from_be_bytes(uuid.get(6..8)?.try_into().ok()?) & 0x0FFF;
    let ticks = (i64::from(high) << 48) | (i64::from(middle) << 32) | i64::from(low);
    Some((ticks - GREGORIAN_OFFSET).div_euclid(10_000))
}

/// What functions know beside their arguments.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// Wall-clock microseconds since the epoch, one moment for the whole statement.
    pub now_us: i64,
    /// The second that expiries are reckoned from: of the same moment, unless the request gives another.
    pub now_s: u32,
    /// For `now()` and `uuid()`.
    pub uuids: &'a UuidSource,
    /// What the request may use.
    pub budget: &'a Budget,
    /// The row of an `INSERT JSON`, read once for all of its columns.
    pub json: Option<&'a JsonRow>,
}

impl<'a> Environment<'a> {
    /// At a moment, for what is bounded in other ways.
    pub fn new(now_us: i64, uuids: &'a UuidSource) -> Self {
        Self { now_us, now_s: now_seconds(now_us), uuids, budget: Budget::unlimited(), json: None }
    }
}

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

/// An overload: what it takes and what it gives.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Which function.
    pub function: Function,
    /// What it takes.
    pub arguments: Vec<CqlType>,
    /// What it gives.
    pub returns: CqlType,
}

fn signature(function: Function, arguments: &[CqlType], returns: CqlType) -> Signature {
    Signature { function, arguments: arguments.to_vec(), returns }
}

/// Types that `blobAs…` and `…AsBlob` exist for.
const BLOB_CONVERTIBLE: [(&str, CqlType); 20] = [
    ("ascii", CqlType::Ascii),
    ("bigint", CqlType::Bigint),
    ("boolean", CqlType::Boolean),
    ("counter", CqlType::Counter),
    ("date", CqlType::Date),
    ("decimal", CqlType::Decimal),
    ("double", CqlType::Double),
    ("duration", CqlType::Duration),
    ("float", CqlType::Float),
    ("inet", CqlType::Inet),
    ("int", CqlType::Int),
    ("smallint", CqlType::Smallint),
    ("text", CqlType::Text),
    ("varchar", CqlType::Text),
    ("time", CqlType::Time),
    ("timestamp", CqlType::Timestamp),
    ("timeuuid", CqlType::Timeuuid),
    ("tinyint", CqlType::Tinyint),
    ("uuid", CqlType::Uuid),
    ("varint", CqlType::Varint),
];

/// All overloads of a name (in lower case), except `token`, which depends on the table.
pub fn overloads(name: &str) -> Vec<Signature> {
    let moments = |sources: &[CqlType], to: CqlType| {
        sources
            .iter()
            .map(|from| signature(Function::Moment(from.clone(), to.clone()), std::slice::from_ref(from), to.clone()))
            .collect()
    };
    let plain = name.replace('_', "");
    match plain.as_str() {
        "now" | "currenttimeuuid" => vec![signature(Function::Now, &[], CqlType::Timeuuid)],
        "uuid" => vec![signature(Function::RandomUuid, &[], CqlType::Uuid)],
        "currenttimestamp" => vec![signature(Function::CurrentTimestamp, &[], CqlType::Timestamp)],
        "currentdate" => vec![signature(Function::CurrentDate, &[], CqlType::Date)],
        "currenttime" => vec![signature(Function::CurrentTime, &[], CqlType::Time)],
        "mintimeuuid" => vec![signature(Function::MinTimeuuid, &[CqlType::Timestamp], CqlType::Timeuuid)],
        "maxtimeuuid" => vec![signature(Function::MaxTimeuuid, &[CqlType::Timestamp], CqlType::Timeuuid)],
        "totimestamp" => moments(&[CqlType::Timeuuid, CqlType::Date], CqlType::Timestamp),
        "todate" => moments(&[CqlType::Timeuuid, CqlType::Timestamp], CqlType::Date),
        "totime" => moments(&[CqlType::Timeuuid], CqlType::Time),
        "tounixtimestamp" => moments(&[CqlType::Timeuuid, CqlType::Timestamp, CqlType::Date], CqlType::Bigint),
        "dateof" => moments(&[CqlType::Timeuuid], CqlType::Timestamp),
        "unixtimestampof" => moments(&[CqlType::Timeuuid], CqlType::Bigint),
        _ => blob_conversions(&plain),
    }
}

fn blob_conversions(plain: &str) -> Vec<Signature> {
    let of =
        |name: &str| BLOB_CONVERTIBLE.iter().find(|(known, _)| *known == name).map(|(_, data_type)| data_type.clone());
    if let Some(data_type) = plain.strip_suffix("asblob").and_then(of) {
        return vec![signature(Function::AsBlob, &[data_type], CqlType::Blob)];
    }
    if let Some(data_type) = plain.strip_prefix("blobas").and_then(of) {
        return vec![signature(Function::BlobAs(data_type.clone()), &[CqlType::Blob], data_type)];
    }
    Vec::new()
}

/// Names of aggregates, which are no scalar functions.
pub fn is_aggregate(name: &str) -> bool {
    matches!(name, "count" | "min" | "max" | "sum" | "avg" | "countrows" | "count_rows")
}

/// Milliseconds since 1970 of a moment of type `from`.
fn moment_ms(from: &CqlType, wire: &[u8]) -> Option<i64> {
    match from {
        CqlType::Timeuuid => timeuuid_ms(wire),
        CqlType::Timestamp => Some(i64::from_be_bytes(wire.try_into().ok()?)),
        CqlType::Date => Some((i64::from(u32::from_be_bytes(wire.try_into().ok()?)) - DATE_EPOCH) * MS_PER_DAY),
        _ => None,
    }
}

/// Milliseconds since 1970 as a moment of type `to`.
fn moment_from_ms(to: &CqlType, ms: i64) -> Vec<u8> {
    match to {
        CqlType::Date => {
            let day = (ms.div_euclid(MS_PER_DAY) + DATE_EPOCH).clamp(0, i64::from(u32::MAX));
            (day as u32).to_be_bytes().to_vec()
        }
        CqlType::Time => (ms.rem_euclid(MS_PER_DAY) * 1_000_000).to_be_bytes().to_vec(),
        _ => ms.to_be_bytes().to_vec(),
    }
}

/// The token of a partition key given as its columns.
pub fn token_of<'a>(components: impl ExactSizeIterator<Item = &'a [u8]>) -> i64 {
    let is_single = components.len() == 1;
    let mut serialized = Vec::new();
    for component in components {
        if is_single {
            return token::token(component);
        }
        token::push_composite(component, &mut serialized);
    }
    token::token(&serialized)
}

impl Function {
    /// Whether two calls with the same arguments may differ.
    pub fn is_volatile(&self) -> bool {
        matches!(
            self,
            Function::Now
                | Function::RandomUuid
                | Function::CurrentTimestamp
                | Function::CurrentDate
                | Function::CurrentTime
        )
    }

    /// The most memory that applying it takes beside its arguments, about, for arguments of this size in all.
    fn working_bytes(&self, argument_bytes: usize) -> usize {
        match self {
            Function::FromJson(_) | Function::JsonPath(..) => argument_bytes.saturating_mul(document::PARSED_BYTES),
            Function::ToJson(_) => argument_bytes.saturating_mul(4),
            _ => argument_bytes.saturating_mul(2),
        }
    }

    /// Applies the function.
    pub fn call(
        &self,
        arguments: &[Option<Cow<'_, [u8]>>],
        environment: &Environment<'_>,
    ) -> Result<Option<Vec<u8>>, CqlError> {
        let argument_bytes: usize = arguments.iter().flatten().map(|argument| argument.len()).sum();
        let _working = environment.budget.hold(self.working_bytes(argument_bytes))?;
        match self {
            Function::ToJson(of) => {
                return document::to_json(of, arguments.first().and_then(|value| value.as_deref())).map(Some);
            }
            Function::Mask(mask, of) => return mask::apply(*mask, of, arguments),
            Function::JsonPath(steps, as_text) => return document::follow(steps, *as_text, arguments),
            _ if arguments.iter().any(Option::is_none) => return Ok(None),
            _ => {}
        }
        let first = arguments.first().and_then(|argument| argument.as_deref()).unwrap_or_default();
        let now_ms = environment.now_us.div_euclid(1_000);
        Ok(match self {
            Function::Now => Some(environment.uuids.time_based(environment.now_us).to_vec()),
            Function::RandomUuid => Some(environment.uuids.random().to_vec()),
            Function::CurrentTimestamp => Some(now_ms.to_be_bytes().to_vec()),
            Function::CurrentDate => Some(moment_from_ms(&CqlType::Date, now_ms)),
            Function::CurrentTime => Some((now_ms.rem_euclid(MS_PER_DAY) * 1_000_000).to_be_bytes().to_vec()),
            // The clock sequence and node compare as signed bytes: these are the least and the greatest.
            Function::MinTimeuuid => bounding_timeuuid(first, 0, 0x80),
            Function::MaxTimeuuid => bounding_timeuuid(first, 9_999, 0x7F),
            Function::Moment(from, to) => moment_ms(from, first).map(|ms| moment_from_ms(to, ms)),
            Function::AsBlob => Some(first.to_vec()),
            Function::BlobAs(to) => match to.validate(first) {
                Ok(()) => Some(first.to_vec()),
                Err(_) => {
                    return Err(invalid(format!(
                        "In call to function system.blob_as_{to}, value 0x{} is not a valid binary representation for type {to}",
                        hex(first)
                    )));
                }
            },
            Function::Token => {
                let components: Vec<&[u8]> = arguments.iter().flatten().map(|argument| &**argument).collect();
                Some(token_of(components.into_iter()).to_be_bytes().to_vec())
            }
            Function::PartitionHash => {
                let components: Vec<&[u8]> = arguments.iter().flatten().map(|argument| &**argument).collect();
                Some(partition_hash(token_of(components.into_iter())).to_be_bytes().to_vec())
            }
            Function::Cast(from, to) => cast(from, to, first)?,
            _ => {
                let second = arguments.get(1).and_then(|argument| argument.as_deref()).unwrap_or_default();
                let third = arguments.get(2).and_then(|argument| argument.as_deref());
                return self.call_generic(first, second, third);
            }
        })
    }

    /// The functions whose types depend on their arguments.
    fn call_generic(&self, first: &[u8], second: &[u8], third: Option<&[u8]>) -> Result<Option<Vec<u8>>, CqlError> {
        match self {
            Function::Arithmetic(operator, left, right) => calculate(*operator, (left, first), (right, second)),
            Function::Negate(of) => arithmetic::negate(of, first),
            Function::Math(function, of) => function.apply(of, first),
            Function::Floor(of) => floor(of, first, second, third),
            Function::MapKeys(of) => collections::of_map(of, first, false).map(Some),
            Function::MapValues(of) => collections::of_map(of, first, true).map(Some),
            Function::CollectionCount(of) => collections::count(of, first).map(Some),
            Function::CollectionExtreme(of, greatest) => collections::extreme(of, first, *greatest),
            Function::CollectionSum(of, is_mean) => collections::sum(of, first, *is_mean).map(Some),
            Function::Similarity(measure, dimension) => measure.apply(*dimension, first, second).map(Some),
            Function::FromJson(to) => document::parse(to, first),
            Function::TokenOfHash(is_last) => {
                let hash = i32::from_be_bytes(first.try_into().map_err(|_| invalid("Invalid partition_hash"))?);
                Ok(Some(token_of_hash(hash, *is_last).to_be_bytes().to_vec()))
            }
            _ => Err(invalid("a function was called in a way that it does not know")),
        }
    }
}

/// The hash of YCQL's `partition_hash`: as the partitions are laid out here, 0 to 65,535 over the ring of tokens.
pub fn partition_hash(token: i64) -> i32 {
    ((token as u64 ^ (1 << 63)) >> 48) as i32
}

/// The first or last token with a hash; of hashes that no token has, the end of the ring on their side.
fn token_of_hash(hash: i32, is_last: bool) -> i64 {
    match u16::try_from(hash) {
        Ok(hash) => {
            let first = u64::from(hash) << 48;
            let token = if is_last { first | ((1 << 48) - 1) } else { first };
            (token ^ (1 << 63)) as i64
        }
        Err(_) if hash < 0 => i64::MIN,
        Err(_) => i64::MAX,
    }
}

/// A moment cut down to a multiple of a duration.
fn floor(of: &CqlType, moment: &[u8], duration: &[u8], start: Option<&[u8]>) -> Result<Option<Vec<u8>>, CqlError> {
    if moment.is_empty() {
        return Ok(None);
    }
    let span = Span::from_wire(duration).ok_or_else(|| invalid("the duration cannot be read"))?;
    if span.is_negative() {
        return Err(invalid("Negative durations are not supported by the floor function"));
    }
    if *of == CqlType::Time {
        let since_midnight = i64::from_be_bytes(moment.try_into().map_err(|_| invalid("Invalid time"))?);
        if span.months != 0 || span.days != 0 {
            return Err(invalid("For time values, the floor can only be computed for durations smaller than a day"));
        }
        let cut = if span.nanoseconds == 0 { 0 } else { since_midnight % span.nanoseconds };
        return Ok(Some((since_midnight - cut).to_be_bytes().to_vec()));
    }
    let returns = if *of == CqlType::Date { CqlType::Date } else { CqlType::Timestamp };
    if returns == CqlType::Date && span.nanoseconds != 0 {
        return Err(invalid(
            "The floor on date values cannot be computed for durations with a precision smaller than a day",
        ));
    }
    let Some(moment) = moment_ms(of, moment) else { return Ok(None) };
    let start = start.map_or(Some(0), |start| moment_ms(&returns, start)).unwrap_or(0);
    if start > moment {
        return Err(invalid("The floor function starting time is greater than the provided time"));
    }
    let found = calendar::floor(moment, span, start).ok_or_else(|| invalid("the result is out of range"))?;
    Ok(Some(moment_from_ms(&returns, found)))
}

fn bounding_timeuuid(timestamp: &[u8], ticks: i64, fill: u8) -> Option<Vec<u8>> {
    let ms = i64::from_be_bytes(timestamp.try_into().ok()?);
    Some(timeuuid(ms.saturating_mul(10_000).saturating_add(ticks), [fill; 8]).to_vec())
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
