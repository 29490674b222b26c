//! The timer of the shells: a wait that only time ends.

use std::time::Duration;

/// Waits before something is tried or checked again.
pub(crate) async fn pause(duration: Duration) {
    #[allow(clippy::disallowed_methods, reason = "a shell's timer: no event says when to try again")]
    tokio::time::sleep(duration).await;
}
