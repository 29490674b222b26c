//! Requests, decoded in place.
//!
//! Always true: a decoded [`Request`] borrows from the envelope's body and has been checked to its last byte, so that
//! its views ([`Values`], [`StringMap`], [`BatchStatements`]) cannot fail when they are read; decoding allocates
//! nothing. Bytes after the last known field are an error, as the two sides then disagree about the layout. Left out:
//! named values in BATCH, which the protocol's layout makes undecodable (the flag comes after the values).

use super::compression::Compression;
use super::consistency::Consistency;
use super::envelope::{Envelope, Opcode, flags};
use super::error::CqlError;
use super::event::EventSet;
use super::values::Values;
use super::version::Version;
use super::wire::{Malformed, Reader};

const VALUES: u32 = 0x0001;
const SKIP_METADATA: u32 = 0x0002;
const PAGE_SIZE: u32 = 0x0004;
const PAGING_STATE: u32 = 0x0008;
const SERIAL_CONSISTENCY: u32 = 0x0010;
const DEFAULT_TIMESTAMP: u32 = 0x0020;
const NAMED_VALUES: u32 = 0x0040;
const KEYSPACE: u32 = 0x0080;
const NOW_IN_SECONDS: u32 = 0x0100;

/// Flags that exist before v5.
const FLAGS_V3: u32 = 0x007F;
const FLAGS_V5: u32 = 0x01FF;
const BATCH_FLAGS_V3: u32 = SERIAL_CONSISTENCY | DEFAULT_TIMESTAMP | NAMED_VALUES;
const BATCH_FLAGS_V5: u32 = BATCH_FLAGS_V3 | KEYSPACE | NOW_IN_SECONDS;

/// A request with its envelope.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The stream to answer on
    pub stream: i16,
    /// The version to answer in
    pub version: Version,
    /// Whether a trace is asked for
    pub wants_tracing: bool,
    /// The payload of the driver's extensions
    pub custom_payload: Option<BytesMap<'a>>,
    /// The request itself
    pub request: Request<'a>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// STARTUP
    Startup(Startup<'a>),
    /// OPTIONS
    Options,
    /// AUTH_RESPONSE, with the token
    AuthResponse(Option<&'a [u8]>),
    /// REGISTER
    Register(EventSet),
    /// QUERY
    Query(Query<'a>),
    /// PREPARE
    Prepare(Prepare<'a>),
    /// EXECUTE
    Execute(Execute<'a>),
    /// BATCH
    Batch(Batch<'a>),
}

/// STARTUP's options.
#[derive(Clone, Copy, Debug)]
pub struct Startup<'a> {
    /// All of them, as sent
    pub options: StringMap<'a>,
}

/// A statement as text.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The CQL text
    pub statement: &'a str,
    /// How to run it
    pub parameters: QueryParameters<'a>,
}

/// A statement to be prepared.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// The CQL text
    pub statement: &'a str,
    /// The keyspace to resolve it in, instead of the session's (v5)
    pub keyspace: Option<&'a str>,
}

/// A prepared statement with its values.
#[derive(Clone, Copy, Debug)]
pub struct Execute<'a> {
    /// The id from PREPARED
    pub id: &'a [u8],
    /// The result columns the client knows (v5)
    pub result_metadata_id: Option<&'a [u8]>,
    /// How to run it
    pub parameters: QueryParameters<'a>,
}

/// The common part of QUERY and EXECUTE.
#[derive(Clone, Copy, Debug)]
pub struct QueryParameters<'a> {
    /// The consistency level
    pub consistency: Consistency,
    /// The bound values
    pub values: Values<'a>,
    /// The client knows the result's columns
    pub skip_metadata: bool,
    /// The most rows of a page; `None` for all at once
    pub page_size: Option<u32>,
    /// Where the page begins; `None` for the first
    pub paging_state: Option<&'a [u8]>,
    /// The level of the conditional phase: `SERIAL` or `LOCAL_SERIAL`
    pub serial_consistency: Option<Consistency>,
    /// The timestamp the client gives the write, in microseconds
    pub default_timestamp_us: Option<i64>,
    /// The keyspace to resolve names in, instead of the session's (v5)
    pub keyspace: Option<&'a str>,
    /// The client's current time, for TTLs (v5)
    pub now_in_seconds: Option<i32>,
}

