//! The golden bytes of tasks for leaders and of their partial aggregates.
#![allow(clippy::unwrap_used, reason = "test data is known")]

use super::advance::Next;
use super::{Reply, Task};
use crate::exec::aggregate::State;
use crate::exec::partial::{Group, Limits, Partial};
use crate::exec::row::RowData;
use crate::golden::golden;
use diorite_base::TableId;
use diorite_base::bytes::{Reader, put_slice, put_varint};
use diorite_cql::protocol::Value;
use diorite_golden::{Decoded, kinds};

kinds!(REPLIES, reply_kind(Reply): Done, Declined);
kinds!(NEXTS, next_kind(Next): Full, Exhausted, From);
kinds!(VALUES, value_kind(Value): Null, Set, Unset);

/// The columns of the table.
const COLUMNS: usize = 3;
/// The columns that rows show.
const SHOWS: [bool; COLUMNS] = [true; COLUMNS];

fn task() -> Task<'static> {
    Task {
        table: TableId(300),
        version: 7,
        keyspace: "ks",
        statement: "SELECT sum(v) FROM t WHERE k = ?",
        values: vec![Value::Null, Value::Set(&[1, 2]), Value::Unset],
        now_us: 1_700_000_000_000_000,
        now_s: 1_700_000_000,
        ends_partition: true,
        left_ms: None,
        partial: b"partial",
    }
}

#[test]
fn tasks_have_their_bytes() {
    let written = [
        ("version 1", task().encode()),
        ("version 2", Task { left_ms: Some(300), ..task() }.encode()),
        ("without a keyspace", Task { keyspace: "", values: vec![], ends_partition: false, ..task() }.encode()),
    ];
    golden("tasks", &[VALUES]).check(&written, |_, bytes| {
        let task = Task::decode(bytes).unwrap();
        let kinds = task.values.iter().map(value_kind).collect();
        Decoded { kinds, shown: format!("{task:?}"), encoded: Some(task.encode()) }
    });
}

/// The state of an aggregate, from its bytes: its fields are its own.
fn state(extreme: Option<&[u8]>, unscaled: Option<&[u8]>) -> State {
    let mut out = Vec::new();
    let put_optional = |out: &mut Vec<u8>, bytes: Option<&[u8]>| {
        out.push(u8::from(bytes.is_some()));
        bytes.into_iter().for_each(|bytes| put_slice(out, bytes));
    };
    put_varint(&mut out, 300);
    put_optional(&mut out, extreme);
    out.extend_from_slice(&(-5_i128).to_le_bytes());
    out.extend([1.5_f64, -0.25].iter().flat_map(|number| number.to_bits().to_le_bytes()));
    put_optional(&mut out, unscaled);
    out.extend_from_slice(&if unscaled.is_some() { 2_i32 } else { 0 }.to_le_bytes());
    State::decode(&mut Reader::new(&out)).unwrap()
}

fn row() -> RowData {
    let mut out = Vec::new();
    put_varint(&mut out, 2);
    for at in [0, 2] {
        put_varint(&mut out, at);
        put_slice(&mut out, b"value");
        out.extend_from_slice(&1_700_000_000_000_000_i64.to_le_bytes());
        out.push(0);
        put_varint(&mut out, 1);
        put_slice(&mut out, b"path");
        out.extend_from_slice(&7_i64.to_le_bytes());
        out.push(1);
        out.extend([5_u32, 50].iter().flat_map(|second| second.to_le_bytes()));
    }
    RowData::decode(COLUMNS, &mut Reader::new(&out)).unwrap()
}

fn partial() -> Partial {
    let limits = Limits { rows: 10, rows_per_partition: u64::MAX, offset: 3, page_rows: 300, page_bytes: usize::MAX };
    Partial {
        has_rows: true,
        is_partition_done: true,
        left_in_partition: 5,
        partition: vec![1; 9],
        position: vec![1; 12],
        states: vec![state(None, None), state(Some(b"x"), Some(&[0xFE, 0x0C]))],
        first_row: Some(row()),
        ..Partial::begin(limits)
    }
}

fn grouped() -> Partial {
    let key = vec![None, Some(vec![7])];
    let group = Group { key, states: vec![state(None, None)], first_row: row() };
    Partial { states: vec![], first_row: None, group: Some(group), body: b"rows".to_vec(), row_count: 2, ..partial() }
}

#[test]
fn replies_to_tasks_have_their_bytes() {
    let limits = Limits { rows: 0, rows_per_partition: 0, offset: 0, page_rows: 0, page_bytes: 0 };
    let done = |partial: Partial, next| Reply::Done(Box::new(partial), next);
    let written = [
        ("declined", Reply::Declined),
        ("full", done(partial(), Next::Full)),
        ("exhausted", done(grouped(), Next::Exhausted)),
        ("to be continued", done(Partial::begin(limits), Next::From(vec![9; 9]))),
    ]
    .map(|(name, reply)| (name, reply.encode(&SHOWS)));
    golden("task-replies", &[REPLIES, NEXTS]).check(&written, |_, bytes| {
        let reply = Reply::decode(COLUMNS, bytes).unwrap();
        let mut kinds = vec![reply_kind(&reply)];
        if let Reply::Done(_, next) = &reply {
            kinds.push(next_kind(next));
        }
        Decoded { kinds, shown: format!("{reply:?}"), encoded: Some(reply.encode(&SHOWS)) }
    });
}
