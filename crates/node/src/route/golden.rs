//! The golden bytes of requests between nodes and of their answers.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::wire::{
    FrameKind, OperationRef, Outcome, Parts, put_failed, put_fetch, put_fetched, put_frame, put_write, put_written,
    read_answer, read_frame, read_request,
};
use diorite_base::write::{KvError, Waited};
use diorite_base::{Levels, NodeId, TabletId};
use diorite_golden::{Decoded, Golden, kinds};
use diorite_query::kv::several::{Several, Span, encode};
use diorite_query::kv::{CommittedIn, Fetch, FetchRows, Fetched, IndexScan, PinnedRead, ScanChunk, ScanRequest};
use diorite_transact::TransactionId;
use diorite_transact::version::DataVersion;
use diorite_transact::wire::PinId;
use std::sync::Arc;

kinds!(ROWS, rows_of(FetchRows): Nothing, One, Range, Several, Index);
kinds!(OUTCOMES, outcome_kind(Outcome): Fetched, Written, Failed);
kinds!(ERRORS, error_kind(KvError):
    Unavailable, NotLeader, Overloaded, Timeout, NoSuchTablet, DiskFull, TooLarge, Storage, Locked, IndexBeingBuilt,
    Unmaintained);

const TABLET: TabletId = TabletId(1_000);

fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}

fn framed(kind: FrameKind, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, kind, 0x0102_0304_0506_0708);
    put(&mut out);
    out
}

fn fetch(rows: FetchRows) -> Fetch {
    Fetch { rows, ..Fetch::default() }
}

fn fetches() -> Vec<(&'static str, Fetch, Option<u64>)> {
    let header = Some((1, b"partition\0".to_vec()));
    let static_row = Some(b"partition\x01".to_vec());
    let range = ScanRequest {
        start: b"partition\x02a".to_vec(),
        end: b"partition\x03".to_vec(),
        reverse: true,
        max_entries: 300,
        max_bytes: 1 << 20,
    };
    let spans = encode(&[Span::key(b"a".to_vec()), Span::range(b"b".to_vec(), b"c".to_vec())]);
    let several = Several { spans, reverse: false, max_entries: 300, max_bytes: 1 << 20 };
    let id = TransactionId { tablet: TABLET, term: 3, number: 300 };
    let committed = Arc::from([CommittedIn { id, prepared_us: 5, committed_us: 6 }]);
    let pinned = Some(PinnedRead { pin: PinId(0x0102_0304_0506_0708), committed });
    let scan = IndexScan {
        index: 300,
        spans: encode(&[Span::key(b"form".to_vec())]),
        start: b"partition\x02a".to_vec(),
        end: b"partition\x03".to_vec(),
        partition_len: 9,
        max_entries: 300,
        max_bytes: 1 << 20,
        with_statics: true,
        whole_partitions: false,
        may_scan: true,
    };
    let row = fetch(FetchRows::One(b"partition\x02a".to_vec()));
    let full = Fetch { header: header.clone(), static_row: static_row.clone(), ..row.clone() };
    vec![
        ("nothing", fetch(FetchRows::Nothing), None),
        ("row", row, None),
        ("row, header and static row", full, Some(300)),
        ("range", Fetch { header, static_row, ..fetch(FetchRows::Range(range.clone())) }, None),
        ("aggregate", Fetch { aggregate: Some(b"task".to_vec()), ..fetch(FetchRows::Range(range)) }, Some(0)),
        ("several", fetch(FetchRows::Several(several.clone())), None),
        ("in a snapshot", Fetch { pinned, ..fetch(FetchRows::Several(several)) }, Some(300)),
        ("index", fetch(FetchRows::Index(scan)), None),
        ("with the version", Fetch { wants_version: true, ..fetch(FetchRows::Nothing) }, None),
        ("as of a second", Fetch { judged_s: Some(300), ..fetch(FetchRows::Nothing) }, None),
    ]
}

