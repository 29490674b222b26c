//! The limit on the size of a row. Every read, flush and compaction of a row, and every program that edits it, holds the whole
//! row in memory, on all replicas; a row that could grow without limit by merges would exhaust that memory.
//!
//! The leader refuses such writes before the log, so that applying an entry stays a function of state and entry. It does not
//! know the sizes of rows, and does not read for a write. One account per store thread, for all tablets that it leads, decides
//! which rows are measured:
//!
//! ```text
//! write ─▶ once in about 64 KiB of writes: the row that is written to is charged 64 KiB (larger writes: their size)
//!       ─▶ a row that was charged enough is measured, on another thread; growth since then is counted
//!       ─▶ larger than the limit: writes that add to it are refused, until a new measurement finds it smaller
//! ```
//!
//! Always true: only a measurement decides that a row is too large, or is no longer; while a row is measured, writes to it
//! continue, up to a bound; writes that remove columns or the whole row are never refused. A row that receives more than a
//! 2,000th of all bytes stays in the account: when the account is full, the lighter half is removed, and each unmeasured row
//! that stays loses the weight of the heaviest one removed (Misra and Gries 1982). A new term begins with an empty account.
//! Left out: measuring ([`crate::group::measuring`]), the effect of a write on a row ([`Evaluator::effect`]).

use crate::group::measuring::{RowName, Wanted};
use ahash::{AHashMap, RandomState};
use diorite_base::TabletId;
use diorite_base::limits::{Exceeded, MAX_ROW_BYTES, ROW_BYTES};
use diorite_base::mutation::{Body, Effect, Evaluator, Growth, Mutation, MutationRef, OperationKind};
use diorite_base::random::{Random, SplitMix64};
use diorite_base::write::KvError;
use diorite_raft::Term;
use diorite_transact::message::Program;
use diorite_transact::wire::Call;
use std::collections::BTreeSet;

/// The bytes that one sample represents. Larger writes are counted, not sampled.
const SAMPLE_BYTES: u64 = 64 << 10;
/// The number of rows in an account.
const MOST_ROWS: usize = 4_096;
/// The number of rows that are measured at a time.
pub(crate) const MEASURED_AT_ONCE: usize = 16;
/// The growth after which an unmeasured row is measured.
const UNKNOWN_BYTES: u64 = 1 << 20;
/// A measured row is measured again once it has grown by half of the rest up to the limit, and by this at least.
const LEAST_BYTES: u64 = 4 << 20;
/// The greatest growth, of an unmeasured row or beyond the limit, before a measurement.
const UNMEASURED_BYTES: u64 = 32 << 20;
/// A row that is too large is measured again when it is written to, but no more often than this, nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;
/// As `AGAIN_NS`, if something was removed from the row since, or if the row could not be measured.
const SOON_NS: u64 = 100_000_000;
/// The limit on the size of a row.
const LIMIT_BYTES: u64 = MAX_ROW_BYTES as u64;

/// A measurement in progress.
#[derive(Debug, Clone, Copy)]
struct Measuring {
    number: u64,
    /// The bytes charged to the row since the measurement began.
    growth_bytes: u64,
    /// Whether nothing has been removed from the row since the measurement began.
    covers_removals: bool,
}

/// The entry of a row in the account.
#[derive(Debug)]
struct Row {
    term: Term,
    /// The size by the last measurement, if there was one.
    size_bytes: Option<u64>,
    /// The bytes charged to the row since then.
    growth_bytes: u64,
    measuring: Option<Measuring>,
    asked_ns: u64,
    /// The time before which the row is not measured again.
    again_ns: u64,
    /// Whether something was removed from the row since it was last measured.
    is_reduced: bool,
}

impl Row {
    fn new(term: Term) -> Self {
        Self { term, size_bytes: None, growth_bytes: 0, measuring: None, asked_ns: 0, again_ns: 0, is_reduced: false }
    }

    fn is_too_large(&self) -> bool {
        self.size_bytes.is_some_and(|size_bytes| size_bytes > LIMIT_BYTES)
    }

    fn charge(&mut self, bytes: u64) {
        self.growth_bytes += bytes;
        if let Some(measuring) = &mut self.measuring {
            measuring.growth_bytes += bytes;
        }
    }

