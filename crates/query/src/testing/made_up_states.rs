//! Paging states that a client has made up, or took from another statement.

use super::pages_over_changes::{STATEMENTS, filled, page};
use crate::exec::paging::PagingState;
use crate::kv::Kv;
use diorite_cql::protocol::ErrorCode;

#[test]
fn keys_that_are_not_of_the_table_are_refused() {
    let database = filled("");
    let table = database.kv.catalog().table("ks", "t").unwrap().table.id.0;
    let (_, state) = page(&database, "SELECT k, c FROM t", 1, None).unwrap();
    let real = PagingState::decode(&state.unwrap()).unwrap();
    let made_up = |key: Vec<u8>, partition_len| PagingState { table, partition_len, key, ..real.clone() };
    let states = [
        made_up(vec![7; 20], 12),
        made_up(vec![0x80; 9], 9),
        made_up(vec![0xFF; 300], 299),
        made_up(real.key.clone(), real.partition_len - 1),
        made_up(real.key.clone(), real.key.len()),
    ];
    for statement in STATEMENTS {
        for state in &states {
            let error = page(&database, statement, 5, Some(&state.encode())).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ProtocolError, "{statement}: {state:?}: {error}");
        }
    }
}

#[test]
fn a_state_of_another_statement_is_refused_or_limits_no_more_than_it() {
    let database = filled("");
    let limited = "SELECT k, c FROM t WHERE k IN (4, 19) PER PARTITION LIMIT 2 LIMIT 3";
    let (rows, state) = page(&database, limited, 1, None).unwrap();
    assert_eq!(rows, ["k=4 c=0"]);
    let state = state.unwrap();
    for one_page in ["SELECT count(*) FROM t", "SELECT max(v) FROM t WHERE k IN (4, 19)"] {
        let error = page(&database, one_page, 5, Some(&state)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ProtocolError, "{one_page}: {error}");
    }
    let mut state = PagingState::decode(&state).unwrap();
    for limit in [None, Some(u64::MAX - 1)] {
        (state.remaining, state.remaining_in_partition) = (limit, limit);
        let (rows, _) = page(&database, limited, 100, Some(&state.encode())).unwrap();
        assert_eq!(rows, ["k=4 c=1", "k=4 c=2", "k=19 c=0"], "{limit:?}");
    }
}
