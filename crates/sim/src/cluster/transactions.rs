//! Calls of the leaders of tablets to each other for transactions, as `diorite_node::route` carries them in production.

use crate::cluster::Cluster;
use crate::errands::{Ended, Purpose};
use crate::step::Command;
use diorite_base::mutation::Mutation;
use diorite_base::{NodeId, TabletId};
use diorite_replica::PeerCall;
use diorite_transact::message::{Reply, Request};
use diorite_transact::wire::{Answer, Call};

impl Cluster {
    /// Sends what the tablets of a node ask others.
    pub(crate) fn call_peers(&mut self, node: NodeId) {
        let calls = self.life(node).map(|life| life.take_peer_calls()).unwrap_or_default();
        for (from, call) in calls {
            let (tablet, request) = match &call {
                PeerCall::Ask { id, prepared_us, .. } => {
                    (id.tablet, Request::Status { id: *id, of: Some((from, *prepared_us)), at_us: None })
                }
                PeerCall::Finish { participant, id, ending } => {
                    (participant.tablet, Request::Finish { id: *id, ending: *ending })
                }
            };
            let mutation = Mutation::request(&Call::Request(request).encode());
            self.reached.peer_calls += 1;
            self.begin_errand(node, tablet, mutation, Purpose::Transaction(from, call));
        }
    }

    /// A tablet has answered such a call, or not.
    pub(crate) fn peer_answered(&mut self, node: NodeId, from: TabletId, call: PeerCall, ended: Ended) {
        let Ok(Ok(Answer::Reply { reply, .. })) = ended.map(|answer| Answer::decode(&answer)) else { return };
        match (call, reply) {
            (PeerCall::Ask { id, prepared_us, .. }, Reply::Status { status, .. }) => {
                self.command(node, Command::Learned(from, (id, prepared_us), status));
            }
            (PeerCall::Finish { id, participant, .. }, Reply::Finished(_)) => {
                self.command(node, Command::Finished(from, id, participant.tablet));
            }
            _ => {}
        }
    }
}
