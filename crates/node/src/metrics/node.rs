//! The process, and the state of the cluster on the node that leads the catalog.

use super::source::Source;
use super::writer::Writer;
use crate::observe::process;
use prometheus_client::registry::Unit;
use std::fmt;

/// Metrics of the process, under Prometheus' standard names. Separate from [`Source::cluster`], which needs other
/// sources.
pub(super) fn process(out: &mut Writer<'_, '_>) -> fmt::Result {
    let (bytes, seconds) = (Some(&Unit::Bytes), Unit::Seconds);
    if let Some(used) = process::cpu_seconds() {
        out.counter_f64("process_cpu", "Processor time used, by user and system", &seconds, used)?;
    }
    if let Some(resident) = process::resident_bytes() {
        out.gauge("process_resident_memory", "Resident memory of the process", bytes, resident)?;
    }
    if let Some(reserved) = process::virtual_bytes() {
        out.gauge("process_virtual_memory", "Address space in use", bytes, reserved)?;
    }
    if let Some((open, limit)) = process::file_descriptors() {
        out.gauge("process_open_fds", "Open file descriptors", None, open)?;
        if let Some(limit) = limit {
            out.gauge("process_max_fds", "File descriptors that may be open", None, limit)?;
        }
    }
    if let Some(threads) = process::threads() {
        out.gauge("process_threads", "Threads of the process", None, threads)?;
    }
    if let Some(started) = process::started_unix_seconds() {
        let help = "When the process was started, since the Unix epoch";
        out.gauge_f64("process_start_time", help, Some(&seconds), started)?;
    }
    Ok(())
}

impl Source {
    /// Metrics of the cluster, on the node that leads the catalog, as of a few seconds ago.
    pub(super) fn cluster(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let help = "1 while requests are served, 0 while no leader of the catalog is known";
        out.gauge("ready", help, None, u64::from(self.operations.unready().is_none()))?;
        let Some(status) = self.operations.summary() else { return Ok(()) };
        let nodes =
            [("up", status.live_nodes as u64), ("down", (status.nodes - status.live_nodes.min(status.nodes)) as u64)];
        out.gauges(
            "cluster_nodes",
            "Members of the cluster, as the leader of the catalog knows them",
            None,
            "state",
            &nodes,
        )?;
        out.gauge("cluster_tablets", "Tablets of the cluster", None, status.tablets as u64)?;
        let at_risk = [
            ("under_replicated", status.under_replicated as u64),
            ("leaderless", status.leaderless as u64),
            ("unavailable", status.unavailable as u64),
        ];
        out.gauges(
            "cluster_tablets_at_risk",
            "Tablets that lack replicas, a leader, or a quorum",
            None,
            "why",
            &at_risk,
        )?;
        out.gauge("cluster_disks_full", "Disks of the cluster that refuse writes", None, status.full_disks as u64)?;
        let balancer = &status.balancer;
        out.gauge("balancer_moves", "Tablets whose replicas are being moved", None, balancer.moves as u64)?;
        out.gauge(
            "balancer_left",
            "Bytes still to be copied by the balancer",
            Some(&Unit::Bytes),
            balancer.bytes_left,
        )?;
        let help = "1 for the state that the balancer is in";
        out.gauges("balancer_state", help, None, "state", &[(balancer.state.as_str(), 1)])?;
        let stalled = balancer.stalled.len() as u64 + balancer.unlisted_stalled;
        let help =
            "Reasons listed why the balancer cannot act, and tablets that lack wanted replicas and are not listed";
        out.gauge("balancer_stalled", help, None, stalled)?;
        out.gauge("balancer_stuck", "The former name of diorite_balancer_stalled, for one release", None, stalled)
    }

    /// The number of this node's decisions while it led the catalog.
    pub(super) fn balancer(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let decided = self.operations.decided();
        let decided: Vec<(&str, u64)> = decided.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
        out.counters(
            "balancer_decisions",
            "Moves of replicas and leaders decided here, by reason",
            None,
            "reason",
            &decided,
        )
    }
}
