//! Logging in: SASL PLAIN, as drivers use it with Cassandra's `PasswordAuthenticator`; and the check of a password, for
//! HTTP too.
//!
//! Always true: checking a password takes tens of milliseconds and megabytes on purpose, and runs beside the serving
//! threads ([`crate::aside`]); a role that does not exist takes as long as one that does. Left out: permissions
//! (`diorite_query::auth`), and the restriction to loopback while the first superuser has its initial password
//! ([`crate::listener`]).

use crate::kv::NodeKv;
use crate::shared::Shared;
use diorite_base::write::KvError;
use diorite_cluster::catalog::{FIRST_SUPERUSER, Role, RoleCommand};
use diorite_cql::protocol::{CqlError, ErrorKind};
use diorite_query::Session;
use diorite_query::auth::{self, password};
use diorite_query::kv::Kv;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The authenticator's name that drivers expect.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";
/// The initial password of the first superuser.
const INITIAL_PASSWORD: &str = "cassandra";
/// How often the first role is proposed again while the catalog cannot be written.
const RETRY: Duration = Duration::from_secs(1);

fn refused(message: impl Into<String>) -> CqlError {
    CqlError::new(ErrorKind::Authentication, message.into())
}

/// The user and password of a SASL PLAIN message: `[who to act as] NUL user NUL password`.
fn credentials(token: &[u8]) -> Result<(String, String), CqlError> {
    let mut parts = token.split(|byte| *byte == 0);
    let (Some(_), Some(user), Some(password), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(CqlError::protocol("the authentication message is not SASL PLAIN"));
    };
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| CqlError::protocol("the authentication message is not UTF-8"))
    };
    Ok((text(user)?, text(password)?))
}

/// The hash that a password for a non-existent role is checked against.
fn nobodys_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| password::hash(INITIAL_PASSWORD).unwrap_or_default())
}

/// Checks the password of a role; returns the role as it was when the check began, if the password is right.
pub(crate) async fn check(kv: &NodeKv, user: &str, given: String) -> Result<Option<Arc<Role>>, KvError> {
    let role = kv.catalog().role(user).cloned();
    let known = role.as_ref().and_then(|role| role.password_hash.clone());
    let exists = known.is_some();
    let check = move || password::is_right(&given, known.as_deref().unwrap_or_else(|| nobodys_hash()));
    let is_right = kv.hash(check).await?;
    Ok(role.filter(|_| is_right && exists))
}

/// Checks a client's answer to AUTHENTICATE, and sets the role of its session.
pub(crate) async fn log_in(shared: Arc<Shared>, session: Arc<Session>, token: Vec<u8>) -> Result<(), CqlError> {
    let (user, given) = credentials(&token)?;
    let checked = check(&shared.kv, &user, given).await.map_err(|error| CqlError::overloaded(error.to_string()))?;
    match checked {
        Some(role) if role.can_login => {
            session.log_in(&user);
            Ok(())
        }
        Some(_) => Err(refused(format!("{user} is not permitted to log in"))),
        None => Err(refused(format!("Provided username {user} and/or password are incorrect"))),
    }
}

/// Creates the first superuser in a cluster without roles. Tries again until the catalog has a role.
pub(crate) async fn found_roles(kv: Arc<NodeKv>) {
    let hashing = kv.hash(|| password::hash(INITIAL_PASSWORD)).await;
    let Ok(Ok(hash)) = hashing else {
        tracing::error!("the first role cannot be created: its password cannot be hashed");
        return;
    };
    while kv.catalog().roles().next().is_none() {
        let role = Role {
            name: FIRST_SUPERUSER.to_owned(),
            is_superuser: true,
            can_login: true,
            password_hash: Some(hash.clone()),
            has_initial_password: true,
            ..Role::default()
        };
        match auth::propose(&*kv, RoleCommand::Create { role, if_not_exists: true }).await {
            Ok(()) => {
                tracing::warn!(
                    role = FIRST_SUPERUSER,
                    "the first superuser has a password that everybody knows: nodes listen to clients on loopback only until it is changed"
                );
                return;
            }
            Err(error) => {
                tracing::debug!(error = %error.message, "the first role cannot be made yet");
                #[allow(clippy::disallowed_methods, reason = "a shell's timer: the catalog has no leader yet")]
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sasl_plain_names_a_user_and_a_password() {
        assert_eq!(credentials(b"\0ann\0sesame").unwrap(), ("ann".to_owned(), "sesame".to_owned()));
        assert_eq!(credentials(b"x\0ann\0").unwrap(), ("ann".to_owned(), String::new()));
        for wrong in [&b""[..], b"ann", b"\0ann", b"\0ann\0b\0c", b"\0\xff\0b"] {
            assert!(credentials(wrong).is_err(), "{wrong:?}");
        }
    }
}
