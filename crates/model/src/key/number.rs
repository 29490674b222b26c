//! Arbitrary-precision numbers in order-preserving form, and the decimal decomposition that comparison shares with it.
//!
//! Always true: equal numbers have one form. So `varint` loses superfluous sign bytes, and `decimal` loses trailing zeros (`1.50` comes
//! back as `1.5`), as Cassandra too takes them for the same clustering value.

use super::input::Input;
use diorite_base::bytes::Malformed;
use num_bigint::{BigInt, Sign};
use std::cmp::Ordering;

/// Lengths up to this are in the header byte itself.
const SHORT_MAX: usize = 0x77;
const LONG: u8 = 0xF8;

/// Two's complement bytes without superfluous sign bytes; at least one byte.
pub(crate) fn minimal(mut wire: &[u8]) -> &[u8] {
    while let [first, second, ..] = wire
        && ((*first == 0 && second & 0x80 == 0) || (*first == 0xFF && second & 0x80 != 0))
    {
        wire = &wire[1..];
    }
    wire
}

/// Orders numbers in minimal two's complement: sign, then length, then bytes.
pub(crate) fn compare_varint(a: &[u8], b: &[u8]) -> Ordering {
    let negative = |bytes: &[u8]| bytes.first().is_some_and(|first| first & 0x80 != 0);
    match (negative(a), negative(b)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (true, true) => b.len().cmp(&a.len()).then_with(|| a.cmp(b)),
    }
}

/// Orders decimals in wire form; `None` if one is malformed. Most pairs are decided without computing digits: they
/// differ in sign or magnitude, or have the same scale. The others are brought to one scale, by which neither grows
/// much longer than the other is.
pub(crate) fn compare_decimals(a: &[u8], b: &[u8]) -> Option<Ordering> {
    let (a_scale, a_unscaled) = a.split_first_chunk::<4>()?;
    let (b_scale, b_unscaled) = b.split_first_chunk::<4>()?;
    let (a_scale, b_scale) = (i64::from(i32::from_be_bytes(*a_scale)), i64::from(i32::from_be_bytes(*b_scale)));
    let (a_unscaled, b_unscaled) = (minimal(a_unscaled), minimal(b_unscaled));
    if a_scale == b_scale {
        return Some(compare_varint(a_unscaled, b_unscaled));
    }
    let (one, other) = (BigInt::from_signed_bytes_be(a_unscaled), BigInt::from_signed_bytes_be(b_unscaled));
    let by_sign = one.sign().cmp(&other.sign());
    if by_sign.is_ne() || one.sign() == Sign::NoSign {
        return Some(by_sign);
    }
    let directed = |order: Ordering| if one.sign() == Sign::Minus { order.reverse() } else { order };
    let ((a_least, a_most), (b_least, b_most)) = (first_digit(&one, a_scale), first_digit(&other, b_scale));
    if a_most < b_least {
        return Some(directed(Ordering::Less));
    }
    if b_most < a_least {
        return Some(directed(Ordering::Greater));
    }
    let raised = |number: &BigInt, by: i64| number * BigInt::from(10).pow(by.unsigned_abs() as u32);
    Some(match a_scale < b_scale {
        true => raised(&one, b_scale - a_scale).cmp(&other),
        false => one.cmp(&raised(&other, a_scale - b_scale)),
    })
}

/// Lower and upper bound for the position, before the decimal point, of the first digit of a number that is not 0.
fn first_digit(unscaled: &BigInt, scale: i64) -> (i64, i64) {
    // log10(2) from below and from above.
    const BELOW: i128 = 301_029_995;
    const ABOVE: i128 = 301_029_996;
    const UNIT: i128 = 1_000_000_000;
    let bits = i128::from(unscaled.bits());
    let (least, most) = ((bits - 1) * BELOW / UNIT, bits * ABOVE / UNIT + 1);
    (least as i64 - scale, most as i64 - scale)
}

/// Appends a varint: length and magnitude, or for negative numbers the inverse of both of `-n - 1`.
pub(crate) fn push_varint(wire: &[u8], out: &mut Vec<u8>) {
    let wire = minimal(wire);
    let mask = if wire.first().is_some_and(|first| first & 0x80 != 0) { 0xFF } else { 0 };
    // The sign byte that keeps a magnitude with its top bit set positive (or negative) is not stored: the header
    // implies it.
    let magnitude = match wire {
        [first, rest @ ..] if *first == mask => rest,
        _ => wire,
    };
    if magnitude.len() <= SHORT_MAX {
        out.push((0x80 + magnitude.len() as u8) ^ mask);
    } else {
        out.push(LONG ^ mask);
        out.extend((magnitude.len() as u32).to_be_bytes().map(|byte| byte ^ mask));
    }
    // The wire bytes of a negative number already are the inverse of the magnitude of `-n - 1`.
    out.extend_from_slice(magnitude);
}

