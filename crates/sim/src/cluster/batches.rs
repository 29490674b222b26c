//! Batches of plain writes: the asked node groups the keys by tablet, as far as it knows the tablets, and its router
//! sends each part to the tablet's leader.
//!
//! Always true: a batch is acknowledged only if all its parts were. A part whose tablet does not exist any more is
//! planned again, with the node's catalog at that time.

use crate::batches::{Batch, FIRST_PART};
use crate::client::{Answer, Asked};
use crate::cluster::{Cluster, Event};
use crate::program;
use crate::routing::{Ended, Question, Work};
use diorite_base::TabletId;
use diorite_base::write::{KvError, Waited};
use std::collections::BTreeMap;

/// How often parts of one batch are planned again.
const PLANS: u32 = 20;

/// How long a node waits before it plans a part again, nanoseconds.
const PLAN_NS: u64 = 10_000_000;

impl Cluster {
    /// A node is asked to write several entries.
    pub fn begin_batch(&mut self, asked: Asked, entries: Vec<(u64, u64)>) {
        let batch = Batch { asked, open: 0, plans: 0, may_be_done: false, failure: None };
        self.batches.under_way.insert(asked.request, batch);
        self.plan_batch(asked.request, entries, false);
    }

    /// Entries of a batch are planned, by what the node knows now. `is_again`: they were a part, which counts as open.
    pub fn plan_batch(&mut self, request: u64, entries: Vec<(u64, u64)>, is_again: bool) {
        let Some(asked) = self.batches.under_way.get(&request).map(|batch| batch.asked) else { return };
        if self.life(asked.node).is_none() {
            self.batches.under_way.remove(&request);
            return;
        }
        let root = self.setting.ranges.of(asked.target).root;
        let mut parts: BTreeMap<TabletId, Vec<(u64, u64)>> = BTreeMap::new();
        for (key, value) in entries {
            let tablet = self.planned(asked.node, root, key);
            parts.entry(tablet).or_default().push((key, value));
        }
        if let Some(batch) = self.batches.under_way.get_mut(&request) {
            batch.open += parts.len();
            batch.open -= usize::from(is_again);
        }
        self.reached.divided_batches += u64::from(parts.len() > 1);
        for (tablet, entries) in parts {
            let token = FIRST_PART + self.batches.next;
            self.batches.next += 1;
            let question = Question::Write(program::put_all(&entries));
            self.batches.parts.insert(token, (request, entries));
            self.ask_router(asked.node, tablet, Work { token, question });
        }
    }

    /// A part of a batch has ended.
    pub fn part_ended(&mut self, leaves_ns: u64, token: u64, ended: Ended) {
        let Some((request, entries)) = self.batches.parts.remove(&token) else { return };
        let Some(batch) = self.batches.under_way.get_mut(&request) else { return };
        batch.open -= 1;
        match ended {
            Ok(_) => batch.may_be_done = true,
            Err(KvError::NoSuchTablet(_)) if batch.plans < PLANS => {
                batch.plans += 1;
                batch.open += 1;
                return self.later(PLAN_NS, Event::PlanBatch(request, entries));
            }
            Err(error) => {
                batch.may_be_done |= !error.is_refusal();
                batch.failure = Some(error);
            }
        }
        if batch.open > 0 {
            return;
        }
        let Some(batch) = self.batches.under_way.remove(&request) else { return };
        let answer = match batch.failure {
            None => Answer::Written(Vec::new()),
            Some(_) if batch.may_be_done => Answer::Failed(KvError::Timeout(Waited::ended())),
            Some(error) => Answer::Failed(error),
        };
        self.send_answer(leaves_ns, batch.asked, answer);
    }
}
