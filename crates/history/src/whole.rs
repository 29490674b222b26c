//! Checks that values which are written only together are read together.

use crate::operation::Value;
use crate::violation::Violation;

/// Checks that the parts found by one read of a key belong to one write; returns their value. An absent part is `None`.
pub fn check_whole(key: u64, parts: &[Value]) -> Result<Value, Violation> {
    let first = parts.first().copied().flatten();
    if parts.iter().all(|part| *part == first) {
        Ok(first)
    } else {
        Err(Violation::Torn { key, parts: parts.to_vec() })
    }
}

#[test]
fn parts_of_different_writes_and_parts_that_are_missing_are_found() {
    assert_eq!(check_whole(1, &[Some(3), Some(3), Some(3)]), Ok(Some(3)));
    assert_eq!(check_whole(1, &[None, None]), Ok(None));
    for torn in [[Some(3), Some(4)], [Some(3), None], [None, Some(3)]] {
        assert_eq!(check_whole(1, &torn), Err(Violation::Torn { key: 1, parts: torn.to_vec() }));
    }
}