    /// The known size and the growth since then.
    fn weight_bytes(&self) -> u64 {
        self.size_bytes.unwrap_or(0) + self.growth_bytes
    }

    /// The reason why the row may not grow by `bytes`, if there is one.
    fn refusal(&self, effect: Effect, bytes: u64) -> Option<KvError> {
        let (limit, name) = match effect {
            Effect::Grows => (LIMIT_BYTES, ROW_BYTES.name),
            // A larger row may be shortened element by element; but removed elements take space as well.
            Effect::RemovesElements => (2 * LIMIT_BYTES, "twice ROW_BYTES"),
            Effect::Shrinks | Effect::Replaces => return None,
        };
        if let Some(found) = self.size_bytes.filter(|size_bytes| *size_bytes > limit) {
            if self.is_reduced {
                return Some(KvError::Overloaded("a row from which something was removed is yet to be measured"));
            }
            let what = "a row that the write would add to".to_owned();
            return Some(KvError::TooLarge(Exceeded { what, found, limit, unit: ROW_BYTES.unit, name }.to_string()));
        }
        let fits = self.size_bytes.is_some() && self.weight_bytes() + bytes <= limit;
        let is_much = self.growth_bytes > 0 && self.growth_bytes + bytes > UNMEASURED_BYTES;
        (!fits && is_much).then_some(KvError::Overloaded("a row grows faster than it is measured"))
    }

    /// Whether the row should be measured, by its known size and growth.
    fn is_due(&self) -> bool {
        match self.size_bytes {
            None => self.growth_bytes >= UNKNOWN_BYTES,
            Some(size_bytes) if size_bytes > LIMIT_BYTES => true,
            Some(size_bytes) => self.growth_bytes >= LEAST_BYTES.max((LIMIT_BYTES - size_bytes) / 2),
        }
    }

    fn may_be_measured(&self, now_ns: u64) -> bool {
        self.measuring.is_none() && now_ns >= self.again_ns
    }
}

/// A write that is about to be proposed, and its circumstances.
pub(crate) struct Writing<'a> {
    pub(crate) tablet: TabletId,
    /// The term in which this node leads.
    pub(crate) term: Term,
    /// The write's own timestamp, and the greatest applied one that a client has given.
    pub(crate) stamp_us: i64,
    pub(crate) newest_explicit_us: i64,
    pub(crate) evaluator: &'a dyn Evaluator,
    pub(crate) now_ns: u64,
}

/// A write while its effects on rows are examined.
struct Looked<'w> {
    at: &'w Writing<'w>,
    /// Whether rows of its tablet are held.
    holds: bool,
    /// The position of the next effect within all bytes written.
    place: u64,
    outcome: Result<(), KvError>,
}

/// The account of a store thread.
pub(crate) struct RowSizes {
    /// The bytes of all writes so far, and the position at which the next sample is taken.
    passed_bytes: u64,
    sample_at: u64,
    random: SplitMix64,
    hashers: [RandomState; 2],
    rows: AHashMap<RowName, Row>,
    /// Rows whose writes may be refused: every write to their tablets is examined.
    held: BTreeSet<RowName>,
    /// Rows to be measured once the proposed entries are applied.
    wanted: Vec<Wanted>,
    /// The number of rows that are wanted or being measured.
    measuring: usize,
    /// The number of the last measurement.
    number: u64,
}

