//! The other nodes: which are up, which support this one, and what their clocks say.

pub(crate) mod clocks;
pub(crate) mod liveness;
