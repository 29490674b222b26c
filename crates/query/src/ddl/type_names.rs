//! From type names in statements to types.
//!
//! Always true: what comes out may be stored: collections within collections are frozen, counters stand alone, durations are not
//! compared. Left out: what a column may be (key, static, counter), which the table's rules say.

use crate::error::{exceeded, invalid};
use crate::types::native_type;
use diorite_base::limits::{self, Exceeded};
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{QualifiedName, TypeName};
use diorite_cql::protocol::CqlError;
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

/// The number of parts of the types of one definition so far, those of fields of user-defined types included. A
/// definition of a few bytes may name large types many times.
#[derive(Debug, Default)]
pub struct Mentioned(usize);

impl Mentioned {
    /// Resolves the type name of a column or field.
    pub fn resolve(&mut self, catalog: &Catalog, keyspace: &str, name: &TypeName) -> Result<CqlType, CqlError> {
        let mut parts = 0;
        measure(catalog, keyspace, name, 1, &mut parts).map_err(exceeded)?;
        self.0 += parts;
        limits::check(&limits::STATEMENT_PARTS, self.0, || "a definition".to_owned()).map_err(exceeded)?;
        resolve(catalog, keyspace, name)
    }
}

/// Resolves a type name used in `keyspace`.
pub fn resolve_type(catalog: &Catalog, keyspace: &str, name: &TypeName) -> Result<CqlType, CqlError> {
    Mentioned::default().resolve(catalog, keyspace, name)
}

/// Adds the number of parts of a named type, before it is made; stops at the limits of a type.
fn measure(
    catalog: &Catalog,
    keyspace: &str,
    name: &TypeName,
    depth: usize,
    parts: &mut usize,
) -> Result<(), Exceeded> {
    let inner = |name: &TypeName, parts: &mut usize| measure(catalog, keyspace, name, depth + 1, parts);
    match name {
        TypeName::Frozen(name) => return measure(catalog, keyspace, name, depth, parts),
        TypeName::UserDefined(name) => {
            return match catalog.user_type(keyspace, &name.name) {
                Some(user_type) => user_type.check_within(depth, parts),
                None => Ok(()),
            };
        }
        TypeName::Native(_) | TypeName::Custom(_) => {}
        TypeName::List(element) | TypeName::Set(element) | TypeName::Vector(element, _) => inner(element, parts)?,
        TypeName::Map(key, value) => {
            inner(key, parts)?;
            inner(value, parts)?;
        }
        TypeName::Tuple(elements) => elements.iter().try_for_each(|element| inner(element, parts))?,
    }
    *parts += 1;
    limits::check(&limits::TYPE_DEPTH, depth, || "a type".to_owned())?;
    limits::check(&limits::TYPE_PARTS, *parts, || "a type".to_owned())
}

fn resolve(catalog: &Catalog, keyspace: &str, name: &TypeName) -> Result<CqlType, CqlError> {
    Ok(match name {
        TypeName::Native(native) => native_type(*native)?,
        TypeName::List(element) => CqlType::List(element_type(catalog, keyspace, element, name)?, Frozen::No),
        TypeName::Set(element) => {
            let element = element_type(catalog, keyspace, element, name)?;
            if mentions_duration(&element) {
                return Err(invalid(format!("Durations are not allowed inside sets: set<{element}>")));
            }
            CqlType::Set(element, Frozen::No)
        }
        TypeName::Map(key, value) => {
            let key = element_type(catalog, keyspace, key, name)?;
            let value = element_type(catalog, keyspace, value, name)?;
            if mentions_duration(&key) {
                return Err(invalid(format!("Durations are not allowed as map keys: map<{key}, {value}>")));
            }
            CqlType::Map(key, value, Frozen::No)
        }
        TypeName::Tuple(parts) => {
            let part = |part| frozen_part(catalog, keyspace, part, "tuples");
            CqlType::Tuple(parts.iter().map(part).collect::<Result<_, _>>()?)
        }
        TypeName::Vector(element, dimension) => {
            let dimension = u16::try_from(*dimension).ok().filter(|dimension| *dimension <= 8_192);
            let dimension = dimension.ok_or_else(|| invalid("vectors may have at most 8192 dimensions"))?;
            CqlType::Vector(Arc::new(frozen_part(catalog, keyspace, element, "vectors")?), dimension)
        }
        TypeName::Frozen(inner) => {
            let resolved = resolve_frozen(catalog, keyspace, inner)?;
            if resolved.native_name().is_some() {
                return Err(invalid(format!(
                    "frozen<> is only allowed on collections, tuples, and user-defined types (got {resolved})"
                )));
            }
            resolved
        }
        TypeName::UserDefined(user_type) => user_defined(catalog, keyspace, user_type)?,
        TypeName::Custom(class) => custom(class)?,
    })
}

