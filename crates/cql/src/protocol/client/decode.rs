//! Responses, decoded into owned values (see [`super`]).
//!
//! Always true: no input panics; a claimed count is trusted only as the entries are read. The parent module lists what
//! is left out.

use crate::protocol::consistency::Consistency;
use crate::protocol::envelope::{Envelope, Opcode, flags};
use crate::protocol::error::{CqlError, ErrorKind, FailureReasons, FunctionSignature, WriteType};
use crate::protocol::event::{Event, SchemaChange};
use crate::protocol::response::result_kind;
use crate::protocol::rows::{BindMarkers, ColumnSpec};
use crate::protocol::types::TypeOption;
use crate::protocol::version::Version;
use crate::protocol::wire::{Malformed, Reader};

/// A response with its extras.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedResponse {
    /// The stream it answers
    pub stream: i16,
    /// The id of the trace
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings
    pub warnings: Vec<String>,
    /// The server's extensions
    pub custom_payload: Vec<(String, Vec<u8>)>,
    /// The message
    pub response: ClientResponse,
}

/// A response of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientResponse {
    /// ERROR
    Error(CqlError),
    /// READY
    Ready,
    /// AUTHENTICATE
    Authenticate(String),
    /// SUPPORTED
    Supported(Vec<(String, Vec<String>)>),
    /// AUTH_CHALLENGE
    AuthChallenge(Option<Vec<u8>>),
    /// AUTH_SUCCESS
    AuthSuccess(Option<Vec<u8>>),
    /// EVENT
    Event(Event),
    /// RESULT Void
    Void,
    /// RESULT Rows
    Rows(ClientRows),
    /// RESULT SetKeyspace
    SetKeyspace(String),
    /// RESULT Prepared
    Prepared(ClientPrepared),
    /// RESULT SchemaChange
    SchemaChange(SchemaChange),
}

/// The metadata of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientMetadata {
    /// How many columns there are
    pub column_count: usize,
    /// The columns; none when the server left them out
    pub columns: Vec<ColumnSpec>,
    /// Where the next page begins
    pub paging_state: Option<Vec<u8>>,
    /// The id of columns that changed (v5)
    pub new_metadata_id: Option<Vec<u8>>,
}

/// A page of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientRows {
    /// The columns
    pub metadata: ClientMetadata,
    /// The cells of each row
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// A prepared statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientPrepared {
    /// The id for EXECUTE
    pub id: Vec<u8>,
    /// The id of the result's columns (v5)
    pub result_metadata_id: Option<Vec<u8>>,
    /// The bind markers
    pub markers: BindMarkers,
    /// The result's columns
    pub result: ClientMetadata,
}

/// Decodes a response.
pub fn decode_response(envelope: &Envelope<'_>) -> Result<DecodedResponse, Malformed> {
    let mut reader = Reader::new(envelope.body);
    let has = |flag| envelope.flags & flag != 0;
    let tracing_id = if has(flags::TRACING) { Some(reader.array("tracing id")?) } else { None };
    let warnings = if has(flags::WARNING) { strings(&mut reader)? } else { Vec::new() };
    let mut custom_payload = Vec::new();
    if has(flags::CUSTOM_PAYLOAD) {
        for _ in 0..reader.u16("number of custom payload entries")? {
            let key = reader.string("custom payload key")?.to_owned();
            custom_payload.push((key, reader.bytes("custom payload value")?.unwrap_or_default().to_vec()));
        }
    }
    let response = message(envelope.opcode, envelope.version, &mut reader)?;
    reader.finish()?;
    Ok(DecodedResponse { stream: envelope.stream, tracing_id, warnings, custom_payload, response })
}

