//! The codec: what is encoded comes back, and whatever is decoded is encoded to the same bytes.

use super::*;
use crate::ids::Participant;
use crate::records::Records;
use crate::targets::Target;
use diorite_base::{TableId, TabletId};
use proptest::prelude::*;

fn id() -> impl Strategy<Value = TransactionId> {
    (any::<u64>(), 0u64..300, any::<u64>()).prop_map(|(tablet, term, number)| TransactionId {
        tablet: TabletId(tablet),
        term,
        number,
    })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..4)
}

fn operation() -> impl Strategy<Value = Operation> {
    let program = prop::collection::vec(any::<u8>(), 0..4);
    (key(), any::<u32>(), program).prop_map(|(key, now_s, program)| Operation { key, now_s, program })
}

fn prepared() -> impl Strategy<Value = Prepared> {
    (any::<u64>(), any::<u64>(), key(), any::<i64>()).prop_map(|(table, tablet, key, stamp_us)| Prepared {
        participant: Participant { table: TableId(table), tablet: TabletId(tablet), key },
        stamp_us,
    })
}

fn prepare() -> impl Strategy<Value = Prepare> {
    let range = (key(), key());
    (id(), any::<u64>(), key(), range, prop::collection::vec(operation(), 0..3)).prop_map(
        |(id, table, key, (start, end), operations)| {
            let mut targets = vec![Target::Range { start, end }];
            targets.extend(operations.iter().map(|operation| Target::Row(operation.key.clone())));
            Prepare {
                id,
                home: Home { table: TableId(table), key, tells_readers: true },
                targets: Targets::new(targets),
                operations: operations.into(),
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let parts = (
        prop::collection::vec(prepared(), 0..3),
        prop::collection::vec(operation(), 0..3).prop_map(Arc::<[Operation]>::from),
    );
    let ending = prop::option::of((any::<i64>(), any::<i64>())).prop_map(|stamps| match stamps {
        Some((one, other)) if one < other => Ending::Committed { prepared_us: one, committed_us: other },
        _ => Ending::Aborted,
    });
    prop_oneof![
        prepare().prop_map(Step::Prepare),
        (id(), parts).prop_map(|(id, (prepared, operations))| Step::Commit(Commit { id, prepared, operations })),
        (id(), ending).prop_map(|(id, ending)| Step::Finish { id, ending }),
        prop::collection::vec(id(), 0..4).prop_map(Step::Forget),
    ]
}

/// Whatever is decoded has one encoding.
fn check_canonical(bytes: &[u8]) {
    if let Ok(steps) = decode_steps(bytes) {
        assert_eq!(encode_steps(&steps), bytes);
    }
}

proptest! {
    #[test]
    fn steps_come_back_as_they_went_in(steps in prop::collection::vec(step(), 0..4)) {
        prop_assert_eq!(decode_steps(&encode_steps(&steps)), Ok(steps));
    }

    #[test]
    fn a_damaged_entry_is_refused_or_means_something_else(
        steps in prop::collection::vec(step(), 1..4),
        at: prop::sample::Index,
        bits in 1u8..,
        length: prop::sample::Index,
    ) {
        let bytes = encode_steps(&steps);
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= bits;
        prop_assert_ne!(decode_steps(&damaged), Ok(steps));
        check_canonical(&damaged);
        check_canonical(&bytes[..length.index(bytes.len())]);
    }

    #[test]
    fn hostile_bytes_are_refused_or_canonical(kind in 0u8..7, bytes: Vec<u8>) {
        check_canonical(&[&[VERSION, kind], &bytes[..]].concat());
    }

    #[test]
    fn records_are_loaded_as_they_were_stored(steps in prop::collection::vec((step(), 0usize..4), 0..12)) {
        let (mut records, mut stored) = (Records::default(), std::collections::BTreeMap::new());
        let mut ids: Vec<TransactionId> = Vec::new();
        for (stamp_us, (step, again)) in steps.into_iter().enumerate() {
            // Some of the steps are about transactions that are there.
            let step = match (step, ids.get(again)) {
                (Step::Finish { ending, .. }, Some(id)) => Step::Finish { id: *id, ending },
                (Step::Forget(_), Some(id)) => Step::Forget(vec![*id]),
                (Step::Prepare(prepare), _) => {
                    ids.push(prepare.id);
                    Step::Prepare(prepare)
                }
                (Step::Commit(commit), _) => {
                    ids.push(commit.id);
                    Step::Commit(commit)
                }
                (step, None) => step,
            };
            for effect in records.apply(stamp_us as i64, &step) {
                match effect {
                    crate::records::Effect::Put { key, value } => {
                        prop_assert!(stored.insert(key, value).is_none(), "a record is put once");
                    }
                    crate::records::Effect::Remove { key } => {
                        prop_assert!(stored.remove(&key).is_some(), "what is removed was put");
                    }
                    crate::records::Effect::Write { .. } => {}
                }
            }
            prop_assert!(records.apply(stamp_us as i64, &step).is_empty(), "a step that is repeated changes nothing");
            let pairs = stored.iter().map(|(key, value)| (&key[..], &value[..]));
            prop_assert_eq!(Records::load(pairs), Ok(records.clone()));
        }
    }

    #[test]
    fn hostile_records_are_refused(kind: u8, key: Vec<u8>, value: Vec<u8>) {
        let key = [&crate::records::KEY_PREFIX[..], &[kind], &key[..]].concat();
        let value = [&[0, 1], &value[..]].concat();
        // It must not panic; there is nothing to compare with.
        let _ = Records::load([(&key[..], &value[..])]);
    }
}

#[test]
fn counts_beyond_the_limits_are_refused() {
    let forget = |count: usize| {
        let id = TransactionId { tablet: TabletId(1), term: 1, number: 1 };
        decode_steps(&encode_steps(&[Step::Forget(vec![id; count])])).is_ok()
    };
    assert_eq!((forget(MAX_FORGOTTEN), forget(MAX_FORGOTTEN + 1)), (true, false));
    let mut huge = vec![VERSION, 4];
    put_varint(&mut huge, u64::MAX);
    assert!(decode_steps(&huge).is_err(), "and allocate nothing");
}

#[test]
fn the_format_is_as_documented() {
    let id = TransactionId { tablet: TabletId(300), term: 2, number: 3 };
    let finish = Step::Finish { id, ending: Ending::Committed { prepared_us: 1, committed_us: 2 } };
    let bytes = encode_steps(&[finish, Step::Forget(vec![id])]);
    let expected: &[&[u8]] =
        &[&[1, 3, 0xac, 2, 2, 3, 1], &1i64.to_le_bytes(), &2i64.to_le_bytes(), &[4, 1, 0xac, 2, 2, 3]];
    assert_eq!(bytes, expected.concat());
    assert!(decode_steps(&[2]).is_err(), "another version");
}
