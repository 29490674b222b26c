//! Clusters of real processes under faults: what clients saw is recorded and judged afterwards.
//!
//! Always true: only correctness is asserted, never speed; a cluster that does not recover within minutes fails all the same. Two tests
//! of this binary run at a time, as each has several processes; what the failover test prints is a measurement only if it runs alone. Left out:
//! slow clocks, which processes cannot be given simply, and what only a single thread can repeat exactly; both are the simulation's.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a test drives other processes and waits for them")]

#[path = "../common/client.rs"]
#[allow(dead_code, reason = "shared; each test binary uses a part")]
mod client;
mod cluster;
#[path = "../common/disks.rs"]
#[allow(dead_code, reason = "shared; each test binary uses a part")]
mod disks;
mod failover;
mod faults;
mod follower_reads;
mod hang;
mod in_part;
mod load;
mod long;
mod network;
mod power;
mod rows;
mod schema;
#[path = "../common/server.rs"]
#[allow(dead_code, reason = "shared; each test binary uses a part")]
mod server;
mod session;
mod stale;
mod upgrade;

use diorite_base::random::{Random, SplitMix64};
use std::sync::{Condvar, Mutex, PoisonError};

/// Clusters at a time. Most of the time a test waits: for an election, a time-out, a pause to end.
const CLUSTERS: usize = 2;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A test that runs; the next one may begin when it ends.
struct Turn;

/// Waits until few enough tests run.
fn turn() -> Turn {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = ENDED.wait_while(running, |running| *running >= CLUSTERS).unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    Turn
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// The seed of this run, printed so that it can be repeated.
fn seed() -> u64 {
    let given = std::env::var("DIORITE_SEED").ok().map(|text| text.parse().expect("DIORITE_SEED is a number"));
    let seed = given.unwrap_or_else(|| SplitMix64::from_entropy().next_u64());
    println!("seed {seed} (DIORITE_SEED repeats it)");
    seed
}
