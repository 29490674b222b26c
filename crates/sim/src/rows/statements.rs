//! What clients say.

use super::schema::PARTITIONS;
use crate::dice::Dice;

/// Where what must not be lost is kept: nothing else is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Any other statement; its results are compared between replicas.
    Anything,
    /// Adds one to this counter.
    Increment(u64),
    /// Adds one to two counters in different tablets, without transactions, in one batch.
    Pair,
    /// Appends this value to the list.
    Append(u64),
    /// Moves one from a column of a row to another, if the row is there.
    Transfer,
    /// Inserts rows of this number into partitions of several tablets.
    Several(u64),
    /// Reads all that was inserted so, in one statement over several tablets.
    Scan,
    /// Opens an account in each of several tablets, in one block.
    Open,
    /// Moves an amount from an account in one tablet to one in another, and counts in both.
    Move,
    /// Reads all accounts.
    Total,
    /// Writes to the table with a unique index.
    Claim,
    /// Reads that table.
    Claims,
}

/// The row whose list is appended to.
pub const LIST_ROW: u64 = 0;

/// The row in which numbers are moved: both begin at 0.
pub const TRANSFER_ROW: u64 = 2;

/// The rows that are accounts, one in each tablet.
pub const ACCOUNT_ROW: u64 = 3;

/// The rows of the table with a unique index, and the values that they compete for.
pub const CLAIMANTS: u64 = 12;
const CLAIMED: u64 = 6;

/// A statement of any kind.
pub fn anything(dice: &mut Dice, value: u64) -> String {
    let (k, c) = (dice.range(0, PARTITIONS), dice.range(0, 4));
    let row = format!("k = {k} AND c = {c}");
    let using = using(dice);
    match dice.range(0, 100) {
        0..12 => format!("INSERT INTO t (k, c, v, w) VALUES ({k}, {c}, {value}, {value}){using}"),
        12..22 => format!("UPDATE t{using} SET v = {value} WHERE {row}"),
        22..30 => conditional(dice, &row, value),
        30..33 => format!("UPDATE t{} SET w = w - {}, s = s + 1 WHERE {row}", lifetime(dice), dice.range(0, 9)),
        33..36 => block(dice, &row, value),
        36..40 => format!("INSERT INTO t (k, c, v) VALUES ({k}, {c}, {value}) IF NOT EXISTS{}", lifetime(dice)),
        40..58 => list(dice, &row, value),
        58..68 => map(dice, &row, value),
        68..74 => format!("UPDATE t{using} SET s = {value} WHERE k = {k}"),
        74..78 => format!("UPDATE t SET s = {value} WHERE k = {k} IF s {} {}", compare(dice), dice.range(0, value + 1)),
        78..82 => format!("DELETE FROM t{} WHERE {row}", timestamp(dice)),
        82..85 => format!("DELETE v FROM t{} WHERE {row}", timestamp(dice)),
        85..88 => format!("DELETE FROM t WHERE {row} IF v {} {}", compare(dice), dice.range(0, value + 1)),
        88..93 => {
            format!("DELETE FROM t{} WHERE k = {k} AND c >= {c} AND c < {}", timestamp(dice), c + dice.range(1, 4))
        }
        93..95 => format!("DELETE FROM t{} WHERE k = {k}", timestamp(dice)),
        _ => format!(
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES ({k}, {c}, {value}); UPDATE t{using} SET s = {value} WHERE k = {k}; \
             DELETE FROM t WHERE k = {k} AND c = {}; APPLY BATCH",
            dice.range(0, 4)
        ),
    }
}

fn compare(dice: &mut Dice) -> &'static str {
    const SIGNS: [&str; 4] = ["<", ">", "!=", "<="];
    SIGNS[dice.range(0, SIGNS.len() as u64) as usize]
}

/// A transaction block on a partition.
fn block(dice: &mut Dice, row: &str, value: u64) -> String {
    let partition = row.split(" AND ").next().unwrap_or(row).to_owned();
    let mut statements = String::new();
    for _ in 0..dice.range(1, 6) {
        let other = format!("{partition} AND c = {}", dice.range(0, 4));
        statements += &match dice.range(0, 9) {
            0 => format!("DELETE FROM t WHERE {other}; "),
            1 => format!("DELETE FROM t WHERE {partition} AND c >= {}; ", dice.range(0, 4)),
            2 => format!("UPDATE t SET v = v + 1, w = {value} WHERE {other}; "),
            3 => {
                format!("UPDATE t SET w = w - 2 WHERE {other} IF w > {} OR v = null ELSE ERROR; ", dice.range(0, value))
            }
            4 => format!("UPDATE t SET l = l + [{value}], m[1] = {value} WHERE {other}; "),
            5 => format!("UPDATE t SET l = [{value}] WHERE {other}; "),
            6 => format!("UPDATE t SET s = {value} WHERE {partition}; "),
            7 => format!("UPDATE t{} SET v = {value} WHERE {other} IF EXISTS ELSE ERROR; ", lifetime(dice)),
            _ => format!("UPDATE t{} SET v = {value}, w = {value} WHERE {other}; ", lifetime(dice)),
        };
    }
    format!("BEGIN TRANSACTION {statements}END TRANSACTION")
}

