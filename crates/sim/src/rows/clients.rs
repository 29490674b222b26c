//! Clients that send statements, one at a time each, and their records of the writes that must not be lost.

use super::kv::{Knows, Spawned};
use super::schema::{COUNTERS, RowWorld, Running};
use super::statements::{self, Meaning};
use crate::checkers::acknowledged::Counter;
use crate::dice::Dice;
use diorite_base::{NodeId, TabletId};
use diorite_cql::protocol::{CqlError, ErrorCode};
use diorite_history::{Append, Ended, Several};
use std::collections::BTreeMap;

/// Rows of batches have numbers from here on.
pub const FIRST_NUMBER: u64 = 1_000;

/// The most time until a node knows the views, from the first statement on that it carries out, from then until it knows
/// the column that their table has got, and until it knows that the covering index is complete.
const LEARNS_MS: u64 = 600;

/// A statement whose effect is checked in the end.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// The meaning of the statement.
    pub meaning: Meaning,
    /// What became of it.
    pub ended: Ended,
    /// When it was sent, nanoseconds of true time.
    pub sent_ns: u64,
    /// When it was answered.
    pub answered_ns: u64,
}

/// A statement under way.
pub struct Open {
    /// Its plan, at work.
    pub running: Running,
    /// The meaning of the statement.
    pub meaning: Meaning,
    /// The node that carries it out.
    pub node: NodeId,
    /// Whether it is answered from the covering index.
    pub is_covered: bool,
    /// When it was sent, nanoseconds of true time.
    pub sent_ns: u64,
}

/// A statement's request to a tablet, on its way.
pub struct Call {
    /// Whose.
    pub client: u32,
    /// The number that the seam gave it.
    pub number: u64,
    /// The node that carries the statement out.
    pub node: NodeId,
    /// Of what.
    pub tablet: TabletId,
    /// What.
    pub asked: super::kv::Asked,
}

/// All clients of real rows.
pub struct RowClients {
    /// What tablets of rows are made with.
    pub world: RowWorld,
    /// By client.
    pub open: BTreeMap<u32, Open>,
    /// By attempt: the request that was sent to nodes under this token.
    pub calls: BTreeMap<u64, Call>,
    /// The node that each client is connected to.
    pub nodes: BTreeMap<u32, NodeId>,
    /// When each node learns of the views, or that the covering index is complete.
    learns_ns: BTreeMap<(NodeId, Knows), u64>,
    /// Everything that must be true in the end.
    pub said: Vec<Said>,
    /// Work that outlives its statement.
    pub spawned: Vec<Spawned>,
    /// Decisions of these clients.
    pub dice: Dice,
    /// Tokens count up from [`super::FIRST_ROW_TOKEN`].
    pub next_token: u64,
    next_value: u64,
}

impl RowClients {
    /// Clients that have not said anything.
    pub fn new(world: RowWorld, dice: Dice) -> Self {
        Self {
            world,
            open: BTreeMap::new(),
            calls: BTreeMap::new(),
            nodes: BTreeMap::new(),
            learns_ns: BTreeMap::new(),
            said: Vec::new(),
            spawned: Vec::new(),
            dice,
            next_token: super::FIRST_ROW_TOKEN,
            next_value: FIRST_NUMBER,
        }
    }

    /// What a node knows.
    pub fn knowledge(&mut self, node: NodeId, now_ns: u64) -> Knows {
        let is_complete = self.world.kv.is_covering_complete();
        let dice = &mut self.dice;
        let mut has_learned = |what| {
            now_ns >= *self.learns_ns.entry((node, what)).or_insert_with(|| now_ns + dice.milliseconds(0, LEARNS_MS))
        };
        match has_learned(Knows::Views) {
            false => Knows::Tables,
            true if !has_learned(Knows::Columns) => Knows::Views,
            true if is_complete && has_learned(Knows::All) => Knows::All,
            true => Knows::Columns,
        }
    }

    /// The partitions that are for inserts and appends, one of each tablet.
    pub fn partitions(&self) -> Vec<u64> {
        self.world.tablets.iter().filter_map(|tablet| self.world.partition_of(*tablet)).collect()
    }

