//! Transactions over several tablets, and reads of them in snapshots: many clients at once, whose futures are polled in
//! turn, against leaders in memory that carry out the protocol.

use super::memory::shared::Versions;
use super::memory::{Fate, yield_once};
use super::requests::refused;
use super::{Database, block_on, rendered_rows};
use crate::engine::Reply;
use diorite_base::limits::MAX_MUTATION_BYTES;
use diorite_base::random::{Random, SplitMix64};
use diorite_base::write::{KvError, Waited};
use diorite_cluster::catalog::Command;
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::error::ErrorCode;
use diorite_cql::protocol::{CqlError, Value, WriteType};
use futures::future::join_all;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

const ACCOUNTS: i64 = 12;
const TOTAL: i64 = 1_200;

fn bank() -> Database {
    let database = Database::with_keyspace();
    database
        .run("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint) WITH transactions = {'enabled': true}")
        .unwrap();
    database.run("CREATE INDEX ON accounts (balance) USING 'sai'").unwrap();
    for id in 0..ACCOUNTS {
        database.run(&format!("INSERT INTO accounts (id, balance) VALUES ({id}, {})", TOTAL / ACCOUNTS)).unwrap();
    }
    database
}

/// Accounts 1 and 7 are in different tablets.
fn transfer(from: u64, to: u64, amount: u64) -> String {
    format!(
        "BEGIN TRANSACTION UPDATE accounts SET balance = balance - {amount} WHERE id = {from}; \
         UPDATE accounts SET balance = balance + {amount} WHERE id = {to}; END TRANSACTION"
    )
}

impl Database {
    /// A statement as a future of its own.
    fn begin(&self, text: &str) -> impl Future<Output = Result<Reply, CqlError>> + use<> {
        let request = ClientRequest::Query { statement: text, parameters: Parameters::default() };
        let owned = self.owned(&request, super::unlimited());
        let (engine, session) = (Arc::clone(&self.engine), Arc::clone(&self.session));
        async move { engine.answer(session, owned).await.outcome }
    }

    fn rows_of(&self, reply: Reply) -> Vec<String> {
        match self.decoded(reply).unwrap() {
            ClientResponse::Rows(rows) => rendered_rows(&rows),
            other => panic!("{other:?}"),
        }
    }

    /// Lets everything end that goes on by itself.
    fn end_all(&self) {
        for _ in 0..30_000 {
            if !self.kv.run_spawned() && self.kv.held() == 0 {
                return;
            }
            self.kv.elapse_us(1_000);
        }
        panic!("{} locks and records are left", self.kv.held());
    }

    fn sum(&self) -> i64 {
        let rows = self.rows("SELECT balance FROM accounts");
        rows.iter().map(|row| row.strip_prefix("balance=").unwrap().parse::<i64>().unwrap()).sum()
    }
}

#[test]
fn transfers_and_reads_at_once_and_every_read_sees_the_total() {
    let database = bank();
    let mut random = SplitMix64::new(4711);
    let (mut applied, mut conflicts) = (0, 0);
    for _ in 0..25 {
        let clients: Vec<_> = (0..12)
            .map(|client| {
                let text = match client % 3 {
                    0 | 1 => {
                        let from = random.next_u64() % ACCOUNTS as u64;
                        let to = (from + 1 + random.next_u64() % (ACCOUNTS as u64 - 1)) % ACCOUNTS as u64;
                        transfer(from, to, 1 + random.next_u64() % 5)
                    }
                    _ => match random.next_u64() % 4 {
                        0 => "SELECT sum(balance) AS s FROM accounts".to_owned(),
                        1 => "SELECT balance FROM accounts".to_owned(),
                        // Amounts move, so their places in the index do.
                        2 => "SELECT sum(balance) AS s FROM accounts WHERE balance > -10000".to_owned(),
                        _ => "SELECT balance FROM accounts WHERE balance > -10000".to_owned(),
                    },
                };
                let begun = database.begin(&text);
                async move { (text, begun.await) }
            })
            .collect();
        for (text, outcome) in block_on(join_all(clients)) {
            match outcome {
                Ok(reply) if text.starts_with("SELECT sum") => {
                    assert_eq!(database.rows_of(reply), [format!("s={TOTAL}")]);
                }
                Ok(reply) if text.starts_with("SELECT") => {
                    let rows = database.rows_of(reply);
                    let balance = |row: &String| row.strip_prefix("balance=").unwrap().parse::<i64>().unwrap();
                    assert_eq!(rows.iter().map(balance).sum::<i64>(), TOTAL, "{rows:?}");
                }
                Ok(_) => applied += 1,
                Err(error) => {
                    assert!(error.message.ends_with("Conflicts with higher priority transaction"), "{text}: {error:?}");
                    conflicts += 1;
                }
            }
        }
    }
    database.end_all();
    assert_eq!(database.sum(), TOTAL);
    assert!(applied > 150 && conflicts < 50, "{applied} transfers, {conflicts} conflicts");
}

