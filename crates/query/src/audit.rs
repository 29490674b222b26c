//! Statements that change roles, permissions or the schema, and those that read or write the rows of chosen tables, as whoever keeps an audit log is told of them.
//!
//! Always true: each one is reported once, also if its client does not wait for the answer; a text has names, and
//! neither passwords nor options of roles, and of reads and writes of rows no constants. A request for rows of a chosen
//! table never goes the short path. Of one that failed before it was planned only the kind and the names of its tables
//! are told: what else it has may be values. Left out: the log itself ([`Audit`], which the node implements), and
//! logins.

use crate::auth;
use crate::plan::{Plan, Planned};
use crate::session::Session;
use crate::table::TableContext;
use diorite_cql::language::NamedTables;
use diorite_cql::language::ast::{Password, RoleOptions, Statement};
use diorite_cql::language::format::format_statement;
use diorite_cql::protocol::{CqlError, ErrorKind};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes of a text at most.
const MAX_BYTES: usize = 4_000;
/// In place of a password.
const HIDDEN: &str = "***";

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Roles, memberships, permissions.
    Roles,
    /// Keyspaces, tables, types.
    Schema,
    /// Rows of chosen tables.
    Data,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Done,
    /// The role may not.
    Refused,
    /// It failed, for a reason of this kind.
    Failed(String),
    /// The client did not wait for the answer: it may have been made.
    Unknown,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its kind.
    pub category: Category,
    /// Who asked for it; `None`: somebody who did not have to log in.
    pub role: Option<Arc<String>>,
    /// From where.
    pub client: Option<SocketAddr>,
    /// The keyspace of unqualified names.
    pub keyspace: Option<String>,
    /// The statement, without passwords.
    pub statement: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Whether it got as far as being carried out. What did not costs whoever sends it little.
    pub was_planned: bool,
}

/// Keeps an audit log.
pub trait Audit: Send + Sync + 'static {
    /// Whether changes of a kind are kept; for [`Category::Data`]: whether some table is chosen.
    fn keeps(&self, category: Category) -> bool;

    /// Whether reads and writes of a table are kept.
    fn keeps_rows_of(&self, keyspace: &str, table: &str) -> bool;

    /// A change has ended. Must not wait.
    fn changed(&self, changed: Changed);
}

/// Whoever keeps the audit log, if somebody does.
#[derive(Clone, Default)]
pub struct Auditor(pub Option<Arc<dyn Audit>>);

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Auditor").field(&self.0.is_some()).finish()
    }
}

/// The kind of change that a statement makes.
fn category_of(statement: &Statement) -> Option<Category> {
    match statement {
        Statement::ListRoles(_) | Statement::ListPermissions(_) | Statement::Describe(_) | Statement::Use(_) => None,
        other if auth::handles(other) => Some(Category::Roles),
        _ => Some(Category::Schema),
    }
}

fn hide(options: &mut RoleOptions) {
    if let Some(password) = &mut options.password {
        *password = match password {
            Password::Clear(_) => Password::Clear(HIDDEN.to_owned()),
            Password::Hashed(_) => Password::Hashed(HIDDEN.to_owned()),
            Password::Generated => Password::Generated,
        };
    }
    options.custom = None;
}

