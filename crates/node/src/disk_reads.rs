//! Reads that wait for a disk, on a bounded number of threads for each disk.
//!
//! A thread carries out one read at a time, so a disk has as many threads as the number of concurrent reads that it
//! serves best. Starting reads wakes one thread; each thread that finds more reads waiting wakes the next one. While
//! all threads are busy, none needs to be woken: each takes the next read by itself. A thread that was woken and does
//! not run yet counts: where processors are scarce, busy threads take the reads before it runs, and a thread for each
//! read would be woken in vain.
//!
//! Always true: reads of a disk begin in the order in which they came; at most [`MAX_WAITING`] of them wait; a read
//! whose client no longer waits is not begun; a disk that does not respond delays the reads of no other disk. Left out:
//! the limits on reads of one client or one node (`route`, `connection`), and the end of a read (`route::read::Until`).

use crate::error::StartError;
use diorite_base::write::KvError;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

/// Reads that may wait for a thread. Requests are bounded where they are admitted; the last of more reads than this
/// would wait for seconds.
const MAX_WAITING: usize = 64 << 10;
/// Threads that are woken at a time. Each wakes the next one before it reads.
const MAX_WAKING: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// The threads of all disks, and their queues.
pub(crate) struct DiskReads {
    disks: Vec<Disk>,
}

/// The threads of one disk.
struct Disk {
    shared: Arc<Shared>,
    threads: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    done: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Threads that wait for work, with those that were woken and do not run yet.
    idle: usize,
    /// Threads that were woken and do not run yet.
    waking: usize,
    /// The threads are to end, as the disk is dropped.
    is_closed: bool,
}

/// The state of the threads for reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskReadState {
    /// Threads, busy and idle.
    pub(crate) threads: usize,
    /// Reads that are being carried out.
    pub(crate) running: usize,
    /// Reads that wait for a thread.
    pub(crate) waiting: usize,
    /// Reads carried out since start.
    pub(crate) done: u64,
}

impl DiskReads {
    /// Starts this many threads for each disk.
    pub(crate) fn new(disks: usize, threads: usize) -> Result<Self, StartError> {
        let disks = (0..disks.max(1)).map(|disk| Disk::start(disk, threads.max(1)));
        Ok(Self { disks: disks.collect::<Result<_, _>>()? })
    }

    /// Begins a read of a disk as soon as one of its threads is free; refused if too many wait. A panic of the read is
    /// reported and does not end the thread.
    pub(crate) fn begin(&self, disk: usize, read: impl FnOnce() + Send + 'static) -> Result<(), KvError> {
        // The number of disks never changes while a node runs.
        let Some(disk) = self.disks.get(disk) else { return Err(KvError::Storage(format!("there is no disk {disk}"))) };
        let mut queue = disk.shared.queue.lock();
        if queue.waiting.len() >= MAX_WAITING {
            return Err(KvError::Overloaded("too many reads wait for the disk"));
        }
        queue.waiting.push_back(Box::new(read));
        let wakes = queue.wakes_another();
        drop(queue);
        if wakes {
            disk.shared.arrived.notify_one();
        }
        Ok(())
    }

    /// Reads, and waits for the result. A read that is dropped before a thread takes it is not carried out.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        disk: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, KvError> {
        let (answer, answered) = oneshot::channel();
        let begun = self.begin(disk, move || {
            if !answer.is_closed() {
                // The receiver may be gone.
                drop(answer.send(read()));
            }
        });
        begun?;
        let ended = "a read did not end: the node is shutting down or the read panicked";
        answered.await.map_err(|_| KvError::Storage(ended.to_owned()))
    }

    /// The state of the threads of all disks.
    pub(crate) fn state(&self) -> DiskReadState {
        let mut state = DiskReadState::default();
        for disk in &self.disks {
            let queue = disk.shared.queue.lock();
            state.threads += disk.threads;
            state.running += disk.threads - queue.idle;
            state.waiting += queue.waiting.len();
            state.done += disk.shared.done.load(Ordering::Relaxed);
        }
        state
    }
}

impl Disk {
    #[allow(
        clippy::disallowed_methods,
        reason = "each ends after its read once the disk is dropped; a read may drop the disk, so nobody joins the threads"
    )]
    fn start(disk: usize, threads: usize) -> Result<Self, StartError> {
        let started = Self { shared: Arc::default(), threads };
        for number in 0..threads {
            let shared = Arc::clone(&started.shared);
            std::thread::Builder::new()
                .name(format!("read-{disk}-{number}"))
                .spawn(move || shared.work())
                .map_err(|error| StartError::System("cannot start threads for reads from disk", error))?;
        }
        Ok(started)
    }
}

impl Drop for Disk {
    /// Threads finish the reads that have begun; waiting reads are dropped.
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
        self.shared.arrived.notify_all();
    }
}

