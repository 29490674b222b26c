//! The published runs of YugabyteDB's YCQL that the scenarios follow, and Diorite's own targets.
//!
//! Always true: a published rate stands beside the cluster it was reached on; per busy vCPU-second means operations
//! divided by the vCPUs of the whole cluster and by their utilization, the nearest thing to a server-CPU-second that the
//! published numbers allow.

use serde::Serialize;

/// The published numbers that a phase is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Reference {
    /// The published rate, in words.
    pub published: &'static str,
    /// The cluster it was reached on.
    pub cluster: &'static str,
    /// Published operations per busy vCPU-second.
    pub published_per_cpu_second: Option<f64>,
    /// Diorite's target, operations per server-CPU-second.
    pub target_per_cpu_second: Option<f64>,
}

const NVME: &str = "4 × (32 vCPU, 240 GB, 4 × 1.9 TB NVMe), RF 3";
const NETWORK_SSD: &str = "4 × (16 vCPU, 30 GB, 6 TB network SSD), RF 3";
const FIFTY_NODES: &str = "50 × (16 vCPU, 60 GB, 2 × 375 GB SSD), RF 3";
const INDEXES: &str =
    "a cluster that is not described (YugabyteDB's issue 4896; if the index is not transactional 24k, five 5k)";
const BLOCKS: &str = "a cluster that is not described (YugabyteDB's issue 1910)";

/// 2.6 M reads/s ÷ 800 vCPU ÷ 65 %.
const READS_PER_CPU_SECOND: f64 = 5_000.0;
/// 1.2 M writes/s ÷ 800 vCPU ÷ 75 %, not fsynced.
const WRITES_PER_CPU_SECOND: f64 = 2_000.0;
const READ_TARGET: f64 = 150_000.0;

/// Diorite's target for fsynced writes, by replication factor.
fn write_target(replication: u32) -> f64 {
    if replication > 1 { 40_000.0 } else { 100_000.0 }
}

/// 30 billion records loaded in 4.4 days.
pub fn load(replication: u32) -> Reference {
    Reference {
        published: "85k inserts/s, 2.5 ms",
        cluster: NVME,
        published_per_cpu_second: Some(WRITES_PER_CPU_SECOND),
        target_per_cpu_second: Some(write_target(replication)),
    }
}

/// Reads of any of 30 billion records.
pub fn random_read() -> Reference {
    Reference {
        published: "185k reads/s + 1k writes/s",
        cluster: NVME,
        published_per_cpu_second: Some(READS_PER_CPU_SECOND),
        target_per_cpu_second: Some(READ_TARGET),
    }
}

/// Reads of a hot subset.
pub fn recent_read() -> Reference {
    Reference { published: "385k reads/s + 6.5k writes/s", ..random_read() }
}

/// Overwrites, compaction going on.
pub fn write_heavy(replication: u32) -> Reference {
    Reference { published: "20–25k writes/s, 3–4 ms", cluster: NETWORK_SSD, ..load(replication) }
}

/// A fifth node for 26 TB, copies limited to 200 MB/s.
pub fn add_node() -> Reference {
    Reference { published: "4 → 5 nodes, 26 TB in about 8 h at 200 MB/s", cluster: NVME, ..Reference::default() }
}

/// The loss of one of five nodes.
pub fn lose_node() -> Reference {
    Reference { published: "5 → 4 nodes, rebalanced in 2 h 10 min", cluster: NVME, ..Reference::default() }
}

/// Point reads in memory.
pub fn point_read() -> Reference {
    Reference { published: "2.6M reads/s, 65 % CPU", cluster: FIFTY_NODES, ..random_read() }
}

/// Inserts of small rows.
pub fn point_write(replication: u32) -> Reference {
    Reference { published: "1.2M writes/s, 3.1 ms, 75 % CPU, not fsynced", cluster: FIFTY_NODES, ..load(replication) }
}

/// Inserts into a table with secondary indexes, which are transactions there.
pub fn indexed_write() -> Reference {
    Reference { published: "7.5k writes/s; with five indexes 2.1k", cluster: INDEXES, ..Reference::default() }
}

/// CassandraTransactionalKeyValue: transaction blocks of two rows.
pub fn transaction() -> Reference {
    Reference { published: "about 3k transactions/s, 40 ms", cluster: BLOCKS, ..Reference::default() }
}
