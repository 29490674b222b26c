//! The final checks of real rows.

use super::clients::{FIRST_NUMBER, RowClients};
use super::indexed::check_indexes;
use super::kv::{Asked, Given, Knows, at_rest, read_stored};
use super::schema::{COUNTERS, response};
use super::statements::{LIST_ROW, Meaning, TRANSFER_ROW, by_values, is_logged};
use crate::checkers::Finding;
use crate::cluster::Cluster;
use diorite_base::mutation::seconds;
use diorite_cql::protocol::client::ClientResponse;
use diorite_history::{check_appended, check_counter, check_several};
use diorite_query::index::{Specification, specifications};
use diorite_query::kv::Kv as _;
use diorite_storage::{DataView, TabletData as _};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The columns of the covering index.
const COVERED: [&str; 3] = ["k", "v", "w"];

/// The columns of the view.
const VIEWED: [&str; 4] = ["k", "v", "w", "x"];

/// The values of a row.
type Row = Vec<Option<Vec<u8>>>;

impl Cluster {
    /// Compares the clients' answers with the stored rows.
    pub fn judge_rows(&self) -> Result<(), Finding> {
        let Some(rows) = &self.rows else { return Ok(()) };
        check_indexes(self, &rows.world)?;
        let finding = |message| Err(Finding { checker: "rows", at_ns: self.now_ns(), message });
        if self.losses.are_any() {
            return Ok(());
        }
        let found = |key: u64| {
            let found = self.select(rows, &format!("SELECT n FROM n WHERE k = {key}"))?;
            Ok(found.first().and_then(|row| row[0].as_deref()).map_or(0, bigint))
        };
        let counters = (0..COUNTERS).map(|key| (key, Meaning::Increment(key)));
        for (key, meaning) in counters.chain(rows.world.pair.map(|key| (key, Meaning::Pair))) {
            let (count, found) = (rows.count(meaning), found(key)?);
            if let Err(violation) = check_counter(count.acknowledged, count.unknown, found) {
                return finding(format!("counter {key}: {violation}"));
            }
        }
        let [one, other] = rows.world.pair;
        if found(one)? != found(other)? {
            return finding(format!("{} and {} of a batch that increments both", found(one)?, found(other)?));
        }
        let partitions = rows.partitions();
        let listed = format!("SELECT l FROM t WHERE k = {} AND c = {LIST_ROW}", partitions[0]);
        let list = self.select(rows, &listed)?.first().and_then(|row| row[0].as_deref().map(ints)).unwrap_or_default();
        if let Err(violation) = check_appended(&rows.appends(), &list) {
            return finding(violation.to_string());
        }
        let moved = format!("SELECT v, w FROM t WHERE k = {} AND c = {TRANSFER_ROW}", partitions[0]);
        if let Some(row) = self.select(rows, &moved)?.first() {
            let [from, to] = [0, 1].map(|at| row[at].as_deref().map(signed));
            let most = rows.transfers();
            if !matches!((from, to), (Some(from), Some(to)) if from == -to && (0..=most as i64).contains(&to)) {
                return finding(format!("of at most {most} moved numbers {to:?} came and {from:?} went"));
            }
        }
        let mut found = BTreeMap::new();
        for partition in &partitions {
            let selected =
                self.select(rows, &format!("SELECT c FROM t WHERE k = {partition} AND c >= {FIRST_NUMBER}"))?;
            for number in selected.iter().filter_map(|row| row[0].as_deref()).map(int) {
                *found.entry(number).or_insert(0) += 1;
            }
        }
        let is_torn = |(number, count): &(&u64, &usize)| is_logged(**number) && **count != partitions.len();
        if let Some((number, count)) = found.iter().find(is_torn) {
            return finding(format!("{count} of {} rows of the logged batch {number}", partitions.len()));
        }
        self.judge_named(rows)?;
        self.judge_view(rows)?;
        self.judge_covering(rows)?;
        check_several(&rows.batches(), &found, partitions.len()).or_else(|violation| finding(violation.to_string()))
    }

    /// Checks the result of a statement over several tablets that was sent at this time: keys of partitions, and
    /// numbers.
    pub fn judge_scan(&self, sent_ns: u64, read: &[Row]) -> Result<(), Finding> {
        let Some(rows) = self.rows.as_ref().filter(|_| !self.losses.are_any()) else { return Ok(()) };
        let partitions = rows.partitions();
        let mut found = BTreeMap::new();
        for row in read {
            let [Some(partition), Some(number)] = row.as_slice() else { continue };
            if partitions.contains(&int(partition)) && int(number) >= FIRST_NUMBER {
                *found.entry(int(number)).or_insert(0) += 1;
            }
        }
        check_several(&rows.batches_before(sent_ns), &found, partitions.len()).map_err(|violation| Finding {
            checker: "rows",
            at_ns: self.now_ns(),
            message: format!("read by a statement of {} ms: {violation}", sent_ns / 1_000_000),
        })
    }