/// The kind of a BATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BatchKind {
    /// All or nothing
    Logged = 0,
    /// No promise beyond the partition
    Unlogged = 1,
    /// Counter updates
    Counter = 2,
}

/// Several writes at once.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Its kind
    pub kind: BatchKind,
    /// The statements with their values
    pub statements: BatchStatements<'a>,
    /// The consistency level
    pub consistency: Consistency,
    /// The level of the conditional phase
    pub serial_consistency: Option<Consistency>,
    /// The timestamp the client gives the writes, in microseconds
    pub default_timestamp_us: Option<i64>,
    /// The keyspace to resolve names in, instead of the session's (v5)
    pub keyspace: Option<&'a str>,
    /// The client's current time, for TTLs (v5)
    pub now_in_seconds: Option<i32>,
}

/// The text or id of a statement in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStatementSource<'a> {
    /// Its text
    Text(&'a str),
    /// Its prepared id
    Prepared(&'a [u8]),
}

/// A statement of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStatement<'a> {
    /// Text or prepared id
    pub source: BatchStatementSource<'a>,
    /// Its values, by position
    pub values: Values<'a>,
}

impl<'a> Message<'a> {
    /// Decodes a request. The error is for the envelope's stream, and the connection can go on after it.
    #[inline]
    pub fn decode(envelope: &Envelope<'a>) -> Result<Self, CqlError> {
        Self::read(envelope).map_err(|malformed| {
            CqlError::protocol(format!("malformed {} message: {malformed}", envelope.opcode.name()))
        })
    }

    #[inline]
    fn read(envelope: &Envelope<'a>) -> Result<Self, Malformed> {
        let version = envelope.version;
        let mut reader = Reader::new(envelope.body);
        let has_payload = envelope.flags & flags::CUSTOM_PAYLOAD != 0 && version >= Version::V4;
        let custom_payload = if has_payload { Some(BytesMap::decode(&mut reader)?) } else { None };
        let request = Request::read(envelope.opcode, version, &mut reader)?;
        reader.finish()?;
        let wants_tracing = envelope.flags & flags::TRACING != 0;
        Ok(Self { stream: envelope.stream, version, wants_tracing, custom_payload, request })
    }
}

impl<'a> Request<'a> {
    #[inline]
    fn read(opcode: Opcode, version: Version, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match opcode {
            Opcode::Execute => Request::Execute(Execute::read(version, reader)?),
            Opcode::Query => {
                let statement = reader.long_string("statement")?;
                Request::Query(Query { statement, parameters: QueryParameters::read(version, reader)? })
            }
            Opcode::Prepare => {
                let statement = reader.long_string("statement")?;
                Request::Prepare(Prepare { statement, keyspace: read_prepare_keyspace(version, reader)? })
            }
            Opcode::Batch => Request::Batch(Batch::read(version, reader)?),
            Opcode::Startup => Request::Startup(Startup { options: StringMap::decode(reader)? }),
            Opcode::Options => Request::Options,
            Opcode::AuthResponse => Request::AuthResponse(reader.bytes("token")?),
            Opcode::Register => Request::Register(EventSet::decode(reader)?),
            _ => return Err(Malformed::Invalid("opcode (it is not a request's)")),
        })
    }
}

fn read_prepare_keyspace<'a>(version: Version, reader: &mut Reader<'a>) -> Result<Option<&'a str>, Malformed> {
    const WITH_KEYSPACE: u32 = 0x01;
    if version < Version::V5 {
        return Ok(None);
    }
    match reader.u32("prepare flags")? {
        0 => Ok(None),
        WITH_KEYSPACE => reader.string("keyspace").map(Some),
        _ => Err(Malformed::Invalid("prepare flags")),
    }
}

