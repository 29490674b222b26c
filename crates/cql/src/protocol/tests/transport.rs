//! The path between the two ends: everything sent arrives, in every version and compression and however it is cut;
//! damage is detected; limits hold.

use super::requests::versions;
use super::{hex, receive};
use crate::protocol::client::{ClientRequest, Parameters, RequestHead, encode_request};
use crate::protocol::envelope::{Opcode, Role, flags};
use crate::protocol::error::ErrorCode;
use crate::protocol::response::{self, ReplyHead};
use crate::protocol::segment::MAX_PAYLOAD_BYTES;
use crate::protocol::{Compression, CqlError, ErrorKind, Inbound, Outbound, Version};
use diorite_base::limits::MAX_FRAME_BYTES;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn compressions() -> impl Strategy<Value = Option<Compression>> {
    option::of(prop::sample::select(Compression::ALL.to_vec()))
}

/// Bytes that compress (`compressible`) or do not.
fn body(length: usize, seed: u8, compressible: bool) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if compressible { (state >> 60) as u8 / 8 } else { (state >> 56) as u8 }
    };
    (0..length).map(byte).collect()
}

/// Encodes AUTH_RESPONSEs, which carry any bytes, flushing after each batch of messages.
fn send(version: Version, compression: Option<Compression>, batches: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut outbound = Outbound::new();
    outbound.start(version, compression);
    let mut wire = Vec::new();
    for batch in batches {
        for (stream, token) in batch.iter().enumerate() {
            let head = RequestHead::new(version, stream as i16);
            encode_request(outbound.buffer(), &head, &ClientRequest::AuthResponse(Some(token)));
            outbound.commit();
        }
        let bytes = outbound.wire_bytes();
        wire.extend_from_slice(bytes);
        let count = bytes.len();
        outbound.advance(count);
        assert!(outbound.is_empty());
    }
    wire
}

/// Feeds the bytes in pieces and returns the bodies.
fn arrive(inbound: &mut Inbound, wire: &[u8], piece_bytes: usize) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for piece in wire.chunks(piece_bytes) {
        inbound.input().extend_from_slice(piece);
        while let Some(envelope) = inbound.next().unwrap() {
            assert_eq!(envelope.opcode, Opcode::AuthResponse);
            bodies.push(envelope.body[4..].to_vec());
        }
    }
    bodies
}

fn started(version: Version, compression: Option<Compression>) -> Inbound {
    let mut inbound = Inbound::new(Role::Server);
    inbound.start(version, compression);
    inbound
}

