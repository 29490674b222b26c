//! Asking for memory ahead of its use.

/// The bytes that come from memory at once, on every processor that this is built for today.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Has the memory of `value` itself, not of what it points to, brought into the processor's caches, without waiting for it. A hint: where there is no
/// such instruction, nothing is done.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..size_of::<T>()).step_by(LINE_BYTES) {
            // SAFETY: every address lies within `value`, and a prefetch reads nothing that the program could see, nor does it fault.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
