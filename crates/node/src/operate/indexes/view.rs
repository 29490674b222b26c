//! A tablet's data, for reading the specifications of its indexes.
//!
//! Always true: nothing is changed.

use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_storage::{ScanRange, Tablet};
use std::sync::Arc;

/// See the top of this module.
pub(super) struct View<'t>(pub(super) &'t Arc<Tablet>);

impl TabletView for View<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        let found = self.0.get(key).map_err(|error| EvaluationFailed(error.to_string()))?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        self.0.scan(&range, visit).map(|_| ()).map_err(|error| EvaluationFailed(error.to_string()))
    }
}
