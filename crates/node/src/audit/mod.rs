//! The audit log: who logged in, changed roles, permissions and the schema, and operated the cluster, at this node.
//!
//! Always true: nobody who serves a client waits for the log. An entry is queued in memory, or dropped and counted if the queue is full; a thread of
//! its own writes. Failed logins and refused operations, which anybody can cause, have a queue and a rate of their own, so that a flood of them pushes no other
//! entry out of the queue or of the files. An entry holds names, and neither passwords nor values. Left out: entries of other nodes: each node has its own log.

mod counters;
mod output;
mod queue;
#[cfg(test)]
mod tests;

use crate::config::{AuditCategory, AuditOption, AuditedTable, StartOptions};
use crate::error::StartError;
use counters::AuditCounters;
use diorite_base::Clock;
use diorite_query::audit::{self as changes, Category, Changed};
use output::Output;
use parking_lot::Mutex;
use queue::{Pushed, Queue, Rate};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the end of the node waits for the last entries.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// An entry, as it is written.
#[derive(Clone, Debug, Serialize)]
struct Entry<'a> {
    /// When it ended.
    unix_ms: i64,
    category: AuditCategory,
    /// Who; absent where nobody has to log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    /// From where.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// `cql` or `http`.
    port: &'static str,
    /// What.
    what: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    keyspace: Option<&'a str>,
    /// `done`, `refused`, `failed`, or `unknown`: whoever asked did not wait for it.
    outcome: &'static str,
    /// The kind of failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// How a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginOutcome {
    Accepted,
    /// The password is wrong, or there is no such role.
    Wrong,
    /// The role may not log in, or not from there.
    Forbidden,
}

/// See the top of this module.
pub(crate) struct AuditLog {
    categories: Vec<AuditCategory>,
    /// The tables whose reads and writes are kept.
    tables: Vec<AuditedTable>,
    queue: Arc<Queue>,
    /// Of what anybody can cause.
    refused: Mutex<Rate>,
    clock: Arc<dyn Clock>,
    counters: Arc<AuditCounters>,
}

impl AuditLog {
    /// Opens the log that the options ask for, and begins to write it; `None`: they ask for none.
    pub(crate) fn open(options: &StartOptions, clock: &Arc<dyn Clock>) -> Result<Option<Arc<Self>>, StartError> {
        let output = match &options.audit {
            AuditOption::None => {
                if !options.audit_tables.is_empty() {
                    tracing::warn!(event = "audit", "--audit-tables has no effect without --audit");
                }
                return Ok(None);
            }
            AuditOption::Journal => Output::journal(),
            AuditOption::File(path) => Output::file(path, options.audit_size.0),
        };
        let output = output.map_err(|source| StartError::Audit { to: options.audit.to_string(), source })?;
        Self::begin(output, options, clock).map(Some)
    }

