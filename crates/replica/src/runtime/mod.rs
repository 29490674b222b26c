//! The threads of a store: those that run the groups and write the logs, and those for background work.

pub(crate) mod compaction;
pub(crate) mod core;
pub(crate) mod departed;
pub(crate) mod disk_watch;
pub(crate) mod flush_rate;
pub(crate) mod heartbeats;
pub(crate) mod hosting;
pub(crate) mod incoming;
pub(crate) mod log_reads;
pub(crate) mod measurements;
pub(crate) mod memory_gate;
pub(crate) mod queue;
pub(crate) mod scrub;
pub(crate) mod store;
pub(crate) mod store_control;
pub(crate) mod upkeep;
pub(crate) mod worker;
