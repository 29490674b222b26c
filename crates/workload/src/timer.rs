//! Waiting: for points in real time, and for signals.
//!
//! Always true: [`pause`] is the only timer besides the timeouts of requests.

use std::time::Duration;

/// Waits; the crate's only timer besides request time-outs.
#[allow(
    clippy::disallowed_methods,
    reason = "a load generator lives in real time: pacing, backing off, one line a second"
)]
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Resolves at Ctrl-C or SIGTERM.
pub async fn interruption() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
