//! The shell of the catalog's follower: proposes commands to the catalog's group, carries out the actions of
//! [`diorite_control::follower`] and [`diorite_control::splitting`], and publishes a snapshot once this node serves it.
//!
//! Always true: one thread carries out actions, one after the other; it is never the thread that applies the log, which
//! only wakes it. A change is answered once this node serves it and, within a timeout, all others do
//! ([`diorite_control::answering`]).

mod events;
mod local;
mod notices;
mod opening;

pub(crate) use diorite_control::replicas::CATALOG_TABLET;
pub(crate) use events::next_event;
pub(crate) use local::LocalReplicas;

use crate::error::StartError;
use crate::machine::lower_priority;
use crate::pause::pause;
use crate::peers::PeerWatch;
use crate::table_options;
use arc_swap::ArcSwap;
use diorite_base::mutation::Mutation;
use diorite_base::program::Unprovable;
use diorite_base::write::{KvError, Waited, WriteReply};
use diorite_base::{Clock, Level, NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, CatalogEvaluator, Command, Outcome};
use diorite_control::answering::{Answering, Here, Progress, TIMEOUT_HERE};
use diorite_control::follower::{
    self, Action, ChildOpening as Child, Follower, Leftovers, SchemaVersions, forgettable, openings_at_start,
};
use diorite_control::planted::Planted;
use diorite_control::replicas::{Members, SplitEntry};
use diorite_control::splitting::{SplitStep, Splitting, serve_split};
use diorite_cql::protocol::Event;
use diorite_replica::{ChildOpening, OpenTablet, Openings, PeerListener, SplitMark, Store};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};
use uuid::Uuid;

/// Events that a slow connection may lag behind.
const PENDING_EVENTS: usize = 1_024;
/// How long until dropped tablets are reported to the catalog again after a failed attempt.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Writes to a tablet on the node that leads it. The follower needs this because this node's own replica of the catalog
/// seldom leads.
pub(crate) trait CatalogWriter: Send + Sync + 'static {
    /// Writes to [`CATALOG_TABLET`] and waits for the outcome, until `deadline_ns` at the latest, if that is given.
    fn write(&self, mutation: Mutation, deadline_ns: Option<u64>) -> BoxFuture<'_, Result<WriteReply, KvError>>;
}

/// The mutation that proposes a command to a catalog of this level; an error if the level does not have it, or if it
/// could not be decoded or is over a limit.
pub(crate) fn as_mutation(command: &Command, level: Level) -> Result<Mutation, Unprovable> {
    Ok(Mutation::evaluated(None, &command.proven_at(level)?))
}

/// This node's side of the catalog.
pub(crate) struct CatalogFollower {
    me: Weak<CatalogFollower>,
    runtime: Handle,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    /// The evaluator of the current replica of the catalog. A rebuilt replica has a new one.
    evaluator: opening::Current,
    /// Wakes the thread that follows.
    wake: SyncSender<()>,
    served: ArcSwap<Catalog>,
    served_version: watch::Sender<u64>,
    schema_versions: Mutex<SchemaVersions>,
    peers: PeerWatch,
    events: broadcast::Sender<Arc<Event>>,
    woken: Mutex<Option<Receiver<()>>>,
    writer: OnceLock<Arc<dyn CatalogWriter>>,
    splitting: Mutex<Splitting>,
    /// Notified when tablets may have been dropped.
    dropped: Notify,
    /// Notified when this node is no member any more.
    removed: Notify,
}

