//! Sums and differences of two numbers of one type, as an `UPDATE` makes them of a column and a value.
//!
//! Always true: a result that its type cannot hold is an error, never another number; decimals keep the greater scale. A
//! result that is no number has one form: processors and compilers differ in its bits, and replicas must not.
//! Left out: arithmetic in expressions, which wraps around as Java's does, and operands of several types (the query
//! layer).

use super::{Value, ValueError};
use crate::types::CqlType;
use num_bigint::BigInt;

/// The most digits by which two decimals may differ in scale.
const MAX_SCALE_DIGITS: u32 = 10_000;

/// Java's NaN.
const NAN_F32: u32 = 0x7fc0_0000;
const NAN_F64: u64 = 0x7ff8_0000_0000_0000;

/// Whether a type is one of numbers that can be added; counters are not.
pub fn is_summable(data_type: &CqlType) -> bool {
    matches!(
        data_type,
        CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Varint
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal
    )
}

/// `left + right`, or `left - right`.
///
/// # Errors
/// If a value is not a number of this type, or if the type does not have the result.
pub fn sum(data_type: &CqlType, left: &[u8], right: &[u8], subtracts: bool) -> Result<Vec<u8>, ValueError> {
    let out_of_range = || {
        let sign = if subtracts { '-' } else { '+' };
        ValueError(format!("the result of '{sign}' is out of the range of {data_type}"))
    };
    let integer = |left: i64, right: i64| {
        let result = if subtracts { left.checked_sub(right) } else { left.checked_add(right) };
        result.ok_or_else(out_of_range)
    };
    let value = match (Value::decode(data_type, left)?, Value::decode(data_type, right)?) {
        (Value::Tinyint(left), Value::Tinyint(right)) => {
            Value::Tinyint(integer(left.into(), right.into())?.try_into().map_err(|_| out_of_range())?)
        }
        (Value::Smallint(left), Value::Smallint(right)) => {
            Value::Smallint(integer(left.into(), right.into())?.try_into().map_err(|_| out_of_range())?)
        }
        (Value::Int(left), Value::Int(right)) => {
            Value::Int(integer(left.into(), right.into())?.try_into().map_err(|_| out_of_range())?)
        }
        (Value::Bigint(left), Value::Bigint(right)) => Value::Bigint(integer(left, right)?),
        (Value::Float(left), Value::Float(right)) => {
            let result = if subtracts { left - right } else { left + right };
            if result.is_infinite() && left.is_finite() && right.is_finite() {
                return Err(out_of_range());
            }
            Value::Float(if result.is_nan() { f32::from_bits(NAN_F32) } else { result })
        }
        (Value::Double(left), Value::Double(right)) => {
            let result = if subtracts { left - right } else { left + right };
            if result.is_infinite() && left.is_finite() && right.is_finite() {
                return Err(out_of_range());
            }
            Value::Double(if result.is_nan() { f64::from_bits(NAN_F64) } else { result })
        }
        (Value::Varint(left), Value::Varint(right)) => {
            Value::Varint(if subtracts { left - right } else { left + right })
        }
        (Value::Decimal(left, left_scale), Value::Decimal(right, right_scale)) => {
            let scale = left_scale.max(right_scale);
            let (left, right) = (at_scale(left, left_scale, scale)?, at_scale(right, right_scale, scale)?);
            Value::Decimal(if subtracts { left - right } else { left + right }, scale)
        }
        _ => return Err(ValueError(format!("values of type {data_type} cannot be added"))),
    };
    let mut out = Vec::new();
    value.encode(data_type, &mut out)?;
    data_type.validate(&out)?;
    Ok(out)
}

/// The digits at a greater scale.
fn at_scale(unscaled: BigInt, from: i32, to: i32) -> Result<BigInt, ValueError> {
    let missing = to.abs_diff(from);
    if missing > MAX_SCALE_DIGITS {
        return Err(ValueError("the decimals differ too much in scale".to_owned()));
    }
    Ok(unscaled * BigInt::from(10).pow(missing))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::value::{literal, literal_text};

    fn summed(data_type: &CqlType, left: &str, right: &str, subtracts: bool) -> Result<String, String> {
        let wire = |text: &str| {
            let mut wire = Vec::new();
            literal::from_text(data_type, text, &mut wire).unwrap();
            wire
        };
        let result = sum(data_type, &wire(left), &wire(right), subtracts).map_err(|error| error.0)?;
        let mut text = String::new();
        literal_text(data_type, &result, &mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn a_type_has_its_results_or_the_sum_fails() {
        let narrow = [
            (CqlType::Tinyint, "-128", "127"),
            (CqlType::Smallint, "-32768", "32767"),
            (CqlType::Int, "-2147483648", "2147483647"),
            (CqlType::Bigint, "-9223372036854775808", "9223372036854775807"),
        ];
        for (data_type, least, greatest) in narrow {
            assert_eq!(summed(&data_type, greatest, "-1", true).unwrap_err(), over(&data_type, '-'));
            assert_eq!(summed(&data_type, greatest, "1", false).unwrap_err(), over(&data_type, '+'));
            assert_eq!(summed(&data_type, least, "1", true).unwrap_err(), over(&data_type, '-'));
            assert_eq!(summed(&data_type, least, greatest, false).unwrap(), "-1");
            assert_eq!(summed(&data_type, greatest, greatest, true).unwrap(), "0");
        }
        assert_eq!(summed(&CqlType::Varint, "9223372036854775807", "1", false).unwrap(), "9223372036854775808");
        assert_eq!(summed(&CqlType::Decimal, "1.50", "2.125", true).unwrap(), "-0.625");
        assert_eq!(summed(&CqlType::Double, "0.5", "0.25", false).unwrap(), "0.75");
        assert_eq!(summed(&CqlType::Float, "3.4e38", "3.4e38", false).unwrap_err(), over(&CqlType::Float, '+'));
        assert_eq!(summed(&CqlType::Double, "-1.7e308", "1.7e308", true).unwrap_err(), over(&CqlType::Double, '-'));
        let apart = summed(&CqlType::Decimal, "1e9000", "1e-9000", false).unwrap_err();
        assert_eq!(apart, "the decimals differ too much in scale");
        assert!(sum(&CqlType::Varint, &[127; 4096], &[127; 4096], false).is_err(), "over the limit of numbers");
    }

    #[test]
    fn what_is_no_number_has_one_form() {
        let infinity = f32::INFINITY.to_be_bytes();
        let odd = f32::from_bits(0xffc1_2345).to_be_bytes();
        for (left, right, subtracts) in [(infinity, infinity, true), (odd, infinity, false), (infinity, odd, false)] {
            assert_eq!(sum(&CqlType::Float, &left, &right, subtracts).unwrap(), NAN_F32.to_be_bytes());
        }
        let infinity = f64::INFINITY.to_be_bytes();
        let odd = f64::from_bits(0xfff8_0000_0000_0007).to_be_bytes();
        for (left, right, subtracts) in [(infinity, infinity, true), (odd, infinity, false), (infinity, odd, false)] {
            assert_eq!(sum(&CqlType::Double, &left, &right, subtracts).unwrap(), NAN_F64.to_be_bytes());
        }
    }

    fn over(data_type: &CqlType, sign: char) -> String {
        format!("the result of '{sign}' is out of the range of {data_type}")
    }
}
