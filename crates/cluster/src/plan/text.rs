//! A plan as text, with the bytes per node over time as a chart for the terminal.
//!
//! Always true: every number has its unit; its inputs are listed below it.

use super::change::{Change, ChangeKind, Sample};
use super::costs::SPACE_AMPLIFICATION;
use super::{Plan, Question};
use std::fmt;

/// Nodes in the chart; the rest of a larger cluster is summed up in one line.
const CHARTED_NODES: usize = 16;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Bytes with three digits and a decimal unit.
pub(super) fn bytes(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| bytes >= *unit) else { return format!("{bytes} B") };
    let number = bytes as f64 / unit as f64;
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {name}")
}

/// Hours and minutes, minutes and seconds, or seconds.
pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        3_600.. => format!("{} h {:02} min", (seconds + 30) / 3_600, (seconds + 30) % 3_600 / 60),
        60.. => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{seconds} s"),
    }
}

fn per_second(operations: f64) -> String {
    match operations {
        1e6.. => format!("{:.2} million/s", operations / 1e6),
        1e3.. => format!("{:.0},000/s", operations / 1e3),
        _ => format!("{operations:.0}/s"),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { nodes, zones, data_bytes, replication, .. } = self.question;
        let zones = if zones > 1 { format!(" in {zones} zones") } else { String::new() };
        writeln!(f, "{nodes} nodes{zones}, {} on disk in {replication} replicas", bytes(data_bytes))?;
        self.write_capacity(f)?;
        self.write_throughput(f)?;
        for change in &self.changes {
            write_change(f, change, &self.question)?;
        }
        if !self.warnings.is_empty() {
            writeln!(f, "\nwarnings")?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "  {warning}"))
    }
}

impl Plan {
    fn write_capacity(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs = &self.capacity;
        let question = &self.question;
        writeln!(f, "\nper node")?;
        writeln!(
            f,
            "  holds     {} in {} replicas of {} tablets",
            bytes(needs.data_bytes_per_node),
            needs.replicas_per_node,
            needs.tablets
        )?;
        let percent = (SPACE_AMPLIFICATION - 1.0) * 100.0;
        write!(f, "  disk      {} with {percent:.0} % for compactions", bytes(needs.disk_bytes_per_node))?;
        match needs.disk_bytes_per_node_after_loss {
            Some(after) => writeln!(f, ", {} to take over from a lost node", bytes(after))?,
            None => writeln!(f)?,
        }
        if let Some(disk) = question.node.disk_bytes_per_node {
            let fill = needs.data_bytes_per_node as f64 / disk.max(1) as f64 * 100.0;
            writeln!(f, "            {fill:.0} % of its {}", bytes(disk))?;
        }
        writeln!(
            f,
            "  memory    {} to keep filters ({}) and indexes ({}) cached",
            bytes(needs.memory_bytes_per_node),
            bytes(needs.filter_bytes_per_node),
            bytes(needs.index_bytes_per_node)
        )?;
        writeln!(
            f,
            "            of {:.1} billion rows, {} bytes each",
            needs.rows as f64 / 1e9,
            question.load.row_bytes
        )
    }

    fn write_throughput(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = &self.throughput;
        let question = &self.question;
        let costs = &question.load.costs;
        let limit = if does.reads_are_disk_bound { "disks" } else { "processors" };
        writeln!(
            f,
            "\nall nodes, {} cores each at {:.0} %",
            question.node.cores_per_node,
            question.node.processor_use * 100.0
        )?;
        writeln!(
            f,
            "  reads     {} of what is cached ({:.1} µs of a core each)",
            per_second(does.cached_reads_per_second),
            costs.cached_read_us
        )?;
        writeln!(
            f,
            "            {} of any row, {:.1} % of them cached; {limit} are the limit",
            per_second(does.random_reads_per_second),
            does.cached_share * 100.0
        )?;
        writeln!(
            f,
            "  writes    {}, fsynced on a quorum ({:.1} µs over all replicas)",
            per_second(does.writes_per_second),
            costs.replicated_write_us(question.replication)
        )?;
        writeln!(
            f,
            "  mixed     {} with {:.0} % writes",
            per_second(does.mixed_per_second),
            question.load.write_share * 100.0
        )?;
        if let (Some(wanted), Some(needed)) = (question.load.operations_per_second, does.nodes_for_operations) {
            writeln!(f, "            {} take {needed} nodes", per_second(wanted as f64))?;
        }
        Ok(())
    }
}

fn write_change(f: &mut fmt::Formatter<'_>, change: &Change, question: &Question) -> fmt::Result {
    let nodes = if change.nodes == 1 { "a node".to_owned() } else { format!("{} nodes", change.nodes) };
    let (what, after) = match change.kind {
        ChangeKind::Add => ("add", question.nodes + change.nodes),
        ChangeKind::Lose => ("lose", question.nodes - change.nodes),
    };
    writeln!(f, "\n{what} {nodes}, {} → {after}: {}", question.nodes, duration(change.ends_after_s))?;
    if change.starts_after_s > 0.0 {
        let wait = duration(change.starts_after_s);
        let copying = duration(change.ends_after_s - change.starts_after_s);
        writeln!(f, "  {wait} until a silent node is replaced, then {copying} of copying")?;
    }
    if let Some(first) = change.first_replica_after_s {
        let (copied, copies) = (bytes(change.copied_bytes), change.copies);
        writeln!(f, "  {copied} in {copies} copies, the first of which serves after {}", duration(first))?;
        let flow =
            |flow: super::change::Flow| format!("{} at {}/s", bytes(flow.bytes), bytes(flow.bytes_per_second as u64));
        writeln!(
            f,
            "  a node receives up to {}, sends up to {}",
            flow(change.busiest_receiver),
            flow(change.busiest_sender)
        )?;
        writeln!(
            f,
            "  limit: {}/s into and out of each node, of which copies reach {:.0} %",
            bytes(question.rate_bytes_per_second),
            question.copy_efficiency * 100.0
        )?;
    }
    write_chart(f, change)
}

fn write_chart(f: &mut fmt::Formatter<'_>, change: &Change) -> fmt::Result {
    let (Some(first), Some(last)) = (change.samples.first(), change.samples.last()) else { return Ok(()) };
    let most = change.samples.iter().flat_map(|sample| &sample.bytes).copied().max().unwrap_or(0).max(1);
    writeln!(f, "\n  bytes per node, 0 to {} over {}", bytes(most), duration(last.at_s))?;
    let bar = |sample: &Sample, node: usize| match sample.bytes[node] {
        0 => ' ',
        held => BARS[((held as f64 / most as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    for (node, id) in change.node_ids.iter().enumerate().filter(|(node, _)| is_charted(change, *node)) {
        let line: String = change.samples.iter().map(|sample| bar(sample, node)).collect();
        writeln!(f, "  {:>5} {:>8} {line} {}", id.to_string(), bytes(first.bytes[node]), bytes(last.bytes[node]))?;
    }
    let hidden = change.node_ids.len().saturating_sub(CHARTED_NODES);
    if hidden > 0 {
        writeln!(f, "  and {hidden} more")?;
    }
    Ok(())
}

/// The first half of the chart shows the first nodes, the other half the last, which are those that come or go.
fn is_charted(change: &Change, node: usize) -> bool {
    let all = change.node_ids.len();
    all <= CHARTED_NODES || node < CHARTED_NODES / 2 || node >= all - CHARTED_NODES / 2
}