/// The text of a statement without passwords.
fn text_of(statement: &Statement) -> String {
    let mut shown = statement.clone();
    match &mut shown {
        Statement::CreateRole(create) => hide(&mut create.options),
        Statement::AlterRole(alter) => hide(&mut alter.options),
        _ => {}
    }
    shortened(format_statement(&shown))
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_BYTES {
        let end = (0..=MAX_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A change that is being made: reported when this is dropped at the latest.
pub(crate) struct Watched<'a> {
    audit: &'a dyn Audit,
    changed: Option<Changed>,
}

impl Auditor {
    /// Watches a statement, if it is to be kept.
    pub(crate) fn watch(
        &self,
        session: &Session,
        client: Option<SocketAddr>,
        keyspace: Option<&str>,
        statement: &Statement,
    ) -> Option<Watched<'_>> {
        let audit = self.0.as_deref()?;
        let category = category_of(statement).filter(|category| audit.keeps(*category))?;
        let changed = Changed {
            category,
            role: session.role(),
            client,
            keyspace: keyspace.map(str::to_owned),
            statement: text_of(statement),
            outcome: Outcome::Unknown,
            was_planned: true,
        };
        Some(Watched { audit, changed: Some(changed) })
    }
}

impl Auditor {
    /// Whether reads and writes of one of the tables are kept.
    pub(crate) fn keeps_rows_of(&self, planned: &Planned) -> bool {
        self.0.as_deref().is_some_and(|audit| {
            let is_kept = |table: &TableContext| audit.keeps_rows_of(&table.table().keyspace, &table.table().name);
            audit.keeps(Category::Data)
                && !matches!(planned.plan, Plan::Definition(_) | Plan::Use(_))
                && planned.tables.iter().any(|table| is_kept(table))
        })
    }

    /// Watches a request for rows, if it is to be kept. `text` has no constants.
    pub(crate) fn watch_rows<'p>(
        &self,
        (session, client): (&Session, Option<SocketAddr>),
        keyspace: Option<&str>,
        planned: impl IntoIterator<Item = &'p Planned>,
        text: &str,
    ) -> Option<Watched<'_>> {
        let audit = self.0.as_deref().filter(|audit| audit.keeps(Category::Data))?;
        planned.into_iter().any(|planned| self.keeps_rows_of(planned)).then(|| {
            let changed = Changed {
                category: Category::Data,
                role: session.role(),
                client,
                keyspace: keyspace.map(str::to_owned),
                statement: shortened(text.to_owned()),
                outcome: Outcome::Unknown,
                was_planned: true,
            };
            Watched { audit, changed: Some(changed) }
        })
    }
}

impl Auditor {
    /// Whether reads and writes of some table are kept.
    pub(crate) fn keeps_rows(&self) -> bool {
        self.0.as_deref().is_some_and(|audit| audit.keeps(Category::Data))
    }

    /// Tells of a request that failed before it was planned, if it names a table whose reads and writes are kept.
    pub(crate) fn unplanned(
        &self,
        (session, client): (&Session, Option<SocketAddr>),
        keyspace: Option<&str>,
        (kind, tables): (&str, &BTreeSet<(String, String)>),
        error: &CqlError,
    ) {
        let Some(audit) = self.0.as_deref().filter(|_| self.keeps_rows()) else { return };
        if !tables.iter().any(|(keyspace, table)| audit.keeps_rows_of(keyspace, table)) {
            return;
        }
        let names: Vec<String> = tables.iter().map(|(keyspace, table)| format!("{keyspace}.{table}")).collect();
        let changed = Changed {
            category: Category::Data,
            role: session.role(),
            client,
            keyspace: keyspace.map(str::to_owned),
            statement: shortened(format!("{kind} {}", names.join(", "))),
            outcome: Outcome::Unknown,
            was_planned: false,
        };
        Watched { audit, changed: Some(changed) }.ended::<()>(&Err(error.clone()));
    }
}

/// The tables that a text names, with the keyspace of those that are named without one.
pub(crate) fn qualified(named: &NamedTables, keyspace: Option<&str>) -> impl Iterator<Item = (String, String)> {
    named.tables.iter().filter_map(move |table| {
        let keyspace = table.keyspace.as_deref().or(keyspace)?;
        Some((keyspace.to_owned(), table.name.clone()))
    })
}

