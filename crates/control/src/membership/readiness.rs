//! Decides when a node that has started is ready to serve requests.
//!
//! Always true: a member that comes back is ready only when its copy of the catalog includes everything that was
//! acknowledged before; otherwise clients would learn that objects which they have created do not exist. Its disk may
//! not record that the last changes were committed, even those that it served. If the catalog's leader cannot be asked
//! for a while, the node serves its copy. A node that has just joined is ready only when its copy of the catalog
//! contains it and, within a timeout, the catalog's group has its wanted voters: once all nodes are ready, any one of
//! them may be lost.

use crate::planted::Planted;
use crate::replicas::Members;
use diorite_base::NodeId;
use diorite_cluster::catalog::Catalog;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a node that has just joined waits for its copy of the catalog.
pub const COPY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a node that was away waits for the current catalog before it serves its copy on disk.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a node that has just joined waits until the catalog's group has its wanted voters; after that, nodes may be
/// missing, and it serves.
const VOTERS_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to check.
pub const STEP: Duration = Duration::from_millis(20);
/// The pause between two attempts.
pub const RETRY: Duration = Duration::from_millis(200);

/// The state of a node that is not ready yet.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Its monotonic clock.
    pub now_ns: u64,
    /// The snapshot that it serves.
    pub served: &'a Catalog,
    /// The newest snapshot that it knows.
    pub newest: &'a Catalog,
    /// The voters of the catalog's group, according to its replica of the catalog.
    pub voters: Vec<NodeId>,
}

/// How up to date a node is when it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Its copy of the catalog is current.
    Current,
    /// The catalog's leader cannot be asked: its copy may be old.
    LeaderUnreachable,
    /// The catalog's group does not have all its wanted voters yet.
    VotersMissing,
}

/// The next step of a node before it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Check again after [`STEP`].
    Wait,
    /// Ask the catalog's leader for its version, and call [`Readiness::answered`].
    Ask,
    /// It is ready.
    Ready(Ready),
    /// The copy of the catalog has not arrived within [`COPY_TIMEOUT`].
    NoCopy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It was away; it asks again at this time.
    AskAt(u64),
    /// It has asked.
    Asked,
    /// It waits until it serves this version.
    CatchUp(u64),
    /// It has joined, and waits until it serves this version.
    Copy(u64),
    /// It waits for the voters of the catalog's group since this time.
    Voters(u64),
}

/// See the top of this module.
#[derive(Clone, Debug)]
pub struct Readiness {
    stage: Stage,
    since_ns: u64,
    planted: Planted,
}

impl Readiness {
    /// A member that comes back at this time.
    pub fn returning(now_ns: u64, planted: Planted) -> Self {
        Self { stage: Stage::AskAt(now_ns), since_ns: now_ns, planted: planted.allowed() }
    }

    /// A node that has just joined with this version of the catalog.
    pub fn joined(version: u64, now_ns: u64) -> Self {
        Self { stage: Stage::Copy(version), since_ns: now_ns, planted: Planted::default() }
    }

    /// The catalog's leader has answered with its version, or could not be asked.
    pub fn answered(&mut self, version: Option<u64>, now_ns: u64) {
        if self.stage == Stage::Asked {
            let again = Stage::AskAt(now_ns + RETRY.as_nanos() as u64);
            self.stage = version.map_or(again, Stage::CatchUp);
        }
    }

