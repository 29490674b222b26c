//! SIGHUP: reads the configuration file again, and applies the options that may change while the node runs.
//!
//! Always true: a file that is refused changes nothing; an option that needs a restart is named in the log and stays as
//! it is. Left out: certificates, which are watched for changes, and settings of the whole cluster, which are in the
//! catalog.

use crate::config::StartOptions;
use crate::http::configuration;
use crate::logging::Logging;
use crate::program::ConfigurationFile;
use crate::signals::Hangups;
use std::sync::Arc;

/// The options that change without a restart.
const RELOADED: [&str; 2] = ["log_level", "slow_query"];

/// Runs as long as the node. A signal that arrived during the start counts: the file may have been read before it.
pub(crate) async fn follow(
    file: ConfigurationFile,
    mut hangups: Hangups,
    mut current: StartOptions,
    logging: Arc<Logging>,
) {
    while hangups.arrived().await.is_some() {
        let path = file.path.display();
        match (file.read)(&file.path) {
            Ok(options) => {
                apply(&current, &options, &logging);
                current = options;
                tracing::info!(event = "configuration", %path, "the configuration was read again");
            }
            Err(error) => {
                tracing::error!(event = "configuration", %error, "the configuration is refused: nothing changes")
            }
        }
    }
}

fn apply(current: &StartOptions, options: &StartOptions, logging: &Logging) {
    if options.log_level != current.log_level
        && let Err(error) = logging.set_levels(&options.log_level)
    {
        tracing::error!(event = "configuration", %error, "log-level cannot be read: it stays as it is");
    }
    if options.slow_query != current.slow_query {
        logging.slow.set_threshold_ms(options.slow_query.0);
    }
    for option in need_restart(current, options) {
        tracing::warn!(event = "configuration", option, "an option has changed that takes effect after a restart");
    }
}

/// The options that differ and cannot change while the node runs, by their names on the command line.
fn need_restart(current: &StartOptions, options: &StartOptions) -> Vec<String> {
    let (current, options) = (configuration(current), configuration(options));
    let Some(fields) = options.as_object() else { return Vec::new() };
    let changed = fields.iter().filter(|(name, value)| current.get(name.as_str()) != Some(value));
    changed
        .map(|(name, _)| name.replace('_', "-"))
        .filter(|name| !RELOADED.contains(&&*name.replace('-', "_")))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn options(arguments: &[&str]) -> StartOptions {
        let command = StartOptions::augment_args(Command::new("start"));
        let arguments = ["start", "--data-dir", "/a"].into_iter().chain(arguments.iter().copied());
        StartOptions::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn options_that_need_a_restart_are_named() {
        let before = options(&[]);
        assert!(need_restart(&before, &options(&["--log-level", "debug", "--slow-query", "1000"])).is_empty());
        let after = options(&["--cql-port", "9100", "--memory-limit", "1GiB", "--log-level", "debug"]);
        assert_eq!(need_restart(&before, &after), ["cql-port", "memory-limit"]);
    }
}
