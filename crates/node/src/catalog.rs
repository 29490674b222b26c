//! Follows the catalog: proposes commands to its Raft group, carries out what they mean for this node, and publishes a snapshot once this node
//! serves it.
//!
//! Always true: a snapshot is published ([`CatalogFollower::served`]) only after the tablets it names on this node are open, so no
//! statement meets a table whose tablets are not there yet. Changes are carried out in log order by one thread, never on the
//! thread that applies the log.

use crate::awaited::write;
use crate::error::StartError;
use ahash::AHashSet;
use arc_swap::ArcSwap;
use diorite_base::mutation::{Evaluator, Mutation};
use diorite_base::write::KvError;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, CatalogEvaluator, Change, Command, Outcome, SchemaEvent};
use diorite_model::schema::Table;
use diorite_query::program::TabletEvaluator;
use diorite_replica::{Members, OpenTablet, Store};
use diorite_storage::{CompactionStyle, ScanRange, Values};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::{Semaphore, broadcast, watch};

/// Catalog changes that may wait to be carried out.
const PENDING_CHANGES: usize = 256;
/// Schema events that a slow connection may lag behind.
const PENDING_EVENTS: usize = 1_024;

const CATALOG_TABLET: TabletId = TabletId(GroupId::CATALOG.0);

type Changed = (Arc<Catalog>, Vec<Change>);

/// This node's side of the catalog.
pub(crate) struct CatalogFollower {
    store: Arc<Store>,
    node: NodeId,
    evaluator: Arc<CatalogEvaluator>,
    served: ArcSwap<Catalog>,
    served_version: watch::Sender<u64>,
    events: broadcast::Sender<Arc<SchemaEvent>>,
    changes: Mutex<Option<Receiver<Changed>>>,
    /// Fewer changes at a time than the queue holds, so that the thread that applies the log never waits for the follower, which may be
    /// waiting for that thread.
    turns: Semaphore,
}

