//! Aggregates without grouping: count, min, max, sum, avg over all rows of a query.
//!
//! Always true: the states of parts of the rows can be merged, so each tablet is aggregated on the node that leads it; sums are wider than their
//! type (integers are exact), so the result does not depend on where the parts begin; null is ignored. Integer sums wrap in the width of their
//! type and averages of integers are truncated, as in Cassandra. Left out: grouping ([`super::collect`]), user-defined aggregates.

use super::evaluate::Scope;
use super::row::RowData;
use crate::budget::Budget;
use crate::error::{invalid, value_error};
use crate::plan::selection::{Aggregate, AggregateKind};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::limits::MAX_NUMBER_BYTES;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::{self, Value};
use num_bigint::BigInt;

/// A sum of decimals may take so many bytes, also if later ones would make it shorter: those of the greatest numbers with
/// scales that may be added, and of many such.
const MAX_SUM_BYTES: usize = 4 * MAX_NUMBER_BYTES;

/// The state of one aggregate.
#[derive(Debug, Clone, Default)]
pub struct State {
    count: u64,
    extreme: Option<Vec<u8>>,
    integer: i128,
    float: f64,
    /// Kahan's compensation.
    lost: f64,
    decimal: Option<Decimal>,
}

/// `unscaled · 10^-scale`, of any size, as decimal digits would be too slow and `f64` not exact.
#[derive(Debug, Clone)]
struct Decimal {
    unscaled: BigInt,
    scale: i32,
}

impl Decimal {
    /// The memory of the digits.
    fn size_bytes(&self) -> usize {
        usize::try_from(self.unscaled.bits() / 64).unwrap_or(usize::MAX).saturating_add(1).saturating_mul(8)
    }
}

