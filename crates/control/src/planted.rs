//! Bugs that tests and the simulation plant, to test that their checks find them. Without the feature `planted-bugs`
//! they can be planted only in tests of this crate.

/// The bugs that can be planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// A member that has joined is sent no heartbeats.
    pub forget_heartbeat_target: bool,
    /// A node that was away is ready before its copy of the catalog has caught up.
    pub ready_too_early: bool,
    /// The actions for a placement are repeated after they were undone.
    pub place_twice: bool,
    /// A change is answered before the other nodes serve it.
    pub serve_stale_catalog: bool,
    /// A node that was removed keeps its vote in the catalog's group.
    pub keep_retired_voter: bool,
    /// Parked requests stay parked when a leader is known.
    pub parked_never_woken: bool,
    /// A write with an unknown outcome is sent again.
    pub resend_unknown: bool,
    /// The level is raised although a member is down.
    pub raise_over_members_that_are_down: bool,
    /// The level is raised by itself although an operator holds it.
    pub raise_although_held: bool,
}

impl Planted {
    /// These bugs, if this build can plant them; otherwise none.
    #[must_use]
    pub fn allowed(self) -> Self {
        if cfg!(any(test, feature = "planted-bugs")) {
            // A marker in binaries that can plant bugs; `.ci/run` searches released binaries for it.
            std::hint::black_box("diorite-with-planted-bugs");
            self
        } else {
            Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_have_the_bugs_that_they_ask_for_and_no_others() {
        let planted = Planted { ready_too_early: true, ..Planted::default() };
        assert_eq!(planted.allowed(), planted);
        assert_eq!(Planted::default().allowed(), Planted::default());
    }
}
