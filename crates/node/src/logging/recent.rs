//! The newest lines of the log, in memory.
//!
//! Always true: at most [`MAX_LINES`] lines and [`MAX_BYTES`] bytes of text are kept; longer texts than
//! [`MAX_TEXT_BYTES`] are cut.

use diorite_base::{Clock, SystemClock};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

const MAX_LINES: usize = 5_000;
const MAX_BYTES: usize = 2 << 20;
/// The longest text that is kept of a message, or of the value of a field.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Lines that an answer shows if the question names no number.
const SHOWN: usize = 500;
/// The estimated memory of a line beside its text, bytes.
const LINE_BYTES: usize = 128;

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(tracing::Level);

impl Level {
    fn name(self) -> &'static str {
        match self.0 {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            tracing::Level::INFO => "info",
            tracing::Level::DEBUG => "debug",
            tracing::Level::TRACE => "trace",
        }
    }
}

/// A text that names no level.
#[derive(Debug, Error)]
#[error("'{0}' is not a level: error, warn, info, debug or trace")]
pub(crate) struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        match text.to_ascii_lowercase().as_str() {
            "warning" => Ok(Self(tracing::Level::WARN)),
            "error" | "warn" | "info" | "debug" | "trace" => {
                text.parse().map(Self).map_err(|_| UnknownLevel(text.to_owned()))
            }
            _ => Err(UnknownLevel(text.to_owned())),
        }
    }
}

struct Line {
    unix_us: i64,
    level: Level,
    target: &'static str,
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Line {
    fn bytes(&self) -> usize {
        LINE_BYTES
            + self.message.len()
            + self.fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }

    fn to_json(&self) -> Value {
        let fields: Map<String, Value> =
            self.fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str()))).collect();
        json!({
            "unix_seconds": self.unix_us as f64 / 1e6,
            "level": self.level.name(),
            "target": self.target,
            "message": self.message,
            "fields": fields,
        })
    }
}

#[derive(Default)]
struct Lines {
    lines: VecDeque<Line>,
    bytes: usize,
}

/// The newest lines.
pub(crate) struct Recent {
    lines: Mutex<Lines>,
    clock: SystemClock,
}

impl Recent {
    pub(crate) fn new(clock: SystemClock) -> Self {
        Self { lines: Mutex::default(), clock }
    }

    fn push(&self, line: Line) {
        let mut kept = self.lines.lock();
        kept.bytes += line.bytes();
        kept.lines.push_back(line);
        while kept.lines.len() > MAX_LINES || kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.bytes -= oldest.bytes();
        }
    }

    /// The estimated memory of the lines, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.lock().bytes
    }

    /// The last `limit` lines whose severity is at least `level`, oldest first.
    pub(crate) fn last(&self, level: Level, limit: Option<usize>) -> Value {
        let limit = limit.unwrap_or(SHOWN).min(MAX_LINES);
        let kept = self.lines.lock();
        // A more severe level compares as less.
        let wanted = kept.lines.iter().rev().filter(|line| line.level <= level).take(limit);
        let mut lines: Vec<Value> = wanted.map(Line::to_json).collect();
        lines.reverse();
        Value::Array(lines)
    }
}

/// Keeps each event that the logger accepts.
pub(super) struct Keep(pub(super) Arc<Recent>);

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut found = Found::default();
        event.record(&mut found);
        let metadata = event.metadata();
        self.0.push(Line {
            unix_us: self.0.clock.wall_us(),
            level: Level(*metadata.level()),
            target: metadata.target(),
            message: found.message,
            fields: found.fields,
        });
    }
}

#[derive(Default)]
struct Found {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Found {
    fn put(&mut self, field: &Field, mut value: String) {
        if value.len() > MAX_TEXT_BYTES {
            let end = (0..=MAX_TEXT_BYTES).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
            value.truncate(end);
            value.push('…');
        }
        match field.name() {
            "message" => self.message = value,
            // Metadata of records that other crates log through `log`.
            name if name.starts_with("log.") => {}
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for Found {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    fn kept(log: impl FnOnce()) -> Arc<Recent> {
        let recent = Arc::new(Recent::new(SystemClock::new()));
        let logger = tracing_subscriber::registry().with(Keep(Arc::clone(&recent)));
        tracing::subscriber::with_default(logger, log);
        recent
    }

    fn messages(recent: &Recent, level: &str, limit: Option<usize>) -> Vec<String> {
        let lines = recent.last(level.parse().unwrap(), limit);
        lines.as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn lines_are_kept_with_their_fields() {
        let recent = kept(|| tracing::warn!(tablet = 7, name = "x", text = %"y", "a thing"));
        let line = recent.last("trace".parse().unwrap(), None)[0].clone();
        assert_eq!((&line["level"], &line["message"]), (&json!("warn"), &json!("a thing")));
        assert_eq!(line["fields"], json!({ "tablet": "7", "name": "x", "text": "y" }));
        assert!(line["unix_seconds"].as_f64().unwrap() > 1.7e9);
    }

    #[test]
    fn those_grave_enough_are_shown_up_to_the_limit_oldest_first() {
        let recent = kept(|| {
            tracing::error!("1");
            tracing::info!("2");
            tracing::debug!("3");
            tracing::warn!("4");
        });
        assert_eq!(messages(&recent, "info", None), ["1", "2", "4"]);
        assert_eq!(messages(&recent, "WARNING", None), ["1", "4"]);
        assert_eq!(messages(&recent, "trace", Some(2)), ["3", "4"]);
        assert!("loud".parse::<Level>().is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let recent = kept(|| (0..MAX_LINES + 10).for_each(|n| tracing::info!("{n}")));
        let shown = messages(&recent, "info", Some(usize::MAX));
        assert_eq!((shown.len(), shown[0].as_str()), (MAX_LINES, "10"));
        let long = "ä".repeat(MAX_TEXT_BYTES);
        let recent = kept(|| (0..2_000).for_each(|_| tracing::info!("{long}")));
        assert!(recent.bytes() <= MAX_BYTES);
        assert!(messages(&recent, "info", Some(1))[0].len() <= MAX_TEXT_BYTES + '…'.len_utf8());
        assert!(messages(&recent, "info", None).len() > 300);
    }
}
