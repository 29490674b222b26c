//! Opening and closing the tablets of a store.
//!
//! Always true: a tablet is open at most once, and no replica replaces a former one while that one's files are still
//! read. A replica that cannot be opened is set aside (`aside`) and does not keep others from being opened.

use crate::group::handle::{TabletHandle, storage_error};
use crate::group::replica::{Opening, Replica};
use crate::group::split::keep_own;
use crate::lifecycle::asides::Cause;
use crate::lifecycle::command::Command;
use crate::lifecycle::disks::Remembered;
use crate::lifecycle::installing::wait_until_unused;
use crate::lifecycle::openings::OpenTablet;
use crate::lifecycle::parallel::in_parallel;
use crate::lifecycle::replicas::NodeReplicas;
use crate::options::Durability;
use diorite_base::caught::caught;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_raft::{ConfState, HardState, LogPosition, Recovered, UNKNOWN_FLOOR};
use diorite_storage::{LogBatch, LogRecords, Rocks, StorageError, Tablet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// A replica that its store thread is starting, and where that thread says that it serves.
type Started = (Arc<TabletHandle>, Receiver<Result<(), KvError>>);

impl NodeReplicas {
    /// Opens tablets, making those that do not exist yet, and returns when all of them serve: the entries in the log
    /// are applied. Replicas that cannot be opened are set aside.
    ///
    /// # Errors
    /// Those of a disk's log, and those of the catalog's replica: without it a node does not know which other tablets
    /// it has.
    pub(crate) fn open(&self, wanted: Vec<OpenTablet>) -> Result<(), KvError> {
        let mut fresh: Vec<LogBatch> = self.disks.iter().map(|_| LogBatch::default()).collect();
        let mut counts = vec![0u64; self.disks.len()];
        for handle in self.tablets.load().values() {
            counts[handle.disk()] += 1;
        }
        let mut placed = Vec::new();
        let most = self.options.most_tablets.saturating_sub(self.tablets.load().len());
        for open in wanted {
            let disk = self.disks.place(open.tablet, &mut counts)?;
            if placed.len() >= most && GroupId::from(open.tablet) != GroupId::CATALOG {
                let error = StorageError::TooManyTablets { most: self.options.most_tablets };
                self.set_unopened_aside(open.tablet, disk, &error);
                continue;
            }
            let group = GroupId::from(open.tablet);
            let recovered = match self.disks[disk].log.recover(group) {
                Ok(recovered) => recovered,
                Err(error) => {
                    self.set_unopened_aside(open.tablet, disk, &error);
                    continue;
                }
            };
            if !self.goes_by_its_log(&open, disk, &mut fresh[disk]) {
                continue;
            }
            let voters = open.initial_voters.iter().map(|node| node.0).collect();
            let conf_state = ConfState { voters, ..ConfState::default() };
            if open.floor.is_some() && !self.disks.is_logged(open.tablet) {
                self.discard_unlogged(open.tablet)?;
            }
            let own = recovered.last_acknowledged();
            let Remembered { state, held, is_in_doubt } = self.disks.remembered(open.tablet, disk, &recovered)?;
            let origin = open.floor.filter(|_| !self.disks.has_files(open.tablet));
            let floor = origin.map_or(held, |floor| floor.max(held));
            if floor > own {
                let floor = if is_in_doubt { UNKNOWN_FLOOR } else { floor };
                fresh[disk].retire(group, &state, floor).map_err(storage_error)?;
            } else {
                if state != recovered.hard_state {
                    fresh[disk].set_hard_state(group, &state).map_err(storage_error)?;
                }
                if is_in_doubt {
                    // Its log is all here, but it may have acknowledged more on another disk: its leader knows.
                    fresh[disk].set_floor(group, recovered.floor_with_lost_end()).map_err(storage_error)?;
                }
            }
            if recovered.conf_state.voters.is_empty() {
                fresh[disk].set_conf_state(group, &conf_state).map_err(storage_error)?;
            }
            placed.push((open, disk));
        }
        for (disk, mut batch) in self.disks.iter().zip(fresh) {
            if !batch.is_empty() {
                disk.log.write(&mut batch, true).map_err(storage_error)?;
            }
        }
        self.disks.forget_elsewhere(&placed)?;
        let has_catalog = placed.iter().any(|(open, _)| GroupId::from(open.tablet) == GroupId::CATALOG);
        self.start_replicas(placed)?;
        if has_catalog { self.show_damage_of_catalog().map_err(storage_error) } else { Ok(()) }
    }

    /// Whether a replica relies on what its log holds, damaged or not. If not, it is set aside. The catalog's replica
    /// always does, as without it the node does not know which other tablets it has.
    fn goes_by_its_log(&self, open: &OpenTablet, disk: usize, batch: &mut LogBatch) -> bool {
        let group = GroupId::from(open.tablet);
        let Some(reason) = self.disks[disk].log.damage(group) else { return true };
        let is_only = open.members.voters.iter().all(|voter| *voter == self.context.node);
        let tablet = open.tablet;
        if group == GroupId::CATALOG {
            tracing::warn!(event = "aside", %tablet, reason, "the catalog goes on with what is left of its log");
        } else if is_only && self.options.accept_lost_log {
            tracing::warn!(event = "aside", %tablet, reason, "the only replica of a tablet goes on with what is left of its log, as it was told to");
            batch.forget_damage(group);
        } else {
            self.set_unopened_aside(tablet, disk, &StorageError::Corrupt(reason));
            return false;
        }
        true
    }

    /// If other nodes vote in the catalog's group, they report how far it has acknowledged. If none do, the damage is
    /// reported until an operator has accepted it.
    fn show_damage_of_catalog(&self) -> Result<(), StorageError> {
        let tablet = TabletId(GroupId::CATALOG.0);
        let Some(handle) = self.handle(tablet) else { return Ok(()) };
        let log = &self.disks[handle.disk()].log;
        let Some(reason) = log.damage(GroupId::CATALOG) else { return Ok(()) };
        if self.is_alone(&handle) && !self.options.accept_lost_log {
            self.set_unopened_aside(tablet, handle.disk(), &StorageError::Corrupt(reason));
            self.asides.keep_only(tablet);
            return Ok(());
        }
        let mut batch = LogBatch::default();
        batch.forget_damage(GroupId::CATALOG);
        log.write(&mut batch, true).map(drop)
    }

    /// Opens replicas, several at a time. One that cannot be opened does not keep the others from it.
    fn start_replicas(&self, placed: Vec<(OpenTablet, usize)>) -> Result<(), KvError> {
        let is_catalog = |tablet: TabletId| GroupId::from(tablet) == GroupId::CATALOG;
        let (mut starting, mut errors) = (Vec::new(), Vec::new());
        for begun in in_parallel(placed, |(open, disk)| self.start_replica(&open, disk)) {
            match begun {
                Ok(started) => starting.push(started),
                Err((tablet, _, error)) if is_catalog(tablet) => errors.push(storage_error(error)),
                Err((tablet, disk, error)) => self.set_unopened_aside(tablet, disk, &error),
            }
        }
        let mut opened = Vec::new();
        for (handle, reply) in starting {
            match reply.recv() {
                Ok(Ok(())) => opened.push(handle),
                Ok(Err(error)) if is_catalog(handle.id()) => errors.push(error),
                // It has logged the error, and upkeep sets it aside.
                Ok(Err(_)) => opened.push(handle),
                Err(_) => errors.push(KvError::Storage("the store is shutting down".to_owned())),
            }
        }
        self.note_stamps(&opened);
        self.update_tablets(|tablets| tablets.extend(opened.iter().map(|handle| (handle.id(), Arc::clone(handle)))));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Opens a replica and hands it to its store thread, which answers once the replica serves.
    fn start_replica(&self, open: &OpenTablet, disk: usize) -> Result<Started, (TabletId, usize, StorageError)> {
        let tablet = open.tablet;
        // The state that a panic leaves half changed belongs to this replica alone.
        let load = || {
            caught(|| self.load(open, disk))
                .unwrap_or_else(|panic| Err(StorageError::Corrupt(format!("opening {tablet} panicked: {panic}"))))
        };
        let loaded = match load() {
            Err(error) if error.is_damage() && self.set_replayable_aside(tablet, disk, &error) => load(),
            loaded => loaded,
        };
        let replica = loaded.map_err(|error| (tablet, disk, error))?;
        let handle = Arc::clone(&replica.handle);
        let (sender, receiver) = sync_channel(1);
        self.command(&handle, Command::Open(Box::new(replica), sender));
        Ok((handle, receiver))
    }

    /// Checks whether logs are ahead of the clock.
    fn note_stamps(&self, opened: &[Arc<TabletHandle>]) {
        let liveness = &self.context.liveness;
        let was_ahead = liveness.logs_ahead_us().is_some();
        let stamped = opened.iter().filter_map(|handle| handle.data().applied_state().ok());
        stamped.for_each(|state| liveness.note_stamped(state.newest_stamp_us));
        if let Some(ahead_us) = liveness.logs_ahead_us().filter(|_| !was_ahead) {
            tracing::warn!(
                event = "clock",
                ahead_s = ahead_us / 1_000_000,
                "tablets here hold timestamps from the future: the clock was wrong when they were written, or is wrong now"
            );
        }
    }

    /// Sets the damaged data of a replica aside whose log is whole and holds every entry since the first: opened again, it applies them all, and has forgotten nothing. Only the
    /// catalog's log is never cut. Returns whether the data was set aside.
    fn set_replayable_aside(&self, tablet: TabletId, disk: usize, error: &StorageError) -> bool {
        let (group, disk) = (GroupId::from(tablet), &self.disks[disk]);
        let holds_all = |recovered: Recovered| recovered.truncated == LogPosition::START && recovered.last.index > 0;
        let is_replayable = group == GroupId::CATALOG
            && disk.log.damage(group).is_none()
            && disk.log.recover(group).is_ok_and(holds_all);
        if !is_replayable {
            return false;
        }
        tracing::error!(event = "aside", %tablet, %error, "the data of the catalog is damaged: it is made anew from its log");
        disk.directory
            .set_aside(tablet.0)
            .inspect_err(|failed| tracing::error!(%failed, "the damaged data of the catalog stays where it is"))
            .is_ok()
    }

    fn load(&self, open: &OpenTablet, disk: usize) -> Result<Replica<Rocks>, StorageError> {
        let prepared = self.prepared.lock().remove(&open.tablet);
        let data = prepared.map_or_else(|| self.open_data(open, disk), |prepared| Ok(prepared.data))?;
        if let Some(on_loaded) = &open.on_loaded {
            on_loaded(&data)?;
        }
        let worker = self.worker_of(open.tablet);
        let evaluator = Arc::clone(&open.evaluator);
        let opening = Opening { tablet: open.tablet, members: open.members.clone(), evaluator };
        let replica = Replica::recover(&self.context, opening, data, &self.disks[disk].log, (worker, disk))?;
        replica.handle.set_gc_grace_s(open.gc_grace_s);
        Ok(replica)
    }

    /// Opens a tablet's data, reduced to the tablet's own rows.
    pub(crate) fn open_data(&self, open: &OpenTablet, disk: usize) -> Result<Arc<Tablet>, StorageError> {
        let path = self.disks[disk].directory.tablet(open.tablet.0);
        let data = Arc::new(Tablet::open(&self.shared, &path, open.values, open.options)?);
        if self.context.durability != Durability::Fsync {
            let log = self.disks[disk].log.clone();
            // The flushed state must not be ahead of the log after a loss of power.
            data.set_before_flush(Box::new(move || {
                if let Err(error) = log.sync() {
                    tracing::error!(%error, "could not sync the raft log before a flush");
                }
            }));
        }
        keep_own::<Rocks>(open.tablet, &data, self.context.planted)?;
        Ok(data)
    }

    /// Closes tablets and removes their data. A tablet that is being opened, or whose data is being replaced by a copy,
    /// is closed after that.
    pub(crate) fn close(&self, tablets: &[TabletId]) {
        let mut closing = Vec::new();
        {
            // A concurrent open or installation either finds the tablet closed, or finds the recorded close.
            let mut installing = self.installing.lock();
            for tablet in tablets {
                if let Some(prepared) = self.prepared.lock().remove(tablet) {
                    prepared.data.doom();
                }
                if let Some(is_closed) = installing.get_mut(tablet) {
                    *is_closed = true;
                    continue;
                }
                self.close_aside(*tablet);
                let Some(handle) = self.tablets.load().get(tablet).cloned() else { continue };
                let (sender, receiver) = sync_channel(1);
                self.command(&handle, Command::Close(*tablet, sender));
                let mut going = self.going.lock();
                going.retain(|_, files| files.strong_count() > 0);
                going.insert(*tablet, handle.data.in_use());
                closing.push((handle, receiver));
            }
            self.update_tablets(|map| {
                map.retain(|tablet, _| !tablets.contains(tablet) || installing.contains_key(tablet))
            });
        }
        for (handle, reply) in closing {
            match reply.recv() {
                Ok(Ok(())) => handle.data.doom(),
                Ok(Err(error)) => {
                    let tablet = handle.id();
                    tracing::error!(%tablet, %error, "the data of a closed tablet stays until the next start");
                }
                // The store thread is shutting down: the next start removes the data.
                Err(_) => {}
            }
        }
    }

    /// Opens those of these tablets that are not open, once the files of former replicas are unused; the others receive
    /// the wanted members. For callers between `Installing::begin` and `end`.
    pub(crate) fn open_closed(&self, mut wanted: Vec<OpenTablet>) -> Result<(), KvError> {
        self.wait_until_gone(&wanted.iter().map(|open| open.tablet).collect::<Vec<_>>())?;
        wanted.retain(|open| {
            let handle = self.handle(open.tablet);
            if let Some(handle) = &handle {
                self.command(handle, Command::Members(open.tablet, open.members.clone()));
            }
            handle.is_none()
        });
        self.open(wanted)
    }

    /// Waits until the files of these tablets' former replicas are unused.
    fn wait_until_gone(&self, tablets: &[TabletId]) -> Result<(), KvError> {
        for tablet in tablets {
            let going = self.going.lock().get(tablet).cloned();
            if going.is_some_and(|files| !wait_until_unused(&files)) {
                return Err(KvError::Storage(format!("somebody still reads the former replica of {tablet}")));
            }
        }
        Ok(())
    }

    /// Opens a replica, empty and with what it must remember, on a working disk.
    pub(crate) fn open_elsewhere(
        &self,
        tablet: TabletId,
        state: &HardState,
        floor: LogPosition,
    ) -> Result<(), KvError> {
        let Some(opening) = self.opening(tablet) else {
            // The tablet has left the node meanwhile; the catalog never does.
            let is_catalog = GroupId::from(tablet) == GroupId::CATALOG;
            let none = || KvError::Storage("the node has not started yet".to_owned());
            return if is_catalog { Err(none()) } else { Ok(()) };
        };
        let mut counts = vec![0; self.disks.len()];
        let disk = &self.disks[self.disks.place(tablet, &mut counts)?];
        let mut batch = LogBatch::default();
        batch.retire(GroupId::from(tablet), state, floor).map_err(storage_error)?;
        disk.log.write(&mut batch, true).map_err(storage_error)?;
        self.open(vec![opening])
    }

    /// Sets a replica aside that could not be opened.
    fn set_unopened_aside(&self, tablet: TabletId, disk: usize, error: &StorageError) {
        let memory = self.disks[disk].log.memory(GroupId::from(tablet));
        let cause = Cause { reason: error.to_string(), is_damage: error.is_damage(), needed: 0 };
        self.asides.note(tablet, disk, cause, memory.ok(), self.context.clock.monotonic_ns());
    }

    /// A tablet is closed: a replica that is set aside is forgotten, and its remaining files are removed.
    pub(crate) fn close_aside(&self, tablet: TabletId) {
        self.context.failures.forget(tablet);
        let Some(aside) = self.asides.lock().remove(&tablet) else { return };
        if self.tablets.load().contains_key(&tablet) {
            return;
        }
        let gone = self
            .disks
            .discard(tablet, aside.disk)
            .and_then(|()| self.disks[aside.disk].directory.forget_aside(tablet.0));
        if let Err(error) = gone {
            tracing::error!(%tablet, %error, "the data of a closed tablet stays until the next start");
        }
    }
}
