//! Tokens of partition keys, and YCQL's hashes of them.
//!
//! Always true: hashes divide the ring of tokens evenly, in its order.

use diorite_model::token;

/// The token of a partition key given as its columns.
pub fn token_of<'a>(components: impl ExactSizeIterator<Item = &'a [u8]>) -> i64 {
    let is_single = components.len() == 1;
    let mut serialized = Vec::new();
    for component in components {
        if is_single {
            return token::token(component);
        }
        token::push_composite(component, &mut serialized);
    }
    token::token(&serialized)
}

/// The hash of YCQL's `partition_hash`: as the partitions are laid out here, 0 to 65,535 over the ring of tokens.
pub fn partition_hash(token: i64) -> i32 {
    ((token as u64 ^ (1 << 63)) >> 48) as i32
}

/// The first or last token with a hash; of hashes that no token has, the end of the ring on their side.
pub(super) fn token_of_hash(hash: i32, is_last: bool) -> i64 {
    match u16::try_from(hash) {
        Ok(hash) => {
            let first = u64::from(hash) << 48;
            let token = if is_last { first | ((1 << 48) - 1) } else { first };
            (token ^ (1 << 63)) as i64
        }
        Err(_) if hash < 0 => i64::MIN,
        Err(_) => i64::MAX,
    }
}
