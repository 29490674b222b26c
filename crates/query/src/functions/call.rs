//! Applying functions.
//!
//! Always true: the memory of a call is charged to the request before it is allocated; a null argument gives null,
//! except where the function says otherwise.

use super::arithmetic::{self, apply as calculate};
use super::cast::cast;
use super::environment::Environment;
use super::function::Function;
use super::mask::Mask;
use super::moment::{MS_PER_DAY, bounding_timeuuid, floor, moment_from_ms, moment_ms};
use super::token::{partition_hash, token_of, token_of_hash};
use super::{collections, document, mask};
use crate::error::{invalid, value_error};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::json::json_bytes;
use std::borrow::Cow;

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

    /// About the most memory that applying it takes, beside the arguments.
    fn working_bytes(&self, arguments: &[Option<Cow<'_, [u8]>>]) -> Result<usize, CqlError> {
        let argument_bytes: usize = arguments.iter().flatten().map(|argument| argument.len()).sum();
        let first = arguments.first().and_then(|argument| argument.as_deref());
        Ok(match (self, first) {
            (Function::FromJson(_) | Function::JsonPath(..), _) => {
                argument_bytes.saturating_mul(document::PARSED_BYTES)
            }
            // The text, and those of its parts.
            (Function::ToJson(of), Some(value)) => {
                argument_bytes.saturating_add(json_bytes(of, value).map_err(value_error)?.saturating_mul(2))
            }
            (Function::Mask(Mask::Default, of), _) => mask::default_bytes(of).saturating_mul(3),
            // A letter of one byte may be hidden by one of four.
            (Function::Mask(Mask::Inner | Mask::Outer, _), _) => argument_bytes.saturating_mul(8),
            (
                Function::MapKeys(of)
                | Function::MapValues(of)
                | Function::CollectionCount(of)
                | Function::CollectionExtreme(of, _)
                | Function::CollectionSum(of, _),
                Some(wire),
            ) => argument_bytes.saturating_mul(2).saturating_add(collections::parts_bytes(of, wire)),
            _ => argument_bytes.saturating_mul(2),
        })
    }

    /// Applies the function.
    pub fn call(
        &self,
        arguments: &[Option<Cow<'_, [u8]>>],
        environment: &Environment<'_>,
    ) -> Result<Option<Vec<u8>>, CqlError> {
        let _working = environment.budget.hold(self.working_bytes(arguments)?)?;
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
            _ => Err(invalid("the arguments do not fit the function")),
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