fn message(opcode: Opcode, version: Version, reader: &mut Reader<'_>) -> Result<ClientResponse, Malformed> {
    Ok(match opcode {
        Opcode::Error => ClientResponse::Error(error(version, reader)?),
        Opcode::Ready => ClientResponse::Ready,
        Opcode::Authenticate => ClientResponse::Authenticate(reader.string("authenticator")?.to_owned()),
        Opcode::Supported => {
            let count = reader.u16("number of options")?;
            let entries = (0..count)
                .map(|_| Ok((reader.string("option name")?.to_owned(), strings(reader)?)))
                .collect::<Result<_, _>>()?;
            ClientResponse::Supported(entries)
        }
        Opcode::AuthChallenge => ClientResponse::AuthChallenge(reader.bytes("token")?.map(<[u8]>::to_vec)),
        Opcode::AuthSuccess => ClientResponse::AuthSuccess(reader.bytes("token")?.map(<[u8]>::to_vec)),
        Opcode::Event => ClientResponse::Event(Event::decode(reader)?),
        Opcode::Result => match reader.i32("kind of result")? {
            result_kind::VOID => ClientResponse::Void,
            result_kind::ROWS => ClientResponse::Rows(rows(reader)?),
            result_kind::SET_KEYSPACE => ClientResponse::SetKeyspace(reader.string("keyspace")?.to_owned()),
            result_kind::PREPARED => ClientResponse::Prepared(prepared(version, reader)?),
            result_kind::SCHEMA_CHANGE => ClientResponse::SchemaChange(SchemaChange::decode(reader)?),
            _ => return Err(Malformed::Invalid("kind of result")),
        },
        _ => return Err(Malformed::Invalid("opcode (it is not a response's)")),
    })
}

fn strings(reader: &mut Reader<'_>) -> Result<Vec<String>, Malformed> {
    let count = reader.u16("number of strings")?;
    (0..count).map(|_| reader.string("string").map(str::to_owned)).collect()
}

fn columns(reader: &mut Reader<'_>, count: usize, is_global: bool) -> Result<Vec<ColumnSpec>, Malformed> {
    let mut table = None;
    if is_global {
        table = Some((reader.string("keyspace")?, reader.string("table")?));
    }
    (0..count)
        .map(|_| {
            let (keyspace, table) = match table {
                Some(table) => table,
                None => (reader.string("keyspace")?, reader.string("table")?),
            };
            Ok(ColumnSpec {
                keyspace: keyspace.to_owned(),
                table: table.to_owned(),
                name: reader.string("column name")?.to_owned(),
                type_option: TypeOption::decode(reader)?,
            })
        })
        .collect()
}

fn count(reader: &mut Reader<'_>, what: &'static str) -> Result<usize, Malformed> {
    usize::try_from(reader.i32(what)?).map_err(|_| Malformed::Invalid(what))
}

fn metadata(reader: &mut Reader<'_>) -> Result<ClientMetadata, Malformed> {
    let bits = reader.i32("metadata flags")?;
    let column_count = count(reader, "number of columns")?;
    let paging_state = if bits & 0x02 != 0 { reader.bytes("paging state")?.map(<[u8]>::to_vec) } else { None };
    let new_metadata_id = if bits & 0x08 != 0 { Some(reader.short_bytes("new metadata id")?.to_vec()) } else { None };
    let columns = if bits & 0x04 == 0 { columns(reader, column_count, bits & 0x01 != 0)? } else { Vec::new() };
    Ok(ClientMetadata { column_count, columns, paging_state, new_metadata_id })
}

fn rows(reader: &mut Reader<'_>) -> Result<ClientRows, Malformed> {
    let metadata = metadata(reader)?;
    let row_count = count(reader, "number of rows")?;
    // Every cell takes at least four bytes, so the claimed number of rows is checked against the remaining bytes.
    if row_count > 0 && (metadata.column_count == 0 || reader.rest().len() / 4 / metadata.column_count < row_count) {
        return Err(Malformed::Truncated("rows"));
    }
    let rows = (0..row_count)
        .map(|_| {
            (0..metadata.column_count).map(|_| Ok(reader.bytes("cell")?.map(<[u8]>::to_vec))).collect::<Result<_, _>>()
        })
        .collect::<Result<_, _>>()?;
    Ok(ClientRows { metadata, rows })
}

fn prepared(version: Version, reader: &mut Reader<'_>) -> Result<ClientPrepared, Malformed> {
    let id = reader.short_bytes("prepared statement id")?.to_vec();
    let result_metadata_id =
        if version >= Version::V5 { Some(reader.short_bytes("result metadata id")?.to_vec()) } else { None };
    let bits = reader.i32("metadata flags")?;
    let marker_count = count(reader, "number of bind markers")?;
    let mut partition_key_indexes = Vec::new();
    if version >= Version::V4 {
        for _ in 0..count(reader, "number of partition key indexes")? {
            partition_key_indexes.push(reader.u16("partition key index")?);
        }
    }
    let columns = columns(reader, marker_count, bits & 0x01 != 0)?;
    let markers = BindMarkers { columns, partition_key_indexes };
    Ok(ClientPrepared { id, result_metadata_id, markers, result: metadata(reader)? })
}

