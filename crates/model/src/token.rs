//! Tokens: Cassandra's Murmur3 of the serialized partition key.
//!
//! Always true: the same bytes give the same token as Cassandra's `Murmur3Partitioner` and every driver, including its departure from the
//! published hash (tail bytes are sign-extended) and its reserved value (`i64::MIN` becomes `i64::MAX`). Crates for Murmur3
//! compute the published hash, so none of them is used.

/// The smallest token; no partition has it.
pub const MIN: i64 = i64::MIN;

/// The token of a serialized partition key: the column's wire bytes if there is one column, else the form [`push_composite`] builds.
pub fn token(partition_key: &[u8]) -> i64 {
    match hash(partition_key) {
        i64::MIN => i64::MAX,
        token => token,
    }
}

/// Appends one column of a partition key that has several: length in two bytes, the bytes, a zero. At most 65,535 bytes.
pub fn push_composite(component: &[u8], out: &mut Vec<u8>) {
    debug_assert!(component.len() <= usize::from(u16::MAX), "the caller checks key sizes");
    out.extend_from_slice(&(component.len() as u16).to_be_bytes());
    out.extend_from_slice(component);
    out.push(0);
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn mix_k1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_k2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

/// Tail bytes, sign-extended before they are shifted, as Cassandra's signed bytes are.
fn tail_word(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |word, (at, &byte)| word ^ ((byte as i8 as i64 as u64) << (8 * at)))
}

/// The first 64 bits of Cassandra's variant of MurmurHash3 x64 128 with seed 0.
fn hash(data: &[u8]) -> i64 {
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, tail) = data.as_chunks::<16>();
    for block in blocks {
        let word = u128::from_le_bytes(*block);
        h1 ^= mix_k1(word as u64);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_k2((word >> 64) as u64);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    if tail.len() > 8 {
        h2 ^= mix_k2(tail_word(&tail[8..]));
    }
    if !tail.is_empty() {
        h1 ^= mix_k1(tail_word(&tail[..tail.len().min(8)]));
    }
    h1 ^= data.len() as u64;
    h2 ^= data.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2)) as i64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::*;

    /// `hex token` lines made with the Python driver's own Murmur3.
    const VECTORS: &str = include_str!("../tests/fixtures/murmur3.txt");

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn tokens_are_those_of_the_drivers() {
        let mut seen = 0;
        for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
            let (bytes, expected) = line.split_once(' ').unwrap();
            assert_eq!(token(&unhex(bytes)), expected.parse::<i64>().unwrap(), "token of {bytes}");
            seen += 1;
        }
        assert!(seen > 200);
    }

    #[test]
    fn composite_keys_carry_lengths_and_zeros() {
        let mut out = Vec::new();
        push_composite(b"ab", &mut out);
        push_composite(b"", &mut out);
        assert_eq!(out, [0, 2, b'a', b'b', 0, 0, 0, 0]);
    }
}
