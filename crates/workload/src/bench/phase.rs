//! Phases of a benchmark.

use super::published::Reference;
use crate::runner::Plan;

/// The name and parameters of a phase, and its published counterpart.
#[derive(Debug, Clone)]
pub struct PhaseSpec {
    pub name: String,
    pub description: String,
    pub plan: Plan,
    pub reference: Reference,
    /// Whether the result table shows it; it does not show warm-ups.
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