impl CatalogFollower {
    /// Opens the catalog's group and replays its log; [`Self::start`] then serves it. To be called on the runtime.
    pub(crate) fn open(store: &Arc<Store>, node: NodeId, clock: &Arc<dyn Clock>) -> Result<Arc<Self>, StartError> {
        let (wake, woken) = sync_channel(1);
        let evaluator = opening::Current::new(ArcSwap::from_pointee(CatalogEvaluator::new(
            Catalog::default(),
            |_: &Arc<Catalog>| {},
        )));
        let open = opening::open_catalog(wake.clone(), Members::default(), Arc::clone(&evaluator));
        store.open(vec![open]).map_err(|error| StartError::Tablet {
            what: "the catalog".to_owned(),
            reason: format!(
                "{error}; without it, and without all of its log, the node does not know what else it holds. If other nodes are well, start this one anew with empty data directories and --join, and let `diorite admin \
                 replace` make its replicas anew; a node that is alone needs its data directory as it was before"
            ),
        })?;
        let runtime = Handle::current();
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            runtime,
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            node,
            // Nothing is served before the start.
            served_version: watch::Sender::new(0),
            served: ArcSwap::from_pointee(Catalog::default()),
            schema_versions: Mutex::default(),
            peers: PeerWatch::default(),
            evaluator,
            wake,
            events: broadcast::Sender::new(PENDING_EVENTS),
            woken: Mutex::new(Some(woken)),
            writer: OnceLock::new(),
            splitting: Mutex::new(Splitting::new(node)),
            dropped: Notify::new(),
            removed: Notify::new(),
        }))
    }

    /// Opens this node's tablets according to the catalog, removes the leftovers of dropped ones, and follows the catalog
    /// from now on. From here on changes can be proposed, through `writer`.
    pub(crate) fn start(self: &Arc<Self>, writer: Arc<dyn CatalogWriter>) -> Result<(), StartError> {
        let catalog = self.current();
        let leftovers = Leftovers::new(&catalog, self.node);
        self.store.remove_orphans(|tablet| leftovers.was_dropped(tablet))?;
        self.store.remove_departed(|tablet| leftovers.has_moved(tablet))?;
        let wanted = openings_at_start(&catalog, self.node, |tablet| self.store.has_files(tablet));
        self.store
            .open(wanted.iter().map(opening::open_rows).collect())
            .map_err(|error| StartError::Tablet { what: "the tablets".to_owned(), reason: error.to_string() })?;
        let mut follower = Follower::new(self.node, Planted::default());
        for action in follower.start(&catalog) {
            self.carry_out(action, &mut follower);
        }
        if self.writer.set(writer).is_err() {
            tracing::error!("a follower is started once");
        }
        let woken = self.woken.lock().take().expect("a follower is started once");
        let shell = Arc::clone(self);
        #[allow(
            clippy::disallowed_methods,
            reason = "the follower's thread; it ends when the store drops the listener"
        )]
        std::thread::Builder::new()
            .name("catalog".to_owned())
            .spawn(move || shell.follow(&woken, follower))
            .map_err(|error| StartError::System("cannot start a thread", error))?;
        self.runtime.spawn(Arc::clone(self).forget_dropped());
        Ok(())
    }

    /// The newest snapshot that this node serves.
    pub(crate) fn served(&self) -> Arc<Catalog> {
        self.served.load_full()
    }

    /// The version of that snapshot. Every request asks for it, so it is read without counting a reference.
    pub(crate) fn served_version(&self) -> u64 {
        self.served.load().version()
    }

    /// Receives each version that this node serves from now on.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.served_version.subscribe()
    }

    /// The newest snapshot, served or not.
    pub(crate) fn current(&self) -> Arc<Catalog> {
        Arc::clone(follower::newest(&self.evaluator.load().current(), &self.served()))
    }

    /// Receives the events that clients may register for, from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    /// The schema version that a node serves, as drivers read it.
    pub(crate) fn served_schema(&self, node: NodeId) -> Uuid {
        self.schema_versions.lock().of(self.peers.served_version(node))
    }

    /// Whether this node and all others that are up serve `version`, or a later one.
    pub(crate) fn is_served_everywhere(&self, version: u64) -> bool {
        self.served_version() >= version && self.peers.look(|peers| peers.behind(version).is_empty())
    }

    /// Proposes a command. Returns the encoded outcome once this node serves the change, and all other nodes that are
    /// up serve it too or a timeout has passed.
    pub(crate) async fn change(&self, command: &Command) -> Result<Vec<u8>, KvError> {
        self.change_by(as_mutation(command, self.current().level())?, None).await
    }

    /// As [`Self::change`], for a command that the caller has encoded and proven. Both take long for a large
    /// definition.
    pub(crate) async fn change_by(&self, mutation: Mutation, deadline_ns: Option<u64>) -> Result<Vec<u8>, KvError> {
        let writer = self.writer.get().ok_or(KvError::Unavailable(CATALOG_TABLET))?;
        let reply = writer.write(mutation, deadline_ns).await?;
        let outcome = Outcome::decode(&reply).map_err(|error| KvError::Storage(error.to_string()))?;
        let version = outcome.version();
        let since_ns = self.clock.monotonic_ns();
        let mut change = Answering::new(version, since_ns, Planted::default()).with_deadline(deadline_ns);
        let (mut versions, mut changes) = (self.versions(), self.peers.changes());
        loop {
            versions.mark_unchanged();
            changes.mark_unchanged();
            let here = Here { known: self.current().version(), served: self.served_version() };
            let now_ns = self.clock.monotonic_ns();
            let progress = self.peers.look(|peers| change.look(here, peers, now_ns));
            match progress {
                Progress::Answer { behind } => {
                    if !behind.is_empty() {
                        tracing::warn!(version, ?behind, "a change of the catalog is not served everywhere yet");
                    }
                    return Ok(reply);
                }
                Progress::TimedOut => {
                    let waited_ns = self.clock.monotonic_ns().saturating_sub(since_ns);
                    return Err(KvError::Timeout(Waited::in_vain(waited_ns / 1_000_000)));
                }
                Progress::Wait(longest) => {
                    // The senders live as long as `self`.
                    tokio::select! {
                        _ = versions.changed() => {}
                        _ = changes.changed() => {}
                        () = pause(longest) => {}
                    }
                }
            }
        }
    }

    /// Proposes a command and returns its outcome as soon as it is known, whether or not any node serves it yet.
    pub(crate) async fn propose(&self, command: &Command) -> Result<Outcome, KvError> {
        let writer = self.writer.get().ok_or(KvError::Unavailable(CATALOG_TABLET))?;
        let reply = writer.write(as_mutation(command, self.current().level())?, None).await?;
        Outcome::decode(&reply).map_err(|error| KvError::Storage(error.to_string()))
    }

    /// Waits until this node serves `version`, which the catalog's leader may have reached long before.
    pub(crate) async fn wait_until_served(&self, version: u64) -> Result<(), KvError> {
        let mut served = self.versions();
        let reached = served.wait_for(|served| *served >= version);
        match tokio::time::timeout(TIMEOUT_HERE, reached).await {
            // The sender lives as long as `self`.
            Ok(_) => Ok(()),
            Err(_) => Err(KvError::Timeout(Waited::in_vain(TIMEOUT_HERE.as_millis() as u64))),
        }
    }

    /// Waits until this node is no member any more.
    pub(crate) async fn removed(&self) -> StartError {
        self.removed.notified().await;
        StartError::Removed(self.node)
    }

    fn local(&self) -> LocalReplicas<'_> {
        LocalReplicas::new(self.node, &self.store)
    }

    fn follow(&self, woken: &Receiver<()>, mut follower: Follower) {
        // A node that joins opens dozens of replicas within a second: requests come first.
        lower_priority();
        while woken.recv().is_ok() {
            while let Some(action) = follower.next(&self.current(), &self.local()) {
                self.carry_out(action, &mut follower);
            }
        }
    }

    fn carry_out(&self, action: Action, follower: &mut Follower) {
        match action {
            Action::PersistCatalog => follower.persisted(self.persist_catalog()),
            Action::Open(openings) => {
                if let Err(error) = self.store.open(openings.iter().map(opening::open_rows).collect()) {
                    let table = openings.first().map_or("", |opening| opening.table.name.as_str());
                    tracing::error!(table, %error, "cannot open the tablets of a table");
                }
            }
            Action::SetMembers(tablet, members) => self.store.set_members(tablet, opening::members(members)),
            Action::PrepareSplit(tablet, split) => drop(self.store.prepare_split(tablet, &opening::split_at(&split))),
            Action::CancelSplit(tablet, children) => self.store.cancel_split(tablet, children),
            Action::Close(tablets) => self.store.close(&tablets),
            Action::AlterTable(tablet, table) => {
                if let Some(handle) = self.store.handle(tablet) {
                    handle.set_gc_grace_s(table.gc_grace_s);
                    self.store.set_table_options(tablet, table_options::of(&table));
                }
            }
            Action::ApplySettings(catalog) => {
                if let Err(error) = self.store.note_level(catalog.level()) {
                    tracing::error!(event = "disk", %error, "the level of the cluster cannot be noted");
                }
                let settings = &catalog.identity().settings;
                self.store.set_copy_rate(settings.copy_rate_bytes);
                self.store.pause_disk_moves(settings.balancing_is_paused);
            }
            Action::MeetNodes(catalog) => self.meet_nodes(&catalog),
            Action::Publish(catalog) => self.publish(catalog),
            Action::Notify(notice) => self.notify(events::event(notice)),
            Action::ForgetDropped => self.dropped.notify_one(),
            Action::Stop => self.removed.notify_one(),
        }
    }

    fn persist_catalog(&self) -> bool {
        let flushed = self.store.handle(CATALOG_TABLET).map(|handle| handle.data().flush(true));
        match flushed {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::error!(%error, "the catalog cannot be made durable; replicas that were placed here are not opened");
                false
            }
            None => false,
        }
    }

    /// Applies the list of nodes, and which of them are up.
    fn meet_nodes(&self, catalog: &Catalog) {
        for node in catalog.nodes().map(|node| node.id).filter(|node| *node != self.node) {
            self.changed(node, self.store.liveness().is_up(node));
        }
    }

    fn publish(&self, catalog: Arc<Catalog>) {
        let version = catalog.version();
        self.schema_versions.lock().push(&catalog);
        self.served.store(catalog);
        self.served_version.send_replace(version);
        self.store.liveness().announce(version);
    }

    fn notify(&self, event: Event) {
        // There may be no receivers.
        let _ = self.events.send(Arc::new(event));
    }

    /// Carries out the steps of splits that are due on this node. May wait for the store's threads.
    pub(crate) fn advance_splits(&self) {
        let steps = self.splitting.lock().next(&self.served(), &self.local());
        for step in steps {
            match step {
                SplitStep::TellPrepared(tablet) => self.store.tell_prepared(tablet),
                SplitStep::Split(tablet, split) => self.store.split(tablet, opening::split_at(&split)),
                SplitStep::Propose(command) => self.propose_of_split(command, false),
                SplitStep::Commit(command) => self.propose_of_split(command, true),
            }
        }
    }

    /// The command that reports the tablets led by this node whose groups match the catalog. May wait for the store's
    /// threads.
    pub(crate) fn finished_tablets(&self) -> Option<Command> {
        self.splitting.lock().finished(&self.served(), &self.local())
    }

    /// Proposes a step of a split. After a failure the step is due again at the next call.
    fn propose_of_split(&self, command: Command, goes_on: bool) {
        let Some(shell) = self.me.upgrade() else { return };
        self.runtime.spawn(async move {
            match shell.propose(&command).await {
                Ok(outcome) if goes_on => {
                    if shell.wait_until_served(outcome.version()).await.is_ok() {
                        let splitting = Arc::clone(&shell);
                        // A panic there has been reported.
                        let _ = shell.runtime.spawn_blocking(move || splitting.advance_splits()).await;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(?command, %error, "a split could not be written to the catalog");
                }
            }
        });
    }

    /// Reports dropped tablets to the catalog once this node has no replica of them. Runs whenever tablets may have
    /// been dropped.
    async fn forget_dropped(self: Arc<Self>) {
        loop {
            self.dropped.notified().await;
            while let Some(command) = forgettable(&self.served(), self.node, &self.local()) {
                if let Err(error) = self.change(&command).await {
                    tracing::warn!(%error, "could not report removed tablets to the catalog");
                    pause(TELL_AGAIN).await;
                }
            }
        }
    }
}

