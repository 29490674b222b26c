//! Follows the catalog: proposes commands to its Raft group, carries out what they mean for this node, and publishes a snapshot once this node
//! serves it.
//!
//! Always true: a snapshot is published ([`CatalogFollower::served`]) only after the tablets it names on this node are open, so no
//! statement meets a table whose tablets are not there yet. One thread goes from the snapshot that is served to the newest, never
//! the thread that applies the log, which only wakes it; how many versions lie between does not matter. A change is answered after this node
//! serves it and, as far as they can be waited for, after all others do.

use crate::error::StartError;
use crate::machine::lower_priority;
use crate::peers::{Notice, Peers};
use crate::table_options;
use arc_swap::ArcSwap;
use diorite_base::mutation::{Evaluator, Mutation};
use diorite_base::program::{ProvenProgram, Unprovable};
use diorite_base::write::{KvError, Waited, WriteReply};
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_cluster::catalog::{
    CATALOG_FOUNDERS, Catalog, CatalogEvaluator, CatalogMembers, Change, Command, Outcome, Placement, SchemaChangeKind,
    SchemaEvent, SchemaTarget as CatalogTarget, Split as TabletSplit, is_too_deep,
};
use diorite_cql::protocol::event::{SchemaChangeType, TopologyChangeType};
use diorite_cql::protocol::{Event, SchemaChange, SchemaTarget};
use diorite_model::key::push_token_start;
use diorite_model::schema::Table;
use diorite_query::program::TabletEvaluator;
use diorite_replica::{
    ChildOpening, Leadership, Members, Merging, OpenTablet, Openings, PeerListener, Split, SplitMark, Store,
};
use diorite_storage::{ScanRange, TableOptions, UNKNOWN_GRACE_S, Values};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};
use uuid::Uuid;

/// Events that a slow connection may lag behind.
const PENDING_EVENTS: usize = 1_024;
/// How long a change waits for this node to serve it.
const PATIENCE_HERE: Duration = Duration::from_secs(30);
/// How long a change waits for the other nodes that are up to serve it.
const PATIENCE_ELSEWHERE: Duration = Duration::from_secs(5);
/// How long a node has to be down before clients are told, as they then close their connections to it.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// How long after a failed attempt the catalog is told again that tablets are gone.
const TELL_AGAIN: Duration = Duration::from_secs(1);
/// Dropped tablets that are told to be gone at a time.
const FORGET_AT_ONCE: usize = 1_000;
/// Versions of which the schema's version is remembered, to know it of nodes that serve an older one.
const REMEMBERED_VERSIONS: usize = 64;
/// How often it is found, four times a second, that others have not done their part of a split until it goes on without them.
const PREPARING_ROUNDS: u32 = 40;

/// The catalog's own tablet.
pub(crate) const CATALOG_TABLET: TabletId = TabletId(GroupId::CATALOG.0);

/// Writes to a tablet, wherever it is led. Without it the follower would be bound to this node's store, whose replica of the catalog
/// seldom leads.
pub(crate) trait CatalogWriter: Send + Sync + 'static {
    /// Writes to [`CATALOG_TABLET`] and waits for the outcome.
    fn write(&self, mutation: Mutation) -> BoxFuture<'_, Result<WriteReply, KvError>>;
}

/// The write that asks the catalog for a change; none for what could not be read or is over a limit.
pub(crate) fn as_mutation(command: &Command) -> Result<Mutation, Unprovable> {
    Ok(Mutation::evaluated(None, &ProvenProgram::new(command)?))
}

