//! Messages as bytes, written out by hand from the protocol's specifications (v3 to v5), and two segments as Cassandra 5 sent and took them.

use super::{hex, receive, with_request};
use crate::protocol::client::{
    BoundValues, ClientBatchStatement, ClientRequest, Parameters, RequestHead, decode_response, encode_request,
};
use crate::protocol::envelope::Role;
use crate::protocol::event::{Event, SchemaChange, SchemaChangeType, SchemaTarget};
use crate::protocol::response::{self, Extras, Prepared, ReplyHead, Response};
use crate::protocol::rows::{BindMarkers, SendMetadata};
use crate::protocol::{
    BatchKind, ColumnSpec, Consistency, CqlError, ErrorKind, Inbound, Message, NativeType, Outbound, Request,
    ResultMetadata, Rows, RowsWriter, TypeOption, Value, Version, WriteType,
};
use std::sync::Arc;

fn requests_as(version: Version, request: &ClientRequest<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(&mut out, &RequestHead::new(version, 1), request);
    out
}

fn column(name: &str, native: NativeType) -> ColumnSpec {
    ColumnSpec { keyspace: "k".into(), table: "t".into(), name: name.into(), type_option: native.into() }
}

#[test]
fn options_and_startup() {
    assert_eq!(requests_as(Version::V4, &ClientRequest::Options), hex("04 00 0001 05 00000000"));
    let startup = ClientRequest::Startup(&[("CQL_VERSION", "3.0.0")]);
    let expected = hex("05 00 0001 01 00000016 0001 000b 43514c5f56455253494f4e 0005 332e302e30");
    assert_eq!(requests_as(Version::V5, &startup), expected);
    with_request(Version::V5, &startup, |envelope| {
        let message = Message::decode(envelope).unwrap();
        let Request::Startup(startup) = message.request else { panic!("{message:?}") };
        assert_eq!(startup.options.get("cql_version"), Some("3.0.0"));
        assert_eq!(startup.check_cql_version(), Ok(()));
        assert_eq!(startup.compression(Version::V5), Ok(None));
    });
}

#[test]
fn execute_in_every_version() {
    let values = [Value::Set(&[0xAB]), Value::Null];
    let parameters = Parameters {
        consistency: Consistency::LocalQuorum,
        values: BoundValues::Positional(&values),
        skip_metadata: true,
        page_size: Some(5000),
        default_timestamp_us: Some(1),
        now_in_seconds: Some(2),
        ..Parameters::default()
    };
    let request = ClientRequest::Execute { id: &[0xCA, 0xFE], result_metadata_id: &[0xD0], parameters };
    let tail = "0002 00000001 ab ffffffff 00001388 0000000000000001";
    let v4 = format!("04 00 0001 0a 0000001e 0002 cafe 0006 27 {tail}");
    assert_eq!(requests_as(Version::V4, &request), hex(&v4));
    let v5 = format!("05 00 0001 0a 00000028 0002 cafe 0001 d0 0006 00000127 {tail} 00000002");
    assert_eq!(requests_as(Version::V5, &request), hex(&v5));
    with_request(Version::V5, &request, |envelope| {
        let Request::Execute(execute) = Message::decode(envelope).unwrap().request else { panic!("{envelope:?}") };
        assert_eq!(execute.result_metadata_id, Some(&[0xD0][..]));
        assert_eq!(execute.parameters.now_in_seconds, Some(2));
        assert_eq!(execute.parameters.values.iter().collect::<Vec<_>>(), values);
    });
}

#[test]
fn batch_as_specified() {
    let values = [Value::Set(b"v")];
    let request = ClientRequest::Batch {
        kind: BatchKind::Unlogged,
        statements: &[ClientBatchStatement::Text("A", &[]), ClientBatchStatement::Prepared(&[9], &values)],
        parameters: Parameters { consistency: Consistency::One, ..Parameters::default() },
    };
    let expected = "03 00 0001 0d 00000019 01 0002 00 00000001 41 0000 01 0001 09 0001 00000001 76 0001 00";
    assert_eq!(requests_as(Version::V3, &request), hex(expected));
}

#[test]
fn small_responses() {
    let mut out = Vec::new();
    let head = ReplyHead::new(Version::V4, 258);
    response::encode_ready(&mut out, &head);
    response::encode_void(&mut out, &head);
    response::encode_authenticate(&mut out, &head, "A");
    response::encode_auth_success(&mut out, &head, None);
    response::encode_supported(&mut out, &head, &[("C", &["x", "y"])]);
    Response::SetKeyspace("ks".into()).encode(&mut out, &head, false, None);
    let expected = "84 00 0102 02 00000000
        84 00 0102 08 00000004 00000001
        84 00 0102 03 00000003 0001 41
        84 00 0102 10 00000004 ffffffff
        84 00 0102 06 0000000d 0001 0001 43 0002 0001 78 0001 79
        84 00 0102 08 00000008 00000003 0002 6b73";
    assert_eq!(out, hex(expected));
}

