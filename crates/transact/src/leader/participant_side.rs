//! A participant's side: prepares, their ends, and questions to the home about old ones.
//!
//! A prepare and the commit that covers it are matched by the stamp of the prepare, not by the id alone: a message that
//! is late or repeated may prepare a transaction again after it has been finished here. Such a prepare is covered by no
//! commit, locks its rows until the home is asked, and ends as aborted.

use super::{Action, Asker, Leader, Pending};
use crate::ids::{Home, TransactionId};
use crate::locks::{Hold, Owner, Wait};
use crate::message::{Reply, Status};
use crate::peer::PeerCall;
use crate::records::Records;
use crate::step::{Ending, Operation, Prepare, Step};
use crate::targets::Targets;

/// The most askers that are answered when an end is applied.
const MAX_ASKERS: usize = 8;

impl Leader {
    pub(super) fn prepare(
        &mut self,
        records: &Records,
        id: TransactionId,
        pending: Pending,
        targets: &Targets,
        wait: Wait,
    ) {
        let asker = pending.asker;
        if let Some(record) = records.prepared(&id) {
            return self.reply(asker, Reply::Prepared { id, stamp_us: record.stamp_us });
        }
        if let Some(earlier) = self.pending.get_mut(&id) {
            earlier.asker = asker;
            return;
        }
        if let Some(earlier) = self.preparing.get_mut(&id) {
            *earlier = asker;
            return;
        }
        self.enqueue(id, pending, targets, wait);
    }

    pub(super) fn staged(&mut self, id: TransactionId, asker: Asker, home: Home, operations: Vec<Operation>) {
        let owner = Owner::Transaction(id);
        let targets = self.locks.held_by(&owner).expect("what was evaluated is latched").clone();
        self.preparing.insert(id, asker);
        self.propose(Step::Prepare(Prepare { id, home, targets, operations: operations.into() }), i64::MIN);
    }

    pub(super) fn prepare_applied(&mut self, records: &Records, prepare: &Prepare, now_ns: u64) {
        let id = prepare.id;
        let owner = Owner::Transaction(id);
        if !self.locks.knows(&owner) {
            // An earlier leader has appended it.
            self.locks.restore(owner, prepare.targets.clone(), Hold::Prepared);
        }
        self.locks.mark(&owner, Hold::Prepared);
        self.prepared_since_ns.insert(id, now_ns);
        if let (Some(to), Some(record)) = (self.preparing.remove(&id), records.prepared(&id)) {
            self.reply(to, Reply::Prepared { id, stamp_us: record.stamp_us });
        }
    }

    /// A transaction has ended. `asker` is answered when its prepare is no longer in force here.
    pub(super) fn finish(&mut self, records: &Records, asker: Option<Asker>, id: TransactionId, ending: Ending) {
        let ending = match (ending, records.prepared(&id)) {
            (Ending::Committed { committed_us, .. }, Some(record)) if self.planted.any_prepare_is_covered => {
                Ending::Committed { prepared_us: record.stamp_us, committed_us }
            }
            _ => ending,
        };
        if !records.is_ended_by(&id, ending) {
            if ending == Ending::Aborted && self.pending.remove(&id).is_some() {
                self.unlock(id);
            }
            if let Some(to) = asker {
                self.reply(to, Reply::Finished(id));
            }
            return;
        }
        let is_first = !self.finishing.contains_key(&id);
        let askers = self.finishing.entry(id).or_default();
        if askers.len() < MAX_ASKERS {
            askers.extend(asker);
        }
        if is_first {
            // A read that is pinned while this entry is in flight has to see that it makes rows of this stamp visible.
            let above_us = match ending {
                Ending::Committed { committed_us, .. } if !self.planted.finish_below_commit => committed_us,
                Ending::Committed { .. } | Ending::Aborted => i64::MIN,
            };
            self.propose(Step::Finish { id, ending }, above_us);
            if self.planted.unlock_at_the_end {
                self.unlock(id);
            }
        }
    }

    pub(super) fn finish_applied(&mut self, records: &Records, id: TransactionId) {
        for to in self.finishing.remove(&id).unwrap_or_default() {
            self.reply(to, Reply::Finished(id));
        }
        if records.prepared(&id).is_none() && self.prepared_since_ns.remove(&id).is_some() {
            self.unlock(id);
        }
    }

    pub(super) fn ask_about_old_locks(&mut self, records: &Records, now_ns: u64) {
        let (ask_ns, is_planted) = (self.timing.ask_ns, self.planted.never_ask);
        let old = records.all_prepared().filter(|(id, _)| {
            let is_ending = self.finishing.contains_key(*id);
            let since_ns = self.prepared_since_ns.get(*id);
            !is_ending && !is_planted && since_ns.is_some_and(|since_ns| now_ns >= since_ns + ask_ns)
        });
        let questions = old.map(|(id, record)| {
            let home = record.prepare.home.clone();
            Action::Call(PeerCall::Ask { home, id: *id, prepared_us: record.stamp_us })
        });
        self.actions.extend(questions);
    }

    /// The home has answered an [`PeerCall::Ask`] about the prepare with this stamp.
    pub fn learned(&mut self, records: &Records, id: TransactionId, prepared_us: i64, status: Status) {
        if records.prepared(&id).is_none_or(|record| record.stamp_us != prepared_us) || !self.is_ready {
            return;
        }
        match status {
            Status::NotYet => {}
            Status::Aborted => self.finish(records, None, id, Ending::Aborted),
            Status::Committed(committed_us) => {
                self.finish(records, None, id, Ending::Committed { prepared_us, committed_us });
            }
        }
    }
}