/// This node's side of the catalog.
pub(crate) struct CatalogFollower {
    me: Weak<CatalogFollower>,
    runtime: Handle,
    store: Arc<Store>,
    node: NodeId,
    /// Another one after the replica of the catalog had to be rebuilt.
    evaluator: ArcSwap<CatalogEvaluator>,
    /// Wakes the thread that follows.
    wake: SyncSender<()>,
    served: ArcSwap<Catalog>,
    served_version: watch::Sender<u64>,
    /// The newest versions that were served, each with its schema's.
    schema_versions: Mutex<VecDeque<(u64, Uuid)>>,
    peers: Peers,
    events: broadcast::Sender<Arc<Event>>,
    woken: Mutex<Option<Receiver<()>>>,
    writer: OnceLock<Arc<dyn CatalogWriter>>,
    /// The tablet that is split next here, and how often others have been waited for.
    waited_for: Mutex<Option<(TabletId, u32)>>,
    /// New children that are led here, and how often it was found that some replica has not begun.
    waited_for_children: Mutex<BTreeMap<TabletId, u32>>,
    /// Tablets may have been dropped.
    dropped: Notify,
    /// This node is no member any more.
    removed: Notify,
}

impl CatalogFollower {
    /// Opens the catalog's group and replays its log; [`Self::start`] then serves it. To be called on the runtime.
    pub(crate) fn open(store: &Arc<Store>, node: NodeId) -> Result<Arc<Self>, StartError> {
        let (wake, woken) = sync_channel(1);
        let (evaluator, open) = open_catalog(wake.clone(), Members::default());
        store.open(vec![open]).map_err(|error| StartError::Tablet {
            what: "the catalog".to_owned(),
            reason: format!(
                "{error}; without it the node does not know what else it holds. If other nodes are well, start this one anew with empty data directories and --join, and let `diorite admin \
                 replace` make its replicas anew; a node that is alone needs its data directory as it was before"
            ),
        })?;
        let runtime = Handle::current();
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            runtime,
            store: Arc::clone(store),
            node,
            // Nothing is served before the start.
            served_version: watch::Sender::new(0),
            served: ArcSwap::from_pointee(Catalog::default()),
            schema_versions: Mutex::default(),
            peers: Peers::default(),
            evaluator: ArcSwap::new(evaluator),
            wake,
            events: broadcast::Sender::new(PENDING_EVENTS),
            woken: Mutex::new(Some(woken)),
            writer: OnceLock::new(),
            waited_for: Mutex::default(),
            waited_for_children: Mutex::default(),
            dropped: Notify::new(),
            removed: Notify::new(),
        }))
    }

    /// Opens this node's tablets as the catalog has them, removes what is left of dropped ones, and follows the catalog from now on. From here
    /// on changes can be proposed, through `writer`.
    pub(crate) fn start(self: &Arc<Self>, writer: Arc<dyn CatalogWriter>) -> Result<(), StartError> {
        let catalog = self.current();
        self.remove_orphans(&catalog)?;
        // A child whose parent is here and that has no files is made by its parent's replica, when that learns that it was split.
        let is_to_come = |tablet: TabletId, placement: &Placement| {
            placement.origin.is_some_and(|origin| self.store.has_files(origin.parent) && !self.store.has_files(tablet))
        };
        let ours = catalog.tablets_on(self.node).filter(|(tablet, placement)| !is_to_come(*tablet, placement));
        let wanted = ours.filter_map(|(tablet, placement)| {
            Some(open_rows(tablet, placement, &catalog.table_by_id(placement.table)?.table))
        });
        self.store
            .open(wanted.collect())
            .map_err(|error| StartError::Tablet { what: "the tablets".to_owned(), reason: error.to_string() })?;
        self.meet_nodes(&catalog);
        self.heed_settings(&catalog);
        self.publish(catalog);
        if self.writer.set(writer).is_err() {
            tracing::error!("a follower is started once");
        }
        let woken = self.woken.lock().take().expect("a follower is started once");
        let follower = Arc::clone(self);
        #[allow(
            clippy::disallowed_methods,
            reason = "the follower's thread; it ends when the store lets go of the listener"
        )]
        std::thread::Builder::new()
            .name("catalog".to_owned())
            .spawn(move || follower.follow(&woken))
            .map_err(|error| StartError::System("cannot start a thread", error))?;
        self.runtime.spawn(Arc::clone(self).forget_dropped());
        self.dropped.notify_one();
        Ok(())
    }

    /// Removes what is left of tablets that were dropped, and of replicas that are elsewhere now. This node's copy of the catalog may be behind: only
    /// what it knows to be gone may go, which are tablets that were numbered once and are not placed here. A replica that was opened since is
    /// known to the copy, as that was made durable before.
    fn remove_orphans(&self, catalog: &Catalog) -> Result<(), StartError> {
        let coming: BTreeSet<TabletId> =
            catalog.tablets().filter_map(|(_, placement)| placement.split).flat_map(|split| split.children).collect();
        let is_numbered = |tablet: TabletId| {
            tablet != CATALOG_TABLET && catalog.identity().has_numbered(tablet) && !coming.contains(&tablet)
        };
        self.store.remove_orphans(|tablet| is_numbered(tablet) && catalog.placement(tablet).is_none())?;
        let is_elsewhere =
            |tablet: TabletId| catalog.placement(tablet).is_some_and(|placement| !placement.is_held_by(self.node));
        Ok(self.store.remove_departed(is_elsewhere)?)
    }

    /// The newest snapshot that this node serves.
    pub(crate) fn served(&self) -> Arc<Catalog> {
        self.served.load_full()
    }

    /// Its version, without counting references: asked for with every request.
    pub(crate) fn served_version(&self) -> u64 {
        self.served.load().version()
    }

    /// Its version, from now on.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.served_version.subscribe()
    }

    /// The newest snapshot, served or not. While the replica of the catalog is rebuilt it knows less than is served.
    pub(crate) fn current(&self) -> Arc<Catalog> {
        let (newest, served) = (self.evaluator.load().current(), self.served());
        if newest.version() < served.version() { served } else { newest }
    }

    /// What clients may register for, from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    /// The version of the schema that a node serves, as drivers are told it. A node that is down serves none: it is told to agree, as nobody has
    /// to wait for it.
    pub(crate) fn served_schema(&self, node: NodeId) -> Uuid {
        let known = self.schema_versions.lock();
        let newest = known.back().map_or_else(Uuid::nil, |(_, schema)| *schema);
        let Some(served) = self.peers.served_version(node) else { return newest };
        // Older than all that is remembered: no schema of this node's.
        known.iter().rev().find(|(version, _)| *version <= served).map_or_else(Uuid::nil, |(_, schema)| *schema)
    }

    /// Proposes a command; returns the encoded outcome once this node serves its consequences, and all others that are up do or have
    /// been waited for.
    pub(crate) async fn change(&self, command: &Command) -> Result<Vec<u8>, KvError> {
        let writer = self.writer.get().ok_or(KvError::Unavailable(CATALOG_TABLET))?;
        let reply = writer.write(as_mutation(command)?).await?;
        let outcome = Outcome::decode(&reply).map_err(|error| KvError::Storage(error.to_string()))?;
        self.wait_until_served(outcome.version()).await?;
        let behind = self.peers.wait_until_served(outcome.version(), PATIENCE_ELSEWHERE).await;
        if !behind.is_empty() {
            tracing::warn!(
                version = outcome.version(),
                ?behind,
                "a change of the catalog is not served everywhere yet"
            );
        }
        Ok(reply)
    }

    /// Proposes a command and returns its outcome as soon as it is known, whoever serves it yet.
    pub(crate) async fn propose(&self, command: &Command) -> Result<Outcome, KvError> {
        let writer = self.writer.get().ok_or(KvError::Unavailable(CATALOG_TABLET))?;
        let reply = writer.write(as_mutation(command)?).await?;
        Outcome::decode(&reply).map_err(|error| KvError::Storage(error.to_string()))
    }

    /// Waits until this node serves `version`, which the catalog's leader may have reached long before.
    pub(crate) async fn wait_until_served(&self, version: u64) -> Result<(), KvError> {
        let mut served = self.served_version.subscribe();
        let reached = served.wait_for(|served| *served >= version);
        match tokio::time::timeout(PATIENCE_HERE, reached).await {
            // The sender lives as long as `self`.
            Ok(_) => Ok(()),
            Err(_) => Err(KvError::Timeout(Waited::in_vain(PATIENCE_HERE.as_millis() as u64))),
        }
    }

    /// Waits until this node is no member any more.
    pub(crate) async fn removed(&self) -> StartError {
        self.removed.notified().await;
        StartError::Removed(self.node)
    }

    fn follow(&self, woken: &Receiver<()>) {
        // A node that joins opens dozens of replicas within a second.
        lower_priority();
        while woken.recv().is_ok() {
            let (newest, served) = (self.current(), self.served());
            if newest.version() > served.version() {
                self.serve(&newest, &served);
            }
        }
    }

    /// Goes from one snapshot to a later one.
    fn serve(&self, newest: &Arc<Catalog>, served: &Catalog) {
        let mut events = Vec::new();
        // What is dropped or elsewhere goes only after nobody is sent there any more: a request that meets a closed tablet finds others in the
        // catalog.
        let closes = |change: &Change| matches!(change, Change::DropTablets { .. } | Change::ReplicasGone { .. });
        let (dropped, changes): (Vec<_>, Vec<_>) = newest.changes_since(served).into_iter().partition(closes);
        for change in changes {
            self.carry_out(change, newest, served, &mut events);
        }
        self.publish(Arc::clone(newest));
        for change in dropped {
            self.carry_out(change, newest, served, &mut events);
        }
        // Also those that came and went unseen.
        self.dropped.notify_one();
        for event in events {
            // Nobody may be listening.
            let _ = self.events.send(Arc::new(event));
        }
    }

    fn carry_out(&self, change: Change, newest: &Catalog, served: &Catalog, events: &mut Vec<Event>) {
        match change {
            Change::OpenTablets { table, tablets } => {
                let ours =
                    tablets.iter().map(|new| new.tablet).filter(|tablet| !self.is_made_by_parent(*tablet, newest));
                self.open_ours(ours, &table, newest);
            }
            Change::SplitTablet(tablet) => {
                if self.store.handle(tablet).is_some() {
                    self.make_durable();
                    if let Some(split) = newest.placement(tablet).and_then(|placement| placement.split) {
                        self.store.prepare_split(tablet, &split_at(split));
                    }
                }
            }
            Change::SplitCancelled { tablet, children } => self.store.cancel_split(tablet, children),
            Change::ReplicasMoved { table, tablets } => {
                let ours = tablets.iter().filter(|(_, nodes)| nodes.contains(&self.node));
                let ours: Vec<TabletId> = ours.map(|(tablet, _)| *tablet).collect();
                if !ours.is_empty() && self.make_durable() {
                    self.open_ours(ours.into_iter(), &table, newest);
                }
                for (tablet, _) in tablets {
                    if let Some(placement) = newest.placement(tablet) {
                        self.store.set_members(tablet, members(placement));
                    }
                }
            }
            Change::ReplicasGone { tablets } => {
                let ours = tablets.into_iter().filter(|(_, node)| *node == self.node);
                let ours: Vec<TabletId> = ours.map(|(tablet, _)| tablet).collect();
                self.store.close(&ours);
            }
            Change::SettingsChanged => self.heed_settings(newest),
            Change::DropTablets { tablets, .. } => {
                // A parent that lagged until nobody needs it has not made its children: they begin empty.
                let split = tablets.iter().filter_map(|tablet| served.placement(*tablet)?.split);
                for child in split.flat_map(|split| split.children) {
                    if let Some(entry) = newest.placement(child).and_then(|_| newest.table_of(child)) {
                        self.open_ours([child].into_iter(), &entry.table, newest);
                    }
                }
                self.store.close(&tablets);
            }
            Change::AlterTable(table) => {
                let entry = newest.table_by_id(table.id);
                for range in entry.iter().flat_map(|entry| &entry.tablets) {
                    if let Some(handle) = self.store.handle(range.tablet) {
                        handle.set_gc_grace_s(table.gc_grace_s);
                        self.store.set_table_options(range.tablet, table_options::of(&table));
                    }
                }
            }
            Change::NodeChanged(node) => {
                self.meet_nodes(newest);
                events.extend(self.arrival(node, newest, served));
            }
            Change::NodeRemoved(node) => {
                self.meet_nodes(newest);
                events.extend(
                    cql_address(served, node)
                        .map(|address| Event::Topology { change: TopologyChangeType::RemovedNode, address }),
                );
                if node == self.node {
                    self.removed.notify_one();
                }
            }
            Change::Schema(event) => events.push(Event::Schema(schema_change(event))),
        }
    }

    /// Whether a child is, or will be, opened by the replica of its parent on this node. Nobody waits for it: until it is open requests for it find others,
    /// or are parked.
    fn is_made_by_parent(&self, child: TabletId, newest: &Catalog) -> bool {
        let origin = newest.placement(child).and_then(|placement| placement.origin);
        origin.is_some_and(|origin| self.store.handle(origin.parent).is_some())
    }

    /// Splits one of the tablets that are to be split and led here, unless one is being split: a second would wait for the first, and its clients with it. Not
    /// before its children have been prepared here, as they are on the other nodes at the same time.
    pub(crate) fn split_next(&self) {
        let catalog = self.served();
        let asked: Vec<(TabletId, TabletSplit)> =
            catalog.tablets_on(self.node).filter_map(|(tablet, placement)| Some((tablet, placement.split?))).collect();
        let mut is_busy = false;
        for (tablet, split) in &asked {
            let Some(mark) = self.store.split_of(*tablet) else { continue };
            is_busy |= !split.is_served || split.children.iter().any(|child| self.store.handle(*child).is_none());
            if !split.is_served {
                // Whoever led it then may be gone before the catalog has heard of it.
                self.was_split(&mark);
            }
        }
        let mut next = None;
        for (tablet, split) in asked.iter().filter(|(_, split)| !split.is_served) {
            if self.leads(*tablet) {
                next = next.or(Some((*tablet, *split)));
            } else if self.store.prepare_split(*tablet, &split_at(*split)) {
                self.store.tell_prepared(*tablet);
            }
        }
        let Some((tablet, split)) = next.filter(|_| !is_busy) else { return };
        if self.store.prepare_split(tablet, &split_at(split)) && self.have_prepared(tablet, &catalog) {
            if split.is_committed {
                self.store.split(tablet, split_at(split));
            } else {
                self.commit_split(tablet, split.children);
            }
        }
    }

    /// Tells the catalog that a tablet is about to be split: it is once that is served here, and cannot be cancelled any more.
    fn commit_split(&self, tablet: TabletId, children: [TabletId; 2]) {
        let Some(follower) = self.me.upgrade() else { return };
        self.runtime.spawn(async move {
            // If it does not get through, `split_next` says it again.
            match follower.propose(&Command::CommitSplit { tablet, children }).await {
                Ok(outcome) => {
                    drop(follower.wait_until_served(outcome.version()).await.map(|()| follower.split_next()))
                }
                Err(error) => {
                    tracing::warn!(%tablet, %error, "the catalog could not be told that a tablet is about to be split")
                }
            }
        });
    }

    /// Whether the other nodes have prepared the children of a tablet, or have been waited for long enough.
    fn have_prepared(&self, tablet: TabletId, catalog: &Catalog) -> bool {
        let ready = self.store.prepared_elsewhere(tablet);
        let others = catalog.placement(tablet).map(|placement| placement.replicas.clone()).unwrap_or_default();
        let mut waited = self.waited_for.lock();
        let rounds = waited.filter(|(awaited, _)| *awaited == tablet).map_or(0, |(_, rounds)| rounds);
        *waited = Some((tablet, rounds + 1));
        let is_awaited =
            |node: &NodeId| *node != self.node && !ready.contains(node) && self.store.liveness().is_up(*node);
        rounds >= PREPARING_ROUNDS || !others.iter().any(is_awaited)
    }

    /// The new children that are led here and need their parent no more: every replica on a node that is up has begun, or was waited for long enough. One that lacks its
    /// beginning when the parent goes is sent a copy of everything.
    pub(crate) fn begun_children(&self) -> BTreeSet<TabletId> {
        let catalog = self.served();
        let mut waited = self.waited_for_children.lock();
        let mut begun = BTreeSet::new();
        let children =
            catalog.tablets_on(self.node).filter_map(|(tablet, placement)| Some((tablet, placement.origin?)));
        let led: Vec<_> = children.filter(|(tablet, _)| self.leads(*tablet)).collect();
        waited.retain(|tablet, _| led.iter().any(|(led, _)| led == tablet));
        for (tablet, origin) in led {
            let rounds = waited.entry(tablet).or_insert(0);
            *rounds += 1;
            let has_begun =
                |(node, matched): &(NodeId, u64)| *matched >= origin.index || !self.store.liveness().is_up(*node);
            let Some(state) = self.store.describe(tablet) else { continue };
            if *rounds > PREPARING_ROUNDS || state.matched.iter().all(has_begun) {
                begun.insert(tablet);
            }
        }
        begun
    }

    fn leads(&self, tablet: TabletId) -> bool {
        self.store.handle(tablet).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    /// Makes this node's copy of the catalog durable as it is. Without that a crash could take it back to a time when a replica that has been opened
    /// since was not to be here, and the next start would remove it as a left-over, with all that its group relies on.
    fn make_durable(&self) -> bool {
        let flushed = self.store.handle(CATALOG_TABLET).map(|handle| handle.data().flush(true));
        match flushed {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::error!(%error, "the catalog cannot be made durable; replicas that came here are not opened");
                false
            }
            None => false,
        }
    }

    fn open_ours(&self, tablets: impl Iterator<Item = TabletId>, table: &Table, catalog: &Catalog) {
        let placed = tablets.filter_map(|tablet| Some((tablet, catalog.placement(tablet)?)));
        let ours = placed.filter(|(_, placement)| placement.is_held_by(self.node));
        let wanted = ours.map(|(tablet, placement)| open_rows(tablet, placement, table)).collect();
        if let Err(error) = self.store.open(wanted) {
            tracing::error!(table = %table.name, %error, "cannot open the tablets of a table");
        }
    }

    /// What operators have set for all nodes.
    fn heed_settings(&self, catalog: &Catalog) {
        let settings = &catalog.identity().settings;
        self.store.set_copy_rate(settings.copy_rate_bytes);
        self.store.pause_disk_moves(settings.balancing_is_paused);
    }

    /// Takes in who the nodes are: which of them are up, and who the members of the catalog's own group are.
    fn meet_nodes(&self, catalog: &Catalog) {
        if catalog.nodes().next().is_none() {
            // Not a member yet: whoever lets this node join has named the first peers.
            return;
        }
        for node in catalog.nodes().map(|node| node.id).filter(|node| *node != self.node) {
            self.heed(node, self.peers.set_live(node, self.store.liveness().is_up(node)));
        }
        let CatalogMembers { voters, learners } = catalog.catalog_members();
        self.store.set_members(CATALOG_TABLET, Members { voters, learners });
    }

    /// What clients are told of a node that is new, or elsewhere than before.
    fn arrival(&self, id: NodeId, newest: &Catalog, served: &Catalog) -> Option<Event> {
        let address = cql_address(newest, id)?;
        let is_new = id != self.node && cql_address(served, id) != Some(address);
        is_new.then_some(Event::Topology { change: TopologyChangeType::NewNode, address })
    }

    /// Tells the catalog of dropped tablets that this node has none of (any more), whenever there may be some.
    async fn forget_dropped(self: Arc<Self>) {
        loop {
            self.dropped.notified().await;
            while let Some(command) = self.forgettable() {
                if let Err(error) = self.change(&command).await {
                    tracing::warn!(%error, "could not tell the catalog that tablets are gone");
                    #[allow(clippy::disallowed_methods, reason = "a shell's timer: nobody says when to try again")]
                    tokio::time::sleep(TELL_AGAIN).await;
                }
            }
        }
    }

    fn forgettable(&self) -> Option<Command> {
        let catalog = self.served();
        let ours = catalog.dropped_tablets().filter(|(_, placement)| placement.is_held_by(self.node));
        let gone = ours.map(|(tablet, _)| tablet).filter(|tablet| self.store.handle(*tablet).is_none());
        let tablets: Vec<TabletId> = gone.take(FORGET_AT_ONCE).collect();
        (!tablets.is_empty()).then_some(Command::ForgetDropped { node: self.node, tablets })
    }

    fn publish(&self, catalog: Arc<Catalog>) {
        let version = catalog.version();
        let mut known = self.schema_versions.lock();
        known.push_back((version, catalog.schema_version()));
        if known.len() > REMEMBERED_VERSIONS {
            known.pop_front();
        }
        drop(known);
        self.served.store(catalog);
        self.served_version.send_replace(version);
        self.store.liveness().announce(version);
    }

    fn heed(&self, node: NodeId, notice: Notice) {
        match notice {
            Notice::Nothing => {}
            Notice::TellUp => self.tell_status(node, true),
            Notice::TellDown => self.tell_status(node, false),
            Notice::Watch => {
                let Some(follower) = self.me.upgrade() else { return };
                self.runtime.spawn(async move {
                    #[allow(
                        clippy::disallowed_methods,
                        reason = "a shell's timer: a pause of a node is given time to end"
                    )]
                    tokio::time::sleep(DOWN_AFTER).await;
                    if follower.peers.still_down(node) {
                        follower.tell_status(node, false);
                    }
                });
            }
        }
    }

    /// Tells clients that a node is up or down.
    fn tell_status(&self, node: NodeId, is_up: bool) {
        let Some(address) = cql_address(&self.served.load(), node) else { return };
        tracing::info!(event = "node", %node, %address, is_up, "clients are told of a node's status");
        // Nobody may be listening.
        let _ = self.events.send(Arc::new(Event::Status { is_up, address }));
    }
}

