//! Covering indexes: their hidden views, and what becomes of them.

use super::*;
use diorite_model::schema::{Clustered, Covering, CoveringState, Order};

/// `cover ks.t by_v` makes an index of the second column that covers it, `finish-covering ks.t NUMBER ready|failed|removed`
/// says what becomes of its view, `uncover ks.t by_v` drops it.
pub(super) fn command(catalog: &Catalog, verb: &str, words: &[&str]) -> Command {
    let (keyspace, name) = words[0].split_once('.').unwrap();
    let mut table = Table::clone(&catalog.table(keyspace, name).unwrap().table);
    match verb {
        "cover" => {
            let flag = |name: &str| words.contains(&name);
            let included = if flag("badly") { vec![9] } else { vec![0] };
            let clustering = vec![Clustered { column: 0, order: Order::Desc }];
            // What a command says of the view and its state does not count.
            let (view, state) = (77, CoveringState::Ready);
            let covering = Covering { partition: vec![1], clustering, included, view, state };
            let covering = Some(Box::new(covering));
            table.indexes.push(Index { covering, ..index_of(words[1], table.version + 1) });
            Command::AlterTable { table }
        }
        "uncover" => {
            table.indexes.retain(|index| index.name != words[1]);
            Command::AlterTable { table }
        }
        "finish-covering" => {
            let outcome = match words[2] {
                "ready" => CoveringOutcome::Ready,
                "failed" => CoveringOutcome::Failed("it is too long".to_owned()),
                _ => CoveringOutcome::Removed,
            };
            Command::FinishCovering { table: table.id, view: words[1].parse().unwrap(), outcome }
        }
        other => panic!("unknown script command {other}"),
    }
}
