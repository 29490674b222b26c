//! The quiet schedule: from a state on nothing fails, and everybody does what is due. It has to end with no lock, no
//! record and no client that waits.
//!
//! The schedule is deterministic, so a state from which it has been seen to end need not be followed again.

use super::client::ReaderStage;
use super::explore::{Fingerprint, Fingerprints};
use super::moves::JUMP_NS;
use super::snapshots::SnapshotStage;
use super::world::{Budget, World};
use std::rc::Rc;

/// More moves than any of the scenarios needs.
const MOST_MOVES: usize = 1_000;
/// Jumps of time: one ends all waits and reservations, and one more than each attempt of a client needs.
const MOST_ROUNDS: usize = 12;

/// The states from which the quiet schedule is known to end.
pub struct Quiet {
    known: Fingerprints,
    /// Time passes when nothing else can happen. Without faults it need not: whoever waits for a timeout then waits for
    /// another who waits.
    has_timeouts: bool,
}

impl Quiet {
    pub fn new(has_timeouts: bool) -> Self {
        Self { known: Fingerprints::default(), has_timeouts }
    }

    /// Follows the quiet schedule from here.
    pub fn ends(&mut self, from: &World) -> Result<(), String> {
        let mut world = from.clone();
        world.budget = Budget { faults: 0, leader_changes: 0, sweeps: 0, jumps: 0 };
        let mut followed = Vec::new();
        let mut rounds = 0;
        for _ in 0..MOST_MOVES {
            if world.is_at_rest() {
                world.check_end().map_err(|broken| format!("after a quiet schedule: {broken}"))?;
                self.known.extend(followed);
                return Ok(());
            }
            if !world.quiet_move()? {
                rounds += 1;
                if rounds > MOST_ROUNDS {
                    break;
                }
                world.quiet_round(self.has_timeouts)?;
                continue;
            }
            let fingerprint = Fingerprint::of(&world);
            if self.known.contains(&fingerprint) {
                self.known.extend(followed);
                return Ok(());
            }
            followed.push(fingerprint);
        }
        Err(format!("a quiet schedule does not end: {}", world.leftovers()))
    }
}

impl World {
    fn is_at_rest(&self) -> bool {
        let is_waiting = self.clients.iter().any(|client| client.coordinator.is_some());
        self.network.is_empty() && !is_waiting && self.tablets.iter().all(|tablet| tablet.is_quiet())
    }

    /// The next thing that is due at once, if there is one.
    fn quiet_move(&mut self) -> Result<bool, String> {
        if let Some(at) = self.tablets.iter().position(|tablet| !tablet.log.is_empty()) {
            self.apply_next(at)?;
            return Ok(true);
        }
        if !self.network.is_empty() {
            let message = Rc::clone(&self.network.remove(0).message);
            self.deliver(&message)?;
            return Ok(true);
        }
        for client in 0..self.clients.len() {
            if let Some(at) = self.clients[client].outstanding.iter().position(|waits| waits.is_lost) {
                self.time_out(client, at)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Time may pass, and leaders sweep.
    fn quiet_round(&mut self, time_passes: bool) -> Result<(), String> {
        self.now_ns += if time_passes { JUMP_NS } else { 0 };
        for reader in &mut self.readers {
            reader.stage = ReaderStage::Ended;
        }
        for reader in &mut self.snapshots {
            reader.stage = SnapshotStage::Ended;
        }
        (0..self.tablets.len()).try_for_each(|at| self.sweep(at))
    }

    fn leftovers(&self) -> String {
        let of = |tablet: &super::tablet::Tablet| {
            let prepared: Vec<_> = tablet.records.all_prepared().map(|(id, _)| id.to_string()).collect();
            let outcomes: Vec<_> = tablet.records.outcomes().map(|(id, _)| id.to_string()).collect();
            let waiting = tablet.leader.locks().waiting();
            format!("{}: prepared {prepared:?}, outcomes {outcomes:?}, {waiting} waiting", tablet.id)
        };
        let clients = self.clients.iter().filter(|client| client.coordinator.is_some()).count();
        let tablets: Vec<String> = self.tablets.iter().map(|tablet| of(tablet)).collect();
        format!("{tablets:?}, {clients} clients")
    }
}
