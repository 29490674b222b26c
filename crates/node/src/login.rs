//! Logging in: SASL PLAIN, as drivers use it with Cassandra's `PasswordAuthenticator`; and the first role of a cluster.
//!
//! Always true: a session gets its role only as the newest catalog of this node has it. Left out: the check of passwords
//! ([`crate::passwords`]), who may connect ([`crate::entrance`]), permissions (`diorite_query::auth`).

use crate::audit::LoginOutcome;
use crate::entrance::NoEntry;
use crate::kv::NodeKv;
use crate::passwords::{Origin, Wrong};
use crate::shared::Access;
use diorite_base::basic::Credentials;
use diorite_certs::node::role_of;
use diorite_cluster::catalog::{FIRST_SUPERUSER, Role, RoleCommand};
use diorite_cql::protocol::{CqlError, ErrorKind};
use diorite_query::Session;
use diorite_query::auth::{self, password};
use diorite_query::kv::Kv;
use rustls::pki_types::CertificateDer;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
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

/// Checks a client's answer to AUTHENTICATE, and gives the session its role.
pub(crate) async fn log_in(
    access: Access,
    session: Arc<Session>,
    client: IpAddr,
    token: Vec<u8>,
) -> Result<(), CqlError> {
    let (user, password) = credentials(&token)?;
    let wrong = || refused(format!("Provided username {user} and/or password are incorrect"));
    let given = Credentials { user: user.clone(), password };
    let (counters, from) = (&access.passwords.counters, Origin { client, port: "cql" });
    let role = match access.passwords.check(given, from).await {
        Ok(role) => role,
        Err(Wrong::Unknown) => return Err(wrong()),
        Err(Wrong::Busy(why)) => return Err(CqlError::overloaded(why)),
    };
    match access.entrance.enter(&session, &role, client) {
        Ok(()) => {
            counters.accepted.add(1);
            access.passwords.audit(&user, from, LoginOutcome::Accepted);
            Ok(())
        }
        Err(NoEntry::Changed) => Err(wrong()),
        Err(why) => {
            counters.forbidden.add(1);
            access.passwords.audit(&user, from, LoginOutcome::Forbidden);
            Err(refused(why.to_string()))
        }
    }
}

/// Gives the session the role that the client's certificate names, which an authority for clients has signed. `None`: a password is needed, or
/// nobody has to log in.
pub(crate) fn by_certificate(
    access: &Access,
    session: &Session,
    client: Option<SocketAddr>,
    shown: Option<&CertificateDer<'_>>,
) -> Option<Result<(), CqlError>> {
    if session.is_open() || !access.has_certificate_roles {
        return None;
    }
    let name = role_of(shown?)?;
    let client = client.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.ip());
    let (counters, from) = (&access.passwords.counters, Origin { client, port: "cql" });
    let entered = access.entrance.enter_certified(session, &name, client);
    let (counter, outcome) = match entered {
        Ok(()) => (&counters.accepted, LoginOutcome::Accepted),
        Err(_) => (&counters.forbidden, LoginOutcome::Forbidden),
    };
    counter.add(1);
    access.passwords.audit(&name, from, outcome);
    Some(entered.map_err(|why| refused(why.to_string())))
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
        match auth::propose(&*kv, RoleCommand::Create { role, if_not_exists: true }, None).await {
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
