//! How tablets are opened, and the interface to the layer that knows it.

use crate::group::split::SplitMark;
use crate::group::wanted::Members;
use diorite_base::mutation::Evaluator;
use diorite_base::{NodeId, TabletId};
use diorite_raft::LogPosition;
use diorite_storage::{StorageError, TableOptions, Tablet, Values};
use std::sync::Arc;

/// A tablet replica to open.
pub struct OpenTablet {
    /// The tablet.
    pub tablet: TabletId,
    /// Carries out its evaluated mutations.
    pub evaluator: Arc<dyn Evaluator>,
    /// How long tombstones are kept where they may matter, seconds.
    pub gc_grace_s: u32,
    /// The voters before the first log entry; the same on every replica, for ever.
    pub initial_voters: Vec<NodeId>,
    /// The members that are wanted now.
    pub members: Members,
    /// The floor of a replica of which nothing is here yet: the entry that its log begins after.
    pub floor: Option<LogPosition>,
    /// The kind of its values.
    pub values: Values,
    /// The options of its files.
    pub options: TableOptions,
    /// Called with the stored data before the log behind it is replayed.
    pub on_loaded: Option<OnLoaded>,
}

/// Checks a tablet's stored data; an error keeps the tablet closed. Called again if damaged data was replaced.
pub type OnLoaded = Box<dyn Fn(&Tablet) -> Result<(), StorageError> + Send>;

/// Knows how a tablet is opened.
pub trait Openings: Send + Sync + 'static {
    /// How to open the tablet; `None` if this node has no replica of it (any more). Has no side effect: the caller need
    /// not open it.
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet>;

    /// How to open a child of a tablet whose replica here has been split.
    fn child(&self, parent: TabletId, child: TabletId) -> ChildOpening;

    /// A tablet that is led here has been split: its children may serve in its place. Must not wait.
    fn was_split(&self, mark: &SplitMark);
}

/// Whether a child of a tablet that was split may be opened.
pub enum ChildOpening {
    /// Open it like this.
    As(Box<OpenTablet>),
    /// This node does not know the child yet, or not durably: after a crash it would remove it as unknown.
    NotYet,
    /// It is not, or no longer, placed here.
    Never,
}
