//! Runs phases one after another and samples clients and servers once a second.
//!
//! Always true: a phase's server numbers are differences between its first and last moment, taken when no request is in
//! flight; samples carry the time since the start of the first phase, so that all charts share one axis.

use std::path::PathBuf;

use diorite_base::clock::{Clock, SystemClock};

use super::published::Reference;
use super::watch::NodesSample;
use crate::WorkloadError;
use crate::process::{Sampler, Usage};
use crate::report::{PhaseResult, Sample};
use crate::runner::{Executor, Interval, Observer, Outcome, Plan, drive};
use crate::status::{StatusLine, say};

/// What a phase is and what it is compared with.
#[derive(Debug, Clone)]
pub struct PhaseSpec {
    pub name: String,
    pub description: String,
    pub plan: Plan,
    pub reference: Reference,
    /// Whether it stands in the result table; a warm-up does not.
    pub is_result: bool,
    /// Whether requests that fail are a result and not a mistake.
    pub expects_errors: bool,
}

impl PhaseSpec {
    /// A phase that is compared with nothing.
    pub fn new(name: impl Into<String>, description: impl Into<String>, plan: Plan) -> Self {
        let reference = Reference::default();
        let (name, description) = (name.into(), description.into());
        Self { name, description, plan, reference, is_result: true, expects_errors: false }
    }
}

/// Time since the first phase began.
#[derive(Debug, Clone, Default)]
pub struct Stopwatch {
    // Its monotonic time starts when it is made.
    clock: SystemClock,
}

impl Stopwatch {
    /// Seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.clock.monotonic_ns() as f64 / 1e9
    }
}

/// The phases and samples of one run.
pub struct Measurement {
    pub phases: Vec<PhaseResult>,
    pub samples: Vec<Sample>,
    /// What the nodes held and led, where somebody watched.
    pub nodes: Vec<NodesSample>,
    pub started_wall_us: i64,
    sampler: Sampler,
    stopwatch: Stopwatch,
    json: bool,
}

impl Measurement {
    /// A measurement that begins now.
    pub fn new(sampler: Sampler, json: bool) -> Self {
        let stopwatch = Stopwatch::default();
        let started_wall_us = stopwatch.clock.wall_us();
        let (phases, samples, nodes) = (Vec::new(), Vec::new(), Vec::new());
        Self { phases, samples, nodes, started_wall_us, sampler, stopwatch, json }
    }

    /// What samples the servers: processes that come later are added to it.
    pub fn sampler(&self) -> Sampler {
        self.sampler.clone()
    }

    /// The time that samples are stamped with.
    pub fn stopwatch(&self) -> Stopwatch {
        self.stopwatch.clone()
    }

    /// Runs one phase.
    pub async fn phase(&mut self, spec: PhaseSpec, executor: &Executor) -> Result<Outcome, WorkloadError> {
        say(self.json, &format!("{}: {}", spec.name, spec.description));
        let start_s = self.elapsed_s();
        let before = self.sampler.sample();
        let mut observer = PhaseObserver {
            status: StatusLine::new(&spec.name, &spec.plan, self.json),
            sampler: &self.sampler,
            samples: &mut self.samples,
            phase: self.phases.len(),
            phase_start_s: start_s,
            previous: before,
        };
        let outcome = drive(executor, &spec.plan, &mut observer).await;
        observer.status.finish();
        let outcome = outcome?;
        let after = self.sampler.sample();
        let phase = PhaseResult::new(&spec, start_s, self.elapsed_s(), &outcome, &before, &after);
        for (message, times) in &outcome.errors {
            say(self.json, &format!("  failed {times} times: {message}"));
        }
        say(self.json, &format!("  {}", phase.summary_line()));
        self.phases.push(phase);
        Ok(outcome)
    }

    fn elapsed_s(&self) -> f64 {
        self.stopwatch.elapsed_s()
    }
}

struct PhaseObserver<'run> {
    status: StatusLine,
    sampler: &'run Sampler,
    samples: &'run mut Vec<Sample>,
    phase: usize,
    phase_start_s: f64,
    previous: Usage,
}

impl Observer for PhaseObserver<'_> {
    fn observe(&mut self, interval: &Interval) {
        self.status.observe(interval);
        // The remainder of a second at the end of a phase is too short for a rate.
        if interval.seconds < 0.5 {
            return;
        }
        let usage = self.sampler.sample();
        let at_s = self.phase_start_s + interval.elapsed_s;
        self.samples.push(Sample::new(at_s, self.phase, interval, &self.previous, &usage));
        self.previous = usage;
    }
}

/// `bench-results/<date-time>`, in UTC.
pub fn default_report_directory() -> PathBuf {
    let stamp = date_time(SystemClock::new().wall_us());
    PathBuf::from("bench-results").join(stamp.replace(':', "").replace(' ', "-"))
}

/// `2026-11-21 01:02:03` for microseconds since 1970.
pub fn date_time(wall_us: i64) -> String {
    let seconds = wall_us.div_euclid(1_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's algorithm: years begin in March, so that the leap day comes last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(date_time(0), "1970-01-01 00:00:00");
        assert_eq!(date_time(951_782_399_000_000), "2000-02-28 23:59:59");
        assert_eq!(date_time(951_827_696_000_000), "2000-02-29 12:34:56");
        assert_eq!(date_time(1_795_222_923_000_000), "2026-11-21 01:02:03");
    }
}
