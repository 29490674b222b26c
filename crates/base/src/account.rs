//! Accounts of memory: the memory that a node lets requests hold, split by connection and by request.
//!
//! ```text
//! Account (node) ◀── Account (connection) ◀── Meter (request) ◀── Held (part of a request)
//!                                         ◀── Charge (buffers)
//! ```
//!
//! Always true: memory is charged before it is allocated; a charge to an account is charged to all its parents too, or
//! to none of them; a [`Charge`], a [`Meter`] or a [`Held`] releases what it has taken when it is dropped, so an
//! account without users is at zero. A refusal says whether a retry can succeed. A meter takes from its account in
//! blocks, so counting a row costs no atomic operation on memory that connections share.
//! Left out: who decides the limits, and memory that is bounded in other ways (block cache, memtables, queues of the store).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thiserror::Error;

/// A meter takes memory from its account in blocks of this size, bytes.
pub const BLOCK_BYTES: usize = 16 << 10;

/// Why memory was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// The request can never fit: it exceeds the limit alone.
    #[error("it takes more memory than the limit of {limit_bytes} bytes for {what}")]
    TooLarge {
        /// What the limit is for.
        what: &'static str,
        /// The limit.
        limit_bytes: usize,
    },
    /// The request does not fit beside what others hold at the moment.
    #[error("the memory for {what} ({limit_bytes} bytes) is used up at the moment")]
    Full {
        /// What the limit is for.
        what: &'static str,
        /// The limit.
        limit_bytes: usize,
    },
}

/// A limit, and the bytes that are charged to it.
#[derive(Debug)]
pub struct Account {
    what: &'static str,
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    parent: Option<Arc<Account>>,
}

impl Account {
    /// An account without a parent; `what` names it in errors.
    pub fn root(what: &'static str, limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self { what, limit_bytes, used_bytes: AtomicUsize::new(0), parent: None })
    }

    /// An account within this one. Its limit is at most this account's.
    pub fn child(self: &Arc<Self>, what: &'static str, limit_bytes: usize) -> Arc<Self> {
        let limit_bytes = limit_bytes.min(self.limit_bytes);
        Arc::new(Self { what, limit_bytes, used_bytes: AtomicUsize::new(0), parent: Some(Arc::clone(self)) })
    }

    /// The bytes charged to the account.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The account's limit.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    fn chain(&self) -> impl Iterator<Item = &Account> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    /// Charges `bytes` to the account and its parents, for a user that holds `held_bytes` already.
    fn add(&self, held_bytes: usize, bytes: usize) -> Result<(), Refused> {
        if held_bytes.saturating_add(bytes) > self.limit_bytes {
            return Err(Refused::TooLarge { what: self.what, limit_bytes: self.limit_bytes });
        }
        for (at, account) in self.chain().enumerate() {
            let (what, limit_bytes) = (account.what, account.limit_bytes);
            let before = account.used_bytes.fetch_add(bytes, Ordering::Relaxed);
            if before.saturating_add(bytes) <= limit_bytes {
                continue;
            }
            self.chain().take(at + 1).for_each(|charged| charged.sub_here(bytes));
            return Err(match held_bytes.saturating_add(bytes) > limit_bytes {
                true => Refused::TooLarge { what, limit_bytes },
                false => Refused::Full { what, limit_bytes },
            });
        }
        Ok(())
    }

    fn add_anyway(&self, bytes: usize) {
        for account in self.chain() {
            account.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn sub(&self, bytes: usize) {
        self.chain().for_each(|account| account.sub_here(bytes));
    }

    fn sub_here(&self, bytes: usize) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more is given back than was taken");
    }

    /// Charges `bytes` until the returned charge is dropped.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, Refused> {
        let mut charge = Charge { account: Arc::clone(self), bytes: 0 };
        charge.resize(bytes)?;
        Ok(charge)
    }
}

