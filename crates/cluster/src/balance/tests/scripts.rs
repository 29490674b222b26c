//! Golden scripts, one rule each (`scripts/*.txt`). A line that starts with `>` is a command; below it stands what came of it. `UPDATE_GOLDEN=1`
//! rewrites them.
//!
//! `node 1..4 zone=a disk=100` makes live nodes with a disk of so many GB each (several: `disk=100,200`, empty but for what tablets take);
//! `tablet 1..9 size=10 rf=3 on=1,2,3` makes tablets, and `on=*` has them take turns over the nodes; `state`, `fail-disk`, `fill-disk`, `rf`, `reshape`, `prefer`,
//! `rate`, `limit`, `pause` and `resume` change what the balancer sees. `balance` shows the actions, `apply` carries them out, `finish` ends all copies, `run` repeats all
//! three until nothing is left, `progress` and `loads` show what there is.

use super::*;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The words of a command: `name=value` and others.
struct Words<'a> {
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(line: &'a str) -> Self {
        let (named, plain): (Vec<&str>, Vec<&str>) = line.split_whitespace().partition(|word| word.contains('='));
        Self { plain, named: named.iter().map(|word| word.split_once('=').unwrap()).collect() }
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.named.get(name).map_or(default, |value| value.parse().unwrap())
    }

    fn text(&self, name: &str, default: &'a str) -> &'a str {
        self.named.get(name).copied().unwrap_or(default)
    }

    /// `3` or `3..5`.
    fn ids(&self) -> std::ops::RangeInclusive<u64> {
        let (first, last) = self.plain[1].split_once("..").unwrap_or((self.plain[1], self.plain[1]));
        first.parse().unwrap()..=last.parse().unwrap()
    }
}

fn numbers(list: &str) -> Vec<u64> {
    list.split(',').map(|number| number.parse().unwrap()).collect()
}

/// `rf=3`, or `dcs=east:2,west:1`.
fn replication(words: &Words<'_>) -> Arc<Replication> {
    let per_data_center = |list: &str| {
        let parts = list.split(',').map(|part| part.split_once(':').unwrap());
        Replication::PerDataCenter(parts.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect())
    };
    let wanted = words.named.get("dcs").map(|list| per_data_center(list));
    Arc::new(wanted.unwrap_or(Replication::Anywhere(words.number("rf", 3) as u32)))
}

struct Script {
    world: World,
    out: String,
}

impl Script {
    fn add_nodes(&mut self, words: &Words<'_>) {
        for id in words.ids() {
            let sizes = numbers(words.text("disk", "1000"));
            let mut made = node(id, words.text("zone", "a"), 0);
            made.data_center = words.text("dc", "dc").to_owned();
            made.disks = sizes
                .iter()
                .map(|size| DiskView { total_bytes: size * GB, free_bytes: size * GB, ..DiskView::default() })
                .collect();
            made.disks.iter_mut().for_each(|disk| disk.reserve_bytes = words.number("reserve", 0) * GB);
            self.world.add_node(made);
        }
    }

    fn add_tablets(&mut self, words: &Words<'_>) {
        let wanted = replication(words);
        let all: Vec<u64> = self.world.view.nodes.iter().map(|node| node.id.0).collect();
        let mut view = self.world.view.clone();
        let first = view.tablets.len();
        for (turn, id) in words.ids().enumerate() {
            let replicas: Vec<u64> = match words.text("on", "*") {
                "*" => (0..wanted.total() as usize).map(|at| all[(turn + at) % all.len()]).collect(),
                list => numbers(list),
            };
            let bytes = words.number("size", 10) * GB;
            let mut made = tablet(id, words.number("table", 1), bytes, &wanted, &replicas);
            let disk = words.number("on-disk", 0) as usize;
            made.disks.iter_mut().for_each(|(_, at)| *at = disk);
            view.tablets.push(made);
        }
        let mut new = View { tablets: view.tablets.split_off(first), ..view.clone() };
        fill_disks(&mut new);
        view.nodes = new.nodes;
        view.tablets.extend(new.tablets);
        self.world = World::new(view);
    }

    fn disk(&mut self, words: &Words<'_>) -> &mut DiskView {
        let id = *words.ids().start();
        let node = self.world.view.nodes.iter_mut().find(|node| node.id.0 == id).unwrap();
        &mut node.disks[words.number("disk", 0) as usize]
    }