    /// The next step.
    pub fn look(&mut self, facts: &Facts<'_>) -> Step {
        let has_waited = |since_ns: u64, limit: Duration| facts.now_ns >= since_ns + limit.as_nanos() as u64;
        match self.stage {
            Stage::AskAt(_) | Stage::Asked | Stage::CatchUp(_) if self.planted.ready_too_early => {
                Step::Ready(Ready::Current)
            }
            Stage::CatchUp(version) if facts.served.version() >= version => Step::Ready(Ready::Current),
            Stage::AskAt(_) | Stage::Asked | Stage::CatchUp(_) if has_waited(self.since_ns, CATCH_UP_TIMEOUT) => {
                Step::Ready(Ready::LeaderUnreachable)
            }
            Stage::AskAt(at_ns) if facts.now_ns >= at_ns => {
                self.stage = Stage::Asked;
                Step::Ask
            }
            Stage::AskAt(_) | Stage::Asked | Stage::CatchUp(_) => Step::Wait,
            Stage::Copy(version) if facts.served.version() >= version => {
                self.stage = Stage::Voters(facts.now_ns);
                self.look(facts)
            }
            Stage::Copy(_) if has_waited(self.since_ns, COPY_TIMEOUT) => Step::NoCopy,
            Stage::Copy(_) => Step::Wait,
            Stage::Voters(_) if are_in_place(facts) => Step::Ready(Ready::Current),
            Stage::Voters(since_ns) if has_waited(since_ns, VOTERS_TIMEOUT) => Step::Ready(Ready::VotersMissing),
            Stage::Voters(_) => Step::Wait,
        }
    }
}

/// Whether exactly the wanted voters vote in the catalog's group, as far as this node's copy knows.
fn are_in_place(facts: &Facts<'_>) -> bool {
    let wanted = Members::of_catalog(facts.newest).unwrap_or_default().voters;
    facts.voters.iter().collect::<BTreeSet<_>>() == wanted.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    const SECOND: u64 = 1_000_000_000;

    fn facts(catalog: &Catalog, now_ns: u64, voters: std::ops::RangeInclusive<u64>) -> Facts<'_> {
        Facts { now_ns, served: catalog, newest: catalog, voters: voters.map(NodeId).collect() }
    }

    #[test]
    fn a_member_that_comes_back_serves_what_the_leader_is_at() {
        let catalog = cluster(3, 1);
        let mut readiness = Readiness::returning(0, Planted::default());
        assert_eq!(readiness.look(&facts(&catalog, 0, 1..=3)), Step::Ask);
        assert_eq!(readiness.look(&facts(&catalog, 1, 1..=3)), Step::Wait, "it has asked");
        readiness.answered(None, SECOND);
        assert_eq!(readiness.look(&facts(&catalog, SECOND + 1, 1..=3)), Step::Wait, "not at once again");
        assert_eq!(readiness.look(&facts(&catalog, 2 * SECOND, 1..=3)), Step::Ask);
        readiness.answered(Some(catalog.version() + 1), 2 * SECOND);
        assert_eq!(readiness.look(&facts(&catalog, 2 * SECOND, 1..=3)), Step::Wait, "its copy is older");
        let unreachable = Step::Ready(Ready::LeaderUnreachable);
        assert_eq!(readiness.clone().look(&facts(&catalog, 10 * SECOND, 1..=3)), unreachable);
        let newer = cluster(4, 1);
        assert_eq!(readiness.look(&facts(&newer, 3 * SECOND, 1..=3)), Step::Ready(Ready::Current));
    }

    #[test]
    fn a_node_that_has_joined_waits_for_its_copy_and_then_for_the_voters() {
        let catalog = cluster(4, 1);
        let mut readiness = Readiness::joined(catalog.version(), 0);
        assert_eq!(readiness.look(&facts(&cluster(3, 1), SECOND, 1..=3)), Step::Wait);
        assert_eq!(readiness.clone().look(&facts(&Catalog::default(), 60 * SECOND, 1..=1)), Step::NoCopy);
        assert_eq!(readiness.look(&facts(&catalog, 2 * SECOND, 1..=2)), Step::Wait, "one is to vote that does not yet");
        assert_eq!(readiness.clone().look(&facts(&catalog, 3 * SECOND, 1..=3)), Step::Ready(Ready::Current));
        assert_eq!(readiness.look(&facts(&catalog, 12 * SECOND, 1..=2)), Step::Ready(Ready::VotersMissing));
    }
}
