//! The bytes of programs' replies (version 1); see `docs/formats/programs.md`.
//!
//! Always true: decoding checks everything and never panics; encoding what was decoded gives the same bytes.

use super::definition::{ProgramReply, Seen, SeenRow};
use super::wire::{read_bool, read_list};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};

const VERSION: u8 = 1;

/// After the rows of a refusal: there are more.
const CUT: u8 = 1;

impl SeenRow {
    fn encode(&self, out: &mut Vec<u8>) {
        put_slice(out, &self.key);
        out.extend_from_slice(&self.deleted_us.to_le_bytes());
        put_slice(out, &self.value);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { key: reader.slice()?.to_vec(), deleted_us: reader.i64()?, value: reader.slice()?.to_vec() })
    }
}

impl ProgramReply {
    /// The encoded form.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ProgramReply::Applied => vec![VERSION, 0],
            ProgramReply::Outdated => vec![VERSION, 3],
            ProgramReply::Failed(message) => {
                let mut out = vec![VERSION, 2];
                put_slice(&mut out, message.as_bytes());
                out
            }
            ProgramReply::Refused(seen) => {
                let mut out = vec![VERSION, 1];
                out.extend_from_slice(&seen.now_s.to_le_bytes());
                put_slice(&mut out, &seen.partition);
                out.push(u8::from(seen.static_row.is_some()));
                seen.static_row.iter().for_each(|row| row.encode(&mut out));
                put_varint(&mut out, seen.rows.len() as u64);
                seen.rows.iter().for_each(|row| row.encode(&mut out));
                if seen.is_cut {
                    // Earlier versions do not read beyond the rows.
                    out.push(CUT);
                }
                out
            }
        }
    }

    /// Whether an encoded reply is a refusal. Malformed bytes are not.
    pub fn is_refusal(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, 1..=3, ..])
    }

    /// Reads an encoded reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        match reader.u8()? {
            0 => Ok(ProgramReply::Applied),
            1 => {
                let now_s = reader.u32()?;
                let partition = reader.slice()?.to_vec();
                let static_row = if read_bool(&mut reader)? { Some(SeenRow::decode(&mut reader)?) } else { None };
                let rows = read_list(&mut reader, SeenRow::decode)?;
                let is_cut = match reader.rest() {
                    [] => false,
                    [CUT] => true,
                    _ => return Err(Malformed),
                };
                Ok(ProgramReply::Refused(Seen { now_s, partition, static_row, rows, is_cut }))
            }
            3 if reader.is_empty() => Ok(ProgramReply::Outdated),
            2 => Ok(ProgramReply::Failed(String::from_utf8_lossy(reader.slice()?).into_owned())),
            _ => Err(Malformed),
        }
    }
}
