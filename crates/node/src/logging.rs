//! Log output: standard error, as text or JSON.

use crate::config::{LogFormat, StartOptions};
use tracing_subscriber::EnvFilter;

/// Installs the process's logger. Directives that cannot be read fall back to `info`, which is said.
pub(crate) fn install(options: &StartOptions) {
    // The log engine reports the zeros behind the last record of a crashed log as a broken batch: expected, and not an operator's concern.
    let directives = format!("raft_engine=error,{}", options.log_level);
    let (filter, unreadable) = match EnvFilter::try_new(directives) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A logger that is installed already (in tests) stays.
    let _ = match options.log_format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let Some(error) = unreadable {
        tracing::warn!(%error, "log level cannot be read, using info");
    }
}
