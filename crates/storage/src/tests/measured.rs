//! The size of a value is measured without reading the value.

use super::*;
use crate::engine::TabletData;

#[test]
fn parts_of_a_value_are_counted_in_memory_and_in_files_and_folded_only_if_that_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    let sizes = || {
        FOLDED.set(0);
        let unfolded = tablet.unfolded_bytes(&key(1)).unwrap();
        assert_eq!(FOLDED.get(), 0, "nothing is folded for that");
        (unfolded, tablet.folded_bytes(&key(1)).unwrap())
    };
    assert_eq!(sizes(), (0, 0), "there is none");
    let mut batch = Batch::default();
    batch.put(&key(1), &1u64.to_le_bytes());
    tablet.apply(&mut batch, &state(1)).unwrap();
    tablet.flush(true).unwrap();
    assert_eq!(sizes(), (8, 8));
    batch.clear();
    (0..100).for_each(|_| batch.merge(&key(1), &1u64.to_le_bytes()));
    tablet.apply(&mut batch, &state(2)).unwrap();
    assert_eq!(sizes(), (808, 8), "what is in a file, and a hundred operands in memory");
    assert_eq!(number(&tablet.get(&key(1)).unwrap().unwrap()), 101, "reads are as before");
    tablet.flush(true).unwrap();
    tablet.compact();
    assert_eq!(sizes(), (8, 8));
}
