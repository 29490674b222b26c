//! Small pieces of CQL text: quoted names, strings and maps, as DESCRIBE and stored options show them.

use diorite_cql::language::ast::Literal;
use diorite_cql::language::format::{quote_identifier, quote_string};
use diorite_model::types::{CqlType, Frozen};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A string literal.
pub fn string(text: &str) -> String {
    quote_string(text)
}

/// A map literal of strings.
pub fn map(entries: &BTreeMap<String, String>) -> String {
    let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{}: {}", string(key), string(value))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// `0x…`
pub fn blob(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// A number as Java prints a `double`, near enough: always with a fraction.
pub fn double(value: f64) -> String {
    format!("{value:?}")
}

/// A constant without its quotes, the way options are compared.
pub fn raw(literal: &Literal) -> String {
    match literal {
        Literal::Null => "null".to_owned(),
        Literal::String(text) | Literal::Integer(text) | Literal::Float(text) => text.clone(),
        Literal::Boolean(value) => value.to_string(),
        Literal::Blob(bytes) => blob(bytes),
        Literal::Uuid(bytes) => uuid::Uuid::from_bytes(*bytes).to_string(),
        Literal::Duration(duration) => {
            format!("{}mo{}d{}ns", duration.months, duration.days, duration.nanoseconds)
        }
    }
}

/// A name as CQL text: in quotes if it would not be read back unchanged.
pub fn identifier(name: &str) -> String {
    quote_identifier(name).into_owned()
}

/// A type as CQL text.
pub fn type_name(data_type: &CqlType) -> String {
    let frozen = |text: String, frozen: Frozen| if frozen == Frozen::Yes { format!("frozen<{text}>") } else { text };
    match data_type {
        CqlType::List(element, is) => frozen(format!("list<{}>", type_name(element)), *is),
        CqlType::Set(element, is) => frozen(format!("set<{}>", type_name(element)), *is),
        CqlType::Map(key, value, is) => frozen(format!("map<{}, {}>", type_name(key), type_name(value)), *is),
        CqlType::Tuple(parts) => {
            let parts: Vec<_> = parts.iter().map(type_name).collect();
            format!("frozen<tuple<{}>>", parts.join(", "))
        }
        CqlType::Vector(element, dimension) => format!("vector<{}, {dimension}>", type_name(element)),
        CqlType::UserDefined(user_type, is) => frozen(identifier(&user_type.name), *is),
        native => native.to_string(),
    }
}
