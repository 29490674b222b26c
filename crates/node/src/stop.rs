//! External signals that stop a node.

use crate::error::StartError;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a node.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From now on the signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self, StartError> {
        let system = |error| StartError::System("cannot wait for signals", error);
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(system)?,
            interrupt: signal(SignalKind::interrupt()).map_err(system)?,
        })
    }

    /// Waits for the first signal.
    pub(crate) async fn arrived(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
