//! The result of a benchmark as data, and its forms: a table on the terminal, JSON, and one HTML file with charts.
//!
//! Always true: the JSON holds everything that the HTML shows; numbers that were not measured are `null` and shown as a
//! dash. Times are seconds since the first phase began, latencies microseconds, sizes bytes.

use std::path::Path;

use crate::WorkloadError;
use crate::bench::measure::Measurement;
use crate::bench::stopwatch::date_time;
use crate::process::Environment;

mod chart;
mod html;
pub mod results;

pub use results::{Figure, Header, PhaseResult, Report, Sample};

/// The version of the JSON's shape; raised when a field changes its meaning.
const FORMAT: u32 = 1;

impl Report {
    /// A report of everything measured.
    pub fn new(header: Header, measurement: Measurement) -> Self {
        Self {
            format: FORMAT,
            header,
            version: env!("CARGO_PKG_VERSION"),
            started_at: date_time(measurement.started_wall_us),
            // The path of the program is left out, as it may name a user of this machine.
            command_line: std::iter::once("diorite".to_owned())
                .chain(std::env::args().skip(1))
                .collect::<Vec<_>>()
                .join(" "),
            environment: Environment::current(),
            figures: Vec::new(),
            phases: measurement.phases,
            samples: measurement.samples,
            nodes: measurement.nodes,
            unfinished: Vec::new(),
        }
    }

    /// Writes `report.html` and `report.json` into `directory`.
    pub fn write(&self, directory: &Path) -> Result<(), WorkloadError> {
        std::fs::create_dir_all(directory).map_err(|error| WorkloadError::file(directory, error))?;
        for (name, text) in [("report.html", html::render(self)), ("report.json", self.to_json())] {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(|error| WorkloadError::file(&path, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