impl State {
    /// Adds a row.
    pub fn add(&mut self, aggregate: &Aggregate, scope: &Scope<'_>, row: &RowData) -> Result<(), CqlError> {
        let Some(argument) = &aggregate.argument else {
            self.count += 1;
            return Ok(());
        };
        let Some(bytes) = scope.evaluate(argument, row)? else { return Ok(()) };
        match aggregate.kind {
            AggregateKind::CountRows | AggregateKind::Count => {}
            AggregateKind::Min | AggregateKind::Max => {
                self.keep_extreme(aggregate, &bytes, scope.bound.environment.budget)?;
            }
            AggregateKind::Sum | AggregateKind::Avg => {
                if bytes.is_empty() {
                    return Ok(());
                }
                let number = Value::decode(&aggregate.argument_type, &bytes).map_err(value_error)?;
                self.add_number(number, scope.bound.environment.budget)?;
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Memory that is charged to the request.
    pub fn held_bytes(&self) -> usize {
        self.extreme.as_ref().map_or(0, Vec::len) + self.decimal_bytes()
    }

    /// In whole words, so that it seldom changes.
    fn decimal_bytes(&self) -> usize {
        self.decimal.as_ref().map_or(0, Decimal::size_bytes)
    }

    /// Counts rows without reading them.
    pub fn add_rows(&mut self, rows: u64) {
        self.count += rows;
    }

    fn keep_extreme(&mut self, aggregate: &Aggregate, bytes: &[u8], budget: &Budget) -> Result<(), CqlError> {
        let replaces = match &self.extreme {
            None => true,
            Some(known) => {
                let ordering = value::compare(&aggregate.argument_type, bytes, known);
                if aggregate.kind == AggregateKind::Min { ordering.is_lt() } else { ordering.is_gt() }
            }
        };
        if replaces {
            budget.take(bytes.len())?;
            let former = self.extreme.replace(bytes.to_vec());
            budget.give(former.map_or(0, |former| former.len()));
        }
        Ok(())
    }

    fn add_number(&mut self, value: Value, budget: &Budget) -> Result<(), CqlError> {
        match value {
            Value::Tinyint(value) => self.integer += i128::from(value),
            Value::Smallint(value) => self.integer += i128::from(value),
            Value::Int(value) => self.integer += i128::from(value),
            Value::Bigint(value) => self.integer += i128::from(value),
            Value::Float(value) => self.add_float(f64::from(value)),
            Value::Double(value) => self.add_float(value),
            Value::Varint(value) => self.add_decimal(Decimal { unscaled: value, scale: 0 }, budget)?,
            Value::Decimal(unscaled, scale) => self.add_decimal(Decimal { unscaled, scale }, budget)?,
            _ => {}
        }
        Ok(())
    }

    fn add_float(&mut self, value: f64) {
        let corrected = value - self.lost;
        let sum = self.float + corrected;
        self.lost = if sum.is_finite() { (sum - self.float) - corrected } else { 0.0 };
        self.float = sum;
    }

    fn add_decimal(&mut self, value: Decimal, budget: &Budget) -> Result<(), CqlError> {
        let before_bytes = self.decimal_bytes();
        let sum = match &self.decimal {
            None => value,
            Some(sum) => {
                let scale = sum.scale.max(value.scale);
                Decimal { unscaled: rescale(sum, scale)? + rescale(&value, scale)?, scale }
            }
        };
        let sum_bytes = sum.size_bytes();
        if sum_bytes > MAX_SUM_BYTES {
            return Err(invalid(format!("the sum of the numbers takes more than {MAX_SUM_BYTES} bytes")));
        }
        if sum_bytes != before_bytes {
            budget.take(sum_bytes)?;
            budget.give(before_bytes);
        }
        self.decimal = Some(sum);
        Ok(())
    }

    /// Adds the state of other rows.
    pub fn merge(&mut self, other: State, aggregate: &Aggregate, budget: &Budget) -> Result<(), CqlError> {
        self.count += other.count;
        self.integer += other.integer;
        self.add_float(other.float);
        self.add_float(-other.lost);
        if let Some(decimal) = other.decimal {
            self.add_decimal(decimal, budget)?;
        }
        if let Some(extreme) = other.extreme {
            self.keep_extreme(aggregate, &extreme, budget)?;
        }
        Ok(())
    }

    /// Appends the encoded state, for the node that merges the parts.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        put_optional(out, self.extreme.as_deref());
        out.extend_from_slice(&self.integer.to_le_bytes());
        out.extend_from_slice(&self.float.to_bits().to_le_bytes());
        out.extend_from_slice(&self.lost.to_bits().to_le_bytes());
        put_optional(out, self.decimal.as_ref().map(|sum| sum.unscaled.to_signed_bytes_be()).as_deref());
        out.extend_from_slice(&self.decimal.as_ref().map_or(0, |sum| sum.scale).to_le_bytes());
    }

    /// Reads what [`State::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = reader.varint()?;
        let extreme = read_optional(reader)?;
        let integer = i128::from_le_bytes(reader.array()?);
        let (float, lost) = (f64::from_bits(reader.u64()?), f64::from_bits(reader.u64()?));
        let unscaled = read_optional(reader)?;
        let scale = i32::from_le_bytes(reader.array()?);
        let decimal = unscaled.map(|bytes| Decimal { unscaled: BigInt::from_signed_bytes_be(&bytes), scale });
        Ok(Self { count, extreme, integer, float, lost, decimal })
    }

    /// The result, in wire form.
    pub fn finish(self, aggregate: &Aggregate) -> Result<Option<Vec<u8>>, CqlError> {
        match aggregate.kind {
            AggregateKind::CountRows | AggregateKind::Count => Ok(Some((self.count as i64).to_be_bytes().to_vec())),
            AggregateKind::Min | AggregateKind::Max => Ok(self.extreme),
            AggregateKind::Sum => self.total(aggregate, 1).map(Some),
            AggregateKind::Avg => {
                let count = self.count.max(1);
                self.total(aggregate, count).map(Some)
            }
        }
    }

    fn total(self, aggregate: &Aggregate, divisor: u64) -> Result<Vec<u8>, CqlError> {
        let integer = self.integer / i128::from(divisor);
        let float = if divisor == 1 { self.float } else { self.float / divisor as f64 };
        Ok(match &aggregate.argument_type {
            CqlType::Tinyint => (integer as i8).to_be_bytes().to_vec(),
            CqlType::Smallint => (integer as i16).to_be_bytes().to_vec(),
            CqlType::Int => (integer as i32).to_be_bytes().to_vec(),
            CqlType::Float => (float as f32).to_be_bytes().to_vec(),
            CqlType::Double => float.to_be_bytes().to_vec(),
            CqlType::Varint | CqlType::Decimal => return self.decimal_total(&aggregate.argument_type, divisor),
            _ => (integer as i64).to_be_bytes().to_vec(),
        })
    }

    fn decimal_total(self, data_type: &CqlType, divisor: u64) -> Result<Vec<u8>, CqlError> {
        let zero = Decimal { unscaled: BigInt::from(0), scale: 0 };
        let sum = self.decimal.unwrap_or(zero);
        // Half-even at the scale of the sum, as Cassandra divides decimals; integers are truncated.
        let divisor = BigInt::from(divisor);
        let quotient = &sum.unscaled / &divisor;
        let value = match data_type {
            CqlType::Varint => Value::Varint(quotient),
            _ => Value::Decimal(round_half_even(&sum.unscaled, quotient, &divisor), sum.scale),
        };
        let mut out = Vec::new();
        value.encode(data_type, &mut out).map_err(value_error)?;
        Ok(out)
    }
}

/// Appends bytes that may be absent.
pub fn put_optional(out: &mut Vec<u8>, value: Option<&[u8]>) {
    out.push(u8::from(value.is_some()));
    value.into_iter().for_each(|bytes| put_slice(out, bytes));
}

/// Reads what [`put_optional`] wrote.
pub fn read_optional(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => reader.slice().map(|bytes| Some(bytes.to_vec())),
        _ => Err(Malformed),
    }
}

