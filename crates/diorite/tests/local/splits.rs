//! Tablets are split in place, and merged, while they are written to: no request fails, nothing is lost, and what a node missed it makes up for.

use crate::Local;
use crate::busy::expect_no_failures;
use crate::client::{Client, count};
use crate::operations::{Load, admin, admin_output, ask, id_of, is_quiet, wait_for, with_table, with_tablets};
use serde_json::Value;
use std::collections::BTreeSet;

fn tablets(local: &Local, through: u32) -> BTreeSet<u64> {
    let answer = ask(local, through, "tablets").unwrap_or_default();
    let found = answer.as_array().into_iter().flatten();
    found.filter_map(|tablet: &Value| tablet["tablet"].as_u64()).collect()
}

/// Splits every tablet there is, and waits until their children are.
fn split_all(local: &Local, through: u32) {
    let before = tablets(local, through);
    for tablet in &before {
        admin(local, through, &["split", &tablet.to_string()]);
    }
    wait_for(
        "every tablet has two children",
        || tablets(local, through),
        |now| now.len() == 2 * before.len() && now.is_disjoint(&before),
    );
}

/// Has all tablets split or merged twice while rows are written and read: no request fails.
fn twice_under_load(local: &Local, reshape: impl Fn(&Local, u32)) {
    let loads: Vec<Load> = (1..=3).map(|number| Load::start(local.address(number))).collect();
    loads.iter().for_each(|load| load.go_on(200));
    for through in [1, 2] {
        reshape(local, through);
        loads.iter().for_each(|load| load.go_on(200));
    }
    for load in loads {
        expect_no_failures(local, &load.finish(local, 3));
    }
    wait_for("nothing is left of it, and nothing is at risk", || is_quiet(local, 1), |is_quiet| *is_quiet);
}

/// Each row is there once, wherever it is asked for, before and after everybody was killed; each node keeps as many tablets, and nothing else.
fn each_row_is_there_once(local: &Local, kept: usize) {
    let before: Vec<i64> =
        (1..=3).map(|number| count(&mut Client::connect(&local.address(number)).unwrap(), "ks.t")).collect();
    assert!(before.iter().all(|rows| *rows == before[0] && *rows >= 600), "{before:?}");
    local.run(&["kill", "1", "2", "3"]);
    local.run(&["start", "1", "2", "3"]);
    assert_eq!(count(&mut Client::connect(&local.address(2)).unwrap(), "ks.t"), before[0]);
    for number in 1..=3 {
        let tablets = local.directory().join(format!("node-{number}/data/tablets"));
        let found = || std::fs::read_dir(&tablets).unwrap().count();
        wait_for("a node that learns what has been dropped removes it", found, |found| *found == kept);
    }
}

#[test]
fn tablets_split_under_load_without_a_failed_request() {
    let local = with_table(3, &["--rf", "3"]);
    let first = tablets(&local, 1).into_iter().next().unwrap();
    twice_under_load(&local, split_all);
    let gone = admin_output(&local, 1, &["split", &first.to_string()]);
    assert_eq!(gone.status.code(), Some(1), "it is no more");
    // The catalog and 48 grandchildren.
    each_row_is_there_once(&local, 49);
}

