//! The rate limit on the bytes that flushes and compactions of a node write together. It can be changed while they run.
//!
//! Always true: there is one limiter for all tablets of a node, from its start on, with or without a limit. Flushes
//! come before compactions.

use rust_librocksdb_sys as ffi;
use rust_rocksdb::{AsRawPtr, Options};
use std::ptr::NonNull;

/// How often bytes are granted, microseconds.
const REFILL_US: i64 = 100_000;
/// One of this many refills gives compactions a share even if flushes could use all of it.
const FAIRNESS: i32 = 10;
/// The rate that stands for no limit: no disk writes as much.
const NO_LIMIT: i64 = 1 << 42;

unsafe extern "C" {
    fn diorite_ratelimiter_set(limiter: *mut ffi::rocksdb_ratelimiter_t, bytes_per_second: i64);
    fn diorite_ratelimiter_get(limiter: *const ffi::rocksdb_ratelimiter_t) -> i64;
}

/// Grants bytes to write.
pub(crate) struct RateLimiter {
    /// A counted reference to the limiter; the options, and the tablets that were opened with them, hold others.
    raw: NonNull<ffi::rocksdb_ratelimiter_t>,
}

// SAFETY: the reference itself is never changed after it was made, and RocksDB's limiter has a lock of its own.
unsafe impl Send for RateLimiter {}
// SAFETY: as above.
unsafe impl Sync for RateLimiter {}

impl RateLimiter {
    /// A limiter with this rate, bytes per second; 0: no limit.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        // SAFETY: no pointer is passed; the returned one is owned here and freed on drop.
        let raw = unsafe { ffi::rocksdb_ratelimiter_create(to_rocksdb(bytes_per_second), REFILL_US, FAIRNESS) };
        Self { raw: NonNull::new(raw).expect("RocksDB aborts without memory") }
    }

    /// Sets the limiter in these options, and so for everything opened with them.
    pub(crate) fn limit(&self, options: &mut Options) {
        // SAFETY: both pointers are valid for the call, in which RocksDB takes a reference of its own.
        unsafe { ffi::rocksdb_options_set_ratelimiter(options.as_raw_ptr(), self.raw.as_ptr()) };
    }

    /// Changes the rate, bytes per second; 0: no limit.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        // SAFETY: the reference is held until this is dropped.
        unsafe { diorite_ratelimiter_set(self.raw.as_ptr(), to_rocksdb(bytes_per_second)) };
    }

    /// The rate, bytes per second; 0: no limit.
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: as for `set`.
        match unsafe { diorite_ratelimiter_get(self.raw.as_ptr()) } {
            NO_LIMIT.. => 0,
            rate => rate.unsigned_abs(),
        }
    }
}

impl Drop for RateLimiter {
    fn drop(&mut self) {
        // SAFETY: this reference was made by `rocksdb_ratelimiter_create` and is given back once.
        unsafe { ffi::rocksdb_ratelimiter_destroy(self.raw.as_ptr()) };
    }
}

fn to_rocksdb(bytes_per_second: u64) -> i64 {
    if bytes_per_second == 0 { NO_LIMIT } else { i64::try_from(bytes_per_second).unwrap_or(NO_LIMIT).min(NO_LIMIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_which_was_set_last() {
        let limiter = RateLimiter::new(30_000_000);
        let mut options = Options::default();
        limiter.limit(&mut options);
        assert_eq!(limiter.get(), 30_000_000);
        limiter.set(100_000_000);
        assert_eq!(limiter.get(), 100_000_000);
        drop(options);
        limiter.set(0);
        assert_eq!(limiter.get(), 0);
        limiter.set(u64::MAX);
        assert_eq!(limiter.get(), 0);
    }
}
