//! Decoding an encoded message gives the same message, and no bytes make decoding panic.

use super::*;
use crate::route::fetch_wire::FetchRef;
use crate::route::wire::{self, FrameKind, OperationRef, Outcome, Parts};
use diorite_base::bytes::Reader;
use diorite_base::write::Waited;
use diorite_query::kv::several::Several;
use diorite_query::kv::{CommittedIn, PinnedRead, ScanChunk, ScanRequest};
use diorite_transact::TransactionId;
use diorite_transact::version::DataVersion;
use diorite_transact::wire::PinId;
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few letters, so that keys share prefixes.
    proptest::collection::vec(0u8..2, 0..6)
}

fn rows() -> impl Strategy<Value = FetchRows> {
    let range = (key(), key(), any::<bool>(), any::<u32>(), any::<u32>()).prop_map(
        |(start, end, reverse, max_entries, max_bytes)| {
            let (max_entries, max_bytes) = (max_entries as usize, max_bytes as usize);
            FetchRows::Range(ScanRequest { start, end, reverse, max_entries, max_bytes })
        },
    );
    let several =
        (key(), any::<bool>(), any::<u32>(), any::<u32>()).prop_map(|(spans, reverse, max_entries, max_bytes)| {
            let (max_entries, max_bytes) = (max_entries as usize, max_bytes as usize);
            FetchRows::Several(Several { spans, reverse, max_entries, max_bytes })
        });
    prop_oneof![Just(FetchRows::Nothing), key().prop_map(FetchRows::One), range, several]
}

fn fetch() -> impl Strategy<Value = Fetch> {
    let header = proptest::option::of((any::<u64>(), key()));
    let aggregate = proptest::option::of(key());
    let pinned = proptest::option::of(pinned());
    let parts = (header, proptest::option::of(key()), rows(), aggregate, pinned, any::<(bool, Option<u32>)>());
    parts.prop_map(|(header, static_row, rows, aggregate, pinned, (wants_version, judged_s))| Fetch {
        staleness_ms: None,
        header,
        static_row,
        rows,
        needs_disk: false,
        deadline_ns: None,
        aggregate,
        pinned,
        wants_version,
        judged_s,
    })
}

fn pinned() -> impl Strategy<Value = PinnedRead> {
    let committed = any::<(u64, u64, u64, i64, i64)>().prop_map(|(tablet, term, number, prepared_us, committed_us)| {
        let id = TransactionId { tablet: TabletId(tablet), term, number };
        CommittedIn { id, prepared_us, committed_us }
    });
    (any::<u64>(), proptest::collection::vec(committed, 0..3))
        .prop_map(|(pin, committed)| PinnedRead { pin: PinId(pin), committed: committed.into() })
}

fn version() -> impl Strategy<Value = DataVersion> {
    any::<(u64, u64, u64)>().prop_map(|(node, term, changes)| DataVersion { node: NodeId(node), term, changes })
}

fn chunk() -> impl Strategy<Value = ScanChunk> {
    (proptest::collection::vec((key(), key()), 0..5), any::<bool>()).prop_map(|(entries, exhausted)| {
        let mut chunk = ScanChunk { exhausted, ..ScanChunk::default() };
        entries.iter().for_each(|(key, value)| chunk.push(key, value));
        chunk
    })
}

fn error() -> impl Strategy<Value = KvError> {
    let tablet = TabletId(7);
    prop_oneof![
        Just(KvError::Unavailable(tablet)),
        proptest::option::of(1u64..9).prop_map(move |leader| KvError::NotLeader { tablet, leader: leader.map(NodeId) }),
        Just(KvError::Overloaded("the tablet's leader has too much to do")),
        any::<(u64, u32, u32)>()
            .prop_map(|(after_ms, received, required)| { KvError::Timeout(Waited { after_ms, received, required }) }),
        Just(KvError::NoSuchTablet(tablet)),
        any::<String>().prop_map(KvError::DiskFull),
        any::<String>().prop_map(KvError::TooLarge),
        any::<String>().prop_map(KvError::Storage),
        prop::sample::select(vec![KvError::Locked(tablet), KvError::IndexBeingBuilt, KvError::Unmaintained]),
    ]
}

proptest! {
    #[test]
    fn requests_come_back_as_they_went(id: u64, tablet: u64, asked in fetch(), left_ms: Option<u64>, mutation: Vec<u8>, run: u64) {
        let mut frame = Vec::new();
        wire::put_frame(&mut frame, FrameKind::Requests, run);
        wire::put_fetch(&mut frame, id, TabletId(tablet), &asked, left_ms);
        wire::put_write(&mut frame, id, TabletId(tablet), &mutation, left_ms);
        let (kind, incarnation, mut items) = wire::read_frame(&frame).unwrap();
        prop_assert_eq!((kind, incarnation), (FrameKind::Requests, run));
        let read = wire::read_request(&mut items).unwrap();
        prop_assert_eq!((read.id, read.tablet), (id, TabletId(tablet)));
        let OperationRef::Fetch(found) = read.operation else { panic!("a read") };
        prop_assert_eq!((found.to_fetch(), found.left_ms), (asked.clone(), left_ms));
        let (mut scratch, mut other) = (Vec::new(), Vec::new());
        if let (Some((_, found)), Some((_, asked))) = (&found.header, &FetchRef::from(&asked).header) {
            prop_assert_eq!(found.join(&mut scratch), asked.join(&mut other));
        }
        prop_assert_eq!(wire::read_request(&mut items).unwrap().operation, OperationRef::Write(&mutation, left_ms));
        prop_assert!(items.is_empty());
    }

    #[test]
    fn answers_come_back_as_they_went(
        id: u64,
        header in proptest::option::of(key()),
        static_row in proptest::option::of(key()),
        row in proptest::option::of(key()),
        chunk in proptest::option::of(chunk()),
        partial in proptest::option::of(key()),
        version in proptest::option::of(version()),
        reply: Vec<u8>,
        error in error(),
    ) {
        let mut out = Vec::new();
        let parts = Parts {
            header: header.as_deref(),
            static_row: static_row.as_deref(),
            row: row.as_deref(),
            chunk: chunk.clone(),
            partial: partial.clone(),
            version,
        };
        wire::put_fetched(&mut out, id, &parts);
        wire::put_written(&mut out, id, &reply);
        wire::put_failed(&mut out, id, &error);
        let mut items = Reader::new(&out);
        let mut next = || wire::read_answer(&mut items, |_| TabletId(7)).unwrap();
        let fetched = Fetched { header, static_row, row, chunk: chunk.unwrap_or_default(), partial, version, ..Fetched::default() };
        prop_assert_eq!(next(), (id, Outcome::Fetched(fetched)));
        prop_assert_eq!(next(), (id, Outcome::Written(reply)));
        prop_assert_eq!(next(), (id, Outcome::Failed(error)));
    }

    #[test]
    fn no_input_panics(bytes: Vec<u8>) {
        let _ = wire::read_frame(&bytes);
        let mut items = Reader::new(&bytes);
        while !items.is_empty() && wire::read_request(&mut items).is_ok() {}
        let mut items = Reader::new(&bytes);
        while !items.is_empty() && wire::read_answer(&mut items, |_| TabletId(0)).is_ok() {}
    }
}
