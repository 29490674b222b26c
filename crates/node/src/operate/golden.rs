//! The golden bytes of frames of the operations lane and of reports.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::report::{Details, Report};
use super::wire::Frame;
use crate::node_tls::Protection;
use diorite_admin::api::Activity;
use diorite_base::{Hold, Level, Levels, NodeId, TabletId};
use diorite_control::report::{CopyReport, DiskReport, Files, TabletReport};
use diorite_golden::{Decoded, Golden, kinds};

kinds!(FRAMES, frame_kind(Frame): Report, Ask, Answer);
kinds!(PROTECTIONS, protection_kind(Protection): Encrypted, OpenOnLoopback, Insecure);

fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}

#[test]
fn frames_have_their_bytes() {
    let (incarnation, id) = (0x0102_0304_0506_0708, 300);
    let frames = [
        ("report", Frame::Report(b"{}")),
        ("question", Frame::Ask { incarnation, id, question: b"{\"ask\":\"status\"}" }),
        ("answer", Frame::Answer { incarnation, id, has_failed: false, answer: b"[]" }),
        ("failure", Frame::Answer { incarnation, id, has_failed: true, answer: b"{}" }),
    ];
    golden("operation-frames", &[FRAMES]).check(&frames.map(|(name, frame)| (name, frame.encode())), |_, bytes| {
        let frame = Frame::decode(bytes).unwrap();
        Decoded { kinds: vec![frame_kind(&frame)], shown: format!("{frame:?}"), encoded: Some(frame.encode()) }
    });
}

fn details(protection: Protection) -> Details {
    Details {
        uptime_s: 300,
        program: "0.2.0".to_owned(),
        resident_bytes: Some(1 << 30),
        cpu_s: Some(1.5),
        memory_limit_bytes: Some(1 << 31),
        processors: Some(2),
        activity: Activity { reads_per_second: Some(2.5), ..Activity::default() },
        sst_bytes: 1 << 20,
        set_aside: vec![(TabletId(1_000), "damaged".to_owned())],
        scrubbed_ms: Some(1_700_000_000_000),
        scrub_damage_found: 1,
        out_of_touch: vec![NodeId(3)],
        clock_is_off_us: Some(-5),
        logs_ahead_us: Some(7),
        protection: Some(protection),
        certificate_days_left: Some(90),
    }
}

fn report(protection: Protection) -> Report {
    let tablet = TabletId(1_000);
    let files = Files { files: 2, bytes: 8, content_bytes: None };
    Report {
        disks: vec![DiskReport {
            path: "/data".to_owned(),
            total_bytes: 100,
            free_bytes: 50,
            log_bytes: 7,
            reserve_bytes: 5,
            is_full: false,
            has_failed: true,
        }],
        tablets: vec![TabletReport { tablet, bytes: 9, disk: 0, leads: true, files }],
        copies: vec![CopyReport { tablet, source: NodeId(2), bytes_done: 1, bytes_total: 3, rate_bytes: 4 }],
        incomplete: vec![TabletId(1_001)],
        next_tablet: Some(1_002),
        requires_login: Some(false),
        levels: Levels { least: Level(1), greatest: Level(2) },
        hold: Some(Hold { level: Level(1), number: 3, is_held: true }),
        details: details(protection),
    }
}

/// Level 2 adds `levels` and `hold`, which programs of level 1 ignore.
#[test]
fn reports_have_their_bytes() {
    let protections = [
        ("encrypted", Protection::Encrypted),
        ("open on loopback", Protection::OpenOnLoopback),
        ("insecure", Protection::Insecure),
    ];
    let written = protections.map(|(name, protection)| (name, serde_json::to_vec(&report(protection)).unwrap()));
    golden("reports", &[PROTECTIONS]).check(&written, |_, bytes| {
        let report: Report = serde_json::from_slice(bytes).unwrap();
        let encoded = Some(serde_json::to_vec(&report).unwrap());
        let is_of_level_1 = report.levels == Levels::FIRST;
        let kinds = report.details.protection.iter().map(protection_kind).collect();
        Decoded { kinds, shown: format!("{report:?}"), encoded: encoded.filter(|_| !is_of_level_1) }
    });
}
