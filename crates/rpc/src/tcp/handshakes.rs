//! The connections whose handshake is under way: how many there may be, and which of them ends if there are too many.
//!
//! Always true: connections from addresses of members are counted apart from all others, so that strangers cannot keep
//! members out. A connection over the limit, in all or from its address, takes the place of the oldest one: a node
//! sends its hello at once, so a connection that is silent for long is not a node's. A connection that was admitted as
//! a member's keeps its place. Left out: how long each handshake may take (its own time limit).

use diorite_base::connections::{ConnectionLimits, Connections, LogLimit, Source};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// The limits for strangers. Nodes that share an address which the members do not know yet open a connection for each
/// lane.
const STRANGERS: ConnectionLimits = ConnectionLimits { total: 256, per_source: 64 };
/// The limits for addresses of members.
const MEMBERS: ConnectionLimits = ConnectionLimits { total: 4_096, per_source: 64 };

/// The connections whose handshake is under way.
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

    /// Whether a connection from `from` has a place without ending another one.
    pub(crate) fn has_place(&mut self, from: IpAddr, is_member: bool) -> bool {
        self.of(is_member).check(from.into()).is_ok()
    }

    /// Whether a line about an address may be logged now.
    pub(crate) fn may_log(&mut self, from: IpAddr, now_ns: u64) -> bool {
        self.log.may_log(from.into(), now_ns)
    }
}

/// The place of one handshake, until this is dropped.
pub(crate) struct Place {
    handshakes: Arc<Mutex<Handshakes>>,
    is_member: bool,
    id: u64,
}

impl Place {
    /// Takes a place for a connection, and ends the oldest one if there are too many. `None` if all of these keep their
    /// places.
    pub(crate) fn take(all: &Arc<Mutex<Handshakes>>, from: IpAddr, is_member: bool) -> Option<Self> {
        let mut handshakes = all.lock();
        let connections = handshakes.of(is_member);
        let source = Source::from(from);
        if let Err(too_many) = connections.check(source) {
            // The aborted task drops its place later, which is then not counted a second time.
            if let Some(abort) = connections.remove(too_many.oldest?).flatten() {
                abort.abort();
            }
        }
        let id = connections.add(source, None);
        Some(Self { handshakes: Arc::clone(all), is_member, id })
    }

    /// Sets how the connection's task is aborted. Called once the task exists; by then it may have ended.
    pub(crate) fn ends_by(all: &Mutex<Handshakes>, is_member: bool, id: u64, abort: AbortHandle) {
        if let Some(held) = all.lock().of(is_member).get_mut(id) {
            *held = Some(abort);
        }
    }

    /// The number of the place, for [`Place::ends_by`].
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The connection was admitted: from now on it keeps its place, unless it was aborted already. Aborting it during
    /// the work that follows would do harm. Returns whether it keeps the place.
    pub(crate) fn stays(&self) -> bool {
        self.handshakes.lock().of(self.is_member).stays(self.id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.handshakes.lock().of(self.is_member).remove(self.id);
    }
}
