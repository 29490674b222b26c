//! What a phase of a benchmark is.

use super::published::Reference;
use crate::runner::Plan;

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
