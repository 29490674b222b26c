//! Logging in over HTTP: the roles of CQL and their passwords.
//!
//! Always true: a password is checked as on CQL ([`crate::login`]). One that was right is remembered for a minute, by a digest with a key of this process, and only
//! together with the stored hash that it was checked against; whether the role still has that hash, and what it may do, is looked up in the catalog at each
//! request: a changed password, a dropped role and a revoked permission count at once. One source has only so many wrong passwords at a time. The
//! password that everybody knows is taken on the node's own machine only. Left out: HTTP ([`diorite_admin::login`]).

use crate::entrance::Entrance;
use crate::kv::NodeKv;
use crate::login;
use crate::turns::Caller;
use diorite_admin::gate::Ends;
use diorite_admin::login::{Credentials, Denied, Login, Wanted};
use diorite_base::connections::Source;
use diorite_base::random;
use diorite_cluster::catalog::{Catalog, Role};
use diorite_cql::language::ast::Permission;
use diorite_query::auth::{ALL_KEYSPACES, shown};
use diorite_query::kv::Kv;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use ring::hmac;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a password that was right need not be checked again.
const REMEMBERED_NS: u64 = 60_000_000_000;
/// How many are remembered.
const MAX_REMEMBERED: usize = 256;
/// How long the answer to a wrong password takes.
const WRONG: Duration = Duration::from_millis(500);
/// Wrong passwords that a source may have at once, and in how long it may have one more.
const BURST: u64 = 16;
const INTERVAL_NS: u64 = 2_000_000_000;
/// Sources that are told apart.
const MAX_SOURCES: usize = 4_096;

/// How many wrong passwords came from where.
#[derive(Default)]
struct Attempts {
    /// When a source may have the whole burst again.
    free_ns: HashMap<Source, u64>,
}

impl Attempts {
    /// Counts one as if it were wrong, until it proves right; whether it may be checked.
    fn begin(&mut self, source: Source, now_ns: u64) -> bool {
        if self.free_ns.len() >= MAX_SOURCES {
            self.free_ns.retain(|_, free_ns| *free_ns > now_ns);
        }
        if self.free_ns.len() >= MAX_SOURCES && !self.free_ns.contains_key(&source) {
            // Whoever has so many addresses is not held back by this; the number of checks at a time is bounded all the same.
            return true;
        }
        let free_ns = self.free_ns.entry(source).or_default();
        let next_ns = (*free_ns).max(now_ns) + INTERVAL_NS;
        if next_ns > now_ns + BURST * INTERVAL_NS {
            return false;
        }
        *free_ns = next_ns;
        true
    }

    /// It was right.
    fn take_back(&mut self, source: Source) {
        if let Some(free_ns) = self.free_ns.get_mut(&source) {
            *free_ns = free_ns.saturating_sub(INTERVAL_NS);
        }
    }
}

/// A password that was right.
struct Remembered {
    digest: hmac::Tag,
    /// What it was checked against.
    hash: String,
    until_ns: u64,
}

/// The passwords that were right lately, by role.
struct Memory {
    key: hmac::Key,
    roles: HashMap<String, Remembered>,
}

impl Memory {
    fn new(key: [u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), roles: HashMap::new() }
    }

    fn insert(&mut self, given: &Credentials, hash: String, now_ns: u64) {
        if self.roles.len() >= MAX_REMEMBERED {
            self.roles.retain(|_, known| known.until_ns > now_ns);
        }
        if self.roles.len() >= MAX_REMEMBERED {
            self.roles.clear();
        }
        let digest = hmac::sign(&self.key, given.password.as_bytes());
        self.roles.insert(given.user.clone(), Remembered { digest, hash, until_ns: now_ns + REMEMBERED_NS });
    }

    /// Whether it was right lately, for a role that has this hash.
    fn holds(&self, given: &Credentials, hash: &str, now_ns: u64) -> bool {
        self.roles.get(&given.user).is_some_and(|known| {
            // In constant time.
            let is_same = hmac::verify(&self.key, given.password.as_bytes(), known.digest.as_ref()).is_ok();
            is_same && known.hash == hash && now_ns < known.until_ns
        })
    }
}

/// Logs in operators, and whoever looks at the pages.
pub(crate) struct Logins {
    kv: Arc<NodeKv>,
    entrance: Arc<Entrance>,
    memory: Mutex<Memory>,
    attempts: Mutex<Attempts>,
}

impl Logins {
    pub(crate) fn new(kv: Arc<NodeKv>, entrance: Arc<Entrance>) -> Self {
        let memory = Mutex::new(Memory::new(random::secret()));
        Self { kv, entrance, memory, attempts: Mutex::default() }
    }

    async fn admit(&self, given: Credentials, ends: Ends, wanted: Wanted) -> Result<(), Denied> {
        let now_ns = self.kv.clock.monotonic_ns();
        let is_known = self.kv.catalog().role(&given.user).is_some_and(|role| {
            let hash = role.password_hash.as_deref();
            hash.is_some_and(|hash| self.memory.lock().holds(&given, hash, now_ns))
        });
        if !is_known {
            self.check(&given, ends, now_ns).await?;
        }
        let catalog = self.kv.catalog();
        let role = catalog.role(&given.user).ok_or(Denied::Unknown)?;
        permit(&catalog, role, ends, wanted)
    }

