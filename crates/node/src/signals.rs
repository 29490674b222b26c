//! The signals that a node heeds: SIGTERM and SIGINT stop it, SIGHUP has it read its files again.
//!
//! Always true: they are caught before the node does anything else, and from then on none of them ends the process by
//! itself, whether it has a configuration file and certificates or not. A signal that nobody waits for yet is
//! remembered. Left out: SIGPIPE, which Rust's runtime ignores, so that a closed reader is an error of the write; and
//! all others, which do to a node what they do to any process.

use crate::error::StartError;
use std::io;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Each who waits for a signal has a place of its own.
pub(crate) struct Signals {
    /// Stops a node that has not started yet.
    pub(crate) starting: StopSignals,
    /// Stops a node that serves.
    pub(crate) serving: StopSignals,
    /// The configuration file is to be read again.
    pub(crate) configuration: Hangups,
    /// The certificates for other nodes are.
    pub(crate) certificates: Hangups,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch(runtime: &Runtime) -> Result<Self, StartError> {
        let _within = runtime.enter();
        let caught = || -> io::Result<Self> {
            Ok(Self {
                starting: StopSignals::new()?,
                serving: StopSignals::new()?,
                configuration: Hangups::new()?,
                certificates: Hangups::new()?,
            })
        };
        caught().map_err(|error| StartError::System("cannot wait for signals", error))
    }
}

/// The signals that stop a node.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first signal.
    pub(crate) async fn arrived(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Ends the process at the first signal.
    pub(crate) async fn end_process(mut self) {
        self.arrived().await;
        end()
    }
}

/// SIGHUP, for one who reads files.
pub(crate) struct Hangups(Signal);

impl Hangups {
    fn new() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Waits for the next one. Those that arrived since the last are one.
    pub(crate) async fn arrived(&mut self) -> Option<()> {
        self.0.recv().await
    }
}

/// Ends the process. Everything is durable, and closing a thousand RocksDBs one by one would only take time. The
/// libraries' own clean-up is skipped, as it would destroy state that threads closing dropped tablets still use.
pub(crate) fn end() -> ! {
    // SAFETY: `_exit` has no preconditions, and does not return.
    unsafe { libc::_exit(0) }
}
