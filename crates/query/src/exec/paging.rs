//! The paging state: where a page ended, as the client returns it for the next one.
//!
//! Always true: the form is versioned and checked: bytes of any other origin are refused, never misread. It refers to no state of a server, so
//! any node can continue from it. Left out: secrecy; a client may read it, as it may read the rows.
//!
//! Layout, lengths LEB128: `version u8 · table varint · limit varint · partition limit varint · partition length varint · key · check u32`.
//! Version 2 has `offset varint` after the version. Limits are the rows still wanted plus one, 0 for no limit. `key` is the last key that was processed, `check` the low half of FNV-1a.

use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_cql::protocol::CqlError;

const VERSION: u8 = 1;
/// With rows that `OFFSET` still leaves out.
const VERSION_WITH_OFFSET: u8 = 2;

/// The position between two pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagingState {
    /// The table's number.
    pub table: u64,
    /// Rows still to come by `LIMIT`.
    pub remaining: Option<u64>,
    /// Rows still to come of the partition by `PER PARTITION LIMIT`.
    pub remaining_in_partition: Option<u64>,
    /// Rows still to be left out by `OFFSET`.
    pub offset: u64,
    /// The length of the partition part of `key`.
    pub partition_len: usize,
    /// The last key that was processed: greater ones (in scan order) follow.
    pub key: Vec<u8>,
}

fn check(bytes: &[u8]) -> u32 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash as u32
}

impl PagingState {
    /// The opaque form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.offset == 0 { VERSION } else { VERSION_WITH_OFFSET }];
        if self.offset > 0 {
            put_varint(&mut out, self.offset);
        }
        let limit = |limit: Option<u64>| limit.map_or(0, |rows| rows.saturating_add(1));
        put_varint(&mut out, self.table);
        put_varint(&mut out, limit(self.remaining));
        put_varint(&mut out, limit(self.remaining_in_partition));
        put_varint(&mut out, self.partition_len as u64);
        put_slice(&mut out, &self.key);
        let check = check(&out);
        out.extend_from_slice(&check.to_le_bytes());
        out
    }

    /// Reads what a client sent.
    pub fn decode(bytes: &[u8]) -> Result<Self, CqlError> {
        Self::read(bytes).map_err(|_| CqlError::protocol("Invalid value for the paging state"))
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, expected) = bytes.split_last_chunk::<4>().ok_or(Malformed)?;
        if check(body) != u32::from_le_bytes(*expected) {
            return Err(Malformed);
        }
        let mut reader = Reader::new(body);
        let offset = match reader.u8()? {
            VERSION => 0,
            VERSION_WITH_OFFSET => Some(reader.varint()?).filter(|offset| *offset > 0).ok_or(Malformed)?,
            _ => return Err(Malformed),
        };
        let table = reader.varint()?;
        let mut limit = || Ok(reader.varint()?.checked_sub(1));
        let (remaining, remaining_in_partition) = (limit()?, limit()?);
        let partition_len = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let key = reader.slice()?.to_vec();
        if !reader.is_empty() || partition_len > key.len() || partition_len < 8 {
            return Err(Malformed);
        }
        Ok(Self { table, remaining, remaining_in_partition, offset, partition_len, key })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_round_trip(table: u64, offset: u32, remaining: Option<u32>, in_partition: Option<u32>, key in proptest::collection::vec(any::<u8>(), 8..40)) {
            let state = PagingState {
                table,
                remaining: remaining.map(u64::from),
                remaining_in_partition: in_partition.map(u64::from),
                offset: offset.into(),
                partition_len: 8,
                key,
            };
            prop_assert_eq!(PagingState::decode(&state.encode()).unwrap(), state);
        }

        #[test]
        fn a_changed_byte_is_noticed(at: usize, flip in 1u8..) {
            let state = PagingState { table: 5, remaining: None, remaining_in_partition: Some(3), offset: 2, partition_len: 9, key: vec![7; 20] };
            let mut bytes = state.encode();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(PagingState::decode(&bytes).is_err());
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let _ = PagingState::decode(&bytes);
        }
    }
}
