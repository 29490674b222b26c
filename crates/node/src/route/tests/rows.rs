//! Rows that are too large, as the server stores them: writes are refused with the limit's name on every node, and
//! removals are accepted.

use super::*;
use diorite_base::limits::MAX_ROW_BYTES;
use diorite_base::program::ProvenProgram;
use diorite_model::row::Deletion;
use diorite_query::program::{ListEdit, Program, ProgramOperation};

const COLUMN: u32 = 1;
const MIB: usize = 1 << 20;

fn key() -> Vec<u8> {
    let mut key = vec![7; 12];
    diorite_model::key::push_row(&mut key);
    key
}

/// Changes of one collection.
fn change(write: impl FnOnce(&mut RowWriter<'_>)) -> Mutation {
    let (mut mutation, mut packed) = (Mutation::blind(None), Vec::new());
    write(&mut RowWriter::new(&mut packed, UNSTAMPED));
    mutation.push(OperationKind::Merge, true, &key(), &packed);
    mutation
}

/// Adds an element under a path of its own.
fn add(path: u32, bytes: usize) -> Mutation {
    change(|row| {
        row.begin_complex(COLUMN, None);
        row.element(&path.to_be_bytes(), UNSTAMPED, None, &vec![7; bytes]);
        row.end_complex();
    })
}

fn remove(path: u32) -> Mutation {
    change(|row| {
        row.begin_complex(COLUMN, None);
        row.element_tombstone(&path.to_be_bytes(), Deletion { timestamp_us: UNSTAMPED, local_s: 1 });
        row.end_complex();
    })
}

fn empty() -> Mutation {
    change(|row| {
        row.begin_complex(COLUMN, Some(Deletion { timestamp_us: UNSTAMPED.wrapping_sub(1), local_s: 1 }));
        row.end_complex();
    })
}

fn set_by_index() -> Mutation {
    let operation = ProgramOperation::List {
        key: key(),
        partition_len: 12,
        column: COLUMN,
        edit: ListEdit::Set(0, Some(vec![1; 10])),
        explicit_us: None,
        expiry: None,
    };
    let program = Program { operations: vec![operation], ..Program::default() };
    Mutation::evaluated(None, &ProvenProgram::new(&program).unwrap())
}

/// Writes through a node, and repeats the write while the row is being measured or the machine is slow. These writes
/// may be repeated without another effect.
async fn write(cluster: &Cluster, node: u64, tablet: TabletId, mutation: &Mutation) -> Result<(), KvError> {
    for _ in 0..18_000 {
        let router = cluster.router(node);
        match sent(router, router.write(tablet, mutation.clone())).await {
            Err(KvError::Overloaded(_) | KvError::Timeout(_)) => {}
            outcome => return outcome.map(drop),
        }
        #[allow(clippy::disallowed_methods, reason = "a test waits for other threads")]
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the row is never measured");
}

fn is_too_large(outcome: &Result<(), KvError>) -> bool {
    matches!(outcome, Err(KvError::TooLarge(why)) if why.contains("ROW_BYTES"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_too_large_is_refused_by_name_and_can_be_emptied() {
    let cluster = Cluster::start(2, 1, RouteOptions::default()).await;
    let tablet = cluster.tablet(|replicas| replicas == [NodeId(1)]);
    cluster.wait_for_leader(tablet).await;
    let mut elements = 0;
    let refused = loop {
        // From the node that leads, and from one that does not, in turn.
        let outcome = write(&cluster, 1 + u64::from(elements % 2), tablet, &add(elements, 6 * MIB)).await;
        if outcome.is_err() {
            break outcome;
        }
        elements += 1;
        assert!(elements < 40, "nothing is refused");
    };
    assert!(is_too_large(&refused), "{refused:?}");
    let bytes = elements as usize * 6 * MIB;
    assert!((MAX_ROW_BYTES..=MAX_ROW_BYTES + 32 * MIB).contains(&bytes), "{elements} elements");
    for node in [1, 2] {
        let outcome = write(&cluster, node, tablet, &add(9_999, 1)).await;
        assert!(is_too_large(&outcome), "{outcome:?}");
        let outcome = write(&cluster, node, tablet, &set_by_index()).await;
        assert!(is_too_large(&outcome), "a program is refused as well: {outcome:?}");
    }
    // Removes element by element.
    for path in 0..elements - 2 {
        write(&cluster, 2, tablet, &remove(path)).await.unwrap();
    }
    wait_until_taken(&cluster, tablet, &add(100, 6 * MIB)).await;
    wait_until_refused(&cluster, tablet).await;
    // Removes all at once.
    write(&cluster, 2, tablet, &empty()).await.unwrap();
    write(&cluster, 2, tablet, &add(7, 10)).await.unwrap();
    let row = cluster.fetch(1, tablet, one(&key())).await.unwrap().row.unwrap();
    assert!(row.len() < 1_000, "{} bytes", row.len());
}

/// A row that lost single elements is measured again within a second.
async fn wait_until_taken(cluster: &Cluster, tablet: TabletId, mutation: &Mutation) {
    for _ in 0..18_000 {
        match write(cluster, 1, tablet, mutation).await {
            Ok(()) => return,
            outcome => assert!(is_too_large(&outcome), "{outcome:?}"),
        }
        #[allow(clippy::disallowed_methods, reason = "a test waits for other threads")]
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the row stays refused");
}

async fn wait_until_refused(cluster: &Cluster, tablet: TabletId) {
    for path in 200..240 {
        let outcome = write(cluster, 1, tablet, &add(path, 6 * MIB)).await;
        if is_too_large(&outcome) {
            return;
        }
        outcome.unwrap();
    }
    panic!("nothing is refused");
}
