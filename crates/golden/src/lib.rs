//! Golden scripts for tests: text files in which the effects of each command follow the command. And golden bytes
//! ([`Golden`]): what each level writes of a format.
//!
//! ```text
//! # What the next commands show.
//!
//! > command arguments
//! what it did, a line each
//! ```
//!
//! The test of a crate runs a script and compares the result with the file. With `UPDATE_GOLDEN=1` it rewrites the file
//! instead; the difference is then reviewed in the commit. Always true: a folder without scripts fails, so that a
//! renamed folder is noticed.

mod levels;

pub use levels::{Decoded, Golden};

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The folder of the crate whose test runs, as Cargo sets it for the run: several checkouts may share compiled code.
///
/// # Panics
///
/// If Cargo does not run the test.
pub fn crate_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the test").into()
}

/// Runs every file of `folder` with `run`, which returns the wanted content of the file.
///
/// # Panics
///
/// If a file differs, or there are fewer than `at_least` files.
pub fn check_folder(folder: &Path, at_least: usize, run: impl Fn(&Path, &str) -> String) {
    let listed = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listed.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(paths.len() >= at_least, "{} holds {} scripts, not {at_least}", folder.display(), paths.len());
    for path in paths {
        let script = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let actual = run(&path, &script);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            continue;
        }
        let differing = actual.lines().zip(script.lines()).enumerate().find(|(_, (is, was))| is != was);
        if let Some((number, (is, was))) = differing {
            panic!("{}:{}: is `{is}`, was `{was}` (UPDATE_GOLDEN=1 rewrites it)", path.display(), number + 1);
        }
        assert_eq!(actual.len(), script.len(), "the length of {} (UPDATE_GOLDEN=1 rewrites it)", path.display());
    }
}

/// Runs the commands of a script, which are the lines that start with `> `, and returns the script with their effects:
/// for each command, `run` appends its effects as lines. Comments stay in their places.
pub fn run_commands(script: &str, mut run: impl FnMut(&str, &mut String)) -> String {
    let mut out = String::new();
    let mut is_comment = false;
    for line in script.lines() {
        let starts_comment = line.starts_with('#');
        if starts_comment {
            let gap = if is_comment || out.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{gap}{line}");
        } else if let Some(command) = line.strip_prefix("> ") {
            let _ = writeln!(out, "\n> {command}");
            run(command, &mut out);
        }
        is_comment = starts_comment;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(script: &str) -> String {
        run_commands(script, |command, out| out.push_str(&format!("{command}{command}\n")))
    }

    #[test]
    fn a_script_that_was_run_stays_as_it_is() {
        let once = double("# One.\n# Two.\n> a\nwhatever\n\n# Three.\n> b\n");
        assert_eq!(once, "# One.\n# Two.\n\n> a\naa\n\n# Three.\n\n> b\nbb\n");
        assert_eq!(double(&once), once);
    }

    #[test]
    #[should_panic(expected = "scripts, not 200")]
    fn a_folder_with_fewer_scripts_fails() {
        check_folder(&crate_folder().join("src/.."), 200, |_, script| script.to_owned());
    }
}
