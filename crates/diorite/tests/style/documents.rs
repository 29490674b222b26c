//! Documents point at things that exist: every relative link and anchor in a committed Markdown file resolves, and every
//! `make` target that README names is in the Makefile. Decision pages have their four parts. Links to other sites are not
//! followed.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::{committed_files, expect_none, read, root};

/// The lines of a Markdown text that are prose: outside fenced blocks, with inline code blanked.
pub fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let outside_code = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            lines.push((number + 1, outside_code));
        }
    }
    lines
}

/// The targets of `[text](target)` in one line.
fn links(line: &str) -> Vec<&str> {
    line.match_indices("](")
        .filter_map(|(start, _)| {
            let rest = &line[start + 2..];
            rest.find(')').map(|end| rest[..end].split_whitespace().next().unwrap_or(""))
        })
        .collect()
}

/// A heading's anchor, as the usual renderers make it.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with('#') {
            found.insert(anchor(line));
        }
    }
    found
}

/// `folder/../file` without the detour.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// Why a link in `document` leads nowhere, if it does.
fn broken(document: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => PathBuf::from(document),
        file => normal(&Path::new(document).parent().unwrap().join(file)),
    };
    if !root().join(&path).exists() {
        return Some(format!("{target}: no such file"));
    }
    let is_document = path.extension().is_some_and(|extension| extension == "md");
    let missing = is_document && !fragment.is_empty() && !anchors(&read(path.to_str().unwrap())).contains(fragment);
    missing.then(|| format!("{target}: no such heading"))
}

#[test]
fn links_in_documents_resolve() {
    let mut findings = Vec::new();
    for document in committed_files().into_iter().filter(|path| path.ends_with(".md")) {
        for (number, line) in prose(&read(&document)) {
            for target in links(&line) {
                findings.extend(broken(&document, target).map(|why| format!("{document}:{number}: {why}")));
            }
        }
    }
    expect_none("links that lead nowhere:", &findings);
}

#[test]
fn documents_name_only_make_targets_that_exist() {
    let makefile = read("Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(':').map(|(target, _)| target))
        .filter(|target| !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'))
        .collect();
    let mut findings = Vec::new();
    for document in ["README.md", "CONTRIBUTING.md"] {
        for (number, line) in read(document).lines().enumerate() {
            let after_make =
                line.split("make ").skip(1).filter(|_| line.contains("`make ") || line.starts_with("make "));
            for rest in after_make {
                let target: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                if !targets.contains(target.as_str()) {
                    findings.push(format!("{document}:{}: make {target}", number + 1));
                }
            }
        }
    }
    expect_none("make targets that do not exist:", &findings);
}

#[test]
fn decision_pages_have_four_parts() {
    let parts = ["## Context", "## Decision", "## Consequences", "## Measurements"];
    let mut findings = Vec::new();
    for path in committed_files().into_iter().filter(|path| path.starts_with("docs/decisions/")) {
        let text = read(&path);
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if found != parts {
            findings.push(format!("{path}: {found:?}"));
        }
    }
    expect_none("decision pages whose headings are not Context, Decision, Consequences, Measurements:", &findings);
}

#[test]
fn anchors_are_made_as_renderers_make_them() {
    assert_eq!(anchor("## Start a node, connect"), "start-a-node-connect");
    assert_eq!(links("see [a](b.md#c) and [d](e)"), ["b.md#c", "e"]);
    assert_eq!(normal(Path::new("docs/../README.md")), Path::new("README.md"));
}
