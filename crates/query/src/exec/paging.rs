//! The paging state: where a page ended, as the client returns it for the next one.
//!
//! Always true: the form is versioned and checked: bytes of any other origin are refused, never misread. Any node can continue from it. It
//! may name the snapshots in which the page was read: a read goes on in them while they are kept, and needs none of them. Left out: secrecy;
//! a client may read it, as it may read the rows.
//!
//! Layout, lengths LEB128: `version u8 · table varint · limit varint · partition limit varint · partition length varint · key · check u32`.
//! Version 2 has `offset varint` after the version. Limits are the rows still wanted plus one, 0 for no limit. `key` is the last key that was
//! processed, `check` the low half of FNV-1a.
//!
//! Version 3 is `version · count varint · pins · length varint · state of version 1 or 2 · check`. A pin is `tablet varint · name u64 · count
//! varint · transactions`. Pins are in the order of tablets, and transactions in that of ids.

use crate::kv::{CommittedIn, PinnedRead};
use crate::table::TableContext;
use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_cql::protocol::CqlError;
use diorite_model::key::{self, DecodedKey};
use diorite_transact::wire::PinId;
use std::collections::BTreeMap;
use std::sync::Arc;

const VERSION: u8 = 1;
/// With rows that `OFFSET` still leaves out.
const VERSION_WITH_OFFSET: u8 = 2;
/// Of a read in snapshots.
const VERSION_WITH_PINS: u8 = 3;

/// A state names at most so many snapshots, and as many transactions in all.
const MAX_PINS: usize = 256;

/// The snapshots of a read.
pub type Pins = BTreeMap<TabletId, PinnedRead>;

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

fn invalid(_: Malformed) -> CqlError {
    CqlError::protocol("Invalid value for the paging state")
}

/// A state that also names the snapshots in which the next pages can be read; `None` if there are too many.
pub fn with_pins(state: &[u8], pins: &Pins) -> Option<Vec<u8>> {
    let transactions: usize = pins.values().map(|pinned| pinned.committed.len()).sum();
    if pins.len() > MAX_PINS || transactions > MAX_PINS {
        return None;
    }
    let mut out = vec![VERSION_WITH_PINS];
    put_varint(&mut out, pins.len() as u64);
    for (tablet, pinned) in pins {
        put_varint(&mut out, tablet.0);
        out.extend_from_slice(&pinned.pin.0.to_le_bytes());
        put_varint(&mut out, pinned.committed.len() as u64);
        pinned.committed.iter().for_each(|it| it.encode(&mut out));
    }
    put_slice(&mut out, state);
    let check = check(&out);
    out.extend_from_slice(&check.to_le_bytes());
    Some(out)
}

/// The snapshots that a state names. A client may have made them up: what they are of is the tablet's to say.
pub fn pins_of(state: &[u8]) -> Result<Pins, CqlError> {
    Ok(read_pins(state).map_err(invalid)?.0)
}

/// The snapshots that a state names, and the state without them.
fn read_pins(bytes: &[u8]) -> Result<(Pins, &[u8]), Malformed> {
    if bytes.first() != Some(&VERSION_WITH_PINS) {
        return Ok((Pins::new(), bytes));
    }
    let mut reader = Reader::new(checked(bytes)?);
    reader.u8()?;
    let mut left = MAX_PINS;
    let mut pins = Pins::new();
    for _ in 0..bounded(&mut reader, MAX_PINS)? {
        let (tablet, pin) = (TabletId(reader.shortest_varint()?), PinId(reader.u64()?));
        let count = bounded(&mut reader, left)?;
        left -= count;
        let committed = (0..count).map(|_| CommittedIn::decode(&mut reader)).collect::<Result<Arc<[_]>, _>>()?;
        if !committed.is_sorted_by(|one, other| one.id < other.id) {
            return Err(Malformed);
        }
        let is_in_order = pins.last_key_value().is_none_or(|(last, _)| *last < tablet);
        pins.insert(tablet, PinnedRead { pin, committed });
        if !is_in_order {
            return Err(Malformed);
        }
    }
    let state = reader.shortest_slice()?;
    if reader.is_empty() && state.first() != Some(&VERSION_WITH_PINS) { Ok((pins, state)) } else { Err(Malformed) }
}