/// Moves one from a column to another, or makes the row in which that is done.
pub fn transfer(partition: u64, makes_row: bool) -> String {
    if makes_row {
        return format!("INSERT INTO t (k, c, v, w) VALUES ({partition}, {TRANSFER_ROW}, 0, 0) IF NOT EXISTS");
    }
    let row = format!("k = {partition} AND c = {TRANSFER_ROW}");
    format!("BEGIN TRANSACTION UPDATE t SET v = v - 1 WHERE {row}; UPDATE t SET w = w + 1 WHERE {row}; END TRANSACTION")
}

/// Opens an account in each of these partitions.
pub fn open_accounts(partitions: &[u64]) -> String {
    let open = |partition: &u64| {
        format!("INSERT INTO t (k, c, a, w) VALUES ({partition}, {ACCOUNT_ROW}, 0, 0) IF NOT EXISTS ELSE ERROR; ")
    };
    format!("BEGIN TRANSACTION {}END TRANSACTION", partitions.iter().map(open).collect::<String>())
}

/// Moves an amount from an account to another, and counts in both.
pub fn move_amount(from: u64, to: u64, amount: u64) -> String {
    let change = |partition: u64, sign: char| {
        format!("UPDATE t SET a = a {sign} {amount}, w = w + 1 WHERE k = {partition} AND c = {ACCOUNT_ROW}; ")
    };
    format!("BEGIN TRANSACTION {}{}END TRANSACTION", change(from, '-'), change(to, '+'))
}

/// Reads the accounts in these partitions: by their keys, by the index of amounts, or by both.
pub fn accounts(partitions: &[u64], dice: &mut Dice) -> String {
    let keys: Vec<String> = partitions.iter().map(u64::to_string).collect();
    let amounts = format!("a >= {}", i32::MIN);
    match dice.range(0, 4) {
        0 => return format!("SELECT a, w FROM t WHERE {amounts}"),
        1 => return format!("SELECT a, w FROM t WHERE k IN ({}) AND {amounts}", keys.join(", ")),
        _ => {}
    }
    format!("SELECT a, w FROM t WHERE k IN ({}) AND c = {ACCOUNT_ROW}", keys.join(", "))
}

/// Writes to the table with a unique index: few values, for which rows compete.
pub fn claim(dice: &mut Dice, number: u64) -> String {
    let (k, other, v) = (dice.range(0, CLAIMANTS), dice.range(0, CLAIMANTS), dice.range(0, CLAIMED));
    match dice.range(0, 25) {
        0..4 => format!("INSERT INTO u (k, v, w) VALUES ({k}, {v}, {number})"),
        4..6 => format!("INSERT INTO u (k, v) VALUES ({k}, {v}) IF NOT EXISTS"),
        6..10 => format!("UPDATE u SET v = {v} WHERE k = {k}"),
        10 => format!("UPDATE u SET v = {v} WHERE k = {k} IF w < {number}"),
        11 => format!("UPDATE u SET w = {number} WHERE k = {k}"),
        12..14 => format!("UPDATE u SET v = null WHERE k = {k}"),
        14..16 => format!("DELETE FROM u WHERE k = {k}"),
        16 => format!("INSERT INTO u (k, v) VALUES ({k}, {v}) USING TTL {}", dice.range(1, 4)),
        17 => {
            format!("BEGIN BATCH DELETE FROM u WHERE k = {k}; INSERT INTO u (k, v) VALUES ({other}, {v}); APPLY BATCH")
        }
        18..21 => format!("UPDATE u SET x = {number} WHERE k = {k}"),
        21 => format!("INSERT INTO u (k, v, x) VALUES ({k}, {v}, {number})"),
        22 => format!("UPDATE u SET x = null, v = {v} WHERE k = {k}"),
        _ => format!(
            "BEGIN TRANSACTION UPDATE u SET v = null WHERE k = {k}; INSERT INTO u (k, v) VALUES ({other}, {v}); \
             END TRANSACTION"
        ),
    }
}

/// How reads begin that the covering index answers.
pub const BY_VALUE: &str = "SELECT k, v, w FROM u WHERE v ";

