//! The explorer: visits every state that can be reached, once, depth first.
//!
//! A state is remembered by a fingerprint of 128 bits. With a million states the probability that two of them share one
//! is below 10⁻²⁶.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Two lanes of 64 bits, multiplied and rotated.
pub struct Fingerprint {
    lanes: [u64; 2],
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self { lanes: [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f] }
    }
}

impl Fingerprint {
    pub fn of(value: &impl Hash) -> u128 {
        let mut hasher = Self::default();
        value.hash(&mut hasher);
        let [one, other] = hasher.lanes.map(|lane| {
            let mixed = (lane ^ (lane >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            mixed ^ (mixed >> 32)
        });
        u128::from(one) << 64 | u128::from(other)
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.lanes[0]
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let [one, other] = self.lanes;
        self.lanes[0] = (one ^ value).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        self.lanes[1] = (other ^ value).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(37);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// Passes a fingerprint on as its own hash.
#[derive(Default)]
pub struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers");
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}

/// The states that have been seen.
pub type Fingerprints = HashSet<u128, BuildHasherDefault<Same>>;

/// A system to explore.
pub trait System {
    type State: Clone + Hash;
    type Move: Clone + std::fmt::Debug;

    /// Everything that may happen next.
    fn moves(&self, state: &Self::State) -> Vec<Self::Move>;
    /// The state after a move; an error if an invariant is broken on the way.
    fn after(&self, state: &Self::State, next: &Self::Move) -> Result<Self::State, String>;
    /// Checks a state that is seen for the first time.
    fn check(&mut self, state: &Self::State) -> Result<(), String>;
}

/// A broken invariant, with the moves that lead to it.
#[derive(Debug)]
pub struct Finding<M> {
    pub broken: String,
    pub schedule: Vec<M>,
}

/// What was visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    pub states: usize,
    pub moves: usize,
    pub deepest: usize,
}

/// Visits all states, at most `limit`.
pub fn explore<S: System>(system: &mut S, start: S::State, limit: usize) -> Result<Explored, Finding<S::Move>> {
    let mut seen = Fingerprints::default();
    let mut explored = Explored { states: 0, moves: 0, deepest: 0 };
    let mut path: Vec<(S::State, Vec<S::Move>)> = Vec::new();
    let mut schedule: Vec<S::Move> = Vec::new();
    let finding = |broken, schedule: &[S::Move]| Finding { broken, schedule: schedule.to_vec() };
    seen.insert(Fingerprint::of(&start));
    system.check(&start).map_err(|broken| finding(broken, &schedule))?;
    let moves = system.moves(&start);
    path.push((start, moves));
    while let Some((state, moves)) = path.last_mut() {
        let Some(next) = moves.pop() else {
            path.pop();
            schedule.pop();
            continue;
        };
        schedule.push(next.clone());
        explored.moves += 1;
        let after = system.after(state, &next).map_err(|broken| finding(broken, &schedule))?;
        if !seen.insert(Fingerprint::of(&after)) {
            schedule.pop();
            continue;
        }
        system.check(&after).map_err(|broken| finding(broken, &schedule))?;
        explored.deepest = explored.deepest.max(schedule.len());
        assert!(seen.len() <= limit, "more than {limit} states: the bounds of this scenario are too wide");
        let moves = system.moves(&after);
        path.push((after, moves));
    }
    explored.states = seen.len();
    Ok(explored)
}