#[test]
fn requests_have_their_bytes() {
    let mut written = Vec::new();
    for (name, fetch, left_ms) in fetches() {
        let frame = framed(FrameKind::Requests, |out| put_fetch(out, 300, TABLET, &fetch, left_ms));
        written.push((name, frame));
    }
    for (name, left_ms) in [("write", None), ("write with a time", Some(300))] {
        written.push((name, framed(FrameKind::Requests, |out| put_write(out, 7, TABLET, b"mutation", left_ms))));
    }
    golden("requests", &[ROWS, &["write"]]).check(&written, |_, bytes| {
        let (kind, incarnation, mut reader) = read_frame(bytes).unwrap();
        let request = read_request(&mut reader).unwrap();
        assert!(reader.is_empty() && kind == FrameKind::Requests && incarnation == 0x0102_0304_0506_0708);
        let (kinds, encoded) = match request.operation {
            OperationRef::Fetch(fetch) => {
                let left_ms = fetch.left_ms;
                let fetch = fetch.to_fetch();
                let put = |out: &mut Vec<u8>| put_fetch(out, request.id, request.tablet, &fetch, left_ms);
                (vec![rows_of(&fetch.rows)], framed(kind, put))
            }
            OperationRef::Write(mutation, left_ms) => {
                let put = |out: &mut Vec<u8>| put_write(out, request.id, request.tablet, mutation, left_ms);
                (vec!["write"], framed(kind, put))
            }
        };
        // Reads before level 2 had neither snapshots nor versions nor seconds.
        let absent = [", pinned: None", ", wants_version: false", ", judged_s: None"];
        let shown = absent.iter().fold(format!("{request:?}"), |shown, field| shown.replace(field, ""));
        Decoded { kinds, shown, encoded: Some(encoded) }
    });
}

fn answers() -> Vec<(&'static str, Vec<u8>)> {
    let nothing = || Parts { header: None, static_row: None, row: None, chunk: None, partial: None, version: None };
    let value = |text: &[u8]| Some(text.to_vec());
    let chunk = ScanChunk { buffer: b"keyvaluek2".to_vec(), ends: vec![(3, 8), (10, 10)], exhausted: false };
    let rows = Parts { header: value(b"header"), static_row: value(b"static"), row: value(b"row"), ..nothing() };
    let scanned = Parts { chunk: Some(chunk), header: value(b""), ..nothing() };
    let partial: Parts<Vec<u8>> = Parts { partial: value(b"partial"), ..nothing() };
    let version = Some(DataVersion { node: NodeId(3), term: 300, changes: 70_000 });
    let versioned: Parts<Vec<u8>> = Parts { row: value(b"row"), version, ..nothing() };
    let fetched = |parts: &Parts<Vec<u8>>| framed(FrameKind::Answers, |out| put_fetched(out, 300, parts));
    let mut written = vec![
        ("rows", fetched(&rows)),
        ("chunk", fetched(&scanned)),
        ("partial aggregate", fetched(&partial)),
        ("with the version", fetched(&versioned)),
        ("written", framed(FrameKind::Answers, |out| put_written(out, 300, b"reply"))),
    ];
    let text = || "why".to_owned();
    let errors = [
        ("unavailable", KvError::Unavailable(TABLET)),
        ("led elsewhere", KvError::NotLeader { tablet: TABLET, leader: Some(NodeId(3)) }),
        ("led by an unknown node", KvError::NotLeader { tablet: TABLET, leader: None }),
        ("overloaded", KvError::Overloaded("the tablet's leader has too much to do")),
        ("timeout", KvError::Timeout(Waited { after_ms: 2_000, received: 1, required: 2 })),
        ("no such tablet", KvError::NoSuchTablet(TABLET)),
        ("disk full", KvError::DiskFull(text())),
        ("too large", KvError::TooLarge(text())),
        ("storage", KvError::Storage(text())),
        ("locked", KvError::Locked(TABLET)),
        ("an index that is being built", KvError::IndexBeingBuilt),
        ("a write that maintains too little", KvError::Unmaintained),
    ];
    let failed = |error| framed(FrameKind::Answers, |out| put_failed(out, 300, &error));
    written.extend(errors.map(|(name, error)| (name, failed(error))));
    written
}

#[test]
fn answers_have_their_bytes() {
    golden("answers", &[OUTCOMES, ERRORS]).check(&answers(), |_, bytes| {
        let (kind, _, mut reader) = read_frame(bytes).unwrap();
        let (id, outcome) = read_answer(&mut reader, |_| TABLET).unwrap();
        assert!(reader.is_empty() && kind == FrameKind::Answers);
        let mut kinds = vec![outcome_kind(&outcome)];
        let shown = format!("{id}: {outcome:?}").replace(", version: None", "");
        let encoded = framed(kind, |out| match outcome {
            Outcome::Written(reply) => put_written(out, id, &reply),
            Outcome::Failed(error) => {
                kinds.push(error_kind(&error));
                put_failed(out, id, &error);
            }
            Outcome::Fetched(fetched) => {
                let chunk = Some(fetched.chunk).filter(|chunk| *chunk != ScanChunk::default());
                let Fetched { header, static_row, row, partial, version, .. } = fetched;
                put_fetched(out, id, &Parts { header, static_row, row, chunk, partial, version });
            }
        });
        Decoded { kinds, shown, encoded: Some(encoded) }
    });
}