/// Transfers between two accounts, and reads of both, at once. Returns how many reads there were, and how many of them
/// found another sum than that of both.
fn read_two_accounts(database: &Database) -> (usize, usize) {
    let (mut reads, mut torn) = (0, 0);
    database.kv.is_cold.store(true, Ordering::Relaxed);
    for round in 0..200 {
        database.kv.set_cold_polls(round as usize % 10);
        let clients: Vec<_> = (0..6)
            .map(|client| {
                let text = match client {
                    0 => transfer(1, 7, 1 + round % 3),
                    _ => "SELECT balance FROM accounts WHERE id IN (1, 7)".to_owned(),
                };
                let begun = database.begin(&text);
                async move {
                    for _ in 0..((client + 1) * (round + 1)) % 17 {
                        yield_once().await;
                    }
                    begun.await
                }
            })
            .collect();
        for reply in block_on(join_all(clients)).into_iter().skip(1) {
            let rows = database.rows_of(reply.unwrap());
            let balance = |row: &String| row.strip_prefix("balance=").unwrap().parse::<i64>().unwrap();
            reads += 1;
            torn += usize::from(rows.iter().map(balance).sum::<i64>() != 2 * TOTAL / ACCOUNTS);
        }
    }
    database.end_all();
    (reads, torn)
}

#[test]
fn few_rows_are_read_without_a_snapshot_unless_a_tablet_changes_meanwhile() {
    let database = bank();
    database.kv.set_versions(Versions::Known);
    for _ in 0..10 {
        assert_eq!(database.rows("SELECT balance FROM accounts WHERE id IN (1, 7)").len(), 2);
    }
    assert_eq!(database.kv.pin_count(), 0);
    let (reads, torn) = read_two_accounts(&database);
    let pins = database.kv.pin_count();
    let most = 2 * reads as u64;
    assert!(torn == 0 && pins > 0 && pins < most, "{torn} of {reads} reads, {pins} snapshots of a tablet");
    assert_eq!(database.sum(), TOTAL);
    assert!(database.kv.pin_count() > pins, "whole tables are read in snapshots");
}

#[test]
fn few_rows_that_other_nodes_lead_are_read_without_a_snapshot_too() {
    let database = bank();
    database.kv.set_versions(Versions::Elsewhere);
    let before = database.kv.fetches.load(Ordering::Relaxed);
    assert_eq!(database.rows("SELECT balance FROM accounts WHERE id IN (1, 7)").len(), 2);
    let fetches = database.kv.fetches.load(Ordering::Relaxed) - before;
    assert_eq!((fetches, database.kv.pin_count()), (4, 0), "an answer of each tablet, and a second look at each");
    let (reads, torn) = read_two_accounts(&database);
    let pins = database.kv.pin_count();
    let most = 2 * reads as u64;
    assert!(torn == 0 && pins > 0 && pins < most, "{torn} of {reads} reads, {pins} snapshots of a tablet");
    assert_eq!(database.sum(), TOTAL);
}

#[test]
fn rows_of_different_moments_are_read_if_changes_are_not_noticed() {
    for versions in [Versions::Kept, Versions::KeptElsewhere] {
        let database = bank();
        database.kv.set_versions(versions);
        let (reads, torn) = read_two_accounts(&database);
        assert!(torn > 0, "{versions:?}: none of {reads} reads");
    }
}

