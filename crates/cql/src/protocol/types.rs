//! `[option]`: the description of a column's type for clients.
//!
//! Always true: what is written is understood by the version it is written for; a type that came later is written as the custom class
//! that older servers used for it. Left out: what values of a type look like, and the mapping from the schema's types, which is the
//! query layer's.

use super::version::Version;
use super::wire::{self, Malformed, Reader};

/// A scalar type with a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum NativeType {
    /// `ascii`
    Ascii = 0x0001,
    /// `bigint`
    Bigint = 0x0002,
    /// `blob`
    Blob = 0x0003,
    /// `boolean`
    Boolean = 0x0004,
    /// `counter`
    Counter = 0x0005,
    /// `decimal`
    Decimal = 0x0006,
    /// `double`
    Double = 0x0007,
    /// `float`
    Float = 0x0008,
    /// `int`
    Int = 0x0009,
    /// `timestamp`
    Timestamp = 0x000B,
    /// `uuid`
    Uuid = 0x000C,
    /// `varchar`, `text`
    Varchar = 0x000D,
    /// `varint`
    Varint = 0x000E,
    /// `timeuuid`
    Timeuuid = 0x000F,
    /// `inet`
    Inet = 0x0010,
    /// `date` (v4)
    Date = 0x0011,
    /// `time` (v4)
    Time = 0x0012,
    /// `smallint` (v4)
    Smallint = 0x0013,
    /// `tinyint` (v4)
    Tinyint = 0x0014,
    /// `duration` (v5)
    Duration = 0x0015,
}

const CUSTOM: u16 = 0x0000;
const LIST: u16 = 0x0020;
const MAP: u16 = 0x0021;
const SET: u16 = 0x0022;
const UDT: u16 = 0x0030;
const TUPLE: u16 = 0x0031;

/// How deep a type that is read from a peer may nest.
const MAX_NESTING: usize = 64;

impl NativeType {
    /// Every native type.
    pub const ALL: [NativeType; 20] = [
        NativeType::Ascii,
        NativeType::Bigint,
        NativeType::Blob,
        NativeType::Boolean,
        NativeType::Counter,
        NativeType::Decimal,
        NativeType::Double,
        NativeType::Float,
        NativeType::Int,
        NativeType::Timestamp,
        NativeType::Uuid,
        NativeType::Varchar,
        NativeType::Varint,
        NativeType::Timeuuid,
        NativeType::Inet,
        NativeType::Date,
        NativeType::Time,
        NativeType::Smallint,
        NativeType::Tinyint,
        NativeType::Duration,
    ];

    /// The first version that has a number for it, and the custom class for earlier versions.
    fn since(self) -> Option<(Version, &'static str)> {
        match self {
            NativeType::Date => Some((Version::V4, "org.apache.cassandra.db.marshal.SimpleDateType")),
            NativeType::Time => Some((Version::V4, "org.apache.cassandra.db.marshal.TimeType")),
            NativeType::Smallint => Some((Version::V4, "org.apache.cassandra.db.marshal.ShortType")),
            NativeType::Tinyint => Some((Version::V4, "org.apache.cassandra.db.marshal.ByteType")),
            NativeType::Duration => Some((Version::V5, "org.apache.cassandra.db.marshal.DurationType")),
            _ => None,
        }
    }
}

/// A type for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeOption {
    /// A scalar
    Native(NativeType),
    /// A Java class name, such as `org.apache.cassandra.db.marshal.VectorType(…)`
    Custom(String),
    /// `list<T>`
    List(Box<TypeOption>),
    /// `set<T>`
    Set(Box<TypeOption>),
    /// `map<K, V>`
    Map(Box<TypeOption>, Box<TypeOption>),
    /// `tuple<…>`
    Tuple(Vec<TypeOption>),
    /// A user-defined type
    UserDefined(Box<UserTypeOption>),
}

/// A user-defined type for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserTypeOption {
    /// Its keyspace
    pub keyspace: String,
    /// Its name
    pub name: String,
    /// Field names and types
    pub fields: Vec<(String, TypeOption)>,
}

impl From<NativeType> for TypeOption {
    fn from(native: NativeType) -> Self {
        TypeOption::Native(native)
    }
}

impl TypeOption {
    /// Appends the `[option]`.
    pub fn encode(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            TypeOption::Native(native) => match native.since() {
                Some((since, class)) if version < since => put_custom(out, class),
                _ => wire::put_u16(out, *native as u16),
            },
            TypeOption::Custom(class) => put_custom(out, class),
            TypeOption::List(element) => {
                wire::put_u16(out, LIST);
                element.encode(out, version);
            }
            TypeOption::Set(element) => {
                wire::put_u16(out, SET);
                element.encode(out, version);
            }
            TypeOption::Map(key, value) => {
                wire::put_u16(out, MAP);
                key.encode(out, version);
                value.encode(out, version);
            }
            TypeOption::Tuple(elements) => {
                wire::put_u16(out, TUPLE);
                wire::put_count(out, elements.len());
                elements.iter().for_each(|element| element.encode(out, version));
            }
            TypeOption::UserDefined(user_type) => {
                wire::put_u16(out, UDT);
                wire::put_string(out, &user_type.keyspace);
                wire::put_string(out, &user_type.name);
                wire::put_count(out, user_type.fields.len());
                for (name, field) in &user_type.fields {
                    wire::put_string(out, name);
                    field.encode(out, version);
                }
            }
        }
    }

    /// Reads an `[option]` (clients and tests do).
    pub fn decode(reader: &mut Reader<'_>) -> Result<TypeOption, Malformed> {
        Self::decode_nested(reader, MAX_NESTING)
    }

    fn decode_nested(reader: &mut Reader<'_>, depth: usize) -> Result<TypeOption, Malformed> {
        const WHAT: &str = "column type";
        let depth = depth.checked_sub(1).ok_or(Malformed::Invalid(WHAT))?;
        let id = reader.u16(WHAT)?;
        Ok(match id {
            CUSTOM => TypeOption::Custom(reader.string(WHAT)?.to_owned()),
            LIST => TypeOption::List(Box::new(Self::decode_nested(reader, depth)?)),
            SET => TypeOption::Set(Box::new(Self::decode_nested(reader, depth)?)),
            MAP => {
                let key = Self::decode_nested(reader, depth)?;
                TypeOption::Map(Box::new(key), Box::new(Self::decode_nested(reader, depth)?))
            }
            TUPLE => {
                let count = reader.u16(WHAT)?;
                let elements = (0..count).map(|_| Self::decode_nested(reader, depth)).collect::<Result<_, _>>()?;
                TypeOption::Tuple(elements)
            }
            UDT => {
                let keyspace = reader.string(WHAT)?.to_owned();
                let name = reader.string(WHAT)?.to_owned();
                let count = reader.u16(WHAT)?;
                let fields = (0..count)
                    .map(|_| Ok((reader.string(WHAT)?.to_owned(), Self::decode_nested(reader, depth)?)))
                    .collect::<Result<_, _>>()?;
                TypeOption::UserDefined(Box::new(UserTypeOption { keyspace, name, fields }))
            }
            _ => {
                let native = NativeType::ALL.into_iter().find(|native| *native as u16 == id);
                TypeOption::Native(native.ok_or(Malformed::Invalid(WHAT))?)
            }
        })
    }
}

fn put_custom(out: &mut Vec<u8>, class: &str) {
    wire::put_u16(out, CUSTOM);
    wire::put_string(out, class);
}
