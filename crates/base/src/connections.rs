//! Limits on the connections of a port, in all and from one source, and on log lines about them.
//!
//! Always true: the state kept here is bounded, however many clients connect and from wherever. Left out: sockets, and
//! what happens to a connection that exceeds the limits (its port decides: it is refused, or the oldest of the source
//! is closed for it).

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// The source of connections: an IPv4 address, or the /64 network of an IPv6 address, as each customer has a whole
/// network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
            address => address,
        })
    }
}

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// For all sources together.
    pub total: usize,
    /// For one source.
    pub per_source: usize,
}

/// One more connection would exceed the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// The oldest connection of the source that has the most (of the new connection's own source, if that exceeds its
    /// limit). It could be closed for the new one.
    pub oldest: Option<u64>,
}

struct Open<T> {
    source: Source,
    may_make_room: bool,
    held: T,
}

/// The open connections, oldest first.
pub struct Connections<T> {
    limits: ConnectionLimits,
    next_id: u64,
    open: BTreeMap<u64, Open<T>>,
    by_source: HashMap<Source, usize>,
}

impl<T> Connections<T> {
    /// No connections.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, next_id: 0, open: BTreeMap::new(), by_source: HashMap::new() }
    }

    /// Whether one more connection is within the limits.
    pub fn check(&self, source: Source) -> Result<(), TooMany> {
        let count = self.by_source.get(&source).copied().unwrap_or_default();
        let crowd = if count >= self.limits.per_source {
            Some(source)
        } else if self.open.len() >= self.limits.total {
            self.by_source.iter().max_by_key(|(source, count)| (**count, **source)).map(|(source, _)| *source)
        } else {
            return Ok(());
        };
        let mut of_crowd = self.open.iter().filter(|(_, open)| Some(open.source) == crowd && open.may_make_room);
        Err(TooMany { oldest: of_crowd.next().map(|(id, _)| *id) })
    }

    /// Adds a connection, even beyond the limits. It may be closed for a newer one.
    pub fn add(&mut self, source: Source, held: T) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.open.insert(id, Open { source, may_make_room: true, held });
        *self.by_source.entry(source).or_default() += 1;
        id
    }

    /// The state of a connection.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.open.get_mut(&id).map(|open| &mut open.held)
    }

    /// Excludes a connection from being closed for others; returns whether it is still open.
    pub fn stays(&mut self, id: u64) -> bool {
        let open = self.open.get_mut(&id);
        open.map(|open| open.may_make_room = false).is_some()
    }

    /// Removes a connection that has ended.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let open = self.open.remove(&id)?;
        if let Some(count) = self.by_source.get_mut(&open.source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&open.source);
            }
        }
        Some(open.held)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// Limits the log to one line per source and minute.
#[derive(Debug, Default)]
pub struct LogLimit {
    /// When the last line was logged, on the monotonic clock.
    logged_ns: HashMap<Source, u64>,
}

impl LogLimit {
    /// The most sources that are remembered. While that many have had a line within the last minute, no line about
    /// another source is logged.
    const SOURCES: usize = 1_024;
    const MINUTE_NS: u64 = 60_000_000_000;

    /// Whether a line about a source may be logged now.
    pub fn may_log(&mut self, source: Source, now_ns: u64) -> bool {
        let is_recent = |logged_ns: u64| now_ns.saturating_sub(logged_ns) < Self::MINUTE_NS;
        if self.logged_ns.get(&source).is_some_and(|logged_ns| is_recent(*logged_ns)) {
            return false;
        }
        if self.logged_ns.len() >= Self::SOURCES {
            self.logged_ns.retain(|_, logged_ns| is_recent(*logged_ns));
        }
        let may = self.logged_ns.len() < Self::SOURCES || self.logged_ns.contains_key(&source);
        if may {
            self.logged_ns.insert(source, now_ns);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(last: u8) -> Source {
        Source::from(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn a_source_is_an_address_or_a_network_of_the_newer_kind() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(of("::ffff:10.0.0.1"), source(1));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn the_oldest_of_a_source_that_has_too_many_could_make_room() {
        let mut connections = Connections::new(ConnectionLimits { total: 5, per_source: 3 });
        let ids: Vec<u64> = (0..3).map(|_| connections.add(source(1), ())).collect();
        assert_eq!(connections.check(source(1)), Err(TooMany { oldest: Some(ids[0]) }));
        assert!(connections.stays(ids[0]));
        assert_eq!(connections.check(source(1)), Err(TooMany { oldest: Some(ids[1]) }));
        assert_eq!(connections.check(source(2)), Ok(()));
        connections.add(source(2), ());
        connections.add(source(3), ());
        assert_eq!(connections.check(source(4)), Err(TooMany { oldest: Some(ids[1]) }), "of those who have the most");
        connections.remove(ids[1]);
        assert_eq!((connections.check(source(1)), connections.check(source(4))), (Ok(()), Ok(())));
        assert_eq!(ids.iter().map(|id| connections.stays(*id)).collect::<Vec<_>>(), [true, false, true]);
        let last = connections.add(source(1), ());
        assert!(connections.stays(last));
        assert_eq!(connections.check(source(1)), Err(TooMany { oldest: None }));
    }

    #[test]
    fn a_line_per_source_and_minute_is_logged_and_few_sources_are_remembered() {
        let mut limit = LogLimit::default();
        let second = 1_000_000_000;
        let logged = |limit: &mut LogLimit, n: u32, at| limit.may_log(Source::from(IpAddr::from(n.to_be_bytes())), at);
        assert!(logged(&mut limit, 1, 0) && !logged(&mut limit, 1, 59 * second) && logged(&mut limit, 1, 60 * second));
        let lines = (0..5_000).filter(|n| logged(&mut limit, *n, 70 * second)).count();
        assert_eq!(lines, LogLimit::SOURCES - 1);
        assert_eq!(limit.logged_ns.len(), LogLimit::SOURCES);
        assert!(logged(&mut limit, 9_999, 130 * second), "those before are forgotten");
    }

    proptest! {
        #[test]
        fn whoever_asks_first_keeps_both_limits(from in proptest::collection::vec((0u8..6, any::<bool>()), 0..200)) {
            let limits = ConnectionLimits { total: 12, per_source: 4 };
            let mut connections = Connections::new(limits);
            for (from, makes_room) in from {
                match connections.check(source(from)) {
                    Ok(()) => {}
                    Err(TooMany { oldest: Some(oldest) }) if makes_room => {
                        connections.remove(oldest).expect("it is open");
                        prop_assert_eq!(connections.check(source(from)), Ok(()));
                    }
                    Err(_) => continue,
                }
                connections.add(source(from), ());
                prop_assert!(connections.len() <= limits.total);
                prop_assert!(connections.by_source.values().all(|count| *count <= limits.per_source));
                prop_assert_eq!(connections.by_source.values().sum::<usize>(), connections.len());
            }
        }
    }
}