/// A type inside `frozen<…>`: everything in it is frozen too.
fn resolve_frozen(catalog: &Catalog, keyspace: &str, name: &TypeName) -> Result<CqlType, CqlError> {
    let resolve = |name: &TypeName| resolve_frozen(catalog, keyspace, name).map(Arc::new);
    let resolved = match name {
        TypeName::List(element) => CqlType::List(resolve(element)?, Frozen::Yes),
        TypeName::Set(element) => CqlType::Set(resolve(element)?, Frozen::Yes),
        TypeName::Map(key, value) => CqlType::Map(resolve(key)?, resolve(value)?, Frozen::Yes),
        other => freeze(self::resolve(catalog, keyspace, other)?),
    };
    match &resolved {
        CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Map(_, element, _)
            if **element == CqlType::Counter =>
        {
            Err(invalid(format!("Counters are not allowed inside collections: {resolved}")))
        }
        CqlType::Set(element, _) if mentions_duration(element) => {
            Err(invalid(format!("Durations are not allowed inside sets: {resolved}")))
        }
        CqlType::Map(key, ..) if mentions_duration(key) => {
            Err(invalid(format!("Durations are not allowed as map keys: {resolved}")))
        }
        _ => Ok(resolved),
    }
}

/// The same type, stored as one value.
fn freeze(data_type: CqlType) -> CqlType {
    let deep = |inner: Arc<CqlType>| Arc::new(freeze(CqlType::clone(&inner)));
    match data_type {
        CqlType::List(element, _) => CqlType::List(deep(element), Frozen::Yes),
        CqlType::Set(element, _) => CqlType::Set(deep(element), Frozen::Yes),
        CqlType::Map(key, value, _) => CqlType::Map(deep(key), deep(value), Frozen::Yes),
        CqlType::UserDefined(user_type, _) => CqlType::UserDefined(user_type, Frozen::Yes),
        other => other,
    }
}

/// The type of a collection's elements, keys or values.
fn element_type(
    catalog: &Catalog,
    keyspace: &str,
    element: &TypeName,
    collection: &TypeName,
) -> Result<Arc<CqlType>, CqlError> {
    let resolved = resolve(catalog, keyspace, element)?;
    let kind = match collection {
        TypeName::List(_) => "list",
        TypeName::Set(_) => "set",
        _ => "map",
    };
    let refuse =
        |what: &str| Err(invalid(format!("{what} are not allowed inside collections: {resolved} in a {kind}")));
    match resolved {
        CqlType::Counter => refuse("Counters"),
        CqlType::UserDefined(_, Frozen::No) => refuse("Non-frozen UDTs"),
        _ if resolved.is_multi_cell() => refuse("Non-frozen collections"),
        _ => Ok(Arc::new(resolved)),
    }
}

fn frozen_part(catalog: &Catalog, keyspace: &str, part: &TypeName, whole: &str) -> Result<CqlType, CqlError> {
    match resolve_frozen(catalog, keyspace, part)? {
        CqlType::Counter => Err(invalid(format!("Counters are not allowed inside {whole}"))),
        resolved => Ok(resolved),
    }
}

