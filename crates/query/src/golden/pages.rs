//! The golden bytes of paging states, which a client brings to another node, and of spans of keys.

use super::golden;
use crate::exec::paging::{self, PagingState};
use crate::kv::several::{self, Span};
use crate::kv::{CommittedIn, PinnedRead};
use diorite_base::TabletId;
use diorite_golden::Decoded;
use diorite_transact::TransactionId;
use diorite_transact::wire::PinId;

#[test]
fn paging_states_have_their_bytes() {
    let state = PagingState {
        table: 300,
        remaining: None,
        remaining_in_partition: None,
        offset: 0,
        partition_len: 10,
        key: (1..=20).collect(),
    };
    let limited = PagingState { remaining: Some(0), remaining_in_partition: Some(1 << 40), ..state.clone() };
    let offset = PagingState { offset: 300, ..limited.clone() };
    let states = [("without limits", state), ("with limits", limited), ("with an offset", offset)];
    golden("paging-states", &[]).check(&states.map(|(name, state)| (name, state.encode())), |_, bytes| {
        let state = PagingState::decode(bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{state:?}"), encoded: Some(state.encode()) }
    });
}

#[test]
fn paging_states_in_snapshots_have_their_bytes() {
    let state = PagingState {
        table: 300,
        remaining: Some(7),
        remaining_in_partition: None,
        offset: 0,
        partition_len: 10,
        key: (1..=20).collect(),
    };
    let id = |number| TransactionId { tablet: TabletId(300), term: 5, number };
    let committed = |number| CommittedIn {
        id: id(number),
        prepared_us: 1_700_000_000_000_000,
        committed_us: 1_700_000_000_000_001,
    };
    let pinned = |pin, committed: &[CommittedIn]| PinnedRead { pin: PinId(pin), committed: committed.into() };
    let pins = [
        (TabletId(7), pinned(0x0102_0304_0506_0708, &[committed(6), committed(300)])),
        (TabletId(300), pinned(9, &[])),
    ];
    let state = paging::with_pins(&state.encode(), &pins.into()).unwrap();
    golden("paging-states-in-snapshots", &[]).check(&[("two tablets", state)], |_, bytes| {
        let (state, pins) = (PagingState::decode(bytes).unwrap(), paging::pins_of(bytes).unwrap());
        let encoded = paging::with_pins(&state.encode(), &pins);
        Decoded { kinds: vec![], shown: format!("{state:?} {pins:?}"), encoded }
    });
}

#[test]
fn spans_have_their_bytes() {
    let spans = [
        Span::key(b"partition-a".to_vec()),
        Span::key_if(1, b"partition-a-header".to_vec()),
        Span::range(b"partition-b".to_vec(), b"partition-c".to_vec()),
        Span::key(vec![]),
    ];
    golden("spans", &[]).check(&[("each kind", several::encode(&spans)), ("none", vec![])], |_, bytes| {
        let spans: Vec<Span> = several::decode(bytes).map(Result::unwrap).collect();
        Decoded { kinds: vec![], shown: format!("{spans:?}"), encoded: Some(several::encode(&spans)) }
    });
}
