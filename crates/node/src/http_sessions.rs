//! The sessions of the HTTP port: who has logged in by the login page.
//!
//! Always true: their number is bounded, in all and for each role; each ends some time after its last use and some time after its beginning. The name of a
//! session is random and is not kept, only its digest, so that no copy of this process's memory gives a session away. Left out: what a role may do, which
//! is looked up at each request; other nodes, at each of which a browser logs in anew.

use diorite_admin::Visitor;
use diorite_base::random;
use ring::digest;
use std::collections::HashMap;

/// Sessions, in all and of one role. The one that was not used for longest ends for a new one.
const MAX_SESSIONS: usize = 256;
const MAX_OF_ROLE: usize = 16;
/// How long a session lasts after its last use, and at most.
const IDLE_NS: u64 = 30 * 60 * 1_000_000_000;
const LONGEST_NS: u64 = 12 * 60 * 60 * 1_000_000_000;

type Digest = [u8; 32];

struct Session {
    visitor: Visitor,
    /// The stored hash of the password that began it.
    hash: String,
    begun_ns: u64,
    used_ns: u64,
}

impl Session {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.begun_ns + LONGEST_NS || now_ns >= self.used_ns + IDLE_NS
    }
}

/// See the top of this module.
#[derive(Default)]
pub(crate) struct Sessions {
    open: HashMap<Digest, Session>,
}

fn digest_of(id: &str) -> Digest {
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest::digest(&digest::SHA256, id.as_bytes()).as_ref());
    bytes
}

/// 256 random bits, as text.
fn secret() -> String {
    random::secret::<32>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two secrets are the same.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    // By digests, so that the time that it takes says nothing of either.
    digest_of(one) == digest_of(other)
}

impl Sessions {
    /// Begins a session of a role; returns its secret name.
    pub(crate) fn begin(&mut self, user: &str, hash: String, now_ns: u64) -> String {
        self.open.retain(|_, session| !session.is_over(now_ns));
        while self.open.values().filter(|session| session.visitor.user == user).count() >= MAX_OF_ROLE {
            self.end_oldest(|session| session.visitor.user == user);
        }
        while self.open.len() >= MAX_SESSIONS {
            self.end_oldest(|_| true);
        }
        let id = secret();
        let visitor = Visitor { user: user.to_owned(), token: secret() };
        self.open.insert(digest_of(&id), Session { visitor, hash, begun_ns: now_ns, used_ns: now_ns });
        id
    }

    fn end_oldest(&mut self, is_meant: impl Fn(&Session) -> bool) {
        let meant = self.open.iter().filter(|(_, session)| is_meant(session));
        if let Some(oldest) = meant.min_by_key(|(_, session)| session.used_ns).map(|(digest, _)| *digest) {
            self.open.remove(&oldest);
        }
    }

    /// Uses a session: whose it is, and the hash of the password that began it.
    pub(crate) fn use_it(&mut self, id: &str, now_ns: u64) -> Option<(Visitor, String)> {
        let digest = digest_of(id);
        if self.open.get(&digest)?.is_over(now_ns) {
            self.open.remove(&digest);
            return None;
        }
        let session = self.open.get_mut(&digest)?;
        session.used_ns = now_ns;
        Some((session.visitor.clone(), session.hash.clone()))
    }

    /// Ends a session.
    pub(crate) fn end(&mut self, id: &str) {
        self.open.remove(&digest_of(id));
    }

    /// Ends a session, if the token is its own.
    pub(crate) fn end_with(&mut self, id: &str, token: &str) {
        let digest = digest_of(id);
        if self.open.get(&digest).is_some_and(|session| is_same(&session.visitor.token, token)) {
            self.open.remove(&digest);
        }
    }
}

/// Whether a change names the token of its session.
pub(crate) fn is_token(visitor: &Visitor, given: Option<&str>) -> bool {
    given.is_some_and(|given| is_same(&visitor.token, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;

    fn begun(sessions: &mut Sessions, user: &str, now_ns: u64) -> String {
        sessions.begin(user, "hash".to_owned(), now_ns)
    }

    #[test]
    fn a_session_is_known_by_its_name_until_it_ends() {
        let mut sessions = Sessions::default();
        let (one, other) = (begun(&mut sessions, "ann", 0), begun(&mut sessions, "ben", 0));
        let (visitor, hash) = sessions.use_it(&one, 1).expect("it has begun");
        assert_eq!((visitor.user.as_str(), hash.as_str()), ("ann", "hash"));
        assert!(one != other && one.len() == 64 && one != visitor.token);
        assert!(is_token(&visitor, Some(&visitor.token)) && !is_token(&visitor, None) && !is_token(&visitor, Some("")));
        for strange in ["", "x", &one[1..], &visitor.token] {
            assert!(sessions.use_it(strange, 1).is_none(), "{strange}");
        }
        let token = sessions.use_it(&other, 1).expect("it has begun").0.token;
        sessions.end_with(&one, &token);
        assert!(sessions.use_it(&one, 1).is_some(), "the token was another one's");
        sessions.end_with(&one, &visitor.token);
        assert!(sessions.use_it(&one, 1).is_none() && sessions.use_it(&other, 1).is_some());
        sessions.end(&other);
        assert!(sessions.use_it(&other, 1).is_none());
    }

    #[test]
    fn a_session_that_is_not_used_ends_and_so_does_one_that_is() {
        let mut sessions = Sessions::default();
        let idle = begun(&mut sessions, "ann", 0);
        let used = begun(&mut sessions, "ann", 0);
        assert!((0..72).all(|tens| sessions.use_it(&used, tens * 10 * MINUTE_NS).is_some()), "for twelve hours");
        assert!(sessions.use_it(&used, 720 * MINUTE_NS).is_none());
        assert!(sessions.use_it(&idle, 30 * MINUTE_NS).is_none());
        assert!(sessions.open.is_empty());
    }

    #[test]
    fn there_are_not_many() {
        let mut sessions = Sessions::default();
        let first = begun(&mut sessions, "ann", 0);
        let second = begun(&mut sessions, "ann", 1);
        assert!(sessions.use_it(&first, 2).is_some());
        for number in 0..15 {
            begun(&mut sessions, "ann", 3 + number);
        }
        assert!(sessions.use_it(&first, 20).is_some() && sessions.use_it(&second, 20).is_none(), "used last");
        for number in 0..2_000u64 {
            begun(&mut sessions, &format!("role{}", number / 4), 100 + number);
            assert!(sessions.open.len() <= MAX_SESSIONS);
        }
    }
}
