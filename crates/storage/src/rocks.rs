//! The storage engine of a node: RocksDB and raft-engine.

use crate::engine::Engine;
use crate::raft_log::RaftLog;
use crate::tablet::Tablet;

/// RocksDB for the tablets, raft-engine for the log.
#[derive(Clone, Copy, Debug)]
pub struct Rocks;

impl Engine for Rocks {
    type Tablet = Tablet;
    type Log = RaftLog;
}