fn counts(reader: &mut Reader<'_>) -> Result<(Consistency, i32, i32), Malformed> {
    let consistency = Consistency::from_code(reader.u16("consistency")?).ok_or(Malformed::Invalid("consistency"))?;
    Ok((consistency, reader.i32("count")?, reader.i32("count")?))
}

fn failures(version: Version, reader: &mut Reader<'_>) -> Result<FailureReasons, Malformed> {
    let count = count(reader, "number of failures")?;
    if version < Version::V5 {
        return Ok(Vec::new());
    }
    (0..count).map(|_| Ok((reader.inet_address("failed node")?, reader.u16("failure reason")?))).collect()
}

fn write_type(reader: &mut Reader<'_>) -> Result<WriteType, Malformed> {
    let name = reader.string("write type")?;
    WriteType::ALL.into_iter().find(|known| known.name() == name).ok_or(Malformed::Invalid("write type"))
}

fn error(version: Version, reader: &mut Reader<'_>) -> Result<CqlError, Malformed> {
    let code = reader.i32("error code")?;
    let message = reader.string("error message")?.to_owned();
    let kind = match code {
        0x0000 => ErrorKind::Server,
        0x000A => ErrorKind::Protocol,
        0x0100 => ErrorKind::Authentication,
        0x1001 => ErrorKind::Overloaded,
        0x1002 => ErrorKind::IsBootstrapping,
        0x1003 => ErrorKind::Truncate,
        0x1600 => ErrorKind::CdcWriteFailure,
        0x2000 => ErrorKind::Syntax,
        0x2100 => ErrorKind::Unauthorized,
        0x2200 => ErrorKind::Invalid,
        0x2300 => ErrorKind::Config,
        _ => error_with_fields(code, version, reader)?,
    };
    Ok(CqlError::new(kind, message))
}

fn error_with_fields(code: i32, version: Version, reader: &mut Reader<'_>) -> Result<ErrorKind, Malformed> {
    Ok(match code {
        0x1000 => {
            let (consistency, required, alive) = counts(reader)?;
            ErrorKind::Unavailable { consistency, required, alive }
        }
        0x1100 => {
            let (consistency, received, required) = counts(reader)?;
            let write_type = write_type(reader)?;
            let has_contentions = version >= Version::V5 && write_type == WriteType::Cas;
            let contentions = if has_contentions { reader.u16("contentions")? } else { 0 };
            ErrorKind::WriteTimeout { consistency, received, required, write_type, contentions }
        }
        0x1200 => {
            let (consistency, received, required) = counts(reader)?;
            ErrorKind::ReadTimeout { consistency, received, required, data_present: reader.u8("data present")? != 0 }
        }
        0x1300 => {
            let (consistency, received, required) = counts(reader)?;
            let failures = failures(version, reader)?;
            let data_present = reader.u8("data present")? != 0;
            ErrorKind::ReadFailure { consistency, received, required, failures, data_present }
        }
        0x1400 => {
            let keyspace = reader.string("keyspace")?.to_owned();
            let name = reader.string("function")?.to_owned();
            let signature = FunctionSignature { keyspace, name, argument_types: strings(reader)? };
            ErrorKind::FunctionFailure(Box::new(signature))
        }
        0x1500 => {
            let (consistency, received, required) = counts(reader)?;
            let failures = failures(version, reader)?;
            ErrorKind::WriteFailure { consistency, received, required, failures, write_type: write_type(reader)? }
        }
        0x1700 => {
            let (consistency, received, required) = counts(reader)?;
            ErrorKind::CasWriteUnknown { consistency, received, required }
        }
        0x2400 => {
            let keyspace = reader.string("keyspace")?.to_owned();
            ErrorKind::AlreadyExists { keyspace, table: reader.string("table")?.to_owned() }
        }
        0x2500 => ErrorKind::Unprepared { id: reader.short_bytes("prepared statement id")?.to_vec() },
        _ => return Err(Malformed::Invalid("error code")),
    })
}