fn user_defined(catalog: &Catalog, keyspace: &str, name: &QualifiedName) -> Result<CqlType, CqlError> {
    if let Some(other) = name.keyspace.as_deref().filter(|other| *other != keyspace) {
        return Err(invalid(format!(
            "Statement on keyspace {keyspace} cannot refer to a user type in keyspace {other}; \
             user types can only be used in the keyspace they are defined in"
        )));
    }
    let user_type = catalog.user_type(keyspace, &name.name);
    let user_type = user_type.ok_or_else(|| invalid(format!("Unknown type {keyspace}.{}", name.name)))?;
    Ok(CqlType::UserDefined(user_type.clone(), Frozen::No))
}

/// A class name in quotes: those of the native types are understood.
fn custom(class: &str) -> Result<CqlType, CqlError> {
    let short = class.strip_prefix("org.apache.cassandra.db.marshal.").unwrap_or(class);
    Ok(match short {
        "AsciiType" => CqlType::Ascii,
        "LongType" => CqlType::Bigint,
        "BytesType" => CqlType::Blob,
        "BooleanType" => CqlType::Boolean,
        "CounterColumnType" => CqlType::Counter,
        "SimpleDateType" => CqlType::Date,
        "DecimalType" => CqlType::Decimal,
        "DoubleType" => CqlType::Double,
        "DurationType" => CqlType::Duration,
        "FloatType" => CqlType::Float,
        "InetAddressType" => CqlType::Inet,
        "Int32Type" => CqlType::Int,
        "ShortType" => CqlType::Smallint,
        "UTF8Type" => CqlType::Text,
        "TimeType" => CqlType::Time,
        "TimestampType" | "DateType" => CqlType::Timestamp,
        "TimeUUIDType" => CqlType::Timeuuid,
        "ByteType" => CqlType::Tinyint,
        "UUIDType" => CqlType::Uuid,
        "IntegerType" => CqlType::Varint,
        _ => return Err(invalid(format!("the custom type '{class}' is not supported"))),
    })
}

/// Whether values have a part whose type may get more fields.
pub(super) fn mentions_user_type(data_type: &CqlType) -> bool {
    match data_type {
        CqlType::UserDefined(..) => true,
        CqlType::List(inner, _) | CqlType::Set(inner, _) | CqlType::Vector(inner, _) => mentions_user_type(inner),
        CqlType::Map(key, value, _) => mentions_user_type(key) || mentions_user_type(value),
        CqlType::Tuple(parts) => parts.iter().any(mentions_user_type),
        _ => false,
    }
}

/// Whether different bytes can be equal values, so that as clustering columns they are the same row.
pub(super) fn has_several_forms(data_type: &CqlType) -> bool {
    use CqlType::{Boolean, Decimal, Double, Float, Varint};
    match data_type {
        Boolean | Decimal | Double | Float | Varint => true,
        CqlType::List(inner, _) | CqlType::Set(inner, _) | CqlType::Vector(inner, _) => has_several_forms(inner),
        CqlType::Map(key, value, _) => has_several_forms(key) || has_several_forms(value),
        CqlType::Tuple(parts) => parts.iter().any(has_several_forms),
        CqlType::UserDefined(user_type, _) => user_type.fields.iter().any(|(_, field)| has_several_forms(field)),
        _ => false,
    }
}

/// Durations have no order, so nothing that holds one has.
pub(super) fn mentions_duration(data_type: &CqlType) -> bool {
    match data_type {
        CqlType::Duration => true,
        CqlType::List(inner, _) | CqlType::Set(inner, _) | CqlType::Vector(inner, _) => mentions_duration(inner),
        CqlType::Map(key, value, _) => mentions_duration(key) || mentions_duration(value),
        CqlType::Tuple(parts) => parts.iter().any(mentions_duration),
        CqlType::UserDefined(user_type, _) => user_type.fields.iter().any(|(_, field)| mentions_duration(field)),
        _ => false,
    }
}
