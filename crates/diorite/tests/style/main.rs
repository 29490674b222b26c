//! Style as a test: the rules that `CONTRIBUTING.md` states and a machine can hold.
//!
//! Each module holds one family: which crate may use which (`edges`), that modules use each other in one direction
//! (`modules`), what a Rust file must look like (`sources`), what no committed file may say (`words`), which terms are used
//! and which are retired (`glossary`), and that documents point at things that exist (`documents`).
//! Left out: what rustfmt and clippy already hold (`make lint`): format, `unwrap`, clocks, sleeps, unbounded queues, safety
//! comments.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod documents;
mod edges;
mod glossary;
mod modules;
mod releases;
mod signatures;
mod sources;
mod types;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root folder.
pub fn root() -> PathBuf {
    // As Cargo says when it runs the test: checkouts at several places may share what is compiled.
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the test");
    Path::new(&folder).ancestors().nth(2).unwrap().to_path_buf()
}

/// Every file that is committed or about to be, relative to the root, in order.
pub fn committed_files() -> Vec<String> {
    let listing = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(root())
        .output()
        .expect("git lists the committed files");
    assert!(listing.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listing.stderr));
    let mut files: Vec<String> = String::from_utf8(listing.stdout)
        .unwrap()
        .split_terminator('\0')
        .filter(|path| root().join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files
}

/// The text of a file given relative to the root.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails with every finding at once, so that one run is enough to mend them all.
pub fn expect_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}\n  {}\n", findings.join("\n  "));
}