    /// Checks a read of all accounts that was sent at this time: amounts and counts.
    pub fn judge_total(&mut self, sent_ns: u64, read: &[Row]) -> Result<(), Finding> {
        let Some(rows) = self.rows.as_ref().filter(|_| !self.losses.are_any()) else { return Ok(()) };
        let finding = |message| Err(Finding { checker: "rows", at_ns: self.now_ns(), message });
        let (accounts, (least, most)) = (rows.partitions().len(), rows.moves(sent_ns));
        let sum = |at: usize| read.iter().filter_map(|row| row[at].as_deref().map(signed)).sum::<i64>();
        let (total, counted) = (sum(0), sum(1));
        if !read.is_empty() && read.len() != accounts {
            return finding(format!("{} of {accounts} accounts are open: {read:?}", read.len()));
        }
        if total != 0 {
            return finding(format!("the accounts sum to {total}: {read:?}"));
        }
        if counted % 2 != 0 || !(2 * least as i64..=2 * most as i64).contains(&counted) {
            return finding(format!("{counted} was counted for {least} to {most} moves: {read:?}"));
        }
        self.reached.snapshots += u64::from(!read.is_empty() && accounts > 1);
        Ok(())
    }

    /// Checks a read of the table with a unique index, or of its view: keys and values.
    pub fn judge_claims(&self, read: &[Row]) -> Result<(), Finding> {
        if self.rows.is_none() || self.losses.are_any() {
            return Ok(());
        }
        let finding = |message| Err(Finding { checker: "rows", at_ns: self.now_ns(), message });
        let has_twice = |at: usize| {
            let mut seen = BTreeSet::new();
            read.iter().filter_map(|row| row[at].as_deref()).any(|value| !seen.insert(value))
        };
        if has_twice(1) {
            return finding(format!("two rows have the same value of a unique index: {read:?}"));
        }
        if has_twice(0) {
            return finding(format!("a materialized view has two rows for one: {read:?}"));
        }
        Ok(())
    }

    /// Checks that the table of the unique index names each row that has a value.
    fn judge_named(&self, rows: &RowClients) -> Result<(), Finding> {
        self.judge_claims(&self.select(rows, "SELECT k, v FROM u")?)?;
        let mut unnamed = rows.world.unnamed();
        let found = self.at_rest(rows, &mut unnamed)?;
        let finding = |message| Err(Finding { checker: "rows", at_ns: self.now_ns(), message });
        match found {
            Ok(found) if found.is_empty() => Ok(()),
            other => finding(format!("rows that the table of the unique index does not name: {other:?}")),
        }
    }

    /// The rows of a read that have a value, sorted.
    fn with_value(&self, rows: &RowClients, statement: &str) -> Result<Vec<Row>, Finding> {
        let mut found = self.select(rows, statement)?;
        found.retain(|row| row[1].is_some());
        found.sort();
        Ok(found)
    }

    /// Checks that the view has what follows from the rows of its table, and nothing else; while rows that were there
    /// before it are still to be added, it may lack some.
    fn judge_view(&self, rows: &RowClients) -> Result<(), Finding> {
        let of = |table: &str| self.with_value(rows, &format!("SELECT {} FROM {table}", VIEWED.join(", ")));
        let (of_table, of_view) = (of("u")?, of("uv")?);
        let lacks_rows = !self.has_whole_views() && of_view.iter().all(|row| of_table.contains(row));
        if of_table == of_view || lacks_rows || self.may_have_expired(rows, &VIEWED, (&of_table, &of_view))? {
            return Ok(());
        }
        let message = format!("a materialized view has {of_view:?}, its table {of_table:?}");
        Err(Finding { checker: "rows", at_ns: self.now_ns(), message })
    }

    /// Checks that a covering index that was found complete gives all rows that have a value.
    fn judge_covering(&self, rows: &RowClients) -> Result<(), Finding> {
        if !rows.world.kv.is_covering_complete() {
            return Ok(());
        }
        let all = format!("SELECT {} FROM u", COVERED.join(", "));
        let (of_table, of_index) = (self.with_value(rows, &all)?, self.with_value(rows, &by_values())?);
        if of_table == of_index || self.may_have_expired(rows, &COVERED, (&of_table, &of_index))? {
            return Ok(());
        }
        let message = format!("a covering index has {of_index:?}, its table {of_table:?}");
        Err(Finding { checker: "rows", at_ns: self.now_ns(), message })
    }

