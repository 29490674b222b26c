//! Random schedules: messages are delivered in any order or lost, replicas crash and lose their logs, voters change.
//!
//! Whatever is lost, at most availability may be lost with it: no two replicas apply different entries at one index, and
//! no term has two leaders, as the script checks.

use super::*;
use diorite_base::random::{Random, SplitMix64};
use std::panic::{AssertUnwindSafe, catch_unwind};

const STEPS: u64 = 500;

struct Schedule {
    script: Script,
    random: SplitMix64,
    proposed: u64,
    lost_logs: u64,
}

impl Schedule {
    fn new(seed: u64, votes_without_condition: bool) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut script = Script { is_held: true, votes_without_condition, ..Script::default() };
        let voters: Vec<u64> = (1..=1 + random.next_u64() % 4).collect();
        script.initial = ConfState { voters: voters.clone(), ..ConfState::default() };
        (1..=4).for_each(|id| script.add(id, script.initial.clone()));
        Self { script, random, proposed: 0, lost_logs: 0 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn step(&mut self) {
        let id = 1 + self.below(4);
        match self.below(100) {
            0..60 => self.deliver(),
            60..66 => self.lose_message(),
            66..76 => self.campaign(id),
            76..84 => self.propose(id),
            84..90 => self.change_members(id),
            90..93 => {
                self.script.stop(id);
                self.script.start(id);
            }
            93..94 => self.lose_log(id),
            94..97 => self.report_lost(id),
            _ => self.script.group(id).ping(),
        }
        self.script.run_to_rest();
        self.script.check_leaders();
        assert!(!self.script.out.contains("contradicts"), "{}", self.script.out);
        self.script.out.clear();
    }

    fn deliver(&mut self) {
        let waiting = self.script.network.len() as u64;
        if waiting > 0 {
            // Mostly in order, so that something comes of it.
            let at = if self.below(4) == 0 { self.below(waiting) } else { 0 };
            let message = self.script.network.remove(at as usize).unwrap();
            self.script.receive(message);
        }
    }

    fn lose_message(&mut self) {
        let waiting = self.script.network.len() as u64;
        if waiting > 0 {
            let at = self.below(waiting);
            self.script.network.remove(at as usize);
        }
    }

    fn campaign(&mut self, id: u64) {
        let group = self.script.group(id);
        if !group.is_recovering() && group.all_voters().any(|voter| voter == id) {
            group.campaign().unwrap();
        }
    }

    fn propose(&mut self, id: u64) {
        self.proposed += 1;
        let data = self.proposed.to_string().into_bytes();
        let group = self.script.group(id);
        if group.is_leader() {
            group.propose(data).unwrap();
        }
    }

    fn change_members(&mut self, id: u64) {
        let other = 1 + self.below(4);
        let (other_too, is_exchange) = (1 + self.below(4), self.below(2) == 0);
        let group = self.script.group(id);
        let members = group.members().clone();
        if !group.is_leader() {
            return;
        }
        let (is_voter, is_learner) = (members.voters.contains(&other), members.learners.contains(&other));
        // A leader takes no part in its own removal.
        let removes = |voter: u64| is_exchange && ![other, id].contains(&voter) && members.voters.contains(&voter);
        let change = if group.is_joint() {
            MemberChange::LeaveJoint
        } else if is_learner {
            let remove = Some(other_too).filter(|voter| removes(*voter)).into_iter().collect();
            MemberChange::EnterJoint { add: vec![other], demote: Vec::new(), remove }
        } else if !is_voter {
            MemberChange::AddLearner(other)
        } else if other != id && members.voters.len() > 1 {
            MemberChange::EnterJoint { add: Vec::new(), demote: vec![other], remove: Vec::new() }
        } else {
            return;
        };
        // Another change may be under way.
        let _ = group.propose_member_change(&change);
    }

    /// The replica starts again without its log, with the initial members.
    fn lose_log(&mut self, id: u64) {
        self.lost_logs += 1;
        self.script.lose_log(id, None);
        let initial = self.script.initial.clone();
        self.script.disk(id).recovered.conf_state = initial;
        self.script.start(id);
    }

    /// A leader learns that the replica has lost its log.
    fn report_lost(&mut self, id: u64) {
        let group = self.script.group(id);
        if group.is_recovering() {
            let held = group.last_index();
            (1..=4).for_each(|leader| self.script.group(leader).forget_progress(id, held));
        }
    }
}

/// Runs schedules; returns how many entries replicas have applied in them, and how many logs were lost.
fn run(seed: u64, votes_without_condition: bool) -> [u64; 2] {
    let mut schedule = Schedule::new(seed, votes_without_condition);
    (0..STEPS).for_each(|_| schedule.step());
    [schedule.script.applied.len() as u64, schedule.lost_logs]
}

#[test]
fn lost_logs_never_make_replicas_differ() {
    let (mut applied, mut lost_logs) = (0, 0);
    for seed in 1..=2_000 {
        let run = catch_unwind(AssertUnwindSafe(|| run(seed, false)));
        let [more_applied, more_lost] = run.unwrap_or_else(|_| panic!("seed {seed}"));
        applied += more_applied;
        lost_logs += more_lost;
    }
    assert!(applied > 10_000 && lost_logs > 5_000, "{applied} entries, {lost_logs} lost logs");
}

#[test]
fn votes_of_replicas_without_their_logs_make_them_differ_if_they_count_like_others() {
    let differ = |seed| catch_unwind(AssertUnwindSafe(|| run(seed, true))).is_err();
    assert!((1..=2_000).any(differ));
}