impl Openings for CatalogFollower {
    /// Only used to rebuild the catalog's replica: the follower then uses the newly opened replica.
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet> {
        let catalog = self.current();
        if tablet == CATALOG_TABLET {
            let members = Members::of_catalog(&catalog).unwrap_or_default();
            return Some(opening::open_catalog(self.wake.clone(), members, Arc::clone(&self.evaluator)));
        }
        follower::opening(&catalog, self.node, tablet).as_ref().map(opening::open_rows)
    }

    fn child(&self, parent: TabletId, child: TabletId) -> ChildOpening {
        match follower::child_opening(&self.served(), &self.current(), self.node, parent, child) {
            Child::As(opening) => ChildOpening::As(Box::new(opening::open_rows(&opening))),
            Child::Never => ChildOpening::Never,
            Child::NotYet => ChildOpening::NotYet,
        }
    }

    fn was_split(&self, mark: &SplitMark) {
        self.propose_of_split(serve_split(mark.parent, SplitEntry { index: mark.index, term: mark.term }), false);
    }
}

impl PeerListener for CatalogFollower {
    fn changed(&self, node: NodeId, is_up: bool) {
        let notice = self.peers.set_live(node, is_up);
        self.heed(node, notice);
    }

    fn announced(&self, node: NodeId, number: u64) {
        let notice = self.peers.set_announced(node, number);
        self.heed(node, notice);
    }
}
