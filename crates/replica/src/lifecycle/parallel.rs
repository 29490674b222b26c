//! Work that waits mostly for disks, on several threads.

use parking_lot::Mutex;

/// The threads that work at a time. Making the files of a tablet waits ten times for the disk, and eight threads that
/// wait take about one processor.
const THREADS: usize = 8;

/// Carries out `work` on each item and returns the results in any order. `work` must not panic.
pub(crate) fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let others = items.len().min(THREADS).saturating_sub(1);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().next();
    let work_all = || {
        while let Some(item) = next() {
            let result = work(item);
            results.lock().push(result);
        }
    };
    std::thread::scope(|scope| {
        for number in 0..others {
            // A system that has no thread left is slow, but stops nothing: the caller's thread works in any case.
            let spawned = std::thread::Builder::new().name(format!("open-{number}")).spawn_scoped(scope, work_all);
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread to open tablets with");
                break;
            }
        }
        work_all();
    });
    results.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Condvar;
    use std::time::Duration;

    #[test]
    fn each_item_is_worked_on_once() {
        for count in [0, 1, 2, THREADS, 1_000] {
            let mut results = in_parallel((0..count).collect(), |item| item * 2);
            results.sort_unstable();
            assert_eq!(results, (0..count).map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn items_are_worked_on_at_the_same_time() {
        let (begun, all) = (Mutex::new(0), Condvar::new());
        let waits_for_all = |()| {
            let mut begun = begun.lock();
            *begun += 1;
            all.notify_all();
            all.wait_while_for(&mut begun, |begun| *begun < THREADS, Duration::from_secs(60)).timed_out()
        };
        assert_eq!(in_parallel(vec![(); THREADS], waits_for_all), [false; THREADS]);
    }
}