/// Takes messages until one can be refused, and refuses it; then continues. Returns the bodies that arrived, and the
/// refused streams.
fn refuse_once(inbound: &mut Inbound, wire: &[u8], piece_bytes: usize) -> (Vec<Vec<u8>>, Vec<Option<i16>>) {
    let (mut bodies, mut refused) = (Vec::new(), Vec::new());
    let mut rest = wire;
    while !rest.is_empty() {
        let allowed = inbound.growth_bytes() + inbound.capacity_bytes();
        let input = inbound.input();
        let (piece, later) = rest.split_at(piece_bytes.min(input.capacity() - input.len()).min(rest.len()));
        input.extend_from_slice(piece);
        rest = later;
        assert!(inbound.capacity_bytes() <= allowed, "{} bytes, {allowed} were announced", inbound.capacity_bytes());
        while let Some(envelope) = inbound.next().unwrap() {
            bodies.push(envelope.body[4..].to_vec());
        }
        inbound.release_done();
        if refused.is_empty()
            && let Some(error) = inbound.refuse_unfinished(CqlError::overloaded("no memory"))
        {
            assert!(!error.is_fatal);
            refused.push(error.stream);
        }
    }
    (bodies, refused)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_message_that_is_refused_halfway_is_skipped_and_the_next_arrives(
        version in versions(),
        compression in compressions(),
        length in 200_000usize..400_000,
        piece_bytes in 1_000usize..60_000,
    ) {
        let compression = compression.filter(|compression| compression.is_in(version));
        let long = body(length, 7, false);
        let wire = send(version, compression, &[vec![long], vec![b"next".to_vec()]]);
        let mut inbound = Inbound::new(Role::Server);
        inbound.start(version, compression);
        let (bodies, refused) = refuse_once(&mut inbound, &wire, piece_bytes);
        prop_assert_eq!(refused, [Some(0)]);
        prop_assert_eq!(bodies, [b"next".to_vec()]);
        prop_assert!(inbound.is_idle());
        prop_assert!(inbound.capacity_bytes() < 400_000);
    }

    #[test]
    fn what_is_sent_arrives(
        version in versions(), compression in compressions(), piece_bytes in 1usize..5000, seed: u8, compressible: bool,
        batches in vec(vec(prop_oneof![4 => 0usize..3000, 1 => 100_000usize..300_000], 0..6), 1..4),
    ) {
        let compression = compression.filter(|compression| compression.is_in(version));
        let batches: Vec<Vec<Vec<u8>>> = batches.iter()
            .map(|batch| batch.iter().map(|&length| body(length, seed, compressible)).collect())
            .collect();
        let wire = send(version, compression, &batches);
        let mut inbound = started(version, compression);
        let arrived = arrive(&mut inbound, &wire, piece_bytes);
        prop_assert!(inbound.is_idle());
        prop_assert_eq!(arrived, batches.concat());
    }

    #[test]
    fn a_flipped_bit_of_a_segment_is_noticed(
        compressed: bool, length in 0usize..2000, position: prop::sample::Index, bit in 0u32..8, large: bool,
    ) {
        let compression = compressed.then_some(Compression::Lz4);
        let length = if large { length + MAX_PAYLOAD_BYTES } else { length };
        let mut wire = send(Version::V5, compression, &[vec![body(length, 1, true)]]);
        let at = position.index(wire.len());
        wire[at] ^= 1u8 << bit;
        let mut inbound = started(Version::V5, compression);
        inbound.input().extend_from_slice(&wire);
        let error = inbound.next().unwrap_err();
        prop_assert!(error.is_fatal);
        prop_assert!(error.error.message.contains("checksum"));
        prop_assert!(inbound.next().unwrap().is_none());
    }

    #[test]
    fn a_truncated_stream_gives_nothing_more(
        version in versions(), compression in compressions(), length in 0usize..2000, cut: prop::sample::Index,
    ) {
        let compression = compression.filter(|compression| compression.is_in(version));
        let wire = send(version, compression, &[vec![body(length, 1, true)]]);
        let mut inbound = started(version, compression);
        inbound.input().extend_from_slice(&wire[..cut.index(wire.len())]);
        prop_assert!(inbound.next().unwrap().is_none());
    }
}

#[test]
fn sizes_around_the_segment_boundary_arrive() {
    for compression in [None, Some(Compression::Lz4)] {
        // 13 bytes of header and token length precede the body.
        let edge = MAX_PAYLOAD_BYTES - 13;
        let sizes = [edge - 1, edge, edge + 1, 2 * MAX_PAYLOAD_BYTES - 13, 0, edge, 1];
        let batch: Vec<_> = sizes.iter().map(|&length| body(length, 3, false)).collect();
        let wire = send(Version::V5, compression, std::slice::from_ref(&batch));
        assert_eq!(arrive(&mut started(Version::V5, compression), &wire, 1 << 20), batch);
    }
}

#[test]
fn several_messages_encoded_before_one_commit_are_split() {
    let mut outbound = Outbound::new();
    outbound.start(Version::V5, None);
    let bodies: Vec<_> = [70_000, 70_000, 200_000, 5].iter().map(|&length| body(length, 9, false)).collect();
    for body in &bodies {
        let head = RequestHead::new(Version::V5, 1);
        encode_request(outbound.buffer(), &head, &ClientRequest::AuthResponse(Some(body)));
    }
    outbound.commit();
    let wire = outbound.wire_bytes().to_vec();
    assert_eq!(arrive(&mut started(Version::V5, None), &wire, 999), bodies);
}

