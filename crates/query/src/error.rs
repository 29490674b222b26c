//! How failures below become errors that clients understand.
//!
//! Always true: what the client did wrong is `Invalid`, what it may retry says so by its kind. Left out: logging; the node does it once.

use diorite_base::write::KvError;
use diorite_cql::protocol::{Consistency, CqlError, ErrorKind, WriteType};
use diorite_model::value::ValueError;
use diorite_model::{Malformed, key::KeyError};
use std::borrow::Cow;

/// An `Invalid` error.
pub fn invalid(message: impl Into<Cow<'static, str>>) -> CqlError {
    CqlError::invalid(message)
}

/// A feature of the language that is not there yet.
pub fn not_supported(feature: impl std::fmt::Display) -> CqlError {
    CqlError::invalid(format!("{feature} is not supported yet"))
}

/// A key that cannot be encoded.
pub fn key_error(error: KeyError) -> CqlError {
    CqlError::invalid(error.to_string())
}

/// Bytes that are not a value of their type.
pub fn value_error(error: ValueError) -> CqlError {
    CqlError::invalid(error.0)
}

/// Stored bytes that cannot be read: the operator has to look.
pub fn corrupt(_: Malformed) -> CqlError {
    CqlError::server("a stored row cannot be decoded, the tablet's data is damaged")
}

/// What a read or write that failed below is told as.
pub fn kv_error(error: &KvError, write: Option<WriteType>) -> CqlError {
    let message = error.to_string();
    let consistency = Consistency::Quorum;
    match error {
        KvError::Unavailable(_) | KvError::NoSuchTablet(_) | KvError::NotLeader { .. } => {
            CqlError::new(ErrorKind::Unavailable { consistency, required: 1, alive: 0 }, message)
        }
        KvError::Overloaded(_) => CqlError::overloaded(message),
        KvError::Timeout(_) => {
            let kind = match write {
                Some(write_type) => {
                    ErrorKind::WriteTimeout { consistency, received: 0, required: 1, write_type, contentions: 0 }
                }
                None => ErrorKind::ReadTimeout { consistency, received: 0, required: 1, data_present: false },
            };
            CqlError::new(kind, message)
        }
        KvError::DiskFull(_) => CqlError::new(
            ErrorKind::WriteFailure {
                consistency,
                received: 0,
                required: 1,
                failures: Vec::new(),
                write_type: write.unwrap_or(WriteType::Simple),
            },
            message,
        ),
        KvError::TooLarge(_) => CqlError::invalid(message),
        KvError::Storage(_) => CqlError::server(message),
    }
}
