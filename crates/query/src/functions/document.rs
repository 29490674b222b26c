//! Functions of JSON: `to_json`, `from_json`, the columns of `INSERT JSON`, and the paths `->` and `->>` into documents.
//!
//! Always true: a path to something absent is null; `->` gives a document, `->>` a text. Left out: changing a part of a
//! document ([`crate::program`]).

use crate::error::{invalid, value_error};
use diorite_cql::protocol::CqlError;
use diorite_model::json::Json;
use diorite_model::types::CqlType;
use diorite_model::value::json::{from_json, stored_name, write_nullable};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The most memory of a parsed text for each of its bytes: that of an array of digits.
pub const PARSED_BYTES: usize = 24;

/// One step of a path, by the type of its argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To a member of an object
    Member,
    /// To an element of an array
    Element,
}

fn text(bytes: &[u8]) -> Result<&str, CqlError> {
    std::str::from_utf8(bytes).map_err(|_| invalid("String didn't validate."))
}

/// A value as JSON.
pub fn to_json(of: &CqlType, value: Option<&[u8]>) -> Result<Vec<u8>, CqlError> {
    let mut out = String::new();
    write_nullable(of, value, &mut out).map_err(value_error)?;
    Ok(out.into_bytes())
}

/// A JSON text as a value.
pub fn parse(to: &CqlType, json: &[u8]) -> Result<Option<Vec<u8>>, CqlError> {
    value_of(to, &Json::parse(text(json)?).map_err(value_error)?)
}

fn value_of(to: &CqlType, json: &Json) -> Result<Option<Vec<u8>>, CqlError> {
    if *json == Json::Null && *to != CqlType::Jsonb {
        return Ok(None);
    }
    let mut out = Vec::new();
    from_json(to, json, &mut out).map_err(value_error)?;
    Ok(Some(out))
}

/// The value of one column in `INSERT JSON`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// Its value, or null
    Value(Option<Vec<u8>>),
    /// The text does not name it
    Absent,
}

/// The row of an `INSERT JSON`, by the names of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonRow(BTreeMap<String, Json>);

/// Reads the row of an `INSERT JSON`; its members have to be among `columns`.
pub fn parse_row<'n>(json: &[u8], columns: impl Iterator<Item = &'n str>) -> Result<JsonRow, CqlError> {
    let row = Json::parse(text(json)?).map_err(value_error)?;
    let Json::Object(members) = row else {
        return Err(invalid("Could not decode JSON string as a map: the text is not an object"));
    };
    let columns: BTreeSet<&str> = columns.collect();
    let mut named = BTreeMap::new();
    for (name, value) in members {
        let stored = stored_name(&name);
        if !columns.contains(stored.as_str()) {
            return Err(invalid(format!("JSON values map contains unrecognized column: {stored}")));
        }
        // Of two members of one name the later counts.
        named.insert(stored, value);
    }
    Ok(JsonRow(named))
}

/// The value of a column in the row of an `INSERT JSON`.
pub fn member(row: &JsonRow, column: &str, data_type: &CqlType) -> Result<Member, CqlError> {
    match row.0.get(column) {
        None => Ok(Member::Absent),
        Some(Json::Null) => Ok(Member::Value(None)),
        Some(value) => {
            let value = value_of(data_type, value);
            value
                .map(Member::Value)
                .map_err(|error| invalid(format!("Error decoding JSON value for {column}: {}", error.message)))
        }
    }
}

/// The value at the end of a path: `arguments` are the document and the steps.
pub fn follow(steps: &[Step], as_text: bool, arguments: &[Option<Cow<'_, [u8]>>]) -> Result<Option<Vec<u8>>, CqlError> {
    let Some((Some(document), path)) = arguments.split_first() else { return Ok(None) };
    let document = Json::parse(text(document)?).map_err(value_error)?;
    let mut found = &document;
    for (step, argument) in steps.iter().zip(path) {
        let Some(argument) = argument else { return Ok(None) };
        let next = match step {
            Step::Member => found.member(text(argument)?),
            Step::Element => {
                let index: [u8; 4] = (**argument).try_into().map_err(|_| invalid("Invalid index into a document"))?;
                found.element(i32::from_be_bytes(index).into())
            }
        };
        match next {
            Some(next) => found = next,
            None => return Ok(None),
        }
    }
    Ok(Some(match found {
        Json::String(text) if as_text => text.clone().into_bytes(),
        other => other.text().into_bytes(),
    }))
}