#[test]
fn a_row_without_and_with_metadata() {
    let metadata = ResultMetadata::new(vec![column("a", NativeType::Int), column("b", NativeType::Duration)]);
    let write = |version, send| {
        let mut out = Vec::new();
        let mut writer = RowsWriter::begin(&mut out, &ReplyHead::new(version, 1), &metadata, send, None);
        writer.put_cell(&[0, 0, 0, 5]);
        writer.put_null();
        writer.end_row();
        writer.finish();
        out
    };
    let rows = "00000001 00000004 00000005 ffffffff";
    let skipped = format!("84 00 0001 08 0000001c 00000002 00000004 00000002 {rows}");
    assert_eq!(write(Version::V4, SendMetadata::Skip), hex(&skipped));
    let full =
        format!("85 00 0001 08 0000002c 00000002 00000001 00000002 0001 6b 0001 74 0001 61 0009 0001 62 0015 {rows}");
    assert_eq!(write(Version::V5, SendMetadata::Full), hex(&full));
    // v4 has no number for durations.
    let v4 = write(Version::V4, SendMetadata::Full);
    let class = b"org.apache.cassandra.db.marshal.DurationType";
    assert!(v4.windows(class.len()).any(|window| window == class));
    // v5's "the columns changed" comes with the new id, between paging state and columns.
    let changed = write(Version::V5, SendMetadata::Changed);
    assert_eq!(changed[13..17], hex("00000009"));
    assert_eq!(changed[21..23], hex("0010"));
    assert_eq!(&changed[23..39], metadata.id());
}

#[test]
fn prepared_in_every_version() {
    let result = Arc::new(ResultMetadata::empty());
    let id = result.id().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let markers = BindMarkers { columns: vec![column("a", NativeType::Int)], partition_key_indexes: vec![0] };
    let prepared = Response::Prepared(Arc::new(Prepared { id: vec![0xEE], markers, result }));
    let columns = "0001 6b 0001 74 0001 61 0009";
    let no_result = "00000004 00000000";
    let cases = [
        (Version::V3, format!("83 00 0001 08 00000022 00000004 0001 ee 00000001 00000001 {columns} {no_result}")),
        (
            Version::V4,
            format!("84 00 0001 08 00000028 00000004 0001 ee 00000001 00000001 00000001 0000 {columns} {no_result}"),
        ),
        (
            Version::V5,
            format!(
                "85 00 0001 08 0000003a 00000004 0001 ee 0010 {id} 00000001 00000001 00000001 0000 {columns} {no_result}"
            ),
        ),
    ];
    for (version, expected) in cases {
        let mut out = Vec::new();
        prepared.encode(&mut out, &ReplyHead::new(version, 1), false, None);
        assert_eq!(out, hex(&expected), "{version:?}");
    }
}

#[test]
fn errors_fall_back_to_what_a_version_has() {
    let body = |version, kind| {
        let mut out = Vec::new();
        CqlError::new(kind, "m").encode_body(&mut out, version);
        out
    };
    let consistency = Consistency::Quorum;
    let unavailable = ErrorKind::Unavailable { consistency, required: 2, alive: 1 };
    assert_eq!(body(Version::V3, unavailable), hex("00001000 0001 6d 0004 00000002 00000001"));
    let failures = vec![("10.0.0.1".parse().unwrap(), 5u16)];
    let failure = ErrorKind::ReadFailure { consistency, received: 1, required: 2, failures, data_present: true };
    let counts = "0004 00000001 00000002";
    assert_eq!(body(Version::V3, failure.clone()), hex(&format!("00001200 0001 6d {counts} 01")));
    assert_eq!(body(Version::V4, failure.clone()), hex(&format!("00001300 0001 6d {counts} 00000001 01")));
    let v5 = format!("00001300 0001 6d {counts} 00000001 04 0a000001 0005 01");
    assert_eq!(body(Version::V5, failure), hex(&v5));
    let unknown = ErrorKind::CasWriteUnknown { consistency, received: 1, required: 2 };
    assert_eq!(body(Version::V4, unknown.clone()), hex(&format!("00001100 0001 6d {counts} 0003 434153")));
    assert_eq!(body(Version::V5, unknown), hex(&format!("00001700 0001 6d {counts}")));
    let timeout =
        ErrorKind::WriteTimeout { consistency, received: 1, required: 2, write_type: WriteType::Cas, contentions: 3 };
    assert_eq!(body(Version::V5, timeout), hex(&format!("00001100 0001 6d {counts} 0003 434153 0003")));
    assert_eq!(body(Version::V4, ErrorKind::Unprepared { id: vec![1, 2] }), hex("00002500 0001 6d 0002 0102"));
}