impl RowSizes {
    /// An empty account. The seed must be secret: a client that knows which bytes are sampled could place other bytes
    /// there.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            passed_bytes: 0,
            sample_at: SAMPLE_BYTES,
            random: SplitMix64::new(seed),
            hashers: Default::default(),
            rows: AHashMap::default(),
            held: BTreeSet::new(),
            wanted: Vec::new(),
            measuring: 0,
            number: 0,
        }
    }

    fn name(&self, tablet: TabletId, key: &[u8]) -> RowName {
        RowName { tablet, hashes: [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)] }
    }

    /// Whether rows of a tablet are held.
    fn holds(&self, tablet: TabletId) -> bool {
        let first = RowName { tablet, hashes: [0; 2] };
        !self.held.is_empty() && self.held.range(first..).next().is_some_and(|name| name.tablet == tablet)
    }

    /// Whether a write may be proposed. Charges it to the rows that it adds to. For most writes this costs an addition
    /// and a comparison.
    ///
    /// # Errors
    /// If a row that it would add to is too large, or grows faster than it is measured.
    #[inline]
    pub(crate) fn admit(&mut self, at: &Writing<'_>, mutation: &Mutation) -> Result<(), KvError> {
        let (begins_at, bytes) = (self.passed_bytes, mutation.size_bytes() as u64);
        self.passed_bytes += bytes;
        if self.passed_bytes < self.sample_at && bytes < SAMPLE_BYTES && !self.holds(at.tablet) {
            return Ok(());
        }
        self.look(at, mutation, begins_at)
    }

    #[cold]
    fn look(&mut self, at: &Writing<'_>, mutation: &Mutation, begins_at: u64) -> Result<(), KvError> {
        let Ok(decoded) = MutationRef::decode(mutation.as_bytes()) else {
            unreachable!("a mutation decodes");
        };
        let mut looked = Looked { at, holds: self.holds(at.tablet), place: begins_at, outcome: Ok(()) };
        match decoded.body() {
            Body::Blind(operations) => {
                for operation in operations.flatten() {
                    let bytes = operation.key.len() + operation.value.len();
                    self.see(&mut looked, operation.key, bytes, || match operation.kind {
                        OperationKind::Overwrite => Effect::Replaces,
                        OperationKind::Merge => at.evaluator.effect(operation.value),
                    });
                }
            }
            Body::Evaluated(program) => self.see_program(&mut looked, program),
            Body::Request(call) => {
                if let Some(Program(program)) = Call::program_of(call) {
                    self.see_program(&mut looked, &program);
                }
            }
            Body::Step(_) => {}
        }
        // Samples in the rest of the bytes are charged to no row.
        self.take_samples(self.passed_bytes);
        looked.outcome
    }

    fn see_program(&mut self, looked: &mut Looked<'_>, program: &[u8]) {
        let evaluator = looked.at.evaluator;
        evaluator.growth(program, &mut |growth: Growth<'_>| {
            self.see(looked, growth.key, growth.bytes, || growth.effect);
        });
    }

    /// The number of samples up to `end`. Their distances vary at random, so that no pattern of writes falls between
    /// them.
    fn take_samples(&mut self, end: u64) -> u64 {
        let mut samples = 0;
        while self.sample_at <= end {
            samples += 1;
            self.sample_at += 1 + self.random.below(2 * SAMPLE_BYTES);
        }
        samples
    }

    /// Examines the effect of a write on one row.
    fn see(&mut self, looked: &mut Looked<'_>, key: &[u8], bytes: usize, effect: impl FnOnce() -> Effect) {
        let bytes = bytes as u64;
        looked.place += bytes;
        let samples = self.take_samples(looked.place.min(self.passed_bytes));
        let charged = if bytes >= SAMPLE_BYTES { bytes } else { samples * SAMPLE_BYTES };
        if looked.outcome.is_err() || (charged == 0 && !looked.holds) {
            return;
        }
        let (name, effect) = (self.name(looked.at.tablet, key), effect());
        let adds = match effect {
            Effect::Grows | Effect::RemovesElements => true,
            Effect::Shrinks => false,
            // Other operands are newer, so the value is merged with them and does not replace the row.
            Effect::Replaces => looked.at.stamp_us <= looked.at.newest_explicit_us,
        };
        if adds {
            looked.outcome = self.grow(looked.at, (name, key), effect, (bytes, charged));
        } else {
            self.reduce(looked.at, name, key);
        }
    }

    /// A write adds `bytes` to a row, which is charged `charged` bytes.
    fn grow(
        &mut self,
        at: &Writing<'_>,
        (name, key): (RowName, &[u8]),
        effect: Effect,
        (bytes, charged): (u64, u64),
    ) -> Result<(), KvError> {
        let is_held = self.held.contains(&name);
        let charged = if is_held { bytes } else { charged };
        if charged == 0 {
            return Ok(());
        }
        if !self.rows.contains_key(&name) {
            self.make_room();
        }
        let row = self.rows.entry(name).or_insert_with(|| Row::new(at.term));
        if row.term != at.term {
            *row = Row::new(at.term);
            self.held.remove(&name);
        }
        let refusal = row.refusal(effect, bytes);
        match &refusal {
            None => row.charge(charged),
            Some(_) => drop(self.held.insert(name)),
        }
        if row.may_be_measured(at.now_ns) && (row.is_due() || refusal.is_some()) {
            self.want(at, name, key);
        }
        refusal.map_or(Ok(()), Err)
    }

    /// A write removes something from a row, unless it is too old to do so. Only a measurement shows which.
    fn reduce(&mut self, at: &Writing<'_>, name: RowName, key: &[u8]) {
        let Some(row) = self.rows.get_mut(&name).filter(|row| row.term == at.term) else { return };
        row.is_reduced = true;
        if let Some(measuring) = &mut row.measuring {
            measuring.covers_removals = false;
        }
        row.again_ns = row.again_ns.min(row.asked_ns + SOON_NS);
        if row.may_be_measured(at.now_ns) && row.is_due() {
            self.want(at, name, key);
        }
    }

    /// Asks for a measurement of a row, once the entries proposed by now are applied, unless too many are under way.
    fn want(&mut self, at: &Writing<'_>, name: RowName, key: &[u8]) {
        if self.measuring == MEASURED_AT_ONCE {
            return;
        }
        let Some(row) = self.rows.get_mut(&name) else { return };
        self.measuring += 1;
        self.number += 1;
        row.measuring = Some(Measuring { number: self.number, growth_bytes: 0, covers_removals: true });
        row.asked_ns = at.now_ns;
        self.wanted.push(Wanted { name, number: self.number, term: at.term, after: None, key: key.to_vec() });
    }

    /// Notes that all admitted writes to a tablet are proposed, up to this index.
    pub(crate) fn note_proposed(&mut self, tablet: TabletId, index: u64) {
        let of_tablet = |wanted: &&mut Wanted| wanted.name.tablet == tablet && wanted.after.is_none();
        self.wanted.iter_mut().filter(of_tablet).for_each(|wanted| wanted.after = Some(index));
    }

    /// Whether rows wait to be measured.
    pub(crate) fn is_wanting(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The rows that can be measured now. `applied` returns the applied index of a tablet that this node leads in a
    /// term.
    pub(crate) fn take_due(&mut self, applied: impl Fn(TabletId, Term) -> Option<u64>) -> Vec<Wanted> {
        let mut due = Vec::new();
        for wanted in std::mem::take(&mut self.wanted) {
            match (applied(wanted.name.tablet, wanted.term), wanted.after) {
                (None, _) => self.take_answer(&wanted, None),
                (Some(applied), Some(after)) if after <= applied => due.push(wanted),
                (Some(_), _) => self.wanted.push(wanted),
            }
        }
        due
    }

    /// Records the measured size of a row; `None` if it could not be measured.
    pub(crate) fn take_answer(&mut self, wanted: &Wanted, size_bytes: Option<u64>) {
        self.measuring -= 1;
        let Some(row) = self.rows.get_mut(&wanted.name) else { return };
        let Some(measuring) = row.measuring.take_if(|measuring| measuring.number == wanted.number) else { return };
        let Some(size_bytes) = size_bytes else {
            row.again_ns = row.asked_ns + SOON_NS;
            return;
        };
        let was_too_large = row.is_too_large();
        row.is_reduced &= !measuring.covers_removals;
        (row.size_bytes, row.growth_bytes) = (Some(size_bytes), measuring.growth_bytes);
        if !row.is_too_large() {
            row.again_ns = 0;
            self.held.remove(&wanted.name);
            return;
        }
        row.again_ns = row.asked_ns + if row.is_reduced { SOON_NS } else { AGAIN_NS };
        self.held.insert(wanted.name);
        if !was_too_large {
            let tablet = wanted.name.tablet;
            tracing::warn!(%tablet, size_bytes, limit_bytes = LIMIT_BYTES, "a row is too large to be added to");
        }
    }

    /// Removes the lighter half of the rows, if the account is full.
    fn make_room(&mut self) {
        if self.rows.len() < MOST_ROWS {
            return;
        }
        let mut weights: Vec<u64> = self.rows.values().map(Row::weight_bytes).collect();
        let (_, median, _) = weights.select_nth_unstable(MOST_ROWS / 2);
        let median = *median;
        self.rows.retain(|name, row| {
            let stays = row.weight_bytes() > median;
            if !stays {
                self.held.remove(name);
            } else if row.size_bytes.is_none() {
                row.growth_bytes -= median;
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests;
