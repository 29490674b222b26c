//! x
use super::ValueError;
use crate::types::CqlType;
/// Appends a wire value as the CQL literal that would produce it.
pub fn literal_text(data_type: &CqlType, wire: &[u8], out: &mut String) -> Result<(), ValueError> {
    let _ = (data_type, wire, out);
    unreachable!()
}