#[test]
fn an_idle_segment_is_not_sent() {
    let mut outbound = Outbound::new();
    outbound.start(Version::V5, None);
    let _ = outbound.buffer();
    outbound.commit();
    assert!(outbound.wire_bytes().is_empty());
}

#[test]
fn startup_is_plain_and_what_follows_is_framed() {
    let mut outbound = Outbound::new();
    response::encode_ready(outbound.buffer(), &ReplyHead::new(Version::V5, 0));
    outbound.commit();
    outbound.start(Version::V5, None);
    response::encode_void(outbound.buffer(), &ReplyHead::new(Version::V5, 1));
    outbound.commit();
    let wire = outbound.wire_bytes();
    assert_eq!(wire[..9], hex("85 00 0000 02 00000000"));
    let mut inbound = Inbound::new(Role::Client);
    inbound.input().extend_from_slice(wire);
    assert_eq!(inbound.next().unwrap().unwrap().opcode, Opcode::Ready);
    inbound.start(Version::V5, None);
    assert_eq!(inbound.next().unwrap().unwrap().opcode, Opcode::Result);
}

#[test]
fn small_and_incompressible_bodies_stay_as_they_are() {
    for compression in Compression::ALL {
        let small = send(Version::V4, Some(compression), &[vec![body(100, 1, true)]]);
        let random = send(Version::V4, Some(compression), &[vec![body(5000, 1, false)]]);
        let regular = send(Version::V4, Some(compression), &[vec![body(5000, 1, true)]]);
        assert_eq!([small[1], random[1], regular[1]], [0, 0, flags::COMPRESSED]);
        assert!(regular.len() < 5000);
    }
}

