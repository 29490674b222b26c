//! From the schema's types to the protocol's, and from type names in statements to types.
//!
//! Always true: every resolved type has a description that every protocol version can carry. Left out: values.

use diorite_cql::language::ast;
use diorite_cql::protocol::{CqlError, NativeType, TypeOption, UserTypeOption};
use diorite_model::types::CqlType;
use std::sync::Arc;

/// The description of a type in the protocol.
pub fn type_option(data_type: &CqlType) -> TypeOption {
    let boxed = |element: &CqlType| Box::new(type_option(element));
    match data_type {
        CqlType::List(element, _) => TypeOption::List(boxed(element)),
        CqlType::Set(element, _) => TypeOption::Set(boxed(element)),
        CqlType::Map(key, value, _) => TypeOption::Map(boxed(key), boxed(value)),
        CqlType::Tuple(elements) => TypeOption::Tuple(elements.iter().map(type_option).collect()),
        CqlType::UserDefined(user, _) => TypeOption::UserDefined(Box::new(UserTypeOption {
            keyspace: user.keyspace.clone(),
            name: user.name.clone(),
            fields: user.fields.iter().map(|(name, field)| (name.clone(), type_option(field))).collect(),
        })),
        CqlType::Vector(..) => TypeOption::Custom(class_name(data_type)),
        _ => match native_of(data_type) {
            Some(native) => TypeOption::Native(native),
            None => TypeOption::Custom(class_name(data_type)),
        },
    }
}

/// The type that the schema's tables name for `data_type`: that of its values in the protocol. A driver that does not know
/// YCQL's `jsonb` takes it for a user-defined type that is absent, and then refuses the whole schema.
pub fn type_for_drivers(data_type: &CqlType) -> CqlType {
    let shared = |inner: &CqlType| Arc::new(type_for_drivers(inner));
    match data_type {
        CqlType::Jsonb => CqlType::Text,
        CqlType::List(inner, frozen) => CqlType::List(shared(inner), *frozen),
        CqlType::Set(inner, frozen) => CqlType::Set(shared(inner), *frozen),
        CqlType::Map(key, value, frozen) => CqlType::Map(shared(key), shared(value), *frozen),
        CqlType::Tuple(parts) => CqlType::Tuple(parts.iter().map(type_for_drivers).collect()),
        CqlType::Vector(inner, dimension) => CqlType::Vector(shared(inner), *dimension),
        // A user-defined type is named, and its own row names those of its fields.
        _ => data_type.clone(),
    }
}

/// About how much memory a part of a type takes in the custom notation.
const CLASS_BYTES: usize = 64;

/// Charges the memory of [`type_option`], part by part: the description is a tree that shares nothing, however often a type occurs in it.
pub fn charge_type_option(
    data_type: &CqlType,
    charge: &mut dyn FnMut(usize) -> Result<(), CqlError>,
) -> Result<(), CqlError> {
    charge(size_of::<TypeOption>())?;
    match data_type {
        CqlType::List(inner, _) | CqlType::Set(inner, _) => charge_type_option(inner, charge),
        CqlType::Map(key, value, _) => {
            charge_type_option(key, charge)?;
            charge_type_option(value, charge)
        }
        CqlType::Tuple(parts) => parts.iter().try_for_each(|part| charge_type_option(part, charge)),
        CqlType::UserDefined(user, _) => {
            charge(size_of::<UserTypeOption>() + user.keyspace.len() + user.name.len())?;
            user.fields.iter().try_for_each(|(name, field)| {
                charge(size_of::<String>() + name.len())?;
                charge_type_option(field, charge)
            })
        }
        // Its class is put together from the inside, each part into a longer text.
        CqlType::Vector(inner, _) => {
            charge(CLASS_BYTES)?;
            charge_type_option(inner, &mut |_| charge(CLASS_BYTES))
        }
        _ => Ok(()),
    }
}

fn native_of(data_type: &CqlType) -> Option<NativeType> {
    Some(match data_type {
        CqlType::Ascii => NativeType::Ascii,
        CqlType::Bigint => NativeType::Bigint,
        CqlType::Blob => NativeType::Blob,
        CqlType::Boolean => NativeType::Boolean,
        CqlType::Counter => NativeType::Counter,
        CqlType::Date => NativeType::Date,
        CqlType::Decimal => NativeType::Decimal,
        CqlType::Double => NativeType::Double,
        CqlType::Duration => NativeType::Duration,
        CqlType::Float => NativeType::Float,
        CqlType::Inet => NativeType::Inet,
        CqlType::Int => NativeType::Int,
        CqlType::Smallint => NativeType::Smallint,
        CqlType::Text => NativeType::Varchar,
        CqlType::Time => NativeType::Time,
        CqlType::Timestamp => NativeType::Timestamp,
        CqlType::Timeuuid => NativeType::Timeuuid,
        CqlType::Tinyint => NativeType::Tinyint,
        CqlType::Uuid => NativeType::Uuid,
        CqlType::Varint => NativeType::Varint,
        // Drivers see a document as text.
        CqlType::Jsonb => NativeType::Varchar,
        CqlType::List(..)
        | CqlType::Set(..)
        | CqlType::Map(..)
        | CqlType::Tuple(..)
        | CqlType::UserDefined(..)
        | CqlType::Vector(..) => return None,
    })
}

