//! Work that takes more than a moment, on threads of its own: computing for statements, encoding of large answers, and hashing of passwords.
//!
//! Always true: it is done by a fixed number of threads at lower priority than those that serve clients, so that whoever is served gets the processor first;
//! only so much is begun at a time, and the rest waits without a thread; who waits for a password is one of a bounded number. Left out: reads from disk, which
//! wait rather than compute, and what ends work that takes too long (`diorite_query::budget`).

use crate::error::StartError;
use crate::machine::lower_priority;
use diorite_base::write::KvError;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, oneshot};

/// Passwords that may wait to be hashed or checked: a second's worth for each thread, and more.
const MAX_WAITING: usize = 64;

/// The threads, and who may use them at the moment.
#[derive(Debug)]
pub(crate) struct Aside {
    /// As many threads as there are permits, and one for what nobody waits for, so that work that may begin finds a thread.
    pool: ThreadPool,
    computing: Semaphore,
    hashing: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// One that waits for a password, or has its turn.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Aside {
    /// For a node that serves with so many threads: as many may compute beside them, half as many hash.
    pub(crate) fn new(threads: usize) -> Result<Self, StartError> {
        let (computing, hashing) = (threads.max(1), (threads / 2).max(1));
        let pool = ThreadPoolBuilder::new()
            .num_threads(computing + hashing + 1)
            .thread_name(|number| format!("aside-{number}"))
            .start_handler(|_| lower_priority())
            // Whoever waits for the outcome learns of it.
            .panic_handler(|_| {})
            .build()
            .map_err(|error| StartError::System("cannot start threads for long work", std::io::Error::other(error)))?;
        let (computing, hashing) = (Semaphore::new(computing), Arc::new(Semaphore::new(hashing)));
        Ok(Self { pool, computing, hashing, waiting: AtomicUsize::new(0) })
    }

    /// Computes, when it is its turn. The work may borrow, so this thread waits for it, while another serves what it would have served.
    pub(crate) async fn compute<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        // Never closed.
        let _turn = self.computing.acquire().await;
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| self.pool.install(work)),
            // There is nobody else, as in tests.
            _ => self.pool.install(work),
        }
    }

    /// Hashes or checks a password, when it is its turn; refused if too many wait already.
    pub(crate) async fn hash<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, KvError> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= MAX_WAITING {
            return Err(KvError::Overloaded("too many passwords are waiting to be checked"));
        }
        let turn = Arc::clone(&self.hashing).acquire_owned().await;
        // Whoever asked may go away: the turn lasts as long as the work.
        let work = move || {
            let _turn = turn;
            work()
        };
        self.begin(work).await.map_err(|_| KvError::Storage("a password could not be checked".to_owned()))
    }

    /// Does work that nobody waits for, or not for long: freeing memory. No more of it is begun than there was work before.
    pub(crate) fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
        let (answer, done) = oneshot::channel();
        // Nobody may be there to take it. After a panic, which has been reported by then, it never comes.
        self.pool.spawn(move || drop(answer.send(work())));
        done
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn work_is_done_by_few_threads_of_lower_priority_which_serve_nobody() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let (serving, working) = (nice(), Arc::new(Aside::new(2).unwrap()));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let works: Vec<_> = (0..64)
            .map(|_| {
                let (working, running, most) = (Arc::clone(&working), Arc::clone(&running), Arc::clone(&most));
                let work = move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    (nice(), std::thread::current().name().unwrap_or_default().to_owned())
                };
                tokio::spawn(async move { working.compute(work).await })
            })
            .collect();
        let mut threads = std::collections::BTreeSet::new();
        for work in works {
            let (niceness, thread) = work.await.unwrap();
            assert!(niceness > serving || serving == 19, "{niceness} and {serving}");
            threads.insert(thread);
        }
        assert!(threads.len() <= 4 && threads.iter().all(|name| name.starts_with("aside-")), "{threads:?}");
        assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} at once");
        let (niceness, _) = working.hash(move || (nice(), ())).await.unwrap();
        assert!(niceness > serving || serving == 19, "{niceness} and {serving}");
        assert_eq!(nice(), serving, "whoever waited keeps its own");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_the_callers_alone() {
        let working = Arc::new(Aside::new(1).unwrap());
        let panicking = Arc::clone(&working);
        assert!(tokio::spawn(async move { panicking.compute(|| panic!("on purpose")).await }).await.is_err());
        assert!(
            working.hash(|| panic!("on purpose")).await.is_err()
                && working.begin(|| panic!("on purpose")).await.is_err()
        );
        assert_eq!(working.compute(|| 7).await, 7);
        assert_eq!(working.hash(|| 8).await, Ok(8));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_while_something_is_computed() {
        let working = Arc::new(Aside::new(1).unwrap());
        let (begun, has_begun) = oneshot::channel();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let computing = Arc::clone(&working);
        let computation = tokio::spawn(async move {
            let work = move || {
                begun.send(()).unwrap();
                released.recv().unwrap();
            };
            computing.compute(work).await;
        });
        has_begun.await.unwrap();
        // There is one thread for tasks, and it is taken: without another this would never run.
        tokio::spawn(async move { release.send(()).unwrap() }).await.unwrap();
        computation.await.unwrap();
    }

    #[tokio::test]
    async fn passwords_wait_in_a_bounded_queue() {
        let working = Arc::new(Aside::new(1).unwrap());
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let first = Arc::clone(&working);
        let first = tokio::spawn(async move { first.hash(move || released.recv().is_err()).await });
        let others: Vec<_> = (0..2 * MAX_WAITING)
            .map(|_| {
                let working = Arc::clone(&working);
                tokio::spawn(async move { working.hash(|| ()).await })
            })
            .collect();
        while working.waiting.load(Ordering::Relaxed) < MAX_WAITING {
            tokio::task::yield_now().await;
        }
        drop(release);
        assert!(first.await.unwrap().unwrap());
        let mut refused = 0;
        for other in others {
            refused += usize::from(matches!(other.await.unwrap(), Err(KvError::Overloaded(_))));
        }
        assert!(refused >= MAX_WAITING, "{refused} of {}", 2 * MAX_WAITING);
        assert_eq!(working.waiting.load(Ordering::Relaxed), 0);
        working.hash(|| ()).await.unwrap();
    }
}
