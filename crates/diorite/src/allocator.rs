//! What the allocator says of itself, and what it is told.

use diorite_admin::api::AllocatorStatus;
use diorite_node::Allocator;
use std::ffi::CStr;

/// What the node asks of it.
pub(crate) const ALLOCATOR: Allocator = Allocator { status, purge };

/// jemalloc's own account, as of now; none if it does not keep one.
fn status() -> Option<AllocatorStatus> {
    // The numbers are those of the last epoch: begin a new one.
    advance()?;
    Some(AllocatorStatus {
        allocated: read(c"stats.allocated")?,
        active: read(c"stats.active")?,
        metadata: read(c"stats.metadata")?,
        resident: read(c"stats.resident")?,
        retained: read(c"stats.retained")?,
    })
}

/// Gives the pages that are not used back to the system.
fn purge() {
    // Of all arenas: 4096 is `MALLCTL_ARENAS_ALL`.
    // SAFETY: this name takes and gives nothing.
    let _ = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"arena.4096.purge".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        )
    };
}

fn read(name: &CStr) -> Option<u64> {
    let mut value = 0usize;
    let mut length = size_of::<usize>();
    // SAFETY: these names give a `size_t`, which is written to `value`; its size is told, and checked after the call; nothing is set.
    let failed = unsafe {
        tikv_jemalloc_sys::mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    (failed == 0 && length == size_of::<usize>()).then_some(value as u64)
}

fn advance() -> Option<()> {
    let mut epoch = 1u64;
    // SAFETY: `epoch` takes a `u64`, which lives through the call; nothing is read.
    let failed = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"epoch".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw mut epoch).cast(),
            size_of::<u64>(),
        )
    };
    (failed == 0).then_some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "jemalloc is compiled with statistics")]

    use super::*;

    // One test, as both look at the whole process.
    #[test]
    fn what_is_allocated_is_seen_and_what_is_freed_is_given_back_when_asked_for() {
        let before = status().unwrap();
        let kept: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        let after = status().unwrap();
        assert!(after.allocated >= before.allocated + (60 << 20), "{before:?} {after:?}");
        assert!(after.active >= after.allocated && after.resident > after.metadata);
        drop(kept);
        assert!(status().unwrap().allocated + (60 << 20) <= after.allocated);
        purge();
        let purged = status().unwrap();
        assert!(purged.resident < purged.active + (32 << 20), "{purged:?}");
    }
}