/// Bytes that are charged to an account.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks the charge. If growth is refused, nothing changes.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Refused> {
        if bytes > self.bytes {
            self.account.add(self.bytes, bytes - self.bytes)?;
        } else if bytes < self.bytes {
            self.account.sub(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// As [`Self::resize`], for memory that is already allocated: never refused, so that the account stays true.
    pub fn record(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.account.add_anyway(bytes - self.bytes);
        } else if bytes < self.bytes {
            self.account.sub(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.sub(self.bytes);
        }
    }
}

/// The memory of one request, under a limit of its own, or of several small requests together. The account is charged
/// in blocks.
#[derive(Debug)]
pub struct Meter {
    /// Absent: only the meter's own limit counts.
    account: Option<Arc<Account>>,
    /// Whether several requests share the meter: bytes that do not fit beside the others may fit later.
    is_shared: bool,
    limit_bytes: usize,
    /// The bytes that the requests hold.
    used_bytes: AtomicUsize,
    /// The bytes charged to the account: `used_bytes`, or up to two blocks more.
    charged_bytes: AtomicUsize,
}

/// Names a meter's own limit in errors.
const ONE_REQUEST: &str = "one request";

impl Meter {
    /// A meter for one request, which charges `account`.
    pub fn new(account: &Arc<Account>, limit_bytes: usize) -> Self {
        let limit_bytes = limit_bytes.min(account.limit_bytes);
        let account = Some(Arc::clone(account));
        Self { account, is_shared: false, limit_bytes, used_bytes: 0.into(), charged_bytes: 0.into() }
    }

    /// A meter for several requests, which charge `account`; there is no other limit.
    pub fn shared(account: &Arc<Account>) -> Self {
        // One below `usize::MAX`, with which nothing would be counted.
        let mut meter = Self::new(account, 0);
        (meter.is_shared, meter.limit_bytes) = (true, usize::MAX - 1);
        meter
    }

    /// A meter for a request that charges no account. With `usize::MAX` nothing is counted, so many requests may share
    /// the meter.
    pub const fn alone(limit_bytes: usize) -> Self {
        Self {
            account: None,
            is_shared: false,
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            charged_bytes: AtomicUsize::new(0),
        }
    }

    /// The bytes that the request holds.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The most that it may hold.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Takes `bytes`, until [`Meter::give`] or the end of the request.
    #[inline]
    pub fn take(&self, bytes: usize) -> Result<(), Refused> {
        if self.limit_bytes == usize::MAX {
            return Ok(());
        }
        if bytes > self.limit_bytes {
            return Err(self.too_large());
        }
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let charged = self.charged_bytes.load(Ordering::Relaxed);
        if used <= self.limit_bytes && (used <= charged || self.account.is_none()) {
            return Ok(());
        }
        let grown = self.grow(used, charged);
        if grown.is_err() {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        grown
    }

    fn too_large(&self) -> Refused {
        Refused::TooLarge { what: ONE_REQUEST, limit_bytes: self.limit_bytes }
    }

    #[cold]
    fn grow(&self, used: usize, charged: usize) -> Result<(), Refused> {
        if used > self.limit_bytes {
            return Err(self.too_large());
        }
        let Some(account) = &self.account else { return Ok(()) };
        // Charges a block more than is needed, if the limits allow it: limits need not be multiples of a block.
        let wanted = used.next_multiple_of(BLOCK_BYTES);
        let held = if self.is_shared { 0 } else { charged };
        let added = match account.add(held, wanted - charged) {
            Ok(()) => wanted - charged,
            Err(_) => {
                account.add(held, used - charged)?;
                used - charged
            }
        };
        self.charged_bytes.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    /// Releases part of the charge.
    #[inline]
    pub fn give(&self, bytes: usize) {
        if self.limit_bytes == usize::MAX {
            return;
        }
        let used = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let charged = self.charged_bytes.load(Ordering::Relaxed);
        // A shared meter outlives its requests: once they hold nothing, nothing stays charged.
        if charged - used.min(charged) > 2 * BLOCK_BYTES || (self.is_shared && used == 0) {
            self.shrink(used, charged);
        }
    }

    #[cold]
    fn shrink(&self, used: usize, charged: usize) {
        let Some(account) = &self.account else { return };
        let kept = used.next_multiple_of(BLOCK_BYTES);
        // If another thread has changed the count meanwhile, a later call corrects it, at the latest the end of the
        // request.
        let exchanged = self.charged_bytes.compare_exchange(charged, kept, Ordering::Relaxed, Ordering::Relaxed);
        if exchanged.is_ok() {
            account.sub(charged - kept);
        }
    }

    /// Takes `bytes` until the returned part is dropped.
    pub fn hold(&self, bytes: usize) -> Result<Held<'_>, Refused> {
        self.take(bytes)?;
        Ok(Held { meter: self, bytes })
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let charged = *self.charged_bytes.get_mut();
        if let Some(account) = self.account.as_ref().filter(|_| charged > 0) {
            account.sub(charged);
        }
    }
}

/// A part of the memory that a request holds.
#[derive(Debug)]
pub struct Held<'m> {
    meter: &'m Meter,
    bytes: usize,
}

impl Held<'_> {
    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Refused> {
        self.meter.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.meter.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use proptest::prelude::*;

    fn accounts() -> (Arc<Account>, Arc<Account>) {
        let node = Account::root("all requests", 1_000_000);
        let connection = node.child("one connection", 500_000);
        (node, connection)
    }

    #[test]
    fn a_charge_reaches_all_parents_and_ends_with_its_owner() {
        let (node, connection) = accounts();
        let mut charge = connection.charge(300_000).unwrap();
        assert_eq!((node.used_bytes(), connection.used_bytes()), (300_000, 300_000));
        charge.resize(100_000).unwrap();
        assert_eq!((node.used_bytes(), connection.used_bytes()), (100_000, 100_000));
        charge.record(600_000);
        assert_eq!(connection.used_bytes(), 600_000, "memory in use counts, even beyond the limit");
        drop(charge);
        assert_eq!((node.used_bytes(), connection.used_bytes()), (0, 0));
    }

    #[test]
    fn a_refusal_says_whether_it_can_ever_fit_and_changes_nothing() {
        let (node, connection) = accounts();
        let other = node.child("one connection", 900_000);
        let _held = other.charge(800_000).unwrap();
        let too_large = connection.charge(500_001).unwrap_err();
        assert_eq!(too_large, Refused::TooLarge { what: "one connection", limit_bytes: 500_000 });
        let full = connection.charge(400_000).unwrap_err();
        assert_eq!(full, Refused::Full { what: "all requests", limit_bytes: 1_000_000 });
        assert_eq!((node.used_bytes(), connection.used_bytes()), (800_000, 0));
        let mut charge = connection.charge(100_000).unwrap();
        assert!(charge.resize(300_000).is_err());
        assert_eq!((charge.bytes(), connection.used_bytes()), (100_000, 100_000));
        assert_eq!(node.child("a part", 9_000_000).limit_bytes(), 1_000_000);
    }

    #[test]
    fn a_request_takes_blocks_and_has_a_limit_of_its_own() {
        let (node, connection) = accounts();
        let meter = Meter::new(&connection, 200_000);
        meter.take(1).unwrap();
        assert_eq!(node.used_bytes(), BLOCK_BYTES);
        for _ in 0..BLOCK_BYTES - 1 {
            meter.take(1).unwrap();
        }
        assert_eq!((meter.used_bytes(), node.used_bytes()), (BLOCK_BYTES, BLOCK_BYTES));
        let refused = meter.take(200_000).unwrap_err();
        assert_eq!(refused, Refused::TooLarge { what: "one request", limit_bytes: 200_000 });
        // The last block is smaller, as the limit is no multiple of a block.
        meter.take(200_000 - BLOCK_BYTES).unwrap();
        meter.give(200_000);
        assert_eq!((meter.used_bytes(), node.used_bytes()), (0, 0));
        drop(meter);
        let others = connection.charge(400_000).unwrap();
        let meter = Meter::new(&connection, 200_000);
        let refused = meter.take(150_000).unwrap_err();
        assert_eq!(refused, Refused::Full { what: "one connection", limit_bytes: 500_000 });
        meter.take(100_000).unwrap();
        drop((others, meter));
        assert_eq!((node.used_bytes(), connection.used_bytes()), (0, 0));
    }

    #[test]
    fn a_meter_of_several_requests_has_no_limit_but_that_of_the_account() {
        let (node, connection) = accounts();
        let meter = Meter::shared(&connection);
        meter.take(400_000).unwrap();
        let refused = meter.take(200_000).unwrap_err();
        assert_eq!(refused, Refused::Full { what: "one connection", limit_bytes: 500_000 });
        let refused = meter.take(600_000).unwrap_err();
        assert_eq!(refused, Refused::TooLarge { what: "one connection", limit_bytes: 500_000 });
        meter.give(400_000);
        assert_eq!((meter.used_bytes(), node.used_bytes()), (0, 0));
        meter.take(100).unwrap();
        assert_eq!(node.used_bytes(), BLOCK_BYTES);
        meter.give(100);
        assert_eq!(node.used_bytes(), 0, "the meter lives on, and holds nothing");
    }

    #[test]
    fn a_meter_alone_has_only_its_limit() {
        let meter = Meter::alone(100);
        meter.take(100).unwrap();
        assert!(meter.take(1).is_err() && meter.take(usize::MAX).is_err());
        meter.give(100);
        assert_eq!(meter.used_bytes(), 0);
    }

    proptest! {
        #[test]
        fn accounts_never_exceed_their_limits_and_end_at_zero(steps in proptest::collection::vec((0usize..6, 0usize..120_000, any::<bool>()), 0..60)) {
            let (node, connection) = accounts();
            let meters: Vec<Meter> = (0..6).map(|_| Meter::new(&connection, 150_000)).collect();
            let mut taken = [0usize; 6];
            for (at, bytes, takes) in steps {
                if takes {
                    if meters[at].take(bytes).is_ok() {
                        taken[at] += bytes;
                    }
                } else {
                    let given = bytes.min(taken[at]);
                    meters[at].give(given);
                    taken[at] -= given;
                }
                let sum: usize = taken.iter().sum();
                prop_assert!(sum <= connection.used_bytes() && connection.used_bytes() <= connection.limit_bytes());
                prop_assert!(connection.used_bytes() <= sum + 6 * 3 * BLOCK_BYTES);
                prop_assert_eq!(connection.used_bytes(), node.used_bytes());
            }
            drop(meters);
            prop_assert_eq!(node.used_bytes(), 0);
        }
    }
}