impl Watched<'_> {
    /// The request has ended in this way, if it is watched.
    pub(crate) fn end<T>(watched: Option<Self>, outcome: &Result<T, CqlError>) {
        if let Some(watched) = watched {
            watched.ended(outcome);
        }
    }

    /// The change has ended in this way.
    pub(crate) fn ended<T>(mut self, outcome: &Result<T, CqlError>) {
        if let Some(changed) = &mut self.changed {
            changed.outcome = match outcome {
                Ok(_) => Outcome::Done,
                Err(error) if error.kind == ErrorKind::Unauthorized => Outcome::Refused,
                Err(error) => Outcome::Failed(kind_of(error)),
            };
        }
    }
}

/// The kind of an error, without its message: that may quote values.
pub(crate) fn kind_of(error: &CqlError) -> String {
    let kind = format!("{:?}", error.kind);
    kind.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if let Some(changed) = self.changed.take() {
            self.audit.changed(changed);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use diorite_cql::language::parse;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Kept(Mutex<Vec<Changed>>);

    impl Audit for Kept {
        fn keeps(&self, category: Category) -> bool {
            category == Category::Roles
        }

        fn keeps_rows_of(&self, _: &str, _: &str) -> bool {
            false
        }

        fn changed(&self, changed: Changed) {
            self.0.lock().push(changed);
        }
    }

    fn statement(text: &str) -> Statement {
        parse(text).unwrap().statement
    }

    #[test]
    fn texts_have_names_and_no_passwords() {
        for (text, shown) in [
            (
                "CREATE ROLE 'Bob x' WITH PASSWORD = 'sesame' AND LOGIN = true AND OPTIONS = {'key': 'sesame'}",
                "CREATE ROLE 'Bob x' WITH PASSWORD = '***' AND LOGIN = true",
            ),
            ("ALTER USER bob WITH PASSWORD 'sesame'", "ALTER ROLE bob WITH PASSWORD = '***'"),
            ("ALTER ROLE bob WITH HASHED PASSWORD = 'sesame'", "ALTER ROLE bob WITH HASHED PASSWORD = '***'"),
            ("GRANT SELECT ON ks.t TO 'Bob x'", "GRANT SELECT ON TABLE ks.t TO 'Bob x'"),
        ] {
            let found = text_of(&statement(text));
            assert_eq!(found, shown);
            assert!(!found.contains("sesame"));
        }
        let long = text_of(&statement(&format!("CREATE ROLE \"{}\"", "ü".repeat(5_000))));
        assert!(long.len() <= MAX_BYTES + '…'.len_utf8() && long.ends_with('…'));
    }

    #[test]
    fn each_change_is_reported_once_also_if_nobody_waits_for_it() {
        let kept = Arc::new(Kept::default());
        let auditor = Auditor(Some(Arc::clone(&kept) as Arc<dyn Audit>));
        let session = Session::guarded();
        session.log_in("ann");
        let watch = |text: &str| auditor.watch(&session, None, Some("ks"), &statement(text));
        watch("CREATE ROLE a").unwrap().ended(&Ok(()));
        watch("CREATE ROLE b").unwrap().ended::<()>(&Err(CqlError::unauthorized("no")));
        watch("CREATE ROLE c").unwrap().ended::<()>(&Err(CqlError::server("a value")));
        drop(watch("CREATE ROLE d").unwrap());
        for other in ["LIST ROLES", "USE ks", "CREATE TABLE t (k int PRIMARY KEY)", "DESCRIBE SCHEMA"] {
            assert!(watch(other).is_none(), "{other}");
        }
        let kept = kept.0.lock();
        let outcomes: Vec<&Outcome> = kept.iter().map(|changed| &changed.outcome).collect();
        assert_eq!(outcomes[..2], [&Outcome::Done, &Outcome::Refused]);
        assert!(matches!(outcomes[2], Outcome::Failed(kind) if !kind.contains("value")));
        assert_eq!((outcomes[3], kept.len()), (&Outcome::Unknown, 4));
        assert_eq!(kept[0].role.as_deref().map(String::as_str), Some("ann"));
    }
}
