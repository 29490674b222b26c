//! One operation on one key, as its client saw it.
//!
//! Always true: times are nanoseconds of one clock that all clients of a history share, and an operation's interval is closed:
//! two that touch may have happened in either order.

use std::fmt;

/// The value of a key; `None` is absence.
pub type Value = Option<u64>;

/// The effect of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Read this value.
    Read(Value),
    /// Wrote this value (`None`: deleted).
    Write(Value),
    /// Was to write `new` if the key held `expected`.
    CompareAndSet {
        /// The expected value.
        expected: Value,
        /// The new value.
        new: Value,
        /// Whether it did; `None` if that is not known.
        applied: Option<bool>,
    },
}

/// One operation on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub key: u64,
    /// The client.
    pub client: u32,
    /// When it was asked, nanoseconds.
    pub start_ns: u64,
    /// When the answer was there, nanoseconds. `None`: the outcome is not known, and it may take effect at any time after
    /// `start_ns`, or never.
    pub end_ns: Option<u64>,
    /// The request and its answer.
    pub action: Action,
}

impl Operation {
    /// Whether its outcome is unknown.
    pub fn is_unknown(&self) -> bool {
        self.end_ns.is_none() || matches!(self.action, Action::CompareAndSet { applied: None, .. })
    }

    /// The value of the key after it takes effect.
    pub fn produces(&self) -> Option<Value> {
        match self.action {
            Action::Read(_) | Action::CompareAndSet { applied: Some(false), .. } => None,
            Action::Write(value) | Action::CompareAndSet { new: value, .. } => Some(value),
        }
    }
}

struct Shown(Value);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("nothing"),
        }
    }
}

/// A value for people.
pub(crate) fn shown(value: Value) -> impl fmt::Display {
    Shown(value)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Read(value) => write!(f, "read {}", shown(value)),
            Action::Write(None) => f.write_str("deleted"),
            Action::Write(value) => write!(f, "wrote {}", shown(value)),
            Action::CompareAndSet { expected, new, applied } => {
                write!(f, "if {} then {}", shown(expected), shown(new))?;
                f.write_str(match applied {
                    Some(true) => ": applied",
                    Some(false) => ": not applied",
                    None => ": applied or not",
                })
            }
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |ns: u64| format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
        let end = self.end_ns.map_or_else(|| "unknown".to_owned(), milliseconds);
        write!(f, "{:>16} to {:>16} ms  client {:<4} {}", milliseconds(self.start_ns), end, self.client, self.action)
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was acknowledged.
    Done,
    /// It was refused: it certainly had no effect.
    NotDone,
    /// Unknown.
    Unknown,
}
