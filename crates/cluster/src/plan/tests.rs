//! Golden plans of the published runs, and what a plan refuses.

use super::*;
use std::path::Path;

const TB: u64 = 1_000_000_000_000;

fn published() -> Question {
    Question {
        nodes: 4,
        data_bytes: 26 * TB,
        cores_per_node: 32,
        memory_bytes_per_node: Some(240_000_000_000),
        disk_bytes_per_node: Some(7_600_000_000_000),
        ..Question::default()
    }
}

/// Compares a plan with what is kept beside the code; `UPDATE_GOLDEN=1` rewrites that.
fn golden(name: &str, question: &Question) -> Plan {
    let plan = plan(question).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan/golden").join(name);
    let text = plan.to_string();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, kept, "{name} (UPDATE_GOLDEN=1 rewrites it)");
    plan
}

fn hours(change: &Change) -> f64 {
    change.ends_after_s / 3_600.0
}

#[test]
fn a_fifth_node_takes_about_eight_hours() {
    let plan = golden("add_fifth_node.txt", &Question { add: 1, ..published() });
    let [add] = &plan.changes[..] else { panic!("one change") };
    assert!((7.6..=8.4).contains(&hours(add)), "published: about 8 h; planned: {} h", hours(add));
    let sent = add.samples.last().unwrap().bytes[..4].iter().map(|bytes| 6_500_000_000_000 - bytes);
    assert!(
        sent.clone().all(|bytes| (1_200_000_000_000..=1_400_000_000_000).contains(&bytes)),
        "{:?}",
        sent.collect::<Vec<_>>()
    );
}
