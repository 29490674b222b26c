//! Requests: what a client encodes, the server decodes, in every version and with every combination of fields.

use super::with_request;
use crate::protocol::client::{
    BoundValues, ClientBatchStatement, ClientRequest, Parameters, RequestHead, encode_request,
};
use crate::protocol::envelope::{Opcode, Role};
use crate::protocol::event::EventType;
use crate::protocol::request::BatchStatementSource;
use crate::protocol::{
    BatchKind, Compression, Consistency, Envelope, ErrorKind, Inbound, Message, QueryParameters, Request, Value,
    Version,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(super) fn versions() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

#[derive(Clone, Debug)]
enum OwnedValue {
    Set(Vec<u8>),
    Null,
    Unset,
}

impl OwnedValue {
    fn borrow(&self, version: Version) -> Value<'_> {
        match self {
            OwnedValue::Set(bytes) => Value::Set(bytes),
            OwnedValue::Unset if version >= Version::V4 => Value::Unset,
            OwnedValue::Null | OwnedValue::Unset => Value::Null,
        }
    }
}

fn values() -> impl Strategy<Value = Vec<(String, OwnedValue)>> {
    let value = prop_oneof![
        4 => vec(any::<u8>(), 0..40).prop_map(OwnedValue::Set),
        1 => Just(OwnedValue::Null),
        1 => Just(OwnedValue::Unset),
    ];
    vec(("[a-zé]{0,8}", value), 0..12)
}

#[derive(Clone, Debug)]
struct OwnedParameters {
    consistency: Consistency,
    values: Option<Vec<(String, OwnedValue)>>,
    named: bool,
    skip_metadata: bool,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    serial: Option<bool>,
    timestamp: Option<i64>,
    keyspace: Option<String>,
    now: Option<i32>,
}

fn parameters() -> impl Strategy<Value = OwnedParameters> {
    let paging = (option::of(any::<i32>()), option::of(vec(any::<u8>(), 0..20)), any::<bool>());
    let times = (option::of(i64::MIN + 1..), option::of(any::<i32>()), option::of(any::<bool>()));
    let consistency = prop::sample::select(Consistency::ALL_LEVELS.to_vec());
    (consistency, option::of(values()), any::<bool>(), paging, times, option::of("[a-z]{0,8}")).prop_map(
        |(consistency, values, named, (page_size, paging_state, skip_metadata), (timestamp, now, serial), keyspace)| {
            OwnedParameters {
                consistency,
                values,
                named,
                skip_metadata,
                page_size,
                paging_state,
                serial,
                timestamp,
                keyspace,
                now,
            }
        },
    )
}

