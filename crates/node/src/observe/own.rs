//! This node's answers to questions about itself, whichever node was asked.

use super::{Allocator, memory, queries};
use crate::config::SlowQueryOption;
use crate::logging::{Level, Logging, UnknownLevel};
use crate::operate::Own;
use crate::shared::Shared;
use diorite_admin::api::{Activity, Done, Failure, FailureKind, LogChange, LogFilter, LogStatus, NodeQuestion};
use diorite_rpc::tcp::TcpTransport;
use serde_json::Value;
use std::sync::Arc;

/// The level of lines that are shown if none is asked for.
const SHOWN_LEVEL: &str = "info";

/// The sources of the answers.
pub(crate) struct Observed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) transport: Arc<TcpTransport>,
    /// The options in force.
    pub(crate) configuration: Value,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) allocator: Allocator,
}

impl Observed {
    /// Bytes that wait to be sent to other nodes.
    fn lanes_bytes(&self) -> u64 {
        self.transport.statistics().iter().map(|(.., lane)| lane.bytes_waiting).sum()
    }
}

impl Own for Observed {
    fn activity(&self) -> Activity {
        self.shared.history.latest()
    }

    fn answer(&self, question: NodeQuestion) -> Result<Value, Failure> {
        let shown = match question {
            NodeQuestion::History => Ok(self.shared.history.to_json()),
            NodeQuestion::Queries => serde_json::to_value(queries::look(&self.shared)),
            NodeQuestion::Memory => serde_json::to_value(memory::look(
                &self.shared,
                self.lanes_bytes(),
                self.memory_limit_bytes,
                (self.allocator.status)(),
            )),
            NodeQuestion::Logs(filter) => Ok(logs(&self.shared.logging, filter)?),
            NodeQuestion::Configuration => Ok(self.configuration.clone()),
            NodeQuestion::Cancel { number } => match self.shared.engine.activity().cancel(number) {
                true => serde_json::to_value(Done { message: format!("request {number} is ended") }),
                false => {
                    let message = format!("no request with the number {number} runs on this node");
                    return Err(Failure::new(FailureKind::NotFound, message));
                }
            },
            NodeQuestion::Logging(change) => serde_json::to_value(log(&self.shared.logging, &change)?),
        };
        shown.map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Invalid, message)
}

fn logs(logging: &Logging, filter: LogFilter) -> Result<Value, Failure> {
    // An empty field of a form selects nothing.
    let level = filter.level.filter(|level| !level.is_empty());
    let level: Level =
        level.as_deref().unwrap_or(SHOWN_LEVEL).parse().map_err(|error: UnknownLevel| invalid(error.to_string()))?;
    Ok(logging.recent.last(level, filter.limit))
}

/// Changes how this node logs. If a value cannot be parsed, nothing is changed.
fn log(logging: &Logging, change: &LogChange) -> Result<LogStatus, Failure> {
    let slow_query = change.slow_query.as_deref().map(str::parse::<SlowQueryOption>).transpose();
    let slow_query = slow_query.map_err(|error| invalid(format!("slow_query: {error}")))?;
    if let Some(levels) = &change.levels {
        logging.set_levels(levels).map_err(|error| invalid(format!("levels: {error}")))?;
    }
    if let Some(SlowQueryOption(threshold_ms)) = slow_query {
        logging.slow.set_threshold_ms(threshold_ms);
    }
    Ok(LogStatus {
        levels: logging.levels(),
        slow_query: SlowQueryOption(logging.slow.threshold_ms()).to_string(),
        format: logging.format().to_string(),
    })
}
