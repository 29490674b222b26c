//! Nodes that can take replicas, by zone, least loaded first.
//!
//! Always true: a node is in the ranking of its zone if it accepts replicas at all, and among the open ones if one more
//! copy may start now. Its place follows its load: it is entered again whenever either changes. Ties are broken by the
//! node's index, so that the order is deterministic.

use std::collections::BTreeSet;

/// The measure by which nodes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Bytes on disk, in proportion to the node's disks.
    Bytes,
    /// Replicas, in the same proportion.
    Count,
}

impl Measure {
    const ALL: [Measure; 2] = [Measure::Bytes, Measure::Count];
}

/// The bits of a non-negative load, which sort as the numbers do.
pub(super) fn key(load: f64) -> u64 {
    load.max(0.0).to_bits()
}

#[derive(Default)]
struct Zone {
    accepting: [BTreeSet<(u64, u32)>; 2],
    open: [BTreeSet<(u64, u32)>; 2],
}

/// A node's entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    /// Its zone.
    pub zone: u32,
    /// Its loads by bytes and by count, divided by its weight.
    pub loads: [f64; 2],
    /// Whether one more copy may start now.
    pub is_open: bool,
}

/// The ranking of all zones.
pub(super) struct Ranking {
    zones: Vec<Zone>,
    entries: Vec<Option<Entry>>,
    open: usize,
}

impl Ranking {
    pub(super) fn new(zones: usize, nodes: usize) -> Self {
        Self { zones: (0..zones).map(|_| Zone::default()).collect(), entries: vec![None; nodes], open: 0 }
    }

    /// Enters a node, or enters it again with another load.
    pub(super) fn enter(&mut self, node: u32, entry: Entry) {
        if let Some(old) = self.entries[node as usize].replace(entry) {
            let zone = &mut self.zones[old.zone as usize];
            for measure in Measure::ALL {
                let at = (key(old.loads[measure as usize]), node);
                zone.accepting[measure as usize].remove(&at);
                zone.open[measure as usize].remove(&at);
            }
            self.open -= usize::from(old.is_open);
        }
        let zone = &mut self.zones[entry.zone as usize];
        for measure in Measure::ALL {
            let at = (key(entry.loads[measure as usize]), node);
            zone.accepting[measure as usize].insert(at);
            if entry.is_open {
                zone.open[measure as usize].insert(at);
            }
        }
        self.open += usize::from(entry.is_open);
    }

    /// Whether any node has a place for one more copy.
    pub(super) fn is_any_open(&self) -> bool {
        self.open > 0
    }

    /// Whether the node accepts replicas and has a place for one more copy.
    pub(super) fn is_open(&self, node: u32) -> bool {
        self.entries[node as usize].is_some_and(|entry| entry.is_open)
    }

    /// The nodes of a zone that accept replicas, the emptiest first, with their loads.
    pub(super) fn accepting(&self, zone: u32, by: Measure) -> impl Iterator<Item = (f64, u32)> + Clone + '_ {
        self.zones[zone as usize].accepting[by as usize].iter().map(|(load, node)| (f64::from_bits(*load), *node))
    }

    /// Those of them that have a place for one more copy right now.
    pub(super) fn open(&self, zone: u32, by: Measure) -> impl Iterator<Item = (f64, u32)> + Clone + '_ {
        self.zones[zone as usize].open[by as usize].iter().map(|(load, node)| (f64::from_bits(*load), *node))
    }
}
