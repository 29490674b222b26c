//! Metrics of the connections between nodes.

use diorite_rpc::tcp::{LaneStatistics, TcpTransport};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;

/// The metrics of each node and lane.
pub(crate) struct LaneMetrics(pub(crate) Arc<TcpTransport>);

impl fmt::Debug for LaneMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaneMetrics")
    }
}

/// Name, help text, unit, and the value's source.
type Kind = (&'static str, &'static str, Option<Unit>, fn(&LaneStatistics) -> u64);

const COUNTERS: &[Kind] = &[
    ("node_frames_sent", "Frames sent to another node", None, |lane| lane.frames_sent),
    ("node_sent", "Bytes sent to another node", Some(Unit::Bytes), |lane| lane.bytes_sent),
    ("node_frames_dropped", "Frames not sent: the node was not connected or too much waited", None, |lane| {
        lane.frames_dropped
    }),
    ("node_reconnects", "Times that a node was connected again", None, |lane| lane.reconnects),
    ("node_frames_received", "Frames received from another node", None, |lane| lane.frames_received),
    ("node_received", "Bytes received from another node", Some(Unit::Bytes), |lane| lane.bytes_received),
];

const GAUGES: &[Kind] = &[
    ("node_connected", "Whether the node can be sent to", None, |lane| u64::from(lane.connected)),
    ("node_waiting", "Bytes waiting to be sent", Some(Unit::Bytes), |lane| lane.bytes_waiting),
];

impl Collector for LaneMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let lanes = self.0.statistics();
        for (kinds, metric) in [(COUNTERS, MetricType::Counter), (GAUGES, MetricType::Gauge)] {
            for (name, help, unit, value) in kinds {
                let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), metric)?;
                for (node, lane, statistics) in &lanes {
                    let labels = [("node", node.0.to_string()), ("lane", lane.name().to_owned())];
                    let labelled = family.encode_family(&labels)?;
                    let value = value(statistics);
                    match metric {
                        MetricType::Counter => ConstCounter::new(value).encode(labelled)?,
                        _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(labelled)?,
                    }
                }
            }
        }
        Ok(())
    }
}