/// An index of the log of the replica on a node, as it says; 0 while it does not.
fn index_on(local: &Local, tablet: u64, node: u64, which: &str) -> u64 {
    let output = admin_output(local, 1, &["tablet", &tablet.to_string(), "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let mut replicas = answer["replicas"].as_array().into_iter().flatten();
    let of_node = replicas.find(|replica| replica["node"] == node);
    of_node.and_then(|replica| replica[which].as_u64()).unwrap_or_default()
}

#[test]
fn a_node_that_was_down_while_tablets_were_split_takes_part_again() {
    let local = with_table(3, &["--rf", "3"]);
    let load = Load::start(local.address(1));
    load.go_on(200);
    local.run(&["kill", "3"]);
    split_all(&local, 1);
    load.go_on(200);
    let (first, third) = (id_of(&local, 1), id_of(&local, 3));
    let children = tablets(&local, 1).into_iter();
    let committed: Vec<(u64, u64)> =
        children.map(|child| (child, index_on(&local, child, first, "commit_index"))).collect();
    assert!(committed.len() == 24 && committed.iter().all(|(_, index)| *index > 0), "{committed:?}");
    local.run(&["start", "3"]);
    // By a copy, from the log if that reaches back to the parent's beginning, or from a parent that is still there.
    let lacking = || -> Vec<u64> {
        let lacks = |(child, index): &&(u64, u64)| index_on(&local, *child, third, "applied_index") < *index;
        committed.iter().filter(lacks).map(|(child, _)| *child).collect()
    };
    wait_for("it holds of every child what was committed without it", lacking, Vec::is_empty);
    local.run(&["kill", "2"]);
    load.go_on(200);
    let failures = load.finish(&local, 3);
    let allowed = |failure: &String| ["WriteTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    assert!(failures.iter().all(allowed), "{failures:?}");
}

#[test]
fn nodes_killed_amid_splits_lose_nothing() {
    let local = with_table(3, &["--rf", "3"]);
    let load = Load::start(local.address(1));
    load.go_on(200);
    let before = tablets(&local, 1);
    for tablet in &before {
        admin(&local, 1, &["split", &tablet.to_string()]);
    }
    for killed in [&["2"][..], &["3"], &["2", "3"]] {
        load.go_on(20);
        local.run(&[&["kill"], killed].concat());
        local.run(&[&["start"], killed].concat());
    }
    wait_for(
        "every tablet has two children",
        || tablets(&local, 1),
        |now| now.len() == 2 * before.len() && now.is_disjoint(&before),
    );
    load.go_on(100);
    let failures = load.finish(&local, 2);
    let allowed = |failure: &String| ["WriteTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    assert!(failures.iter().all(allowed), "{failures:?}");
    wait_for("parents are gone and nothing is at risk", || is_quiet(&local, 1), |is_quiet| *is_quiet);
}

#[test]
fn tablets_over_the_size_are_split_until_none_is() {
    const ROWS: u32 = 600;
    let local = with_table(3, &["--rf", "3"]);
    let mut client = Client::connect(&local.address(1)).unwrap();
    // Hard to compress: about 3.5 MB for each of twelve tablets.
    let mut random = 1u64;
    for row in 0..ROWS {
        let value: String = (0..8_960)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                format!("{random:016x}")
            })
            .collect();
        client.run(&format!("INSERT INTO ks.t (k, v) VALUES ('{row}', 0x{value})"));
    }
    // What is in memory does not count: a node that is stopped writes it.
    for node in ["1", "2", "3"] {
        local.run(&["stop", node]);
        local.run(&["start", node]);
    }
    admin(&local, 1, &["set-split-size", "1MiB"]);
    wait_for("tablets are of half the size and half of that", || tablets(&local, 2).len(), |tablets| *tablets >= 40);
    wait_for("nothing is split any more", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    admin(&local, 1, &["set-split-size", "0"]);
    let now = tablets(&local, 1).len();
    assert!(now <= 80, "{now} tablets of 43 MB");
    for node in 1..=3 {
        assert_eq!(count(&mut Client::connect(&local.address(node)).unwrap(), "ks.t"), i64::from(ROWS));
    }
    // All that is small now, as far as the table has been given more than it was created with.
    wait_for("small neighbours are merged again", || tablets(&local, 3).len(), |tablets| *tablets == 12);
    wait_for("nothing is merged any more", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    for node in 1..=3 {
        assert_eq!(count(&mut Client::connect(&local.address(node)).unwrap(), "ks.t"), i64::from(ROWS));
    }
}

/// Merges every other tablet into the one after it, and waits until that is done.
fn merge_pairs(local: &Local, through: u32) {
    let answer = ask(local, through, "tablets").unwrap_or_default();
    let mut in_order: Vec<(i64, u64)> = answer
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tablet| Some((tablet["first_token"].as_i64()?, tablet["tablet"].as_u64()?)))
        .collect();
    in_order.sort_unstable();
    for (_, tablet) in in_order.iter().step_by(2) {
        admin(local, through, &["merge", &tablet.to_string()]);
    }
    let wanted: BTreeSet<u64> = in_order.iter().skip(1).step_by(2).map(|(_, tablet)| *tablet).collect();
    wait_for("every other tablet is left", || tablets(local, through), |now| *now == wanted);
}

#[test]
fn neighbours_merge_under_load_without_a_failed_request() {
    let local = with_table(3, &["--rf", "3"]);
    twice_under_load(&local, merge_pairs);
    // The catalog and three of twelve.
    each_row_is_there_once(&local, 4);
}

#[test]
fn nodes_killed_amid_merges_lose_nothing() {
    let local = with_table(3, &["--rf", "3"]);
    let load = Load::start(local.address(1));
    load.go_on(200);
    let before: Vec<u64> = tablets(&local, 1).into_iter().collect();
    for tablet in before.iter().step_by(2) {
        admin(&local, 1, &["merge", &tablet.to_string()]);
    }
    for killed in [&["2"][..], &["3"], &["2", "3"]] {
        load.go_on(20);
        local.run(&[&["kill"], killed].concat());
        local.run(&[&["start"], killed].concat());
    }
    wait_for("half of them are left", || tablets(&local, 1).len(), |now| *now == before.len() / 2);
    load.go_on(100);
    let failures = load.finish(&local, 2);
    let allowed = |failure: &String| ["WriteTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    assert!(failures.iter().all(allowed), "{failures:?}");
    wait_for("nothing is at risk", || is_quiet(&local, 1), |is_quiet| *is_quiet);
}

#[test]
fn a_tablet_over_the_load_is_split_and_one_hot_partition_is_left_alone() {
    let local = with_tablets(3, &["--rf", "3"], 1);
    let first = tablets(&local, 1);
    let mut client = Client::connect(&local.address(1)).unwrap();
    client.run("CREATE TABLE ks.hot (k text PRIMARY KEY, v blob) WITH tablets = 1");
    client.run("INSERT INTO ks.hot (k, v) VALUES ('one', 0x01)");
    let both = tablets(&local, 1);
    let hot: BTreeSet<u64> = both.difference(&first).copied().collect();
    assert_eq!((first.len(), hot.len()), (1, 1));
    let writers: Vec<Load> = (1..=3).map(|number| Load::start(local.address(number))).collect();
    let reader = Load::of(local.address(1), |_| "SELECT v FROM ks.hot WHERE k = 'one'".to_owned());
    writers.iter().for_each(|load| load.go_on(100));
    // Amid a split it finds fault with a tablet that has no leader for a moment.
    let status = || String::from_utf8(admin_output(&local, 2, &["status"]).stdout).unwrap();
    // By default nothing is split at such a load; each tablet has many times this one.
    admin(&local, 1, &["set-split-load", "10"]);
    assert!(status().contains("tablets over 64.0 GiB or 10 operations/s"));
    wait_for("the tablet with many partitions is split", || tablets(&local, 1), |now| now.is_disjoint(&first));
    let is_left_alone = |number: u32| {
        let log = std::fs::read_to_string(local.directory().join(format!("node-{number}/log.txt"))).unwrap();
        log.lines().any(|line| line.contains("on one partition: it is not split"))
    };
    wait_for("the other is left alone", || (1..=3).any(is_left_alone), |is_left_alone| *is_left_alone);
    admin(&local, 1, &["set-split-load", "0"]);
    let now = tablets(&local, 1);
    assert!(now.len() >= 3 && now.is_superset(&hot), "{now:?}: {hot:?} has one partition");
    assert!(status().contains("tablets over 64.0 GiB\n"));
    expect_no_failures(&local, &reader.end().0);
    // Each half has about half of the load: what was written since the first split is spread over both.
    let served = |tablet: u64| {
        let answer = admin(&local, 1, &["tablet", &tablet.to_string(), "--json"]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let replicas = answer["replicas"].as_array().unwrap();
        replicas.iter().map(|replica| replica["writes"].as_u64().unwrap()).sum::<u64>()
    };
    writers.iter().for_each(|load| load.go_on(100));
    if now.len() == 3 {
        let halves: Vec<u64> = now.difference(&hot).map(|tablet| served(*tablet)).collect();
        assert!(halves[0].min(halves[1]) * 4 >= halves[0] + halves[1], "{halves:?}");
    }
    for load in writers {
        expect_no_failures(&local, &load.finish(&local, 3));
    }
    wait_for("parents are gone and nothing is at risk", || is_quiet(&local, 1), |is_quiet| *is_quiet);
}
