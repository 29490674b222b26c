//! The last hour of the whole cluster, merged from those of its nodes.
//!
//! Always true: however many pages are open, nodes are asked at most once in [`kept_ns`], and each sends a few
//! kilobytes; nodes that do not answer in time are left out. Rates are summed; for latencies the slowest node counts.

use super::{Answer, Operations, in_json, unavailable};
use diorite_admin::api::{Ask, History, NodeQuestion};
use diorite_base::NodeId;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// The series of a cluster. Those of latencies end in [`LATENCY`].
const SERIES: [&str; 8] = [
    "reads_per_second",
    "writes_per_second",
    "read_p50_seconds",
    "read_p99_seconds",
    "read_p999_seconds",
    "write_p50_seconds",
    "write_p99_seconds",
    "write_p999_seconds",
];
const LATENCY: &str = "_seconds";
/// Steps of an outline, which is a shorter history, and their length.
const STEPS: usize = 180;
const STEP_S: u64 = 20;
/// How long a node is given to answer, and how many are asked at a time.
const TIMEOUT: Duration = Duration::from_secs(2);
const AT_A_TIME: usize = 32;

/// How long a merged history is reused. Large clusters are asked less often.
fn kept_ns(nodes: usize) -> u64 {
    (5_000 + 50 * nodes as u64) * 1_000_000
}

impl Operations {
    /// The merged history of the cluster, as JSON.
    pub(super) async fn cluster_history(&self) -> Answer {
        // Concurrent requests wait for this lock and use the first one's result.
        let mut kept = self.history.lock().await;
        let catalog = self.catalog.current();
        let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).filter(|node| self.is_up(*node)).collect();
        let now_ns = self.clock.monotonic_ns();
        if let Some((made_ns, history)) = &*kept
            && now_ns < made_ns + kept_ns(nodes.len())
        {
            return Ok(history.clone());
        }
        let asked = nodes.into_iter().map(|node| self.ask_any(node, Ask::Outline, TIMEOUT));
        let answers: Vec<Answer> = futures::stream::iter(asked).buffer_unordered(AT_A_TIME).collect().await;
        let outlines: Vec<History> =
            answers.into_iter().filter_map(|answer| serde_json::from_value(answer.ok()?).ok()).collect();
        let history = in_json(&merged(&outlines))?;
        *kept = Some((now_ns, history.clone()));
        Ok(history)
    }

    /// This node's last hour as an outline, for the node that merges them.
    pub(super) fn outline_here(&self) -> Answer {
        let strange = |error: serde_json::Error| unavailable(error.to_string());
        let history: History =
            serde_json::from_value(self.answer_of_itself(NodeQuestion::History)?).map_err(strange)?;
        in_json(&outline(&history))
    }
}

/// Merges the known values of nodes: the mean of rates, the largest of latencies.
fn together(name: &str, values: impl Iterator<Item = f64>) -> Option<f64> {
    let known: Vec<f64> = values.collect();
    if name.ends_with(LATENCY) {
        return known.into_iter().reduce(f64::max);
    }
    let sum: f64 = known.iter().sum();
    (!known.is_empty()).then(|| sum / known.len() as f64)
}

/// A history in longer steps, which begin and end at the same times on all nodes. It has only the series of a cluster.
fn outline(history: &History) -> History {
    let step_s = history.step_seconds.max(1);
    let end = history.end_unix_seconds.div_ceil(STEP_S) * STEP_S;
    let thin = |name: &&str| -> Option<(String, Vec<Option<f64>>)> {
        let values = history.series.get(*name)?;
        let mut steps: Vec<Vec<f64>> = vec![Vec::new(); STEPS];
        for (back, value) in values.iter().rev().enumerate() {
            let taken = history.end_unix_seconds.saturating_sub(back as u64 * step_s);
            let step = ((end - taken.min(end)) / STEP_S) as usize;
            if let (Some(value), Some(at)) = (value, (STEPS - 1).checked_sub(step)) {
                steps[at].push(*value);
            }
        }
        // Three digits are more than a chart shows.
        let rounded = |value: f64| if value == 0.0 { 0.0 } else { round(value) };
        let steps = steps.into_iter().map(|values| together(name, values.into_iter()).map(rounded));
        Some(((*name).to_owned(), steps.collect()))
    };
    History { step_seconds: STEP_S, end_unix_seconds: end, series: SERIES.iter().filter_map(thin).collect() }
}

fn round(value: f64) -> f64 {
    let scale = 10f64.powf(2.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

/// The merged history. Outlines that end earlier than others are shifted so that equal times coincide.
fn merged(outlines: &[History]) -> History {
    let end = outlines.iter().map(|outline| outline.end_unix_seconds).max().unwrap_or(0);
    let mut series = BTreeMap::new();
    for name in SERIES {
        let value = |at: usize| {
            let values = outlines.iter().filter_map(|outline| {
                let late = ((end - outline.end_unix_seconds) / STEP_S) as usize;
                *outline.series.get(name)?.get(at + late)?
            });
            let values: Vec<f64> = values.collect();
            match name.ends_with(LATENCY) {
                true => values.into_iter().reduce(f64::max),
                false => (!values.is_empty()).then(|| values.iter().sum()),
            }
        };
        series.insert(name.to_owned(), (0..STEPS).map(value).collect());
    }
    History { step_seconds: STEP_S, end_unix_seconds: end, series }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(end: u64, reads: Vec<Option<f64>>, p99: Vec<Option<f64>>) -> History {
        let series = BTreeMap::from([
            ("reads_per_second".to_owned(), reads),
            ("read_p99_seconds".to_owned(), p99),
            ("cpu_cores".to_owned(), vec![]),
        ]);
        History { step_seconds: 5, end_unix_seconds: end, series }
    }

    fn last(history: &History, name: &str, count: usize) -> Vec<Option<f64>> {
        history.series[name][STEPS - count..].to_vec()
    }

    #[test]
    fn an_outline_has_steps_at_round_times() {
        // The last value is of 1010, the one before of 1005, then 1000 and 995: the step that ends at 1020 includes two
        // of them.
        let known = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        let outline = outline(&history(1_010, known(&[8.0, 4.0, 1.0, 3.0]), known(&[0.5, 0.1, 0.2, 0.1])));
        assert_eq!((outline.step_seconds, outline.end_unix_seconds), (20, 1_020));
        assert_eq!(last(&outline, "reads_per_second", 3), [None, Some(6.0), Some(2.0)]);
        assert_eq!(last(&outline, "read_p99_seconds", 2), [Some(0.5), Some(0.2)]);
        assert!(!outline.series.contains_key("cpu_cores"));
    }

    #[test]
    fn rates_add_up_and_the_slowest_node_is_the_latency() {
        let one = outline(&history(1_000, vec![Some(10.0); 8], vec![Some(0.1); 8]));
        let late =
            outline(&history(980, vec![Some(1.0); 8], vec![Some(0.3), None, None, None, None, None, None, None]));
        let both = merged(&[one, late]);
        assert_eq!(both.end_unix_seconds, 1_000);
        assert_eq!(last(&both, "reads_per_second", 4), [None, Some(1.0), Some(11.0), Some(10.0)]);
        assert_eq!(last(&both, "read_p99_seconds", 3), [Some(0.3), Some(0.1), Some(0.1)]);
        assert_eq!(merged(&[]).series["reads_per_second"], vec![None; STEPS]);
    }
}
