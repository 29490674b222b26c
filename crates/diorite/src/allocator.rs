//! What the allocator says of itself.

use diorite_admin::api::AllocatorStatus;
use std::ffi::CStr;

/// jemalloc's own account, as of now; none if it does not keep one.
pub(crate) fn status() -> Option<AllocatorStatus> {
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

    #[test]
    fn what_is_allocated_is_seen() {
        let before = status().unwrap();
        let kept: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        let after = status().unwrap();
        assert!(after.allocated >= before.allocated + (60 << 20), "{before:?} {after:?}");
        assert!(after.active >= after.allocated && after.resident > after.metadata);
        drop(kept);
        assert!(status().unwrap().allocated + (60 << 20) <= after.allocated);
    }
}
