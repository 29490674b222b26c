//! The display during and after a run: a progress bar on a terminal, a line every five seconds elsewhere, and the table
//! at the end.
//!
//! Always true: with `--json` nothing but the JSON goes to standard output.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::latency::{Summary, Tallies};
use crate::runner::{Interval, Observer, Plan};

/// Seconds between two lines where there is no terminal.
const LINE_EVERY_S: f64 = 5.0;

/// Shows the progress of one run or phase.
pub struct StatusLine {
    label: String,
    bar: Option<ProgressBar>,
    goal: Goal,
    json: bool,
    total: Tallies,
    since_line: Tallies,
    since_line_s: f64,
}

#[derive(Debug, Clone, Copy)]
enum Goal {
    Operations { reads: u64, writes: u64 },
    Seconds(u64),
    Endless,
}

impl Goal {
    fn of(plan: &Plan) -> Self {
        match (plan.duration, plan.reads, plan.writes) {
            (Some(duration), ..) => Self::Seconds(duration.as_secs().max(1)),
            (None, None, None) => Self::Endless,
            (None, reads, writes) => {
                let counted = |budget: Option<u64>, tasks: usize| if tasks == 0 { 0 } else { budget.unwrap_or(0) };
                Self::Operations { reads: counted(reads, plan.readers), writes: counted(writes, plan.writers) }
            }
        }
    }

    fn length(self) -> Option<u64> {
        match self {
            Self::Operations { reads, writes } => Some(reads + writes),
            Self::Seconds(seconds) => Some(seconds),
            Self::Endless => None,
        }
    }
}

