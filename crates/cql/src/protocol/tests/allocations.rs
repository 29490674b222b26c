//! The hot path allocates nothing: an EXECUTE is decoded, and a one-row answer encoded, without a call to the allocator.

use crate::protocol::client::{BoundValues, ClientRequest, Parameters, RequestHead, encode_request};
use crate::protocol::envelope::Role;
use crate::protocol::response::ReplyHead;
use crate::protocol::rows::SendMetadata;
use crate::protocol::{
    ColumnSpec, Inbound, Message, NativeType, Outbound, Request, ResultMetadata, RowsWriter, Value, Version,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_in(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

/// Serves whatever EXECUTEs `inbound` holds with one row each; returns how many there were.
fn serve(inbound: &mut Inbound, outbound: &mut Outbound, metadata: &ResultMetadata) -> usize {
    let mut served = 0;
    while let Some(envelope) = inbound.next().unwrap() {
        let message = Message::decode(&envelope).unwrap();
        let Request::Execute(execute) = message.request else { panic!("an EXECUTE was sent") };
        let head = ReplyHead::new(message.version, message.stream);
        let send = metadata.to_send(execute.parameters.skip_metadata, execute.result_metadata_id);
        let mut writer = RowsWriter::begin(outbound.buffer(), &head, metadata, send, None);
        for value in execute.parameters.values {
            match value {
                Value::Set(bytes) => writer.put_cell(bytes),
                Value::Null | Value::Unset => writer.put_null(),
            }
        }
        writer.end_row();
        writer.finish();
        outbound.commit();
        served += 1;
    }
    served
}

#[test]
fn a_point_read_is_decoded_and_answered_without_allocating() {
    let column = |name: &str| ColumnSpec {
        keyspace: "k".into(),
        table: "t".into(),
        name: name.into(),
        type_option: NativeType::Blob.into(),
    };
    let metadata = ResultMetadata::new(vec![column("key"), column("value")]);
    assert_eq!(metadata.to_send(true, Some(metadata.id())), SendMetadata::Skip);
    for version in Version::ALL {
        let (mut inbound, mut outbound, mut client) = (Inbound::new(Role::Server), Outbound::new(), Outbound::new());
        inbound.start(version, None);
        outbound.start(version, None);
        client.start(version, None);
        let values = [Value::Set(b"key:1"), Value::Set(&[7; 200])];
        let parameters =
            Parameters { values: BoundValues::Positional(&values), skip_metadata: true, ..Parameters::default() };
        let request = ClientRequest::Execute { id: &[3; 16], result_metadata_id: metadata.id(), parameters };
        for stream in 0..32 {
            encode_request(client.buffer(), &RequestHead::new(version, stream), &request);
            client.commit();
        }
        let wire = client.wire_bytes().to_vec();
        // In the first rounds the buffers grow to the connection's needs.
        for round in 0..4 {
            inbound.input().reserve(wire.len());
            inbound.input().extend_from_slice(&wire);
            let mut served = 0;
            let allocations = allocations_in(|| {
                served = serve(&mut inbound, &mut outbound, &metadata);
                let sent = outbound.wire_bytes().len();
                outbound.advance(sent);
            });
            assert_eq!(served, 32);
            assert!(round == 0 || allocations == 0, "{allocations} allocations in round {round} of {version:?}");
        }
    }
}
