//! Values as JSON, in the forms that Cassandra's `to_json`, `from_json`, `SELECT JSON` and `INSERT JSON` have.
//!
//! Always true: what [`write_json`] gives for a value, [`from_json`] reads back as an equal one (but for NaN and the infinities, which JSON
//! does not have and which become null). Left out: JSON texts themselves ([`crate::json`]).

use super::collection::{elements, entries, fields, push_count, push_element, push_vector_element, vector_elements};
use super::{Value, ValueError, canonical, literal, literal_text};
use crate::json::{Json, write_string};
use crate::types::CqlType;
use std::collections::{BTreeMap, BTreeSet};

/// Appends a value as JSON.
pub fn write_json(data_type: &CqlType, wire: &[u8], out: &mut String) -> Result<(), ValueError> {
    match data_type {
        CqlType::List(element, _) | CqlType::Set(element, _) => {
            write_array(elements(wire)?.map(|value| value.map(Some)), std::iter::repeat(&**element), out)
        }
        CqlType::Vector(element, dimension) => write_array(
            vector_elements(element, *dimension, wire).map(|value| value.map(Some)),
            std::iter::repeat(&**element),
            out,
        ),
        CqlType::Tuple(types) => write_array(all_fields(wire, types.len()), types.iter(), out),
        CqlType::Map(key_type, value_type, _) => {
            let mut separator = "{";
            for entry in entries(wire)? {
                let (key, value) = entry?;
                out.push_str(std::mem::replace(&mut separator, ", "));
                let mut name = String::new();
                write_json(key_type, key, &mut name)?;
                // A key that is a JSON string is used as it is; any other key becomes a string of its JSON.
                if name.starts_with('"') {
                    out.push_str(&name)
                } else {
                    write_string(&name, out)
                }
                out.push_str(": ");
                write_json(value_type, value, out)?;
            }
            out.push_str(if separator == "{" { "{}" } else { "}" });
            Ok(())
        }
        CqlType::UserDefined(user, _) => {
            out.push('{');
            for (at, (value, (name, field))) in all_fields(wire, user.fields.len()).zip(&user.fields).enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write_string(&member_name(name), out);
                out.push_str(": ");
                write_nullable(field, value?, out)?;
            }
            out.push('}');
            Ok(())
        }
        _ => write_scalar(data_type, wire, out),
    }
}

/// The most bytes that [`write_json`] appends for a value, and writes apart before.
pub fn json_bytes(data_type: &CqlType, wire: &[u8]) -> Result<usize, ValueError> {
    let nullable = |of: &CqlType, value: Option<&[u8]>| value.map_or(Ok(4), |value| json_bytes(of, value));
    let mut bytes = 4usize;
    match data_type {
        CqlType::List(element, _) | CqlType::Set(element, _) => {
            for value in elements(wire)? {
                bytes = bytes.saturating_add(2 + json_bytes(element, value?)?);
            }
        }
        CqlType::Vector(element, dimension) => {
            for value in vector_elements(element, *dimension, wire) {
                bytes = bytes.saturating_add(2 + json_bytes(element, value?)?);
            }
        }
        CqlType::Tuple(types) => {
            for (value, of) in all_fields(wire, types.len()).zip(types.iter()) {
                bytes = bytes.saturating_add(2 + nullable(of, value?)?);
            }
        }
        CqlType::Map(key_type, value_type, _) => {
            for entry in entries(wire)? {
                let (key, value) = entry?;
                // A key is written apart, and may be escaped once more.
                let key_bytes = json_bytes(key_type, key)?.saturating_mul(3);
                bytes = bytes.saturating_add(6 + key_bytes).saturating_add(json_bytes(value_type, value)?);
            }
        }
        CqlType::UserDefined(user, _) => {
            for (value, (name, field)) in all_fields(wire, user.fields.len()).zip(&user.fields) {
                let name_bytes = 10 + escaped_bytes(name.as_bytes());
                bytes = bytes.saturating_add(name_bytes).saturating_add(nullable(field, value?)?);
            }
        }
        CqlType::Text | CqlType::Ascii => bytes += escaped_bytes(wire),
        CqlType::Blob => bytes += 2 * wire.len(),
        // Digits of three bits or more, with what stands around them.
        _ => bytes += 96 + 3 * wire.len(),
    }
    Ok(bytes)
}

/// The bytes of a string in JSON, without its quotes.
fn escaped_bytes(text: &[u8]) -> usize {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' => 2,
        0..b' ' => 6,
        _ => 1,
    };
    text.iter().map(escaped).sum()
}

