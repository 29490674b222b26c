//! What the leaders of tablets ask each other about transactions that their coordinators have left unfinished.
//!
//! Always true: a call that fails is dropped: the leader that asks repeats it. Left out: when it asks
//! ([`diorite_replica`]), and what the answers mean ([`diorite_transact`]).

use super::router::Router;
use diorite_base::mutation::Mutation;
use diorite_base::{TableId, TabletId};
use diorite_model::key::token_of;
use diorite_replica::{PeerCall, Store, TransactionPeers};
use diorite_transact::message::{Reply, Request, Status};
use diorite_transact::timing::Timing;
use diorite_transact::wire::{Answer, Call};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// The most calls under way at a time. Others are dropped, and repeated later.
const MAX_CALLS: usize = 1_024;

/// See the top of this module.
pub(crate) struct Peers {
    router: Weak<Router>,
    store: Weak<Store>,
    runtime: Handle,
    calls: Arc<AtomicUsize>,
}

impl Peers {
    /// The caller is a task of the runtime on which the calls are to run.
    pub(crate) fn new(router: &Arc<Router>, store: &Arc<Store>) -> Self {
        let (router, store) = (Arc::downgrade(router), Arc::downgrade(store));
        Self { router, store, runtime: Handle::current(), calls: Arc::default() }
    }
}

impl TransactionPeers for Peers {
    fn call(&self, tablet: TabletId, call: PeerCall) {
        let (Some(router), Some(store)) = (self.router.upgrade(), self.store.upgrade()) else { return };
        if self.calls.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS {
            self.calls.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let calls = Arc::clone(&self.calls);
        self.runtime.spawn(async move {
            carry_out(&router, &store, tablet, call).await;
            calls.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Whether nothing more is expected of the coordinator of a prepare whose home was dropped or truncated, and with it the
/// record of a commit, if there was one. Before that, a coordinator may still report that it is committed. A prepare with
/// a stamp far ahead of this node's clock counts as old: its rows must not stay locked until the clock gets there.
fn is_old(prepared_us: i64, now_us: i64) -> bool {
    prepared_us.abs_diff(now_us) >= Timing::default().keep_record_ns / 1_000
}

async fn carry_out(router: &Router, store: &Store, from: TabletId, call: PeerCall) {
    let (tablet, request) = match &call {
        PeerCall::Ask { home, id, prepared_us } => {
            let of = Some((from, *prepared_us));
            (router.tablet_now(id.tablet, home.table, &home.key), Request::Status { id: *id, of, at_us: None })
        }
        PeerCall::Finish { participant, id, ending } => (
            router.tablet_now(participant.tablet, participant.table, &participant.key),
            Request::Finish { id: *id, ending: *ending },
        ),
    };
    let Some(tablet) = tablet else {
        match call {
            PeerCall::Ask { id, prepared_us, .. }
                if router.is_dropped(id.tablet) && is_old(prepared_us, router.clock.wall_us()) =>
            {
                store.transaction_learned(from, (id, prepared_us), Status::Aborted);
            }
            PeerCall::Finish { participant, id, .. } if router.is_dropped(participant.tablet) => {
                store.transaction_finished(from, id, participant.tablet);
            }
            PeerCall::Ask { .. } | PeerCall::Finish { .. } => {}
        }
        return;
    };
    let Ok(answer) = router.write(tablet, Mutation::request(&Call::Request(request).encode())).await else { return };
    match (call, Answer::decode(&answer)) {
        // It never knew the transaction.
        (
            PeerCall::Ask { id, prepared_us, .. },
            Ok(Answer::Reply { reply: Reply::Status { status: Status::Aborted, .. }, .. }),
        ) if tablet != id.tablet && !is_old(prepared_us, router.clock.wall_us()) => {}
        (PeerCall::Ask { id, prepared_us, .. }, Ok(Answer::Reply { reply: Reply::Status { status, .. }, .. })) => {
            store.transaction_learned(from, (id, prepared_us), status);
        }
        (PeerCall::Finish { id, participant, .. }, Ok(Answer::Reply { reply: Reply::Finished(_), .. })) => {
            store.transaction_finished(from, id, participant.tablet);
        }
        _ => {}
    }
}

impl Router {
    /// Whether the tablet once was, and is no more.
    fn is_dropped(&self, tablet: TabletId) -> bool {
        let catalog = self.catalogs.catalog();
        catalog.identity().has_numbered(tablet) && catalog.placement(tablet).is_none()
    }

    /// The tablet, or the one that has its key now, if it was split or merged.
    pub(crate) fn tablet_now(&self, tablet: TabletId, table: TableId, key: &[u8]) -> Option<TabletId> {
        let catalog = self.catalogs.catalog();
        let is_split = |tablet| {
            catalog.placement(tablet).is_some_and(|placement| placement.split.is_some_and(|split| split.is_served))
        };
        if catalog.placement(tablet).is_some() && !is_split(tablet) {
            return Some(tablet);
        }
        Some(catalog.table_by_id(table)?.tablet_of(token_of(key).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_has_ten_seconds_whatever_the_clocks_say() {
        let now_us = 1_700_000_000_000_000;
        for (prepared_us, expected) in [
            (now_us, false),
            (now_us - 9_999_999, false),
            (now_us - 10_000_000, true),
            (now_us + 1_000_000, false),
            (now_us + 86_400_000_000, true),
            (i64::MIN, true),
            (i64::MAX, true),
        ] {
            assert_eq!(is_old(prepared_us, now_us), expected, "{prepared_us}");
        }
    }
}
