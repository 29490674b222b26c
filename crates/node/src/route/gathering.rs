//! Whether frames are being gathered, and whether they are to leave.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Shared by all that add to frames.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// A frame may have something in it.
    has_frames: AtomicBool,
    leaving: Notify,
}

impl Gathering {
    /// Something was added to a frame.
    pub(super) fn added(&self) {
        self.has_frames.store(true, Ordering::SeqCst);
    }

    /// Whether something was added since this was asked last. If not, it costs one load.
    pub(super) fn take(&self) -> bool {
        self.has_frames.load(Ordering::SeqCst) && self.has_frames.swap(false, Ordering::SeqCst)
    }

    /// Ends the wait of [`Self::leave`], if something was added.
    pub(super) fn leave_soon(&self) {
        if self.has_frames.load(Ordering::SeqCst) {
            self.leaving.notify_one();
        }
    }

    /// Waits until frames are to leave.
    pub(super) async fn leave(&self) {
        self.leaving.notified().await;
    }
}
