//! The memory of a connection's buffers, and its charge.
//!
//! Always true: an allowance for every connection is not charged (the number of connections bounds it), so that short
//! requests do not touch an account that connections share. Growth beyond the allowance is charged before the buffer
//! grows. Left out: the memory of requests that run as futures (`diorite_query::budget`).

use diorite_base::account::{Account, Charge, Refused};
use std::sync::Arc;

/// The bytes that every connection may use without a charge.
pub(crate) const ALLOWANCE_BYTES: usize = 16 << 10;

/// The buffers of one connection.
pub(crate) struct Buffers {
    account: Arc<Account>,
    /// Absent while the buffers are within the allowance.
    charge: Option<Charge>,
}

impl Buffers {
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self { account: Arc::clone(account), charge: None }
    }

    /// Charges the buffers for this size before they grow to it. If the charge is refused, they must not grow.
    #[inline]
    pub(crate) fn admit(&mut self, capacity_bytes: usize) -> Result<(), Refused> {
        let wanted = capacity_bytes.saturating_sub(ALLOWANCE_BYTES);
        match &mut self.charge {
            None if wanted == 0 => Ok(()),
            Some(charge) if charge.bytes() >= wanted => Ok(()),
            Some(charge) => charge.resize(wanted),
            None => {
                self.charge = Some(self.account.charge(wanted)?);
                Ok(())
            }
        }
    }

    /// Sets the charge to the size that the buffers have, even beyond the limit.
    #[inline]
    pub(crate) fn record(&mut self, capacity_bytes: usize) {
        let wanted = capacity_bytes.saturating_sub(ALLOWANCE_BYTES);
        match &mut self.charge {
            Some(_) if wanted == 0 => self.charge = None,
            Some(charge) if charge.bytes() == wanted => {}
            Some(charge) => charge.record(wanted),
            None if wanted == 0 => {}
            None => {
                self.charge = self.account.charge(0).ok().map(|mut charge| {
                    charge.record(wanted);
                    charge
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn what_all_connections_have_is_not_charged_and_the_rest_is_before_it_is_there() {
        let account = Account::root("all requests", 100_000);
        let mut buffers = Buffers::new(&account);
        buffers.admit(ALLOWANCE_BYTES).unwrap();
        buffers.record(ALLOWANCE_BYTES);
        assert_eq!(account.used_bytes(), 0);
        buffers.admit(ALLOWANCE_BYTES + 70_000).unwrap();
        assert!(buffers.admit(ALLOWANCE_BYTES + 170_000).is_err());
        assert_eq!(account.used_bytes(), 70_000);
        buffers.record(ALLOWANCE_BYTES + 30_000);
        assert_eq!(account.used_bytes(), 30_000);
        buffers.record(10);
        assert_eq!(account.used_bytes(), 0);
        buffers.record(ALLOWANCE_BYTES + 200_000);
        assert_eq!(account.used_bytes(), 200_000, "memory in use counts, even beyond the limit");
        drop(buffers);
        assert_eq!(account.used_bytes(), 0);
    }
}
