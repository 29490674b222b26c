//! Responses: what the server encodes, a client decodes, in every version.

use super::receive;
use super::requests::versions;
use crate::protocol::client::{ClientPrepared, ClientResponse, DecodedResponse, decode_response};
use crate::protocol::consistency::Consistency;
use crate::protocol::envelope::Role;
use crate::protocol::error::{CqlError, ErrorKind, FunctionSignature, WriteType};
use crate::protocol::event::{Event, SchemaChange, SchemaChangeType, SchemaTarget, TopologyChangeType};
use crate::protocol::response::{self, Extras, Prepared, ReplyHead, Response};
use crate::protocol::rows::{BindMarkers, ColumnSpec, ResultMetadata, Rows, RowsWriter, SendMetadata};
use crate::protocol::types::{NativeType, TypeOption, UserTypeOption};
use crate::protocol::version::Version;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

fn decode(bytes: &[u8]) -> DecodedResponse {
    let mut inbound = receive(Role::Client, bytes);
    let decoded = decode_response(&inbound.next().unwrap().unwrap()).unwrap();
    assert!(inbound.next().unwrap().is_none());
    decoded
}

/// Types that every version has a number for, so that they come back as they went.
fn type_options() -> impl Strategy<Value = TypeOption> {
    let ancient: Vec<_> = NativeType::ALL.into_iter().filter(|native| (*native as u16) <= 0x10).collect();
    let leaf = prop_oneof![
        prop::sample::select(ancient).prop_map(TypeOption::Native),
        "[a-z.]{1,20}".prop_map(TypeOption::Custom),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        let fields = vec(("[a-z]{1,6}", inner.clone()), 0..3);
        prop_oneof![
            inner.clone().prop_map(|element| TypeOption::List(Box::new(element))),
            inner.clone().prop_map(|element| TypeOption::Set(Box::new(element))),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| TypeOption::Map(Box::new(key), Box::new(value))),
            vec(inner, 0..3).prop_map(TypeOption::Tuple),
            ("[a-z]{1,6}", "[a-z]{1,6}", fields).prop_map(|(keyspace, name, fields)| {
                TypeOption::UserDefined(Box::new(UserTypeOption { keyspace, name, fields }))
            }),
        ]
    })
}

fn columns() -> impl Strategy<Value = Vec<ColumnSpec>> {
    let table = prop_oneof![4 => Just("t".to_owned()), 1 => Just("other".to_owned())];
    let column = (table, "[a-z]{1,8}", type_options());
    let column =
        column.prop_map(|(table, name, type_option)| ColumnSpec { keyspace: "ks".into(), table, name, type_option });
    vec(column, 1..5)
}

fn cells() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
    vec(option::of(vec(any::<u8>(), 0..20)), 0..20)
}

