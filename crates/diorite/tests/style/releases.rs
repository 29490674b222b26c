//! The version of the workspace, which nodes say about themselves, is that of the release to come: `RELEASES` has those
//! before it.

use crate::read;

/// A version as numbers; what follows a `-` says that it is not released yet.
fn numbers(version: &str) -> Vec<u64> {
    let (released, _) = version.split_once('-').unwrap_or((version, ""));
    released.split('.').map(|number| number.parse().unwrap_or_else(|error| panic!("{version}: {error}"))).collect()
}

#[test]
fn the_version_of_the_workspace_is_after_all_releases() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let version = manifest["workspace"]["package"]["version"].as_str().unwrap();
    let listing = read("RELEASES");
    let releases: Vec<Vec<&str>> =
        listing.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect()).collect();
    let mut before = Vec::new();
    for release in &releases {
        let [number, commit, level, is_upgraded] = release[..] else { panic!("RELEASES: {release:?}") };
        assert!(numbers(number) > before, "RELEASES: {number} is not after the release before it");
        assert!(commit.chars().all(|digit| digit.is_ascii_hexdigit()), "RELEASES: {commit} is no commit");
        assert!(level.parse::<u32>().is_ok() && ["yes", "no"].contains(&is_upgraded), "RELEASES: {release:?}");
        before = numbers(number);
    }
    assert!(numbers(version) > before, "Cargo.toml: version {version} is not after the last release");
}
