//! Tests of the protocol as a whole: golden bytes, round trips between the client's and the server's side, hostile
//! input, and allocations.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod allocations;
mod golden;
mod hostile;
mod requests;
mod responses;
mod transport;

use super::client::{ClientRequest, RequestHead, encode_request};
use super::envelope::{Envelope, Role};
use super::framing::Inbound;
use super::version::Version;

/// A receiving half that has already been given these bytes.
fn receive(role: Role, bytes: &[u8]) -> Inbound {
    let mut inbound = Inbound::new(role);
    inbound.input().extend_from_slice(bytes);
    inbound
}

/// Encodes a request, takes it apart as the server does, and hands the envelope to `check`.
fn with_request<R>(version: Version, request: &ClientRequest<'_>, check: impl FnOnce(&Envelope<'_>) -> R) -> R {
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &RequestHead::new(version, 7), request);
    let mut inbound = receive(Role::Server, &bytes);
    inbound.set_max_body_bytes(diorite_base::limits::MAX_FRAME_BYTES);
    let result = check(&inbound.next().unwrap().unwrap());
    assert!(inbound.next().unwrap().is_none());
    assert!(inbound.is_idle());
    result
}

/// Bytes from hexadecimal digits; spaces are for people.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
