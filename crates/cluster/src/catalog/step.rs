//! How a command changes a snapshot that is being made.

use super::outcome::Rejection;
use diorite_base::NodeId;
use diorite_base::limits::Exceeded;

/// The reason a command is turned down, on its way out.
pub(super) struct Rejected(pub Rejection, pub String);

/// What a command that was not turned down did.
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
