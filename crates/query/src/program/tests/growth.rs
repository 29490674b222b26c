//! What the leader is told of the rows that a program may let grow.

use crate::program::{ListEdit, PathStep, Program, ProgramOperation, TabletEvaluator};
use diorite_base::mutation::{Effect, Evaluator};
use diorite_model::key;

fn seen(operation: ProgramOperation) -> (Vec<u8>, Effect, usize) {
    let program = Program { operations: vec![operation], ..Program::default() };
    let mut seen = Vec::new();
    TabletEvaluator.growth(&program.encode(), &mut |growth| {
        seen.push((growth.key.to_vec(), growth.effect, growth.bytes));
    });
    assert_eq!(seen.len(), 1);
    seen.remove(0)
}

#[test]
fn ranges_grow_the_header_of_their_partition_and_its_own_deletion_does_not() {
    let delete = |range| seen(ProgramOperation::Delete { partition: b"p".to_vec(), range, explicit_us: None });
    let header = {
        let mut header = b"p".to_vec();
        key::push_header(&mut header);
        header
    };
    let (key, effect, bytes) = delete(Some((vec![1; 100], vec![2; 100])));
    assert_eq!((key, effect), (header.clone(), Effect::Grows));
    assert!(bytes >= 200);
    let (key, effect, _) = delete(None);
    assert_eq!((key, effect), (header, Effect::Shrinks));
}

#[test]
fn what_is_set_in_lists_and_documents_grows_their_rows_and_what_is_removed_does_not() {
    let list = |edit| {
        let (key, partition_len, column) = (b"pk".to_vec(), 1, 3);
        seen(ProgramOperation::List { key, partition_len, column, edit, explicit_us: None, expiry: None })
    };
    let (key, effect, bytes) = list(ListEdit::Set(7, Some(vec![0; 1_000])));
    assert_eq!((&key[..], effect), (&b"pk"[..], Effect::Grows));
    assert!(bytes >= 1_000);
    assert_eq!(list(ListEdit::Set(7, None)).1, Effect::RemovesElements);
    assert_eq!(list(ListEdit::Remove(vec![vec![0; 1_000]])).1, Effect::RemovesElements);
    let (_, effect, bytes) = seen(ProgramOperation::Document {
        key: b"pk".to_vec(),
        partition_len: 1,
        column: 3,
        edits: vec![(vec![PathStep::Member("m".repeat(500)), PathStep::Element(1)], vec![b'1'; 500])],
        explicit_us: None,
        expiry: None,
    });
    assert_eq!(effect, Effect::Grows);
    assert!(bytes >= 1_000);
}
