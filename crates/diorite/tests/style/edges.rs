//! Which crate may depend on which. A new edge is a decision: it is added here, with ARCHITECTURE.md, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

use crate::{expect_none, root};

/// Crate, then the crates of this workspace that it may build on.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("history", &["base"]),
    ("seeds", &[]),
    ("golden", &[]),
    ("cql", &["base"]),
    ("model", &["base"]),
    ("raft", &["base"]),
    ("transact", &["base"]),
    ("cluster", &["base", "model"]),
    ("control", &["base", "model", "cluster"]),
    ("storage", &["base", "raft"]),
    ("certs", &["base"]),
    ("rpc", &["base", "certs"]),
    ("query", &["base", "cql", "model", "cluster", "transact"]),
    ("replica", &["base", "raft", "storage", "rpc", "transact"]),
    ("admin", &["base"]),
    (
        "node",
        &[
            "base", "cql", "model", "raft", "cluster", "control", "storage", "rpc", "query", "replica", "admin",
            "certs", "transact",
        ],
    ),
    ("local", &["base", "certs"]),
    ("workload", &["base", "local"]),
    ("diorite", &["admin", "certs", "cluster", "node", "local", "workload"]),
    (
        "sim",
        &[
            "base", "history", "cql", "model", "cluster", "control", "query", "raft", "storage", "rpc", "replica",
            "transact",
        ],
    ),
];

/// Edges that only a crate's own tests need.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("diorite", &["base", "cql", "history"]),
    ("base", &["golden"]),
    ("cql", &["seeds"]),
    ("model", &["golden", "seeds"]),
    ("raft", &["golden"]),
    ("transact", &["golden"]),
    ("storage", &["golden"]),
    ("cluster", &["golden", "seeds"]),
    ("control", &["golden"]),
    ("query", &["golden", "seeds"]),
    ("rpc", &["golden", "seeds"]),
    ("replica", &["golden", "seeds"]),
    ("admin", &["golden", "seeds"]),
    ("node", &["golden", "seeds"]),
];

/// External crates that have one home, because only that home may know what stands behind it.
const HOMES: &[(&str, &[&str])] = &[
    ("rust-rocksdb", &["storage"]),
    ("raft-engine", &["storage"]),
    ("raft", &["raft", "storage", "replica"]),
    ("scylla", &["workload"]),
    ("maud", &["admin", "workload"]),
    ("rcgen", &["certs"]),
    ("rustls-webpki", &["certs"]),
    ("x509-cert", &["certs"]),
];

/// Crates that do no input or output, and the external crates that would bring it in.
const PURE: &[&str] = &["base", "history", "cql", "model", "raft", "transact", "cluster", "control", "query"];
const IMPURE: &[&str] =
    &["tokio", "rustix", "socket2", "axum", "rust-rocksdb", "raft-engine", "tempfile", "libc", "mio"];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo describes the workspace")
}

/// `diorite-base` is called `base` in the lists; `diorite` is itself.
fn short(package: &str) -> &str {
    package.strip_prefix("diorite-").unwrap_or(package)
}

fn allowed(list: &'static [(&str, &[&str])], package: &str) -> &'static [&'static str] {
    list.iter().find(|(name, _)| *name == package).map_or(&[], |(_, targets)| targets)
}

#[test]
fn crates_depend_only_on_those_listed() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let from = short(&package.name);
        for dependency in package.dependencies.iter().filter(|dependency| ours.contains(dependency.name.as_str())) {
            let to = short(&dependency.name);
            let for_tests = dependency.kind == DependencyKind::Development;
            let listed = allowed(EDGES, from).contains(&to) || (for_tests && allowed(TEST_EDGES, from).contains(&to));
            if !listed {
                findings.push(format!("{from} → {to}{}", if for_tests { " (tests only)" } else { "" }));
            }
        }
    }
    expect_none("crate edges that are not in the list:", &findings);
}

#[test]
fn the_list_names_every_crate_and_no_other() {
    let metadata = metadata();
    let present: BTreeSet<&str> = metadata.packages.iter().map(|package| short(&package.name)).collect();
    let listed: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, present, "the edge list and the workspace name different crates");
}

#[test]
fn the_list_is_ordered_bottom_to_top_and_so_has_no_cycle() {
    let rank: BTreeMap<&str, usize> = EDGES.iter().enumerate().map(|(rank, (name, _))| (*name, rank)).collect();
    for (from, targets) in EDGES {
        for to in *targets {
            assert!(rank[to] < rank[from], "{from} → {to}: {to} stands above {from} in the list");
        }
    }
}

#[test]
fn external_crates_stay_in_their_homes() {
    let mut findings = Vec::new();
    for package in &metadata().packages {
        let from = short(&package.name);
        for dependency in package.dependencies.iter().filter(|edge| edge.kind != DependencyKind::Development) {
            let to = dependency.name.as_str();
            if HOMES.iter().any(|(name, homes)| *name == to && !homes.contains(&from)) {
                findings.push(format!("{from} uses {to}"));
            }
            if PURE.contains(&from) && IMPURE.contains(&to) {
                findings.push(format!("{from} does no input or output, yet uses {to}"));
            }
        }
    }
    expect_none("external crates outside their home:", &findings);
}
