//! Each node's periodic report to the node that leads the catalog.
//!
//! Always true: a report is of one moment; the part that decisions depend on is `diorite_control::report`'s, the rest
//! is for operators.

use crate::catalog::CATALOG_TABLET;
use crate::config::StartOptions;
use crate::machine;
use crate::node_tls::{Protection, Traffic};
use crate::observe::process;
use diorite_admin::api::Activity;
use diorite_base::{Levels, NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_control::report::{CopyReport, DiskReport, Files, TabletReport};
use diorite_replica::{CopyStatus, DiskState, Leadership, Store};
use diorite_storage::TabletFiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The number of tablets whose SSTables are measured with each report.
const MEASURED_AT_A_TIME: usize = 4;

/// Facts about a node that are fixed at its start.
#[derive(Clone, Debug)]
pub(crate) struct ReportOptions {
    /// Share of a disk that moves leave free.
    move_reserve_percent: u64,
    /// Memory that the process was given.
    memory_limit_bytes: u64,
    /// `--auth`.
    requires_login: bool,
    /// How traffic with other nodes is protected.
    traffic: Traffic,
    /// `--index-rate`.
    pub(super) index_rate_bytes: u64,
}

impl ReportOptions {
    pub(crate) fn new(options: &StartOptions, traffic: &Traffic) -> Self {
        Self {
            move_reserve_percent: options.move_reserve,
            memory_limit_bytes: options.memory_limit_bytes(),
            requires_login: options.auth,
            traffic: traffic.clone(),
            index_rate_bytes: options.index_rate.0,
        }
    }

    /// How traffic with other nodes is protected.
    pub(super) fn protection(&self) -> Protection {
        self.traffic.protection()
    }
}

/// A node's report.
pub(super) type Report = diorite_control::report::Report<Details>;

/// The part of a report for operators. Decisions do not depend on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Details {
    /// How long its process has run, seconds.
    pub(super) uptime_s: u64,
    /// The version of its program.
    pub(super) program: String,
    /// Resident memory of the process, bytes.
    pub(super) resident_bytes: Option<u64>,
    /// Processor time that the process has used, seconds.
    pub(super) cpu_s: Option<f64>,
    /// The memory limit of the process, bytes.
    #[serde(default)]
    pub(super) memory_limit_bytes: Option<u64>,
    /// Processors that it may use.
    #[serde(default)]
    pub(super) processors: Option<u64>,
    /// Its activity in the last seconds.
    #[serde(default)]
    pub(super) activity: Activity,
    /// Bytes of SSTable files.
    #[serde(default)]
    pub(super) sst_bytes: u64,
    /// Tablets whose replica the node cannot use, and why; ascending.
    #[serde(default)]
    pub(super) set_aside: SetAside,
    /// The end of the last complete scrub since the node's start, milliseconds since 1970.
    #[serde(default)]
    pub(super) scrubbed_ms: Option<i64>,
    /// How often scrubs have found damage since the node's start.
    #[serde(default)]
    pub(super) scrub_damage_found: u64,
    /// Other members with which it exchanges no heartbeats; ascending.
    #[serde(default)]
    pub(super) out_of_touch: Vec<NodeId>,
    /// How far the other nodes' clocks are ahead, microseconds, if this node's clock differs too much to lead tablets.
    #[serde(default)]
    pub(super) clock_is_off_us: Option<i64>,
    /// How far the logs of the node's tablets are ahead of its clock, microseconds, if they are.
    #[serde(default)]
    pub(super) logs_ahead_us: Option<i64>,
    /// How its traffic with other nodes is protected.
    #[serde(default)]
    pub(super) protection: Option<Protection>,
    /// Until its certificate for other nodes expires.
    #[serde(default)]
    pub(super) certificate_days_left: Option<i64>,
}

/// The release of programs that know of no levels, as earlier ones cannot be in one cluster with this one
/// (`RELEASES`). They give the version that was the same for all releases until then.
const RELEASE_WITHOUT_LEVELS: &str = "0.2.0";

/// The release of the program that made a report.
pub(super) fn release(report: &Report) -> &str {
    match report.levels == Levels::FIRST {
        true => RELEASE_WITHOUT_LEVELS,
        false => &report.details.program,
    }
}

fn copy_report(copy: &CopyStatus) -> CopyReport {
    CopyReport {
        tablet: copy.tablet,
        source: copy.from,
        bytes_done: copy.bytes_done,
        bytes_total: copy.bytes_total,
        rate_bytes: copy.rate,
    }
}

fn files_of(files: &TabletFiles) -> Files {
    let content_bytes = files.contents.map(|contents| contents.content_bytes);
    Files { files: files.files, bytes: files.bytes, content_bytes }
}