    fn show(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Place { tablet, replicas, reason } => {
                    let before = self.world.tablet(*tablet).unwrap().replicas.clone();
                    writeln!(self.out, "{tablet}: {} instead of {} ({reason})", list(replicas), list(&before)).unwrap();
                }
                Action::Lead { tablet, leader, reason } => {
                    let before = self.world.tablet(*tablet).unwrap().replicas[0];
                    writeln!(self.out, "{tablet}: {leader} leads instead of {before} ({reason})").unwrap();
                }
            }
        }
        if actions.is_empty() {
            self.out.push_str("nothing to do\n");
        }
    }

    fn run(&mut self) {
        let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
        for passes in 0..1_000 {
            let actions = balance(&self.world.view);
            safety::check(&self.world.view, &actions);
            if actions.is_empty() && self.world.is_idle() {
                writeln!(self.out, "{passes} passes").unwrap();
                for (reason, count) in reasons {
                    writeln!(self.out, "{count} for: {reason}").unwrap();
                }
                return self.show_loads();
            }
            actions.iter().for_each(|action| *reasons.entry(action.reason()).or_default() += 1);
            self.world.apply(&actions);
            self.world.finish_copies();
        }
        panic!("not idle after 1,000 passes");
    }

    fn show_loads(&mut self) {
        for (node, replicas, bytes, leaders) in loads(&self.world.view) {
            writeln!(self.out, "{node}: {replicas} replicas, {} GB, leads {leaders}", bytes / GB).unwrap();
        }
    }

    fn show_tablets(&mut self) {
        for tablet in &self.world.view.tablets {
            writeln!(self.out, "{}: {}", tablet.id, list(&tablet.replicas)).unwrap();
        }
    }

    fn show_progress(&mut self) {
        let Progress { stalled, nodes, eta_seconds, .. } = progress(&self.world.view);
        let left = progress(&self.world.view);
        let activity = format!("{:?}", left.activity).to_lowercase();
        let eta = eta_seconds.map_or("no end in sight".to_owned(), |seconds| format!("{seconds} s"));
        writeln!(
            self.out,
            "{activity}: {} GB in {} copies and {} leader changes left, {eta}",
            left.bytes_left / GB,
            left.copies_left,
            left.leader_changes_left
        )
        .unwrap();
        let (changing, short, leaderless) = (left.changing, left.under_replicated, left.leaderless);
        writeln!(self.out, "{changing} changing, {short} under-replicated, {leaderless} without a leader").unwrap();
        for NodeProgress { node, receives_bytes, sends_bytes } in nodes {
            writeln!(self.out, "{node} receives {} GB, sends {} GB", receives_bytes / GB, sends_bytes / GB).unwrap();
        }
        stalled.iter().for_each(|stalled| writeln!(self.out, "stalled: {stalled}").unwrap());
    }

    fn change(&mut self, words: &Words<'_>) {
        match words.plain[0] {
            "node" => self.add_nodes(words),
            "tablet" => self.add_tablets(words),
            "state" => {
                let state = match words.plain[2] {
                    "live" => NodeState::Live,
                    "draining" => NodeState::Draining,
                    "suspect" => NodeState::Suspect,
                    "dead" => NodeState::Dead,
                    other => panic!("{other} is no state"),
                };
                words.ids().for_each(|id| self.world.set_state(NodeId(id), state));
            }
            "fail-disk" => self.disk(words).failed = true,
            "fill-disk" => self.disk(words).free_bytes = words.number("free", 0) * GB,
            "rf" => {
                let (wanted, ids) = (replication(words), words.ids());
                let tablets = self.world.view.tablets.iter_mut().filter(|tablet| ids.contains(&tablet.id.0));
                tablets.for_each(|tablet| tablet.wanted = Arc::clone(&wanted));
            }
            "reshape" => {
                let (is_reshaping, ids) = (words.plain[2] == "on", words.ids());
                let tablets = self.world.view.tablets.iter_mut().filter(|tablet| ids.contains(&tablet.id.0));
                tablets.for_each(|tablet| tablet.is_reshaping = is_reshaping);
            }
            "prefer" => {
                self.world.view.preferred_leader_zones =
                    words.plain[1..].iter().map(|zone| (*zone).to_owned()).collect();
            }
            "limit" => {
                let limits = &mut self.world.view.limits;
                limits.bytes_per_second = words.number("rate", limits.bytes_per_second);
                limits.arriving_per_node = words.number("arriving", limits.arriving_per_node.into()) as u32;
                limits.sending_per_node = words.number("sending", limits.sending_per_node.into()) as u32;
                limits.leader_changes = words.number("leaders", limits.leader_changes.into()) as u32;
            }
            "pause" => self.world.view.paused = true,
            "resume" => self.world.view.paused = false,
            other => panic!("unknown script command {other}"),
        }
    }

    fn carry_out(&mut self, line: &str) {
        let words = Words::new(line);
        match words.plain[0] {
            "balance" | "apply" => {
                let actions = balance(&self.world.view);
                safety::check(&self.world.view, &actions);
                self.show(&actions);
                if words.plain[0] == "apply" {
                    self.world.apply(&actions);
                }
            }
            "finish" => self.world.finish_copies(),
            "run" => self.run(),
            "progress" => self.show_progress(),
            "loads" => self.show_loads(),
            "tablets" => self.show_tablets(),
            _ => self.change(&words),
        }
    }
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(" ")
}

fn run_script(script: &str) -> String {
    let mut run = Script { world: World::new(view(Vec::new(), Vec::new())), out: String::new() };
    for line in script.lines() {
        if line.starts_with('#') {
            let gap = if run.out.is_empty() { "" } else { "\n" };
            writeln!(run.out, "{gap}{line}").unwrap();
        } else if let Some(command) = line.strip_prefix("> ") {
            writeln!(run.out, "\n> {command}").unwrap();
            run.carry_out(command);
        }
    }
    run.out
}

#[test]
fn golden_scripts() {
    let folder = diorite_golden::crate_folder().join("src/balance/scripts");
    diorite_golden::check_folder(&folder, 10, |_, script| run_script(script));
}
