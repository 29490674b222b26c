//! Reads and writes of the servers, by their own counters and by Linux's of their processes.
//!
//! Always true: a counter that one of the servers does not have is absent for all of them, never 0; the difference of
//! two moments is the activity in between, whoever caused it.

use std::net::IpAddr;

use diorite_local::http::{get, metric};

/// Blocks by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Blocks {
    pub data: f64,
    pub index: f64,
    pub filter: f64,
}

impl Blocks {
    /// Of all kinds.
    pub fn all(&self) -> f64 {
        self.data + self.index + self.filter
    }
}

/// The counters at one moment, over all servers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Blocks that were read from files into the cache.
    pub read: Blocks,
    pub user_written_bytes: f64,
    pub flushed_bytes: f64,
    pub compacted_bytes: f64,
    pub dead_rows_passed: f64,
    /// Bytes that the processes had storage devices read; `None` where Linux does not say.
    pub read_bytes: Option<f64>,
}

impl Counters {
    /// The growth since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: f64, before: f64| (now - before).max(0.0);
        Self {
            read: Blocks {
                data: less(self.read.data, before.read.data),
                index: less(self.read.index, before.read.index),
                filter: less(self.read.filter, before.read.filter),
            },
            user_written_bytes: less(self.user_written_bytes, before.user_written_bytes),
            flushed_bytes: less(self.flushed_bytes, before.flushed_bytes),
            compacted_bytes: less(self.compacted_bytes, before.compacted_bytes),
            dead_rows_passed: less(self.dead_rows_passed, before.dead_rows_passed),
            read_bytes: self.read_bytes.zip(before.read_bytes).map(|(now, before)| less(now, before)),
        }
    }

    /// Bytes that flushes and compactions wrote for each byte that was flushed.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.flushed_bytes > 0.0).then(|| (self.flushed_bytes + self.compacted_bytes) / self.flushed_bytes)
    }

    fn of_metrics(text: &str) -> Option<Self> {
        let labelled = |name: &str, label: &str| metric(text, &format!("diorite_{name}{{{label}}}"));
        let read = |kind: &str| labelled("blocks_read_total", &format!("block=\"{kind}\""));
        let written = |by: &str| labelled("background_written_bytes_total", &format!("by=\"{by}\""));
        Some(Self {
            read: Blocks { data: read("data")?, index: read("index")?, filter: read("filter")? },
            user_written_bytes: metric(text, "diorite_user_written_bytes_total")?,
            flushed_bytes: written("flush")?,
            compacted_bytes: written("compaction")?,
            dead_rows_passed: metric(text, "diorite_dead_rows_passed_total").unwrap_or(0.0),
            read_bytes: None,
        })
    }

    fn add(&mut self, other: &Self) {
        self.read.data += other.read.data;
        self.read.index += other.read.index;
        self.read.filter += other.read.filter;
        self.user_written_bytes += other.user_written_bytes;
        self.flushed_bytes += other.flushed_bytes;
        self.compacted_bytes += other.compacted_bytes;
        self.dead_rows_passed += other.dead_rows_passed;
    }
}

/// The contents of the servers at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Held {
    pub files: f64,
    pub file_bytes: f64,
    pub blocks: Blocks,
    pub reader_bytes: f64,
    /// Running flushes and compactions. (Not pending ones: RocksDB counts a compaction as pending while there are many sorted runs, even if it will merge
    /// none of them.)
    pub busy: f64,
}

impl Held {
    fn of_metrics(text: &str) -> Option<Self> {
        let blocks = |kind: &str| metric(text, &format!("diorite_sstable_blocks_size_bytes{{block=\"{kind}\"}}"));
        Some(Self {
            files: metric(text, "diorite_sstable_files")?,
            file_bytes: metric(text, "diorite_sstable_size_bytes")?,
            blocks: Blocks { data: blocks("data")?, index: blocks("index")?, filter: blocks("filter")? },
            reader_bytes: metric(text, "diorite_sstable_readers_bytes")?,
            busy: metric(text, "diorite_background_running")?,
        })
    }

    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.file_bytes += other.file_bytes;
        self.blocks.data += other.blocks.data;
        self.blocks.index += other.blocks.index;
        self.blocks.filter += other.blocks.filter;
        self.reader_bytes += other.reader_bytes;
        self.busy += other.busy;
    }
}

/// The servers that are asked.
#[derive(Debug, Clone)]
pub struct Counted {
    pub addresses: Vec<IpAddr>,
    pub process_ids: Vec<u32>,
}

impl Counted {
    /// The counters now.
    pub async fn counters(&self) -> Option<Counters> {
        let mut sum = Counters::default();
        for &address in &self.addresses {
            sum.add(&Counters::of_metrics(&get(address, "/metrics").await?)?);
        }
        let read: Option<Vec<f64>> = self.process_ids.iter().map(|id| read_bytes(*id)).collect();
        sum.read_bytes = read.filter(|read| !read.is_empty()).map(|read| read.iter().sum());
        Some(sum)
    }

    /// Bytes in files now.
    pub async fn file_bytes(&self) -> Option<f64> {
        let mut sum = 0.0;
        for &address in &self.addresses {
            sum += metric(&get(address, "/metrics").await?, "diorite_sstable_size_bytes")?;
        }
        Some(sum)
    }

    /// The present contents; `None` until the servers have measured the newest files.
    pub async fn held(&self) -> Option<Held> {
        let mut sum = Held::default();
        for &address in &self.addresses {
            sum.add(&Held::of_metrics(&get(address, "/metrics").await?)?);
        }
        Some(sum)
    }
}

fn read_bytes(process_id: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    const METRICS: &str = "diorite_blocks_read_total{block=\"data\"} 10\n\
        diorite_blocks_read_total{block=\"index\"} 2\n\
        diorite_blocks_read_total{block=\"filter\"} 1\n\
        diorite_user_written_bytes_total 100\n\
        diorite_background_written_bytes_total{by=\"flush\"} 90\n\
        diorite_background_written_bytes_total{by=\"compaction\"} 180\n";

    #[test]
    fn counters_are_read_from_metrics_and_none_is_made_up() {
        let counters = Counters::of_metrics(METRICS).unwrap();
        assert_eq!(counters.read.all(), 13.0);
        assert_eq!(counters.write_amplification(), Some(3.0));
        assert_eq!(counters.since(&counters).write_amplification(), None);
        assert_eq!(Counters::of_metrics(&METRICS.replace("filter", "other")), None);
    }

    #[test]
    fn what_is_held_is_known_only_once_files_were_looked_into() {
        let text = "diorite_sstable_files 3\ndiorite_sstable_size_bytes 50\ndiorite_sstable_readers_bytes 1\n\
            diorite_background_running{pool=\"flush\"} 0\ndiorite_background_running{pool=\"small\"} 2\n";
        assert_eq!(Held::of_metrics(text), None);
        let blocks = "diorite_sstable_blocks_size_bytes{block=\"data\"} 40\n\
            diorite_sstable_blocks_size_bytes{block=\"index\"} 4\ndiorite_sstable_blocks_size_bytes{block=\"filter\"} 0\n";
        let held = Held::of_metrics(&format!("{text}{blocks}")).unwrap();
        assert_eq!((held.busy, held.blocks.data, held.files), (2.0, 40.0, 3.0));
    }
}
