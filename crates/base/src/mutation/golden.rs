//! The golden bytes of mutations.

use super::tests::Bytes;
use super::*;
use diorite_golden::{Decoded, Golden, kinds};

kinds!(OPERATION_KINDS, kind_of(OperationKind): Overwrite, Merge);
kinds!(BODIES, body_of(Body): Blind, Evaluated, Request, Step);

fn stamped(mut mutation: Mutation) -> Vec<u8> {
    mutation.stamp(1_700_000_000_000_000);
    mutation.as_bytes().to_vec()
}

fn written() -> Vec<(&'static str, Vec<u8>)> {
    let mut rows = Mutation::blind(None);
    let value = [0x41, 0, 0, 0, 0, 0, 0, 0, 0x80, 7];
    rows.push(OperationKind::Overwrite, true, b"whole", &value);
    rows.push(OperationKind::Merge, false, b"part", &value);
    rows.push_row(OperationKind::Merge, true, true, b"list", &value);
    rows.push_row(OperationKind::Overwrite, false, true, b"list", &[9; 200]);
    let mut deletion = Mutation::blind(Some(-5));
    deletion.push(OperationKind::Merge, false, b"key", &[]);
    deletion.mark_deletion();
    let program = ProvenProgram::new(&Bytes(b"program".to_vec())).expect("some bytes");
    vec![
        ("rows", stamped(rows)),
        ("nothing", stamped(Mutation::blind(None))),
        ("a deletion with an explicit timestamp", stamped(deletion)),
        ("a program", stamped(Mutation::evaluated(None, &program))),
        ("a program with an explicit timestamp", stamped(Mutation::evaluated(Some(i64::MAX), &program))),
        ("time", time_passes(1_700_000_000_000_000, 864_000)),
        ("a request", stamped(Mutation::request(b"request"))),
        ("a step", step(1_700_000_000_000_000, b"step")),
    ]
}

fn decode(_: &str, bytes: &[u8]) -> Decoded {
    let read = MutationRef::decode(bytes).expect("a mutation");
    let mut kinds = vec![body_of(&read.body())];
    let body = match read.body() {
        Body::Evaluated(program) => format!("program {program:?}"),
        Body::Request(request) => format!("request {request:?}"),
        Body::Step(step) => format!("step {step:?}"),
        Body::Blind(operations) => {
            let operations = operations.collect::<Result<Vec<_>, _>>().expect("operations");
            kinds.extend(operations.iter().map(|operation| kind_of(&operation.kind)));
            format!("{operations:?}")
        }
    };
    let MutationRef { flags, stamp_us, explicit_us, gc_grace_s, .. } = read;
    let shown = format!("flags {flags}, stamp {stamp_us}, explicit {explicit_us:?}, grace {gc_grace_s:?}: {body}");
    Decoded { kinds, shown, encoded: None }
}

#[test]
fn mutations_have_their_bytes() {
    Golden { level: crate::Levels::OWN.greatest.0, format: "mutations", kinds: &[OPERATION_KINDS, BODIES] }
        .check(&written(), decode);
}
