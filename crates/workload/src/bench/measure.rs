//! Runs phases one after another and samples clients and servers once a second.
//!
//! Always true: a phase's server numbers are differences between its first and last moment, taken when no request is in
//! flight; samples carry the time since the start of the first phase, so that all charts share one axis.

use super::phase::PhaseSpec;
use super::stopwatch::Stopwatch;
use super::watch::NodesSample;
use crate::WorkloadError;
use crate::process::{Sampler, Usage};
use crate::report::results::{PhaseResult, Sample};
use crate::runner::{Executor, Interval, Observer, Outcome, drive};
use crate::status::{StatusLine, say};

/// The phases and samples of one run.
pub struct Measurement {
    pub phases: Vec<PhaseResult>,
    pub samples: Vec<Sample>,
    /// Stored bytes and led tablets of the nodes, if they were sampled.
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
        let started_wall_us = stopwatch.wall_us();
        let (phases, samples, nodes) = (Vec::new(), Vec::new(), Vec::new());
        Self { phases, samples, nodes, started_wall_us, sampler, stopwatch, json }
    }

    /// The sampler of the servers' usage; servers that start later are added to it.
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
