//! x
use crate::types::CqlType;
use std::cmp::Ordering;
/// Orders two valid wire values as Cassandra orders them as clustering columns (ascending). Empty values sort first.
pub fn compare(data_type: &CqlType, a: &[u8], b: &[u8]) -> Ordering {
    let _ = (data_type, a, b);
    unreachable!()
}