impl Openings for CatalogFollower {
    /// Of the catalog only to build its replica anew: what is opened then is what the follower goes by from now on.
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet> {
        let catalog = self.current();
        if tablet == CATALOG_TABLET {
            let CatalogMembers { voters, learners } = catalog.catalog_members();
            let (evaluator, open) = open_catalog(self.wake.clone(), Members { voters, learners });
            self.evaluator.store(evaluator);
            return Some(open);
        }
        let placement = catalog.placement(tablet).filter(|placement| placement.is_held_by(self.node))?;
        let table = &catalog.table_by_id(placement.table)?.table;
        Some(open_rows(tablet, placement, table))
    }

    fn child(&self, parent: TabletId, child: TabletId) -> ChildOpening {
        // What is served has been carried out, and so made durable.
        let served = self.served();
        if served.version() == 0 {
            // At the start of the node: a tablet may hear that it was split before all are open.
            return ChildOpening::NotYet;
        }
        let Some(placement) = served.placement(parent) else {
            return self.opening(child).map_or(ChildOpening::Never, |opening| ChildOpening::As(Box::new(opening)));
        };
        if served.placement(child).is_some() {
            // It may have moved away already, if its sibling is what still needs the parent.
            return self.opening(child).map_or(ChildOpening::Never, |opening| ChildOpening::As(Box::new(opening)));
        }
        let is_known = placement.split.is_some_and(|split| split.children.contains(&child));
        match (is_known, served.table_of(parent)) {
            (true, Some(entry)) => ChildOpening::As(Box::new(open_rows(child, placement, &entry.table))),
            (_, None) => ChildOpening::Never,
            // Of a split that was cancelled.
            (false, Some(_)) if served.identity().has_numbered(child) => ChildOpening::Never,
            (false, Some(_)) => ChildOpening::NotYet,
        }
    }

