//! Golden scripts of the replicas of one tablet (`scripts/*.txt`): who leads under which promises, step by step, without threads and on a clock that the
//! script moves.
//!
//! ```text
//! > nodes 3                    nodes 1 to 3 start, the initial voters; further ones are not members yet. `nodes 3 interval`: with interval durability
//! > run 500                    so many milliseconds pass, in steps of 50; nodes exchange heartbeats every 100
//! > elect                      time passes until a node holds the lease (10 s at most); only the end is written down
//! > write 1 5                  adds one to the counter 5 at node 1; its outcome is written down when it is known
//! > reads                      which nodes answer strong reads
//! > counter 5                  what each node has applied
//! > cut 1 2                    nothing passes between nodes 1 and 2; `cut 1`: between 1 and all others; `cut 1 2 raft`: nothing of the group
//! > heal                       everything passes
//! > clock 1 86400              the wall clock of node 1 is so many seconds ahead
//! > transfer 1 2               node 1 transfers leadership to node 2; `transfer 1`: to whoever is elected
//! > stop 1                     node 1 is about to stop: it steps down everywhere
//! > wanted 1 2 4               the catalog wants these voters, and prefers the first as leader
//! > drop 2                     node 2 closes its replica
//! > split 5                    the leader splits the tablet at the counter 5
//! > close 7, reopen 7          merge 7 closes the tablet at its leader; it is cancelled
//! > crash 1, start 1           node 1 loses what is not durable; it starts from its disk
//! > power-loss 1               the same, with interval durability: its log may have lost its end
//! > lose-log 1               node 1 is down, and has lost the replica except for what it must remember
//! > sync 1                     what node 1 has written is durable
//! ```
//!
//! Each line begins with the milliseconds since the start. Written down are messages other than heartbeats, acknowledgements and empty appends; what
//! the replicas note as events; and who holds the lease. Checked in each step: no two nodes hold the lease.

use super::*;
use crate::events::TabletEvent;
use diorite_raft::{MessageType, is_conditional_vote};
use std::fmt::Write as _;

/// Log and data of a node that is down.
type Disk = (MemoryLog, MemoryTablet);

struct Script {
    trio: Trio,
    count: u64,
    durability: Durability,
    down: BTreeMap<u64, Disk>,
    /// How many events of each node are written down.
    noted: BTreeMap<u64, Vec<TabletEvent>>,
    leases: BTreeMap<u64, bool>,
    /// The token and the counter of each write whose outcome is not known.
    writes: Vec<(u64, u64, u64)>,
    next_token: u64,
    started_ns: u64,
    out: String,
}

fn show_envelope(envelope: &Envelope) -> Option<String> {
    let Envelope::Raft { message, .. } = envelope else {
        return Some(format!("{envelope:?}"));
    };
    let answer = match message.reject {
        true if is_conditional_vote(message) => "granted on condition",
        true => "rejected",
        false => "granted",
    };
    let (term, last) = (message.term, (message.index, message.log_term));
    match message.get_msg_type() {
        MessageType::MsgRequestPreVote => Some(format!("PreVote term={term} last={}/{}", last.0, last.1)),
        MessageType::MsgRequestVote => Some(format!("Vote term={term} last={}/{}", last.0, last.1)),
        MessageType::MsgRequestPreVoteResponse => Some(format!("PreVoteResponse {answer} term={term}")),
        MessageType::MsgRequestVoteResponse => Some(format!("VoteResponse {answer} term={term}")),
        MessageType::MsgAppend if !message.entries.is_empty() => {
            let entries: Vec<_> =
                message.entries.iter().map(|entry| format!("{}/{}", entry.index, entry.term)).collect();
            let prev = format!("prev={}/{}", last.0, last.1);
            Some(format!("Append term={term} {prev} entries=[{}] commit={}", entries.join(", "), message.commit))
        }
        _ => None,
    }
}