proptest! {
    #[test]
    fn rows_round_trip(
        version in versions(), columns in columns(), cells in cells(), paging_state in option::of(vec(any::<u8>(), 0..9)),
        skip in any::<bool>(), known in 0..3,
    ) {
        let metadata = Arc::new(ResultMetadata::new(columns.clone()));
        let known_id = match known {
            0 => None,
            1 => Some(metadata.id().to_vec()),
            _ => Some(vec![1]),
        }.filter(|_| version >= Version::V5);
        let expected: Vec<Vec<_>> = cells.chunks_exact(columns.len()).map(<[_]>::to_vec).collect();
        let mut rows = Rows::new(Arc::clone(&metadata));
        rows.paging_state = paging_state.clone();
        for row in &expected {
            rows.push_row(row.iter().map(Option::as_deref));
        }
        let mut out = Vec::new();
        let head = ReplyHead::new(version, 12);
        let send = metadata.to_send(skip, known_id.as_deref());
        Response::Rows(rows).encode(&mut out, &head, skip, known_id.as_deref());

        // The writer that goes straight to the connection gives the same bytes.
        let mut written = Vec::new();
        let mut writer = RowsWriter::begin(&mut written, &head, &metadata, send, paging_state.as_deref());
        for row in &expected {
            row.iter().for_each(|cell| match cell {
                Some(bytes) => writer.put_cell(bytes),
                None => writer.put_null(),
            });
            writer.end_row();
        }
        prop_assert_eq!(writer.encoded_bytes(), out.len());
        writer.finish();
        prop_assert_eq!(&written, &out);

        let decoded = decode(&out);
        prop_assert_eq!(decoded.stream, 12);
        let ClientResponse::Rows(rows) = decoded.response else { panic!("rows were sent") };
        prop_assert_eq!(rows.rows, expected);
        prop_assert_eq!(rows.metadata.column_count, columns.len());
        prop_assert_eq!(rows.metadata.paging_state, paging_state);
        prop_assert_eq!(rows.metadata.new_metadata_id.is_some(), send == SendMetadata::Changed);
        let is_sent = send != SendMetadata::Skip;
        prop_assert_eq!(rows.metadata.columns, if is_sent { columns } else { Vec::new() });
    }

    #[test]
    fn prepared_round_trips(version in versions(), markers in columns(), result in columns(), id in vec(any::<u8>(), 0..20)) {
        let result = Arc::new(ResultMetadata::new(result));
        let markers = BindMarkers { columns: markers, partition_key_indexes: vec![1, 0] };
        let prepared = Prepared { id: id.clone(), markers: markers.clone(), result: Arc::clone(&result) };
        let mut out = Vec::new();
        Response::Prepared(Arc::new(prepared)).encode(&mut out, &ReplyHead::new(version, 1), true, None);
        let ClientResponse::Prepared(decoded) = decode(&out).response else { panic!("PREPARED was sent") };
        let ClientPrepared { result_metadata_id, result: columns, .. } = &decoded;
        prop_assert_eq!(result_metadata_id.as_deref(), (version >= Version::V5).then_some(&result.id()[..]));
        prop_assert_eq!(&columns.columns, result.columns());
        prop_assert_eq!(&decoded.id, &id);
        prop_assert_eq!(&decoded.markers.columns, &markers.columns);
        let indexes = if version >= Version::V4 { vec![1, 0] } else { vec![] };
        prop_assert_eq!(&decoded.markers.partition_key_indexes, &indexes);
    }

    #[test]
    fn extras_round_trip(
        version in versions(), tracing_id: Option<[u8; 16]>, warnings in vec(".{0,20}", 0..3),
        payload in vec(("[a-z]{0,5}", vec(any::<u8>(), 0..9)), 0..3),
    ) {
        let mut out = Vec::new();
        let extras = Extras { tracing_id, warnings: &warnings, custom_payload: &payload };
        response::encode_void(&mut out, &ReplyHead { version, stream: 1, extras });
        let decoded = decode(&out);
        prop_assert_eq!(decoded.tracing_id, tracing_id);
        if version >= Version::V4 {
            prop_assert_eq!(decoded.warnings, warnings);
            prop_assert_eq!(decoded.custom_payload, payload);
        }
        prop_assert_eq!(decoded.response, ClientResponse::Void);
    }
}

fn all_errors() -> Vec<CqlError> {
    let (consistency, received, required) = (Consistency::LocalQuorum, 1, 2);
    let failures = vec![("10.0.0.1".parse().unwrap(), 0), ("::1".parse().unwrap(), 2)];
    let signature =
        FunctionSignature { keyspace: "k".into(), name: "f".into(), argument_types: vec!["int".into(), "text".into()] };
    let write_type = WriteType::Cas;
    let with_fields = [
        ErrorKind::Unavailable { consistency, required, alive: 1 },
        ErrorKind::WriteTimeout { consistency, received, required, write_type, contentions: 4 },
        ErrorKind::WriteTimeout { consistency, received, required, write_type: WriteType::Simple, contentions: 0 },
        ErrorKind::ReadTimeout { consistency, received, required, data_present: true },
        ErrorKind::ReadFailure { consistency, received, required, failures: failures.clone(), data_present: false },
        ErrorKind::FunctionFailure(Box::new(signature)),
        ErrorKind::WriteFailure { consistency, received, required, failures, write_type: WriteType::Batch },
        ErrorKind::CdcWriteFailure,
        ErrorKind::CasWriteUnknown { consistency, received, required },
    ];
    let mut errors: Vec<_> = with_fields.into_iter().map(|kind| CqlError::new(kind, "message")).collect();
    errors.extend([
        CqlError::server("s"),
        CqlError::protocol("p"),
        CqlError::authentication("a"),
        CqlError::overloaded("o"),
        CqlError::bootstrapping("b"),
        CqlError::truncate("t"),
        CqlError::syntax("x"),
        CqlError::unauthorized("u"),
        CqlError::invalid("i"),
        CqlError::config("c"),
        CqlError::already_exists("k", "t"),
        CqlError::already_exists("k", ""),
        CqlError::unprepared(&[1, 0xAB]),
    ]);
    errors
}

