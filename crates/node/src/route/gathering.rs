//! Whether frames are being gathered, and whether they are to be sent.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Shared by all that add to gathered frames.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// A frame may have content.
    has_frames: AtomicBool,
    leaving: Notify,
}

impl Gathering {
    /// Notes that a frame has new content.
    pub(super) fn added(&self) {
        self.has_frames.store(true, Ordering::SeqCst);
    }

    /// Whether a frame has had new content since the last call. If not, the call costs one load.
    pub(super) fn take(&self) -> bool {
        self.has_frames.load(Ordering::SeqCst) && self.has_frames.swap(false, Ordering::SeqCst)
    }

    /// Ends the wait of [`Self::leave`], if a frame has new content.
    pub(super) fn leave_soon(&self) {
        if self.has_frames.load(Ordering::SeqCst) {
            self.leaving.notify_one();
        }
    }

    /// Waits until frames are to be sent.
    pub(super) async fn leave(&self) {
        self.leaving.notified().await;
    }
}
