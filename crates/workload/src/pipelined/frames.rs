//! The few frames of CQL's native protocol, version 4, that the lean client needs.
//!
//! Always true: lengths are checked before bytes are read; an answer borrows from the received bytes.
//!
//! Not the client side of the `cql` crate: no crate of the server is linked here, so that what is measured is what any client sees.
//!
//! Left out: everything that is not STARTUP, QUERY, PREPARE, EXECUTE and their answers, and rows of any shape
//! but (key, value).

use thiserror::Error;

pub const HEADER_BYTES: usize = 9;
pub const OPCODE_ERROR: u8 = 0x00;
pub const OPCODE_STARTUP: u8 = 0x01;
pub const OPCODE_READY: u8 = 0x02;
pub const OPCODE_QUERY: u8 = 0x07;
pub const OPCODE_RESULT: u8 = 0x08;
pub const OPCODE_PREPARE: u8 = 0x09;
pub const OPCODE_EXECUTE: u8 = 0x0A;

const VERSION_REQUEST: u8 = 0x04;
const VERSION_RESPONSE: u8 = 0x84;
const CONSISTENCY_QUORUM: u16 = 0x0004;
const FLAG_VALUES: u8 = 0x01;
const FLAG_SKIP_METADATA: u8 = 0x02;
const RESULT_ROWS: u32 = 0x0002;
const RESULT_PREPARED: u32 = 0x0004;
const FLAG_TRACING: u8 = 0x02;
const FLAG_PAYLOAD: u8 = 0x04;
const FLAG_WARNINGS: u8 = 0x08;
/// The custom payload of the extension TABLETS_ROUTING_V1.
const PAYLOAD_TABLET: &[u8] = b"tablets-routing-v1";
/// The longest answer that a key-value read can sensibly have.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Why an answer cannot be understood. Nothing that follows it on its connection can be, either.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("a frame of version byte {0:#04x} instead of {expected:#04x}", expected = VERSION_RESPONSE)]
    Version(u8),
    #[error("an answer of {0} bytes, more than {limit}", limit = MAX_ANSWER_BYTES)]
    Length(usize),
    #[error("an answer that ends early")]
    Early,
    #[error("{0}")]
    Tablet(&'static str),
    #[error("rows with metadata flags {flags:#x} and {columns} columns instead of 2 without metadata")]
    Rows { flags: u32, columns: u32 },
    #[error("an answer of opcode {0:#04x}")]
    Opcode(u8),
    #[error("a result of kind {0} instead of a prepared statement")]
    Kind(u32),
}

/// The parts of a frame's header that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The flags: which optional fields precede the body's own.
    pub flags: u8,
    pub stream: i16,
    pub opcode: u8,
}

