//! Line charts over time as inline SVG.
//!
//! Always true: both axes have ticks with units; a linear axis begins at 0, so heights are comparable; the phases are
//! marked as bands and numbered, and named where there is space; a tooltip shows the numbers of every sample; a gap in
//! the data is a gap in the line. Colours come from the page's style sheet (classes `s0`, `s1`, …), so that light and
//! dark pages both work, and are distinguishable with red-green colour blindness.
//!
//! Not the charts of the server's pages (`admin::pages::chart`), which have neither axes nor phases and need a script
//! to show values. The two share no drawing code, as only the joining of samples would be the same, and no crate of the
//! server is linked here.
//!
//! Left out: zooming. The JSON beside the page has every sample.

use std::borrow::Cow;
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 30.0;
/// More points than this cannot be distinguished; neighbours are joined.
const MAX_POINTS: usize = 480;

/// How neighbouring samples are joined where there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    Mean,
    Max,
}

/// The vertical axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// From 0, ticks at round decimal numbers.
    Linear,
    /// From 0, ticks at round binary numbers.
    LinearBinary,
    /// Decades; for latencies, whose percentiles lie far apart.
    Logarithmic,
}

/// The number of distinguishable colours; further lines begin again.
pub const COLOURS: usize = 8;

/// One line.
#[derive(Clone)]
pub struct Series {
    pub name: Cow<'static, str>,
    /// One value per sample; `None` was not measured.
    pub values: Vec<Option<f64>>,
}

/// One chart.
pub struct Chart<'chart> {
    pub title: &'static str,
    pub axis: Axis,
    pub join: Join,
    /// A value with its unit.
    pub show: fn(f64) -> String,
    /// The time of each sample.
    pub times_s: &'chart [f64],
    pub series: Vec<Series>,
    /// Name, begin and end of each phase.
    pub phases: &'chart [(String, f64, f64)],
}

