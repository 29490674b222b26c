//! The golden bytes of what tablets store: keys, rows, headers, and what merging and compaction make of them.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod indexes;
mod keys;
mod values;

use diorite_base::Levels;
use diorite_golden::Golden;

fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}
