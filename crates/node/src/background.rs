//! Work that outlives the requests which have begun it: what is left of a transaction when its client was answered.
//!
//! Always true: there is a bounded number of such tasks; what is beyond it is dropped, as tablets finish transactions
//! whose coordinator has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most tasks at a time.
const MAX_TASKS: usize = 10_000;

/// See the top of this module.
#[derive(Clone, Default)]
pub(crate) struct Background(Arc<AtomicUsize>);

/// A task that is counted until it ends, also if it never runs.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Background {
    /// Carries out work, unless there is too much of it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // A node that stops drops requests when its runtime is gone.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let counted = Counted(Arc::clone(&self.0));
        if self.0.fetch_add(1, Ordering::Relaxed) >= MAX_TASKS {
            return;
        }
        runtime.spawn(async move {
            work.await;
            drop(counted);
        });
    }
}
