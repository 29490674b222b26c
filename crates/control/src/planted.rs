//! Bugs that tests and the simulation plant, to see that their checks find them. Without the feature `planted-bugs` there are none outside tests of this crate, whatever is asked for.

/// Which bugs there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// A member that has joined is sent no heartbeats.
    pub forget_heartbeat_target: bool,
    /// A node that was away is ready before its copy of the catalog has caught up.
    pub ready_too_early: bool,
    /// What a placement asks of a node is done again after it was undone.
    pub place_twice: bool,
    /// A change is answered before the other nodes serve it.
    pub serve_stale_catalog: bool,
    /// A node that was removed keeps its vote in the catalog's group.
    pub keep_retired_voter: bool,
    /// Parked requests stay parked when a leader is known.
    pub parked_never_woken: bool,
    /// A write of which nobody knows whether it was carried out is sent again.
    pub resend_unknown: bool,
}

impl Planted {
    /// None, unless this was built to have some.
    #[must_use]
    pub fn allowed(self) -> Self {
        if cfg!(any(test, feature = "planted-bugs")) {
            // In a binary that has the switches; what is released is searched for it (`.ci/run`).
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
