//! Fuzz targets for the protocol and the parser; `cargo test` replays their seeds.
//!
//! Always true: nothing panics; every view of a decoded request has as many entries as it claims; memory is bounded by
//! the input and the limits; text that the parser accepts parses the same from its canonical form. Left out: whether a
//! message or statement makes sense.

use crate::language::{format, parse};
use crate::protocol::client::decode_response;
use crate::protocol::envelope::Role;
use crate::protocol::{Compression, Envelope, Inbound, Message, Opcode, Outbound, Request, Version};

/// Parses arbitrary text as CQL.
///
/// # Panics
///
/// If canonical text parses to another tree, or is not a fixed point of the formatter.
pub fn parser(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(parsed) = parse(text) else { return };
    let canonical = format::format(&parsed);
    let again = parse(&canonical).unwrap_or_else(|error| panic!("{error} in {canonical}"));
    assert_eq!(again, parsed, "{canonical}");
    assert_eq!(format::format(&again), canonical);
}

/// Feeds arbitrary bytes to a connection, as a server and as a client, in every version and compression, plain, and in
/// valid segments, so that the fuzzer gets past the checksums. Messages that decode are read to their end; refused ones
/// are answered.
///
/// # Panics
///
/// If a view has another length than it claims, or memory grows with anything but the input.
pub fn frames(input: &[u8]) {
    let Some((&[choice, piece, opcode], data)) = input.split_first_chunk::<3>() else { return };
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let version = Version::ALL[usize::from(choice >> 1 & 3) % 3];
    let compression = [None, Some(Compression::Lz4), Some(Compression::Snappy)][usize::from(choice >> 3 & 3) % 3]
        .filter(|compression| compression.is_in(version));
    let (is_started, is_wrapped) = (choice & 0x20 == 0, choice & 0x40 == 0);

    if let Some(opcode) = Opcode::from_code(opcode) {
        let envelope = Envelope { version, flags: piece, stream: 0, opcode, body: data };
        if let Ok(message) = Message::decode(&envelope) {
            read_request(&message);
        }
        let _ = decode_response(&envelope);
    }

    let wrapped = (is_started && is_wrapped).then(|| wrap(version, compression, role, opcode, data));
    let mut inbound = Inbound::new(role);
    if is_started {
        inbound.start(version, compression);
    }
    let mut answers = Vec::new();
    for piece in wrapped.as_deref().unwrap_or(data).chunks(usize::from(piece).max(1)) {
        inbound.input().extend_from_slice(piece);
        drain(role, &mut inbound, &mut answers);
        assert!(inbound.input().capacity() <= (256 << 10) + 4 * input.len(), "memory grows with the input only");
    }
}

fn read_request(message: &Message<'_>) {
    if let Some(payload) = &message.custom_payload {
        payload.iter().for_each(drop);
    }
    match &message.request {
        Request::Startup(startup) => {
            let _ = (startup.compression(message.version), startup.check_cql_version());
        }
        Request::Query(query) => {
            let values = query.parameters.values;
            assert_eq!(values.iter_named().count(), values.len());
        }
        Request::Execute(execute) => {
            let values = execute.parameters.values;
            assert_eq!(values.iter().count(), values.len());
            assert_eq!(values.iter_named().count(), values.len());
        }
        Request::Batch(batch) => {
            assert_eq!(batch.statements.iter().count(), batch.statements.len());
            for statement in batch.statements.iter() {
                assert_eq!(statement.values.iter().count(), statement.values.len());
            }
        }
        Request::Options | Request::AuthResponse(_) | Request::Register(_) | Request::Prepare(_) => {}
    }
}

fn drain(role: Role, inbound: &mut Inbound, answers: &mut Vec<u8>) {
    loop {
        answers.clear();
        match inbound.next() {
            Ok(None) => return,
            Ok(Some(envelope)) if role == Role::Client => {
                let _ = decode_response(&envelope);
            }
            Ok(Some(envelope)) => match Message::decode(&envelope) {
                Ok(message) => read_request(&message),
                Err(error) => error.encode_body(answers, envelope.version),
            },
            Err(error) => error.encode(answers),
        }
    }
}

/// Wraps the input as one message of a connection, so that segments and compression are valid and their content is arbitrary.
fn wrap(version: Version, compression: Option<Compression>, role: Role, opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut outbound = Outbound::new();
    outbound.start(version, compression);
    let direction = if role == Role::Client { 0x80 } else { 0 };
    let buffer = outbound.buffer();
    buffer.extend_from_slice(&[version.number() | direction, 0, 0, 1, opcode]);
    buffer.extend_from_slice(&(body.len() as u32).to_be_bytes());
    buffer.extend_from_slice(body);
    outbound.commit();
    outbound.wire_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use diorite_seeds::replay;

    #[test]
    fn the_seeds_of_frames() {
        replay("frames", super::frames);
    }

    #[test]
    fn the_seeds_of_the_parser() {
        replay("cql_parser", super::parser);
    }
}