/// The balances of all pages of this statement, with a transfer after each page; and the number of pages.
fn pages_beside_transfers(database: &Database, statement: &str, after: impl Fn(u64)) -> (i64, u64) {
    let (mut sum, mut count, mut state) = (0, 0, None);
    loop {
        let parameters = Parameters { page_size: Some(2), paging_state: state.as_deref(), ..Parameters::default() };
        let response = database.send(&ClientRequest::Query { statement, parameters }).unwrap();
        let ClientResponse::Rows(rows) = response else { panic!("{response:?}") };
        let balance = |row: &String| row.strip_prefix("balance=").unwrap().parse::<i64>().unwrap();
        sum += rendered_rows(&rows).iter().map(balance).sum::<i64>();
        count += 1;
        state = rows.metadata.paging_state;
        if state.is_none() {
            return (sum, count);
        }
        database.run(&transfer(count % 6, 11 - count % 6, 7)).unwrap();
        after(count);
    }
}

#[test]
fn pages_of_a_select_are_of_one_moment_while_their_snapshot_is_kept() {
    let database = bank();
    database.kv.set_versions(Versions::Known);
    let all: Vec<_> = (0..ACCOUNTS).map(|id| id.to_string()).collect();
    let by_keys = format!("SELECT balance FROM accounts WHERE id IN ({})", all.join(", "));
    for statement in ["SELECT balance FROM accounts", by_keys.as_str()] {
        for _ in 0..5 {
            let (sum, pages) = pages_beside_transfers(&database, statement, |_| {});
            assert!(sum == TOTAL && pages >= 6, "{statement}: {sum} in {pages} pages");
        }
        let sums: Vec<i64> =
            (0..5).map(|_| pages_beside_transfers(&database, statement, |_| database.kv.drop_pins()).0).collect();
        assert!(
            sums.iter().any(|sum| *sum != TOTAL),
            "{statement}: pages of several moments without snapshots: {sums:?}"
        );
    }
    database.end_all();
    assert_eq!(database.sum(), TOTAL);
}

#[test]
fn stamps_do_not_run_ahead_of_time_when_many_reads_and_writes_take_turns() {
    let database = bank();
    for turn in 0..500 {
        database.run(&transfer(turn % 6, 6 + turn % 6, 1)).unwrap();
        assert_eq!(database.sum(), TOTAL);
    }
    let ahead_us = database.kv.stamps_ahead_us();
    assert!(ahead_us < 200_000, "{ahead_us} us");
    database.end_all();
}

#[test]
fn a_coordinator_that_dies_at_any_step_leaves_nothing_and_nothing_half() {
    for polls in 0..40 {
        let database = bank();
        database.kv.drop_spawned();
        {
            let mut transfer = Box::pin(database.begin(&transfer(1, 7, 40)));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if let Poll::Ready(outcome) = transfer.as_mut().poll(&mut context) {
                    outcome.unwrap();
                    break;
                }
            }
        }
        assert_eq!(database.sum(), TOTAL, "after {polls} polls");
        // A reservation ends after five seconds, a prepare once its tablet has asked the home.
        (0..6_000).for_each(|_| database.kv.elapse_us(1_000));
        database.run("UPDATE accounts SET balance = balance + 0 WHERE id = 7").unwrap();
        let rows = database.rows("SELECT balance FROM accounts WHERE id IN (1, 7)");
        assert!(rows == ["balance=100", "balance=100"] || rows.iter().any(|row| row == "balance=60"), "{rows:?}");
        database.end_all();
        assert_eq!(database.sum(), TOTAL, "after {polls} polls");
    }
}

