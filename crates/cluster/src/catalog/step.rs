//! The result of a command on the snapshot that it changes.

use super::outcome::Rejection;
use diorite_base::NodeId;
use diorite_base::limits::Exceeded;

/// The reason for which a command is rejected.
pub(super) struct Rejected(pub Rejection, pub String);

/// The effect of a command that was not rejected.
pub(super) enum Done {
    Changed,
    Registered(NodeId),
    Nothing,
}

pub(super) type Step = Result<Done, Rejected>;

impl From<Exceeded> for Rejected {
    fn from(error: Exceeded) -> Self {
        Rejected(Rejection::Invalid, error.to_string())
    }
}
