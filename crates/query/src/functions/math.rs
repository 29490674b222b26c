//! `abs`, `exp`, `log`, `log10`, `round`: of any number, giving the type that they are given.
//!
//! Always true: integers are cut, not rounded, on the way back from a floating-point result, as in Cassandra. Left out: more digits than a
//! `double` has for `exp` and the logarithms of `decimal` and `varint`.

use super::number::{Decimal, Number};
use crate::error::invalid;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use num_bigint::BigInt;

/// Which function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MathFunction {
    /// The magnitude
    Abs,
    /// *e* to the power of it
    Exp,
    /// The natural logarithm
    Log,
    /// The decimal logarithm
    Log10,
    /// The nearest whole number
    Round,
}

/// The nearest whole number. Halves go up, as by Java's Math.round. The sum of a number and a half may not be exact, so it
/// is not computed.
fn rounded(value: f64) -> f64 {
    let below = value.floor();
    if value - below >= 0.5 { below + 1.0 } else { below }
}

/// A whole number of this type, as Java converts a `double`: to the nearest `int` or `long`, and from an `int` to shorter
/// types by their lowest bits.
fn whole(data_type: &CqlType, value: f64) -> i64 {
    match data_type {
        CqlType::Int | CqlType::Smallint | CqlType::Tinyint => i64::from(value as i32),
        _ => value as i64,
    }
}

impl MathFunction {
    /// The function of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "abs" => MathFunction::Abs,
            "exp" => MathFunction::Exp,
            "log" => MathFunction::Log,
            "log10" => MathFunction::Log10,
            "round" => MathFunction::Round,
            _ => return None,
        })
    }

    fn of_float(self, value: f64) -> f64 {
        match self {
            MathFunction::Abs => value.abs(),
            MathFunction::Exp => value.exp(),
            MathFunction::Log => value.ln(),
            MathFunction::Log10 => value.log10(),
            MathFunction::Round => rounded(value),
        }
    }

    /// The function of a value of a numeric type.
    pub fn apply(self, data_type: &CqlType, wire: &[u8]) -> Result<Option<Vec<u8>>, CqlError> {
        if wire.is_empty() {
            return Ok(None);
        }
        let number = Number::read(data_type, wire)?;
        let result = match (self, number) {
            (MathFunction::Abs, Number::Integer(value)) => Number::Integer(value.wrapping_abs()),
            (MathFunction::Round, number @ (Number::Integer(_) | Number::Whole(_))) => number,
            (MathFunction::Abs, Number::Whole(value)) => Number::Whole(BigInt::from(value.magnitude().clone())),
            (MathFunction::Abs, Number::Exact(value)) => Number::Exact(Decimal {
                unscaled: BigInt::from(value.unscaled.magnitude().clone()),
                scale: value.scale,
            }),
            (MathFunction::Round, Number::Exact(value)) => Number::Exact(value.rounded()?),
            (_, Number::Single(value)) => Number::Single(self.of_float(value.into()) as f32),
            (_, Number::Float(value)) => Number::Float(self.of_float(value)),
            (_, Number::Integer(value)) => Number::Integer(whole(data_type, self.of_float(value as f64))),
            (_, number) => self.of_large(data_type, &number)?,
        };
        let mut out = Vec::new();
        result.write(data_type, &mut out)?;
        Ok(Some(out))
    }

    /// By way of a `double`.
    fn of_large(self, data_type: &CqlType, number: &Number) -> Result<Number, CqlError> {
        let value = self.of_float(number.to_f64()?);
        if !value.is_finite() {
            return Err(invalid(format!("the result is out of the range of {data_type}")));
        }
        let decimal = Number::Float(value).to_decimal()?;
        if *data_type == CqlType::Decimal {
            return Ok(Number::Exact(decimal));
        }
        let cut = Number::Float(value.trunc()).to_decimal()?.rounded()?;
        Ok(Number::Whole(cut.unscaled))
    }
}
