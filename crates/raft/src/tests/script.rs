//! Golden scripts of consensus (`scripts/*.txt`): replicas of one group, a network between them and a log for each, all under the control of the script.
//!
//! ```text
//! > voters 1 2 3               replicas 1, 2 and 3 start, as the initial voters
//! > join 4                     replica 4 starts; it knows the initial voters, of which it is none
//! > campaign 1                 starts an election
//! > elect 1                    the same; only its end is written down
//! > propose 1 a b              proposals at replica 1
//! > members 1 add-learner 4    a change of members, proposed at replica 1; also: remove-learner 4, enter-joint +4 -1 ~2 (voter, removed, demoted), leave-joint
//! > step-down 1                replica 1 stops leading
//! > ping 1                     replica 1 asks all members for a sign of life
//! > hold, release              messages wait in the network; they go on
//! > deliver 1 2                the oldest waiting message from 1 to 2
//! > lose 1 2                   waiting messages from 1 to 2 are lost; without arguments: all
//! > cut 1 2, heal              nothing passes between 1 and 2 (`cut 1`: between 1 and all others); everything passes
//! > stall 1, sync 1            log writes of replica 1 wait for their fsync; they end
//! > crash 1, start 1           replica 1 loses what is not durable; it starts from its log
//! > power-loss 1 3             replica 1 is down and has lost its log after index 3, and what it promised is not known (interval durability)
//! > lose-log 1                 replica 1 is down and has lost its log, except for what it must remember
//! > tail-lost 1 3              replica 1, which is down, has lost its log after index 3 and does not know it
//! > forget 1 3                 replica 1, the leader, forgets what replica 3 has acknowledged
//! > floor 1 7/2                replica 1 learns that it has acknowledged nothing after index 7 of term 2
//! > truncate 1 5               replica 1 drops its log up to index 5
//! > copy 1 3                   replica 3 is replaced by a copy of the data of replica 1, and acknowledges it
//! > append 2 1 term=2 prev=3/1 entries=4/2 commit=4     a message as if from replica 2 to replica 1; also: heartbeat, and vote with last=
//! > state                      all replicas
//! ```
//!
//! An entry is written index/term. Unless messages are held, all consequences of a command happen at once. Checked
//! after each command: one leader per term, and no two replicas apply different entries at one index. Left out: who may
//! vote and campaign, and when, which the replica layer decides.

mod random;

use super::*;
use crate::log::UNKNOWN_FLOOR;
use raft::eraftpb::{EntryType, MessageType};
use raft::{INVALID_ID, StateRole};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

/// What survives a crash.
#[derive(Default)]
struct Disk {
    log: TestLog,
    recovered: Recovered,
}

struct Member {
    disk: Disk,
    /// `None` while it is down.
    group: Option<Group<TestLog>>,
    is_stalled: bool,
    /// The log write that waits for its fsync.
    writing: Option<Step>,
    /// Role, term, leader and commit index as printed last.
    shown: (StateRole, u64, u64),
}

#[derive(Default)]
struct Script {
    initial: ConfState,
    members: BTreeMap<u64, Member>,
    network: VecDeque<Message>,
    is_held: bool,
    cut: BTreeSet<(u64, u64)>,
    /// Entries as the first replica applied them; the others must apply the same.
    applied: BTreeMap<u64, Entry>,
    leaders: BTreeMap<u64, u64>,
    /// A planted bug: replicas that have lost entries vote like any other.
    votes_without_condition: bool,
    out: String,
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
}

fn position(word: &str) -> LogPosition {
    let (index, term) = word.split_once('/').unwrap_or_else(|| panic!("{word} is not index/term"));
    LogPosition::new(number(index), number(term))
}

fn list(ids: &[u64]) -> String {
    let ids: BTreeSet<u64> = ids.iter().copied().collect();
    ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn show_members(members: &ConfState) -> String {
    let mut out = format!("voters {}", list(&members.voters));
    if !members.voters_outgoing.is_empty() {
        let _ = write!(out, ", outgoing voters {}", list(&members.voters_outgoing));
    }
    if !members.learners.is_empty() {
        let _ = write!(out, ", learners {}", list(&members.learners));
    }
    if !members.learners_next.is_empty() {
        let _ = write!(out, ", next learners {}", list(&members.learners_next));
    }
    out
}

fn show_entry(entry: &Entry) -> String {
    let content = match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => " empty".to_owned(),
        EntryType::EntryNormal => format!(" {}", String::from_utf8_lossy(&entry.data)),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => " members".to_owned(),
    };
    format!("{}/{}{content}", entry.index, entry.term)
}

