//! Numbers of any type, decoded: the operands of arithmetic, mathematical functions and sums.
//!
//! Always true: decimals keep their scale as Java's `BigDecimal` does; scales that are more than [`MAX_DIGITS`] apart are refused, and so is a
//! result over [`diorite_base::limits::MAX_NUMBER_BYTES`], so that no operation takes long.
//! Left out: which operation gives which type ([`super::arithmetic`]).

use crate::error::{invalid, value_error};
use crate::steps;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::{Value, literal};
use num_bigint::BigInt;
use std::collections::BTreeMap;

/// The most digits by which two decimals may differ in scale.
const MAX_DIGITS: u32 = 10_000;
/// The least digits after the decimal point of a quotient, and the least significant ones.
const QUOTIENT_DIGITS: i64 = 32;

/// A number.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    /// `tinyint`, `smallint`, `int`, `bigint`, `counter`
    Integer(i64),
    /// `float`
    Single(f32),
    /// `double`
    Float(f64),
    /// `varint`
    Whole(BigInt),
    /// `decimal`
    Exact(Decimal),
}

/// `unscaled · 10^-scale`
#[derive(Debug, Clone, PartialEq)]
pub struct Decimal {
    /// The digits
    pub unscaled: BigInt,
    /// The number of digits after the decimal point
    pub scale: i32,
}

