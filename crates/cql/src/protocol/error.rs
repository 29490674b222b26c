//! Errors for clients: a code, a message, and the fields that belong to the code.
//!
//! Always true: every error of the server is one of these, and [`CqlError::encode_body`] writes a form that the
//! client's version knows (newer codes fall back to the nearest older one, as in Cassandra). Left out: where an error
//! is logged, and whether the connection survives it, which framing errors say themselves
//! ([`super::envelope::FrameError`]).

use super::consistency::Consistency;
use super::version::Version;
use super::wire;
use std::borrow::Cow;
use std::net::IpAddr;

/// The number that names a kind of error on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// Something unexpected on the server.
    ServerError = 0x0000,
    /// The client broke the protocol.
    ProtocolError = 0x000A,
    /// Authentication was needed and failed.
    AuthenticationError = 0x0100,
    /// Not enough replicas are alive.
    Unavailable = 0x1000,
    /// The server refuses work it cannot queue.
    Overloaded = 0x1001,
    /// The node is starting.
    IsBootstrapping = 0x1002,
    /// A truncation failed.
    TruncateError = 0x1003,
    /// A write was not acknowledged in time.
    WriteTimeout = 0x1100,
    /// A read was not answered in time.
    ReadTimeout = 0x1200,
    /// A replica failed a read.
    ReadFailure = 0x1300,
    /// A user-defined function failed.
    FunctionFailure = 0x1400,
    /// A replica failed a write.
    WriteFailure = 0x1500,
    /// Change data capture has no space.
    CdcWriteFailure = 0x1600,
    /// A conditional write may or may not have happened.
    CasWriteUnknown = 0x1700,
    /// The statement does not parse.
    SyntaxError = 0x2000,
    /// The role may not do this.
    Unauthorized = 0x2100,
    /// The statement is well-formed and wrong.
    Invalid = 0x2200,
    /// The statement asks for an impossible configuration.
    ConfigError = 0x2300,
    /// The keyspace or table exists.
    AlreadyExists = 0x2400,
    /// The prepared statement's id is not known (any more).
    Unprepared = 0x2500,
}

/// The kind of write that timed out or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteType {
    /// One partition
    Simple,
    /// A logged batch
    Batch,
    /// An unlogged batch
    UnloggedBatch,
    /// A counter update
    Counter,
    /// The batch log
    BatchLog,
    /// A conditional write
    Cas,
    /// A materialized view
    View,
    /// Change data capture
    Cdc,
}

impl WriteType {
    /// Every write type.
    pub const ALL: [WriteType; 8] = [
        WriteType::Simple,
        WriteType::Batch,
        WriteType::UnloggedBatch,
        WriteType::Counter,
        WriteType::BatchLog,
        WriteType::Cas,
        WriteType::View,
        WriteType::Cdc,
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            WriteType::Simple => "SIMPLE",
            WriteType::Batch => "BATCH",
            WriteType::UnloggedBatch => "UNLOGGED_BATCH",
            WriteType::Counter => "COUNTER",
            WriteType::BatchLog => "BATCH_LOG",
            WriteType::Cas => "CAS",
            WriteType::View => "VIEW",
            WriteType::Cdc => "CDC",
        }
    }
}

/// The replicas that failed, each with the protocol's reason code (0 is "unknown"). Versions before 5 carry only their number.
pub type FailureReasons = Vec<(IpAddr, u16)>;

/// An error's kind with the fields that the protocol ties to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// 0x0000
    Server,
    /// 0x000A
    Protocol,
    /// 0x0100
    Authentication,
    /// 0x1000
    Unavailable {
        /// The level that could not be met
        consistency: Consistency,
        /// Replicas needed
        required: i32,
        /// Replicas alive
        alive: i32,
    },
    /// 0x1001
    Overloaded,
    /// 0x1002
    IsBootstrapping,
    /// 0x1003
    Truncate,
    /// 0x1100
    WriteTimeout {
        /// The level of the request
        consistency: Consistency,
        /// Acknowledgements received
        received: i32,
        /// Acknowledgements needed
        required: i32,
        /// The kind of write
        write_type: WriteType,
        /// How often a conditional write met another (sent in v5, for [`WriteType::Cas`] only)
        contentions: u16,
    },
    /// 0x1200
    ReadTimeout {
        /// The level of the request
        consistency: Consistency,
        /// Answers received
        received: i32,
        /// Answers needed
        required: i32,
        /// Whether the replica asked for data answered
        data_present: bool,
    },
    /// 0x1300
    ReadFailure {
        /// The level of the request
        consistency: Consistency,
        /// Answers received
        received: i32,
        /// Answers needed
        required: i32,
        /// The nodes that failed
        failures: FailureReasons,
        /// Whether the replica asked for data answered
        data_present: bool,
    },
    /// 0x1400
    FunctionFailure(Box<FunctionSignature>),
    /// 0x1500
    WriteFailure {
        /// The level of the request
        consistency: Consistency,
        /// Acknowledgements received
        received: i32,
        /// Acknowledgements needed
        required: i32,
        /// The nodes that failed
        failures: FailureReasons,
        /// The kind of write
        write_type: WriteType,
    },
    /// 0x1600
    CdcWriteFailure,
    /// 0x1700
    CasWriteUnknown {
        /// The level of the request
        consistency: Consistency,
        /// Acknowledgements received
        received: i32,
        /// Acknowledgements needed
        required: i32,
    },
    /// 0x2000
    Syntax,
    /// 0x2100
    Unauthorized,
    /// 0x2200
    Invalid,
    /// 0x2300
    Config,
    /// 0x2400
    AlreadyExists {
        /// The keyspace
        keyspace: String,
        /// The table; empty when the keyspace itself exists
        table: String,
    },
    /// 0x2500
    Unprepared {
        /// The id that is not known
        id: Vec<u8>,
    },
}

