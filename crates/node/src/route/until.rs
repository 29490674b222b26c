//! The end of a read from disk: when its client no longer waits, or when the memory for requests is used up.
//!
//! Always true: the clock is read once for some tens of steps, and the account of all requests is touched once for some
//! tens of KiB. Left out: what is read ([`super::read`]).

use diorite_base::Clock;
use diorite_base::account::{Account, Charge, Refused};
use diorite_base::write::{KvError, Waited};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The bytes that a read from disk has copied.
#[derive(Default)]
struct HeldBytes {
    bytes: usize,
    charge: Option<Charge>,
}

/// The end of a read whose client no longer waits.
pub(super) struct Until {
    clock: Arc<dyn Clock>,
    deadline_ns: u64,
    /// When the clock was read first.
    began_ns: Cell<u64>,
    steps: Cell<u32>,
    account: Arc<Account>,
    held: RefCell<HeldBytes>,
}

/// Copies of a read beyond this are charged, in blocks of this size, so that short reads do not touch an account that
/// all threads share.
const HELD_BLOCK_BYTES: usize = 64 << 10;

/// Keys and entries between two clock reads.
const STEPS_PER_LOOK: u32 = 32;

impl Until {
    pub(super) fn new(clock: &Arc<dyn Clock>, deadline_ns: Option<u64>, account: &Arc<Account>) -> Self {
        let deadline_ns = deadline_ns.unwrap_or(u64::MAX);
        let (clock, account) = (Arc::clone(clock), Arc::clone(account));
        Self {
            clock,
            deadline_ns,
            began_ns: Cell::default(),
            steps: Cell::default(),
            account,
            held: RefCell::default(),
        }
    }

    /// Charges bytes that are about to be copied.
    pub(super) fn hold(&self, bytes: usize) -> Result<(), KvError> {
        let mut held = self.held.borrow_mut();
        let HeldBytes { bytes: total, charge } = &mut *held;
        *total = total.saturating_add(bytes);
        let blocks = total.saturating_sub(HELD_BLOCK_BYTES).div_ceil(HELD_BLOCK_BYTES);
        let wanted = blocks.saturating_mul(HELD_BLOCK_BYTES);
        if wanted <= charge.as_ref().map_or(0, Charge::bytes) {
            return Ok(());
        }
        let charged = match charge {
            Some(charge) => charge.resize(wanted),
            None => self.account.charge(wanted).map(|fresh| *charge = Some(fresh)),
        };
        charged.map_err(|refused| match refused {
            Refused::TooLarge { .. } => KvError::TooLarge(refused.to_string()),
            Refused::Full { .. } => KvError::Overloaded("the memory for all requests is used up at the moment"),
        })
    }

    /// The account of all requests.
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The charge for the bytes that were copied, as one for those that are kept.
    pub(super) fn take_charge(&self, kept_bytes: usize) -> Option<Charge> {
        let mut charge = self.held.take().charge;
        if let Some(charge) = &mut charge {
            charge.record(kept_bytes);
        }
        charge
    }

    /// Fails once the deadline has passed.
    pub(super) fn step(&self) -> Result<(), KvError> {
        let steps = self.steps.get();
        self.steps.set(steps.wrapping_add(1));
        // The first step looks too: the read may have waited long for a thread.
        if self.deadline_ns == u64::MAX || !steps.is_multiple_of(STEPS_PER_LOOK) {
            return Ok(());
        }
        let now_ns = self.clock.monotonic_ns();
        if steps == 0 {
            self.began_ns.set(now_ns);
        }
        if now_ns < self.deadline_ns {
            return Ok(());
        }
        Err(KvError::Timeout(Waited::in_vain((now_ns - self.began_ns.get()) / 1_000_000)))
    }
}
