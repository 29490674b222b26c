//! The environment of functions beside their arguments: time, randomness, and the budget of the request.
//!
//! Always true: a statement sees one moment; UUIDs of version 1 never repeat and never go back in time.

use super::document::JsonRow;
use super::moment::timeuuid;
use crate::budget::Budget;
use diorite_base::random::{Random, SplitMix64};
use diorite_model::row::now_seconds;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

/// Makes UUIDs: version 1 ones never repeat and never go back in time, version 4 ones are random.
#[derive(Debug)]
pub struct UuidSource {
    last_ticks: AtomicI64,
    node: [u8; 8],
    random: Mutex<SplitMix64>,
}

impl UuidSource {
    /// A source of its own node number.
    pub fn new(mut random: SplitMix64) -> Self {
        let mut node = random.next_u64().to_be_bytes();
        // Variant 1 in the clock sequence; the multicast bit marks the node number as not being a hardware address.
        node[0] = (node[0] & 0x3F) | 0x80;
        node[2] |= 0x01;
        Self { last_ticks: AtomicI64::new(0), node, random: Mutex::new(random) }
    }

    /// A time-based UUID for this moment.
    pub fn time_based(&self, now_us: i64) -> [u8; 16] {
        let wanted = now_us.saturating_mul(10);
        let mut last = self.last_ticks.load(Ordering::Relaxed);
        loop {
            let next = wanted.max(last + 1);
            match self.last_ticks.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return timeuuid(next, self.node),
                Err(seen) => last = seen,
            }
        }
    }

    /// A random UUID.
    pub fn random(&self) -> [u8; 16] {
        let mut random = self.random.lock();
        let halves = [random.next_u64(), random.next_u64()];
        drop(random);
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&halves[0].to_be_bytes());
        uuid[8..].copy_from_slice(&halves[1].to_be_bytes());
        uuid[6] = (uuid[6] & 0x0F) | 0x40;
        uuid[8] = (uuid[8] & 0x3F) | 0x80;
        uuid
    }
}

/// The environment of functions beside their arguments.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// Wall-clock microseconds since the epoch, one moment for the whole statement.
    pub now_us: i64,
    /// The second that expiries are reckoned from: of the same moment, unless the request gives another.
    pub now_s: u32,
    /// For `now()` and `uuid()`.
    pub uuids: &'a UuidSource,
    /// The budget of the request.
    pub budget: &'a Budget,
    /// The row of an `INSERT JSON`, read once for all of its columns.
    pub json: Option<&'a JsonRow>,
}

impl<'a> Environment<'a> {
    /// An environment at a moment, without a budget, for callers that are bounded in other ways.
    pub fn new(now_us: i64, uuids: &'a UuidSource) -> Self {
        Self { now_us, now_s: now_seconds(now_us), uuids, budget: Budget::unlimited(), json: None }
    }
}