/// Reads what [`push_varint`] wrote; appends minimal two's complement.
pub(crate) fn read_varint(input: &mut Input<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let header = input.u8()?;
    let mask = if header & 0x80 == 0 { 0xFF } else { 0 };
    let length = match header ^ mask {
        LONG => u32::from_be_bytes(input.array::<4>()?.map(|byte| byte ^ mask)) as usize,
        short if short < LONG => usize::from(short - 0x80),
        _ => return Err(Malformed),
    };
    let start = out.len();
    out.push(mask);
    input.take(length, out)?;
    if out.get(start + 1).is_some_and(|first| (first ^ mask) & 0x80 == 0) {
        out.remove(start);
    }
    Ok(())
}

/// A decimal as sign, exponent and digits: `± 0.d1d2d3… × 10^exponent`, without zeros at either end. Zero has no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub negative: bool,
    pub exponent: i64,
    pub digits: Vec<u8>,
}

impl Decimal {
    /// From wire bytes: scale and unscaled value.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let (scale, unscaled) = wire.split_first_chunk::<4>()?;
        let (sign, mut digits) = BigInt::from_signed_bytes_be(unscaled).to_radix_be(10);
        let exponent = digits.len() as i64 - i64::from(i32::from_be_bytes(*scale));
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let exponent = if digits.is_empty() { 0 } else { exponent };
        Some(Self { negative: sign == Sign::Minus, exponent, digits })
    }

    /// Appends the canonical wire form: scale 0 for whole numbers of moderate size, else no trailing zeros.
    fn push_wire(mut self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        /// Whole numbers with more trailing zeros than this keep a negative scale.
        const MAX_TRAILING_ZEROS: i64 = 64;
        let mut scale = self.digits.len() as i64 - self.exponent;
        if scale < 0 && (scale >= -MAX_TRAILING_ZEROS || scale < i64::from(i32::MIN)) {
            let zeros = if scale >= -MAX_TRAILING_ZEROS { -scale } else { i64::from(i32::MIN) - scale };
            if zeros > i64::from(u16::MAX) * 8 {
                return Err(Malformed);
            }
            self.digits.resize(self.digits.len() + zeros as usize, 0);
            scale += zeros;
        }
        let scale = i32::try_from(scale).map_err(|_| Malformed)?;
        let sign = if self.negative { Sign::Minus } else { Sign::Plus };
        let unscaled = BigInt::from_radix_be(sign, &self.digits, 10).unwrap_or_default();
        out.extend_from_slice(&scale.to_be_bytes());
        out.extend_from_slice(&unscaled.to_signed_bytes_be());
        Ok(())
    }
}

const NEGATIVE: u8 = 1;
const ZERO: u8 = 2;
const POSITIVE: u8 = 3;
/// Exponents lie well within ±2^39, and are stored in five bytes above it.
const EXPONENT_BIAS: i64 = 1 << 39;

/// Appends a decimal: sign, biased exponent, digits in pairs (1 to 100, ended by 0); for negative numbers all but the sign inverted.
pub(crate) fn push_decimal(decimal: &Decimal, out: &mut Vec<u8>) {
    if decimal.digits.is_empty() {
        return out.push(ZERO);
    }
    out.push(if decimal.negative { NEGATIVE } else { POSITIVE });
    let start = out.len();
    out.extend_from_slice(&(decimal.exponent + EXPONENT_BIAS).to_be_bytes()[3..]);
    out.extend(decimal.digits.chunks(2).map(|pair| pair[0] * 10 + pair.get(1).copied().unwrap_or(0) + 1));
    out.push(0);
    if decimal.negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Reads what [`push_decimal`] wrote; appends the canonical wire form.
pub(crate) fn read_decimal(input: &mut Input<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let negative = match input.u8()? {
        NEGATIVE => true,
        ZERO => {
            out.extend_from_slice(&[0; 5]);
            return Ok(());
        }
        POSITIVE => false,
        _ => return Err(Malformed),
    };
    let mask = if negative { 0xFF } else { 0 };
    let mut exponent = [0; 8];
    exponent[3..].copy_from_slice(&input.array::<5>()?.map(|byte| byte ^ mask));
    let mut digits = Vec::new();
    loop {
        match input.u8()? ^ mask {
            0 => break,
            pair @ 1..=100 => digits.extend([(pair - 1) / 10, (pair - 1) % 10]),
            _ => return Err(Malformed),
        }
    }
    if digits.last() == Some(&0) {
        digits.pop();
    }
    Decimal { negative, exponent: i64::from_be_bytes(exponent) - EXPONENT_BIAS, digits }.push_wire(out)
}
