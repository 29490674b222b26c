//! Threads that make way: whoever answers requests gets the processor before them.
//!
//! Copies, flushes, compactions and reads of the log for members that lag take the processor for milliseconds at a time. The kernel lets who has it go on until
//! a time slice is over, as a rule, and a request that comes meanwhile waits for that. A thread that makes way asks for long slices: a thread that
//! wakes and asks for shorter ones, as all others do, takes the processor from it at once (Linux 6.12 and later). It is also of the policy
//! `SCHED_BATCH`: when it wakes it never takes the processor from another (`sched(7)`).
//!
//! Always true: it gives up precedence, not its share. Where processors are always wanted it gets as much of them as any other thread, so that compactions, which writes
//! would have to wait for in the end, and copies, which safety waits for, go on at their rate.

use std::cell::Cell;
use std::io;

/// The slices asked for, nanoseconds: several times those that the kernel gives by itself, 0.7 to 2.8 ms.
const SLICE_NS: u64 = 10_000_000;

thread_local! {
    static MAKES_WAY: Cell<bool> = const { Cell::new(false) };
}

/// `struct sched_attr` of `sched_setattr(2)`, in its first version.
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// From now on the calling thread makes way for others. Where that cannot be had, it works as it did.
pub fn make_way() {
    if MAKES_WAY.replace(true) {
        return;
    }
    if let Err(error) = set_batch() {
        tracing::debug!(%error, "a background thread keeps its precedence");
    }
}

fn set_batch() -> io::Result<()> {
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_BATCH as u32,
        flags: 0,
        // As the whole process was started.
        nice: rustix::process::getpriority_process(None)?,
        priority: 0,
        runtime_ns: SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the call reads as many bytes as `size` says from a structure of that size and of the layout that the kernel's interface gives, and keeps nothing of it; thread 0
    // is the caller.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_makes_way_and_no_other() {
        // SAFETY: takes and returns numbers.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                make_way();
                make_way();
                assert_eq!(policy(), libc::SCHED_BATCH);
            });
        });
        assert_eq!(policy(), libc::SCHED_OTHER);
    }
}
