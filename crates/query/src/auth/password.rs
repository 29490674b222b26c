//! Passwords: hashed with Argon2id, which takes memory as well as time, and kept in the PHC string format.
//!
//! Always true: a hash says all that checking it needs, so its cost may be raised without making the older ones useless. Left out: other formats; hashes that
//! Cassandra made (bcrypt) are refused by name.

use crate::error::invalid;
use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::protocol::CqlError;

/// The longest password: hashing takes time that grows with it.
const MAX_BYTES: usize = 1_024;

/// Hashes a password. Takes tens of milliseconds of a processor and 19 MiB.
pub fn hash(password: &str) -> Result<String, CqlError> {
    if password.len() > MAX_BYTES {
        return Err(invalid(format!("a password has at most {MAX_BYTES} bytes")));
    }
    let mut random = SplitMix64::from_entropy();
    let mut salt = [0u8; 16];
    salt[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    salt[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    let failed = |error: argon2::password_hash::Error| CqlError::server(format!("cannot hash a password: {error}"));
    let salt = SaltString::encode_b64(&salt).map_err(failed)?;
    Ok(Argon2::default().hash_password(password.as_bytes(), &salt).map_err(failed)?.to_string())
}

/// Whether a password is the one that was hashed. Takes as long as hashing.
pub fn is_right(password: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    password.len() <= MAX_BYTES && Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
}

/// Takes a hash that was made elsewhere, if it is of the kind that is understood here.
pub fn check_hash(hash: &str) -> Result<(), CqlError> {
    match PasswordHash::new(hash) {
        Ok(parsed) if parsed.algorithm.as_str().starts_with("argon2") && parsed.hash.is_some() => Ok(()),
        _ => Err(invalid("a hashed password must be an Argon2 hash in the PHC format ($argon2id$…)")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::*;

    #[test]
    fn a_password_is_told_from_others_by_its_hash() {
        let hashed = hash("sesame").unwrap();
        assert!(hashed.starts_with("$argon2id$"), "{hashed}");
        assert!(is_right("sesame", &hashed) && !is_right("Sesame", &hashed) && !is_right("", &hashed));
        assert_ne!(hash("sesame").unwrap(), hashed, "salts differ");
        assert!(check_hash(&hashed).is_ok());
        assert!(check_hash("$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG").is_err());
        assert!(!is_right("sesame", "no hash"));
    }
}
