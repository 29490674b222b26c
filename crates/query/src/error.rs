//! Translates failures of lower layers into errors of CQL.
//!
//! Always true: errors of the client are `Invalid`; an error that allows a retry says so by its kind; a write that may
//! have taken effect is a `WriteTimeout`, whatever failed. Left out: logging; the node does it once.

use crate::kv::{Kv, Replicas};
use diorite_base::limits::Exceeded;
use diorite_base::program::Unprovable;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_cql::protocol::{Consistency, CqlError, ErrorKind, WriteType};
use diorite_model::schema::Table;
use diorite_model::value::ValueError;
use diorite_model::{Malformed, key::KeyError};
use std::borrow::Cow;

/// An `Invalid` error.
pub fn invalid(message: impl Into<Cow<'static, str>>) -> CqlError {
    CqlError::invalid(message)
}

/// A feature of the language that does not exist yet.
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

/// An `Invalid` error about a value, with the place that the value was for.
pub fn in_place(mut error: CqlError, place: impl std::fmt::Display) -> CqlError {
    if error.kind == ErrorKind::Invalid {
        error.message = format!("{} ({place})", error.message).into();
    }
    error
}

/// A write that may not be proposed.
pub fn unprovable(error: Unprovable) -> CqlError {
    CqlError::invalid(error.to_string())
}

/// Something over a limit.
pub fn exceeded(error: Exceeded) -> CqlError {
    CqlError::invalid(error.to_string())
}

/// What an error says of a row until its place is known.
const CORRUPT: &str = "a stored row cannot be decoded, the tablet's data is damaged";

/// Stored bytes that cannot be decoded: an operator has to act. [`in_tablet`] names the place.
pub fn corrupt(_: Malformed) -> CqlError {
    CqlError::server(CORRUPT)
}

/// The error of a statement that has met a malformed row of this table. Other statements go on.
#[cold]
pub fn malformed_row<K: Kv>(kv: &K, table: &str, tablet: TabletId) -> CqlError {
    kv.note_malformed(table, tablet);
    CqlError::server(format!("a row of table {table} in {tablet} is malformed: the tablet's data is damaged"))
}

/// An error of a statement that has read this tablet. If it is about a row that cannot be decoded, it gets the place.
#[cold]
pub fn in_tablet<K: Kv>(kv: &K, error: CqlError, table: &Table, tablet: TabletId) -> CqlError {
    if error.message != CORRUPT {
        return error;
    }
    malformed_row(kv, &format!("{}.{}", table.keyspace, table.name), tablet)
}

/// The client's error for a failed read or write of a tablet. [`at_consistency`] sets the consistency level.
pub fn kv_error(error: &KvError, write: Option<WriteType>, replicas: Replicas) -> CqlError {
    let message = error.to_string();
    let consistency = Consistency::Quorum;
    let count = |replicas: u32| i32::try_from(replicas).unwrap_or(i32::MAX);
    let (required, alive) = (count(replicas.required), count(replicas.alive));
    match error {
        KvError::Unavailable(_) | KvError::NoSuchTablet(_) | KvError::NotLeader { .. } => {
            CqlError::new(ErrorKind::Unavailable { consistency, required, alive }, message)
        }
        KvError::Overloaded(_) | KvError::Locked(_) | KvError::Unmaintained => CqlError::overloaded(message),
        KvError::Timeout(waited) => {
            // The waiting leader knows the voters better than this node's catalog, which may be older or newer.
            let required = if waited.required > 0 { count(waited.required) } else { required };
            timed_out(write, count(waited.received), required, &message)
        }
        KvError::DiskFull(_) => CqlError::new(
            ErrorKind::WriteFailure {
                consistency,
                received: 0,
                required,
                failures: Vec::new(),
                write_type: write.unwrap_or(WriteType::Simple),
            },
            message,
        ),
        KvError::TooLarge(_) | KvError::IndexBeingBuilt => CqlError::invalid(message),
        // The write may be in the log, or committed. Drivers repeat requests that failed with a server error,
        // idempotent or not.
        KvError::Storage(_) if write.is_some() => timed_out(write, 0, required, &message),
        KvError::Storage(_) => CqlError::server(message),
    }
}

/// The error of a request of which a part was refused that had no effect, and what had been done before had none either.
pub fn not_begun(error: &KvError) -> CqlError {
    CqlError::overloaded(error.to_string())
}

/// A read that was not answered, or a write whose outcome is not known.
fn timed_out(write: Option<WriteType>, received: i32, required: i32, message: &str) -> CqlError {
    let consistency = Consistency::Quorum;
    // Enough may have answered by now, or of one of two sets of voters; clients expect fewer than required, as with Cassandra.
    let received = received.min(required - 1).max(0);
    let kind = match write {
        Some(write_type) => ErrorKind::WriteTimeout { consistency, received, required, write_type, contentions: 0 },
        None => ErrorKind::ReadTimeout { consistency, received, required, data_present: false },
    };
    CqlError::new(kind, format!("Operation timed out - received only {received} responses. ({message})"))
}

/// The client's error for a failed change of the catalog.
pub fn catalog_error<K: Kv>(kv: &K, error: &KvError) -> CqlError {
    kv_error(error, Some(WriteType::Simple), kv.replicas(TabletId(GroupId::CATALOG.0)))
}

/// A change of the catalog was made or refused, and its answer cannot be read.
pub fn unreadable_outcome<K: Kv>(kv: &K, error: &impl std::fmt::Display) -> CqlError {
    catalog_error(kv, &KvError::Storage(error.to_string()))
}

/// The client's error for a write that was submitted directly to a tablet.
pub fn write_error<K: Kv>(kv: &K, error: &KvError, write_type: WriteType, asked: Consistency) -> CqlError {
    let tablet = match error {
        KvError::Unavailable(tablet) | KvError::NoSuchTablet(tablet) | KvError::NotLeader { tablet, .. } => *tablet,
        // The number of replicas is the cluster's replication factor.
        _ => TabletId(GroupId::CATALOG.0),
    };
    at_consistency(kv_error(error, Some(write_type), kv.replicas(tablet)), asked, None)
}

/// An error of a request, with the consistency levels that the request asked for.
pub fn at_consistency(mut error: CqlError, asked: Consistency, serial: Option<Consistency>) -> CqlError {
    match &mut error.kind {
        ErrorKind::Unavailable { consistency, .. } => {
            *consistency = asked;
            error.message = format!("Cannot achieve consistency level {asked}: {}", error.message).into();
        }
        ErrorKind::WriteTimeout { consistency, write_type: WriteType::Cas, .. } => {
            *consistency = serial.unwrap_or(Consistency::Serial);
        }
        ErrorKind::ReadTimeout { consistency, .. }
        | ErrorKind::WriteTimeout { consistency, .. }
        | ErrorKind::ReadFailure { consistency, .. }
        | ErrorKind::WriteFailure { consistency, .. } => *consistency = asked,
        _ => {}
    }
    error
}