/// The kinds of answers.
#[derive(Debug, PartialEq)]
pub enum Answer<'body> {
    /// A write was acknowledged.
    Done,
    /// `count` rows, and the two cells of the first.
    Rows { count: u32, cells: [Option<&'body [u8]>; 2] },
    /// The request failed.
    Error(String),
}

fn frame(out: &mut Vec<u8>, stream: u16, opcode: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[VERSION_REQUEST, 0]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(opcode);
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Begins the session; a server that knows the extension then says who leads a tablet when a request goes elsewhere.
pub fn startup(out: &mut Vec<u8>, tablet_aware: bool) {
    let options = [("CQL_VERSION", "3.0.0"), ("TABLETS_ROUTING_V1", "")];
    let options = &options[..if tablet_aware { 2 } else { 1 }];
    frame(out, 0, OPCODE_STARTUP, |body| {
        body.extend_from_slice(&(options.len() as u16).to_be_bytes());
        for text in options.iter().flat_map(|(name, value)| [name, value]) {
            body.extend_from_slice(&(text.len() as u16).to_be_bytes());
            body.extend_from_slice(text.as_bytes());
        }
    });
}

/// A statement without values.
pub fn query(out: &mut Vec<u8>, statement: &str) {
    frame(out, 0, OPCODE_QUERY, |body| {
        body.extend_from_slice(&(statement.len() as u32).to_be_bytes());
        body.extend_from_slice(statement.as_bytes());
        body.extend_from_slice(&CONSISTENCY_QUORUM.to_be_bytes());
        body.push(0);
    });
}

/// Prepares a statement.
pub fn prepare(out: &mut Vec<u8>, statement: &str) {
    frame(out, 0, OPCODE_PREPARE, |body| {
        body.extend_from_slice(&(statement.len() as u32).to_be_bytes());
        body.extend_from_slice(statement.as_bytes());
    });
}

/// Executes a prepared statement with values by position, at QUORUM, without metadata in the answer.
pub fn execute(out: &mut Vec<u8>, stream: u16, id: &[u8], values: &[&[u8]]) {
    frame(out, stream, OPCODE_EXECUTE, |body| {
        body.extend_from_slice(&(id.len() as u16).to_be_bytes());
        body.extend_from_slice(id);
        body.extend_from_slice(&CONSISTENCY_QUORUM.to_be_bytes());
        body.push(FLAG_VALUES | FLAG_SKIP_METADATA);
        body.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            body.extend_from_slice(&(value.len() as u32).to_be_bytes());
            body.extend_from_slice(value);
        }
    });
}

/// The header of the first frame and the frame's length, if all of it has been received.
pub fn complete(received: &[u8]) -> Result<Option<(Header, usize)>, FrameError> {
    let Some(header) = received.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    if header[0] != VERSION_RESPONSE {
        return Err(FrameError::Version(header[0]));
    }
    let body = u32::from_be_bytes([header[5], header[6], header[7], header[8]]) as usize;
    if body > MAX_ANSWER_BYTES {
        return Err(FrameError::Length(body));
    }
    let length = HEADER_BYTES + body;
    let header = Header { flags: header[1], stream: i16::from_be_bytes([header[2], header[3]]), opcode: header[4] };
    Ok((received.len() >= length).then_some((header, length)))
}

/// The tablet that the answer tells about, if it does, and the body without its extras: tracing id, warnings, custom payload.
pub fn split_extras(flags: u8, body: &[u8]) -> Result<(Option<&[u8]>, &[u8]), FrameError> {
    if flags & (FLAG_TRACING | FLAG_WARNINGS | FLAG_PAYLOAD) == 0 {
        return Ok((None, body));
    }
    let mut reader = Reader(body);
    if flags & FLAG_TRACING != 0 {
        reader.take(16)?;
    }
    if flags & FLAG_WARNINGS != 0 {
        for _ in 0..reader.short()? {
            reader.string()?;
        }
    }
    let mut tablet = None;
    if flags & FLAG_PAYLOAD != 0 {
        for _ in 0..reader.short()? {
            let (key, value) = (reader.string()?, reader.cell()?);
            if key == PAYLOAD_TABLET {
                tablet = value;
            }
        }
    }
    Ok((tablet, reader.0))
}

/// A server's information on a tablet: its tokens and its replicas.
#[derive(Debug, PartialEq)]
pub struct TabletPayload {
    /// The tablet's tokens are greater than this one ...
    pub after_token: i64,
    /// ... and at most this one.
    pub last_token: i64,
    /// The host id of the first replica, which is the leader.
    pub leader: [u8; 16],
}

/// Reads a tablet, `tuple<bigint, bigint, list<tuple<uuid, int>>>`; `None` if it names no replica.
pub fn parse_tablet(payload: &[u8]) -> Result<Option<TabletPayload>, FrameError> {
    let mut reader = Reader(payload);
    let mut token = || -> Result<i64, FrameError> {
        let cell = reader
            .cell()?
            .and_then(|cell| cell.try_into().ok())
            .ok_or(FrameError::Tablet("a tablet without tokens"))?;
        Ok(i64::from_be_bytes(cell))
    };
    let (after_token, last_token) = (token()?, token()?);
    let mut replicas = Reader(reader.cell()?.ok_or(FrameError::Tablet("a tablet without replicas"))?);
    if replicas.int()? == 0 {
        return Ok(None);
    }
    let mut replica = Reader(replicas.cell()?.ok_or(FrameError::Tablet("a tablet with a null replica"))?);
    let leader =
        replica.cell()?.and_then(|id| id.try_into().ok()).ok_or(FrameError::Tablet("a replica without a host id"))?;
    Ok(Some(TabletPayload { after_token, last_token, leader }))
}

/// Reads the answer to an EXECUTE. `Err` means that the stream can no longer be understood.
pub fn parse_answer(opcode: u8, body: &[u8]) -> Result<Answer<'_>, FrameError> {
    match opcode {
        OPCODE_ERROR => Ok(Answer::Error(parse_error(body))),
        OPCODE_RESULT => {
            let mut reader = Reader(body);
            if reader.int()? != RESULT_ROWS {
                return Ok(Answer::Done);
            }
            let flags = reader.int()?;
            let columns = reader.int()?;
            // With skip-metadata only the paging flag may add bytes, and a point read has no pages.
            if flags & 0x0004 == 0 || flags & 0x0002 != 0 || columns != 2 {
                return Err(FrameError::Rows { flags, columns });
            }
            let count = reader.int()?;
            let cells = if count == 0 { [None, None] } else { [reader.cell()?, reader.cell()?] };
            Ok(Answer::Rows { count, cells })
        }
        other => Err(FrameError::Opcode(other)),
    }
}