#[test]
fn answers_that_are_lost_become_outcomes_that_are_true() {
    let timeout = || KvError::Timeout(Waited { after_ms: 5, received: 0, required: 0 });
    for at in 0..5 {
        let lost = [Fate::AppliedUnheard(3, timeout()), Fate::Refused(KvError::Overloaded("too many requests"))];
        for fate in lost {
            let database = bank();
            database.kv.fates.lock().extend((0..at).map(|_| Fate::Applied).chain([fate.clone()]));
            let outcome = database.run(&transfer(1, 7, 40));
            database.end_all();
            let balance = database.rows("SELECT balance FROM accounts WHERE id = 1");
            match outcome {
                Ok(_) => assert_eq!(balance, ["balance=60"], "request {at} {fate:?}"),
                // A reservation that nobody knows holds the rows for some seconds.
                Err(error) => {
                    assert!(
                        at == 0 && error.message.ends_with("Conflicts with higher priority transaction"),
                        "{error:?}"
                    );
                    assert_eq!(balance, ["balance=100"]);
                }
            }
            assert_eq!(database.sum(), TOTAL);
        }
    }
    // A tablet that cannot be reached at all.
    let database = bank();
    database.kv.fates.lock().extend((0..200).map(|_| Fate::Refused(KvError::Unavailable(diorite_base::TabletId(1)))));
    let (code, _) = refused(database.run(&transfer(1, 7, 40)));
    assert_eq!(code, ErrorCode::Unavailable);
    database.kv.fates.lock().clear();
    assert_eq!(database.sum(), TOTAL);
    // One that takes the commit, and never answers again.
    database.end_all();
    database.kv.fates.lock().extend([Fate::Applied, Fate::Applied]);
    database.kv.fates.lock().extend((0..2_000).map(|_| Fate::AppliedUnheard(0, timeout())));
    let error = database.run(&transfer(1, 7, 40)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteTimeout, "{error:?}");
    let is_batch =
        matches!(error.kind, diorite_cql::protocol::ErrorKind::WriteTimeout { write_type: WriteType::Batch, .. });
    assert!(is_batch, "{error:?}");
    database.kv.fates.lock().clear();
    database.end_all();
    assert_eq!(database.sum(), TOTAL);
}

#[test]
fn nothing_is_done_if_a_condition_fails_in_any_tablet_or_a_sum_is_impossible() {
    let database = bank();
    database.run("CREATE TABLE log (id int, at int, note text, s int STATIC, PRIMARY KEY (id, at)) WITH transactions = {'enabled': true}").unwrap();
    let block = |condition: &str, id: i64| {
        format!(
            "BEGIN TRANSACTION UPDATE accounts SET balance = balance - 30 WHERE id = {id} IF {condition} ELSE ERROR; \
             UPDATE accounts SET balance = balance + 30 WHERE id = 7; INSERT INTO log (id, at, note) VALUES ({id}, 1, 'x') \
             IF NOT EXISTS ELSE ERROR; DELETE FROM log WHERE id = 100; END TRANSACTION"
        )
    };
    for id in 0..6 {
        let refusal = refused(database.run(&block("balance > 1000", id)));
        let words = "Execution Error. Condition on table accounts was not satisfied.";
        assert_eq!(refusal, (ErrorCode::Invalid, words.to_owned()));
    }
    database.end_all();
    assert!(database.rows("SELECT * FROM log").is_empty());
    for id in 0..6 {
        database.run(&block("balance >= 30", id)).unwrap();
        let refusal = refused(database.run(&block("balance >= 30", id)));
        assert_eq!(refusal.1, "Execution Error. Condition on table log was not satisfied.");
    }
    assert_eq!(database.rows("SELECT balance FROM accounts WHERE id = 7"), ["balance=280"]);
    assert_eq!(database.rows("SELECT count(*) AS n FROM log"), ["n=6"]);
    let most = i64::MAX;
    database.run(&format!("UPDATE accounts SET balance = {most} WHERE id = 3")).unwrap();
    let impossible = refused(database.run(&transfer(1, 3, 1)));
    assert_eq!(impossible, (ErrorCode::Invalid, "the result of '+' is out of the range of bigint".to_owned()));
    assert_eq!(database.rows("SELECT balance FROM accounts WHERE id = 1"), ["balance=70"]);
    // Ranges and partitions are deleted, and what is inserted afterwards stays.
    database
        .run(
            "BEGIN TRANSACTION DELETE FROM log WHERE id IN (0, 1, 2); INSERT INTO log (id, at, note, s) VALUES (1, 9, 'y', 4); \
             DELETE FROM log WHERE id = 3 AND at >= 0 AND at < 5; UPDATE log SET s = 5 WHERE id = 4; END TRANSACTION",
        )
        .unwrap();
    assert_eq!(
        database.rows("SELECT id, at, note, s FROM log WHERE id IN (0, 1, 2, 3, 4, 5)"),
        ["id=1 at=9 note='y' s=4", "id=4 at=1 note='x' s=5", "id=5 at=1 note='x' s=null"]
    );
    database.end_all();
}