/// Reads the table with a unique index, its view, or its covering index.
pub fn claims(dice: &mut Dice) -> String {
    match dice.range(0, 8) {
        0 | 1 => "SELECT k, v FROM uv".to_owned(),
        2 => format!("SELECT k, v FROM uv WHERE v = {}", dice.range(0, CLAIMED)),
        3 => "SELECT k, v FROM u".to_owned(),
        4..7 => format!("{BY_VALUE}= {}", dice.range(0, CLAIMED)),
        _ => by_values(),
    }
}

/// Reads all rows of the table with a unique index that have a value, by their values.
pub fn by_values() -> String {
    let values: Vec<String> = (0..CLAIMED).map(|value| value.to_string()).collect();
    format!("{BY_VALUE}IN ({})", values.join(", "))
}

fn conditional(dice: &mut Dice, row: &str, value: u64) -> String {
    let condition = match dice.range(0, 4) {
        0 => "EXISTS".to_owned(),
        1 => "v = null".to_owned(),
        2 => format!("w {} {}", compare(dice), dice.range(0, value + 1)),
        _ => format!("v {} {}", compare(dice), dice.range(0, value + 1)),
    };
    format!("UPDATE t{} SET w = {value}, v = {value} WHERE {row} IF {condition}", lifetime(dice))
}

fn list(dice: &mut Dice, row: &str, value: u64) -> String {
    let using = lifetime(dice);
    match dice.range(0, 6) {
        0 | 1 => format!("UPDATE t{using} SET l = l + [{value}] WHERE {row}"),
        2 => format!("UPDATE t{using} SET l = [{value}] + l WHERE {row}"),
        3 => format!("UPDATE t{using} SET l[0] = {value} WHERE {row}"),
        4 => format!("DELETE l[0] FROM t WHERE {row}"),
        _ => format!("UPDATE t SET l = l - [{}] WHERE {row}", dice.range(0, value + 1)),
    }
}

fn map(dice: &mut Dice, row: &str, value: u64) -> String {
    let (using, key) = (lifetime(dice), dice.range(0, 3));
    match dice.range(0, 4) {
        0 | 1 => format!("UPDATE t{using} SET m[{key}] = {value} WHERE {row}"),
        2 => format!("DELETE m[{key}] FROM t WHERE {row}"),
        _ => format!("UPDATE t SET m = {{{key}: {value}}} WHERE {row}"),
    }
}

/// Short enough to end while the run lasts.
fn lifetime(dice: &mut Dice) -> String {
    if dice.chance(500) { format!(" USING TTL {}", dice.range(1, 4)) } else { String::new() }
}

/// Now and then, and about now.
pub fn timestamp(dice: &mut Dice) -> String {
    if dice.chance(60) {
        format!(" USING TIMESTAMP {}", 1_700_000_000_000_000 + dice.range(0, 8_000_000))
    } else {
        String::new()
    }
}

fn using(dice: &mut Dice) -> String {
    if dice.chance(100) { timestamp(dice) } else { lifetime(dice) }
}

/// Adds one to a counter.
pub fn increment(counter: u64) -> String {
    format!("UPDATE n SET n = n + 1 WHERE k = {counter}")
}

/// Appends to the list.
pub fn append(partition: u64, value: u64) -> String {
    format!("UPDATE t SET l = l + [{value}] WHERE k = {partition} AND c = {LIST_ROW}")
}

/// Adds one to each of these counters, or to none.
pub fn increment_all(counters: &[u64]) -> String {
    let increments: String = counters.iter().map(|key| format!("UPDATE n SET n = n + 1 WHERE k = {key}; ")).collect();
    format!("BEGIN COUNTER BATCH {increments}APPLY BATCH")
}

/// Whether the inserts of this number are a logged batch: all of them are there or none.
pub fn is_logged(number: u64) -> bool {
    number.is_multiple_of(2)
}

/// Inserts a row of this number into each of these partitions.
pub fn insert_into(partitions: &[u64], number: u64, timestamp: &str) -> String {
    let insert =
        |partition: &u64| format!("INSERT INTO t (k, c, v) VALUES ({partition}, {number}, {number}){timestamp}; ");
    let inserts: String = partitions.iter().map(insert).collect();
    format!("BEGIN {}BATCH {inserts}APPLY BATCH", if is_logged(number) { "" } else { "UNLOGGED " })
}

/// Reads the inserts into each of these partitions: by their keys, or by a scan of the table.
pub fn scan(partitions: &[u64], is_whole: bool) -> String {
    if is_whole {
        return "SELECT k, c FROM t".to_owned();
    }
    let keys: Vec<String> = partitions.iter().map(u64::to_string).collect();
    format!("SELECT k, c FROM t WHERE k IN ({})", keys.join(", "))
}
