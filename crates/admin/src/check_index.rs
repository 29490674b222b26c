//! `diorite admin check-index`: compares a secondary index or a view with its table, tablet by tablet, and names what
//! differs.
//!
//! Always true: each part is asked for by itself, so nothing goes on once the command has ended; what was found of a
//! tablet that is split or merged meanwhile is dropped, and its tokens are compared again. Left out: the comparison,
//! which the nodes that lead the tablets make.

use crate::api::{
    ComparedPart, ComparedUpTo, INDEXES, IndexDifference, IndexPart, MOST_NAMED, NamedDifference, WantedPart,
};
use crate::client::{AdminError, Client};
use crate::percent::encoded;
use crate::qualified::qualified;
use diorite_base::TabletId;
use diorite_base::text::{NOTHING, or_dash, table};
use serde::Serialize;
use std::time::Duration;

/// How often a part is asked for again while a node has no answer, and the pause before that.
const ATTEMPTS: usize = 5;
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Arguments of `check-index`.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckIndexArguments {
    /// The index, or the materialized view.
    #[arg(value_name = "KEYSPACE.INDEX")]
    pub index: String,
    /// Only this tablet.
    #[arg(long, value_name = "N")]
    pub tablet: Option<u64>,
}

/// A tablet that was compared, or as much of it as could be.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ComparedTablet {
    tablet: TabletId,
    first_token: i64,
    /// It is of the index table, or of the view.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    of_entries: bool,
    /// Why it was not compared to its end.
    failure: Option<String>,
    #[serde(flatten)]
    found: ComparedPart,
}

/// An index that was compared with its table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Report {
    index: String,
    tablets: Vec<ComparedTablet>,
    /// Tablets that were not compared, or not to their ends.
    failed: usize,
    /// Of all tablets, without what is named.
    total: ComparedPart,
}

/// What readers would not find, or find wrongly.
fn wrong(found: &ComparedPart) -> u64 {
    found.missing + found.unreadable + found.surplus
}

/// Adds what was found in one part to what was found before.
fn add(sum: &mut ComparedPart, part: ComparedPart) {
    sum.leader = part.leader.or(sum.leader);
    sum.rows += part.rows;
    sum.values += part.values;
    sum.missing += part.missing;
    sum.entries += part.entries;
    sum.right += part.right;
    sum.stale += part.stale;
    sum.surplus += part.surplus;
    sum.of_other_tablets += part.of_other_tablets;
    sum.unreadable += part.unreadable;
    sum.bytes += part.bytes;
    for named in part.named {
        let same = sum.named.iter().filter(|known| known.difference == named.difference);
        if same.count() < MOST_NAMED {
            sum.named.push(named);
        }
    }
}

impl Report {
    /// Whether nothing is missing, and everything was compared.
    pub(crate) fn is_right(&self) -> bool {
        self.failed == 0 && wrong(&self.total) == 0
    }

    fn take(&mut self, part: IndexPart) {
        let IndexPart { tablet, first_token, is_begin, of_entries, failure, found, .. } = part;
        if is_begin {
            // A tablet that was split or merged meanwhile has not come to its end.
            self.tablets.retain(|known| (known.of_entries, known.first_token) < (of_entries, first_token));
            let found = ComparedPart::default();
            self.tablets.push(ComparedTablet { tablet, first_token, of_entries, failure: None, found });
        }
        let Some(last) = self.tablets.last_mut() else { return };
        last.failure = failure;
        add(&mut last.found, found);
    }

