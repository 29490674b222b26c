//! Arbitrary bytes: every decoder ends with a value or an error, in every version, role and compression.

use super::requests::versions;
use crate::protocol::client::decode_response;
use crate::protocol::envelope::{Envelope, Opcode, Role};
use crate::protocol::segment::{self, Layout};
use crate::protocol::{Compression, Inbound, Message, Request, Version};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Reads every view of a request that decoded.
fn walk(message: &Message<'_>) {
    match message.request {
        Request::Query(query) => assert_eq!(query.parameters.values.iter().count(), query.parameters.values.len()),
        Request::Execute(execute) => {
            assert_eq!(execute.parameters.values.iter_named().count(), execute.parameters.values.len());
        }
        Request::Batch(batch) => {
            assert_eq!(batch.statements.iter().count(), batch.statements.len());
            batch.statements.iter().for_each(|s| assert_eq!(s.values.iter().count(), s.values.len()));
        }
        Request::Startup(startup) => {
            let _ = startup.options.get("CQL_VERSION");
        }
        _ => {}
    }
}

fn drain(inbound: &mut Inbound) {
    loop {
        match inbound.next() {
            Ok(None) => return,
            Ok(Some(envelope)) => {
                if let Ok(message) = Message::decode(&envelope) {
                    walk(&message);
                }
            }
            Err(error) => {
                let mut out = Vec::new();
                error.encode(&mut out);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_a_connection(
        bytes in vec(any::<u8>(), 0..300), version in option::of(versions()), compression in option::of(0usize..2), pieces in 1usize..40,
    ) {
        let mut inbound = Inbound::new(Role::Server);
        if let Some(version) = version {
            inbound.start(version, compression.map(|index| Compression::ALL[index]).filter(|c| c.is_in(version)));
        }
        for piece in bytes.chunks(pieces) {
            inbound.input().extend_from_slice(piece);
            drain(&mut inbound);
        }
    }

    #[test]
    fn no_body_panics_a_decoder(
        version in versions(), opcode in prop::sample::select(Opcode::ALL.to_vec()), flags: u8,
        body in vec(prop_oneof![3 => Just(0u8), 1 => 0u8..4, 1 => any::<u8>()], 0..120),
    ) {
        let envelope = Envelope { version, flags, stream: 0, opcode, body: &body };
        if let Ok(message) = Message::decode(&envelope) {
            walk(&message);
        }
        let _ = decode_response(&envelope);
    }

    #[test]
    fn no_payload_panics_a_v5_connection(payload in vec(any::<u8>(), 0..200), is_self_contained: bool, header in 0usize..9) {
        // Valid segments around arbitrary payloads, which begin like a message so that more of them are decoded
        // further.
        let mut bytes = vec![5, 0, 0, 1, 0x0A, 0, 0, 0, payload.len() as u8];
        bytes.truncate(header);
        bytes.extend_from_slice(&payload);
        let mut wire = Vec::new();
        for part in bytes.chunks(50) {
            segment::put(&mut wire, part, is_self_contained);
        }
        let mut inbound = Inbound::new(Role::Server);
        inbound.start(Version::V5, None);
        inbound.input().extend_from_slice(&wire);
        drain(&mut inbound);
    }
}

#[test]
fn interrupted_large_messages_end_the_connection() {
    let mut wire = Vec::new();
    segment::put(&mut wire, &[5, 0, 0, 1, 0x0A, 0, 0, 1, 0, 1, 2], false);
    segment::put(&mut wire, &[5, 0, 0, 1, 0x05, 0, 0, 0, 0], true);
    let mut inbound = Inbound::new(Role::Server);
    inbound.start(Version::V5, None);
    inbound.input().extend_from_slice(&wire);
    let error = inbound.next().unwrap_err();
    assert!(error.is_fatal);
    assert!(error.error.message.contains("interrupted"), "{error:?}");
    assert_eq!(Layout::Uncompressed.header_bytes(), 6);
}

#[test]
fn a_segment_that_ends_inside_a_message_ends_the_connection() {
    let mut wire = Vec::new();
    segment::put(&mut wire, &[5, 0, 0, 1, 0x05, 0, 0, 0, 4, 1], true);
    let mut inbound = Inbound::new(Role::Server);
    inbound.start(Version::V5, None);
    inbound.input().extend_from_slice(&wire);
    assert!(inbound.next().unwrap_err().error.message.contains("ends inside"));
}