/// Names a user-defined function in an error or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSignature {
    /// Its keyspace
    pub keyspace: String,
    /// Its name
    pub name: String,
    /// Its argument types, in CQL
    pub argument_types: Vec<String>,
}

/// An error for a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CqlError {
    /// The kind, with its fields.
    pub kind: ErrorKind,
    /// For people.
    pub message: Cow<'static, str>,
}

/// Constructors for the kinds that carry nothing but a message.
macro_rules! plain_constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident),* $(,)?) => {
        impl CqlError {
            $($(#[$doc])*
            pub fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                Self { kind: ErrorKind::$kind, message: message.into() }
            })*
        }
    };
}

plain_constructors! {
    /// An unexpected failure of the server.
    server => Server,
    /// The client broke the protocol.
    protocol => Protocol,
    /// Wrong or missing credentials.
    authentication => Authentication,
    /// A bounded queue is full.
    overloaded => Overloaded,
    /// The node is starting.
    bootstrapping => IsBootstrapping,
    /// A truncation failed.
    truncate => Truncate,
    /// The statement does not parse.
    syntax => Syntax,
    /// The role may not do this.
    unauthorized => Unauthorized,
    /// The request is well-formed and wrong.
    invalid => Invalid,
    /// An impossible configuration is asked for.
    config => Config,
}

impl CqlError {
    /// An error of any kind.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The prepared statement is not known; the driver prepares it again.
    pub fn unprepared(id: &[u8]) -> Self {
        use std::fmt::Write;
        let mut hex = String::with_capacity(id.len() * 2);
        for byte in id {
            let _ = write!(hex, "{byte:02x}");
        }
        let message = format!("prepared statement {hex} is not known here, prepare it again");
        Self::new(ErrorKind::Unprepared { id: id.to_vec() }, message)
    }

    /// The keyspace (empty `table`) or table exists.
    pub fn already_exists(keyspace: impl Into<String>, table: impl Into<String>) -> Self {
        let (keyspace, table) = (keyspace.into(), table.into());
        let message = if table.is_empty() {
            format!("keyspace {keyspace} already exists")
        } else {
            format!("table {keyspace}.{table} already exists")
        };
        Self::new(ErrorKind::AlreadyExists { keyspace, table }, message)
    }

    /// The wire code in the newest version.
    pub fn code(&self) -> ErrorCode {
        match &self.kind {
            ErrorKind::Server => ErrorCode::ServerError,
            ErrorKind::Protocol => ErrorCode::ProtocolError,
            ErrorKind::Authentication => ErrorCode::AuthenticationError,
            ErrorKind::Unavailable { .. } => ErrorCode::Unavailable,
            ErrorKind::Overloaded => ErrorCode::Overloaded,
            ErrorKind::IsBootstrapping => ErrorCode::IsBootstrapping,
            ErrorKind::Truncate => ErrorCode::TruncateError,
            ErrorKind::WriteTimeout { .. } => ErrorCode::WriteTimeout,
            ErrorKind::ReadTimeout { .. } => ErrorCode::ReadTimeout,
            ErrorKind::ReadFailure { .. } => ErrorCode::ReadFailure,
            ErrorKind::FunctionFailure(_) => ErrorCode::FunctionFailure,
            ErrorKind::WriteFailure { .. } => ErrorCode::WriteFailure,
            ErrorKind::CdcWriteFailure => ErrorCode::CdcWriteFailure,
            ErrorKind::CasWriteUnknown { .. } => ErrorCode::CasWriteUnknown,
            ErrorKind::Syntax => ErrorCode::SyntaxError,
            ErrorKind::Unauthorized => ErrorCode::Unauthorized,
            ErrorKind::Invalid => ErrorCode::Invalid,
            ErrorKind::Config => ErrorCode::ConfigError,
            ErrorKind::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            ErrorKind::Unprepared { .. } => ErrorCode::Unprepared,
        }
    }

