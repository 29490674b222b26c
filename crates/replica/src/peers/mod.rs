//! The other nodes: which are up, which support this one, and their clocks.

pub(crate) mod clocks;
pub(crate) mod liveness;
pub(crate) mod wire;