fn round_half_even(dividend: &BigInt, quotient: BigInt, divisor: &BigInt) -> BigInt {
    let remainder = dividend - &quotient * divisor;
    let zero = BigInt::from(0);
    let doubled = &remainder + &remainder;
    let twice: BigInt = if remainder < zero { -doubled } else { doubled };
    let is_odd = &quotient % BigInt::from(2) != zero;
    if twice > *divisor || (twice == *divisor && is_odd) {
        if *dividend < zero { quotient - 1 } else { quotient + 1 }
    } else {
        quotient
    }
}

fn rescale(value: &Decimal, scale: i32) -> Result<BigInt, CqlError> {
    let missing = u32::try_from(i64::from(scale) - i64::from(value.scale)).ok().filter(|missing| *missing <= 10_000);
    let missing = missing.ok_or_else(|| invalid("the decimals to be added differ too much in scale"))?;
    Ok(&value.unscaled * BigInt::from(10).pow(missing))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use diorite_base::account::Meter;

    #[test]
    fn a_sum_whose_scale_grows_with_each_number_is_charged_and_ends() {
        let budget = Budget::new(Meter::alone(1 << 20), u64::MAX);
        let mut state = State::default();
        let mut added = 0;
        let refused = loop {
            let number = Decimal { unscaled: BigInt::from(7), scale: added * 10_000 };
            match state.add_decimal(number, &budget) {
                Ok(()) => added += 1,
                Err(error) => break error,
            }
            assert_eq!(budget.meter().used_bytes(), state.held_bytes());
            assert!(state.held_bytes() <= MAX_SUM_BYTES, "{added} numbers");
        };
        assert!(added >= 3 && refused.message.contains("16384 bytes"), "{added}: {}", refused.message);
    }

    #[test]
    fn what_is_merged_is_charged_once() {
        let aggregate = |kind| Aggregate { kind, argument: None, argument_type: CqlType::Decimal };
        let part =
            State { decimal: Some(Decimal { unscaled: BigInt::from(1) << 4_000, scale: 2 }), ..State::default() };
        let budget = Budget::new(Meter::alone(1 << 20), u64::MAX);
        let mut total = State::default();
        (0..10).for_each(|_| total.merge(part.clone(), &aggregate(AggregateKind::Sum), &budget).unwrap());
        assert_eq!(budget.meter().used_bytes(), total.held_bytes());
        assert!(total.held_bytes() >= 500);
    }
}