/// One message over the limit, then one that is not, in pieces.
fn refused_then_served(version: Version, compression: Option<Compression>) {
    let wire = send(version, compression, &[vec![body(300_000, 1, false), body(10, 2, false)]]);
    let mut inbound = started(version, compression);
    inbound.set_max_body_bytes(200_000);
    let (mut refused, mut served) = (0, 0);
    for piece in wire.chunks(1000) {
        inbound.input().extend_from_slice(piece);
        assert!(inbound.input().capacity() < 300_000, "a refused message is not buffered");
        loop {
            match inbound.next() {
                Ok(None) => break,
                Ok(Some(envelope)) => {
                    assert_eq!(envelope.stream, 1);
                    served += 1;
                }
                Err(error) => {
                    assert!(!error.is_fatal);
                    assert_eq!((error.stream, error.version), (Some(0), version));
                    assert_eq!(error.error.kind, ErrorKind::Invalid);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((refused, served), (1, 1));
}

#[test]
fn a_message_over_the_limit_is_refused_and_skipped() {
    for version in Version::ALL {
        refused_then_served(version, None);
        refused_then_served(version, Some(Compression::Lz4));
    }
}

#[test]
fn before_startup_little_is_accepted() {
    let mut inbound = receive(Role::Server, &hex("04 00 0001 01 00020000"));
    let error = inbound.next().unwrap_err();
    assert!(error.error.message.starts_with("Request is too big: length 131072"), "{error:?}");
}

#[test]
fn what_is_no_message_of_this_connection_is_refused() {
    // (bytes, words of the error, fatal)
    let cases = [
        ("84 00 0001 05 00000000", "response was sent", true),
        ("04 00 0001 05 ffffffff", "body length -1", true),
        ("04 00 0001 05 7fffffff", "body length 2147483647", true),
        ("04 00 0001 77 00000000", "unknown opcode 0x77", false),
        ("04 00 0001 08 00000000", "RESULT goes the other way", false),
        ("04 01 0001 05 00000000", "without compression", false),
    ];
    for (bytes, words, is_fatal) in cases {
        let mut inbound = receive(Role::Server, &hex(bytes));
        inbound.input().extend_from_slice(&hex("04 00 0002 05 00000000"));
        let error = inbound.next().unwrap_err();
        assert!(error.error.message.contains(words), "{error:?}");
        assert_eq!((error.is_fatal, error.stream, error.version), (is_fatal, Some(1), Version::V4));
        assert_eq!(inbound.next().unwrap().is_some(), !is_fatal);
    }
}

#[test]
fn a_connection_keeps_its_version() {
    let mut inbound = receive(Role::Server, &hex("04 00 0001 05 00000000 03 00 0002 05 00000000"));
    assert!(inbound.next().unwrap().is_some());
    let error = inbound.next().unwrap_err();
    assert!(error.is_fatal);
    assert_eq!(error.version, Version::V4);
}

#[test]
fn a_body_that_claims_to_decompress_to_too_much_is_refused() {
    let cases = [
        (Compression::Lz4, "04 01 0001 05 00000006 7fffffff 0000", "Request is too big: length 2147483647"),
        (Compression::Lz4, "04 01 0001 05 00000006 01000000 0000", "corrupt"),
        (Compression::Lz4, "04 01 0001 05 00000002 0000", "corrupt"),
        (Compression::Snappy, "04 01 0001 05 00000006 ffffffff0700", "Request is too big"),
        (Compression::Snappy, "04 01 0001 05 00000006 80808008 0000", "corrupt"),
    ];
    for (compression, bytes, words) in cases {
        let mut inbound = started(Version::V4, Some(compression));
        inbound.input().extend_from_slice(&hex(bytes));
        let error = inbound.next().unwrap_err();
        assert!(error.error.message.contains(words), "{error:?}");
        // A driver closes its connection, with all other requests on it, after a protocol error.
        let is_too_big = words.starts_with("Request is too big");
        assert_eq!(error.error.code() == ErrorCode::Invalid, is_too_big);
        assert!(!error.is_fatal);
        inbound.input().extend_from_slice(&hex("04 00 0002 05 00000000"));
        assert!(inbound.next().unwrap().is_some());
    }
}

#[test]
fn buffers_follow_the_traffic() {
    let mut inbound = started(Version::V4, None);
    assert!(inbound.input().capacity() <= 8 << 10, "an idle connection is small");
    let wire = send(Version::V4, None, &[vec![body(MAX_FRAME_BYTES - 100, 1, false)]]);
    for piece in wire.chunks(64 << 10) {
        let input = inbound.input();
        input.extend_from_slice(piece);
    }
    assert_eq!(inbound.next().unwrap().unwrap().body.len(), MAX_FRAME_BYTES - 96);
    assert!(inbound.input().capacity() < 1 << 20, "what a large message took is given back");
    inbound.release_memory();
    let parameters = Parameters::default();
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &RequestHead::new(Version::V4, 1), &ClientRequest::Query { statement: "Q", parameters });
    inbound.input().extend_from_slice(&bytes);
    assert!(inbound.next().unwrap().is_some());
}

#[test]
fn a_slow_reader_is_seen_and_its_output_is_compacted() {
    let mut outbound = Outbound::new();
    outbound.start(Version::V5, None);
    for _ in 0..100 {
        let request = body(10_000, 1, false);
        let head = RequestHead::new(Version::V5, 1);
        encode_request(outbound.buffer(), &head, &ClientRequest::AuthResponse(Some(&request)));
        outbound.commit();
    }
    let mut wire = Vec::new();
    assert!(outbound.pending_bytes() >= 1_000_000);
    while !outbound.is_empty() {
        let bytes = outbound.wire_bytes();
        let count = bytes.len().min(7_001);
        wire.extend_from_slice(&bytes[..count]);
        outbound.advance(count);
    }
    assert_eq!(arrive(&mut started(Version::V5, None), &wire, 4096).len(), 100);
}
