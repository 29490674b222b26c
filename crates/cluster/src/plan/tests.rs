//! Golden plans of the published runs, and what a plan refuses.

use super::*;

const TB: u64 = 1_000_000_000_000;

fn published() -> Question {
    Question {
        nodes: 4,
        data_bytes: 26 * TB,
        node: Machine {
            cores_per_node: 32,
            memory_bytes_per_node: Some(240_000_000_000),
            disk_bytes_per_node: Some(7_600_000_000_000),
            ..Machine::default()
        },
        ..Question::default()
    }
}

/// Compares a plan with the file beside the code; `UPDATE_GOLDEN=1` rewrites that.
fn golden(name: &str, question: &Question) -> Plan {
    let plan = plan(question).unwrap();
    let path = diorite_golden::crate_folder().join("src/plan/golden").join(name);
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

#[test]
fn a_lost_node_of_five_is_made_up_for_in_two_to_two_and_a_half_hours() {
    let plan = golden("lose_one_of_five.txt", &Question { nodes: 5, lose: 1, ..published() });
    let [lose] = &plan.changes[..] else { panic!("one change") };
    // One sender has a seventh more than its share here, as the last tablets have few voters to choose from.
    assert!((2.0..=2.5).contains(&hours(lose)), "published: 2 h 10 min; planned: {} h", hours(lose));
    let end = &lose.samples.last().unwrap().bytes;
    assert!(end[..4].iter().all(|bytes| (6_300_000_000_000..=6_700_000_000_000).contains(bytes)), "{end:?}");
    assert_eq!((end[4], lose.stalled_tablets), (0, 0));
}

#[test]
fn dense_general_purpose_nodes_give_a_fifth_what_its_disk_takes_in() {
    // Published: 3.8 TB, 0.95 TB from each, in 7 h; that is 4.75 TB per node, and 151 MB/s. The volumes were network SSDs, whose own limit
    // (160 MiB/s then) was below the knob.
    let question = Question {
        data_bytes: 19 * TB,
        add: 1,
        node: Machine {
            cores_per_node: 16,
            memory_bytes_per_node: Some(30_000_000_000),
            disk_bytes_per_node: Some(6 * TB),
            ..Machine::default()
        },
        rate_bytes_per_second: 160 << 20,
        ..published()
    };
    let plan = golden("dense_fifth_node.txt", &question);
    let [add] = &plan.changes[..] else { panic!("one change") };
    assert!((6.6..=7.5).contains(&hours(add)), "published: 7 h; planned: {} h", hours(add));
    let sample = add.samples.last().unwrap();
    assert!((3_600_000_000_000..=4_000_000_000_000).contains(&sample.bytes[4]), "{sample:?}");
    let given = sample.bytes[..4].iter().map(|bytes| 4_750_000_000_000 - bytes);
    assert!(
        given.clone().all(|bytes| (850_000_000_000..=1_050_000_000_000).contains(&bytes)),
        "{:?}",
        given.collect::<Vec<_>>()
    );
}

#[test]
fn a_large_cluster_and_small_tablets() {
    let question = Question {
        nodes: 100,
        zones: 5,
        replication: 5,
        data_bytes: 450 * TB,
        tablets: Some(50_000),
        add: 10,
        lose: 2,
        load: Load { operations_per_second: Some(1_250_000), write_share: 0.2, ..Load::default() },
        ..Question::default()
    };
    let plan = golden("hundred_nodes.txt", &question);
    assert!(plan.changes.iter().all(|change| change.stalled_tablets == 0), "{:?}", plan.warnings);
}

#[test]
fn what_will_not_work_is_said() {
    let question = Question {
        nodes: 3,
        lose: 1,
        data_bytes: TB,
        node: Machine {
            disk_bytes_per_node: Some(300_000_000_000),
            memory_bytes_per_node: Some(1_000_000_000),
            ..Machine::default()
        },
        load: Load { operations_per_second: Some(100_000_000), ..Load::default() },
        ..Question::default()
    };
    golden("warnings.txt", &question);
}

#[test]
fn the_rate_holds_at_both_ends_of_a_copy() {
    for (add, lose) in [(1, 0), (3, 0), (0, 1), (0, 2)] {
        let question = Question { nodes: 8, add, lose, zones: 2, data_bytes: 8 * TB, ..Question::default() };
        let plan = plan(&question).unwrap();
        let limit = question.rate_bytes_per_second as f64 * question.copy_efficiency;
        for change in &plan.changes {
            // Rounding may add half a byte per copy and step.
            let (receives, sends) = (change.busiest_receiver, change.busiest_sender);
            assert!(receives.bytes_per_second <= limit * 1.000_001, "{receives:?}");
            assert!(sends.bytes_per_second <= limit * 1.000_001, "{sends:?}");
            assert!(receives.bytes_per_second.max(sends.bytes_per_second) >= limit * 0.8, "{receives:?} {sends:?}");
        }
    }
}

#[test]
fn twice_the_rate_takes_half_the_time() {
    let at = |rate_bytes_per_second| {
        let question = Question { add: 1, rate_bytes_per_second, ..published() };
        plan(&question).unwrap().changes[0].ends_after_s
    };
    let (slow, fast) = (at(100_000_000), at(200_000_000));
    assert!((slow / fast - 2.0).abs() < 0.02, "{slow} {fast}");
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    let refused = |question: Question| plan(&question).unwrap_err().to_string();
    assert_eq!(
        refused(Question { nodes: 0, ..published() }),
        "the number of nodes has to be 1 to 1000, with those that are added"
    );
    assert_eq!(refused(Question { add: 997, ..published() }), refused(Question { nodes: 0, ..published() }));
    assert_eq!(
        refused(Question { nodes: 2, ..published() }),
        "the replication factor has to be 1 to 2, the number of nodes"
    );
    assert_eq!(
        refused(Question { lose: 4, ..published() }),
        "the number of nodes to lose has to be at most 3, all but one"
    );
    assert_eq!(
        refused(Question { zones: 5, ..published() }),
        "the number of zones has to be 1 to 4, the number of nodes"
    );
    assert_eq!(refused(Question { rate_bytes_per_second: 0, ..published() }), "the rate has to be more than 0");
    assert_eq!(
        refused(Question { node: Machine { processor_use: f64::NAN, ..Machine::default() }, ..published() }),
        "the use of processors has to be more than 0 and at most 1"
    );
    let costs = Costs { write_us: 0.0, ..Costs::default() };
    assert_eq!(
        refused(Question { load: Load { costs, ..Load::default() }, ..published() }),
        "a cost per operation has to be more than 0"
    );
}

#[test]
fn figures_are_read_easily() {
    use super::text::{bytes, duration};
    let shown: Vec<String> =
        [0, 999, 1_000, 5_200_000_000_000, 26_000_000_000_000, 450_000_000_000_000].map(bytes).into();
    assert_eq!(shown, ["0 B", "999 B", "1.00 KB", "5.20 TB", "26.0 TB", "450 TB"]);
    let shown: Vec<String> = [0.4, 59.0, 61.0, 3_599.6, 7_199.0, 28_889.0].map(duration).into();
    assert_eq!(shown, ["0 s", "59 s", "1 min 01 s", "1 h 00 min", "2 h 00 min", "8 h 01 min"]);
}

#[test]
fn json_has_the_series() {
    let plan = plan(&Question { add: 1, ..published() }).unwrap();
    let json: serde_json::Value = serde_json::from_str(&plan.to_json()).unwrap();
    let samples = json["changes"][0]["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 61);
    assert_eq!(samples[0]["bytes"].as_array().unwrap().len(), 5);
    assert_eq!(samples[0]["bytes"][4], 0);
    assert_eq!(json["changes"][0]["kind"], "add");
}