impl OwnedParameters {
    fn with<R>(&self, version: Version, work: impl FnOnce(Parameters<'_>) -> R) -> R {
        let named: Vec<(&str, Value<'_>)> =
            self.values.iter().flatten().map(|(name, value)| (name.as_str(), value.borrow(version))).collect();
        let positional: Vec<Value<'_>> = named.iter().map(|(_, value)| *value).collect();
        let values = match (&self.values, self.named) {
            (None, _) => BoundValues::None,
            (Some(_), true) => BoundValues::Named(&named),
            (Some(_), false) => BoundValues::Positional(&positional),
        };
        work(Parameters {
            consistency: self.consistency,
            values,
            skip_metadata: self.skip_metadata,
            page_size: self.page_size,
            paging_state: self.paging_state.as_deref(),
            serial_consistency: self.serial_level(),
            default_timestamp_us: self.timestamp,
            keyspace: self.keyspace.as_deref(),
            now_in_seconds: self.now,
        })
    }

    fn serial_level(&self) -> Option<Consistency> {
        self.serial.map(|local| if local { Consistency::LocalSerial } else { Consistency::Serial })
    }

    fn check(&self, version: Version, decoded: &QueryParameters<'_>) {
        assert_eq!(decoded.consistency, self.consistency);
        assert_eq!(decoded.skip_metadata, self.skip_metadata);
        assert_eq!(decoded.page_size, self.page_size.filter(|&size| size > 0).map(|size| size as u32));
        assert_eq!(decoded.paging_state, self.paging_state.as_deref());
        assert_eq!(decoded.serial_consistency, self.serial_level());
        assert_eq!(decoded.default_timestamp_us, self.timestamp);
        let is_v5 = version >= Version::V5;
        assert_eq!(decoded.keyspace, self.keyspace.as_deref().filter(|_| is_v5));
        assert_eq!(decoded.now_in_seconds, self.now.filter(|_| is_v5));
        let expected = self
            .values
            .iter()
            .flatten()
            .map(|(name, value)| (self.named.then_some(name.as_str()), value.borrow(version)));
        assert!(decoded.values.iter_named().eq(expected.clone()));
        assert!(decoded.values.iter().eq(expected.map(|(_, value)| value)));
        assert_eq!(decoded.values.len(), decoded.values.iter().len());
    }
}

proptest! {
    #[test]
    fn query_and_execute_round_trip(
        version in versions(), parameters in parameters(), statement in ".{0,60}", id in vec(any::<u8>(), 0..20),
    ) {
        parameters.with(version, |encoded| {
            let request = ClientRequest::Query { statement: &statement, parameters: encoded };
            with_request(version, &request, |envelope| {
                let Request::Query(query) = Message::decode(envelope).unwrap().request else { panic!("{envelope:?}") };
                assert_eq!(query.statement, statement);
                parameters.check(version, &query.parameters);
            });
            let request = ClientRequest::Execute { id: &id, result_metadata_id: &[5], parameters: encoded };
            with_request(version, &request, |envelope| {
                let Request::Execute(execute) = Message::decode(envelope).unwrap().request else { panic!("{envelope:?}") };
                assert_eq!(execute.id, id.as_slice());
                assert_eq!(execute.result_metadata_id, (version >= Version::V5).then_some(&[5][..]));
                parameters.check(version, &execute.parameters);
            });
        });
    }

    #[test]
    fn batches_round_trip(
        version in versions(), kind in 0u8..3, parameters in parameters(),
        statements in vec((any::<bool>(), "[a-z ]{0,12}", values()), 0..6),
    ) {
        let kind = [BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter][usize::from(kind)];
        let bound: Vec<Vec<Value<'_>>> = statements.iter()
            .map(|(_, _, values)| values.iter().map(|(_, value)| value.borrow(version)).collect())
            .collect();
        let encoded: Vec<_> = statements.iter().zip(&bound).map(|((is_text, text, _), values)| match is_text {
            true => ClientBatchStatement::Text(text, values),
            false => ClientBatchStatement::Prepared(text.as_bytes(), values),
        }).collect();
        parameters.with(version, |parameters| {
            let request = ClientRequest::Batch { kind, statements: &encoded, parameters };
            with_request(version, &request, |envelope| {
                let Request::Batch(batch) = Message::decode(envelope).unwrap().request else { panic!("{envelope:?}") };
                assert_eq!((batch.kind, batch.consistency), (kind, parameters.consistency));
                assert_eq!(batch.serial_consistency, parameters.serial_consistency);
                assert_eq!(batch.default_timestamp_us, parameters.default_timestamp_us);
                assert_eq!(batch.keyspace, parameters.keyspace.filter(|_| version >= Version::V5));
                assert_eq!(batch.statements.len(), encoded.len());
                let mut decoded = batch.statements.iter();
                for ((is_text, text, _), values) in statements.iter().zip(&bound) {
                    let statement = decoded.next().unwrap();
                    let source = if *is_text {
                        BatchStatementSource::Text(text)
                    } else {
                        BatchStatementSource::Prepared(text.as_bytes())
                    };
                    assert_eq!(statement.source, source);
                    assert!(statement.values.iter().eq(values.iter().copied()));
                }
                assert!(decoded.next().is_none());
            });
        });
    }

    #[test]
    fn every_truncation_is_refused(version in versions(), parameters in parameters()) {
        parameters.with(version, |encoded| {
            let request = ClientRequest::Execute { id: &[1; 16], result_metadata_id: &[2; 16], parameters: encoded };
            with_request(version, &request, |envelope| {
                for end in 0..envelope.body.len() {
                    let cut = Envelope { body: &envelope.body[..end], ..*envelope };
                    let error = Message::decode(&cut).unwrap_err();
                    assert_eq!(error.kind, ErrorKind::Protocol);
                }
                let mut longer = envelope.body.to_vec();
                longer.push(0);
                assert!(Message::decode(&Envelope { body: &longer, ..*envelope }).is_err());
            });
        });
    }
}

#[test]
fn the_other_requests_round_trip() {
    for version in Version::ALL {
        for keyspace in [None, Some("ks")] {
            with_request(version, &ClientRequest::Prepare { statement: "SELECT", keyspace }, |envelope| {
                let Request::Prepare(prepare) = Message::decode(envelope).unwrap().request else { panic!("PREPARE") };
                assert_eq!(prepare.statement, "SELECT");
                assert_eq!(prepare.keyspace, keyspace.filter(|_| version >= Version::V5));
            });
        }
        with_request(version, &ClientRequest::AuthResponse(Some(b"\0u\0p")), |envelope| {
            let request = Message::decode(envelope).unwrap().request;
            assert!(matches!(request, Request::AuthResponse(Some(b"\0u\0p"))));
        });
        let register = ClientRequest::Register(&["SCHEMA_CHANGE", "STATUS_CHANGE"]);
        with_request(version, &register, |envelope| {
            let Request::Register(events) = Message::decode(envelope).unwrap().request else { panic!("REGISTER") };
            assert!(events.contains(EventType::SchemaChange) && events.contains(EventType::StatusChange));
            assert!(!events.contains(EventType::TopologyChange));
        });
        with_request(version, &ClientRequest::Register(&["WEATHER"]), |envelope| {
            assert!(Message::decode(envelope).unwrap_err().message.contains("event type"));
        });
    }
}

#[test]
fn compression_is_negotiated_per_version() {
    let cases = [
        (Version::V4, "LZ4", Ok(Some(Compression::Lz4))),
        (Version::V3, "snappy", Ok(Some(Compression::Snappy))),
        (Version::V5, "lz4", Ok(Some(Compression::Lz4))),
        (Version::V5, "snappy", Err(())),
        (Version::V4, "zip", Err(())),
        (Version::V4, "", Ok(None)),
    ];
    for (version, name, expected) in cases {
        with_request(version, &ClientRequest::Startup(&[("COMPRESSION", name)]), |envelope| {
            let Request::Startup(startup) = Message::decode(envelope).unwrap().request else { panic!("STARTUP") };
            assert_eq!(startup.compression(version).map_err(|_| ()), expected, "{name}");
            assert!(startup.check_cql_version().is_err());
        });
    }
}

#[test]
fn versions_of_cql_from_3_on_are_accepted() {
    for (version, is_accepted) in [("3.0.0", true), ("3.4.7", true), ("4.0.0", true), ("2.0.0", false), ("new", false)]
    {
        with_request(Version::V4, &ClientRequest::Startup(&[("CQL_VERSION", version)]), |envelope| {
            let Request::Startup(startup) = Message::decode(envelope).unwrap().request else { panic!("STARTUP") };
            let message = startup.check_cql_version().map_err(|error| error.message.to_string());
            let refused = format!("CQL version {version} is not supported, 3.0.0 and later ones are");
            assert_eq!(message, if is_accepted { Ok(()) } else { Err(refused) });
        });
    }
}

#[test]
fn tracing_and_payload_are_seen() {
    let head =
        RequestHead { wants_tracing: true, custom_payload: &[("k", &[1, 2])], ..RequestHead::new(Version::V4, -3) };
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &head, &ClientRequest::Options);
    let mut inbound = Inbound::new(Role::Server);
    inbound.input().extend_from_slice(&bytes);
    let message = Message::decode(&inbound.next().unwrap().unwrap()).unwrap();
    assert!(message.wants_tracing);
    assert_eq!(message.stream, -3);
    assert!(message.custom_payload.unwrap().iter().eq([("k", Some(&[1u8, 2][..]))]));
}

#[test]
fn unknown_flags_and_values_are_refused() {
    let query = |tail: &[u8], version| {
        let mut body = vec![0, 0, 0, 1, b'Q'];
        body.extend_from_slice(tail);
        Message::decode(&Envelope { version, flags: 0, stream: 0, opcode: Opcode::Query, body: &body }).map(|_| ())
    };
    assert_eq!(query(&[0, 1, 0], Version::V4), Ok(()));
    let refused: [(&[u8], &str); 5] = [
        (&[0, 1, 0x80], "flags"),
        (&[0, 77, 0], "consistency"),
        (&[0, 1, 0x10, 0, 1], "serial consistency"),
        (&[0, 1, 0x01, 0, 1, 0xFF, 0xFF, 0xFF, 0xFD], "value length"),
        (&[0, 1, 0x20, 0x80, 0, 0, 0, 0, 0, 0, 0], "timestamp"),
    ];
    for (tail, what) in refused {
        assert!(query(tail, Version::V4).unwrap_err().message.contains(what), "{what}");
    }
    // v3 knows one kind of negative length.
    assert_eq!(query(&[0, 1, 0x01, 0, 1, 0xFF, 0xFF, 0xFF, 0xFD], Version::V3), Ok(()));
}
