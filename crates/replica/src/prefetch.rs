//! Prefetches memory.

use std::ops::Range;

/// The size of a cache line on all supported processors.
const LINE_BYTES: usize = 64;

/// Prefetches the memory of `value` itself, not what it points to, without waiting. A hint: without such an
/// instruction, nothing is done.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).addr();
    prefetch_range(start..start + size_of::<T>());
}

/// Prefetches these addresses, whatever they hold by now.
#[inline]
pub(crate) fn prefetch_range(addresses: Range<usize>) {
    for address in addresses.step_by(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing that the program could see, and it does not fault, wherever it points.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}
