//! Programs that only write rows: read from their bytes, they do what they do decoded.

use super::steps::Tablet;
use crate::program::evaluate::Run;
use crate::program::plain::PlainRows;
use crate::program::{Maintained, Program, ProgramOperation, RowCondition, RowTest, TabletEvaluator, Turn, targets_of};
use diorite_base::mutation::{EvaluationContext, Evaluator, TabletChanges};

/// What is put (`true`) and merged, in order.
#[derive(Debug, Default, PartialEq)]
struct Written(Vec<(bool, Vec<u8>, Vec<u8>)>);

impl TabletChanges for Written {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((true, key.to_vec(), value.to_vec()));
    }
    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((false, key.to_vec(), value.to_vec()));
    }
    fn delete(&mut self, _: &[u8]) {}
    fn delete_range(&mut self, _: &[u8], _: &[u8]) {}
    fn raise_flags(&mut self, _: u64) {}
    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

fn row(is_overwrite: bool, is_stamped: bool, is_unplaced: bool) -> ProgramOperation {
    let key = vec![7 + u8::from(is_overwrite) + 2 * u8::from(is_unplaced); 12];
    ProgramOperation::Row { is_overwrite, is_stamped, is_unplaced, key, value: vec![9; 20] }
}

fn plain(maintained: Option<Maintained>) -> Program {
    let operations = vec![row(true, true, false), row(false, true, true), row(false, true, false)];
    Program { operations, maintained, ..Program::default() }
}

#[test]
fn rows_are_written_and_locked_as_those_of_the_decoded_program() {
    let tablet = Tablet::default();
    for newest_explicit_us in [i64::MIN, i64::MAX] {
        for maintained in [None, Some(Maintained { version: 300, guards: Vec::new() })] {
            let program = plain(maintained);
            let (encoded, context) = (program.encode(), EvaluationContext::new(5_000_000, newest_explicit_us));
            assert!(PlainRows::of(&encoded).is_some() && !TabletEvaluator.reads(&encoded));
            let (mut as_bytes, mut decoded) = (Written::default(), Written::default());
            let reply = TabletEvaluator.evaluate(&encoded, context, &tablet, &mut as_bytes).unwrap();
            let expected = Run::new(&program, context, &tablet).program(&program, &mut decoded).unwrap();
            assert_eq!((reply, as_bytes), (expected.encode(), decoded));

            let (mut seen, mut locked) = (Vec::new(), Vec::new());
            TabletEvaluator.targets(&encoded, &mut |key, end| seen.push((key.to_vec(), end.is_some()))).unwrap();
            targets_of(&program, &mut |key, end| locked.push((key.to_vec(), end.is_some())));
            assert_eq!(seen, locked);
            assert!((0..encoded.len()).all(|cut| PlainRows::of(&encoded[..cut]).is_none()));
        }
    }
}

#[test]
fn what_reads_or_has_a_timestamp_of_its_own_is_decoded() {
    let is_plain = |program: &Program| PlainRows::of(&program.encode()).is_some();
    let condition = || RowCondition { partition: vec![1; 12], row: vec![2, 3], test: RowTest::NotExists };
    let guarded = Maintained { version: 3, guards: vec![condition()] };
    let deletion = ProgramOperation::Delete { partition: vec![5; 9], range: None, explicit_us: None };
    assert!(is_plain(&plain(None)));
    assert!(!is_plain(&plain(Some(guarded))));
    assert!(!is_plain(&Program { conditions: vec![condition()], ..plain(None) }));
    assert!(!is_plain(&Program { operations: vec![deletion], ..plain(None) }));
    assert!(!is_plain(&Program { operations: vec![row(true, false, false)], ..plain(None) }));
    assert!(!is_plain(&Program { turns: Some(vec![Turn::Operation; 3]), ..plain(None) }));
}
