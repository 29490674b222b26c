//! Requests that wait for a leader to be known, by tablet.
//!
//! Always true: nothing was done with any of them; count and bytes are bounded. While nobody is known to lead a tablet one request at a time
//! is sent as a probe, and the others wait for what becomes of it: an election costs a few messages, however many wait.

use super::RouteLimits;
use super::request::Request;
use ahash::AHashMap;
use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
struct Group {
    requests: Vec<Request>,
    /// Who refused the last probe.
    refused_by: Option<NodeId>,
}

#[derive(Default)]
struct State {
    groups: AHashMap<TabletId, Group>,
    bytes: usize,
}

/// What is to be done with the requests of a tablet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    All,
    /// One, as a probe.
    One,
}

/// See the top of this module.
#[derive(Default)]
pub(super) struct Parked {
    /// Requests in `state`, readable without its lock.
    count: AtomicUsize,
    state: Mutex<State>,
}

impl Parked {
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether a request for the tablet has to wait behind others that do.
    pub(super) fn must_wait(&self, tablet: TabletId, known_leader: Option<NodeId>) -> bool {
        if self.len() == 0 {
            return false;
        }
        let state = self.state.lock();
        let Some(group) = state.groups.get(&tablet) else { return false };
        known_leader.is_none() || known_leader == group.refused_by
    }

    /// Takes a request in; gives it back if too many wait.
    pub(super) fn add(&self, mut request: Request, limits: &RouteLimits) -> Result<(), Request> {
        let size_bytes = request.size_bytes();
        let mut state = self.state.lock();
        if self.len() >= limits.requests || state.bytes + size_bytes > limits.bytes {
            return Err(request);
        }
        request.attempts = 0;
        request.rounds += 1;
        state.bytes += size_bytes;
        let group = state.groups.entry(request.tablet).or_default();
        group.refused_by = request.refused_by.take().or(group.refused_by);
        group.requests.push(request);
        self.count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Takes out what `is_over` says about.
    pub(super) fn take(&self, is_over: impl Fn(&Request) -> bool) -> Vec<Request> {
        let mut taken = Vec::new();
        let mut state = self.state.lock();
        for group in state.groups.values_mut() {
            taken.extend(group.requests.extract_if(.., |request| is_over(request)));
        }
        state.groups.retain(|_, group| !group.requests.is_empty());
        self.taken(&mut state, &taken);
        taken
    }

    /// The tablets that are waited for, and who refused the last probe of each.
    pub(super) fn tablets(&self) -> Vec<(TabletId, Option<NodeId>)> {
        self.state.lock().groups.iter().map(|(tablet, group)| (*tablet, group.refused_by)).collect()
    }

    /// Takes out requests of a tablet.
    pub(super) fn release(&self, tablet: TabletId, release: Release) -> Vec<Request> {
        let mut state = self.state.lock();
        let Some(group) = state.groups.get_mut(&tablet) else { return Vec::new() };
        let taken = match release {
            Release::All => std::mem::take(&mut group.requests),
            Release::One => group.requests.drain(..1.min(group.requests.len())).collect(),
        };
        if group.requests.is_empty() {
            state.groups.remove(&tablet);
        }
        self.taken(&mut state, &taken);
        taken
    }

    fn taken(&self, state: &mut State, taken: &[Request]) {
        state.bytes -= taken.iter().map(|request| request.size_bytes()).sum::<usize>();
        self.count.fetch_sub(taken.len(), Ordering::SeqCst);
    }
}
