//! Checking passwords, for CQL and for HTTP.
//!
//! Always true: checking a password takes tens of milliseconds and megabytes on purpose, and runs beside the serving threads ([`crate::aside`]); a role
//! that does not exist takes as long as one that does. One source has only so many wrong passwords at a time, and the answer to a wrong one takes
//! half a second. One that was right is remembered for a minute, by a digest with a key of this process, and only together with the stored
//! hash that it was checked against: so a changed password and a dropped role count at once, and whoever knows the password is not held back by
//! wrong ones from the same address. Left out: what the role may do.

use crate::audit::{AuditLog, LoginOutcome};
use crate::kv::NodeKv;
use diorite_base::basic::Credentials;
use diorite_base::connections::Source;
use diorite_base::measure::Counter;
use diorite_base::random;
use diorite_cluster::catalog::Role;
use diorite_query::auth::password;
use diorite_query::kv::Kv;
use parking_lot::Mutex;
use ring::hmac;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
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
    /// Whether a password of this source may be checked.
    fn may_try(&self, source: Source, now_ns: u64) -> bool {
        let free_ns = self.free_ns.get(&source).copied().unwrap_or_default();
        free_ns.max(now_ns) + INTERVAL_NS <= now_ns + BURST * INTERVAL_NS
    }

    /// One was wrong.
    fn count(&mut self, source: Source, now_ns: u64) {
        if self.free_ns.len() >= MAX_SOURCES {
            self.free_ns.retain(|_, free_ns| *free_ns > now_ns);
        }
        if self.free_ns.len() >= MAX_SOURCES && !self.free_ns.contains_key(&source) {
            // Whoever has so many addresses is not held back by this; the number of checks at a time is bounded all the same.
            return;
        }
        let free_ns = self.free_ns.entry(source).or_default();
        *free_ns = (*free_ns).max(now_ns) + INTERVAL_NS;
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

/// From where somebody logs in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) client: IpAddr,
    /// `cql` or `http`.
    pub(crate) port: &'static str,
}

/// Why a password does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// There is no such role, or its password is another one.
    Unknown,
    /// It was not checked, for this reason: to be tried again later.
    Busy(String),
}

/// The outcome of a check.
enum Verdict {
    Right,
    Wrong,
    TooMany,
}

/// How logins ended.
#[derive(Default)]
pub(crate) struct LoginCounters {
    /// On the CQL port.
    pub(crate) accepted: Counter,
    /// The password was wrong, or there is no such role.
    pub(crate) wrong: Counter,
    /// The password was not checked.
    pub(crate) busy: Counter,
    /// The password was right, and the role may not log in, or not from there.
    pub(crate) forbidden: Counter,
}

/// See the top of this module.
pub(crate) struct Passwords {
    kv: Arc<NodeKv>,
    memory: Mutex<Memory>,
    attempts: Mutex<Attempts>,
    pub(crate) counters: LoginCounters,
    pub(crate) audit: Option<Arc<AuditLog>>,
}

/// The hash that a password for a role that does not exist is checked against.
fn nobodys_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| password::hash("nobody").unwrap_or_default())
}

impl Passwords {
    pub(crate) fn new(kv: Arc<NodeKv>, audit: Option<Arc<AuditLog>>) -> Arc<Self> {
        let memory = Mutex::new(Memory::new(random::secret()));
        Arc::new(Self { kv, memory, attempts: Mutex::default(), counters: LoginCounters::default(), audit })
    }

    /// Tells the audit log how a login has ended.
    pub(crate) fn audit(&self, role: &str, from: Origin, ended: LoginOutcome) {
        if let Some(audit) = &self.audit {
            audit.login(role, from.client, from.port, ended);
        }
    }

