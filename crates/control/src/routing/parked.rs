//! Parked requests, which wait until the leader of their tablet is known.
//!
//! Always true: none of them was carried out; count and bytes are bounded. While no leader of a tablet is known, one
//! request at a time is sent as a probe, and the others wait for its outcome: an election costs a few messages, however
//! many requests wait.

use super::flight::Limits;
use super::request::{Request, Work};
use diorite_base::{NodeId, TabletId};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Group<W> {
    requests: Vec<Request<W>>,
    /// The node that refused the last probe.
    refused_by: Option<NodeId>,
}

/// Which of a tablet's requests to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    All,
    /// One, as a probe.
    One,
}

/// See the top of this module.
#[derive(Debug)]
pub(super) struct Parked<W> {
    limits: Limits,
    /// Ordered, so that the same inputs give the same steps.
    groups: BTreeMap<TabletId, Group<W>>,
    count: usize,
    bytes: usize,
}

impl<W: Work> Parked<W> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, groups: BTreeMap::new(), count: 0, bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether a request for the tablet has to wait behind others.
    pub(super) fn must_wait(&self, tablet: TabletId, known_leader: Option<NodeId>) -> bool {
        if self.count == 0 {
            return false;
        }
        let Some(group) = self.groups.get(&tablet) else { return false };
        known_leader.is_none() || known_leader == group.refused_by
    }

    /// Parks a request; returns it if too many are parked.
    pub(super) fn add(&mut self, mut request: Request<W>) -> Result<(), Request<W>> {
        let size_bytes = request.work.size_bytes();
        if self.count >= self.limits.requests || self.bytes + size_bytes > self.limits.bytes {
            return Err(request);
        }
        self.count += 1;
        self.bytes += size_bytes;
        let refused_by = request.waits();
        let empty = || Group { requests: Vec::new(), refused_by: None };
        let group = self.groups.entry(request.tablet).or_insert_with(empty);
        group.refused_by = refused_by.or(group.refused_by);
        group.requests.push(request);
        Ok(())
    }

    /// Removes and returns those whose deadline has passed.
    pub(super) fn take_expired(&mut self, now_ns: u64) -> Vec<Request<W>> {
        let mut taken = Vec::new();
        for group in self.groups.values_mut() {
            taken.extend(group.requests.extract_if(.., |request| request.deadline_ns <= now_ns));
        }
        self.groups.retain(|_, group| !group.requests.is_empty());
        self.count_out(&taken);
        taken
    }

    /// The tablets with parked requests.
    pub(super) fn tablets(&self) -> Vec<TabletId> {
        self.groups.keys().copied().collect()
    }

    /// Whether requests are parked for the tablet, and which node refused their last probe.
    pub(super) fn refused_by(&self, tablet: TabletId) -> Option<Option<NodeId>> {
        self.groups.get(&tablet).map(|group| group.refused_by)
    }

    /// Removes and returns requests of a tablet.
    pub(super) fn release(&mut self, tablet: TabletId, release: Release) -> Vec<Request<W>> {
        let Some(group) = self.groups.get_mut(&tablet) else { return Vec::new() };
        let taken: Vec<Request<W>> = match release {
            Release::All => std::mem::take(&mut group.requests),
            Release::One => group.requests.drain(..1.min(group.requests.len())).collect(),
        };
        if group.requests.is_empty() {
            self.groups.remove(&tablet);
        }
        self.count_out(&taken);
        taken
    }

    fn count_out(&mut self, taken: &[Request<W>]) {
        self.bytes -= taken.iter().map(|request| request.work.size_bytes()).sum::<usize>();
        self.count -= taken.len();
    }
}
