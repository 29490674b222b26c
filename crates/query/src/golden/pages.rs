//! The golden bytes of paging states, which a client brings to another node, and of spans of keys.

use super::golden;
use crate::exec::paging::PagingState;
use crate::kv::several::{self, Span};
use diorite_golden::Decoded;

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
