//! The golden bytes of what the query layer writes: programs of the log, requests for aggregates, paging states.
#![allow(clippy::unwrap_used, reason = "test data is known")]

mod indexes;
mod pages;
mod programs;

use diorite_base::Levels;
use diorite_golden::Golden;

pub(crate) fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}