/// A value or null as JSON.
pub fn write_nullable(data_type: &CqlType, value: Option<&[u8]>, out: &mut String) -> Result<(), ValueError> {
    match value {
        Some(wire) => write_json(data_type, wire, out),
        None => {
            out.push_str("null");
            Ok(())
        }
    }
}

/// How a column or field is called in JSON: in double quotes if it is not all lower case.
pub fn member_name(name: &str) -> String {
    if name.chars().any(char::is_uppercase) { format!("\"{name}\"") } else { name.to_owned() }
}

/// The stored form of a name as JSON has it.
pub fn stored_name(member: &str) -> String {
    match member.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
        Some(inner) => inner.to_owned(),
        None => member.to_lowercase(),
    }
}

fn all_fields(wire: &[u8], count: usize) -> impl Iterator<Item = Result<Option<&[u8]>, ValueError>> {
    fields(wire).chain(std::iter::repeat(Ok(None))).take(count)
}

fn write_array<'a, 't>(
    values: impl Iterator<Item = Result<Option<&'a [u8]>, ValueError>>,
    types: impl Iterator<Item = &'t CqlType>,
    out: &mut String,
) -> Result<(), ValueError> {
    out.push('[');
    for (at, (value, data_type)) in values.zip(types).enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_nullable(data_type, value?, out)?;
    }
    out.push(']');
    Ok(())
}

fn write_scalar(data_type: &CqlType, wire: &[u8], out: &mut String) -> Result<(), ValueError> {
    let value = Value::decode(data_type, wire)?;
    match &value {
        Value::Empty => out.push_str("null"),
        Value::Ascii(text) | Value::Text(text) => write_string(text, out),
        Value::Double(number) if !number.is_finite() => out.push_str("null"),
        Value::Float(number) if !number.is_finite() => out.push_str("null"),
        Value::Timestamp(_) => {
            let mut text = String::new();
            literal_text(data_type, wire, &mut text)?;
            write_string(&text.trim_matches('\'').replace("+0000", "Z"), out);
        }
        Value::Boolean(_)
        | Value::Tinyint(_)
        | Value::Smallint(_)
        | Value::Int(_)
        | Value::Bigint(_)
        | Value::Varint(_)
        | Value::Decimal(..)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Jsonb(_) => {
            let mut text = String::new();
            literal_text(data_type, wire, &mut text)?;
            match value {
                // Rendered as a string constant, which JSON does not need.
                Value::Jsonb(document) => out.push_str(&document),
                _ => out.push_str(&text),
            }
        }
        _ => {
            let mut text = String::new();
            literal_text(data_type, wire, &mut text)?;
            write_string(text.trim_matches('\''), out);
        }
    }
    Ok(())
}

fn refuse<T>(message: String) -> Result<T, ValueError> {
    Err(ValueError(message))
}

/// The kind of a JSON value, for messages.
fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Boolean(_) => "Boolean",
        Json::Number(digits) if digits.contains(['.', 'e', 'E']) => "Double",
        Json::Number(_) => "Integer",
        Json::String(_) => "String",
        Json::Array(_) => "ArrayList",
        Json::Object(_) => "LinkedHashMap",
    }
}

/// Appends the wire bytes of a JSON value that is not null, in stored form.
pub fn from_json(data_type: &CqlType, json: &Json, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let mut wire = Vec::new();
    read(data_type, json, &mut wire)?;
    data_type.validate(&wire)?;
    out.extend_from_slice(&canonical(data_type, &wire)?);
    Ok(())
}

fn read(data_type: &CqlType, json: &Json, out: &mut Vec<u8>) -> Result<(), ValueError> {
    if let CqlType::Jsonb = data_type {
        json.clone().sorted().write_into(out);
        return Ok(());
    }
    let expected =
        |what: &str| refuse(format!("Expected {what}, but got a {}: {}", kind(json), literal::shown(&json.text())));
    if data_type.native_name().is_none() {
        // A collection as the key of a map is a string of JSON.
        return match json {
            Json::String(text) => read_nested(data_type, &Json::parse(text)?, out),
            other => read_nested(data_type, other, out),
        };
    }
    match (data_type, json) {
        (CqlType::Text | CqlType::Ascii, Json::String(text)) => literal::from_text(data_type, text, out),
        (CqlType::Text, _) => expected("a UTF-8 string"),
        (CqlType::Ascii, _) => expected("an ASCII string"),
        (CqlType::Boolean, Json::Boolean(value)) => {
            out.push(u8::from(*value));
            Ok(())
        }
        (CqlType::Boolean, Json::String(text)) => literal::from_text(data_type, text, out),
        (CqlType::Boolean, _) => expected("a boolean value"),
        (CqlType::Blob, Json::String(text)) => match text.strip_prefix("0x") {
            Some(digits) => literal::from_text(data_type, digits, out),
            None => refuse(format!(
                "Value '{}' is not a valid blob representation: String representation of blob is missing 0x prefix",
                literal::shown(text)
            )),
        },
        (CqlType::Timestamp, Json::Number(digits) | Json::String(digits)) => literal::from_text(data_type, digits, out),
        (
            CqlType::Tinyint | CqlType::Smallint | CqlType::Int | CqlType::Bigint | CqlType::Counter | CqlType::Varint,
            Json::Number(digits),
        ) if digits.contains(['.', 'e', 'E']) => expected(&format!("{} {data_type} value", article(data_type))),
        (
            CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Counter
            | CqlType::Varint
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal,
            Json::Number(digits) | Json::String(digits),
        ) => literal::from_text(data_type, digits, out),
        (
            CqlType::Date | CqlType::Time | CqlType::Duration | CqlType::Inet | CqlType::Uuid | CqlType::Timeuuid,
            Json::String(text),
        ) => literal::from_text(data_type, text, out),
        _ => expected(&format!("{} {data_type} value", article(data_type))),
    }
}

