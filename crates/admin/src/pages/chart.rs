//! Charts of the last hour, rendered as SVG on the server, so that they need no scripts; a script shows the values under
//! the pointer.
//!
//! Always true: a chart has at most [`POINTS`] points, however many were recorded (means; for latencies the maximum, so
//! that no peak is lost). Unknown values leave a gap, never a line at zero. The drawing is stretched to the width of
//! its column; labels are beside it and are not stretched.
//!
//! Not the charts of the benchmark's report (`workload::report::chart`): those are fixed drawings with axes, phases and
//! tooltips inside, for a file that is read without a server. Here the style sheet decides the size, and a script reads
//! the values. The two share no drawing code, as only the joining of samples would be the same.

use super::show;
use crate::api::History;
use maud::{Markup, PreEscaped, html};
use std::fmt::Write;

/// The most points of a line.
const POINTS: usize = 180;
/// The drawing's own units: its width is [`POINTS`] of them.
const HEIGHT: f64 = 100.0;

/// The unit of a chart's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Events per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Bytes.
    Bytes,
    /// Seconds, as of latencies.
    Seconds,
    /// Processors.
    Cores,
    /// A number of things.
    Count,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{}/s", show::decimal(value)),
            Self::BytesPerSecond => show::byte_rate(value),
            Self::Bytes => show::size(value.max(0.0) as u64),
            Self::Seconds => show::latency(value),
            Self::Cores | Self::Count => show::decimal(value),
        }
    }

    /// Its name in the script.
    fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::BytesPerSecond => "B/s",
            Self::Bytes => "B",
            Self::Seconds => "s",
            Self::Cores | Self::Count => "",
        }
    }

    /// The smallest top of an axis, so that noise does not look like load.
    fn least_top(self) -> f64 {
        match self {
            Self::PerSecond => 1.0,
            Self::BytesPerSecond | Self::Bytes => 1_024.0,
            Self::Seconds => 0.000_1,
            Self::Cores => 0.1,
            Self::Count => 1.0,
        }
    }

    /// The upper end of an axis that must include `most`: a round number of the unit.
    fn top(self, most: f64) -> f64 {
        let most = most.max(self.least_top());
        let base: f64 = if matches!(self, Self::Bytes | Self::BytesPerSecond) { 1_024.0 } else { 1_000.0 };
        let power = base.powf((most.ln() / base.ln() + 1e-9).floor());
        let steps = [1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 80.0];
        let steps = steps.iter().flat_map(|step| [1.0, 100.0].map(|by| step * by));
        steps.map(|step| step * power).filter(|top| *top >= most).fold(base * power, f64::min)
    }
}

/// The definition of a chart.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) unit: Unit,
    /// The name of each line, and the series that it shows.
    pub(super) lines: &'static [(&'static str, &'static str)],
}

/// One line, reduced to at most [`POINTS`] points.
struct Line {
    name: &'static str,
    values: Vec<Option<f64>>,
}

impl Line {
    fn last(&self) -> Option<f64> {
        self.values.iter().rev().take(3).find_map(|value| *value)
    }
}

/// Reduces a series to at most [`POINTS`] points.
fn thinned(values: &[Option<f64>], unit: Unit) -> Vec<Option<f64>> {
    let per_point = values.len().div_ceil(POINTS).max(1);
    let point = |part: &[Option<f64>]| {
        let known: Vec<f64> = part.iter().flatten().copied().filter(|value| value.is_finite()).collect();
        let sum: f64 = known.iter().sum();
        match (known.len(), unit) {
            (0, _) => None,
            (_, Unit::Seconds) => known.iter().copied().reduce(f64::max),
            (count, _) => Some(sum / count as f64),
        }
    };
    // From the end, so that the last point covers as much time as the others.
    let mut points: Vec<Option<f64>> = values.rchunks(per_point).map(point).collect();
    points.reverse();
    points
}

/// The chart of one history.
pub(super) fn chart(chart: &Chart, history: &History) -> Markup {
    let unit = chart.unit;
    let empty = Vec::new();
    let line = |(name, series): &(&'static str, &str)| Line {
        name,
        values: thinned(history.series.get(*series).unwrap_or(&empty), unit),
    };
    let lines: Vec<Line> = chart.lines.iter().map(line).collect();
    let known = || lines.iter().flat_map(|line| line.values.iter().flatten().copied());
    let top = unit.top(known().fold(0.0, f64::max));
    let longest = history.series.values().map(Vec::len).max().unwrap_or(0);
    let per_point = longest.div_ceil(POINTS).max(1) as u64;
    let minutes = (POINTS as u64 * per_point * history.step_seconds).div_ceil(60);
    html! {
        figure.chart data-step=(per_point * history.step_seconds) data-end=(history.end_unix_seconds) data-unit=(unit.name()) {
            figcaption {
                strong { (chart.title) }
                span.legend {
                    @for (at, line) in lines.iter().enumerate() {
                        span class=(format!("key s{at}")) {
                            @if lines.len() > 1 { (line.name) " " }
                            b { (line.last().map_or_else(|| "–".to_owned(), |value| unit.show(value))) }
                        }
                    }
                }
            }
            div.plot {
                svg viewBox=(format!("0 0 {} {HEIGHT}", POINTS - 1)) preserveAspectRatio="none" role="img" aria-label=(chart.title) {
                    path.grid d=(format!("M0 .5H{0}M0 50H{0}M0 99.5H{0}", POINTS - 1)) {}
                    @for (at, line) in lines.iter().enumerate() {
                        (drawn(line, at, top, lines.len() == 1))
                    }
                }
                span.y.top { (unit.show(top)) }
                span.y.middle { (unit.show(top / 2.0)) }
                @if known().next().is_none() { span.missing { "no data yet" } }
            }
            div.x { span { "−" (minutes) " min" } span { "−" (minutes.div_ceil(2)) " min" } span { "now" } }
        }
    }
}

