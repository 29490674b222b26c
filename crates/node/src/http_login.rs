//! Logging in over HTTP: the roles of CQL and their passwords.
//!
//! Always true: a password is checked as on CQL ([`crate::passwords`]). Whether the role still has it, from where it may connect ([`crate::entrance`]) and what it may do
//! is looked up in the catalog at each request, in a session as well: a changed password, a dropped role and a revoked permission count at once. Left out: HTTP
//! ([`diorite_admin::login`]).

use crate::audit::LoginOutcome;
use crate::http_sessions::{self, Sessions};
use crate::kv::NodeKv;
use crate::passwords::{Origin, Wrong};
use crate::shared::Access;
use crate::turns::Caller;
use diorite_admin::Visitor;
use diorite_admin::gate::Ends;
use diorite_admin::login::{Admitted, Credentials, Denied, Login, Proof, Wanted};
use diorite_certs::node::role_of;
use diorite_cluster::catalog::{Catalog, Role};
use diorite_cql::language::ast::Permission;
use diorite_query::auth::{ALL_KEYSPACES, shown};
use diorite_query::kv::Kv;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// Checks the logins of operators and of visitors of the pages.
pub(crate) struct Logins {
    kv: Arc<NodeKv>,
    access: Access,
    sessions: Mutex<Sessions>,
    /// A certificate that names a role makes that role known.
    has_certificate_roles: bool,
    /// Whoever has it may read metrics.
    metrics_token: Option<String>,
}

impl Logins {
    pub(crate) fn new(kv: Arc<NodeKv>, access: Access, metrics_token: Option<String>) -> Self {
        let has_certificate_roles = access.has_certificate_roles;
        Self { kv, access, sessions: Mutex::default(), has_certificate_roles, metrics_token }
    }

    async fn admit(&self, proof: Proof, ends: Ends, wanted: Wanted) -> Result<Admitted, Denied> {
        match proof {
            Proof::Password(given) => {
                let role = self.admit_role(given, ends, wanted).await?;
                Ok(Admitted { user: role.name.clone(), visitor: None })
            }
            Proof::Session { id, token } => {
                let visitor = self.admit_session(&id, token.as_deref(), ends, wanted)?;
                Ok(Admitted { user: visitor.user.clone(), visitor: Some(visitor) })
            }
            // The authority for clients has signed it: that is the proof.
            Proof::Certificate { role } => {
                let role = self.permit(&role, |_| true, ends, wanted)?;
                Ok(Admitted { user: role.name.clone(), visitor: None })
            }
        }
    }

    /// Checks a password, and what the role may do; returns the role.
    async fn admit_role(&self, given: Credentials, ends: Ends, wanted: Wanted) -> Result<Arc<Role>, Denied> {
        let (user, client) = (given.user.clone(), ends.client);
        let from = Origin { client: client.ip(), port: "http" };
        let checked = Caller::from(client).scope(self.access.passwords.check(given, from)).await;
        let checked = checked.map_err(|wrong| match wrong {
            Wrong::Unknown => Denied::Unknown,
            Wrong::Busy(why) => Denied::Busy(why),
        })?;
        self.permit(&user, |role| role.password_hash == checked.password_hash, ends, wanted)
    }

    fn admit_session(&self, id: &str, token: Option<&str>, ends: Ends, wanted: Wanted) -> Result<Visitor, Denied> {
        let used = self.sessions.lock().use_it(id, self.kv.clock.monotonic_ns());
        let (visitor, hash) = used.ok_or(Denied::Unknown)?;
        if wanted != Wanted::Look && !http_sessions::is_token(&visitor, token) {
            return Err(Denied::Forbidden("a change by a session names its token: X-Diorite-Token".to_owned()));
        }
        match self.permit(&visitor.user, |role| role.password_hash.as_ref() == Some(&hash), ends, wanted) {
            Ok(_) => Ok(visitor),
            Err(denied) => {
                // Another password, or no such role: whoever it was has to log in anew.
                if denied == Denied::Unknown {
                    self.sessions.lock().end(id);
                }
                Err(denied)
            }
        }
    }

    /// Whether a role may do something, as the newest catalog has it; `is_proven` says whether it is the one that was proven.
    fn permit(
        &self,
        user: &str,
        is_proven: impl Fn(&Role) -> bool,
        ends: Ends,
        wanted: Wanted,
    ) -> Result<Arc<Role>, Denied> {
        let catalog = self.kv.catalog();
        let role = catalog.role(user).filter(|role| is_proven(role)).ok_or(Denied::Unknown)?;
        self.access.entrance.may_enter(&catalog, role, ends.client.ip(), ends.are_one_machine()).map_err(|why| {
            self.access.passwords.counters.forbidden.add(1);
            Denied::Forbidden(why.to_string())
        })?;
        permit(&catalog, role, wanted)?;
        Ok(Arc::clone(role))
    }

