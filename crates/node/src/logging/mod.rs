//! Log output: standard error, as text or JSON, and the newest lines in memory.
//!
//! Always true: the lines in memory are bounded; levels may be changed while the node runs; invalid directives change
//! nothing. Callers remove secrets before they log: statements are logged without their values
//! (`diorite_cql::language::redacted`).

mod recent;
mod slow;

use crate::config::{LogFormat, StartOptions};
use diorite_base::SystemClock;
use parking_lot::Mutex;
pub(crate) use recent::{Level, Recent, UnknownLevel};
pub(crate) use slow::{SlowQueries, SlowQuery};
use std::sync::Arc;
use thiserror::Error;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// Directives that always apply. The log engine reports the zeros behind the last record of a crashed log as a broken
/// batch: this is expected, and no operator's concern.
const ALWAYS: &str = "raft_engine=error";
/// The level if the given directives are invalid.
const DEFAULT_LEVELS: &str = "info";

/// The parts of the process's logger that operators may read and change.
pub(crate) struct Logging {
    /// The newest lines.
    pub(crate) recent: Arc<Recent>,
    /// The log of slow requests.
    pub(crate) slow: SlowQueries,
    format: LogFormat,
    filter: reload::Handle<EnvFilter, Registry>,
    levels: Mutex<String>,
}

/// Why the levels of the log were not changed.
#[derive(Debug, Error)]
pub(crate) enum LevelsError {
    /// The directives cannot be parsed.
    #[error(transparent)]
    Unreadable(#[from] ParseError),
    /// The process has a logger of another kind.
    #[error(transparent)]
    NotInstalled(#[from] reload::Error),
}

fn filter_of(levels: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{ALWAYS},{levels}"))
}

impl Logging {
    /// Installs the process's logger. Invalid directives fall back to `info`, with a warning.
    pub(crate) fn install(options: &StartOptions) -> Arc<Self> {
        let (levels, filter, unreadable) = match filter_of(&options.log_level) {
            Ok(filter) => (options.log_level.clone(), filter, None),
            Err(error) => {
                (DEFAULT_LEVELS.to_owned(), EnvFilter::new(format!("{ALWAYS},{DEFAULT_LEVELS}")), Some(error))
            }
        };
        let recent = Arc::new(Recent::new(SystemClock::new()));
        let (filter, handle) = reload::Layer::new(filter);
        // A line that cannot be written is lost: to report that on standard error would panic once its reader has gone.
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
        let lines = match options.log_format {
            LogFormat::Text => lines.with_target(false).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        let logger = tracing_subscriber::registry().with(filter).with(lines).with(recent::Keep(Arc::clone(&recent)));
        // A logger that is installed already (in tests) stays.
        let _ = logger.try_init();
        if let Some(error) = unreadable {
            tracing::warn!(%error, "log level cannot be read, using info");
        }
        let slow = SlowQueries::new(options.slow_query.0);
        Arc::new(Self { recent, slow, format: options.log_format, filter: handle, levels: Mutex::new(levels) })
    }

    /// The current directives, as they were given.
    pub(crate) fn levels(&self) -> String {
        self.levels.lock().clone()
    }

    /// The form of the lines.
    pub(crate) fn format(&self) -> LogFormat {
        self.format
    }

    /// Sets the directives from now on.
    pub(crate) fn set_levels(&self, levels: &str) -> Result<(), LevelsError> {
        let filter = filter_of(levels)?;
        // One change at a time, so that the stored text matches the directives in force.
        let mut shown = self.levels.lock();
        self.filter.reload(filter)?;
        tracing::info!(levels, before = %*shown, "log levels were changed");
        levels.clone_into(&mut shown);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_or_refused() {
        for good in ["info", "warn,diorite_replica=debug", "off"] {
            assert!(filter_of(good).is_ok(), "{good}");
        }
        for bad in ["diorite=loud", "a=b=c"] {
            assert!(filter_of(bad).is_err(), "{bad}");
        }
    }
}