#[test]
fn prepared_blocks_write_all_rows_with_one_time_and_reads_see_both_or_none() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE kv (k varchar PRIMARY KEY, v blob) WITH transactions = {'enabled': true}").unwrap();
    let write = "BEGIN TRANSACTION INSERT INTO kv (k, v) VALUES (:k1, :v); INSERT INTO kv (k, v) VALUES (:k2, :v); END TRANSACTION;";
    let write = database.prepare(write).unwrap();
    let read = database.prepare("SELECT k, v, writetime(v) AS wt FROM kv WHERE k IN :k").unwrap();
    for at in 0..20u8 {
        let keys = [format!("key:{at}"), format!("key:{at}b")];
        let value = [at];
        let values = [keys[0].as_bytes(), &value, keys[1].as_bytes(), &value].map(Value::Set);
        database.execute(&write, &values).unwrap();
        let mut list = 2i32.to_be_bytes().to_vec();
        for key in &keys {
            list.extend((key.len() as i32).to_be_bytes());
            list.extend(key.as_bytes());
        }
        // Just after the answer the rows of one tablet are still prepared.
        let ClientResponse::Rows(rows) = database.execute(&read, &[Value::Set(&list)]).unwrap() else { panic!() };
        assert_eq!(rows.rows.len(), 2);
        assert_eq!(rows.rows[0][1..], rows.rows[1][1..], "one value, one time");
        let one = database.rows(&format!("SELECT v FROM kv WHERE k = 'key:{at}b'"));
        assert_eq!(one, [format!("v=0x{at:02x}")]);
    }
    database.end_all();
}

/// A table without transactions, and a batch of this kind that inserts three rows of it, in different tablets.
fn plain_batch(database: &Database, kind: &str) -> String {
    database.run("CREATE TABLE IF NOT EXISTS plain (id int PRIMARY KEY, balance bigint, l list<int>)").unwrap();
    let insert = |id: i64| format!("INSERT INTO plain (id, balance, l) VALUES ({id}, 5, [1]); ");
    format!("BEGIN {kind} {}{}{}APPLY BATCH", insert(21), insert(22), insert(24))
}

#[test]
fn logged_batches_are_transactions_whatever_their_tables() {
    let database = bank();
    let times = |table: &str| {
        let mut times =
            database.rows(&format!("SELECT writetime(balance) AS wt FROM {table} WHERE id IN (21, 22, 24)"));
        assert_eq!(times.len(), 3);
        times.dedup();
        times
    };
    let pins = database.kv.pin_count();
    for kind in ["BATCH", "UNLOGGED BATCH"] {
        database.run(&plain_batch(&database, kind)).unwrap();
        assert_eq!(times("plain").len() == 1, kind == "BATCH", "one time for all tablets, or each its own");
    }
    assert_eq!(database.kv.pin_count(), pins, "reads of ordinary tables need no snapshots");
    let of_both = plain_batch(&database, "BATCH").replacen("plain", "accounts", 1).replacen(", l)", ")", 1);
    database.run(&of_both.replacen("5, [1])", "5)", 1)).unwrap();
    // A batch with a time of its own, and statements with theirs.
    database.run("DELETE FROM plain WHERE id IN (21, 22, 24)").unwrap();
    database.run(&plain_batch(&database, "BATCH USING TIMESTAMP 5")).unwrap();
    assert!(database.rows("SELECT id FROM plain WHERE id IN (21, 22, 24)").is_empty(), "it is older than the deletion");
    database.run("TRUNCATE plain").unwrap();
    database.run(&plain_batch(&database, "BATCH USING TIMESTAMP 5")).unwrap();
    assert_eq!(times("plain"), ["wt=5"]);
    database
        .run("BEGIN BATCH UPDATE plain USING TIMESTAMP 4 SET balance = 1 WHERE id = 21; UPDATE plain USING TIMESTAMP 6 SET balance = 2, l = l + [3] WHERE id = 22; DELETE FROM plain USING TIMESTAMP 4 WHERE id = 24; APPLY BATCH")
        .unwrap();
    let rows = database.rows("SELECT id, balance, l FROM plain WHERE id IN (21, 22, 24)");
    assert_eq!(rows, ["id=21 balance=5 l=[1]", "id=22 balance=2 l=[1, 3]", "id=24 balance=5 l=[1]"]);
    // What is written later with an older time does not replace what has a time of its own.
    database.run("BEGIN BATCH INSERT INTO plain (id, balance, l) VALUES (21, 8, []) USING TIMESTAMP 3; INSERT INTO plain (id, balance, l) VALUES (22, 8, []) USING TIMESTAMP 3; APPLY BATCH").unwrap();
    assert_eq!(database.rows("SELECT balance FROM plain WHERE id IN (21, 22)"), ["balance=5", "balance=2"]);
    database.end_all();
}