impl CatalogFollower {
    /// Opens the catalog's group and replays its log; [`Self::start`] then serves it.
    pub(crate) fn open(store: &Arc<Store>, node: NodeId) -> Result<Arc<Self>, StartError> {
        let (sender, receiver): (SyncSender<Changed>, _) = sync_channel(PENDING_CHANGES);
        let listener = move |catalog: &Arc<Catalog>, changes: Vec<Change>| {
            // The receiver is gone only when the node shuts down.
            let _ = sender.send((Arc::clone(catalog), changes));
        };
        let evaluator = Arc::new(CatalogEvaluator::new(Catalog::default(), listener));
        let loading = Arc::clone(&evaluator);
        let on_loaded = move |data: &diorite_storage::Tablet| {
            let mut entries = Vec::new();
            let range = ScanRange { start: &[1], end: &[0xFF], reverse: false, expected_entries: 0 };
            data.scan(&range, &mut |key, value| {
                entries.push((key.to_vec(), value.to_vec()));
                true
            })
            .map_err(|error| error.to_string())?;
            if !entries.is_empty() {
                loading.reload(entries).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let open = OpenTablet {
            tablet: CATALOG_TABLET,
            evaluator: Arc::clone(&evaluator) as Arc<dyn Evaluator>,
            gc_grace_s: 0,
            founders: vec![node],
            members: Members::default(),
            values: Values::Plain,
            compaction: CompactionStyle::SizeTiered,
            on_loaded: Some(Box::new(on_loaded)),
        };
        // Replaying may bring more changes than fit the queue; nobody takes them yet, and the snapshot says it all.
        let draining = DrainWhile::start(receiver)?;
        let opened = store.open(vec![open]);
        let receiver = draining.stop();
        opened.map_err(|error| StartError::Tablet { what: "the catalog".to_owned(), reason: error.to_string() })?;
        let served = evaluator.current();
        Ok(Arc::new(Self {
            store: Arc::clone(store),
            node,
            served_version: watch::Sender::new(served.version()),
            served: ArcSwap::new(served),
            evaluator,
            events: broadcast::Sender::new(PENDING_EVENTS),
            changes: Mutex::new(Some(receiver)),
            turns: Semaphore::new(PENDING_CHANGES / 4),
        }))
    }

    /// Opens this node's tablets as the catalog has them, removes what it no longer has, and follows it from now on.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), StartError> {
        let catalog = self.evaluator.current();
        let mut wanted = Vec::new();
        let mut known: AHashSet<TabletId> = AHashSet::from_iter([CATALOG_TABLET]);
        for (tablet, placement) in catalog.tablets_on(self.node) {
            if let Some(entry) = catalog.table_by_id(placement.table) {
                wanted.push(open_rows(self.node, tablet, &entry.table));
                known.insert(tablet);
            }
        }
        self.store.remove_orphans(&known)?;
        self.store
            .open(wanted)
            .map_err(|error| StartError::Tablet { what: "the tablets".to_owned(), reason: error.to_string() })?;
        let gone: Vec<TabletId> = catalog
            .dropped_tablets()
            .filter(|(_, placement)| placement.replicas.contains(&self.node))
            .map(|(tablet, _)| tablet)
            .collect();
        if !gone.is_empty() {
            self.forget(gone);
        }
        let receiver = self.changes.lock().take().expect("a follower is started once");
        self.publish(catalog);
        let follower = Arc::clone(self);
        #[allow(
            clippy::disallowed_methods,
            reason = "the follower's thread; it ends when the store lets go of the listener"
        )]
        std::thread::Builder::new()
            .name("catalog".to_owned())
            .spawn(move || follower.follow(&receiver))
            .map_err(|error| StartError::System("cannot start a thread", error))?;
        Ok(())
    }

    /// The newest snapshot that this node serves.
    pub(crate) fn served(&self) -> Arc<Catalog> {
        self.served.load_full()
    }

    /// Its version, without counting references: asked for with every request.
    pub(crate) fn served_version(&self) -> u64 {
        self.served.load().version()
    }

    /// The newest snapshot, served or not.
    pub(crate) fn current(&self) -> Arc<Catalog> {
        self.evaluator.current()
    }

    /// Schema events from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<SchemaEvent>> {
        self.events.subscribe()
    }

    /// Proposes an encoded command; returns the encoded outcome once this node serves its consequences.
    pub(crate) async fn change(&self, command: Vec<u8>) -> Result<Vec<u8>, KvError> {
        let _turn = self.turns.acquire().await.map_err(|_| KvError::Unavailable(CATALOG_TABLET))?;
        let outcome = write(&self.store, CATALOG_TABLET, Mutation::evaluated(None, &command)).await?;
        // The outcome may speak of a state that this node's copy has yet to reach.
        let version = Outcome::decode(&outcome).map_or(0, |outcome| outcome.version());
        let mut served = self.served_version.subscribe();
        // The sender lives as long as `self`.
        let _ = served.wait_for(|served| *served >= version).await;
        Ok(outcome)
    }

    fn follow(&self, changes: &Receiver<Changed>) {
        while let Ok((catalog, changes)) = changes.recv() {
            if catalog.version() <= self.served.load().version() {
                continue;
            }
            let mut events = Vec::new();
            // What is dropped goes only after nobody is sent there any more: a request that meets a closed tablet finds others in the catalog.
            let (dropped, changes): (Vec<_>, Vec<_>) =
                changes.into_iter().partition(|change| matches!(change, Change::DropTablets { .. }));
            for change in changes {
                self.carry_out(change, &mut events);
            }
            self.publish(catalog);
            for change in dropped {
                self.carry_out(change, &mut events);
            }
            for event in events {
                // Nobody may be listening.
                let _ = self.events.send(Arc::new(event));
            }
        }
    }

    fn carry_out(&self, change: Change, events: &mut Vec<SchemaEvent>) {
        match change {
            Change::OpenTablets { table, tablets } => {
                let ours = tablets.iter().filter(|tablet| tablet.replicas.contains(&self.node));
                let wanted = ours.map(|tablet| open_rows(self.node, tablet.tablet, &table)).collect();
                if let Err(error) = self.store.open(wanted) {
                    tracing::error!(table = %table.name, %error, "cannot open the tablets of a new table");
                }
            }
            Change::ReplicasAdded { table, tablets } => {
                let ours = tablets.iter().filter(|(_, node)| *node == self.node);
                let wanted = ours.map(|(tablet, _)| open_rows(*tablet, &table)).collect();
                if let Err(error) = self.store.open(wanted) {
                    tracing::error!(table = %table.name, %error, "cannot open new replicas of a table");
                }
            }
            Change::DropTablets { tablets, .. } => {
                self.store.close(&tablets);
                self.forget(tablets);
            }
            Change::AlterTable(table) => {
                let catalog = self.evaluator.current();
                let entry = catalog.table_by_id(table.id);
                for range in entry.iter().flat_map(|entry| &entry.tablets) {
                    if let Some(handle) = self.store.handle(range.tablet) {
                        handle.data().set_gc_grace_s(table.gc_grace_s);
                    }
                }
            }
            Change::NodeChanged(_) => {}
            Change::Schema(event) => events.push(event),
        }
    }

    /// Tells the catalog that this node has removed dropped tablets. Repeated at the next start if it does not arrive.
    fn forget(&self, tablets: Vec<TabletId>) {
        let command = Command::ForgetDropped { node: self.node, tablets };
        let sink: Arc<dyn diorite_base::write::WriteSink> = Arc::new(Unheard);
        let mutation = Mutation::evaluated(None, &command.encode());
        match self.store.submit(CATALOG_TABLET, mutation, &sink, 0) {
            Ok(()) => self.store.kick(),
            Err(error) => tracing::warn!(%error, "could not tell the catalog that tablets are gone"),
        }
    }

    fn publish(&self, catalog: Arc<Catalog>) {
        let version = catalog.version();
        self.served.store(catalog);
        self.served_version.send_replace(version);
    }
}