fn bounded(reader: &mut Reader<'_>, most: usize) -> Result<usize, Malformed> {
    usize::try_from(reader.shortest_varint()?).ok().filter(|count| *count <= most).ok_or(Malformed)
}

/// What is before the check.
fn checked(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let (body, expected) = bytes.split_last_chunk::<4>().ok_or(Malformed)?;
    if check(body) == u32::from_le_bytes(*expected) { Ok(body) } else { Err(Malformed) }
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
        read_pins(bytes).and_then(|(_, state)| Self::read(state)).map_err(invalid)
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(checked(bytes)?);
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

    /// Whether the page ended within a partition, or at its end. If not, it ended where its tablets did.
    pub fn is_in_partition(&self) -> bool {
        self.partition_len > key::TOKEN_BYTES
    }

    /// Whether a page of this table can have ended here: a client may have made the state up.
    pub fn is_of(&self, table: &TableContext) -> bool {
        if self.table != table.table().id.0 || !self.is_in_partition() {
            return self.table == table.table().id.0;
        }
        let mut static_row = self.key[..self.partition_len].to_vec();
        key::push_static(&mut static_row);
        let mut decoded = DecodedKey::default();
        table.layout().decode(&static_row, &mut decoded).is_ok() && decoded.partition_len() == self.partition_len
    }

    /// Allows no more rows of the partition than the statement does, where `u64::MAX` is no limit.
    pub fn limit_partition(&mut self, rows: u64) {
        if rows != u64::MAX {
            self.remaining_in_partition = Some(self.remaining_in_partition.map_or(rows, |left| left.min(rows)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::*;
    use diorite_transact::TransactionId;
    use proptest::prelude::*;

    fn pinned(pin: u64, count: u64) -> PinnedRead {
        let id = |number| TransactionId { tablet: TabletId(3), term: 4, number };
        let committed = (0..count).map(|number| CommittedIn { id: id(number), prepared_us: 5, committed_us: -6 });
        PinnedRead { pin: PinId(pin), committed: committed.collect() }
    }

    #[test]
    fn a_state_names_so_many_snapshots_and_transactions_and_no_state_within_a_state() {
        let state = PagingState {
            table: 5,
            remaining: None,
            remaining_in_partition: None,
            offset: 0,
            partition_len: 8,
            key: vec![7; 9],
        };
        let state = state.encode();
        let pins = |count: u64| (0..count).map(|tablet| (TabletId(tablet), pinned(tablet, 1))).collect::<Pins>();
        let most = with_pins(&state, &pins(MAX_PINS as u64)).unwrap();
        assert_eq!(pins_of(&most).unwrap().len(), MAX_PINS);
        assert!(with_pins(&state, &pins(MAX_PINS as u64 + 1)).is_none());
        assert!(with_pins(&state, &[(TabletId(1), pinned(1, MAX_PINS as u64 + 1))].into()).is_none());
        let within = with_pins(&most, &pins(1)).unwrap();
        assert!(pins_of(&within).is_err() && PagingState::decode(&within).is_err());
    }

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
        fn snapshots_travel_with_a_state(pins in proptest::collection::btree_map(any::<u64>(), (any::<u64>(), 0u64..3), 0..5)) {
            let inner = PagingState { table: 5, remaining: Some(7), remaining_in_partition: None, offset: 2, partition_len: 9, key: vec![7; 20] };
            let pins: Pins = pins.into_iter().map(|(tablet, (pin, count))| (TabletId(tablet), pinned(pin, count))).collect();
            let state = with_pins(&inner.encode(), &pins).unwrap();
            prop_assert_eq!(pins_of(&state).unwrap(), pins);
            prop_assert_eq!(PagingState::decode(&state).unwrap(), inner);
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let _ = PagingState::decode(&bytes);
            let mut checked = bytes;
            checked.insert(0, VERSION_WITH_PINS);
            let check = check(&checked);
            checked.extend_from_slice(&check.to_le_bytes());
            let _ = (PagingState::decode(&checked), pins_of(&checked));
        }
    }
}
