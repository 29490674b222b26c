//! The connections whose handshake is going on: how many there may be, and which one makes room.
//!
//! Always true: connections from addresses of members are counted apart from all others, so that strangers cannot keep members out; who comes from the same address as too many
//! others, or is one too many, takes the place of the oldest of them: a node says hello at once, and whoever says nothing for long is none. One
//! that was let in as a member makes room for nobody. Left out: how long each may take (its own time limit).

use diorite_base::connections::{ConnectionLimits, Connections, LogLimit, Source};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Of strangers. Nodes that share an address, which the members do not know yet, open a connection for each lane.
const STRANGERS: ConnectionLimits = ConnectionLimits { total: 256, per_source: 64 };
/// Of addresses of members.
const MEMBERS: ConnectionLimits = ConnectionLimits { total: 4_096, per_source: 64 };

/// See the top of this module.
pub(crate) struct Handshakes {
    strangers: Connections<Option<AbortHandle>>,
    members: Connections<Option<AbortHandle>>,
    log: LogLimit,
}

impl Default for Handshakes {
    fn default() -> Self {
        let (strangers, members) = (Connections::new(STRANGERS), Connections::new(MEMBERS));
        Self { strangers, members, log: LogLimit::default() }
    }
}

impl Handshakes {
    fn of(&mut self, is_member: bool) -> &mut Connections<Option<AbortHandle>> {
        if is_member { &mut self.members } else { &mut self.strangers }
    }

    /// Whether one from there has a place without another's making room.
    pub(crate) fn has_place(&mut self, from: IpAddr, is_member: bool) -> bool {
        self.of(is_member).check(from.into()).is_ok()
    }

    /// Whether a line about an address may be logged now.
    pub(crate) fn may_log(&mut self, from: IpAddr, now_ns: u64) -> bool {
        self.log.may_log(from.into(), now_ns)
    }
}

/// The place of one handshake, until it is dropped.
pub(crate) struct Place {
    handshakes: Arc<Mutex<Handshakes>>,
    is_member: bool,
    id: u64,
}

impl Place {
    /// Takes a place for a connection; the oldest of too many ends. `None` if all of those are to stay.
    pub(crate) fn take(all: &Arc<Mutex<Handshakes>>, from: IpAddr, is_member: bool) -> Option<Self> {
        let mut handshakes = all.lock();
        let connections = handshakes.of(is_member);
        let source = Source::from(from);
        if let Err(too_many) = connections.check(source) {
            // Its task gives the place back later: it is not counted twice.
            if let Some(abort) = connections.remove(too_many.oldest?).flatten() {
                abort.abort();
            }
        }
        let id = connections.add(source, None);
        Some(Self { handshakes: Arc::clone(all), is_member, id })
    }

    /// How to end the connection's task. Said once the task is there; by then it may have ended.
    pub(crate) fn ends_by(all: &Mutex<Handshakes>, is_member: bool, id: u64, abort: AbortHandle) {
        if let Some(held) = all.lock().of(is_member).get_mut(id) {
            *held = Some(abort);
        }
    }

    /// What names it in [`Place::ends_by`].
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// It was let in: it makes room for nobody, unless it has already. To end in the midst of what comes now would do harm.
    pub(crate) fn stays(&self) -> bool {
        self.handshakes.lock().of(self.is_member).stays(self.id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.handshakes.lock().of(self.is_member).remove(self.id);
    }
}
