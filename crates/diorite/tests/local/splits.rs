//! Tablets are split in place while they are written to: no request fails, nothing is lost, and what a node missed it makes up for.

use crate::Local;
use crate::client::{Client, count};
use crate::operations::{Load, admin, admin_output, ask, is_quiet, wait_for, with_table};
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

#[test]
fn tablets_split_under_load_without_a_failed_request() {
    let local = with_table(3, &["--rf", "3"]);
    let loads: Vec<Load> = (1..=3).map(|number| Load::start(local.address(number))).collect();
    loads.iter().for_each(|load| load.go_on(200));
    let first = tablets(&local, 1).into_iter().next().unwrap();
    split_all(&local, 1);
    loads.iter().for_each(|load| load.go_on(200));
    split_all(&local, 2);
    loads.iter().for_each(|load| load.go_on(200));
    for load in loads {
        let failures = load.finish(&local, 3);
        assert!(failures.is_empty(), "{failures:?}");
    }
    wait_for("parents are gone and nothing is at risk", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    let gone = admin_output(&local, 1, &["split", &first.to_string()]);
    assert_eq!(gone.status.code(), Some(1), "it is no more");
    // Each row is there once, wherever it is asked for, before and after everybody was killed.
    let before: Vec<i64> =
        (1..=3).map(|number| count(&mut Client::connect(&local.address(number)).unwrap(), "ks.t")).collect();
    assert!(before.iter().all(|rows| *rows == before[0] && *rows >= 600), "{before:?}");
    local.run(&["kill", "1", "2", "3"]);
    local.run(&["start", "1", "2", "3"]);
    assert_eq!(count(&mut Client::connect(&local.address(2)).unwrap(), "ks.t"), before[0]);
    for number in 1..=3 {
        let kept = std::fs::read_dir(local.directory().join(format!("node-{number}/data/tablets"))).unwrap().count();
        // The catalog and 48 grandchildren.
        assert_eq!(kept, 49, "node {number}: parents leave nothing behind");
    }
}

#[test]
fn a_node_that_was_down_while_tablets_were_split_takes_part_again() {
    let local = with_table(3, &["--rf", "3"]);
    let load = Load::start(local.address(1));
    load.go_on(200);
    local.run(&["kill", "3"]);
    split_all(&local, 1);
    load.go_on(200);
    local.run(&["start", "3"]);
    // What it has missed comes as copies, as the parents are gone.
    let log = local.directory().join("node-3/log.txt");
    let copied = || -> BTreeSet<String> {
        let log = std::fs::read_to_string(&log).unwrap();
        let lines = log.lines().filter(|line| line.contains("a copy has taken the place"));
        lines.filter_map(|line| Some(line.split_once("tablet=")?.1.split(' ').next()?.to_owned())).collect()
    };
    wait_for("it has all children", copied, |copied| copied.len() == 24);
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