fn show_entries(entries: &[Entry]) -> String {
    entries.iter().map(show_entry).collect::<Vec<_>>().join(", ")
}

fn show_message(message: &Message) -> String {
    let mut out = format!("{}->{} ", message.from, message.to);
    let last = format!("last={}/{}", message.index, message.log_term);
    let answer = match message.reject {
        true if is_conditional_vote(message) => "granted on condition",
        true => "rejected",
        false => "granted",
    };
    let _ = match message.get_msg_type() {
        MessageType::MsgRequestPreVote => write!(out, "PreVote {last}"),
        MessageType::MsgRequestVote => write!(out, "Vote {last}"),
        MessageType::MsgRequestPreVoteResponse => write!(out, "PreVoteResponse {answer}"),
        MessageType::MsgRequestVoteResponse => write!(out, "VoteResponse {answer}"),
        MessageType::MsgHeartbeat => write!(out, "Heartbeat commit={}", message.commit),
        MessageType::MsgHeartbeatResponse => write!(out, "HeartbeatResponse"),
        MessageType::MsgAppend => {
            let entries = show_entries(&message.entries);
            let entries = if entries.is_empty() { entries } else { format!(" entries=[{entries}]") };
            write!(out, "Append prev={}/{}{entries} commit={}", message.index, message.log_term, message.commit)
        }
        MessageType::MsgAppendResponse if message.reject => {
            let hint = format!("hint={}/{}", message.reject_hint, message.log_term);
            write!(out, "AppendResponse rejected prev={} {hint}", message.index)
        }
        MessageType::MsgAppendResponse => write!(out, "AppendResponse index={}", message.index),
        other => write!(out, "{other:?}"),
    };
    let _ = write!(out, " term={}", message.term);
    out
}

impl Script {
    fn say(&mut self, line: impl AsRef<str>) {
        self.out.push_str(line.as_ref());
        self.out.push('\n');
    }

    fn group(&mut self, id: u64) -> &mut Group<TestLog> {
        let member = self.members.get_mut(&id).unwrap_or_else(|| panic!("there is no replica {id}"));
        member.group.as_mut().unwrap_or_else(|| panic!("replica {id} is down"))
    }

    fn disk(&mut self, id: u64) -> &mut Disk {
        &mut self.members.get_mut(&id).unwrap_or_else(|| panic!("there is no replica {id}")).disk
    }

    fn add(&mut self, id: u64, conf_state: ConfState) {
        let recovered = Recovered { conf_state, ..Recovered::default() };
        let disk = Disk { recovered, ..Disk::default() };
        let shown = (StateRole::Follower, 0, 0);
        self.members.insert(id, Member { disk, group: None, is_stalled: false, writing: None, shown });
        self.start(id);
    }

    fn start(&mut self, id: u64) {
        let member = self.members.get_mut(&id).unwrap();
        let last = member.disk.log.entries.borrow().last().map(LogPosition::from);
        member.disk.recovered.last = last.unwrap_or(member.disk.recovered.truncated);
        let options = GroupOptions { replica: id, announces_commits: true };
        let group = Group::new(&options, member.disk.recovered.clone(), member.disk.log.clone()).unwrap();
        member.shown = (StateRole::Follower, group.term().0, 0);
        member.group = Some(group);
    }

    fn stop(&mut self, id: u64) {
        let member = self.members.get_mut(&id).unwrap();
        member.group = None;
        member.is_stalled = false;
        if member.writing.take().is_some() {
            self.say(format!("{id}: a log write is lost"));
        }
    }

    /// Carries out the replica's pending work, as far as its log is writable.
    fn turn(&mut self, id: u64) {
        loop {
            self.show_role(id);
            self.fetch(id);
            let member = self.members.get_mut(&id).unwrap();
            let Some(group) = member.group.as_mut().filter(|_| member.writing.is_none()) else { return };
            let Some(mut step) = group.ready() else { return self.note_floor(id) };
            let messages = std::mem::take(&mut step.messages);
            let committed = std::mem::take(&mut step.committed);
            self.send(messages);
            self.apply(id, committed);
            let writes = !step.entries.is_empty() || step.hard_state.is_some();
            let member = self.members.get_mut(&id).unwrap();
            if member.is_stalled && writes {
                member.writing = Some(step);
                return self.say(format!("{id}: a log write waits for its fsync"));
            }
            self.persist(id, step);
        }
    }

