//! The cost of work in steps; tests count them, as times say little on a busy machine.
//!
//! Always true: counting costs nothing outside tests. Left out: limits on work.

/// The number of comparisons to find a value among this many sorted ones.
pub(crate) fn among(values: usize) -> usize {
    1 + values.max(1).ilog2() as usize
}

/// Counts things that were read, compared or copied.
#[inline]
#[cfg_attr(not(test), allow(unused_variables, reason = "only tests count"))]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    counted::TAKEN.set(counted::TAKEN.get() + steps as u64);
}

/// The result of `work`, and its number of steps on this thread.
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
