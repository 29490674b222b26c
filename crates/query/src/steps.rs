//! How much work is done, in steps; tests count them, as seconds say little on a busy machine.
//!
//! Always true: counting costs nothing outside tests. Left out: limits on work, which are others' business.

/// How often a value is compared to find it among so many in order.
pub(crate) fn among(values: usize) -> usize {
    1 + values.max(1).ilog2() as usize
}

/// So many things were looked at, compared or copied.
#[inline]
#[cfg_attr(not(test), allow(unused_variables, reason = "only tests count"))]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    counted::TAKEN.set(counted::TAKEN.get() + steps as u64);
}

/// What `work` gives, and how many steps it took on this thread.
#[cfg(test)]
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = counted::TAKEN.get();
    let given = work();
    (given, counted::TAKEN.get() - before)
}

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        pub(super) static TAKEN: Cell<u64> = const { Cell::new(0) };
    }
}