pub(super) fn power(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

impl Decimal {
    /// Nothing.
    pub fn zero() -> Self {
        Decimal { unscaled: BigInt::from(0), scale: 0 }
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.unscaled == BigInt::from(0)
    }

    /// With the other sign.
    pub fn negated(&self) -> Self {
        Decimal { unscaled: -&self.unscaled, scale: self.scale }
    }

    /// The digits at a greater scale.
    fn at_scale(&self, scale: i32) -> Result<BigInt, CqlError> {
        let missing = u32::try_from(i64::from(scale) - i64::from(self.scale)).ok();
        let missing = missing.filter(|missing| *missing <= MAX_DIGITS);
        let missing = missing.ok_or_else(|| invalid("the decimals differ too much in scale"))?;
        Ok(&self.unscaled * power(missing))
    }

    /// The sum, at the greater scale.
    pub fn add(&self, other: &Decimal) -> Result<Decimal, CqlError> {
        let scale = self.scale.max(other.scale);
        Ok(Decimal { unscaled: self.at_scale(scale)? + other.at_scale(scale)?, scale })
    }

    /// The product, at the sum of the scales.
    pub fn multiply(&self, other: &Decimal) -> Result<Decimal, CqlError> {
        let scale = self.scale.checked_add(other.scale).ok_or_else(|| invalid("the scale is out of range"))?;
        Ok(Decimal { unscaled: &self.unscaled * &other.unscaled, scale })
    }

    /// How many digits there are; 1 for nothing.
    pub(super) fn digits(&self) -> i64 {
        let magnitude = self.unscaled.magnitude();
        // log10(2) from below: this is the number of digits or one less.
        let least = u32::try_from(magnitude.bits().saturating_sub(1) * 301_029_995 / 1_000_000_000);
        let least = least.unwrap_or(u32::MAX);
        let more = u32::from(*magnitude >= num_bigint::BigUint::from(10u32).pow(least + 1));
        i64::from(least + 1 + more)
    }

    /// The quotient, at 32 digits or more, without trailing zeros; the divisor is not 0.
    pub fn divide(&self, other: &Decimal) -> Result<Decimal, CqlError> {
        let first_digit = (self.digits() - i64::from(self.scale)) - (other.digits() - i64::from(other.scale));
        let wanted = (QUOTIENT_DIGITS - first_digit).clamp(QUOTIENT_DIGITS, 1_000);
        let scale = wanted.max(i64::from(self.scale)).max(i64::from(other.scale));
        let scale = i32::try_from(scale).map_err(|_| invalid("the scale is out of range"))?;
        // self / other = (a · 10^-s) / (b · 10^-t); at `scale`: a · 10^(scale - s + t) / b
        let shift = i64::from(scale) - i64::from(self.scale) + i64::from(other.scale);
        let too_far = || invalid("the decimals differ too much in scale");
        let magnitude = u32::try_from(shift.unsigned_abs()).ok().filter(|digits| *digits <= 2 * MAX_DIGITS);
        let factor = power(magnitude.ok_or_else(too_far)?);
        let (dividend, divisor) = match shift < 0 {
            true => (self.unscaled.clone(), &other.unscaled * factor),
            false => (&self.unscaled * factor, other.unscaled.clone()),
        };
        let unscaled = round_half_up(&dividend, &divisor);
        Ok(Decimal { unscaled, scale }.stripped())
    }

    /// The remainder of a division with an integral quotient.
    pub fn remainder(&self, other: &Decimal) -> Result<Decimal, CqlError> {
        let scale = self.scale.max(other.scale);
        Ok(Decimal { unscaled: self.at_scale(scale)? % other.at_scale(scale)?, scale })
    }

    /// Without zeros at the end: taken off by halves of how many there may be, so that each division is half as long as the one before.
    pub(super) fn stripped(self) -> Decimal {
        let Decimal { mut unscaled, mut scale } = self;
        // A number with n trailing zero bits has at most n trailing decimal zeros.
        let Some(most) = unscaled.trailing_zeros() else { return Decimal::zero() };
        let room = u64::from(scale.abs_diff(i32::MIN));
        let zero = BigInt::from(0);
        let mut zeros = most.min(room).min(unscaled.bits() / 3).checked_ilog2().map_or(0, |log| 1u32 << log);
        while zeros > 0 {
            steps::count(1);
            let (power, fits) = (power(zeros), u64::from(scale.abs_diff(i32::MIN)) >= u64::from(zeros));
            // The same step may apply twice: there may be up to twice as many zeros as the first one removes, less one.
            if fits && &unscaled % &power == zero {
                unscaled /= &power;
                scale -= zeros as i32;
            } else {
                zeros /= 2;
            }
        }
        Decimal { unscaled, scale }
    }

    /// The integral part.
    pub fn truncated(&self) -> Result<BigInt, CqlError> {
        match u32::try_from(self.scale) {
            Ok(places) if i64::from(places) >= self.digits() => Ok(BigInt::from(0)),
            Ok(places) => Ok(&self.unscaled / power(places)),
            Err(_) if self.is_zero() => Ok(BigInt::from(0)),
            Err(_) => self.at_scale(0).map_err(|_| invalid("the number is too large to be cast")),
        }
    }

    /// The nearest whole number, halves away from 0.
    pub fn rounded(&self) -> Result<Decimal, CqlError> {
        if self.scale <= 0 {
            return Ok(Decimal { unscaled: self.at_scale(0)?, scale: 0 });
        }
        // With fewer than 3 bits for each place it is below 0.8 to the power of the places: below a half from 4 places on.
        if self.unscaled.bits() < 3 * u64::from(self.scale.unsigned_abs()) && self.scale > 3 {
            return Ok(Decimal::zero());
        }
        let places = u32::try_from(self.scale).ok().filter(|places| *places <= MAX_DIGITS);
        let places = places.ok_or_else(|| invalid("the scale is out of range"))?;
        Ok(Decimal { unscaled: round_half_up(&self.unscaled, &power(places)), scale: 0 })
    }
}

/// A sum of many decimals: those with the same scale are added directly, and the scales are aligned once.
#[derive(Debug, Default)]
pub struct DecimalSum {
    by_scale: BTreeMap<i32, BigInt>,
}

impl DecimalSum {
    /// Adds a number.
    pub fn add(&mut self, value: Decimal) -> Result<(), CqlError> {
        *self.by_scale.entry(value.scale).or_default() += value.unscaled;
        let first = self.by_scale.first_key_value().map_or(value.scale, |(scale, _)| *scale);
        let last = self.by_scale.last_key_value().map_or(value.scale, |(scale, _)| *scale);
        if first.abs_diff(last) > MAX_DIGITS {
            return Err(invalid("the decimals differ too much in scale"));
        }
        Ok(())
    }

    /// The sum, at the greatest scale.
    pub fn total(&self) -> Decimal {
        self.by_scale
            .iter()
            .fold(None, |sum: Option<Decimal>, (&scale, unscaled)| {
                let unscaled = match sum {
                    Some(sum) => sum.unscaled * power(scale.abs_diff(sum.scale)) + unscaled,
                    None => unscaled.clone(),
                };
                Some(Decimal { unscaled, scale })
            })
            .unwrap_or_else(Decimal::zero)
    }
}

/// The quotient, halves away from 0.
fn round_half_up(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let quotient = dividend / divisor;
    let remainder = dividend - &quotient * divisor;
    let twice = BigInt::from(remainder.magnitude().clone() * 2u32);
    if twice < BigInt::from(divisor.magnitude().clone()) {
        return quotient;
    }
    let is_negative = (dividend.sign() == num_bigint::Sign::Minus) != (divisor.sign() == num_bigint::Sign::Minus);
    if is_negative { quotient - 1 } else { quotient + 1 }
}

/// A floating-point number as Java writes it, which is how it becomes a decimal.
fn exact(text: &str) -> Result<Decimal, CqlError> {
    let mut wire = Vec::new();
    literal::from_text(&CqlType::Decimal, text, &mut wire).map_err(value_error)?;
    match Value::decode(&CqlType::Decimal, &wire).map_err(value_error)? {
        Value::Decimal(unscaled, scale) => Ok(Decimal { unscaled, scale }),
        _ => Err(invalid(format!("{text} is not a decimal"))),
    }
}

impl Number {
    /// Decodes a value of a numeric type that is not empty.
    pub fn read(data_type: &CqlType, wire: &[u8]) -> Result<Number, CqlError> {
        Ok(match Value::decode(data_type, wire).map_err(value_error)? {
            Value::Tinyint(value) => Number::Integer(value.into()),
            Value::Smallint(value) => Number::Integer(value.into()),
            Value::Int(value) => Number::Integer(value.into()),
            Value::Bigint(value) => Number::Integer(value),
            Value::Float(value) => Number::Single(value),
            Value::Double(value) => Number::Float(value),
            Value::Varint(value) => Number::Whole(value),
            Value::Decimal(unscaled, scale) => Number::Exact(Decimal { unscaled, scale }),
            _ => return Err(invalid(format!("a value of type {data_type} is not a number"))),
        })
    }

    /// Appends the number as a value of a type; integers keep their low bits.
    pub fn write(self, data_type: &CqlType, out: &mut Vec<u8>) -> Result<(), CqlError> {
        let value = match (self, data_type) {
            (Number::Integer(value), CqlType::Tinyint) => Value::Tinyint(value as i8),
            (Number::Integer(value), CqlType::Smallint) => Value::Smallint(value as i16),
            (Number::Integer(value), CqlType::Int) => Value::Int(value as i32),
            (Number::Integer(value), _) => Value::Bigint(value),
            (Number::Single(value), CqlType::Double) => Value::Double(value.into()),
            (Number::Single(value), _) => Value::Float(value),
            (Number::Float(value), CqlType::Float) => Value::Float(value as f32),
            (Number::Float(value), _) => Value::Double(value),
            (Number::Whole(value), _) => Value::Varint(value),
            (Number::Exact(value), _) => Value::Decimal(value.unscaled, value.scale),
        };
        value.encode(data_type, out).map_err(value_error)
    }

    /// As a `float`.
    pub fn to_f32(&self) -> Result<f32, CqlError> {
        match self {
            Number::Single(value) => Ok(*value),
            Number::Integer(value) => Ok(*value as f32),
            _ => Ok(self.to_f64()? as f32),
        }
    }

    /// As a `double`.
    pub fn to_f64(&self) -> Result<f64, CqlError> {
        match self {
            Number::Integer(value) => Ok(*value as f64),
            Number::Single(value) => Ok((*value).into()),
            Number::Float(value) => Ok(*value),
            Number::Whole(value) => parse(&value.to_string()),
            Number::Exact(value) => parse(&format!("{}e{}", value.unscaled, -i64::from(value.scale))),
        }
    }

    /// As a `varint`; only integers become one.
    pub fn to_whole(&self) -> Result<BigInt, CqlError> {
        match self {
            Number::Integer(value) => Ok(BigInt::from(*value)),
            Number::Whole(value) => Ok(value.clone()),
            _ => Err(invalid("the number is not whole")),
        }
    }

    /// As a `decimal`.
    pub fn to_decimal(&self) -> Result<Decimal, CqlError> {
        match self {
            Number::Integer(value) => Ok(Decimal { unscaled: BigInt::from(*value), scale: 0 }),
            Number::Whole(value) => Ok(Decimal { unscaled: value.clone(), scale: 0 }),
            Number::Exact(value) => Ok(value.clone()),
            Number::Single(value) if value.is_finite() => exact(&format!("{value:?}")),
            Number::Float(value) if value.is_finite() => exact(&format!("{value:?}")),
            Number::Single(_) | Number::Float(_) => Err(invalid("NaN and infinity are not decimals")),
        }
    }
}

fn parse(text: &str) -> Result<f64, CqlError> {
    text.parse().map_err(|_| invalid(format!("cannot read the number {text}")))
}
