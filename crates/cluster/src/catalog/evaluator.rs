//! Connects the catalog with its log: each committed entry is a [`Command`], evaluated when it is applied.
//!
//! Always true: the published snapshot is the state after the last evaluated command; it is published before the
//! listener is notified. Left out: durability, which is the storage's: after a crash the stored keys are loaded and the
//! entries after the stored applied index are evaluated again, so a listener may be notified of a snapshot that it has
//! seen before.

use super::command::{Command, EncodedCommandError};
use super::outcome::{Outcome, Rejection};
use super::persist::LoadError;
use super::snapshot::Catalog;
use arc_swap::ArcSwap;
use diorite_base::Levels;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use std::fmt;
use std::sync::Arc;

/// Receives new snapshots in log order, on the thread that applies the log, so it must pass them on and return. The
/// thread that acts on them may skip some ([`Catalog::changes_since`]).
pub trait CatalogListener: Send + Sync + 'static {
    /// `catalog` is the newest snapshot.
    fn changed(&self, catalog: &Arc<Catalog>);
}

impl<F: Fn(&Arc<Catalog>) + Send + Sync + 'static> CatalogListener for F {
    fn changed(&self, catalog: &Arc<Catalog>) {
        self(catalog);
    }
}

/// Evaluates catalog commands and publishes the resulting snapshots.
pub struct CatalogEvaluator {
    published: Arc<ArcSwap<Catalog>>,
    known: Levels,
    listener: Box<dyn CatalogListener>,
}

impl fmt::Debug for CatalogEvaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CatalogEvaluator(version {})", self.published.load().version())
    }
}

impl CatalogEvaluator {
    /// An evaluator that starts from `catalog`, which must match the stored keys of the tablet.
    pub fn new(catalog: Catalog, listener: impl CatalogListener) -> Self {
        Self { published: Arc::new(ArcSwap::from_pointee(catalog)), known: Levels::OWN, listener: Box::new(listener) }
    }

    /// The same evaluator as a program that knows these levels, for tests.
    pub fn knowing(self, known: Levels) -> Self {
        Self { known, ..self }
    }

    /// The newest snapshot.
    pub fn current(&self) -> Arc<Catalog> {
        self.published.load_full()
    }

    /// The cell that holds the newest snapshot, for frequent readers.
    pub fn published(&self) -> Arc<ArcSwap<Catalog>> {
        self.published.clone()
    }

    /// Starts again from stored keys: when the replica is opened, and after a copy of the group's data was installed.
    /// Notifies the listener.
    pub fn reload<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Arc<Catalog>, LoadError> {
        let catalog = Arc::new(Catalog::load(entries)?);
        if !self.known.contains(catalog.level()) {
            return Err(LoadError::OtherLevel { found: catalog.level(), known: self.known });
        }
        self.published.store(catalog.clone());
        self.listener.changed(&catalog);
        Ok(catalog)
    }
}

impl Evaluator for CatalogEvaluator {
    fn evaluate(
        &self,
        program: &[u8],
        context: EvaluationContext,
        _view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        let before = self.published.load_full();
        let (command, rules) = match Command::decode_logged(program) {
            Ok(logged) => logged,
            // Every replica of this version rejects it alike.
            Err(EncodedCommandError::Malformed(message)) => {
                let version = before.version();
                return Ok(Outcome::Rejected { version, rejection: Rejection::Invalid, message }.encode());
            }
            Err(newer @ EncodedCommandError::Newer { .. }) => return Err(EvaluationFailed(newer.to_string())),
        };
        let (after, outcome) = before.apply_by(&command, rules, context.stamp_us);
        if after.level() > self.known.greatest {
            let error = LoadError::OtherLevel { found: after.level(), known: self.known };
            return Err(EvaluationFailed(error.to_string()));
        }
        for (key, value) in after.puts_since(&before) {
            match value {
                Some(value) => changes.put(&key, &value),
                None => changes.delete(&key),
            }
        }
        if after.version() != before.version() {
            let after = Arc::new(after);
            self.published.store(after.clone());
            self.listener.changed(&after);
        }
        Ok(outcome.encode())
    }
}