    /// The same error in a form that `version` has.
    fn for_version(&self, version: Version) -> Cow<'_, CqlError> {
        let kind = match &self.kind {
            ErrorKind::ReadFailure { consistency, received, required, data_present, .. } if version < Version::V4 => {
                ErrorKind::ReadTimeout {
                    consistency: *consistency,
                    received: *received,
                    required: *required,
                    data_present: *data_present,
                }
            }
            ErrorKind::WriteFailure { consistency, received, required, write_type, .. } if version < Version::V4 => {
                ErrorKind::WriteTimeout {
                    consistency: *consistency,
                    received: *received,
                    required: *required,
                    write_type: *write_type,
                    contentions: 0,
                }
            }
            ErrorKind::FunctionFailure(_) | ErrorKind::CdcWriteFailure if version < Version::V4 => ErrorKind::Invalid,
            ErrorKind::CasWriteUnknown { consistency, received, required } if version < Version::V5 => {
                ErrorKind::WriteTimeout {
                    consistency: *consistency,
                    received: *received,
                    required: *required,
                    write_type: WriteType::Cas,
                    contentions: 0,
                }
            }
            _ => return Cow::Borrowed(self),
        };
        Cow::Owned(CqlError { kind, message: self.message.clone() })
    }

    /// Appends the body of an ERROR message: code, message, and the fields of the code.
    pub fn encode_body(&self, out: &mut Vec<u8>, version: Version) {
        let error = self.for_version(version);
        wire::put_i32(out, error.code() as i32);
        wire::put_string(out, &error.message);
        error.kind.encode_fields(out, version);
    }
}

impl ErrorKind {
    fn encode_fields(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            ErrorKind::Unavailable { consistency, required, alive } => {
                put_counts(out, *consistency, *required, *alive);
            }
            ErrorKind::WriteTimeout { consistency, received, required, write_type, contentions } => {
                put_counts(out, *consistency, *received, *required);
                wire::put_string(out, write_type.name());
                if version >= Version::V5 && *write_type == WriteType::Cas {
                    wire::put_u16(out, *contentions);
                }
            }
            ErrorKind::ReadTimeout { consistency, received, required, data_present } => {
                put_counts(out, *consistency, *received, *required);
                out.push(u8::from(*data_present));
            }
            ErrorKind::ReadFailure { consistency, received, required, failures, data_present } => {
                put_counts(out, *consistency, *received, *required);
                put_failures(out, version, failures);
                out.push(u8::from(*data_present));
            }
            ErrorKind::WriteFailure { consistency, received, required, failures, write_type } => {
                put_counts(out, *consistency, *received, *required);
                put_failures(out, version, failures);
                wire::put_string(out, write_type.name());
            }
            ErrorKind::FunctionFailure(signature) => {
                wire::put_string(out, &signature.keyspace);
                wire::put_string(out, &signature.name);
                wire::put_string_list(out, &signature.argument_types);
            }
            ErrorKind::CasWriteUnknown { consistency, received, required } => {
                put_counts(out, *consistency, *received, *required);
            }
            ErrorKind::AlreadyExists { keyspace, table } => {
                wire::put_string(out, keyspace);
                wire::put_string(out, table);
            }
            ErrorKind::Unprepared { id } => wire::put_short_bytes(out, id),
            ErrorKind::Server
            | ErrorKind::Protocol
            | ErrorKind::Authentication
            | ErrorKind::Overloaded
            | ErrorKind::IsBootstrapping
            | ErrorKind::Truncate
            | ErrorKind::CdcWriteFailure
            | ErrorKind::Syntax
            | ErrorKind::Unauthorized
            | ErrorKind::Invalid
            | ErrorKind::Config => {}
        }
    }
}

fn put_counts(out: &mut Vec<u8>, consistency: Consistency, first: i32, second: i32) {
    wire::put_u16(out, consistency.code());
    wire::put_i32(out, first);
    wire::put_i32(out, second);
}

fn put_failures(out: &mut Vec<u8>, version: Version, failures: &FailureReasons) {
    wire::put_i32(out, failures.len() as i32);
    if version >= Version::V5 {
        for (address, reason) in failures {
            wire::put_inet_address(out, *address);
            wire::put_u16(out, *reason);
        }
    }
}
