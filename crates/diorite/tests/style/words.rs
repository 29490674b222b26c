//! What no committed file may say: paths of one person's machine, and registries by host name (a mirror or a move of the
//! registry must not need a commit).

use crate::{committed_files, expect_none, root};

/// Split, so that this file does not hold what it forbids.
const BANNED: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("arti", "factory"),
    concat!("registry.", "npmjs"),
    concat!("repo1.", "maven"),
    concat!("repo.maven.", "apache"),
    concat!("files.python", "hosted"),
    concat!("proxy.golang", ".org"),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
];

#[test]
fn no_committed_file_names_a_machine_or_a_registry_host() {
    let mut findings = Vec::new();
    for path in committed_files() {
        let bytes = std::fs::read(root().join(&path)).unwrap();
        let Ok(text) = String::from_utf8(bytes) else { continue };
        for (number, line) in text.lines().enumerate() {
            for word in BANNED.iter().filter(|word| line.contains(**word)) {
                findings.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    expect_none("machine paths and registry hosts in committed files:", &findings);
}

#[test]
fn committed_files_are_small() {
    const LIMIT_BYTES: u64 = 1 << 20;
    let findings: Vec<String> = committed_files()
        .into_iter()
        .filter_map(|path| {
            let size_bytes = std::fs::metadata(root().join(&path)).unwrap().len();
            (size_bytes > LIMIT_BYTES).then(|| format!("{path}: {size_bytes} bytes, at most {LIMIT_BYTES}"))
        })
        .collect();
    expect_none("files too large for a source repository:", &findings);
}