impl Chart<'_> {
    /// Whether anything was measured.
    pub fn has_data(&self) -> bool {
        self.series.iter().any(|series| series.values.iter().flatten().any(|value| value.is_finite()))
    }

    /// The SVG element.
    pub fn render(&self) -> String {
        let (times, series) = self.joined();
        let end_s = self.phases.iter().map(|phase| phase.2).chain(times.iter().copied()).fold(1.0, f64::max);
        let scale = Scale::new(self.axis, series.iter().flat_map(|series| series.values.iter().flatten().copied()));
        let x = |at_s: f64| LEFT + at_s / end_s * (WIDTH - LEFT - RIGHT);
        let mut svg = format!(
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}" xmlns="http://www.w3.org/2000/svg">"#,
            escape(self.title)
        );
        self.draw_phases(&mut svg, x);
        self.draw_axes(&mut svg, x, &scale, end_s);
        for (index, line) in series.iter().enumerate() {
            draw_line(&mut svg, index % COLOURS, &times, &line.values, x, &scale);
        }
        self.draw_tooltips(&mut svg, &times, &series, x);
        svg.push_str("</svg>");
        svg
    }

    fn draw_phases(&self, svg: &mut String, x: impl Fn(f64) -> f64) {
        for (index, (name, start_s, end_s)) in self.phases.iter().enumerate() {
            let (left, width) = (x(*start_s), (x(*end_s) - x(*start_s)).max(0.5));
            let height = HEIGHT - TOP - BOTTOM;
            put(
                svg,
                format_args!(
                    r#"<rect class="band{}" x="{left:.1}" y="{TOP}" width="{width:.1}" height="{height}"/>"#,
                    index % 2
                ),
            );
            // A label wider than its band would run into the next one: the number alone then, which the page explains.
            let number = index + 1;
            let label = format!("{number} {}", escape(name));
            let fits = |length: usize| width > length as f64 * 6.2;
            let label = if fits(label.len()) { label } else { number.to_string() };
            if fits(label.len()) {
                let x = left + 4.0_f64.min((width - label.len() as f64 * 6.2) / 2.0);
                put(svg, format_args!(r#"<text class="phase" x="{x:.1}" y="{:.1}">{label}</text>"#, TOP - 8.0));
            }
        }
    }

    fn draw_axes(&self, svg: &mut String, x: impl Fn(f64) -> f64, scale: &Scale, end_s: f64) {
        for tick in scale.ticks() {
            let y = scale.y(tick);
            put(
                svg,
                format_args!(r#"<line class="grid" x1="{LEFT}" x2="{}" y1="{y:.1}" y2="{y:.1}"/>"#, WIDTH - RIGHT),
            );
            let label = without_zeros(&(self.show)(tick));
            put(
                svg,
                format_args!(
                    r#"<text class="tick" text-anchor="end" x="{}" y="{:.1}">{label}</text>"#,
                    LEFT - 8.0,
                    y + 4.0
                ),
            );
        }
        let step_s = time_step(end_s);
        let mut at_s = 0.0;
        while at_s <= end_s + 1e-9 {
            let anchor = if x(at_s) > WIDTH - RIGHT - 20.0 { "end" } else { "middle" };
            let label = time_label(at_s);
            put(
                svg,
                format_args!(
                    r#"<text class="tick" text-anchor="{anchor}" x="{:.1}" y="{}">{label}</text>"#,
                    x(at_s),
                    HEIGHT - BOTTOM + 18.0
                ),
            );
            at_s += step_s;
        }
        let floor = HEIGHT - BOTTOM;
        put(svg, format_args!(r#"<line class="axis" x1="{LEFT}" x2="{}" y1="{floor}" y2="{floor}"/>"#, WIDTH - RIGHT));
    }

    /// One invisible column per sample that shows every line's value there.
    fn draw_tooltips(&self, svg: &mut String, times: &[f64], series: &[Series], x: impl Fn(f64) -> f64) {
        let mut left_s = 0.0_f64;
        for (index, &at_s) in times.iter().enumerate() {
            let phase = self.phases.iter().find(|phase| phase.1 <= at_s && at_s <= phase.2 + 0.01);
            let mut text = format!("{:.0} s", at_s);
            if let Some((name, ..)) = phase {
                put(&mut text, format_args!(" · {}", escape(name)));
            }
            for line in series {
                let value = line.values[index].map_or_else(|| "–".to_owned(), self.show);
                put(&mut text, format_args!("\n{}: {value}", escape(&line.name)));
            }
            // A column reaches back to the sample before, but not over the pause between two phases.
            let from_s = left_s.max(at_s - 2.0 * (at_s - left_s).min(1.0)).max(0.0);
            let (left, width) = (x(from_s), (x(at_s) - x(from_s)).max(1.0));
            let height = HEIGHT - TOP - BOTTOM;
            put(
                svg,
                format_args!(
                    r#"<rect class="hover" x="{left:.1}" y="{TOP}" width="{width:.1}" height="{height}"><title>{text}</title></rect>"#
                ),
            );
            left_s = at_s;
        }
    }

    /// The samples, neighbours joined until there are few enough.
    fn joined(&self) -> (Vec<f64>, Vec<Series>) {
        let group = self.times_s.len().div_ceil(MAX_POINTS).max(1);
        let times = self.times_s.chunks(group).map(|chunk| chunk[chunk.len() - 1]).collect();
        let join = |values: &[Option<f64>]| {
            let present: Vec<f64> = values.iter().flatten().copied().filter(|value| value.is_finite()).collect();
            match self.join {
                _ if present.is_empty() => None,
                Join::Mean => Some(present.iter().sum::<f64>() / present.len() as f64),
                Join::Max => Some(present.iter().copied().fold(f64::MIN, f64::max)),
            }
        };
        let series = self.series.iter().map(|series| Series {
            name: series.name.clone(),
            values: series.values.chunks(group).map(join).collect(),
        });
        (times, series.collect())
    }
}

fn draw_line(
    svg: &mut String,
    index: usize,
    times: &[f64],
    values: &[Option<f64>],
    x: impl Fn(f64) -> f64,
    scale: &Scale,
) {
    let mut path = String::new();
    let mut pen_down = false;
    let mut lone = Vec::new();
    for (position, (&at_s, value)) in std::iter::zip(times, values).enumerate() {
        let Some(value) = value else {
            pen_down = false;
            continue;
        };
        let (x, y) = (x(at_s), scale.y(*value));
        put(&mut path, format_args!("{}{x:.1} {y:.1}", if pen_down { "L" } else { "M" }));
        if !pen_down && values.get(position + 1).copied().flatten().is_none() {
            lone.push((x, y));
        }
        pen_down = true;
    }
    if !path.is_empty() {
        put(svg, format_args!(r#"<path class="line s{index}" d="{path}"/>"#));
    }
    for (x, y) in lone {
        put(svg, format_args!(r#"<circle class="dot s{index}" cx="{x:.1}" cy="{y:.1}" r="2.5"/>"#));
    }
}

/// Maps values to heights.
struct Scale {
    axis: Axis,
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    fn new(axis: Axis, values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::MAX, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            high = high.max(value);
            if value > 0.0 {
                low = low.min(value);
            }
        }
        match axis {
            Axis::Logarithmic => {
                let low = 10_f64.powf(low.min(high.max(1.0)).max(1e-9).log10().floor());
                let high = 10_f64.powf(high.max(low * 10.0).log10().ceil());
                Self { axis, low, high, step: 0.0 }
            }
            Axis::Linear | Axis::LinearBinary => {
                let step = nice_step(high, if axis == Axis::Linear { 1_000.0 } else { 1_024.0 });
                Self { axis, low: 0.0, high: (high / step).ceil().max(1.0) * step, step }
            }
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.axis {
            Axis::Logarithmic => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            Axis::Linear | Axis::LinearBinary => value / self.high,
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        match self.axis {
            Axis::Logarithmic => {
                let mut tick = self.low;
                while tick <= self.high * 1.001 {
                    ticks.push(tick);
                    tick *= 10.0;
                }
            }
            Axis::Linear | Axis::LinearBinary => {
                let steps = (self.high / self.step).round() as usize;
                ticks.extend((0..=steps).map(|index| index as f64 * self.step));
            }
        }
        ticks
    }
}

/// A round step that makes three to six ticks up to `high`; round in the unit that `high` is shown in.
fn nice_step(high: f64, base: f64) -> f64 {
    if high <= 0.0 {
        return 1.0;
    }
    let mut unit = 1.0;
    while high >= unit * base {
        unit *= base;
    }
    let rough = high / unit / 5.0;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * magnitude >= rough).unwrap_or(10.0);
    factor * magnitude * unit
}

fn time_step(end_s: f64) -> f64 {
    const STEPS: [f64; 14] =
        [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0];
    STEPS.into_iter().find(|step| end_s / step <= 12.0).unwrap_or(end_s / 10.0)
}

fn time_label(at_s: f64) -> String {
    match at_s {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7_200.0 => format!("{:.0}:{:02.0} min", (seconds / 60.0).floor(), seconds % 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// The label of a round number without the zeros after its point, which only take room.
fn without_zeros(label: &str) -> String {
    let end = label.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(label.len());
    let (number, unit) = label.split_at(end);
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a string does not fail");
}

/// Text safe between tags and in double-quoted attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (high, base, step) in [(187_000.0, 1_000.0, 50_000.0), (2.0, 1_000.0, 0.5), (0.0, 1_000.0, 1.0)] {
            assert_eq!(nice_step(high, base), step, "up to {high}");
        }
        assert_eq!(nice_step(3.0 * 1_073_741_824.0, 1_024.0), 1_073_741_824.0);
        let scale = Scale::new(Axis::Logarithmic, [230.0, 41_000.0].into_iter());
        assert_eq!(scale.ticks().len(), 4);
        assert!(scale.y(1_000.0) < scale.y(230.0), "greater values are higher up");
    }

    #[test]
    fn labels_of_round_numbers_say_no_more_than_they_must() {
        let labels = ["1000.00 MiB/s", "0.50 cores", "50.0k/s", "100 µs", "0 B", "2.5"];
        assert_eq!(labels.map(without_zeros), ["1000 MiB/s", "0.5 cores", "50k/s", "100 µs", "0 B", "2.5"]);
    }

    #[test]
    fn phases_without_room_for_their_names_are_numbered() {
        let phases: Vec<_> = [("load", 0.0, 90.0), ("add-node", 90.0, 92.0), ("lose-node", 92.0, 92.1)]
            .map(|(name, start_s, end_s)| (name.to_owned(), start_s, end_s))
            .into();
        let chart = Chart {
            title: "",
            axis: Axis::Linear,
            join: Join::Mean,
            show: |value| format!("{value}"),
            times_s: &[1.0],
            series: Vec::new(),
            phases: &phases,
        };
        let svg = chart.render();
        assert!(svg.contains(">1 load<") && svg.contains(">2<") && !svg.contains(">3<"), "{svg}");
    }

    #[test]
    fn many_samples_are_joined_and_gaps_stay() {
        let times: Vec<f64> = (0..5_000).map(f64::from).collect();
        let mut values: Vec<Option<f64>> = times.iter().map(|&at_s| Some(at_s)).collect();
        values[100..200].fill(None);
        let chart = Chart {
            title: "a <chart>",
            axis: Axis::Linear,
            join: Join::Max,
            show: |value| format!("{value}"),
            times_s: &times,
            series: vec![Series { name: "line".into(), values }],
            phases: &[("load & read".into(), 0.0, 5_000.0)],
        };
        let svg = chart.render();
        assert!(svg.matches("<title>").count() <= MAX_POINTS);
        assert_eq!(svg.matches('M').count(), 2, "one gap makes two strokes");
        assert!(svg.contains("a &lt;chart&gt;") && svg.contains("load &amp; read"));
    }
}