#[test]
fn counter_batches_count_once_and_statements_with_a_status_are_carried_out_one_by_one() {
    let database = bank();
    database.run("CREATE TABLE hits (id int PRIMARY KEY, n counter)").unwrap();
    let timeout = || KvError::Timeout(Waited { after_ms: 5, received: 0, required: 0 });
    let add = |id: i64| format!("UPDATE hits SET n = n + 1 WHERE id = {id}; ");
    let batch = format!("BEGIN COUNTER BATCH {}{}{}APPLY BATCH", add(21), add(22), add(24));
    let counted = || {
        let mut counted = database.rows("SELECT n FROM hits WHERE id IN (21, 22, 24)");
        counted.dedup();
        counted
    };
    database.run(&batch).unwrap();
    assert_eq!(counted(), ["n=1"]);
    // Answers are lost on the way: of the reservation, a prepare, the commit, a finish.
    for at in 0..6 {
        let fates = (0..at).map(|_| Fate::Applied).chain([Fate::AppliedUnheard(1, timeout())]);
        database.kv.fates.lock().extend(fates);
        let before = counted();
        let outcome = database.run(&batch);
        database.end_all();
        let after = counted();
        assert_eq!(after.len(), 1, "all or none, {at}: {after:?}");
        assert_eq!(outcome.is_ok(), after != before, "{at}: {outcome:?}");
        database.kv.fates.lock().clear();
    }
    let statuses = format!("{}IF EXISTS RETURNS STATUS AS ROW; ", "UPDATE plain SET balance = 7 WHERE id = 21 ");
    database.run(&plain_batch(&database, "BATCH")).unwrap();
    let both = format!("BEGIN BATCH {statuses}{}APPLY BATCH", statuses.replace("21", "22"));
    assert_eq!(database.rows(&both).len(), 2);
    assert_eq!(database.rows("SELECT balance FROM plain WHERE id IN (21, 22)"), ["balance=7", "balance=7"]);
    database.end_all();
}

#[test]
fn a_commit_without_a_reservation_that_its_home_refuses_leaves_nothing() {
    let database = bank();
    let batch = plain_batch(&database, "BATCH");
    let count = || database.rows("SELECT id FROM plain WHERE id IN (21, 22, 24)").len();
    let refusals = [
        (KvError::TooLarge("a row is too large".to_owned()), false),
        (KvError::DiskFull("8 KiB are free".to_owned()), false),
        (KvError::Overloaded("too many requests"), true),
        (KvError::Timeout(Waited { after_ms: 5, received: 0, required: 0 }), true),
    ];
    for (error, is_tried_again) in refusals {
        database.run(&batch).unwrap();
        database.run("DELETE FROM plain WHERE id IN (21, 22, 24)").unwrap();
        database.end_all();
        let sent = database.kv.writes.load(Ordering::Relaxed);
        // The home refuses the commit only, or the reservation that follows too.
        let refused = if is_tried_again { 1 } else { 4 };
        let fates = [Fate::Applied].into_iter().chain((0..refused).map(|_| Fate::Refused(error.clone())));
        database.kv.fates.lock().extend(fates);
        let outcome = database.run(&batch);
        database.end_all();
        assert!(database.kv.fates.lock().is_empty());
        assert_eq!((outcome.is_ok(), count()), (is_tried_again, if is_tried_again { 3 } else { 0 }), "{error:?}");
        let sent = database.kv.writes.load(Ordering::Relaxed) - sent;
        assert!(sent >= 5, "the prepare, the commit, the end of both, and a reservation: {sent}");
    }
    // Without a fault: the prepare, the commit, the end, and the report of ended transactions.
    database.run(&batch).unwrap();
    database.end_all();
    let sent = database.kv.writes.load(Ordering::Relaxed);
    database.run(&batch).unwrap();
    let sent = database.kv.writes.load(Ordering::Relaxed) - sent;
    assert!((3..=4).contains(&sent), "{sent}");
}