impl StatusLine {
    /// A bar or lines for a run of `plan`, under the name `label`.
    pub fn new(label: &str, plan: &Plan, json: bool) -> Self {
        let goal = Goal::of(plan);
        let is_terminal = if json { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
        let bar = is_terminal.then(|| {
            let target = if json { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::stdout() };
            let bar = ProgressBar::with_draw_target(goal.length(), target);
            let template = if goal.length().is_some() {
                "{prefix:18} {bar:24} {percent:>3} % {elapsed_precise} {wide_msg}"
            } else {
                "{prefix:18} {spinner} {elapsed_precise} {wide_msg}"
            };
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(label.to_owned());
            bar
        });
        let (total, since_line) = (Tallies::default(), Tallies::default());
        Self { label: label.to_owned(), bar, goal, json, total, since_line, since_line_s: 0.0 }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&mut self, elapsed_s: f64) {
        let mut text = format!("{} {elapsed_s:.0} s", self.label);
        let kinds = [
            ("read", &self.since_line.reads, &self.total.reads),
            ("write", &self.since_line.writes, &self.total.writes),
        ];
        for (verb, recent, total) in kinds {
            if total.latency_us.len() + total.errors > 0 {
                text.push_str(" | ");
                text.push_str(&describe(verb, &recent.summary(self.since_line_s), total.latency_us.len()));
            }
        }
        say(self.json, &text);
        self.since_line = Tallies::default();
        self.since_line_s = 0.0;
    }
}

impl Observer for StatusLine {
    fn observe(&mut self, interval: &Interval) {
        self.total.merge(&interval.tallies);
        let Some(bar) = &self.bar else {
            self.since_line.merge(&interval.tallies);
            self.since_line_s += interval.seconds;
            if self.since_line_s >= LINE_EVERY_S - 0.5 {
                self.line(interval.elapsed_s);
            }
            return;
        };
        let done = match self.goal {
            Goal::Operations { reads, writes } => {
                self.total.reads.latency_us.len().min(reads) + self.total.writes.latency_us.len().min(writes)
            }
            Goal::Seconds(_) | Goal::Endless => interval.elapsed_s as u64,
        };
        bar.set_position(done);
        let reads = interval.tallies.reads.summary(interval.seconds);
        let writes = interval.tallies.writes.summary(interval.seconds);
        let errors = self.total.reads.errors + self.total.writes.errors;
        let errors = if errors > 0 { format!("  {errors} errors") } else { String::new() };
        bar.set_message(format!("{}{}{errors}", brief("read", &reads), brief("  write", &writes)));
    }
}

fn brief(verb: &str, summary: &Summary) -> String {
    if summary.operations == 0 {
        return String::new();
    }
    let rate = count(summary.operations_per_second);
    format!("{verb} {rate}/s {} p99 {}", duration_us(summary.mean_us), duration_us(summary.p99_us as f64))
}

fn describe(verb: &str, summary: &Summary, total: u64) -> String {
    format!(
        "{verb}: {:.0} ops/s, mean {}, p99 {}, {total} in all, {} errors",
        summary.operations_per_second,
        duration_us(summary.mean_us),
        duration_us(summary.p99_us as f64),
        summary.errors,
    )
}

/// Prints a line for people: on standard output, or on standard error when that is for JSON.
pub fn say(json: bool, text: &str) {
    // A closed pipe must not end a run that takes hours.
    let _ = if json { writeln!(std::io::stderr(), "{text}") } else { writeln!(std::io::stdout(), "{text}") };
}

/// A latency in microseconds with a fitting unit.
pub fn duration_us(microseconds: f64) -> String {
    match microseconds {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A count or rate with a fitting prefix.
pub fn count(number: f64) -> String {
    match number {
        n if n < 1_000.0 => format!("{n:.0}"),
        n if n < 100_000.0 => format!("{:.1}k", n / 1e3),
        n if n < 1_000_000.0 => format!("{:.0}k", n / 1e3),
        n if n < 1e9 => format!("{:.2}M", n / 1e6),
        n => format!("{:.2}G", n / 1e9),
    }
}

pub use diorite_base::text::bytes;

/// Rows of text in columns: the first column left, the others right. Widths count characters.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = std::iter::zip(row, &widths)
            .enumerate()
            .map(
                |(column, (cell, &width))| {
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The final table of a run: one line for each kind of operation that happened.
pub fn result_table(tallies: &Tallies, seconds: f64) -> String {
    let header = ["", "ops", "ops/s", "mean", "p50", "p95", "p99", "p99.9", "max", "errors"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (name, tally) in [("reads", &tallies.reads), ("writes", &tallies.writes)] {
        let summary = tally.summary(seconds);
        if summary.operations + summary.errors == 0 {
            continue;
        }
        let latencies = [summary.p50_us, summary.p95_us, summary.p99_us, summary.p999_us, summary.max_us];
        let mut row =
            vec![name.to_owned(), summary.operations.to_string(), format!("{:.0}", summary.operations_per_second)];
        row.push(duration_us(summary.mean_us));
        row.extend(latencies.map(|latency_us| duration_us(latency_us as f64)));
        row.push(summary.errors.to_string());
        rows.push(row);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(duration_us(237.4), "237 µs");
        assert_eq!(duration_us(2_370.0), "2.37 ms");
        assert_eq!(duration_us(67_000.0), "67.0 ms");
        assert_eq!(duration_us(3_100_000.0), "3.10 s");
        assert_eq!(
            (count(999.0), count(47_000.0), count(374_000.0), count(2.6e6)),
            ("999".into(), "47.0k".into(), "374k".into(), "2.60M".into())
        );
    }

    #[test]
    fn columns_line_up() {
        let text = table(&[vec!["".into(), "p50".into()], vec!["reads".into(), "237 µs".into()]]);
        assert_eq!(text, "          p50\nreads  237 µs\n");
    }

    #[test]
    fn the_result_table_leaves_out_what_did_not_happen() {
        let mut tallies = Tallies::default();
        tallies.reads.latency_us.record(1_000).expect("within bounds");
        let text = result_table(&tallies, 1.0);
        assert!(text.contains("reads") && !text.contains("writes"), "{text}");
    }
}