fn article(data_type: &CqlType) -> &'static str {
    if matches!(data_type, CqlType::Int | CqlType::Inet) { "an" } else { "a" }
}

fn read_nested(data_type: &CqlType, json: &Json, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match (data_type, json) {
        (CqlType::List(element, _) | CqlType::Set(element, _), Json::Array(values)) => {
            push_count(values.len(), out);
            for value in values {
                let what = if matches!(data_type, CqlType::List(..)) { "list" } else { "set" };
                push_element(Some(&part(element, value, || format!("Invalid null element in {what}"))?), out);
            }
            Ok(())
        }
        (CqlType::Vector(element, dimension), Json::Array(values)) => {
            if values.len() != usize::from(*dimension) {
                return refuse(format!("Expected a vector of {dimension} elements, but got {}", values.len()));
            }
            for value in values {
                push_vector_element(
                    element,
                    &part(element, value, || "Invalid null element in vector".to_owned())?,
                    out,
                );
            }
            Ok(())
        }
        (CqlType::Map(key_type, value_type, _), Json::Object(members)) => {
            push_count(members.len(), out);
            for (name, value) in members {
                let key = Json::String(name.clone());
                push_element(Some(&part(key_type, &key, || "Invalid null key in map".to_owned())?), out);
                push_element(Some(&part(value_type, value, || "Invalid null value in map".to_owned())?), out);
            }
            Ok(())
        }
        (CqlType::Tuple(types), Json::Array(values)) => {
            if values.len() > types.len() {
                return refuse(format!(
                    "Tuple contains extra items (expected {}): {}",
                    types.len(),
                    literal::shown(&json.text())
                ));
            }
            if values.len() < types.len() {
                return refuse(format!(
                    "Tuple is missing items (expected {}): {}",
                    types.len(),
                    literal::shown(&json.text())
                ));
            }
            types.iter().zip(values).try_for_each(|(field, value)| push_field(field, value, out))
        }
        (CqlType::UserDefined(user, _), Json::Object(members)) => {
            // Of two members of one name the later counts.
            let named: BTreeMap<String, &Json> =
                members.iter().map(|(name, value)| (stored_name(name), value)).collect();
            let known: BTreeSet<&str> = user.fields.iter().map(|(name, _)| name.as_str()).collect();
            if let Some(unknown) = named.keys().find(|name| !known.contains(name.as_str())) {
                let unknown = literal::shown(unknown);
                return refuse(format!("Unknown field '{unknown}' in value of user defined type {}", user.name));
            }
            user.fields
                .iter()
                .try_for_each(|(name, field)| push_field(field, named.get(name).copied().unwrap_or(&Json::Null), out))
        }
        (CqlType::Map(..) | CqlType::UserDefined(..), _) => {
            let what = if matches!(data_type, CqlType::Map(..)) { "map" } else { "map (user-defined type)" };
            refuse(format!("Expected a {what}, but got a {}: {}", kind(json), literal::shown(&json.text())))
        }
        _ => refuse(format!("Expected a list, but got a {}: {}", kind(json), literal::shown(&json.text()))),
    }
}

fn part(data_type: &CqlType, json: &Json, null: impl FnOnce() -> String) -> Result<Vec<u8>, ValueError> {
    if *json == Json::Null {
        return refuse(null());
    }
    let mut out = Vec::new();
    read(data_type, json, &mut out)?;
    Ok(out)
}

fn push_field(data_type: &CqlType, json: &Json, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match json {
        Json::Null => push_element(None, out),
        value => push_element(Some(&part(data_type, value, String::new)?), out),
    }
    Ok(())
}
