//! The measured costs of operations; each constant names the report under `benches/results` that it comes from.
//!
//! Always true: costs are processor seconds of all servers together, with rows of 50 + 256 bytes, 64 reads or 256 writes in flight, and every
//! acknowledged write fsynced on a quorum (`--durability fsync`, the default). The machine: 2 cores of an Intel Xeon under KVM, client and servers on the same cores,
//! no network between nodes. Newer measurements replace the numbers here.

use super::error::PlanError;
use serde::Serialize;

/// Strong reads from the block cache per server-CPU-second, three nodes, a tablet-aware client: `2026-11-21-point-rf3-tablet-aware.json`, `point-read`.
const CACHED_READS_PER_CPU_SECOND: f64 = 143_274.0;

/// The same where data comes from outside the block cache: `2026-11-21-large-dataset.json`, `random-read-heavy` (98 % reads).
const DISK_READS_PER_CPU_SECOND: f64 = 40_237.0;

/// Writes per server-CPU-second on one node, fsynced: `2026-11-21-point.json`, `point-insert`.
const WRITES_ONE_REPLICA_PER_CPU_SECOND: f64 = 177_860.0;

/// Writes per server-CPU-second of three nodes together, fsynced on a quorum: `2026-11-21-point-rf3-tablet-aware.json`, `point-insert`.
const WRITES_THREE_REPLICAS_PER_CPU_SECOND: f64 = 31_357.0;

/// Bytes on disk per row of 50 + 256 bytes: `2026-11-21-large-dataset.json`, `load` (1,607,097,050 bytes of SSTables, 6,000,000 rows).
pub const ROW_BYTES: u64 = 268;

/// Random reads of 4 KiB per second that the disks of a node do: 99,000 at a depth of 32 on the machine of the measurements.
const DISK_READS_PER_SECOND: u64 = 99_000;

/// Disk reads per random read beyond the cache: the target, as filters and indexes are cached.
pub const DISK_READS_PER_READ: f64 = 1.02;

/// Bits per row of a bloom filter (`--bloom-bits`).
pub const FILTER_BITS_PER_ROW: f64 = 12.0;

/// Rows per data block: 4 KiB of rows of 50 + 256 bytes and what a row's key and header add.
pub const ROWS_PER_BLOCK: f64 = 12.5;

/// Bytes of index per data block: keys begin with tokens, which tell neighbours apart in about 8 bytes, and the place of the block takes as many.
pub const INDEX_BYTES_PER_BLOCK: f64 = 20.0;

/// Memory of an idle tablet replica: an upper bound that tests enforce.
pub const TABLET_MEMORY_BYTES: u64 = 256 << 10;

/// How much more than its live size a tablet may take before it is compacted as a whole (`--space-amplification` 25).
pub const SPACE_AMPLIFICATION: f64 = 1.25;

/// Costs per operation, in microseconds of processor time over all replicas, and the throughput of disks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// A strong read from the block cache.
    pub cached_read_us: f64,
    /// A strong read from disk.
    pub disk_read_us: f64,
    /// A write at its leader.
    pub write_us: f64,
    /// The addition for each further replica.
    pub write_per_follower_us: f64,
    /// Random reads per second of a node's disks.
    pub disk_reads_per_second: u64,
}

impl Default for Costs {
    fn default() -> Self {
        let write_us = 1e6 / WRITES_ONE_REPLICA_PER_CPU_SECOND;
        Self {
            cached_read_us: 1e6 / CACHED_READS_PER_CPU_SECOND,
            disk_read_us: 1e6 / DISK_READS_PER_CPU_SECOND,
            write_us,
            write_per_follower_us: (1e6 / WRITES_THREE_REPLICAS_PER_CPU_SECOND - write_us) / 2.0,
            disk_reads_per_second: DISK_READS_PER_SECOND,
        }
    }
}

impl Costs {
    /// The cost of a write with this many replicas.
    pub fn replicated_write_us(&self, replication: u32) -> f64 {
        self.write_us + self.write_per_follower_us * f64::from(replication.saturating_sub(1))
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        let costs = [self.cached_read_us, self.disk_read_us, self.write_us];
        let are_costs = costs.iter().all(|cost| *cost > 0.0 && cost.is_finite());
        if are_costs && self.write_per_follower_us >= 0.0 && self.disk_reads_per_second > 0 {
            return Ok(());
        }
        Err(PlanError::OutOfRange { what: "a cost per operation", range: "more than 0".to_owned() })
    }
}