#[test]
fn a_batch_of_ordinary_tables_is_answered_when_all_of_it_is_visible() {
    let timeout = || KvError::Timeout(Waited { after_ms: 5, received: 0, required: 0 });
    // From the commit, or an end, on nothing reaches its tablet for a while.
    for at in 3..6 {
        let database = bank();
        let batch = plain_batch(&database, "BATCH");
        let fates = (0..at).map(|_| Fate::Applied);
        let refused = (0..4).map(|_| Fate::Refused(KvError::Overloaded("too many requests")));
        database.kv.fates.lock().extend(fates.chain(refused).chain([Fate::AppliedUnheard(0, timeout())]));
        database.run(&batch).unwrap();
        assert!(at > 3 || database.kv.fates.lock().is_empty(), "requests were sent again");
        let rows = database.rows("SELECT id FROM plain WHERE id IN (21, 22, 24)");
        assert_eq!(rows.len(), 3, "nothing else has run since the answer: {rows:?}");
        database.end_all();
    }
}

#[test]
fn a_batch_of_a_table_that_is_dropped_meanwhile_ends() {
    for accesses in 0..12 {
        let database = bank();
        let batch = plain_batch(&database, "BATCH");
        database.run("CREATE TABLE kept (id int PRIMARY KEY, balance bigint)").unwrap();
        let mixed = batch.replace("APPLY BATCH", "INSERT INTO kept (id, balance) VALUES (24, 1); APPLY BATCH");
        let drop = Command::DropTable { keyspace: "ks".to_owned(), name: "plain".to_owned(), if_exists: false };
        *database.kv.interruption.lock() = Some((accesses, drop));
        let outcome = database.run(&mixed);
        let kept = database.rows("SELECT id FROM kept").len();
        assert!(outcome.is_err() || kept == 1, "after {accesses} accesses: {outcome:?}, {kept} rows are kept");
        *database.kv.interruption.lock() = None;
    }
}

#[test]
fn a_batch_whose_request_ends_at_any_moment_is_there_as_a_whole_or_not_at_all() {
    let mut seen = [0; 2];
    for polls in 0..40 {
        let database = bank();
        let mut batch = Box::pin(database.begin(&plain_batch(&database, "BATCH")));
        let mut context = Context::from_waker(Waker::noop());
        let is_answered = (0..polls).any(|_| batch.as_mut().poll(&mut context).is_ready());
        drop(batch);
        // A reservation ends after five seconds, a prepare once its tablet has asked the home.
        (0..6_000).for_each(|_| database.kv.elapse_us(1_000));
        database.end_all();
        let count = database.rows("SELECT id FROM plain WHERE id IN (21, 22, 24)").len();
        assert!(count == 3 || count == 0 && !is_answered, "after {polls} polls: {count}");
        seen[count / 3] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn limits_are_refused_before_anything_is_sent() {
    let database = bank();
    database
        .run("CREATE TABLE t (h int, r int, v blob, PRIMARY KEY (h, r)) WITH transactions = {'enabled': true}")
        .unwrap();
    let writes = database.kv.writes.load(Ordering::Relaxed);
    let rows: String = (0..10_001).map(|r| format!("INSERT INTO t (h, r, v) VALUES (1, {r}, 0x); ")).collect();
    let far = "UPDATE accounts SET balance = balance + 1 WHERE id = 1; ";
    let (code, message) = refused(database.run(&format!("BEGIN TRANSACTION {rows}{far}END TRANSACTION")));
    assert_eq!(code, ErrorCode::Invalid);
    assert_eq!(message, "a transaction with 10001 rows in one tablet is over the limit of 10000 rows (table ks.t)");
    let block = "BEGIN TRANSACTION INSERT INTO t (h, r, v) VALUES (1, 1, ?); UPDATE accounts SET balance = balance + 1 WHERE id = 1; END TRANSACTION";
    let block = database.prepare(block).unwrap();
    let large = vec![7u8; MAX_MUTATION_BYTES - 1_000];
    let (code, message) = refused(database.execute(&block, &[Value::Set(&large)]));
    assert!(code == ErrorCode::Invalid && message.contains("bytes in one tablet is over the limit of"), "{message}");
    assert_eq!(database.kv.writes.load(Ordering::Relaxed), writes, "nothing was sent");
    database.execute(&block, &[Value::Set(&large[..1_000_000])]).unwrap();
    database.end_all();
}