    /// Checks the password of a role; returns the role as it was when the check began.
    pub(crate) async fn check(self: &Arc<Self>, given: Credentials, from: Origin) -> Result<Arc<Role>, Wrong> {
        let source = Source::from(from.client);
        let role = self.kv.catalog().role(&given.user).cloned();
        let hash = role.as_ref().and_then(|role| role.password_hash.clone());
        if self.is_remembered(&given, hash.as_deref()) {
            return role.ok_or(Wrong::Unknown);
        }
        let may_try = self.attempts.lock().may_try(source, self.kv.clock.monotonic_ns());
        let passwords = Arc::clone(self);
        let verdict = match may_try {
            true => self.kv.hash(move || passwords.verify(&given, hash.as_deref(), from)).await,
            false => Ok(Verdict::TooMany),
        };
        match verdict {
            Ok(Verdict::Right) => role.ok_or(Wrong::Unknown),
            Ok(Verdict::Wrong) => {
                self.counters.wrong.add(1);
                #[allow(clippy::disallowed_methods, reason = "a shell's timer: whoever guesses is slowed down")]
                tokio::time::sleep(WRONG).await;
                Err(Wrong::Unknown)
            }
            Ok(Verdict::TooMany) => {
                self.counters.busy.add(1);
                let message = "too many wrong passwords from this address: try again in two seconds";
                Err(Wrong::Busy(message.to_owned()))
            }
            Err(error) => {
                self.counters.busy.add(1);
                Err(Wrong::Busy(error.to_string()))
            }
        }
    }

    fn is_remembered(&self, given: &Credentials, hash: Option<&str>) -> bool {
        hash.is_some_and(|hash| self.memory.lock().holds(given, hash, self.kv.clock.monotonic_ns()))
    }

    /// Takes its time. Others from the same source may have been checked while this one waited for its turn.
    fn verify(&self, given: &Credentials, hash: Option<&str>, from: Origin) -> Verdict {
        let source = Source::from(from.client);
        if self.is_remembered(given, hash) {
            return Verdict::Right;
        }
        if !self.attempts.lock().may_try(source, self.kv.clock.monotonic_ns()) {
            return Verdict::TooMany;
        }
        let is_right = password::is_right(&given.password, hash.unwrap_or_else(|| nobodys_hash()));
        let now_ns = self.kv.clock.monotonic_ns();
        match hash.filter(|_| is_right) {
            Some(hash) => {
                self.memory.lock().insert(given, hash.to_owned(), now_ns);
                Verdict::Right
            }
            None => {
                self.attempts.lock().count(source, now_ns);
                // Here, as whoever guesses may not wait for the answer.
                self.audit(&given.user, from, LoginOutcome::Wrong);
                Verdict::Wrong
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

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
        let count = |attempts: &mut Attempts, of, now_ns| {
            let tries = (0..100).take_while(|_| {
                let may_try = attempts.may_try(of, now_ns);
                attempts.count(of, now_ns);
                may_try
            });
            tries.count()
        };
        assert_eq!(count(&mut attempts, source(1), now_ns), 16);
        assert_eq!(count(&mut attempts, source(2), now_ns), 16);
        // The seventeenth was counted, too.
        assert_eq!(count(&mut attempts, source(1), now_ns + 6 * SECOND_NS), 2, "one more in two seconds");
        assert_eq!(count(&mut attempts, source(1), now_ns + 1_000 * SECOND_NS), 16);
        assert!((0..100).all(|_| attempts.may_try(source(3), now_ns)), "right ones are not counted");
    }

    #[test]
    fn sources_are_forgotten_when_they_owe_nothing() {
        let mut attempts = Attempts::default();
        for number in 0..10_000u32 {
            let of = IpAddr::V4(Ipv4Addr::from(number)).into();
            assert!(attempts.may_try(of, u64::from(number) * SECOND_NS));
            attempts.count(of, u64::from(number) * SECOND_NS);
            assert!(attempts.free_ns.len() <= MAX_SOURCES);
        }
        (0..10_000u32).for_each(|number| attempts.count(IpAddr::V4(Ipv4Addr::from(number)).into(), 20_000 * SECOND_NS));
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
}