/// A line, as one path for each stretch without gaps, and its values for the script.
fn drawn(line: &Line, at: usize, top: f64, has_area: bool) -> Markup {
    let offset = POINTS - line.values.len();
    let (mut path, mut area, mut values) = (String::new(), String::new(), String::new());
    let mut begun: Option<usize> = None;
    for (index, value) in line.values.iter().enumerate() {
        let _ = match value {
            Some(value) => write!(values, "{},", rounded(*value)),
            None => write!(values, ","),
        };
        let x = offset + index;
        match (value, begun) {
            (Some(value), _) => {
                let y = HEIGHT - (value / top).clamp(0.0, 1.0) * (HEIGHT - 1.0);
                let _ = write!(path, "{}{x} {y:.1}", if begun.is_none() { 'M' } else { 'L' });
                let _ = match begun {
                    None => write!(area, "M{x} {HEIGHT}L{x} {y:.1}"),
                    Some(_) => write!(area, "L{x} {y:.1}"),
                };
                begun.get_or_insert(x);
            }
            (None, Some(_)) => {
                let _ = write!(area, "L{} {HEIGHT}Z", x - 1);
                begun = None;
            }
            (None, None) => {}
        }
        if begun == Some(x) && line.values.get(index + 1).is_none_or(Option::is_none) {
            // A single point is drawn as a short line, so that it is visible.
            let _ = write!(path, "h.6");
        }
    }
    if begun.is_some() {
        let _ = write!(area, "L{} {HEIGHT}Z", POINTS - 1);
    }
    html! {
        @if has_area { path class=(format!("area s{at}")) d=(PreEscaped(&area)) {} }
        path class=(format!("line s{at}")) d=(PreEscaped(&path)) data-name=(line.name) data-values=(values.trim_end_matches(',')) data-offset=(offset) {}
    }
}

/// Rounds to four digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const CHART: Chart =
        Chart { title: "Operations", unit: Unit::PerSecond, lines: &[("reads", "reads"), ("writes", "writes")] };

    fn history(reads: Vec<Option<f64>>, writes: Vec<Option<f64>>) -> History {
        let series = BTreeMap::from([("reads".to_owned(), reads), ("writes".to_owned(), writes)]);
        History { step_seconds: 5, end_unix_seconds: 1_000, series }
    }

    #[test]
    fn an_hour_is_thinned_out_and_ends_now() {
        let hour: Vec<Option<f64>> = (0..720).map(|at| Some(f64::from(at))).collect();
        let points = thinned(&hour, Unit::PerSecond);
        assert_eq!((points.len(), points[0], points[179]), (180, Some(1.5), Some(717.5)));
        assert_eq!(thinned(&hour, Unit::Seconds)[179], Some(719.0), "the peak of a latency is kept");
        assert_eq!(thinned(&[None, Some(f64::NAN)], Unit::Count), [None, None]);
    }

    #[test]
    fn gaps_are_gaps() {
        let shown = chart(&CHART, &history(vec![Some(1.0), None, Some(3.0), Some(3.0)], vec![None; 4])).into_string();
        assert!(shown.contains(r#"d="M176 67.0h.6M178 1.0L179 1.0""#), "{shown}");
        assert!(shown.contains(r#"data-values="1,,3,3""#), "{shown}");
        assert!(shown.contains("writes <b>–</b>"), "{shown}");
    }

    #[test]
    fn a_chart_without_data_says_so() {
        let shown = chart(&CHART, &history(Vec::new(), Vec::new())).into_string();
        assert!(shown.contains("no data yet"), "{shown}");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(
            [0.0, 0.9, 11.0, 999.0, 1_001.0, 45_000.0].map(|most| Unit::PerSecond.top(most)),
            [1.0, 1.0, 15.0, 1_000.0, 2_000.0, 50_000.0]
        );
        assert_eq!(Unit::Bytes.top(3.0 * 1_048_576.0), 3.0 * 1_048_576.0);
        assert_eq!(Unit::Bytes.top(900.0 * 1_048_576.0), 1_000.0 * 1_048_576.0);
        for most in [0.001, 0.7, 3.0, 77.0, 1e4, 1e7, 3e12] {
            for unit in [Unit::PerSecond, Unit::Bytes, Unit::Seconds, Unit::Cores] {
                let top = unit.top(most);
                assert!(top >= most && (top <= most * 2.6 || top == unit.least_top()), "{unit:?} {most}: {top}");
            }
        }
    }
}
