//! A tablet's data as evaluated mutations read it.
//!
//! Always true: each read counts as progress of the thread that applies. Left out: what the mutation changes
//! ([`super::apply`]).

use crate::group::samples::KeySamples;
use crate::progress::WorkProgress;
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_storage::{ScanRange, TabletData};
use std::cell::Cell;
use std::sync::Arc;

/// The tablet's data for an evaluated mutation. Some of the keys that it reads are sampled, chosen by the mutation's
/// number.
pub(super) struct View<'a, T> {
    pub(super) data: &'a Arc<T>,
    pub(super) samples: &'a KeySamples,
    pub(super) nth: u64,
    pub(super) progress: &'a WorkProgress,
}

/// Notes whether the data could not be read: an evaluation that fails although it could has met a malformed row.
pub(super) struct Watched<'v> {
    view: &'v dyn TabletView,
    has_failed: Cell<bool>,
}

impl<'v> Watched<'v> {
    pub(super) fn new(view: &'v dyn TabletView) -> Self {
        Self { view, has_failed: Cell::new(false) }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    fn noted<R>(&self, read: Result<R, EvaluationFailed>) -> Result<R, EvaluationFailed> {
        self.has_failed.set(self.has_failed.get() || read.is_err());
        read
    }
}

impl TabletView for Watched<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        self.noted(self.view.get(key))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        self.noted(self.view.scan(start, end, visit))
    }

    fn scan_briefly(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, EvaluationFailed> {
        self.noted(self.view.scan_briefly(start, end, visit))
    }
}

impl<T: TabletData> TabletView for View<'_, T> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        self.samples.offer(self.nth, key);
        self.progress.step();
        let found = self.data.get(key).map_err(|error| EvaluationFailed(error.to_string()))?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        self.samples.offer(self.nth, start);
        self.progress.step();
        let mut visit = |key: &[u8], value: &[u8]| {
            self.progress.step();
            visit(key, value)
        };
        self.data.scan(&range, &mut visit).map_err(|error| EvaluationFailed(error.to_string()))?;
        Ok(())
    }

    fn scan_briefly(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        self.progress.step();
        let mut visit = |key: &[u8], value: &[u8]| {
            self.progress.step();
            visit(key, value)
        };
        self.data.scan_briefly(&range, &mut visit).map_err(|error| EvaluationFailed(error.to_string()))
    }
}