#[test]
fn extras_precede_the_message() {
    let warnings = ["w".to_owned()];
    let payload = [("p".to_owned(), vec![1])];
    let extras = Extras { tracing_id: Some([0x11; 16]), warnings: &warnings, custom_payload: &payload };
    let mut out = Vec::new();
    response::encode_void(&mut out, &ReplyHead { version: Version::V4, stream: 0, extras });
    let id = "11".repeat(16);
    let expected = format!("84 0e 0000 08 00000023 {id} 0001 0001 77 0001 0001 70 00000001 01 00000001");
    assert_eq!(out, hex(&expected));
    out.clear();
    response::encode_void(&mut out, &ReplyHead { version: Version::V3, stream: 0, extras });
    assert_eq!(out, hex(&format!("83 02 0000 08 00000014 {id} 00000001")));
}

#[test]
fn events() {
    let mut out = Vec::new();
    let target = SchemaTarget::Table { keyspace: "k".into(), name: "t".into() };
    let event = Event::Schema(SchemaChange { change: SchemaChangeType::Created, target });
    response::encode_event(&mut out, Version::V4, &event);
    let expected = "84 00 ffff 0c 00000025 000d 534348454d415f4348414e4745
        0007 43524541544544 0005 5441424c45 0001 6b 0001 74";
    assert_eq!(out, hex(expected));
    out.clear();
    let event = Event::Status { is_up: false, address: "127.0.0.1:9042".parse().unwrap() };
    response::encode_event(&mut out, Version::V4, &event);
    let expected = "84 00 ffff 0c 0000001e 000d 5354415455535f4348414e4745 0004 444f574e 04 7f000001 00002352";
    assert_eq!(out, hex(expected));
}

#[test]
fn types_nest() {
    let mut out = Vec::new();
    let int = || Box::new(TypeOption::from(NativeType::Int));
    let nested = TypeOption::Map(int(), Box::new(TypeOption::List(Box::new(TypeOption::Tuple(vec![*int()])))));
    nested.encode(&mut out, Version::V4);
    assert_eq!(out, hex("0021 0009 0020 0031 0001 0009"));
}

/// Sent to, and received from, Cassandra 5.0: `SELECT key, cluster_name FROM system.local` in v5.
const CASSANDRA_REQUEST_SEGMENT: &str = "3d0002300e0d0500000207000000340000002a53454c454354206b65792c20636c75737465725f6e6\
     16d652046524f4d2073797374656d2e6c6f63616c000100000000dafd4ad9";
const CASSANDRA_RESPONSE_SEGMENT: &str = "510002780335850000020800000048000000020000000100000002000673797374656d00056c6f63616c0003\
     6b6579000d000c636c75737465725f6e616d65000d00000001000000056c6f63616c00000005436865636bcd7bf038";

#[test]
fn segments_are_those_of_cassandra() {
    let statement = "SELECT key, cluster_name FROM system.local";
    let parameters = Parameters { consistency: Consistency::One, ..Parameters::default() };
    let mut client = Outbound::new();
    client.start(Version::V5, None);
    let request = ClientRequest::Query { statement, parameters };
    encode_request(client.buffer(), &RequestHead::new(Version::V5, 2), &request);
    client.commit();
    assert_eq!(client.wire_bytes(), hex(CASSANDRA_REQUEST_SEGMENT));

    let text = |name: &str| ColumnSpec {
        keyspace: "system".into(),
        table: "local".into(),
        name: name.into(),
        type_option: NativeType::Varchar.into(),
    };
    let mut rows = Rows::new(Arc::new(ResultMetadata::new(vec![text("key"), text("cluster_name")])));
    rows.push_row([Some(&b"local"[..]), Some(b"Check")]);
    let mut server = Outbound::new();
    server.start(Version::V5, None);
    Response::Rows(rows).encode(server.buffer(), &ReplyHead::new(Version::V5, 2), false, None);
    server.commit();
    assert_eq!(server.wire_bytes(), hex(CASSANDRA_RESPONSE_SEGMENT));
    let mut inbound = Inbound::new(Role::Client);
    inbound.start(Version::V5, None);
    inbound.input().extend_from_slice(&hex(CASSANDRA_RESPONSE_SEGMENT));
    let decoded = decode_response(&inbound.next().unwrap().unwrap()).unwrap();
    assert_eq!(decoded.stream, 2);
}

#[test]
fn unsupported_versions_are_told_the_highest_one() {
    for (bytes, stream) in [("01 00 05 05 00000000", 5), ("42 00 0009 05 00000000", 9), ("06 10 0001", 1)] {
        let mut inbound = receive(Role::Server, &hex(bytes));
        let error = inbound.next().unwrap_err();
        assert!(error.is_fatal);
        assert_eq!((error.version, error.stream), (Version::V5, Some(stream)));
        assert!(error.error.message.contains("unsupported protocol version"), "{error:?}");
        let mut out = Vec::new();
        error.encode(&mut out);
        assert_eq!(out[0], 0x85);
        assert!(inbound.next().unwrap().is_none());
    }
}
