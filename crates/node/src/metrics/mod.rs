//! The node's metrics, read from their sources at each scrape.
//!
//! Names and units follow the conventions of Prometheus; `docs/metrics.md` lists them. Always true: the number of lines
//! does not grow with the tablets; only tables, disks and other nodes have lines of their own, tables up to a bound
//! (`tables`).

mod indexes;
mod node;
mod replicas;
mod requests;
mod source;
mod storage;
mod tables;
mod transactions;
mod writer;

use crate::membership::metrics::LaneMetrics;
use crate::operate::Operations;
use crate::shared::Shared;
use diorite_admin::Metrics;
use diorite_rpc::tcp::TcpTransport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use source::Source;
use std::fmt;
use std::sync::Arc;
use writer::Writer;

/// Renders the metrics of a node.
pub(crate) struct NodeMetrics {
    registry: Registry,
}

impl NodeMetrics {
    pub(crate) fn new(shared: Arc<Shared>, transport: Arc<TcpTransport>, operations: Arc<Operations>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let ours = registry.sub_registry_with_prefix("diorite");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        ours.register("build", "The version of the program", build);
        ours.register_collector(Box::new(Source::new(shared, operations)));
        ours.register_collector(Box::new(LaneMetrics(transport)));
        Self { registry }
    }
}

impl Metrics for NodeMetrics {
    fn render(&self, out: &mut String) -> fmt::Result {
        prometheus_client::encoding::text::encode(out, &self.registry)
    }
}

#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        node::process(&mut Writer::new(&mut encoder))
    }
}

impl Collector for Source {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Writer::new(&mut encoder);
        self.requests(&mut out)?;
        self.routing(&mut out)?;
        self.log(&mut out)?;
        self.raft(&mut out)?;
        transactions::write(&self.shared, &mut out)?;
        indexes::write(self.operations.indexes(), &mut out)?;
        self.cache(&mut out)?;
        self.background(&mut out)?;
        self.tablets(&mut out)?;
        self.cluster(&mut out)?;
        self.balancer(&mut out)
    }
}
