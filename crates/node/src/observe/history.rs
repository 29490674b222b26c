//! The last hour of the node, in steps of five seconds.
//!
//! Always true: memory is fixed; steps are at multiples of five seconds of Unix time, so that those of different nodes
//! coincide; a missed step, or an unknown value, is absent. Left out: keeping the history over a restart (Prometheus
//! does).

use diorite_admin::api::Activity;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The time from one point to the next, seconds.
pub(crate) const STEP_S: u64 = 5;
/// An hour.
const POINTS: usize = 720;

macro_rules! series {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The values of one step; unknown ones are NaN.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Point {
            $($(#[$doc])* pub(crate) $name: f32,)+
        }

        impl Point {
            /// A point without any value.
            pub(crate) const UNKNOWN: Self = Self { $($name: f32::NAN,)+ };
        }

        /// The names of the series, and their values in a point.
        const SERIES: &[(&str, fn(&Point) -> f32)] = &[$((stringify!($name), |point| point.$name),)+];
    };
}

series! {
    /// Reads of named partitions by this node's clients.
    reads_per_second,
    /// Writes, conditional ones and batches among them, by this node's clients.
    writes_per_second,
    /// Scans and aggregates by this node's clients.
    scans_per_second,
    read_p50_seconds,
    read_p99_seconds,
    read_p999_seconds,
    write_p50_seconds,
    write_p99_seconds,
    write_p999_seconds,
    /// Processors that the process kept busy.
    cpu_cores,
    resident_bytes,
    /// Reads of the devices under the data directories, by all processes.
    disk_reads_per_second,
    disk_writes_per_second,
    disk_read_bytes_per_second,
    disk_written_bytes_per_second,
    sst_bytes,
    compactions_running,
    /// Bytes written by compactions.
    compacted_bytes_per_second,
    /// CQL connections.
    connections,
}

#[derive(Default)]
struct Past {
    /// The step of the newest point, counted from the Unix epoch.
    last: u64,
    points: VecDeque<Point>,
}

/// The values of the last hour.
#[derive(Default)]
pub(crate) struct History {
    past: Mutex<Past>,
}

impl History {
    /// Adds the values of a step, numbered from the Unix epoch. A step that is not newer than the last one is ignored.
    pub(crate) fn push(&self, step: u64, point: Point) {
        let mut past = self.past.lock();
        if !past.points.is_empty() {
            if step <= past.last {
                return;
            }
            let missed = (step - past.last - 1).min(POINTS as u64);
            (0..missed).for_each(|_| past.points.push_back(Point::UNKNOWN));
        }
        past.points.push_back(point);
        let surplus = past.points.len().saturating_sub(POINTS);
        past.points.drain(..surplus);
        past.last = step;
    }

    /// The newest point.
    pub(crate) fn latest(&self) -> Activity {
        let point = self.past.lock().points.back().copied().unwrap_or(Point::UNKNOWN);
        let known = |value: f32| Some(f64::from(value)).filter(|value| value.is_finite());
        Activity {
            reads_per_second: known(point.reads_per_second),
            writes_per_second: known(point.writes_per_second),
            read_p99_seconds: known(point.read_p99_seconds),
            write_p99_seconds: known(point.write_p99_seconds),
            cpu_cores: known(point.cpu_cores),
            disk_reads_per_second: known(point.disk_reads_per_second),
            disk_writes_per_second: known(point.disk_writes_per_second),
            disk_read_bytes_per_second: known(point.disk_read_bytes_per_second),
            disk_written_bytes_per_second: known(point.disk_written_bytes_per_second),
            compactions_running: known(point.compactions_running),
        }
    }

    /// The format is described in `docs/operate.md`.
    pub(crate) fn to_json(&self) -> Value {
        let (last, points): (u64, Vec<Point>) = {
            let past = self.past.lock();
            (past.last, past.points.iter().copied().collect())
        };
        let series: Map<String, Value> = SERIES
            .iter()
            .map(|(name, of)| ((*name).to_owned(), points.iter().map(|point| rounded(of(point))).collect()))
            .collect();
        json!({ "step_seconds": STEP_S, "end_unix_seconds": last * STEP_S, "series": series })
    }
}

/// Five digits are more than anybody sees in a chart.
fn rounded(value: f32) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    if value == value.trunc() && value.abs() < 1e15 {
        return Value::from(value as i64);
    }
    format!("{value:.4e}").parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    fn reads(history: &History) -> Vec<Option<f64>> {
        let shown = history.to_json();
        let series = shown["series"]["reads_per_second"].as_array().unwrap();
        series.iter().map(Value::as_f64).collect()
    }

    fn point(reads_per_second: f32) -> Point {
        Point { reads_per_second, ..Point::UNKNOWN }
    }

    #[test]
    fn steps_that_were_missed_are_absent() {
        let history = History::default();
        history.push(100, point(1.0));
        history.push(103, point(4.5));
        assert_eq!(reads(&history), [Some(1.0), None, None, Some(4.5)]);
        assert_eq!(history.to_json()["end_unix_seconds"], 515);
        assert_eq!(history.to_json()["step_seconds"], 5);
    }

    #[test]
    fn the_newest_point_is_what_the_node_does_now() {
        let history = History::default();
        assert_eq!(history.latest(), Activity::default());
        history.push(1, point(1.0));
        history.push(2, point(2.5));
        assert_eq!(history.latest(), Activity { reads_per_second: Some(2.5), ..Activity::default() });
    }

    #[test]
    fn a_step_is_taken_in_once() {
        let history = History::default();
        for (step, value) in [(7, 1.0), (7, 2.0), (6, 3.0)] {
            history.push(step, point(value));
        }
        assert_eq!(reads(&history), [Some(1.0)]);
    }

    #[test]
    fn an_hour_is_kept() {
        let history = History::default();
        (0..1_000).for_each(|step| history.push(step, point(step as f32)));
        let kept = reads(&history);
        assert_eq!((kept.len(), kept[0], kept[719]), (720, Some(280.0), Some(999.0)));
        // A clock that was set forward by years.
        history.push(1 << 40, point(1.0));
        let kept = reads(&history);
        assert_eq!((kept.len(), kept[0], kept[718], kept[719]), (720, None, None, Some(1.0)));
    }

    #[test]
    fn every_series_has_every_point() {
        let history = History::default();
        history.push(1, Point::UNKNOWN);
        history.push(2, Point { read_p50_seconds: 0.000_123_456, ..Point::UNKNOWN });
        let shown = history.to_json();
        let series = shown["series"].as_object().unwrap();
        assert_eq!(series.len(), SERIES.len());
        assert!(series.values().all(|values| values.as_array().unwrap().len() == 2));
        assert_eq!(series["read_p50_seconds"][1], 0.000_123_46);
    }
}
