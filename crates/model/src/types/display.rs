//! Types as CQL text: what DESCRIBE, `system_schema` and error messages show.

use super::{CqlType, Frozen};
use std::fmt;

impl CqlType {
    /// The CQL name of a native type; `None` for collections, tuples, vectors and user-defined types.
    pub fn native_name(&self) -> Option<&'static str> {
        Some(match self {
            CqlType::Ascii => "ascii",
            CqlType::Bigint => "bigint",
            CqlType::Blob => "blob",
            CqlType::Boolean => "boolean",
            CqlType::Counter => "counter",
            CqlType::Date => "date",
            CqlType::Decimal => "decimal",
            CqlType::Double => "double",
            CqlType::Duration => "duration",
            CqlType::Float => "float",
            CqlType::Inet => "inet",
            CqlType::Int => "int",
            CqlType::Jsonb => "jsonb",
            CqlType::Smallint => "smallint",
            CqlType::Text => "text",
            CqlType::Time => "time",
            CqlType::Timestamp => "timestamp",
            CqlType::Timeuuid => "timeuuid",
            CqlType::Tinyint => "tinyint",
            CqlType::Uuid => "uuid",
            CqlType::Varint => "varint",
            _ => return None,
        })
    }

    /// The native type called `name` in lower case (`varchar` is `text`).
    pub fn from_native_name(name: &str) -> Option<CqlType> {
        Some(match name {
            "ascii" => CqlType::Ascii,
            "bigint" => CqlType::Bigint,
            "blob" => CqlType::Blob,
            "boolean" => CqlType::Boolean,
            "counter" => CqlType::Counter,
            "date" => CqlType::Date,
            "decimal" => CqlType::Decimal,
            "double" => CqlType::Double,
            "duration" => CqlType::Duration,
            "float" => CqlType::Float,
            "inet" => CqlType::Inet,
            "int" => CqlType::Int,
            "jsonb" => CqlType::Jsonb,
            "smallint" => CqlType::Smallint,
            "text" | "varchar" => CqlType::Text,
            "time" => CqlType::Time,
            "timestamp" => CqlType::Timestamp,
            "timeuuid" => CqlType::Timeuuid,
            "tinyint" => CqlType::Tinyint,
            "uuid" => CqlType::Uuid,
            "varint" => CqlType::Varint,
            _ => return None,
        })
    }
}

/// A stored name shown as CQL: quoted unless it is lower case and plain. Reserved words are not known here.
pub(crate) struct Identifier<'a>(pub &'a str);

impl fmt::Display for Identifier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0;
        let plain = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
        if plain { f.write_str(name) } else { write!(f, "\"{}\"", name.replace('"', "\"\"")) }
    }
}

/// CQL syntax. Frozen collections, user-defined types and tuples are wrapped in `frozen<…>`, as Cassandra shows them; vectors are not.
impl fmt::Display for CqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.native_name() {
            return f.write_str(name);
        }
        let frozen = match self {
            CqlType::List(_, frozen) | CqlType::Set(_, frozen) | CqlType::Map(_, _, frozen) => *frozen,
            CqlType::UserDefined(_, frozen) => *frozen,
            CqlType::Tuple(_) => Frozen::Yes,
            _ => Frozen::No,
        };
        if frozen == Frozen::Yes {
            f.write_str("frozen<")?;
        }
        match self {
            CqlType::List(element, _) => write!(f, "list<{element}>")?,
            CqlType::Set(element, _) => write!(f, "set<{element}>")?,
            CqlType::Map(key, value, _) => write!(f, "map<{key}, {value}>")?,
            CqlType::UserDefined(user, _) => Identifier(&user.name).fmt(f)?,
            CqlType::Vector(element, dimension) => write!(f, "vector<{element}, {dimension}>")?,
            CqlType::Tuple(types) => {
                f.write_str("tuple<")?;
                for (at, element) in types.iter().enumerate() {
                    write!(f, "{}{element}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str(">")?;
            }
            _ => {}
        }
        if frozen == Frozen::Yes { f.write_str(">") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::UserType;
    use std::sync::Arc;

    #[test]
    fn types_read_as_cql() {
        let user = Arc::new(UserType { keyspace: "k".into(), name: "Addr".into(), fields: vec![] });
        let map = CqlType::Map(
            Arc::new(CqlType::Text),
            Arc::new(CqlType::List(Arc::new(CqlType::UserDefined(user, Frozen::Yes)), Frozen::Yes)),
            Frozen::No,
        );
        assert_eq!(map.to_string(), "map<text, frozen<list<frozen<\"Addr\">>>>");
        let tuple = CqlType::Tuple(Arc::new([CqlType::Int, CqlType::Vector(Arc::new(CqlType::Float), 3)]));
        assert_eq!(tuple.to_string(), "frozen<tuple<int, vector<float, 3>>>");
    }
}
