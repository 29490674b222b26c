//! Golden scripts of routing (`tests/scripts`): node 1 receives requests of clients; nodes 2, 3 and 4 hold the tablets.
//!
//! ```text
//! > tablet t7 on 2 3 4           the catalog knows it
//! > local t7 leads               this node's replica: leads, follows 3, follows (nobody known), absent
//! > split t7 into t8 t9          the catalog says that children serve; writes of the right half end with +
//! > replace t7 by t8             a merge, or TRUNCATE
//! > drop t7
//! > down 2 / up 2                another node
//! > write a t7 / write a+ t7 / read a t7, with `within 300` milliseconds
//! > ok a / refused a / refused a leader 3 / missing a / dropped a / timeout a / full a
//! > unsent a down / unsent a full     its frame, with all requests in it, did not leave
//! > broken 2 / broken 2 unsent a    a connection with it ends; the frame of a was not sent
//! > here a ok / here a refused leader 3 / here a absent     what this node's replica did
//! > wait 25                      milliseconds, and a tick
//! > pass 25                      milliseconds, without a tick
//! ```

use super::{Ask, HERE, Known, LIMITS, TIMEOUTS};
use crate::routing::{Local, Machine, Output, Request};
use diorite_base::write::{KvError, Waited};
use diorite_base::{NodeId, TabletId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

/// Where a request is in flight.
#[derive(Debug, Clone)]
struct Place {
    node: NodeId,
    id: u64,
    frame: Range<u64>,
}

struct Run {
    machine: Machine<Ask>,
    known: Known,
    now_ns: u64,
    /// Requests in flight, by name.
    asked: BTreeMap<String, Place>,
    /// Requests that this node's replica is to carry out.
    here: BTreeMap<String, Request<Ask>>,
    /// The leaders that were shown.
    shown: BTreeMap<TabletId, NodeId>,
}

fn node(text: &str) -> NodeId {
    NodeId(text.parse().unwrap_or_else(|_| panic!("`{text}` is not a node")))
}

fn tablet(text: &str) -> TabletId {
    TabletId(text.strip_prefix('t').and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("`{text}`?")))
}

/// The node after `word`, if that is there.
fn named(words: &[&str], word: &str) -> Option<NodeId> {
    words.iter().position(|candidate| *candidate == word).map(|at| node(words[at + 1]))
}

fn error_name(error: &KvError) -> String {
    match error {
        KvError::Unavailable(_) => "unavailable: not carried out".to_owned(),
        KvError::Timeout(_) => "timeout: may have been carried out".to_owned(),
        KvError::NoSuchTablet(_) => "no such tablet: not carried out, to be planned again".to_owned(),
        error => error.to_string(),
    }
}

impl Run {
    fn new() -> Self {
        let mut known = Known::default();
        known.up.extend([2, 3, 4].map(NodeId));
        let (asked, here, shown) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { machine: Machine::new(HERE, LIMITS, TIMEOUTS), known, now_ns: 0, asked, here, shown }
    }

    fn submit(&mut self, is_read: bool, words: &[&str]) {
        let [name, of, rest @ ..] = words else { panic!("a request needs a name and a tablet") };
        let half = usize::from(name.ends_with('+'));
        let until_ns = match rest {
            ["within", ms] => Some(self.now_ns + ms.parse::<u64>().unwrap() * 1_000_000),
            _ => None,
        };
        let work = Ask { name: (*name).to_owned(), is_read, half };
        self.machine.submit(tablet(of), work, until_ns, &self.known, self.now_ns);
    }

    fn place(&self, name: &str) -> Place {
        self.asked.get(name).cloned().unwrap_or_else(|| panic!("no node was asked for {name}"))
    }

    fn answer(&mut self, name: &str, outcome: Result<(), KvError>) {
        let Place { node, id, .. } = self.place(name);
        self.machine.answered(node, id, outcome, &self.known, self.now_ns);
    }

    fn answer_here(&mut self, name: &str, words: &[&str], out: &mut String) {
        let request = self.here.remove(name).unwrap_or_else(|| panic!("{name} is not carried out here"));
        match words {
            ["ok"] => writeln!(out, "{name} ends: ok").unwrap(),
            ["absent"] => self.machine.not_open_here(request, &self.known),
            ["refused", rest @ ..] => {
                self.machine.refused_here(request, named(rest, "leader"), &self.known, self.now_ns);
            }
            _ => panic!("what did this node's replica do?"),
        }
    }