    async fn begin(&self, given: Credentials, ends: Ends) -> Result<String, Denied> {
        let (user, from) = (given.user.clone(), Origin { client: ends.client.ip(), port: "http" });
        let role = self.admit_role(given, ends, Wanted::Look).await.inspect_err(|denied| {
            if matches!(denied, Denied::Forbidden(_)) {
                self.access.passwords.audit(&user, from, LoginOutcome::Forbidden);
            }
        })?;
        self.access.passwords.audit(&user, from, LoginOutcome::Accepted);
        let hash = role.password_hash.clone().ok_or(Denied::Unknown)?;
        Ok(self.sessions.lock().begin(&role.name, hash, self.kv.clock.monotonic_ns()))
    }
}

impl Login for Logins {
    fn is_required(&self) -> bool {
        self.access.entrance.requires_login()
    }

    fn admit(
        self: Arc<Self>,
        proof: Proof,
        ends: Ends,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<Admitted, Denied>> {
        Box::pin(async move { Logins::admit(&self, proof, ends, wanted).await })
    }

    fn begin(self: Arc<Self>, given: Credentials, ends: Ends) -> BoxFuture<'static, Result<String, Denied>> {
        Box::pin(async move { Logins::begin(&self, given, ends).await })
    }

    fn changed(&self, role: Option<&str>, ends: Option<Ends>, what: &str, status: Option<u16>) {
        let (Some(audit), Some(ends)) = (&self.access.passwords.audit, ends) else { return };
        audit.operation(role, ends.client, what, status);
    }

    fn end(&self, id: &str, token: &str) {
        self.sessions.lock().end_with(id, token);
    }

    fn role_of(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        self.has_certificate_roles.then(|| role_of(certificate)).flatten()
    }

    fn is_metrics_token(&self, given: &str) -> bool {
        self.metrics_token.as_deref().is_some_and(|token| http_sessions::is_same(token, given))
    }
}

/// Whether a role that has logged in may do this.
fn permit(catalog: &Catalog, role: &Role, wanted: Wanted) -> Result<(), Denied> {
    let name = &role.name;
    let permission = match wanted {
        Wanted::Look => Permission::Describe,
        Wanted::Change => Permission::Alter,
        Wanted::Administer if catalog.is_superuser(name) => return Ok(()),
        Wanted::Administer => return Err(Denied::Forbidden(format!("{name} is not a superuser"))),
    };
    if catalog.may(name, permission.name(), ALL_KEYSPACES) {
        return Ok(());
    }
    let (permission, resource) = (permission.name(), shown(ALL_KEYSPACES));
    Err(Denied::Forbidden(format!("{name} has no {permission} permission on {resource}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_cluster::catalog::{Command, RoleCommand};

    fn with_role(role: Role, granted: &[&str]) -> Catalog {
        let name = role.name.clone();
        let create = RoleCommand::Create { role, if_not_exists: false };
        let grants = granted.iter().map(|permission| RoleCommand::Grant {
            role: name.clone(),
            resource: ALL_KEYSPACES.to_owned(),
            permissions: [(*permission).to_owned()].into(),
        });
        [create]
            .into_iter()
            .chain(grants)
            .fold(Catalog::default(), |catalog, change| catalog.apply(&Command::Roles { change }).0)
    }

    #[test]
    fn roles_may_what_they_are_granted_on_all_keyspaces() {
        let role = |is_superuser| Role { name: "ann".to_owned(), is_superuser, can_login: true, ..Role::default() };
        let may = |catalog: &Catalog, wanted| permit(catalog, catalog.role("ann").unwrap(), wanted).is_ok();
        for (is_superuser, granted, looks, changes) in [
            (false, &[][..], false, false),
            (false, &["SELECT", "MODIFY"], false, false),
            (false, &["DESCRIBE"], true, false),
            (false, &["DESCRIBE", "ALTER"], true, true),
            (true, &[], true, true),
        ] {
            let administers = may(&with_role(role(is_superuser), granted), Wanted::Administer);
            assert_eq!(administers, is_superuser, "who lets everybody in may do everything: {granted:?}");
            let catalog = with_role(role(is_superuser), granted);
            assert_eq!((may(&catalog, Wanted::Look), may(&catalog, Wanted::Change)), (looks, changes), "{granted:?}");
        }
    }
}