    fn was_split(&self, mark: &SplitMark) {
        let Some(follower) = self.me.upgrade() else { return };
        let command = Command::ServeSplit { tablet: mark.parent, index: mark.index, term: mark.term };
        self.runtime.spawn(async move {
            // If it does not get through, `split_next` says it again.
            if let Err(error) = follower.propose(&command).await {
                tracing::warn!(?command, %error, "the catalog could not be told that a tablet was split");
            }
        });
    }
}

impl PeerListener for CatalogFollower {
    fn changed(&self, node: NodeId, is_up: bool) {
        self.heed(node, self.peers.set_live(node, is_up));
    }

    fn announced(&self, node: NodeId, number: u64) {
        self.heed(node, self.peers.set_served(node, number));
    }
}

fn cql_address(catalog: &Catalog, node: NodeId) -> Option<SocketAddr> {
    catalog.node(node).map(|node| SocketAddr::new(node.address(), node.description.cql_port))
}

fn members(placement: &Placement) -> Members {
    Members { voters: placement.replicas.clone(), learners: Vec::new() }
}

/// How the catalog's replica is opened, and what evaluates its commands: from what is stored on, and telling `wake` of every change.
fn open_catalog(wake: SyncSender<()>, members: Members) -> (Arc<CatalogEvaluator>, OpenTablet) {
    let listener = move |_: &Arc<Catalog>| {
        // If it is full the follower is woken already; it is gone only when the node shuts down.
        let _ = wake.try_send(());
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
        for (key, _) in entries.iter().filter(|(_, value)| is_too_deep(value)) {
            tracing::warn!(
                object = %String::from_utf8_lossy(key),
                "a definition of an earlier version has more types within each other than can be served: the innermost are read as blob"
            );
        }
        if !entries.is_empty() {
            loading.reload(entries).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let open = OpenTablet {
        tablet: CATALOG_TABLET,
        evaluator: Arc::clone(&evaluator) as Arc<dyn Evaluator>,
        // Its objects are only ever replaced.
        gc_grace_s: UNKNOWN_GRACE_S,
        founders: CATALOG_FOUNDERS.to_vec(),
        members,
        floor: None,
        values: Values::Plain,
        options: TableOptions::default(),
        on_loaded: Some(Box::new(on_loaded)),
    };
    (evaluator, open)
}

fn split_at(split: TabletSplit) -> Split {
    let mut boundary = Vec::new();
    push_token_start(split.at, &mut boundary);
    Split { boundary, children: split.children }
}

fn open_rows(tablet: TabletId, placement: &Placement, table: &Table) -> OpenTablet {
    OpenTablet {
        tablet,
        evaluator: Arc::new(Merging(TabletEvaluator)),
        gc_grace_s: table.gc_grace_s,
        founders: placement.founders.clone(),
        members: members(placement),
        floor: placement.origin.map(|origin| (origin.index, origin.term)),
        values: Values::Rows,
        options: table_options::of(table),
        on_loaded: None,
    }
}

fn schema_change(event: SchemaEvent) -> SchemaChange {
    let keyspace = event.keyspace;
    SchemaChange {
        change: match event.change {
            SchemaChangeKind::Created => SchemaChangeType::Created,
            SchemaChangeKind::Updated => SchemaChangeType::Updated,
            SchemaChangeKind::Dropped => SchemaChangeType::Dropped,
        },
        target: match event.target {
            CatalogTarget::Keyspace => SchemaTarget::Keyspace(keyspace),
            CatalogTarget::Table(name) => SchemaTarget::Table { keyspace, name },
            CatalogTarget::Type(name) => SchemaTarget::Type { keyspace, name },
        },
    }
}
