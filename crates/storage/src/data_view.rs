//! A tablet's data as programs and steps of indexes see it.
//!
//! Always true: nothing is changed; each call sees the data as it is then. Left out: one moment for several calls
//! ([`TabletData::snapshot`]).

use crate::engine::{ScanRange, TabletData};
use diorite_base::mutation::{EvaluationFailed, TabletView};
use std::sync::Arc;

/// See the top of this module.
pub struct DataView<'d, T>(
    /// The data.
    pub &'d Arc<T>,
);

impl<T: TabletData> TabletView for DataView<'_, T> {
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
        self.0.scan(&range, visit).map(drop).map_err(|error| EvaluationFailed(error.to_string()))
    }
}