fn open_rows(node: NodeId, tablet: TabletId, table: &Table) -> OpenTablet {
    let compaction = match table.options.get("compaction") {
        Some(options) if options.contains("LeveledCompactionStrategy") => CompactionStyle::Leveled,
        _ => CompactionStyle::SizeTiered,
    };
    OpenTablet {
        tablet,
        evaluator: Arc::new(TabletEvaluator),
        gc_grace_s: table.gc_grace_s,
        founders: vec![node],
        members: Members::default(),
        values: Values::Rows,
        compaction,
        on_loaded: None,
    }
}

/// A sink for writes whose outcome nobody needs.
struct Unheard;

impl diorite_base::write::WriteSink for Unheard {
    fn complete(&self, done: &mut Vec<diorite_base::write::Completion>) {
        for (_, outcome) in done.drain(..) {
            if let Err(error) = outcome {
                tracing::warn!(%error, "a background catalog change failed");
            }
        }
    }
}

/// Empties a queue while the log is replayed into it.
struct DrainWhile {
    stop: SyncSender<()>,
    thread: std::thread::JoinHandle<Receiver<Changed>>,
}

impl DrainWhile {
    fn start(receiver: Receiver<Changed>) -> Result<Self, StartError> {
        let (stop, stopped) = sync_channel::<()>(1);
        #[allow(clippy::disallowed_methods, reason = "joined by `stop`")]
        let thread = std::thread::Builder::new()
            .name("catalog-replay".to_owned())
            .spawn(move || {
                while stopped.try_recv().is_err() {
                    // What was replayed is part of the snapshot that is served first.
                    let _ = receiver.recv_timeout(std::time::Duration::from_millis(5));
                }
                while receiver.try_recv().is_ok() {}
                receiver
            })
            .map_err(|error| StartError::System("cannot start a thread", error))?;
        Ok(Self { stop, thread })
    }

    fn stop(self) -> Receiver<Changed> {
        // The thread is waiting for this.
        let _ = self.stop.send(());
        self.thread.join().expect("the drain does nothing that panics")
    }
}