    fn change(&mut self, words: &[&str]) {
        match words {
            ["tablet", of, "on", nodes @ ..] => {
                self.known.holders.insert(tablet(of), nodes.iter().map(|text| node(text)).collect());
            }
            ["local", of, words @ ..] => {
                let local = match words {
                    ["leads"] => Local::Leads,
                    ["follows"] => Local::Follows(None),
                    ["follows", leader] => Local::Follows(Some(node(leader))),
                    _ => Local::Absent,
                };
                self.known.local.insert(tablet(of), local);
            }
            ["split", of, "into", left, right] => {
                let (parent, children) = (tablet(of), vec![tablet(left), tablet(right)]);
                for child in &children {
                    self.known.holders.insert(*child, self.known.holders[&parent].clone());
                    self.known.new_children.insert(*child);
                }
                self.known.split.insert(parent);
                self.known.successors.insert(parent, children);
            }
            ["replace", of, "by", other] => {
                self.known.holders.remove(&tablet(of));
                self.known.successors.insert(tablet(of), vec![tablet(other)]);
            }
            ["drop", of] => drop(self.known.holders.remove(&tablet(of))),
            ["down", of] => {
                self.known.up.remove(&node(of));
                self.machine.node_down(node(of), &self.known, self.now_ns);
            }
            ["up", of] => {
                self.known.up.insert(node(of));
                self.machine.node_up(&self.known, self.now_ns);
            }
            _ => panic!("unknown command: {}", words.join(" ")),
        }
    }

    fn command(&mut self, words: &[&str], out: &mut String) {
        match words {
            ["write", rest @ ..] => self.submit(false, rest),
            ["read", rest @ ..] => self.submit(true, rest),
            ["ok", name] => self.answer(name, Ok(())),
            ["refused", name, rest @ ..] => {
                let leader = named(rest, "leader");
                self.answer(name, Err(KvError::NotLeader { tablet: TabletId(0), leader }));
            }
            ["missing", name] => self.answer(name, Err(KvError::NoSuchTablet(TabletId(0)))),
            ["dropped", name] => self.answer(name, Err(KvError::Unavailable(TabletId(0)))),
            ["timeout", name] => self.answer(name, Err(KvError::Timeout(Waited::ended()))),
            ["full", name] => self.answer(name, Err(KvError::DiskFull("/data".to_owned()))),
            ["unsent", name, why] => {
                let Place { node, frame, .. } = self.place(name);
                self.machine.not_sent(node, frame, *why == "down");
            }
            ["broken", of] => self.machine.disconnected(node(of), &[], &self.known, self.now_ns),
            ["broken", of, "unsent", name] => {
                let unsent: Vec<u64> = self.place(name).frame.collect();
                self.machine.disconnected(node(of), &unsent, &self.known, self.now_ns);
            }
            ["here", name, rest @ ..] => self.answer_here(name, rest, out),
            ["wait", ms] => {
                self.now_ns += ms.parse::<u64>().unwrap() * 1_000_000;
                self.machine.tick(&self.known, self.now_ns);
            }
            ["pass", ms] => self.now_ns += ms.parse::<u64>().unwrap() * 1_000_000,
            words => self.change(words),
        }
    }

    /// The effects of the command: outputs, then frames, then changes of what is known and waits.
    fn show(&mut self, out: &mut String) {
        while let Some(output) = self.machine.output() {
            match output {
                Output::Serve(request) => {
                    writeln!(out, "{} is carried out here, on {}", request.work.name, request.tablet).unwrap();
                    self.here.insert(request.work.name.clone(), request);
                }
                Output::End(work, Ok(())) => writeln!(out, "{} ends: ok", work.name).unwrap(),
                Output::End(work, Err(error)) => {
                    writeln!(out, "{} ends: {}", work.name, error_name(&error)).unwrap();
                }
            }
        }
        for node in [2, 3, 4].map(NodeId) {
            let frame = self.machine.take_frame(node);
            let Some(first) = frame.first() else { continue };
            let ids = first.id..first.id + frame.len() as u64;
            for message in frame {
                writeln!(out, "{} goes to {node}, for {}", message.work.name, message.tablet).unwrap();
                let place = Place { node, id: message.id, frame: ids.clone() };
                self.asked.insert(message.work.name, place);
            }
        }
        let tablets = self.known.holders.keys().filter_map(|tablet| Some((*tablet, self.machine.learned(*tablet)?)));
        let learned: BTreeMap<TabletId, NodeId> = tablets.collect();
        if learned != self.shown {
            let leaders: Vec<String> = learned.iter().map(|(tablet, node)| format!("{tablet} {node}")).collect();
            writeln!(out, "learned leaders: [{}]", leaders.join(", ")).unwrap();
            self.shown = learned;
        }
        let (parked, asked) = self.machine.waiting();
        if parked + asked > 0 {
            writeln!(out, "waiting: {parked} for a leader, {asked} for an answer").unwrap();
        }
    }
}

#[test]
fn golden_scripts() {
    let folder = diorite_golden::crate_folder().join("src/routing/tests/scripts");
    diorite_golden::check_folder(&folder, 15, |_, script| {
        let mut run = Run::new();
        diorite_golden::run_commands(script, |command, out| {
            run.command(&command.split_whitespace().collect::<Vec<_>>(), out);
            run.show(out);
        })
    });
}