impl Queue {
    /// Whether to wake a thread, which then counts as woken. Not if one was woken for each read, or if so many were
    /// that these wake the others.
    fn wakes_another(&mut self) -> bool {
        let wakes = self.waking < MAX_WAKING.min(self.idle).min(self.waiting.len());
        self.waking += usize::from(wakes);
        wakes
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_closed {
            let Some(job) = queue.waiting.pop_front() else {
                queue.idle += 1;
                self.arrived.wait(&mut queue);
                queue.idle -= 1;
                // When the disk is dropped, threads are woken without being counted.
                queue.waking = queue.waking.saturating_sub(1);
                continue;
            };
            let wakes = queue.wakes_another();
            drop(queue);
            if wakes {
                self.arrived.notify_one();
            }
            // The job owns its state, and releases it when it is dropped.
            drop(catch_unwind(AssertUnwindSafe(job)));
            self.done.fetch_add(1, Ordering::Relaxed);
            queue = self.queue.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::sync_channel;

    /// Occupies all threads of a disk; they continue when the result is dropped.
    fn occupy(reads: &DiskReads, disk: usize) -> std::sync::mpsc::SyncSender<()> {
        let threads = reads.disks[disk].threads;
        let (release, released) = sync_channel::<()>(0);
        let (released, begun) = (Arc::new(Mutex::new(released)), Arc::new(Barrier::new(threads + 1)));
        for _ in 0..threads {
            let (released, begun) = (Arc::clone(&released), Arc::clone(&begun));
            let occupation = move || {
                begun.wait();
                let _ = released.lock().recv();
            };
            reads.begin(disk, occupation).unwrap();
        }
        begun.wait();
        release
    }

    #[tokio::test]
    async fn as_many_reads_run_as_there_are_threads_and_the_others_in_order_after_them() {
        let reads = DiskReads::new(1, 4).unwrap();
        let release = occupy(&reads, 0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..100)
            .map(|number| {
                let order = Arc::clone(&order);
                let (done, is_done) = oneshot::channel();
                let note = move || {
                    order.lock().push(number);
                    done.send(()).unwrap();
                };
                reads.begin(0, note).unwrap();
                is_done
            })
            .collect();
        assert_eq!(reads.state(), DiskReadState { threads: 4, running: 4, waiting: 100, done: 0 });
        assert!(order.lock().is_empty());
        drop(release);
        for done in waiting {
            done.await.unwrap();
        }
        // Four at a time: at most three are overtaken by one that was noted. A thread that waits for a processor may be
        // overtaken by any number.
        let order = order.lock();
        assert!(order.iter().enumerate().all(|(at, number)| *number <= at + 3), "{order:?}");
    }

    #[test]
    fn a_thread_is_woken_for_a_read_that_no_other_one_is_woken_for() {
        let mut queue = Queue { idle: 4, ..Queue::default() };
        assert!(!queue.wakes_another(), "nothing waits");
        queue.waiting.push_back(Box::new(|| ()));
        assert!(queue.wakes_another());
        assert!(!queue.wakes_another(), "one is woken for it");
        queue.waiting.extend((0..3).map(|_| Box::new(|| ()) as Job));
        assert!(queue.wakes_another());
        assert!(!queue.wakes_another(), "these two wake the next ones");
        // One of them runs, and takes a read.
        (queue.idle, queue.waking) = (3, 1);
        drop(queue.waiting.pop_front());
        assert!(queue.wakes_another());
        (queue.idle, queue.waking) = (1, 1);
        assert!(!queue.wakes_another(), "all others are busy");
    }

    #[test]
    fn all_threads_read_if_as_many_reads_come_together() {
        let reads = DiskReads::new(1, 16).unwrap();
        for _ in 0..20 {
            // Returns when all 16 run at the same time.
            drop(occupy(&reads, 0));
        }
    }

    #[tokio::test]
    async fn a_read_that_nobody_waits_for_is_not_begun_and_a_panic_is_the_callers_alone() {
        let reads = DiskReads::new(1, 1).unwrap();
        let release = occupy(&reads, 0);
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let mut unwanted = Box::pin(reads.read(0, move || count.fetch_add(1, Ordering::SeqCst)));
        assert!(futures::poll!(unwanted.as_mut()).is_pending());
        drop(unwanted);
        drop(release);
        assert!(matches!(reads.read(0, || panic!("on purpose")).await, Err::<(), _>(KvError::Storage(_))));
        assert_eq!(reads.read(0, || 7).await, Ok(7));
        assert_eq!(begun.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let reads = DiskReads::new(1, 1).unwrap();
        let release = occupy(&reads, 0);
        (0..MAX_WAITING).for_each(|_| reads.begin(0, || ()).unwrap());
        assert!(matches!(reads.begin(0, || ()), Err(KvError::Overloaded(_))));
        drop(release);
    }

    #[tokio::test]
    async fn what_waits_when_the_node_ends_is_told_so() {
        let reads = DiskReads::new(1, 1).unwrap();
        let release = occupy(&reads, 0);
        let (answer, answered) = oneshot::channel::<()>();
        reads.begin(0, move || answer.send(()).unwrap()).unwrap();
        drop(reads);
        assert!(answered.await.is_err());
        drop(release);
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_holds_up_no_other() {
        let reads = DiskReads::new(2, 1).unwrap();
        let release = occupy(&reads, 0);
        assert_eq!(reads.read(1, || 7).await, Ok(7));
        assert!(matches!(reads.begin(2, || ()), Err(KvError::Storage(_))));
        drop(release);
    }
}