    fn close(&mut self) {
        self.failed = self.tablets.iter().filter(|tablet| tablet.failure.is_some()).count();
        for tablet in &self.tablets {
            add(&mut self.total, ComparedPart { leader: None, named: Vec::new(), ..tablet.found.clone() });
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a command that a person waits for")]
fn wait(duration: Duration) {
    std::thread::sleep(duration);
}

/// Asks for a part, again if a node has no answer now.
fn ask(client: &Client, path: &str, wanted: &WantedPart) -> Result<IndexPart, AdminError> {
    let body = serde_json::to_value(wanted).map_err(std::io::Error::other)?;
    for _ in 1..ATTEMPTS {
        match client.post(path, &body) {
            Err(error) if error.is_temporary() => wait(ASK_AGAIN),
            answer => return answer,
        }
    }
    client.post(path, &body)
}

/// Carries out the command.
pub(crate) fn carry_out(client: &Client, arguments: &CheckIndexArguments) -> Result<Report, AdminError> {
    let (keyspace, name) = qualified(&arguments.index)?;
    let path = format!("{INDEXES}/{}/{}/check", encoded(keyspace), encoded(name));
    let only = arguments.tablet.map(TabletId);
    let mut report = Report { index: arguments.index.clone(), ..Report::default() };
    let mut from: Option<ComparedUpTo> = None;
    loop {
        let part = ask(client, &path, &WantedPart { tablet: only.filter(|_| from.is_none()), from })?;
        let (pause, next, tablet) = (Duration::from_millis(part.found.wait_ms), part.next.clone(), part.tablet);
        report.take(part);
        from = next;
        if from.as_ref().is_none_or(|next| only.is_some() && next.tablet != tablet) {
            break;
        }
        wait(pause);
    }
    report.close();
    Ok(report)
}

/// The report as a table.
pub(crate) fn shown(report: &Report) -> String {
    let names = [
        "tablet",
        "leader",
        "rows",
        "values",
        "missing",
        "entries",
        "right",
        "stale",
        "surplus",
        "of others",
        "unreadable",
        "state",
    ];
    let row = |name: String, found: &ComparedPart, state: String| {
        let number = |number: u64| number.to_string();
        [
            name,
            or_dash(found.leader, |node| node.0.to_string()),
            number(found.rows),
            number(found.values),
            number(found.missing),
            number(found.entries),
            number(found.right),
            number(found.stale),
            number(found.surplus),
            number(found.of_other_tablets),
            number(found.unreadable),
            state,
        ]
    };
    let state = |tablet: &ComparedTablet| match &tablet.failure {
        Some(reason) => format!("not compared: {reason}"),
        None if wrong(&tablet.found) > 0 => "wrong".to_owned(),
        None => "right".to_owned(),
    };
    let tablets = report.tablets.iter().map(|one| row(one.tablet.0.to_string(), &one.found, state(one)));
    let whole = match (report.is_right(), report.failed) {
        (true, _) => "right".to_owned(),
        (false, 0) => "wrong".to_owned(),
        (false, failed) => format!("{failed} tablets are not compared"),
    };
    let all = [row("all".to_owned(), &report.total, whole)];
    let named = report.tablets.iter().flat_map(|tablet| {
        let mut named: Vec<&NamedDifference> = tablet.found.named.iter().collect();
        named.sort_by_key(|one| one.difference);
        named.into_iter().map(|one| difference(tablet.tablet, one))
    });
    format!("{}{}", table(names, tablets.chain(all)), named.collect::<String>())
}

/// `missing in tablet 7: k = 3 has the value 0x80000005`
fn difference(tablet: TabletId, one: &NamedDifference) -> String {
    let NamedDifference { row, value, .. } = one;
    let value = if value.is_empty() { NOTHING.to_owned() } else { format!("0x{value}") };
    let (kind, what) = match one.difference {
        IndexDifference::Missing => ("missing", format!("{row} has the value {value} without an entry")),
        IndexDifference::Unreadable => ("unreadable", format!("the entry 0x{row}")),
        IndexDifference::Stale => ("stale", format!("{row} does not have the value {value} of an entry")),
        IndexDifference::Surplus => ("surplus", format!("the view's row {value} does not follow from {row}")),
    };
    format!("{kind} in tablet {}: {what}\n", tablet.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::NodeId;

    fn part(tablet: u64, first_token: i64, is_begin: bool, missing: u64) -> IndexPart {
        let named = NamedDifference {
            difference: IndexDifference::Missing,
            row: "k = 3".to_owned(),
            value: "80000005".to_owned(),
        };
        let found = ComparedPart {
            leader: Some(NodeId(2)),
            rows: 10,
            values: 10,
            missing,
            named: vec![named; missing as usize],
            place: Some("rows:00".to_owned()),
            ..ComparedPart::default()
        };
        IndexPart {
            tablet: TabletId(tablet),
            first_token,
            is_begin,
            of_entries: false,
            failure: None,
            found,
            next: None,
        }
    }

    fn report(parts: impl IntoIterator<Item = IndexPart>) -> Report {
        let mut report = Report::default();
        parts.into_iter().for_each(|part| report.take(part));
        report.close();
        report
    }

    #[test]
    fn parts_of_a_tablet_are_one_line_and_differences_are_named() {
        let right = report([part(7, -100, true, 0), part(7, -100, false, 0), part(8, 5, true, 0)]);
        assert!(right.is_right());
        assert_eq!((right.tablets.len(), right.total.rows, right.tablets[0].found.rows), (2, 30, 20));
        let wrong = report([part(7, -100, true, 0), part(8, 5, true, 15), part(8, 5, false, 15)]);
        assert!(!wrong.is_right());
        assert_eq!((wrong.total.missing, wrong.tablets[1].found.named.len()), (30, MOST_NAMED));
        let shown = shown(&wrong);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["7", "2", "10", "10", "0", "0", "0", "0", "0", "0", "0", "right"], "{shown}");
        assert_eq!(lines[2], ["8", "2", "20", "20", "30", "0", "0", "0", "0", "0", "0", "wrong"], "{shown}");
        assert_eq!(lines[3], ["all", "–", "30", "30", "30", "0", "0", "0", "0", "0", "0", "wrong"], "{shown}");
        let named = "missing in tablet 8: k = 3 has the value 0x80000005 without an entry";
        assert_eq!(shown.lines().skip(4).collect::<Vec<_>>(), [named; MOST_NAMED]);
    }

    #[test]
    fn a_tablet_that_is_split_or_merged_meanwhile_counts_once() {
        let parts = [part(7, -100, true, 0), part(8, 5, true, 3), part(9, 5, true, 0), part(10, 50, true, 0)];
        let found = report(parts);
        assert_eq!(found.tablets.iter().map(|one| one.tablet.0).collect::<Vec<_>>(), [7, 9, 10]);
        assert!(found.is_right());
        // The tablet before has taken the rows of the one that was compared.
        let found = report([part(7, -100, true, 0), part(8, 5, true, 0), part(7, -100, true, 1)]);
        assert_eq!((found.tablets.len(), found.total.missing), (1, 1));
    }

    #[test]
    fn tablets_of_entries_stand_beside_those_of_rows() {
        let of_entries = |part: IndexPart, surplus| IndexPart {
            of_entries: true,
            found: ComparedPart { surplus, ..part.found },
            ..part
        };
        let rows = || [part(7, i64::MIN, true, 0), part(8, 5, true, 0)];
        let right = report(rows().into_iter().chain([of_entries(part(9, i64::MIN, true, 0), 0)]));
        assert_eq!((right.tablets.len(), right.is_right()), (3, true));
        // Its second tablet was merged into the first one meanwhile.
        let merged = [
            of_entries(part(9, i64::MIN, true, 0), 0),
            of_entries(part(10, 3, true, 0), 1),
            of_entries(part(9, i64::MIN, true, 0), 2),
        ];
        let wrong = report(rows().into_iter().chain(merged));
        assert_eq!((wrong.tablets.len(), wrong.total.surplus, wrong.is_right()), (3, 2, false));
    }

    #[test]
    fn a_tablet_that_is_not_compared_is_not_right() {
        let failed = IndexPart { failure: Some("tablet 8 has no leader".to_owned()), ..part(8, 5, true, 0) };
        let found = report([part(7, -100, true, 0), failed]);
        assert!(!found.is_right());
        let shown = shown(&found);
        assert!(shown.contains("not compared: tablet 8 has no leader"), "{shown}");
        assert!(shown.contains("1 tablets are not compared"), "{shown}");
    }
}
