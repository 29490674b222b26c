//! `diorite plan`: command line in, `diorite_cluster::plan` asked, its answer printed.

use clap::Args;
use diorite_cluster::plan::{COPY_EFFICIENCY, Costs, Load, Machine, PlanError, Question, plan};
use diorite_node::Size;
use std::time::Duration;

/// Compute what a cluster needs and can do, and how long changes of it take.
///
/// The balancer of a real cluster runs on one that does not exist, and copies take the time that the rate limit gives them. Costs per operation are
/// those measured on Diorite itself, fsynced on a quorum; the guide says where they come from.
#[derive(Args)]
pub struct PlanArguments {
    /// Nodes at the start.
    #[arg(long, default_value_t = 3)]
    nodes: u32,
    /// Zones that the nodes are in, in turn.
    #[arg(long, default_value_t = 1)]
    zones: u32,
    /// Size on disk of all replicas together, such as 26TB.
    #[arg(long, value_name = "SIZE")]
    data: Size,
    /// Replicas of each tablet.
    #[arg(long, value_name = "REPLICAS", default_value_t = 3)]
    rf: u32,
    /// Tablets in all; 20 for each node if not given.
    #[arg(long)]
    tablets: Option<u32>,
    /// Rate limit of copies of replicas: what each node receives, and what it sends, per second.
    #[arg(long, value_name = "SIZE", default_value = "200MB")]
    rate: Size,
    /// Share of that rate that copies reach over hours.
    #[arg(long, value_name = "PART", default_value_t = COPY_EFFICIENCY)]
    copy_efficiency: f64,
    /// How long a node is silent before it is replaced.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = diorite_workload::arguments::parse_duration)]
    replace_after: Duration,
    /// Add this many nodes: how long until each has its share?
    #[arg(long, value_name = "NODES", default_value_t = 0)]
    add: u32,
    /// Lose this many nodes at once: how long until every tablet has all its replicas again?
    #[arg(long, value_name = "NODES", default_value_t = 0)]
    lose: u32,
    /// The disks of a node.
    #[arg(long, value_name = "SIZE")]
    disk_per_node: Option<Size>,
    /// The memory limit of a node; if not given, what it needs.
    #[arg(long, value_name = "SIZE")]
    memory_per_node: Option<Size>,
    /// The cores of a node.
    #[arg(long, value_name = "CORES", default_value_t = 16)]
    cores_per_node: u32,
    /// Share of its cores that a node uses.
    #[arg(long, value_name = "PART", default_value_t = 0.65)]
    processor_use: f64,
    /// Operations per second of the whole cluster: how many nodes does that take?
    #[arg(long, value_name = "NUMBER")]
    ops: Option<u64>,
    /// Share of them that are writes.
    #[arg(long, value_name = "PART", default_value_t = 0.5)]
    write_share: f64,
    /// Size of a row on disk, in one replica.
    #[arg(long, value_name = "SIZE")]
    row_size: Option<Size>,
    #[command(flatten)]
    costs: CostArguments,
    /// Print JSON, with the bytes of every node over time.
    #[arg(long)]
    json: bool,
}

/// Costs in place of those that were measured.
#[derive(Args)]
#[command(next_help_heading = "Costs in place of the measured ones")]
struct CostArguments {
    /// Processor time of a read from the block cache, in microseconds.
    #[arg(long, value_name = "MICROSECONDS")]
    cached_read_cost: Option<f64>,
    /// Processor time of a read from disk, in microseconds.
    #[arg(long, value_name = "MICROSECONDS")]
    disk_read_cost: Option<f64>,
    /// Processor time of a write at its leader, in microseconds.
    #[arg(long, value_name = "MICROSECONDS")]
    write_cost: Option<f64>,
    /// Processor time of a write at each follower and for sending it there, in microseconds.
    #[arg(long, value_name = "MICROSECONDS")]
    follower_write_cost: Option<f64>,
    /// Random reads per second of a node's disks.
    #[arg(long, value_name = "NUMBER")]
    disk_reads: Option<u64>,
}

impl PlanArguments {
    fn question(&self) -> Question {
        let defaults = Question::default();
        let measured = Costs::default();
        Question {
            nodes: self.nodes,
            zones: self.zones,
            data_bytes: self.data.0,
            replication: self.rf,
            tablets: self.tablets,
            rate_bytes_per_second: self.rate.0,
            copy_efficiency: self.copy_efficiency,
            replace_after_s: self.replace_after.as_secs(),
            add: self.add,
            lose: self.lose,
            node: Machine {
                disk_bytes_per_node: self.disk_per_node.map(|size| size.0),
                memory_bytes_per_node: self.memory_per_node.map(|size| size.0),
                cores_per_node: self.cores_per_node,
                processor_use: self.processor_use,
            },
            load: Load {
                operations_per_second: self.ops,
                write_share: self.write_share,
                row_bytes: self.row_size.map_or(defaults.load.row_bytes, |size| size.0),
                costs: Costs {
                    cached_read_us: self.costs.cached_read_cost.unwrap_or(measured.cached_read_us),
                    disk_read_us: self.costs.disk_read_cost.unwrap_or(measured.disk_read_us),
                    write_us: self.costs.write_cost.unwrap_or(measured.write_us),
                    write_per_follower_us: self.costs.follower_write_cost.unwrap_or(measured.write_per_follower_us),
                    disk_reads_per_second: self.costs.disk_reads.unwrap_or(measured.disk_reads_per_second),
                },
            },
        }
    }
}

/// Answers on standard output.
pub fn run(arguments: &PlanArguments) -> Result<(), PlanError> {
    let answer = plan(&arguments.question())?;
    if arguments.json {
        println!("{}", answer.to_json());
    } else {
        print!("{answer}");
    }
    Ok(())
}