/// The class name of a type in the custom notation, which drivers parse to recognise vectors.
fn class_name(data_type: &CqlType) -> String {
    let short = match data_type {
        CqlType::Ascii => "AsciiType",
        CqlType::Bigint => "LongType",
        CqlType::Blob => "BytesType",
        CqlType::Boolean => "BooleanType",
        CqlType::Counter => "CounterColumnType",
        CqlType::Date => "SimpleDateType",
        CqlType::Decimal => "DecimalType",
        CqlType::Double => "DoubleType",
        CqlType::Duration => "DurationType",
        CqlType::Float => "FloatType",
        CqlType::Inet => "InetAddressType",
        CqlType::Int => "Int32Type",
        CqlType::Smallint => "ShortType",
        CqlType::Text | CqlType::Jsonb => "UTF8Type",
        CqlType::Time => "TimeType",
        CqlType::Timestamp => "TimestampType",
        CqlType::Timeuuid => "TimeUUIDType",
        CqlType::Tinyint => "ByteType",
        CqlType::Uuid => "UUIDType",
        CqlType::Varint => "IntegerType",
        CqlType::List(element, _) => return class_of("ListType", &[class_name(element)]),
        CqlType::Set(element, _) => return class_of("SetType", &[class_name(element)]),
        CqlType::Map(key, value, _) => return class_of("MapType", &[class_name(key), class_name(value)]),
        CqlType::Tuple(elements) => {
            return class_of("TupleType", &elements.iter().map(class_name).collect::<Vec<_>>());
        }
        CqlType::UserDefined(user, _) => {
            let fields: Vec<_> = user.fields.iter().map(|(_, field)| class_name(field)).collect();
            return class_of("TupleType", &fields);
        }
        CqlType::Vector(element, dimension) => {
            return class_of("VectorType", &[class_name(element), dimension.to_string()]);
        }
    };
    format!("org.apache.cassandra.db.marshal.{short}")
}

fn class_of(short: &str, parameters: &[String]) -> String {
    format!("org.apache.cassandra.db.marshal.{short}({})", parameters.join(", "))
}

/// The type a keyword names.
pub fn native_type(name: ast::NativeType) -> Result<CqlType, CqlError> {
    Ok(match name {
        ast::NativeType::Ascii => CqlType::Ascii,
        ast::NativeType::Bigint => CqlType::Bigint,
        ast::NativeType::Blob => CqlType::Blob,
        ast::NativeType::Boolean => CqlType::Boolean,
        ast::NativeType::Counter => CqlType::Counter,
        ast::NativeType::Date => CqlType::Date,
        ast::NativeType::Decimal => CqlType::Decimal,
        ast::NativeType::Double => CqlType::Double,
        ast::NativeType::Duration => CqlType::Duration,
        ast::NativeType::Float => CqlType::Float,
        ast::NativeType::Inet => CqlType::Inet,
        ast::NativeType::Int => CqlType::Int,
        ast::NativeType::Jsonb => CqlType::Jsonb,
        ast::NativeType::Smallint => CqlType::Smallint,
        ast::NativeType::Text => CqlType::Text,
        ast::NativeType::Time => CqlType::Time,
        ast::NativeType::Timestamp => CqlType::Timestamp,
        ast::NativeType::Timeuuid => CqlType::Timeuuid,
        ast::NativeType::Tinyint => CqlType::Tinyint,
        ast::NativeType::Uuid => CqlType::Uuid,
        ast::NativeType::Varint => CqlType::Varint,
    })
}

/// Whether the wire bytes of a value of type `actual` may stand where `wanted` is expected, as Cassandra decides it.
pub fn is_assignable(wanted: &CqlType, actual: &CqlType) -> bool {
    wanted == actual
        || match wanted {
            CqlType::Blob => true,
            CqlType::Text => matches!(actual, CqlType::Ascii),
            CqlType::Bigint => matches!(actual, CqlType::Timestamp | CqlType::Counter),
            CqlType::Counter => matches!(actual, CqlType::Bigint),
            CqlType::Uuid => matches!(actual, CqlType::Timeuuid),
            CqlType::List(a, _) => matches!(actual, CqlType::List(b, _) if is_assignable(a, b)),
            CqlType::Set(a, _) => matches!(actual, CqlType::Set(b, _) if is_assignable(a, b)),
            CqlType::Map(ak, av, _) => {
                matches!(actual, CqlType::Map(bk, bv, _) if is_assignable(ak, bk) && is_assignable(av, bv))
            }
            CqlType::UserDefined(a, _) => matches!(actual, CqlType::UserDefined(b, _) if a == b),
            _ => false,
        }
}