#[test]
fn every_error_round_trips_in_v5() {
    for error in all_errors() {
        let mut out = Vec::new();
        response::encode_error(&mut out, &ReplyHead::new(Version::V5, 3), &error);
        assert_eq!(decode(&out).response, ClientResponse::Error(error));
    }
}

#[test]
fn every_error_can_be_read_in_every_version() {
    for error in all_errors() {
        for version in Version::ALL {
            let mut out = Vec::new();
            response::encode_error(&mut out, &ReplyHead::new(version, 3), &error);
            let ClientResponse::Error(decoded) = decode(&out).response else { panic!("an error was sent") };
            assert_eq!(decoded.message, error.message);
            assert!(version > Version::V3 || (decoded.code() as u32) < 0x1300 || (decoded.code() as u32) >= 0x2000);
        }
    }
}

#[test]
fn a_message_too_long_for_its_field_is_cut_at_a_character() {
    let error = CqlError::invalid("é".repeat(40_000));
    let mut out = Vec::new();
    response::encode_error(&mut out, &ReplyHead::new(Version::V4, 3), &error);
    let ClientResponse::Error(decoded) = decode(&out).response else { panic!("an error was sent") };
    assert_eq!(decoded.message.len(), 65_534);
}

#[test]
fn events_and_schema_changes_round_trip() {
    let (keyspace, name) = ("k".to_owned(), "n".to_owned());
    let signature = FunctionSignature { keyspace: keyspace.clone(), name: name.clone(), argument_types: vec![] };
    let targets = [
        SchemaTarget::Keyspace(keyspace.clone()),
        SchemaTarget::Table { keyspace: keyspace.clone(), name: name.clone() },
        SchemaTarget::Type { keyspace: keyspace.clone(), name },
        SchemaTarget::Function(signature.clone()),
        SchemaTarget::Aggregate(signature),
    ];
    let address = "[::1]:9042".parse().unwrap();
    let mut events = vec![Event::Status { is_up: true, address }, Event::Status { is_up: false, address }];
    events.extend(TopologyChangeType::ALL.map(|change| Event::Topology { change, address }));
    for target in targets {
        for change in SchemaChangeType::ALL {
            events.push(Event::Schema(SchemaChange { change, target: target.clone() }));
        }
    }
    for event in events {
        for version in Version::ALL {
            let mut out = Vec::new();
            response::encode_event(&mut out, version, &event);
            let decoded = decode(&out);
            assert_eq!(decoded.stream, -1);
            let is_function = matches!(&event, Event::Schema(change) if matches!(change.target, SchemaTarget::Function(_) | SchemaTarget::Aggregate(_)));
            let expected = if is_function && version == Version::V3 {
                let target = SchemaTarget::Keyspace(keyspace.clone());
                Event::Schema(SchemaChange { change: SchemaChangeType::Updated, target })
            } else {
                event.clone()
            };
            assert_eq!(decoded.response, ClientResponse::Event(expected));
            if let Event::Schema(change) = &event {
                out.clear();
                Response::SchemaChange(change.clone()).encode(&mut out, &ReplyHead::new(version, 5), false, None);
                assert!(matches!(decode(&out).response, ClientResponse::SchemaChange(_)));
            }
        }
    }
}

#[test]
fn newer_types_are_custom_classes_in_older_versions() {
    for native in [NativeType::Date, NativeType::Time, NativeType::Smallint, NativeType::Tinyint, NativeType::Duration]
    {
        let mut out = Vec::new();
        TypeOption::from(native).encode(&mut out, Version::V3);
        assert_eq!(out[..2], [0, 0]);
        out.clear();
        TypeOption::from(native).encode(&mut out, Version::V5);
        assert_eq!(out, (native as u16).to_be_bytes());
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let metadata = ResultMetadata::empty();
    let mut out = vec![1, 2, 3];
    let mut writer = RowsWriter::begin(&mut out, &ReplyHead::new(Version::V4, 1), &metadata, SendMetadata::Full, None);
    writer.put_cell(b"lost");
    drop(writer);
    assert_eq!(out, [1, 2, 3]);
}