/// Measures the SSTables of a few tablets whose files have changed. Reads files, so it runs on a thread that may wait.
pub(super) fn measure_contents(store: &Store) {
    let handles: Vec<_> = store.tablets().values().cloned().collect();
    let mut asked = 0;
    for handle in handles {
        if asked == MEASURED_AT_A_TIME {
            return;
        }
        asked += usize::from(handle.data().measure_contents());
    }
}

/// Tablets whose replica a node cannot use, and why; ascending.
pub(super) type SetAside = Vec<(TabletId, String)>;

/// The set-aside replicas of this node.
pub(super) fn set_aside(store: &Store) -> SetAside {
    store.set_aside().into_iter().map(|aside| (aside.tablet, aside.reason)).collect()
}

fn disk_report(disk: DiskState, move_reserve_percent: u64) -> DiskReport {
    DiskReport {
        path: disk.path,
        total_bytes: disk.total_bytes,
        free_bytes: disk.free_bytes,
        log_bytes: disk.log_bytes,
        reserve_bytes: disk.total_bytes / 100 * move_reserve_percent,
        is_full: disk.is_full,
        has_failed: disk.has_failed,
    }
}

/// The report of this node, whose id is `node`.
pub(super) fn make(
    node: NodeId,
    store: &Store,
    catalog: &Catalog,
    uptime_s: u64,
    options: &ReportOptions,
    activity: Activity,
) -> Report {
    let handles = store.tablets();
    let mut sst_bytes = 0;
    let mut tablets: Vec<TabletReport> = handles
        .values()
        .filter(|handle| handle.id() != CATALOG_TABLET)
        .map(|handle| {
            let files = files_of(&handle.data().files());
            sst_bytes += files.bytes;
            TabletReport {
                tablet: handle.id(),
                bytes: handle.data().size_bytes(),
                disk: handle.disk() as u16,
                leads: handle.leadership() == Leadership::Here,
                files,
            }
        })
        .collect();
    tablets.sort_unstable_by_key(|report| report.tablet);
    let disks = store.disks().into_iter().map(|disk| disk_report(disk, options.move_reserve_percent));
    let copies: Vec<_> =
        store.copies().into_iter().filter(|copy| copy.incoming).map(|copy| copy_report(&copy)).collect();
    let recovering = handles.values().filter(|handle| handle.is_recovering()).map(|handle| handle.id());
    let set_aside = set_aside(store);
    let unusable = set_aside.iter().map(|(tablet, _)| *tablet);
    let incomplete: BTreeSet<_> = recovering.chain(copies.iter().map(|copy| copy.tablet)).chain(unusable).collect();
    let scrub = store.scrub_status();
    let others = catalog.nodes().map(|other| other.id).filter(|other| *other != node);
    Report {
        disks: disks.collect(),
        tablets,
        copies,
        incomplete: incomplete.into_iter().collect(),
        next_tablet: Some(catalog.identity().next_tablet().0),
        requires_login: Some(options.requires_login),
        levels: Levels::OWN,
        hold: store.hold(),
        details: Details {
            uptime_s,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            resident_bytes: process::resident_bytes(),
            cpu_s: process::cpu_seconds(),
            memory_limit_bytes: Some(options.memory_limit_bytes),
            processors: Some(machine::processors() as u64),
            activity,
            sst_bytes,
            set_aside,
            scrubbed_ms: scrub.finished_ms,
            scrub_damage_found: scrub.damage_found,
            out_of_touch: others.filter(|other| !store.liveness().is_up(*other)).collect(),
            clock_is_off_us: store.liveness().clock_is_off_us(),
            logs_ahead_us: store.liveness().logs_ahead_us(),
            protection: Some(options.traffic.protection()),
            certificate_days_left: options.traffic.days_left(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn a_report_survives_its_encoding() {
        let files = Files { files: 2, bytes: 8, content_bytes: None };
        let tablet = TabletReport { tablet: TabletId(7), bytes: 9, disk: 1, leads: true, files };
        let details = Details { uptime_s: 3, ..Details::default() };
        let report = Report { tablets: vec![tablet], details, ..Report::default() };
        let encoded = serde_json::to_string(&report).unwrap();
        assert!(encoded.contains("[7,9,1,true,2,8,null]"), "{encoded}");
        assert_eq!(serde_json::from_str::<Report>(&encoded).unwrap(), report);
    }

    #[test]
    fn a_program_without_levels_is_of_the_last_release_without_them() {
        let details = Details { program: "0.1.0".to_owned(), ..Details::default() };
        let old = Report { details: details.clone(), ..Report::default() };
        let new = Report { levels: Levels::OWN, details, ..Report::default() };
        assert_eq!((release(&old), release(&new)), ("0.2.0", "0.1.0"));
    }
}