    /// Whether rows differ only because some may have expired. If a clock was ahead, so that the time of some log is, what
    /// has expired by that time may be gone from the tablets of one table, and still be seen in those of another by a clock
    /// that is right. Rows that do not expire are in both.
    fn may_have_expired(
        &self,
        rows: &RowClients,
        columns: &[&str],
        (of_table, derived): (&[Row], &[Row]),
    ) -> Result<bool, Finding> {
        let now_s = seconds(rows.world.kv.now_us());
        let lives = self.nodes.values().filter_map(|node| node.life.as_ref());
        let mut states = lives.flat_map(|life| life.handles.values()).map(|handle| handle.data().applied_state());
        if !states.any(|state| state.is_ok_and(|state| state.horizon.now_s > now_s)) {
            return Ok(false);
        }
        let (read, width) = (columns.join(", "), columns.len());
        let mut lasting = self.with_value(rows, &format!("SELECT {read}, ttl(v) FROM u"))?;
        lasting.retain(|row| row[width].is_none());
        let has = |found: &[Row], row: &Row| found.iter().any(|other| other[..] == row[..width]);
        let is_known = |row: &Row| !of_table.iter().any(|other| other[0] == row[0]) || has(of_table, row);
        Ok(lasting.iter().all(|row| has(derived, row)) && derived.iter().all(is_known))
    }

    /// Whether all rows have been added to the views that were there before them.
    pub fn has_whole_views(&self) -> bool {
        let Some(rows) = &self.rows else { return false };
        rows.world.kv.follow(&self.setting.newest, Knows::Views);
        let entry = rows.world.unique();
        let is_whole = |tablet| {
            let life = self.leader_of(tablet).and_then(|node| self.nodes[&node].life.as_ref());
            let stored = life.and_then(|life| specifications(&DataView(life.handles.get(&tablet)?.data())).ok());
            let has =
                |stored: &[(u64, Specification)], view: u64| stored.iter().any(|(id, of)| *id == view && of.is_done());
            stored.is_some_and(|stored| entry.table.views.iter().all(|view| has(&stored, view.id)))
        };
        entry.tablets.iter().all(|range| is_whole(range.tablet))
    }

    /// Carries a statement out at once, on the data of the tablets' leaders.
    fn select(&self, rows: &RowClients, statement: &str) -> Result<Vec<Row>, Finding> {
        rows.world.kv.follow(&self.setting.newest, Knows::All);
        match response(self.at_rest(rows, &mut rows.world.begin(statement))?) {
            Ok(ClientResponse::Rows(rows)) => Ok(rows.rows),
            other => {
                let message = format!("{statement}: {other:?}");
                Err(Finding { checker: "rows", at_ns: self.now_ns(), message })
            }
        }
    }

    /// Carries out reads at once, on the data of the tablets' leaders.
    fn at_rest<T>(
        &self,
        rows: &RowClients,
        reading: &mut Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Result<T, Finding> {
        let finding = |message| Finding { checker: "rows", at_ns: self.now_ns(), message };
        loop {
            match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answered) => return Ok(answered),
                Poll::Pending => {
                    for (number, tablet, asked) in rows.world.kv.take_new() {
                        let fetch = match asked {
                            Asked::Fetch(fetch) => fetch,
                            Asked::Write(mutation) => {
                                rows.world.kv.answer(number, at_rest(&mutation));
                                continue;
                            }
                            Asked::Pause(_) => {
                                rows.world.kv.answer(number, Ok(Given::Nothing));
                                continue;
                            }
                        };
                        let life = self.leader_of(tablet).and_then(|node| self.nodes[&node].life.as_ref());
                        let Some(handle) = life.and_then(|life| life.handles.get(&tablet)) else {
                            return Err(finding(format!("{tablet} is not led")));
                        };
                        let fetched = read_stored(handle, &fetch);
                        rows.world.kv.answer(number, Ok(Given::Fetched(fetched)));
                    }
                }
            }
        }
    }
}

fn int(bytes: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes(bytes.try_into().expect("an int has four bytes")))
}

fn signed(bytes: &[u8]) -> i64 {
    i64::from(i32::from_be_bytes(bytes.try_into().expect("an int has four bytes")))
}

fn bigint(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("a bigint has eight bytes"))
}

/// A list of int: how many, then each with its length before it.
fn ints(bytes: &[u8]) -> Vec<u64> {
    bytes[4..].chunks(8).map(|element| int(&element[4..])).collect()
}