    /// Begins to write.
    fn begin(output: Output, options: &StartOptions, clock: &Arc<dyn Clock>) -> Result<Arc<Self>, StartError> {
        let (queue, counters) = (Arc::new(Queue::default()), Arc::new(AuditCounters::default()));
        let writing = output::Writing {
            queue: Arc::clone(&queue),
            output,
            counters: Arc::clone(&counters),
            clock: Arc::clone(clock),
        };
        #[allow(clippy::disallowed_methods, reason = "the log's thread; it ends when the queue is closed")]
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writing.run())
            .map_err(|error| StartError::System("cannot start a thread", error))?;
        let (categories, tables) = (options.audit_categories.clone(), options.audit_tables.clone());
        let (refused, clock) = (Mutex::default(), Arc::clone(clock));
        Ok(Arc::new(Self { categories, tables, queue, refused, clock, counters }))
    }

    pub(crate) fn counters(&self) -> &AuditCounters {
        &self.counters
    }

    fn keeps(&self, category: AuditCategory) -> bool {
        self.categories.contains(&category)
    }

    fn line(&self, entry: &Entry<'_>) -> Option<String> {
        serde_json::to_string(entry).ok()
    }

    fn push(&self, entry: &Entry<'_>) {
        let pushed = self.line(entry).map_or(Pushed::Dropped, |line| self.queue.push(line));
        if pushed == Pushed::Dropped {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn unix_ms(&self) -> i64 {
        self.clock.wall_us() / 1_000
    }

    /// A login has ended.
    pub(crate) fn login(&self, role: &str, client: IpAddr, port: &'static str, ended: LoginOutcome) {
        if !self.keeps(AuditCategory::Logins) {
            return;
        }
        let outcome = match ended {
            LoginOutcome::Accepted => "done",
            LoginOutcome::Wrong => "failed",
            LoginOutcome::Forbidden => "refused",
        };
        let entry = Entry {
            unix_ms: self.unix_ms(),
            category: AuditCategory::Logins,
            role: Some(shortened(role)),
            client: Some(client.to_canonical().to_string()),
            port,
            what: "LOGIN",
            keyspace: None,
            outcome,
            error: None,
        };
        match ended {
            // Whoever has a password may flood the log only with logins that succeed, which takes work for each.
            LoginOutcome::Accepted | LoginOutcome::Forbidden => self.push(&entry),
            LoginOutcome::Wrong => self.push_refused(&entry),
        }
    }

    fn push_refused(&self, entry: &Entry<'_>) {
        let may_push = self.refused.lock().take(self.clock.monotonic_ns());
        let line = if may_push { self.line(entry) } else { None };
        if line.map_or(Pushed::Dropped, |line| self.queue.push_refused(line)) == Pushed::Dropped {
            self.counters.dropped_refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An operation over HTTP has ended, with this status; `None`: whoever asked did not wait for it.
    pub(crate) fn operation(&self, role: Option<&str>, client: SocketAddr, what: &str, status: Option<u16>) {
        if !self.keeps(AuditCategory::Operations) {
            return;
        }
        let outcome = match status {
            None => "unknown",
            Some(401 | 403 | 429) => "refused",
            Some(status) if status < 400 => "done",
            Some(_) => "failed",
        };
        let entry = Entry {
            unix_ms: self.unix_ms(),
            category: AuditCategory::Operations,
            role: role.map(shortened),
            client: Some(client.to_string()),
            port: "http",
            what: shortened(what),
            keyspace: None,
            outcome,
            error: None,
        };
        if outcome == "refused" { self.push_refused(&entry) } else { self.push(&entry) }
    }

    /// Writes what is queued, and nothing after that.
    pub(crate) fn close(&self) {
        self.queue.close(CLOSE_TIMEOUT);
    }
}

/// A name that somebody typed, of a length that fits into a line.
fn shortened(text: &str) -> &str {
    const MAX_BYTES: usize = 256;
    let end = (0..=text.len().min(MAX_BYTES)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

impl changes::Audit for AuditLog {
    fn keeps(&self, category: Category) -> bool {
        match category {
            Category::Data => !self.tables.is_empty(),
            other => self.keeps(AuditCategory::from(other)),
        }
    }

    fn keeps_rows_of(&self, keyspace: &str, table: &str) -> bool {
        self.tables.iter().any(|known| known.has(keyspace, table))
    }

    fn changed(&self, changed: Changed) {
        let (outcome, error) = match &changed.outcome {
            changes::Outcome::Done => ("done", None),
            changes::Outcome::Refused => ("refused", None),
            changes::Outcome::Failed(kind) => ("failed", Some(kind.as_str())),
            changes::Outcome::Unknown => ("unknown", None),
        };
        let entry = Entry {
            unix_ms: self.unix_ms(),
            category: changed.category.into(),
            role: changed.role.as_deref().map(String::as_str),
            client: changed.client.map(|client| client.to_string()),
            port: "cql",
            what: &changed.statement,
            keyspace: changed.keyspace.as_deref(),
            outcome,
            error,
        };
        // Whoever may log in can ask for rows of any table, again and again, at little cost.
        let may_be_a_flood = changed.category == Category::Data && (outcome == "refused" || !changed.was_planned);
        if may_be_a_flood { self.push_refused(&entry) } else { self.push(&entry) }
    }
}

impl From<Category> for AuditCategory {
    fn from(category: Category) -> Self {
        match category {
            Category::Roles => Self::Roles,
            Category::Schema => Self::Schema,
            Category::Data => Self::Data,
        }
    }
}
