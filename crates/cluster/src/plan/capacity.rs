//! Disk, memory and throughput, by arithmetic.
//!
//! Always true: numbers per node are for the fullest one, with data spread evenly; throughput is what the scarcer of
//! processors and disks allows at the given utilization. Reads are of any row with equal probability, so the cache's
//! hit rate is its share of the data.

use super::costs::{
    DISK_READS_PER_READ, FILTER_BITS_PER_ROW, INDEX_BYTES_PER_BLOCK, ROWS_PER_BLOCK, SPACE_AMPLIFICATION,
    TABLET_MEMORY_BYTES,
};
use super::question::{Question, TABLETS_PER_NODE};
use serde::Serialize;

/// The resources that nodes need. All but `rows` and the replicas are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capacity {
    /// Rows, counted once.
    pub rows: u64,
    /// Tablets in all.
    pub tablets: u32,
    /// Tablet replicas per node.
    pub replicas_per_node: u32,
    /// The data on a node.
    pub data_bytes_per_node: u64,
    /// The disk that a node needs, compactions included.
    pub disk_bytes_per_node: u64,
    /// As `disk_bytes_per_node`, after the others have taken over one node's data; `None` if there would be too few
    /// nodes.
    pub disk_bytes_per_node_after_loss: Option<u64>,
    /// A node's bloom filters.
    pub filter_bytes_per_node: u64,
    /// A node's indexes.
    pub index_bytes_per_node: u64,
    /// The memory of its idle tablets.
    pub tablet_memory_bytes_per_node: u64,
    /// The memory limit with which filters and indexes stay in the block cache, so that a read goes to disk for one block.
    pub memory_bytes_per_node: u64,
}

/// The cluster's operations per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// The part of random reads that the block cache answers.
    pub cached_share: f64,
    /// Reads of a part of the data that the cache holds.
    pub cached_reads_per_second: f64,
    /// Reads of any row.
    pub random_reads_per_second: f64,
    /// Whether disks, not processors, limit those.
    pub reads_are_disk_bound: bool,
    /// Writes, fsynced on a quorum.
    pub writes_per_second: f64,
    /// Operations of the wanted mix.
    pub mixed_per_second: f64,
    /// The number of nodes for the wanted operations, if given.
    pub nodes_for_operations: Option<u32>,
}

pub(super) fn capacity(question: &Question) -> Capacity {
    let per_node = |bytes: u64, nodes: u32| bytes.div_ceil(u64::from(nodes));
    let tablets = question.tablets.unwrap_or(question.nodes * TABLETS_PER_NODE);
    let data = per_node(question.data_bytes, question.nodes);
    let with_compaction = |bytes: u64| (bytes as f64 * SPACE_AMPLIFICATION) as u64;
    let rows_per_node = data / question.load.row_bytes;
    let filters = (rows_per_node as f64 * FILTER_BITS_PER_ROW / 8.0) as u64;
    let indexes = (rows_per_node as f64 / ROWS_PER_BLOCK * INDEX_BYTES_PER_BLOCK) as u64;
    let replicas = (u64::from(tablets) * u64::from(question.replication)).div_ceil(u64::from(question.nodes));
    let tablet_memory = replicas * TABLET_MEMORY_BYTES;
    let rest = question.nodes - 1;
    Capacity {
        rows: question.data_bytes / question.load.row_bytes / u64::from(question.replication),
        tablets,
        replicas_per_node: u32::try_from(replicas).unwrap_or(u32::MAX),
        data_bytes_per_node: data,
        disk_bytes_per_node: with_compaction(data),
        disk_bytes_per_node_after_loss: (rest >= question.replication)
            .then(|| with_compaction(per_node(question.data_bytes, rest))),
        filter_bytes_per_node: filters,
        index_bytes_per_node: indexes,
        tablet_memory_bytes_per_node: tablet_memory,
        // Half of the memory is block cache; tablets are in the other half.
        memory_bytes_per_node: 2 * (filters + indexes).max(tablet_memory),
    }
}

pub(super) fn throughput(question: &Question, capacity: &Capacity) -> Throughput {
    let costs = &question.load.costs;
    let cores = f64::from(question.nodes) * f64::from(question.node.cores_per_node) * question.node.processor_use;
    let per_second = |cost_us: f64| cores * 1e6 / cost_us;
    let memory = question.node.memory_bytes_per_node.unwrap_or(capacity.memory_bytes_per_node);
    let metadata = capacity.filter_bytes_per_node + capacity.index_bytes_per_node;
    let cache = (memory / 2).saturating_sub(metadata) as f64;
    let cached_share = (cache / capacity.data_bytes_per_node.max(1) as f64).min(1.0);
    let read_us = costs.cached_read_us * cached_share + costs.disk_read_us * (1.0 - cached_share);
    let disks = f64::from(question.nodes) * costs.disk_reads_per_second as f64;
    let disk_reads = if cached_share < 1.0 { disks / (DISK_READS_PER_READ * (1.0 - cached_share)) } else { f64::MAX };
    let random_reads = per_second(read_us).min(disk_reads);
    let writes = per_second(costs.replicated_write_us(question.replication));
    let write_share = question.load.write_share;
    let mixed_us = read_us * (1.0 - write_share) + costs.replicated_write_us(question.replication) * write_share;
    let mixed_disk = if write_share < 1.0 { disk_reads / (1.0 - write_share) } else { f64::MAX };
    let mixed = per_second(mixed_us).min(mixed_disk);
    let per_node = mixed / f64::from(question.nodes);
    Throughput {
        cached_share,
        cached_reads_per_second: per_second(costs.cached_read_us),
        random_reads_per_second: random_reads,
        reads_are_disk_bound: disk_reads < per_second(read_us),
        writes_per_second: writes,
        mixed_per_second: mixed,
        nodes_for_operations: question
            .load
            .operations_per_second
            .map(|wanted| ((wanted as f64 / per_node).ceil() as u32).max(question.replication)),
    }
}

pub(super) fn warnings(question: &Question, capacity: &Capacity, throughput: &Throughput) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(disk) = question.node.disk_bytes_per_node {
        if disk < capacity.disk_bytes_per_node {
            warnings.push("the disks are too small for the data and its compactions".to_owned());
        } else if capacity.disk_bytes_per_node_after_loss.is_some_and(|needed| disk < needed) {
            warnings.push("the disks are too small for the others to take over from a node that is lost".to_owned());
        }
    }
    if question.node.memory_bytes_per_node.is_some_and(|memory| memory < capacity.memory_bytes_per_node) {
        warnings
            .push("the memory does not hold all filters and indexes: some reads go to disk more than once".to_owned());
    }
    if capacity.disk_bytes_per_node_after_loss.is_none() && question.replication > 1 {
        warnings.push(
            "when a node is lost there are fewer nodes than replicas: tablets stay one replica short until it is replaced"
                .to_owned(),
        );
    }
    if throughput.nodes_for_operations.is_some_and(|needed| needed > question.nodes) {
        warnings.push("the nodes are too few for the wanted operations per second".to_owned());
    }
    warnings
}