    /// The step is durable.
    fn persist(&mut self, id: u64, mut step: Step) {
        let mut written = Vec::new();
        let disk = self.disk(id);
        if let Some(state) = &step.hard_state {
            written.push(format!("term={} vote={}", state.term, state.vote));
            disk.recovered.hard_state = state.clone();
        }
        if let Some(first) = step.entries.first() {
            written.push(format!("entries=[{}]", show_entries(&step.entries)));
            let mut log = disk.log.entries.borrow_mut();
            log.retain(|entry| entry.index < first.index);
            log.extend(step.entries.iter().cloned());
            disk.recovered.hard_state.commit = step.commit;
        }
        if !written.is_empty() {
            self.say(format!("{id}: log is durable: {}", written.join(" ")));
        }
        let after = std::mem::take(&mut step.messages_after_persist);
        let (committed, messages) = self.group(id).persisted(step);
        self.send(after);
        self.send(messages);
        self.apply(id, committed);
    }

    fn apply(&mut self, id: u64, entries: Vec<Entry>) {
        for entry in entries {
            let known = self.applied.entry(entry.index).or_insert_with(|| entry.clone()).clone();
            assert_eq!(show_entry(&known), show_entry(&entry), "replicas apply the same entries");
            let members = self.group(id).apply_member_change(&entry).unwrap();
            self.group(id).applied(entry.index);
            let disk = self.disk(id);
            disk.recovered.applied = entry.index;
            let members = members.map(|members| {
                disk.recovered.conf_state = members.clone();
                format!(": {}", show_members(&members))
            });
            self.say(format!("{id}: applies {}{}", show_entry(&entry), members.unwrap_or_default()));
        }
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            let is_cut = self.cut.contains(&(message.from.min(message.to), message.from.max(message.to)));
            self.say(format!("{}{}", show_message(&message), if is_cut { " (lost)" } else { "" }));
            if !is_cut {
                self.network.push_back(message);
            }
        }
    }

    /// Reads from the log what members lack that is no longer in memory.
    fn fetch(&mut self, id: u64) {
        let member = self.members.get_mut(&id).unwrap();
        let Some(group) = member.group.as_mut() else { return };
        let (log, fetches) = (member.disk.log.clone(), group.take_fetches());
        for fetch in fetches {
            let entries = fetch.read(&log);
            let count = entries.as_ref().map_or(0, Vec::len);
            self.group(id).fetched(&fetch, entries).unwrap();
            self.say(format!("{id}: reads {count} entries from its log"));
        }
        let lacking = self.members.get_mut(&id).unwrap().group.as_mut().unwrap().take_lacking();
        for lacking in lacking {
            self.say(format!("{id}: replica {lacking} needs a copy"));
        }
    }

    fn note_floor(&mut self, id: u64) {
        if let Some(floor) = self.group(id).take_new_floor() {
            self.disk(id).recovered.floor = floor;
            let floor =
                if floor == UNKNOWN_FLOOR { "unknown".to_owned() } else { format!("{}/{}", floor.index, floor.term) };
            self.say(format!("{id}: floor is {floor}"));
        }
    }

    fn show_role(&mut self, id: u64) {
        let member = self.members.get_mut(&id).unwrap();
        let Some(group) = &member.group else { return };
        let now = (group.node.raft.state, group.term().0, group.leader());
        if member.shown == now {
            return;
        }
        member.shown = now;
        if group.is_leader() {
            let other = *self.leaders.entry(group.term().0).or_insert(id);
            assert_eq!(other, id, "two leaders of one term");
        }
        self.say(format!("{id}: {}", show_role(now)));
    }

    /// Delivers all messages, and those that they cause.
    fn run_to_rest(&mut self) {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        ids.into_iter().for_each(|id| self.turn(id));
        while !self.is_held {
            // A replica whose log write is under way receives nothing.
            let takes = |message: &Message| self.members.get(&message.to).is_none_or(|member| member.writing.is_none());
            let Some(at) = self.network.iter().position(takes) else { return };
            let message = self.network.remove(at).unwrap();
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        let id = message.to;
        let Some(group) = self.members.get_mut(&id).and_then(|member| member.group.as_mut()) else { return };
        let from = message.from;
        let has_lost_entries = group.is_recovering() && !group.has_only_lost_its_end();
        let stepped = match is_vote_request(&message) && has_lost_entries && !self.votes_without_condition {
            true => group.step_without_entries(message),
            false => group.step(message),
        };
        match stepped {
            Ok(()) => {}
            Err(GroupError::Broken(raft::Error::StepPeerNotFound)) => {
                self.say(format!("{id}: ignores a message of {from}, which is no member"));
            }
            Err(error) => self.say(format!("{id}: {error}")),
        }
        self.turn(id);
    }

    fn carry_out(&mut self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let ids: Vec<u64> = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
        match words[0] {
            "voters" => {
                let members = ConfState { voters: ids.clone(), ..ConfState::default() };
                self.initial = members.clone();
                ids.iter().for_each(|id| self.add(*id, members.clone()));
            }
            "join" => self.add(ids[0], self.initial.clone()),
            "state" => self.show_state(),
            "elect" => self.elect(ids[0]),
            "campaign" | "step-down" | "ping" | "propose" | "members" | "floor" | "forget" | "truncate" => {
                self.ask(&words)
            }
            "append" | "heartbeat" | "vote" => self.forge(&words),
            "copy" => self.copy(ids[0], ids[1]),
            _ => self.fault(words[0], &ids),
        }
        self.run_to_rest();
        self.check_leaders();
    }

    fn elect(&mut self, id: u64) {
        self.group(id).campaign().unwrap();
        self.run_to_rest();
        self.out.clear();
        let role = self.members[&id].shown;
        self.say(format!("{id}: {}", show_role(role)));
    }

    /// Carries out a command at one replica.
    fn ask(&mut self, words: &[&str]) {
        let id = number(words[1]);
        let outcome = match words[0] {
            "campaign" => self.group(id).campaign(),
            "members" => {
                let change = change_of(&words[2..]);
                self.group(id).propose_member_change(&change)
            }
            "truncate" => self.truncate(id, number(words[2])),
            "propose" => {
                words[2..].iter().try_for_each(|data| self.group(id).propose(data.as_bytes().to_vec()).map(drop))
            }
            _ => {
                let group = self.group(id);
                match words[0] {
                    "step-down" => group.step_down(),
                    "ping" => group.ping(),
                    "floor" => group.learn_floor(position(words[2])),
                    _ => group.forget_progress(number(words[2]), 0),
                }
                Ok(())
            }
        };
        if let Err(error) = outcome {
            self.say(format!("{id}: {error}"));
        }
    }

    fn truncate(&mut self, id: u64, index: u64) -> Result<(), GroupError> {
        if let Some(term) = self.group(id).truncate_to(index)? {
            let disk = self.disk(id);
            disk.recovered.truncated = LogPosition::new(index, term);
            disk.log.entries.borrow_mut().retain(|entry| entry.index > index);
        }
        Ok(())
    }

    /// The data of `to` is replaced by a copy of that of `from`: the log of `to` begins after the copy's last entry.
    fn copy(&mut self, from: u64, to: u64) {
        let source = &self.members[&from].disk;
        let (applied, members) = (source.recovered.applied, source.recovered.conf_state.clone());
        let term = self.group(from).node.raft.raft_log.term(applied).unwrap();
        let hard_state = self.members[&to].disk.recovered.hard_state.clone();
        let leader = self.group(to).leader();
        self.stop(to);
        let disk = self.disk(to);
        disk.log.entries.borrow_mut().clear();
        let truncated = LogPosition::new(applied, term);
        disk.recovered =
            Recovered { hard_state, conf_state: members, truncated, last: truncated, applied, ..Recovered::default() };
        self.start(to);
        let group = self.group(to);
        let term = group.term().0;
        group.node.raft.become_follower(term, leader);
        let acknowledgement: Vec<_> = group.acknowledge_copy().into_iter().collect();
        self.send(acknowledgement);
    }

    fn fault(&mut self, fault: &str, ids: &[u64]) {
        match fault {
            "hold" => self.is_held = true,
            "release" => self.is_held = false,
            "deliver" => {
                let of_link = |message: &Message| [message.from, message.to] == ids;
                let at = self.network.iter().position(of_link).expect("a message waits there");
                let message = self.network.remove(at).unwrap();
                self.receive(message);
            }
            "lose" => self.network.retain(|message| !ids.is_empty() && [message.from, message.to] != ids),
            "cut" if ids.len() == 1 => {
                let others = self.members.keys().filter(|other| **other != ids[0]);
                self.cut.extend(others.map(|other| (ids[0].min(*other), ids[0].max(*other))));
            }
            "cut" => drop(self.cut.insert((ids[0].min(ids[1]), ids[0].max(ids[1])))),
            "heal" => self.cut.clear(),
            "stall" => self.members.get_mut(&ids[0]).unwrap().is_stalled = true,
            "sync" => {
                let member = self.members.get_mut(&ids[0]).unwrap();
                member.is_stalled = false;
                let step = member.writing.take().expect("a log write waits");
                self.persist(ids[0], step);
            }
            "crash" => self.stop(ids[0]),
            "start" => self.start(ids[0]),
            "tail-lost" => self.cut_log(ids[0], ids[1]),
            "power-loss" | "lose-log" => self.lose_log(ids[0], ids.get(1).copied()),
            _ => panic!("{fault} is not a command"),
        }
    }

    /// Stops the replica. Its log keeps the entries up to `kept`, or only what the replica must remember.
    fn lose_log(&mut self, id: u64, kept: Option<u64>) {
        let (hard_state, floor) = self.group(id).memory();
        self.stop(id);
        let disk = self.disk(id);
        if let Some(kept) = kept {
            disk.recovered.floor = UNKNOWN_FLOOR;
            self.cut_log(id, kept);
        } else {
            disk.log.entries.borrow_mut().clear();
            let conf_state = disk.recovered.conf_state.clone();
            disk.recovered = Recovered { hard_state, floor, conf_state, ..Recovered::default() };
        }
    }

    fn cut_log(&mut self, id: u64, kept: u64) {
        let disk = self.disk(id);
        disk.log.entries.borrow_mut().retain(|entry| entry.index <= kept);
        disk.recovered.applied = disk.recovered.applied.min(kept);
    }

    /// Injects a message that no replica has sent.
    fn forge(&mut self, words: &[&str]) {
        let mut message = Message::default();
        message.set_msg_type(match words[0] {
            "append" => MessageType::MsgAppend,
            "heartbeat" => MessageType::MsgHeartbeat,
            _ => MessageType::MsgRequestVote,
        });
        (message.from, message.to) = (number(words[1]), number(words[2]));
        for word in &words[3..] {
            match word.split_once('=').expect("name=value") {
                ("term", value) => message.term = number(value),
                ("prev" | "last", value) => {
                    let LogPosition { index, term } = position(value);
                    (message.index, message.log_term) = (index, term);
                }
                ("commit", value) => message.commit = number(value),
                (_, value) => message.entries.extend(value.split(',').map(|value| {
                    let LogPosition { index, term } = position(value);
                    Entry { index, term, data: b"forged".to_vec().into(), ..Entry::default() }
                })),
            }
        }
        self.say(show_message(&message));
        self.receive(message);
    }

    fn show_state(&mut self) {
        let mut lines = Vec::new();
        for (id, member) in &self.members {
            let Some(group) = &member.group else {
                lines.push(format!("{id}: down"));
                continue;
            };
            let LogPosition { index, term } = group.last();
            let role = show_role((group.node.raft.state, group.term().0, group.leader()));
            let recovering = if group.is_recovering() { ", recovering" } else { "" };
            let (commit, members) = (group.commit_index(), show_members(group.members()));
            lines.push(format!("{id}: {role}, last {index}/{term}, commit {commit}, {members}{recovering}"));
        }
        lines.iter().for_each(|line| self.say(line));
    }

    /// Checks that no second replica leads in a term.
    fn check_leaders(&self) {
        for (id, member) in &self.members {
            let Some(group) = member.group.as_ref().filter(|group| group.is_leader()) else { continue };
            assert_eq!(self.leaders.get(&group.term().0), Some(id), "one leader per term");
        }
    }
}

