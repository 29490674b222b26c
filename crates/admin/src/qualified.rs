//! Names of tables and indexes on the command line: with their keyspaces.

use crate::api::{Failure, FailureKind};

/// The keyspace, and the name in it.
pub(crate) fn qualified(name: &str) -> Result<(&str, &str), Failure> {
    let parts = name.split_once('.').filter(|(keyspace, name)| !keyspace.is_empty() && !name.is_empty());
    let message = || format!("'{name}' has no keyspace: name it as KEYSPACE.NAME");
    parts.ok_or_else(|| Failure::new(FailureKind::Invalid, message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_keyspace_is_refused() {
        assert_eq!(qualified("ks.t"), Ok(("ks", "t")));
        assert_eq!(qualified("ks.t.u"), Ok(("ks", "t.u")));
        for name in ["t", ".t", "ks.", ""] {
            let message = qualified(name).expect_err("no keyspace").message;
            assert_eq!(message, format!("'{name}' has no keyspace: name it as KEYSPACE.NAME"));
        }
    }
}
