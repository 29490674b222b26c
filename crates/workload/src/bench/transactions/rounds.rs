//! Steps measured in alternation: every round runs every step, and steps are compared within a round. What other
//! processes do meanwhile and how the tables grow affects both sides of a ratio alike.
//!
//! Always true: a ratio is the median of the ratios of the rounds; a round in which one of the two was not measured does
//! not count.

use std::collections::BTreeMap;

use crate::bench::phase::PhaseSpec;
use crate::latency::Tallies;
use crate::process::Usage;
use crate::report::PhaseResult;
use crate::runner::Outcome;

/// What one step took in one round.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Round {
    pub operations_per_second: f64,
    pub server_cpu_seconds_per_operation: Option<f64>,
    /// `None` if nothing succeeded.
    pub p50_us: Option<f64>,
}

impl From<&PhaseResult> for Round {
    fn from(phase: &PhaseResult) -> Self {
        let positive = |value: &f64| *value > 0.0;
        let per_second = phase.operations_per_server_cpu_second.filter(positive);
        Self {
            operations_per_second: phase.operations_per_second(),
            server_cpu_seconds_per_operation: per_second.map(|operations| 1.0 / operations),
            p50_us: Some(phase.main_kind().p50_us as f64).filter(positive),
        }
    }
}

/// All rounds of one step.
#[derive(Default)]
pub struct Rounds {
    phases: Vec<PhaseResult>,
    tallies: Tallies,
    seconds: f64,
}

impl Rounds {
    /// Adds one round.
    pub fn add(&mut self, phase: PhaseResult, outcome: &Outcome) {
        self.tallies.merge(&outcome.tallies);
        self.seconds += outcome.seconds;
        self.phases.push(phase);
    }

    /// What the step took in each round.
    pub fn rounds(&self) -> Vec<Round> {
        self.phases.iter().map(Round::from).collect()
    }

    /// All rounds as one phase of their length, with the name and description of `spec`; `None` without rounds.
    pub fn whole(&self, spec: PhaseSpec) -> Option<PhaseResult> {
        let (first, last) = (self.phases.first()?, self.phases.last()?);
        let tallies = self.tallies.clone();
        let outcome = Outcome { tallies, seconds: self.seconds, interrupted: false, errors: BTreeMap::new() };
        let sum = |of: fn(&PhaseResult) -> Option<u64>| self.phases.iter().map(of).sum::<Option<u64>>();
        let zero = Usage {
            cpu_seconds: Some(0.0),
            disk_read_bytes: Some(0),
            disk_write_bytes: Some(0),
            device_reads: Some(0),
            device_writes: Some(0),
            ..Usage::default()
        };
        let used = Usage {
            cpu_seconds: self.phases.iter().map(|phase| phase.server_cpu_seconds).sum(),
            resident_bytes: last.server_resident_bytes,
            disk_read_bytes: sum(|phase| phase.disk_read_bytes),
            disk_write_bytes: sum(|phase| phase.disk_write_bytes),
            device_reads: sum(|phase| phase.device_reads),
            device_writes: sum(|phase| phase.device_writes),
            sst_bytes: last.sst_bytes,
        };
        Some(PhaseResult::new(&spec, first.start_s, first.start_s + self.seconds, &outcome, &zero, &used))
    }
}

/// The median; of an even number of values, the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let is_even = values.len().is_multiple_of(2);
    Some(if is_even { f64::midpoint(values[middle - 1], upper) } else { upper })
}

/// The median over the rounds of a value of one step divided by that of another in the same round.
pub fn ratio(step: &[Round], base: &[Round], value: fn(&Round) -> Option<f64>) -> Option<f64> {
    let rounds = std::iter::zip(step, base);
    median(rounds.filter_map(|(step, base)| Some(value(step)? / value(base)?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(cpu_us: f64, p50_us: f64) -> Round {
        let server_cpu_seconds_per_operation = Some(cpu_us / 1e6).filter(|cpu| *cpu > 0.0);
        Round { operations_per_second: 1.0, server_cpu_seconds_per_operation, p50_us: Some(p50_us) }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_ratio_compares_steps_of_the_same_round() {
        // The machine is half as fast in the second round, which changes no ratio.
        let base = [round(10.0, 100.0), round(20.0, 200.0), round(10.0, 100.0)];
        let step = [round(30.0, 150.0), round(60.0, 300.0), round(80.0, 500.0)];
        let cpu = |round: &Round| round.server_cpu_seconds_per_operation;
        let found = ratio(&step, &base, cpu).unwrap_or_default();
        assert!((found - 3.0).abs() < 1e-9, "{found}");
        assert_eq!(ratio(&step, &base, |round| round.p50_us), Some(1.5));
        // A round that was cut off, or in which nothing was measured, does not count.
        assert_eq!(ratio(&step[..1], &base, |round| round.p50_us), Some(1.5));
        assert_eq!(ratio(&step, &[round(0.0, 1.0)], cpu), None);
    }
}