impl<'a> Execute<'a> {
    #[inline]
    fn read(version: Version, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let id = reader.short_bytes("prepared statement id")?;
        let result_metadata_id =
            if version >= Version::V5 { Some(reader.short_bytes("result metadata id")?) } else { None };
        Ok(Self { id, result_metadata_id, parameters: QueryParameters::read(version, reader)? })
    }
}

#[inline]
fn read_consistency(reader: &mut Reader<'_>) -> Result<Consistency, Malformed> {
    Consistency::from_code(reader.u16("consistency")?).ok_or(Malformed::Invalid("consistency"))
}

fn read_serial_consistency(reader: &mut Reader<'_>) -> Result<Consistency, Malformed> {
    const WHAT: &str = "serial consistency";
    Consistency::from_code(reader.u16(WHAT)?).filter(|level| level.is_serial()).ok_or(Malformed::Invalid(WHAT))
}

/// `i64::MIN` stands for "no timestamp" inside the server, so clients may not send it.
fn read_timestamp(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    let timestamp_us = reader.i64("default timestamp")?;
    if timestamp_us == i64::MIN { Err(Malformed::Invalid("default timestamp")) } else { Ok(timestamp_us) }
}

/// One byte before v5, four from then on.
#[inline]
fn read_flags(version: Version, reader: &mut Reader<'_>, known: [u32; 2]) -> Result<u32, Malformed> {
    let (bits, known) = if version >= Version::V5 {
        (reader.u32("flags")?, known[1])
    } else {
        (u32::from(reader.u8("flags")?), known[0])
    };
    if bits & !known == 0 { Ok(bits) } else { Err(Malformed::Invalid("flags")) }
}

/// Reads a field when its flag is set.
#[inline]
fn when<T>(is_set: bool, read: impl FnOnce() -> Result<T, Malformed>) -> Result<Option<T>, Malformed> {
    if is_set { read().map(Some) } else { Ok(None) }
}

impl<'a> QueryParameters<'a> {
    #[inline]
    fn read(version: Version, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let consistency = read_consistency(reader)?;
        let bits = read_flags(version, reader, [FLAGS_V3, FLAGS_V5])?;
        let has = |flag| bits & flag != 0;
        let values = if has(VALUES) { Values::decode(reader, version, has(NAMED_VALUES))? } else { Values::default() };
        let page_size = when(has(PAGE_SIZE), || reader.i32("page size"))?;
        let paging_state = when(has(PAGING_STATE), || reader.bytes("paging state"))?.flatten();
        let serial_consistency = when(has(SERIAL_CONSISTENCY), || read_serial_consistency(reader))?;
        let default_timestamp_us = when(has(DEFAULT_TIMESTAMP), || read_timestamp(reader))?;
        let keyspace = when(has(KEYSPACE), || reader.string("keyspace"))?;
        let now_in_seconds = when(has(NOW_IN_SECONDS), || reader.i32("now in seconds"))?;
        Ok(Self {
            consistency,
            values,
            skip_metadata: has(SKIP_METADATA),
            // Drivers send 0 or less for "do not page".
            page_size: page_size.and_then(|size| u32::try_from(size).ok()).filter(|&size| size > 0),
            paging_state,
            serial_consistency,
            default_timestamp_us,
            keyspace,
            now_in_seconds,
        })
    }
}

impl<'a> Batch<'a> {
    fn read(version: Version, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let kind = match reader.u8("batch kind")? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            _ => return Err(Malformed::Invalid("batch kind")),
        };
        let statements = BatchStatements::decode(reader, version)?;
        let consistency = read_consistency(reader)?;
        let bits = read_flags(version, reader, [BATCH_FLAGS_V3, BATCH_FLAGS_V5])?;
        let has = |flag| bits & flag != 0;
        if has(NAMED_VALUES) {
            return Err(Malformed::Invalid("flag for named values (a batch binds by position)"));
        }
        Ok(Self {
            kind,
            statements,
            consistency,
            serial_consistency: when(has(SERIAL_CONSISTENCY), || read_serial_consistency(reader))?,
            default_timestamp_us: when(has(DEFAULT_TIMESTAMP), || read_timestamp(reader))?,
            keyspace: when(has(KEYSPACE), || reader.string("keyspace"))?,
            now_in_seconds: when(has(NOW_IN_SECONDS), || reader.i32("now in seconds"))?,
        })
    }
}

