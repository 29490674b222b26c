//! Work that takes more than a moment, beside the threads that serve clients: computing for statements, and hashing of passwords.
//!
//! Always true: while it is done, another thread serves what this one would have served; only so much of it is done at a time, so that threads do not run out;
//! who waits for a password is one of a bounded number. Left out: reads from disk, which wait rather than compute.

use diorite_base::write::KvError;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Passwords that may wait to be hashed or checked: a second's worth for each thread, and more.
const MAX_WAITING: usize = 64;

/// Does work here, while others are served elsewhere.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is nobody else, as in tests.
        _ => work(),
    }
}

/// Who may work at the moment.
#[derive(Debug)]
pub(crate) struct Aside {
    computing: Semaphore,
    hashing: Semaphore,
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
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            computing: Semaphore::new(threads.max(1)),
            hashing: Semaphore::new((threads / 2).max(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Computes, when it is its turn.
    pub(crate) async fn compute<T>(&self, work: impl FnOnce() -> T) -> T {
        // Never closed.
        let _turn = self.computing.acquire().await;
        aside(work)
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
        let _turn = self.hashing.acquire().await;
        let hashed = tokio::task::spawn_blocking(work).await;
        hashed.map_err(|_| KvError::Storage("a password could not be checked: the node is shutting down".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_while_something_is_computed() {
        let working = Arc::new(Aside::new(1));
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
        let working = Arc::new(Aside::new(1));
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