    /// A client's next statement.
    pub fn choose(&mut self) -> (String, Meaning) {
        self.next_value += 1;
        let value = self.next_value;
        let partitions = self.partitions();
        match self.dice.range(0, 100) {
            0..10 => {
                let counter = self.dice.range(0, COUNTERS);
                (statements::increment(counter), Meaning::Increment(counter))
            }
            10..20 => (statements::append(partitions[0], value), Meaning::Append(value)),
            20..29 => {
                let timestamp = statements::timestamp(&mut self.dice);
                (statements::insert_into(&partitions, value, &timestamp), Meaning::Several(value))
            }
            29..32 => (statements::increment_all(&self.world.pair), Meaning::Pair),
            45..48 => (statements::open_accounts(&partitions), Meaning::Open),
            48..62 => self.move_amount(&partitions),
            62..72 => (statements::accounts(&partitions, &mut self.dice), Meaning::Total),
            72..80 => (statements::claim(&mut self.dice, value), Meaning::Claim),
            80..86 => (statements::claims(&mut self.dice), Meaning::Claims),
            40..45 => (statements::transfer(partitions[0], self.dice.chance(200)), Meaning::Transfer),
            32..40 => (statements::scan(&partitions, self.dice.chance(500)), Meaning::Scan),
            _ => (statements::anything(&mut self.dice, value), Meaning::Anything),
        }
    }

    fn move_amount(&mut self, partitions: &[u64]) -> (String, Meaning) {
        let from = self.dice.range(0, partitions.len() as u64) as usize;
        let to = (from + self.dice.range(1, partitions.len().max(2) as u64) as usize) % partitions.len();
        if from == to {
            return (statements::accounts(partitions, &mut self.dice), Meaning::Total);
        }
        (statements::move_amount(partitions[from], partitions[to], self.dice.range(0, 9)), Meaning::Move)
    }

    /// How many amounts were moved by statements that had ended before this time, at least, and by any, at most.
    pub fn moves(&self, before_ns: u64) -> (u64, u64) {
        let opened = self.said.iter().filter(|said| said.meaning == Meaning::Open && said.ended == Ended::Done);
        // A move before the accounts were open has changed nothing.
        let opened_ns = opened.map(|said| said.answered_ns).min().unwrap_or(u64::MAX);
        let (mut least, mut most) = (0, 0);
        for said in self.all().filter(|said| said.meaning == Meaning::Move && said.ended != Ended::NotDone) {
            most += 1;
            let is_certain = said.sent_ns >= opened_ns && said.answered_ns <= before_ns;
            least += u64::from(said.ended == Ended::Done && is_certain);
        }
        (least, most)
    }

    /// A statement that writes to this tablet.
    pub fn write_to(&mut self, tablet: TabletId) -> Option<String> {
        self.next_value += 1;
        let partition = self.world.partition_of(tablet)?;
        Some(format!("UPDATE t SET w = {} WHERE k = {partition} AND c = 1", self.next_value))
    }

    /// All statements sent. The outcome of an unanswered one is unknown.
    fn all(&self) -> impl Iterator<Item = Said> {
        let open = self.open.values().map(|open| {
            let Open { meaning, sent_ns, .. } = *open;
            Said { meaning, ended: Ended::Unknown, sent_ns, answered_ns: u64::MAX }
        });
        self.said.iter().copied().chain(open)
    }

    /// How often something was incremented.
    pub fn count(&self, meaning: Meaning) -> Counter {
        let mut count = Counter::default();
        for said in self.all().filter(|said| said.meaning == meaning) {
            match said.ended {
                Ended::Done => count.acknowledged += 1,
                Ended::Unknown => count.unknown += 1,
                Ended::NotDone => {}
            }
        }
        count
    }

    /// How many numbers may have been moved, at most.
    pub fn transfers(&self) -> u64 {
        let is_possible = |said: &Said| said.meaning == Meaning::Transfer && said.ended != Ended::NotDone;
        self.all().filter(is_possible).count() as u64
    }

    /// The appends to the list.
    pub fn appends(&self) -> Vec<Append> {
        let append = |said: Said| match said.meaning {
            Meaning::Append(value) => {
                let Said { ended, sent_ns, answered_ns, .. } = said;
                Some(Append { value, ended, sent_ns, answered_ns })
            }
            _ => None,
        };
        self.all().filter_map(append).collect()
    }

    /// The inserts into several partitions at once.
    pub fn batches(&self) -> Vec<Several> {
        let batch = |said: Said| match said.meaning {
            Meaning::Several(number) => Some(Several { number, ended: said.ended }),
            _ => None,
        };
        self.all().filter_map(batch).collect()
    }

    /// The same as far as a statement that was sent then may see them: the outcome of a batch that had no answer before is unknown.
    pub fn batches_before(&self, sent_ns: u64) -> Vec<Several> {
        let batch = |said: Said| match said.meaning {
            Meaning::Several(number) => {
                let is_known = said.ended != Ended::Done || said.answered_ns <= sent_ns;
                Some(Several { number, ended: if is_known { said.ended } else { Ended::Unknown } })
            }
            _ => None,
        };
        self.all().filter_map(batch).collect()
    }
}

/// The outcome of a statement, from its error.
pub fn ended(error: &CqlError) -> Ended {
    match error.code() {
        ErrorCode::Unavailable | ErrorCode::Overloaded | ErrorCode::Invalid => Ended::NotDone,
        _ => Ended::Unknown,
    }
}
