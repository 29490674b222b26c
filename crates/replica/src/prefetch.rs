//! Asking for memory ahead of its use.

use std::ops::Range;

/// The bytes that come from memory at once, on every processor that this is built for today.
const LINE_BYTES: usize = 64;

/// Has the memory of `value` itself, not of what it points to, brought into the processor's caches, without waiting for it. A hint: where there is no
/// such instruction, nothing is done.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).addr();
    prefetch_range(start..start + size_of::<T>());
}

/// The same for these addresses, whatever is there by now.
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
