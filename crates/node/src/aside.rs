//! Long work, on threads of its own: computing for statements, encoding large answers, hashing passwords.
//!
//! Always true: a fixed number of threads does it, at lower priority than the serving threads. A limited number of works run
//! at a time; the others wait in a bounded queue, without a thread, and clients take turns in it (`turns`). Left out: reads
//! from disk, which wait rather than compute, and the end of work that takes too long (`diorite_query::budget`).

use crate::error::StartError;
use crate::machine::lower_priority;
use crate::turns::{Caller, Turns};
use diorite_base::write::KvError;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// Passwords that may wait to be hashed or checked: a second's worth for each thread, and more.
const MAX_PASSWORDS_WAITING: usize = 64;

/// Computations that may wait. Each takes some milliseconds, so that more would wait for longer than most requests may take.
const MAX_WAITING: usize = 4_096;

/// The threads, and who may use them at the moment.
pub(crate) struct Aside {
    /// As many threads as there are turns, and one for what nobody waits for, so that work that may begin finds a thread.
    pool: Arc<ThreadPool>,
    computing: Arc<Turns>,
    hashing: Arc<Turns>,
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
        let computing = Turns::new(computing, MAX_WAITING, "too many long statements wait to be worked on");
        let hashing = Turns::new(hashing, MAX_PASSWORDS_WAITING, "too many passwords are waiting to be checked");
        Ok(Self { pool: Arc::new(pool), computing, hashing })
    }

    /// Computes, when it is the caller's turn; refused, and not begun, if too much waits already. The work may borrow, so this thread waits for it, while another serves what it would have
    /// served.
    pub(crate) async fn compute<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, KvError> {
        let _turn = self.computing.take(Caller::current()).await?;
        Ok(self.carry_out(work))
    }

    /// The same, for the end of a request that has had an effect: it is not refused.
    pub(crate) async fn finish<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let _turn = self.computing.take_always(Caller::current()).await;
        self.carry_out(work)
    }

    fn carry_out<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| self.pool.install(work)),
            // There is nobody else, as in tests.
            _ => self.pool.install(work),
        }
    }

    /// Computes for `caller` when it is its turn, and nobody waits. The work is done with an error, here, if it has to make place for others'.
    ///
    /// # Errors
    /// If too much waits already; then it is dropped.
    pub(crate) fn compute_later(
        &self,
        caller: Caller,
        work: impl FnOnce(Result<(), KvError>) + Send + 'static,
    ) -> Result<(), KvError> {
        let pool = Arc::clone(&self.pool);
        self.computing.when_due(caller, move |turn| match turn {
            Ok(turn) => pool.spawn(move || {
                let _turn = turn;
                work(Ok(()));
            }),
            Err(refused) => work(Err(refused)),
        })
    }

    /// Hashes or checks a password, when it is the caller's turn; refused if too many wait already.
    pub(crate) async fn hash<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, KvError> {
        let turn = self.hashing.take(Caller::current()).await?;
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
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
                tokio::spawn(async move { working.compute(work).await.unwrap() })
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
        assert!(tokio::spawn(async move { panicking.compute(|| panic!("on purpose")).await.is_ok() }).await.is_err());
        assert!(
            working.hash(|| panic!("on purpose")).await.is_err()
                && working.begin(|| panic!("on purpose")).await.is_err()
        );
        assert_eq!(working.compute(|| 7).await, Ok(7));
        assert_eq!(working.finish(|| 9).await, 9);
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
            computing.compute(work).await.unwrap();
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
        let others: Vec<_> = (0..2 * MAX_PASSWORDS_WAITING)
            .map(|_| {
                let working = Arc::clone(&working);
                tokio::spawn(async move { working.hash(|| ()).await })
            })
            .collect();
        // Until each of them waits or was refused: nobody's turn ends before.
        let are_refused = || others.iter().filter(|other| other.is_finished()).count();
        while working.hashing.waiting() + are_refused() < others.len() {
            tokio::task::yield_now().await;
        }
        assert_eq!(working.hashing.waiting(), MAX_PASSWORDS_WAITING);
        drop(release);
        assert!(first.await.unwrap().unwrap());
        let mut refused = 0;
        for other in others {
            refused += usize::from(matches!(other.await.unwrap(), Err(KvError::Overloaded(_))));
        }
        assert_eq!(refused, MAX_PASSWORDS_WAITING);
        assert_eq!(working.hashing.waiting(), 0);
        working.hash(|| ()).await.unwrap();
    }

    fn caller(address: u8, connection: u64) -> Caller {
        Caller { connection, ..Caller::from(SocketAddr::from(([127, 0, 0, address], 0))) }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_a_client_that_has_sent_much_another_one_waits_for_one_work_only() {
        let (working, order) = (Arc::new(Aside::new(1).unwrap()), Arc::new(Mutex::new(Vec::new())));
        let (begun, has_begun) = oneshot::channel();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let (mut first, mut has_begun, mut works) = (Some((begun, released)), Some(has_begun), Vec::new());
        let callers = (0..64).map(|connection| caller(1, connection)).chain([caller(2, 0)]);
        for (waiting, of) in callers.enumerate() {
            let (working, order, first) = (Arc::clone(&working), Arc::clone(&order), first.take());
            let queue = Arc::clone(&working.computing);
            let work = move || {
                order.lock().unwrap().push(of);
                if let Some((begun, released)) = first {
                    begun.send(()).unwrap();
                    assert!(released.recv().is_err());
                }
            };
            works.push(tokio::spawn(of.scope(async move { working.compute(work).await })));
            // The first one is begun, the others wait, in this order.
            if let Some(has_begun) = has_begun.take() {
                has_begun.await.unwrap();
            }
            while queue.waiting() < waiting {
                tokio::task::yield_now().await;
            }
        }
        drop(release);
        for work in works {
            work.await.unwrap().unwrap();
        }
        let order = order.lock().unwrap();
        assert_eq!((order[0], order[1], order.len()), (caller(1, 0), caller(2, 0), 65));
    }
}
