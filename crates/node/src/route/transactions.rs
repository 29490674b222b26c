//! What the leaders of tablets ask each other about transactions that their coordinators have left unfinished.
//!
//! Always true: a call that fails is dropped: the leader that asks repeats it. Left out: when it asks
//! ([`diorite_replica`]), whom, and what the answers mean ([`diorite_query::exec::homes`]).

use super::router::Router;
use diorite_base::TabletId;
use diorite_query::exec::homes::{self, Sending};
use diorite_replica::{Store, TransactionPeers};
use diorite_transact::peer::{PeerCall, PeerResult};
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

async fn carry_out(router: &Router, store: &Store, from: TabletId, call: PeerCall) {
    let now_us = router.clock.wall_us();
    match homes::sending(&router.catalogs.catalog(), from, &call, now_us) {
        Sending::To(to, request) => {
            let mutation = Call::Request(request).to_mutation();
            let answer = router.write(to, mutation).await.ok().and_then(|answer| Answer::decode(&answer).ok());
            if let Some(Answer::Reply { reply, .. }) = answer
                && let Some(result) = homes::result_of(to, &call, &reply, router.clock.wall_us())
            {
                tell(store, from, result);
            }
        }
        Sending::Result(result) => tell(store, from, result),
        Sending::Nothing => {}
    }
}

fn tell(store: &Store, from: TabletId, result: PeerResult) {
    match result {
        PeerResult::Learned(id, prepared_us, status) => store.transaction_learned(from, (id, prepared_us), status),
        PeerResult::Finished(id, participant) => store.transaction_finished(from, id, participant),
    }
}
