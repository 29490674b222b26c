//! What this machine's processors are used for: by the client itself, by the servers, and by processes that have nothing to do with the benchmark.
//!
//! Always true: what cannot be read is absent, never 0. Left out: which processes those are.

use diorite_base::clock::{Clock, SystemClock};
use diorite_local::parse_stat;

/// Processor time up to a moment, seconds.
#[derive(Debug)]
pub(super) struct Processors {
    clock: SystemClock,
    machine_s: Option<f64>,
    client_s: Option<f64>,
}

/// Processors in use between two moments, on average.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    /// By everybody.
    pub(super) machine: Option<f64>,
    /// By this process.
    pub(super) client: Option<f64>,
}

impl Used {
    /// By neither this process nor the servers, which used so many.
    pub(super) fn others(&self, servers: Option<f64>) -> Option<f64> {
        // Clocks of different grain.
        Some((self.machine? - self.client? - servers?).max(0.0))
    }
}

impl Processors {
    /// As of now.
    pub(super) fn now() -> Self {
        let read = |path| std::fs::read_to_string(path).ok();
        let machine_s = read("/proc/stat").as_deref().and_then(busy_seconds);
        let client_s = read("/proc/self/stat").as_deref().and_then(parse_stat).map(|stat| stat.cpu_seconds);
        // Its monotonic time starts when it is made.
        Self { clock: SystemClock::new(), machine_s, client_s }
    }

    /// The use since this was made.
    pub(super) fn used(&self) -> Used {
        let now = Self::now();
        let elapsed_s = (self.clock.monotonic_ns() as f64 / 1e9).max(f64::MIN_POSITIVE);
        let rate = |before: Option<f64>, after: Option<f64>| Some((after? - before?) / elapsed_s);
        Used { machine: rate(self.machine_s, now.machine_s), client: rate(self.client_s, now.client_s) }
    }
}

/// The time that all processors were busy, of `/proc/stat`: user, nice, system, interrupts, but neither idle nor waiting for disks.
fn busy_seconds(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let busy: u64 = [0, 1, 2, 5, 6].iter().map(|at| ticks.get(*at)).sum::<Option<u64>>()?;
    Some(busy as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_out_idle_processors_and_waits() {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let text = "cpu  100 20 30 4000 500 6 7 88 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_seconds(text), Some(163.0 / ticks));
        for wrong in ["", "cpu0 1 2 3 4 5 6 7", "cpu  1 2 x 4 5 6 7", "cpu  1 2 3 4"] {
            assert_eq!(busy_seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_neither_client_nor_servers_used_is_others() {
        let used = Used { machine: Some(2.0), client: Some(0.5) };
        assert_eq!(used.others(Some(0.25)), Some(1.25));
        assert_eq!(used.others(Some(1.75)), Some(0.0), "clocks of different grain");
        assert_eq!((used.others(None), Used::default().others(Some(1.0))), (None, None));
        let began = Processors::now();
        assert!(began.used().machine.is_some() && began.used().client.is_some());
    }
}