fn outcome(outcome: &Result<WriteReply, KvError>) -> String {
    match outcome {
        Ok(_) => "acknowledged".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

impl Script {
    fn new() -> Self {
        let trio = Trio::of(0, Durability::Fsync);
        let started_ns = trio.now_ns.load(Ordering::Relaxed);
        Self {
            trio,
            count: 0,
            durability: Durability::Fsync,
            down: BTreeMap::new(),
            noted: BTreeMap::new(),
            leases: BTreeMap::new(),
            writes: Vec::new(),
            next_token: 0,
            started_ns,
            out: String::new(),
        }
    }

    fn say(&mut self, line: impl AsRef<str>) {
        let passed_ms = (self.trio.now_ns.load(Ordering::Relaxed) - self.started_ns) / MS;
        let _ = writeln!(self.out, "{passed_ms:>5} {}", line.as_ref());
    }

    fn node(&mut self, node: u64) -> &mut Node {
        self.trio.nodes.get_mut(&node).unwrap_or_else(|| panic!("node {node} is down"))
    }

    /// Records the changes since the last call.
    fn observe(&mut self) {
        let frames = std::mem::take(&mut *self.trio.air.sent.lock().unwrap());
        for (from, to, lane, frame) in frames {
            if lane == Lane::Raft {
                for (_, envelope) in crate::group::wire::envelopes(&frame).unwrap() {
                    if let Some(shown) = show_envelope(&envelope) {
                        self.say(format!("{from}->{to} {shown}"));
                    }
                }
            }
        }
        let ids: Vec<u64> = self.trio.nodes.keys().copied().collect();
        for id in &ids {
            let events = self.trio.nodes[id].context.events.of(TABLET);
            let before = self.noted.insert(*id, events.clone()).unwrap_or_default();
            // The oldest ones may be gone.
            let known = before.iter().rev().zip(events.iter().rev()).filter(|(is, was)| is == was).count();
            let fresh = if events.starts_with(&before) { before.len() } else { known };
            events[fresh.min(events.len())..].iter().for_each(|event| self.say(format!("{id}: {}", event.kind)));
        }
        self.observe_leases(&ids);
        self.observe_writes();
    }

    fn observe_leases(&mut self, ids: &[u64]) {
        for id in ids {
            let holds = self.trio.answers(*id);
            if self.leases.insert(*id, holds).unwrap_or(false) != holds {
                self.say(format!("{id}: {}", if holds { "holds the lease" } else { "holds the lease no more" }));
            }
        }
        assert!(self.trio.nodes.keys().filter(|id| self.trio.answers(**id)).count() < 2, "one lease at a time");
    }

    fn observe_writes(&mut self) {
        for (node, token, counter) in std::mem::take(&mut self.writes) {
            match self.trio.nodes.get(&node).and_then(|_| self.trio.outcome(node, token)) {
                Some(result) => self.say(format!("{node}: write to {counter}: {}", outcome(&result))),
                None => self.writes.push((node, token, counter)),
            }
        }
    }

    fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 50 {
            self.trio.run_step();
            self.observe();
        }
    }

    fn elect(&mut self) {
        for _ in 0..200 {
            self.run(50);
            if self.trio.leader().is_some() {
                break;
            }
        }
        self.out.clear();
        match self.trio.leader() {
            Some(leader) => self.say(format!("{leader}: holds the lease")),
            None => self.say("nobody holds the lease"),
        }
    }

    fn carry_out(&mut self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let ids: Vec<u64> = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
        match words[0] {
            "nodes" => self.start_all(ids[0], words.contains(&"interval")),
            "run" => self.run(ids[0]),
            "elect" => self.elect(),
            "write" => self.write(ids[0], ids[1]),
            "reads" | "counter" => self.show(ids.first().copied()),
            "crash" | "power-loss" | "lose-log" | "start" | "sync" => self.power(words[0], ids[0]),
            "cut" | "heal" | "clock" => self.fault(words[0], &ids, words.contains(&"raft")),
            _ => self.ask(words[0], &ids),
        }
        self.observe();
    }

    fn start_all(&mut self, count: u64, is_interval: bool) {
        self.durability = if is_interval { Durability::Interval(3_600_000) } else { Durability::Fsync };
        self.count = count;
        self.trio = Trio::of(count, self.durability);
        self.started_ns = self.trio.now_ns.load(Ordering::Relaxed);
    }

    fn write(&mut self, node: u64, counter: u64) {
        self.next_token += 1;
        let token = self.next_token;
        self.writes.push((node, token, counter));
        self.trio.submit(node, token, add(counter, 1));
        self.trio.deliver();
    }

    fn show(&mut self, counter: Option<u64>) {
        let values: Vec<String> = match counter {
            None => (1..=self.count).filter(|id| self.is_serving(*id)).map(|id| id.to_string()).collect(),
            Some(counter) => self.trio.nodes.iter().map(|(id, node)| stored(*id, node, counter)).collect(),
        };
        let what = if counter.is_some() { "applied" } else { "strong reads are answered by" };
        let values = if values.is_empty() { "nobody".to_owned() } else { values.join(", ") };
        self.say(format!("{what}: {values}"));
    }

    fn is_serving(&self, node: u64) -> bool {
        self.trio.nodes.contains_key(&node) && self.trio.answers(node)
    }

    /// Carries out a request to the nodes.
    fn ask(&mut self, request: &str, ids: &[u64]) {
        let members = || Members { voters: ids.iter().copied().map(NodeId).collect(), learners: Vec::new() };
        let leader = (1..=self.count).find(|id| self.is_serving(*id));
        match request {
            "transfer" => self.node(ids[0]).core.transfer_leadership(TABLET, ids.get(1).copied().map(NodeId)),
            "stop" => self.node(ids[0]).core.step_down_for_stop(),
            "wanted" => self.trio.nodes.values_mut().for_each(|node| node.core.set_members(TABLET, members())),
            "drop" => drop(self.node(ids[0]).core.close(TABLET)),
            "split" => {
                let split = Split { boundary: key(ids[0]), children: [TabletId(1_001), TabletId(1_002)] };
                self.node(leader.expect("somebody leads")).core.split(TABLET, &split);
            }
            "close" => {
                self.next_token += 1;
                self.trio.submit(leader.expect("somebody leads"), self.next_token, close(ids[0]));
            }
            "reopen" => self.trio.nodes.values_mut().for_each(|node| node.core.reopen(TABLET, ids[0])),
            other => panic!("{other} is not a command"),
        }
        // The requests are sent with the next turn.
        self.trio.nodes.values_mut().for_each(Node::turn);
        self.observe();
        self.trio.deliver();
    }

    fn fault(&mut self, fault: &str, ids: &[u64], is_raft: bool) {
        match fault {
            "cut" if ids.len() == 1 => {
                let others = (1..=self.count).filter(|other| *other != ids[0]);
                self.trio.cut.extend(others.map(|other| (ids[0], other, !is_raft)));
            }
            "cut" => self.trio.cut.push((ids[0], ids[1], !is_raft)),
            "heal" => self.trio.cut.clear(),
            _ => self.trio.set_clock(ids[0], ids[1] as i64 * 1_000_000),
        }
    }

    fn power(&mut self, change: &str, id: u64) {
        match change {
            "sync" => self.node(id).core.turn.logs[0].sync(),
            "start" => {
                let disk = self.down.remove(&id).unwrap_or_else(|| panic!("node {id} is up"));
                let (now_ns, air) = (Arc::clone(&self.trio.now_ns), Arc::clone(&self.trio.air));
                let node = Trio::start(id, self.count, self.durability, (&now_ns, &air), disk);
                self.trio.nodes.insert(id, node);
                self.noted.remove(&id);
            }
            _ => {
                let node = self.trio.nodes.remove(&id).unwrap_or_else(|| panic!("node {id} is down"));
                let log = node.core.turn.logs[0].crash(0);
                let mut data = node.handle.data().crash();
                match change {
                    "power-loss" => log.forget_floors(),
                    "lose-log" => data = lose_log(&log),
                    _ => {}
                }
                self.down.insert(id, (log, data));
                self.leases.remove(&id);
            }
        }
    }
}

/// Removes the replica from its log except for what it must remember, as when it is opened again, empty, after its disk
/// has failed. Returns the empty data.
fn lose_log(log: &MemoryLog) -> MemoryTablet {
    let (group, mut records) = (GroupId::from(TABLET), MemoryRecords::default());
    let held = log.recover(group).unwrap();
    records.retire(group, &held.hard_state, held.last_acknowledged()).unwrap();
    records.set_conf_state(group, &held.conf_state).unwrap();
    log.write(&mut records, true).unwrap();
    MemoryTablet::new(Some(Arc::new(Sums)))
}

fn stored(id: u64, node: &Node, counter: u64) -> String {
    let value = node.handle.data().get(&key(counter)).unwrap();
    format!("{id}: {}", value.map_or(0, |value| number(&value)))
}

#[test]
fn golden_scripts() {
    let folder = diorite_golden::crate_folder().join("src/tests/scripted/scripts");
    diorite_golden::check_folder(&folder, 15, |_, script| {
        let mut run = Script::new();
        diorite_golden::run_commands(script, |command, out| {
            run.carry_out(command);
            out.push_str(&std::mem::take(&mut run.out));
        })
    });
}
