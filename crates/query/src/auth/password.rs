//! Passwords: hashed with Argon2id, which takes memory as well as time, and stored in the PHC string format.
//!
//! Always true: a hash names its own cost, so that the cost of new hashes may be raised while older ones stay valid. A
//! hash whose cost exceeds the limits is not checked at all: a role that may set a password must not decide how long a
//! login occupies a processor, or how much memory it takes. Left out: other formats; Cassandra's own hashes (bcrypt)
//! are refused by name.

use crate::error::{exceeded, invalid};
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};
use diorite_base::limits::{self, MAX_PASSWORD_BYTES};
use diorite_base::random;
use diorite_cql::protocol::CqlError;

/// The supported algorithms.
const ALGORITHMS: [&str; 3] = ["argon2d", "argon2i", "argon2id"];

/// Hashes a password. Takes tens of milliseconds of a processor and 19 MiB.
pub fn hash(password: &str) -> Result<String, CqlError> {
    limits::check(&limits::PASSWORD_BYTES, password.len(), || "a password".to_owned()).map_err(exceeded)?;
    let failed = |error: argon2::password_hash::Error| CqlError::server(format!("cannot hash a password: {error}"));
    let salt = SaltString::encode_b64(&random::secret::<16>()).map_err(failed)?;
    Ok(Argon2::default().hash_password(password.as_bytes(), &salt).map_err(failed)?.to_string())
}

/// Whether a password is the hashed one. Takes as long as hashing.
pub fn is_right(password: &str, hash: &str) -> bool {
    // A hash that was stored before there were limits, or by a damaged catalog, is checked against the limits as well.
    let Ok(hash) = parsed(hash) else { return false };
    password.len() <= MAX_PASSWORD_BYTES && Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
}

/// Checks that a hash which was made elsewhere is of a supported kind.
pub fn check_hash(hash: &str) -> Result<(), CqlError> {
    parsed(hash).map(|_| ())
}

/// The parts of a hash, if its cost is within the limits.
fn parsed(hash: &str) -> Result<PasswordHash<'_>, CqlError> {
    let what = |part: &'static str| move || format!("{part} of a hashed password");
    limits::check(&limits::PASSWORD_HASH_BYTES, hash.len(), what("the text")).map_err(exceeded)?;
    let unknown = || invalid("a hashed password must be an Argon2 hash in the PHC format ($argon2id$…)");
    let parsed = PasswordHash::new(hash).map_err(|_| unknown())?;
    if !ALGORITHMS.contains(&parsed.algorithm.as_str()) || parsed.hash.is_none() {
        return Err(unknown());
    }
    let cost = Params::try_from(&parsed).map_err(|_| unknown())?;
    for (limit, found, part) in [
        (&limits::PASSWORD_HASH_KIB, cost.m_cost(), "the memory (m)"),
        (&limits::PASSWORD_HASH_PASSES, cost.t_cost(), "the time (t)"),
        (&limits::PASSWORD_HASH_LANES, cost.p_cost(), "the parallelism (p)"),
    ] {
        limits::check(limit, found as usize, what(part)).map_err(exceeded)?;
    }
    Ok(parsed)
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

    #[test]
    fn a_hash_costs_no_more_than_the_limits_allow() {
        let hashed = hash("sesame").unwrap();
        let with = |cost: &str| hashed.replace("m=19456,t=2,p=1", cost);
        for usual in ["m=19456,t=2,p=1", "m=65536,t=3,p=4", "m=47104,t=1,p=1", "m=65536,t=4,p=1"] {
            assert!(check_hash(&with(usual)).is_ok(), "{usual}");
        }
        for (hostile, name) in [
            ("m=19456,t=4294967295,p=1", "PASSWORD_HASH_PASSES"),
            ("m=4294967295,t=1,p=1", "PASSWORD_HASH_KIB"),
            ("m=65537,t=1,p=1", "PASSWORD_HASH_KIB"),
            ("m=65536,t=1,p=9", "PASSWORD_HASH_LANES"),
        ] {
            let message = check_hash(&with(hostile)).unwrap_err().message;
            assert!(message.contains(name), "{hostile}: {message}");
            // A hash stored by an earlier version: every login fails, at once.
            assert!(!is_right("sesame", &with(hostile)));
        }
        let long = format!("{hashed}{}", "A".repeat(512));
        assert!(check_hash(&long).unwrap_err().message.contains("PASSWORD_HASH_BYTES"));
        assert!(check_hash("$argon2x$v=19$m=8,t=1,p=1$c29tZXNhbHQ$c29tZWhhc2g").is_err());
    }
}