fn show_role((role, term, leader): (StateRole, u64, u64)) -> String {
    let role = match role {
        StateRole::Follower => "follower",
        StateRole::Candidate => "candidate",
        StateRole::PreCandidate => "pre-candidate",
        StateRole::Leader => return format!("leader in term {term}"),
    };
    let leader = if leader == INVALID_ID { String::new() } else { format!(", led by {leader}") };
    format!("{role} in term {term}{leader}")
}

fn change_of(words: &[&str]) -> MemberChange {
    let marked = |mark: char| words[1..].iter().filter_map(|word| word.strip_prefix(mark).map(number)).collect();
    match words[0] {
        "add-learner" => MemberChange::AddLearner(number(words[1])),
        "remove-learner" => MemberChange::RemoveLearner(number(words[1])),
        "enter-joint" => MemberChange::EnterJoint { add: marked('+'), demote: marked('~'), remove: marked('-') },
        "leave-joint" => MemberChange::LeaveJoint,
        other => panic!("{other} is not a change of members"),
    }
}

#[test]
fn golden_scripts() {
    let folder = diorite_golden::crate_folder().join("src/tests/scripts");
    diorite_golden::check_folder(&folder, 20, |_, script| {
        let mut run = Script::default();
        diorite_golden::run_commands(script, |command, out| {
            run.carry_out(command);
            out.push_str(&std::mem::take(&mut run.out));
        })
    });
}