/// The statements of a batch, in order.
#[derive(Clone, Copy, Debug)]
pub struct BatchStatements<'a> {
    count: u16,
    version: Version,
    bytes: &'a [u8],
}

impl<'a> BatchStatements<'a> {
    fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, Malformed> {
        let count = reader.u16("number of statements")?;
        let start = reader.rest();
        for _ in 0..count {
            BatchStatement::read(version, reader)?;
        }
        Ok(Self { count, version, bytes: &start[..start.len() - reader.rest().len()] })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The statements in order.
    pub fn iter(&self) -> impl Iterator<Item = BatchStatement<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        let version = self.version;
        (0..self.count).map_while(move |_| BatchStatement::read(version, &mut reader).ok())
    }
}

impl<'a> BatchStatement<'a> {
    #[inline]
    fn read(version: Version, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let source = match reader.u8("statement kind")? {
            0 => BatchStatementSource::Text(reader.long_string("statement")?),
            1 => BatchStatementSource::Prepared(reader.short_bytes("prepared statement id")?),
            _ => return Err(Malformed::Invalid("statement kind")),
        };
        Ok(Self { source, values: Values::decode(reader, version, false)? })
    }
}

/// A `[string map]`.
#[derive(Clone, Copy, Debug)]
pub struct StringMap<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> StringMap<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = reader.u16("number of options")?;
        let start = reader.rest();
        for _ in 0..count {
            reader.string("option name")?;
            reader.string("option value")?;
        }
        Ok(Self { count, bytes: &start[..start.len() - reader.rest().len()] })
    }

    /// The entries, as sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| Some((reader.string("").ok()?, reader.string("").ok()?)))
    }

    /// The last value of a key; keys are compared without case, as Cassandra does.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value).last()
    }
}

/// A `[bytes map]`.
#[derive(Clone, Copy, Debug)]
pub struct BytesMap<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> BytesMap<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = reader.u16("number of custom payload entries")?;
        let start = reader.rest();
        for _ in 0..count {
            reader.string("custom payload key")?;
            reader.bytes("custom payload value")?;
        }
        Ok(Self { count, bytes: &start[..start.len() - reader.rest().len()] })
    }

    /// The entries, as sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| Some((reader.string("").ok()?, reader.bytes("").ok()?)))
    }
}

impl Startup<'_> {
    /// The compression asked for, if this version has it.
    pub fn compression(&self, version: Version) -> Result<Option<Compression>, CqlError> {
        let Some(name) = self.options.get("COMPRESSION").filter(|name| !name.is_empty()) else { return Ok(None) };
        let compression = Compression::from_name(name).filter(|compression| compression.is_in(version));
        compression.map(Some).ok_or_else(|| {
            let supported = if version >= Version::V5 { "lz4" } else { "lz4, snappy" };
            CqlError::protocol(format!(
                "unknown compression {name}; version {} of the protocol has {supported}",
                version.number()
            ))
        })
    }

    /// Fails unless the version of CQL that every client must name is there and is 3.0.0 or later, as in Cassandra: the Rust driver
    /// names 4.0.0.
    pub fn check_cql_version(&self) -> Result<(), CqlError> {
        match self.options.get("CQL_VERSION") {
            Some(version)
                if version
                    .split('.')
                    .next()
                    .and_then(|major| major.parse().ok())
                    .is_some_and(|major: u32| major >= 3) =>
            {
                Ok(())
            }
            Some(version) => {
                Err(CqlError::protocol(format!("CQL version {version} is not supported, 3.0.0 and later ones are")))
            }
            None => Err(CqlError::protocol("STARTUP does not name its CQL_VERSION")),
        }
    }
}