    async fn check(&self, given: &Credentials, ends: Ends, now_ns: u64) -> Result<(), Denied> {
        let source = Source::from(ends.client.ip());
        if !self.attempts.lock().begin(source, now_ns) {
            return Err(Denied::Busy(
                "too many wrong passwords from this address: try again in two seconds".to_owned(),
            ));
        }
        let caller = Caller::from(ends.client);
        let checked = caller.scope(login::check(&self.kv, &given.user, given.password.clone())).await;
        match checked.map_err(|error| Denied::Busy(error.to_string()))? {
            Some(role) => {
                self.attempts.lock().take_back(source);
                let hash = role.password_hash.clone().unwrap_or_default();
                self.memory.lock().insert(given, hash, now_ns);
                Ok(())
            }
            None => {
                #[allow(clippy::disallowed_methods, reason = "a shell's timer: whoever guesses is slowed down")]
                tokio::time::sleep(WRONG).await;
                Err(Denied::Unknown)
            }
        }
    }
}

impl Login for Logins {
    fn is_required(&self) -> bool {
        self.entrance.requires_login()
    }

    fn admit(
        self: Arc<Self>,
        given: Credentials,
        ends: Ends,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<(), Denied>> {
        Box::pin(async move { Logins::admit(&self, given, ends, wanted).await })
    }
}

/// Whether a role whose password was right may do this.
fn permit(catalog: &Catalog, role: &Role, ends: Ends, wanted: Wanted) -> Result<(), Denied> {
    let name = &role.name;
    if !role.can_login {
        return Err(Denied::Forbidden(format!("{name} is not permitted to log in")));
    }
    if role.has_initial_password && !ends.are_one_machine() {
        return Err(Denied::Forbidden(format!(
            "{name} has the password that every new cluster has, and is accepted on the node's own machine only until it is changed"
        )));
    }
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
    use std::net::{IpAddr, Ipv4Addr};

    const SECOND_NS: u64 = 1_000_000_000;

    fn source(last: u8) -> Source {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)).into()
    }

    fn credentials(user: &str, password: &str) -> Credentials {
        Credentials { user: user.to_owned(), password: password.to_owned() }
    }

    #[test]
    fn wrong_passwords_of_one_source_are_bounded_and_those_of_others_count_apart() {
        let (mut attempts, now_ns) = (Attempts::default(), 100 * SECOND_NS);
        let count = |attempts: &mut Attempts, of, now_ns| (0..100).filter(|_| attempts.begin(of, now_ns)).count();
        assert_eq!(count(&mut attempts, source(1), now_ns), 16);
        assert_eq!(count(&mut attempts, source(2), now_ns), 16);
        assert_eq!(count(&mut attempts, source(1), now_ns + 5 * SECOND_NS), 2, "one more in two seconds");
        assert_eq!(count(&mut attempts, source(1), now_ns + 1_000 * SECOND_NS), 16);
        for _ in 0..100 {
            assert!(attempts.begin(source(3), now_ns));
            attempts.take_back(source(3));
        }
    }

    #[test]
    fn sources_are_forgotten_when_they_owe_nothing() {
        let mut attempts = Attempts::default();
        for number in 0..10_000u32 {
            let of = IpAddr::V4(Ipv4Addr::from(number)).into();
            assert!(attempts.begin(of, u64::from(number) * SECOND_NS));
            assert!(attempts.free_ns.len() <= MAX_SOURCES);
        }
        assert!(
            (0..10_000u32).all(|number| attempts.begin(IpAddr::V4(Ipv4Addr::from(number)).into(), 20_000 * SECOND_NS))
        );
        assert_eq!(attempts.free_ns.len(), MAX_SOURCES);
    }

    #[test]
    fn a_password_is_remembered_for_one_hash_and_a_minute() {
        let mut memory = Memory::new([1; 32]);
        let right = credentials("ann", "sesame");
        memory.insert(&right, "hash".to_owned(), 0);
        assert!(memory.holds(&right, "hash", 59 * SECOND_NS));
        assert!(!memory.holds(&right, "hash", 60 * SECOND_NS));
        assert!(!memory.holds(&right, "another", 0), "the password was changed");
        assert!(!memory.holds(&credentials("ann", "Sesame"), "hash", 0));
        assert!(!memory.holds(&credentials("ben", "sesame"), "hash", 0));
        for number in 0..1_000 {
            memory.insert(&credentials(&number.to_string(), "x"), "hash".to_owned(), 0);
            assert!(memory.roles.len() <= MAX_REMEMBERED);
        }
    }

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
        let address = "10.0.0.9:5".parse().unwrap();
        let ends = Ends { client: address, node: "10.0.0.1:7000".parse().unwrap() };
        let may = |catalog: &Catalog, wanted| permit(catalog, catalog.role("ann").unwrap(), ends, wanted).is_ok();
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
        let mute = with_role(Role { can_login: false, ..role(true) }, &[]);
        assert!(!may(&mute, Wanted::Look));
        let known = with_role(Role { has_initial_password: true, ..role(true) }, &[]);
        assert!(!may(&known, Wanted::Look), "from elsewhere");
        let here = Ends { client: address, node: address };
        assert!(permit(&known, known.role("ann").unwrap(), here, Wanted::Change).is_ok());
    }
}