/// The message of an ERROR frame, with its code.
pub fn parse_error(body: &[u8]) -> String {
    let mut reader = Reader(body);
    match (reader.int(), reader.string()) {
        (Ok(code), Ok(message)) => format!("error {code:#06x}: {}", String::from_utf8_lossy(message)),
        _ => "an error frame that cannot be read".to_owned(),
    }
}

/// The statement id of a PREPARED result.
pub fn parse_prepared(body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut reader = Reader(body);
    match reader.int()? {
        RESULT_PREPARED => Ok(reader.string()?.to_vec()),
        kind => Err(FrameError::Kind(kind)),
    }
}

struct Reader<'body>(&'body [u8]);

impl<'body> Reader<'body> {
    fn take(&mut self, length: usize) -> Result<&'body [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(FrameError::Early)?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<u32, FrameError> {
        Ok(self.take(4)?.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }

    fn short(&mut self) -> Result<usize, FrameError> {
        Ok(self.take(2)?.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    fn string(&mut self) -> Result<&'body [u8], FrameError> {
        let length = self.short()?;
        self.take(length)
    }

    fn cell(&mut self) -> Result<Option<&'body [u8]>, FrameError> {
        match self.int()? as i32 {
            length if length < 0 => Ok(None),
            length => self.take(length as usize).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execute_frame_is_what_the_protocol_says() {
        let mut out = Vec::new();
        execute(&mut out, 3, &[0xAA, 0xBB], &[b"key:1", b"v"]);
        let body =
            [&[0x00, 0x02, 0xAA, 0xBB, 0x00, 0x04, 0x03, 0x00, 0x02][..], &[0, 0, 0, 5], b"key:1", &[0, 0, 0, 1], b"v"]
                .concat();
        let header = [0x04, 0, 0, 3, 0x0A, 0, 0, 0, body.len() as u8];
        assert_eq!(out, [&header[..], &body].concat());
    }

    #[test]
    fn answers_are_read_and_damage_is_an_error() {
        let rows = [&[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v'][..]].concat();
        let cells = [Some(&b"k"[..]), Some(&b"v"[..])];
        assert_eq!(parse_answer(OPCODE_RESULT, &rows), Ok(Answer::Rows { count: 1, cells }));
        assert!(parse_answer(OPCODE_RESULT, &rows[..rows.len() - 1]).is_err());
        assert_eq!(parse_answer(OPCODE_RESULT, &[0, 0, 0, 1]), Ok(Answer::Done));
        let error = parse_answer(OPCODE_ERROR, &[0, 0, 0x10, 0x01, 0, 2, b'n', b'o']).unwrap();
        assert_eq!(error, Answer::Error("error 0x1001: no".into()));
        assert!(parse_answer(0x42, &[]).is_err());
    }

    #[test]
    fn extras_are_taken_off_and_the_tablet_is_found_among_them() {
        let id = [7; 16];
        let replica = [&[0, 0, 0, 16][..], &id, &[0, 0, 0, 4, 0, 0, 0, 0]].concat();
        let replicas = [&[0, 0, 0, 1, 0, 0, 0, replica.len() as u8][..], &replica].concat();
        let tablet = [
            &[0, 0, 0, 8][..],
            &(-5_i64).to_be_bytes(),
            &[0, 0, 0, 8],
            &9_i64.to_be_bytes(),
            &[0, 0, 0, replicas.len() as u8],
            &replicas,
        ]
        .concat();
        let expected = TabletPayload { after_token: -5, last_token: 9, leader: id };
        assert_eq!(parse_tablet(&tablet), Ok(Some(expected)));
        assert!(parse_tablet(&tablet[..tablet.len() - 9]).is_err());
        let warnings = [&[0, 1, 0, 2][..], b"hm"].concat();
        let payload = [&[0, 1, 0, 18][..], PAYLOAD_TABLET, &[0, 0, 0, tablet.len() as u8], &tablet].concat();
        let body = [&[1; 16][..], &warnings, &payload, b"rest"].concat();
        assert_eq!(split_extras(0x02 | 0x04 | 0x08, &body), Ok((Some(&tablet[..]), &b"rest"[..])));
        assert_eq!(split_extras(0, b"rest"), Ok((None, &b"rest"[..])));
    }

    #[test]
    fn frames_are_complete_or_awaited() {
        let frame = [0x84, 0, 0, 7, 0x08, 0, 0, 0, 2, 1, 2];
        assert_eq!(complete(&frame[..8]), Ok(None));
        assert_eq!(complete(&frame[..10]), Ok(None));
        assert_eq!(complete(&frame), Ok(Some((Header { flags: 0, stream: 7, opcode: 8 }, 11))));
        assert!(complete(&[0x83, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(complete(&[0x84, 0, 0, 0, 0, 0xFF, 0, 0, 0]).is_err());
    }
}
