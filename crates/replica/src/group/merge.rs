//! A merge, in which a tablet takes over the rows of its neighbour: its steps are evaluated mutations of the two
//! tablets, so that they are replicated, survive crashes and are ordered with all other writes
//! (`docs/decisions/2026-11-22-merging-tablets.md`).
//!
//! Always true: a tablet that has applied [`MergeStep::Close`] takes no writes and answers no reads, until it applies
//! an entry that opens it again ([`crate::Core::reopen`]). That entry is proposed only if the catalog has cancelled the
//! merge. The rows that the other tablet takes over count only if they come from one attempt, in order and complete.
//! Once that is finished, no step of an attempt has an effect any more. No step of a cancelled merge has an effect,
//! however late it is applied: merges are numbered, and both tablets remember which of them were cancelled. Left out:
//! which tablets are merged (the node's), when one serves in the place of the other, and whether a merge is cancelled
//! (the catalog's).

#[cfg(test)]
mod golden;
mod merging;
mod reopen;
#[cfg(test)]
pub(crate) mod tests;

use crate::group::entry::mutations;
use crate::group::sealed::CLOSED;
use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::limits::{self, Exceeded};
use diorite_base::mutation::{Body, EvaluationFailed, Mutation, TabletChanges, TabletView};
use diorite_base::program::{LoggedProgram, ProvenProgram, Target, Unprovable};
use diorite_base::row_index::RECORD_PREFIX;
use diorite_storage::{AFTER_KEYS_ABOUT_TABLETS, AppliedState, absorbed_key, staged_key};
pub use merging::Merging;
use reopen::given_up;
pub use reopen::has_given_up;
pub(crate) use reopen::{REOPEN, Reopening};
use std::cmp::Ordering;

/// The first byte of a step; no program of an inner evaluator begins with it.
const MARK: u8 = 0xF1;

/// A range of keys; the end is exclusive.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// The state of the closing tablet that the other one takes over with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// Its greatest stamp.
    pub newest_stamp_us: i64,
    /// The greatest timestamp that its clients have given.
    pub newest_explicit_us: i64,
    /// Its flags.
    pub flags: u64,
}

impl From<&AppliedState> for Closing {
    fn from(state: &AppliedState) -> Self {
        let AppliedState { newest_stamp_us, newest_explicit_us, flags, .. } = *state;
        Self { newest_stamp_us, newest_explicit_us, flags }
    }
}

/// A step of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeStep {
    /// To the tablet that closes: it is sealed, unless the merge was cancelled.
    Close {
        /// The tablet itself; 0 in logs of earlier versions, which could not cancel merges.
        tablet: TabletId,
        /// The number of the merge.
        number: u64,
    },
    /// To the tablet that stays: begins a new attempt and discards an earlier one.
    Begin {
        /// The tablet that closes.
        from: TabletId,
        /// The number of the merge; 0 in logs of earlier versions.
        number: u64,
        /// The number of the attempt.
        attempt: u64,
        /// The keys of the tablet that closes.
        range: KeyRange,
    },
    /// The next part of the rows.
    Take {
        /// The tablet that closes.
        from: TabletId,
        /// The number of the attempt.
        attempt: u64,
        /// The number of the part, from 1.
        number: u64,
        /// Earlier rows in this range are discarded.
        instead_of: Option<KeyRange>,
        /// The rows, ascending. Or records about them that the other tablet adopts: no row has a key that begins with
        /// [`RECORD_PREFIX`].
        rows: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// The next piece of a row that is too large for one step. It counts as a part.
    TakePiece {
        /// The tablet that closes.
        from: TabletId,
        /// The number of the attempt.
        attempt: u64,
        /// The number of the part, from 1.
        number: u64,
        /// Earlier rows in this range are discarded.
        instead_of: Option<KeyRange>,
        /// The row's key.
        key: Vec<u8>,
        /// The next bytes of the row.
        piece: Vec<u8>,
        /// Whether these are the last.
        is_last: bool,
    },
    /// All parts were sent.
    Finish {
        /// The tablet that closes.
        from: TabletId,
        /// The number of the attempt.
        attempt: u64,
        /// The number of parts.
        parts: u64,
        /// The rest of the closing tablet's state.
        closing: Closing,
    },
    /// To the tablet that stays, once the catalog has cancelled the merge: it removes the rows that it has taken over.
    Discard {
        /// The tablet that was to close.
        from: TabletId,
        /// The number of the merge.
        number: u64,
        /// The keys of that tablet.
        range: KeyRange,
    },
}

/// Whether a program is a step of a merge.
pub(crate) fn is_merge_step(program: &[u8]) -> bool {
    program.first() == Some(&MARK)
}

/// Whether a program ends the tablet that applies it. A leader that has proposed such a program answers no more reads.
pub(crate) fn ends_tablet(program: &[u8]) -> bool {
    matches!(program, [MARK, CLOSE_FOR_EVER | CLOSE, ..])
}

/// Whether a program is a step with which a tablet adopts records.
fn adopts(program: &[u8]) -> bool {
    let is_taking = matches!(program, [MARK, TAKE, ..]);
    let step = is_taking.then(|| MergeStep::decode(program).ok()).flatten();
    step.is_some_and(|step| step.keys().any(is_record))
}

/// Whether a key is that of a record, which no row has.
fn is_record(key: &[u8]) -> bool {
    key.len() > RECORD_PREFIX.len() && key.starts_with(&RECORD_PREFIX)
}

// The second byte of a step. Earlier versions had 0 to 3.
const CLOSE_FOR_EVER: u8 = 0;
const BEGIN_UNNUMBERED: u8 = 1;
const TAKE: u8 = 2;
const FINISH: u8 = 3;
const CLOSE: u8 = 4;
const BEGIN: u8 = 5;
const TAKE_PIECE: u8 = 6;
const DISCARD: u8 = 7;

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeReply {
    /// The step has been carried out.
    Done,
    /// All rows had been taken over before.
    Finished,
    /// A later attempt has begun, a part is missing, or the merge was cancelled.
    Superseded,
}

impl MergeReply {
    pub(crate) fn encode(self) -> Vec<u8> {
        vec![match self {
            MergeReply::Done => 0,
            MergeReply::Finished => 1,
            MergeReply::Superseded => 2,
        }]
    }

    /// Decodes a reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes {
            [0] => Ok(MergeReply::Done),
            [1] => Ok(MergeReply::Finished),
            [2] => Ok(MergeReply::Superseded),
            _ => Err(Malformed),
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn put_range(out: &mut Vec<u8>, (start, end): &KeyRange) {
    put_slice(out, start);
    put_slice(out, end);
}

fn put_optional_range(out: &mut Vec<u8>, range: Option<&KeyRange>) {
    out.push(u8::from(range.is_some()));
    range.iter().for_each(|range| put_range(out, range));
}

fn read_optional_range(reader: &mut Reader<'_>) -> Result<Option<KeyRange>, Malformed> {
    if reader.u8()? == 0 { Ok(None) } else { read_range(reader).map(Some) }
}

fn read_range(reader: &mut Reader<'_>) -> Result<KeyRange, Malformed> {
    Ok((reader.slice()?.to_vec(), reader.slice()?.to_vec()))
}

impl LoggedProgram for MergeStep {
    const TARGET: Target = Target::Rows;
    type Error = String;

    fn check(&self) -> Result<(), Exceeded> {
        self.keys().try_for_each(|key| {
            limits::check(&limits::STORED_KEY_BYTES, key.len(), || "a key in a step of a merge".to_owned())
        })
    }

    fn encode(&self) -> Vec<u8> {
        MergeStep::encode(self)
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        MergeStep::decode(bytes).map_err(|_| "a step of a merge is malformed".to_owned())
    }
}

impl MergeStep {
    /// The step that undoes a cancelled merge, in the tablet that stays.
    pub fn undo(from: TabletId, number: u64, range: KeyRange) -> Self {
        Self::Discard { from, number, range }
    }

    /// All keys in the step.
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let (range, key, rows): (Option<&KeyRange>, Option<&Vec<u8>>, &[_]) = match self {
            Self::Close { .. } | Self::Finish { .. } => (None, None, &[]),
            Self::Begin { range, .. } | Self::Discard { range, .. } => (Some(range), None, &[]),
            Self::Take { instead_of, rows, .. } => (instead_of.as_ref(), None, rows),
            Self::TakePiece { instead_of, key, .. } => (instead_of.as_ref(), Some(key), &[]),
        };
        let bounds = range.into_iter().flat_map(|(start, end)| [start, end]);
        bounds.chain(key).chain(rows.iter().map(|(key, _)| key)).map(Vec::as_slice)
    }

    /// The records that the tablet adopts.
    pub fn records(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let rows: &[_] = if let Self::Take { rows, .. } = self { rows } else { &[] };
        rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).filter(|(key, _)| is_record(key))
    }

    /// The step as a write; an error if it is over a limit.
    pub fn mutation(&self) -> Result<Mutation, Unprovable> {
        Ok(Mutation::evaluated(None, &ProvenProgram::new(self)?))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![MARK];
        match self {
            MergeStep::Close { tablet: TabletId(0), .. } => out.push(CLOSE_FOR_EVER),
            MergeStep::Close { tablet, number } => {
                out.push(CLOSE);
                put_numbers(&mut out, &[tablet.0, *number]);
            }
            MergeStep::Begin { from, number, attempt, range } => {
                match number {
                    0 => {
                        out.push(BEGIN_UNNUMBERED);
                        put_numbers(&mut out, &[from.0, *attempt]);
                    }
                    number => {
                        out.push(BEGIN);
                        put_numbers(&mut out, &[from.0, *attempt, *number]);
                    }
                }
                put_range(&mut out, range);
            }
            MergeStep::Take { from, attempt, number, instead_of, rows } => {
                out.push(TAKE);
                put_numbers(&mut out, &[from.0, *attempt, *number]);
                put_optional_range(&mut out, instead_of.as_ref());
                put_varint(&mut out, rows.len() as u64);
                for (key, value) in rows {
                    put_slice(&mut out, key);
                    put_slice(&mut out, value);
                }
            }
            MergeStep::TakePiece { from, attempt, number, instead_of, key, piece, is_last } => {
                out.push(TAKE_PIECE);
                put_numbers(&mut out, &[from.0, *attempt, *number]);
                put_optional_range(&mut out, instead_of.as_ref());
                out.push(u8::from(*is_last));
                put_slice(&mut out, key);
                put_slice(&mut out, piece);
            }
            MergeStep::Finish { from, attempt, parts, closing } => {
                out.push(FINISH);
                let Closing { newest_stamp_us, newest_explicit_us, flags } = *closing;
                let stamps = [newest_stamp_us as u64, newest_explicit_us as u64];
                put_numbers(&mut out, &[from.0, *attempt, *parts, stamps[0], stamps[1], flags]);
            }
            MergeStep::Discard { from, number, range } => {
                out.push(DISCARD);
                put_numbers(&mut out, &[from.0, *number]);
                put_range(&mut out, range);
            }
        }
        out
    }

    /// Decodes a step from the program of a mutation.
    pub fn decode(program: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(program);
        let step = Self::read(&mut reader)?;
        if reader.is_empty() { Ok(step) } else { Err(Malformed) }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if reader.u8()? != MARK {
            return Err(Malformed);
        }
        let kind = reader.u8()?;
        if kind == CLOSE_FOR_EVER {
            return Ok(MergeStep::Close { tablet: TabletId(0), number: 0 });
        }
        let (from, attempt) = (TabletId(reader.u64()?), reader.u64()?);
        Ok(match kind {
            CLOSE => MergeStep::Close { tablet: from, number: attempt },
            BEGIN_UNNUMBERED => MergeStep::Begin { from, number: 0, attempt, range: read_range(reader)? },
            BEGIN => MergeStep::Begin { from, attempt, number: reader.u64()?, range: read_range(reader)? },
            TAKE => {
                let (number, instead_of) = (reader.u64()?, read_optional_range(reader)?);
                let mut rows = Vec::new();
                for _ in 0..reader.varint()? {
                    rows.push((reader.slice()?.to_vec(), reader.slice()?.to_vec()));
                }
                MergeStep::Take { from, attempt, number, instead_of, rows }
            }
            TAKE_PIECE => {
                let (number, instead_of) = (reader.u64()?, read_optional_range(reader)?);
                let is_last = reader.u8()? != 0;
                let (key, piece) = (reader.slice()?.to_vec(), reader.slice()?.to_vec());
                MergeStep::TakePiece { from, attempt, number, instead_of, key, piece, is_last }
            }
            FINISH => {
                let parts = reader.u64()?;
                let (newest_stamp_us, newest_explicit_us) = (reader.i64()?, reader.i64()?);
                let closing = Closing { newest_stamp_us, newest_explicit_us, flags: reader.u64()? };
                MergeStep::Finish { from, attempt, parts, closing }
            }
            DISCARD => MergeStep::Discard { from, number: attempt, range: read_range(reader)? },
            _ => return Err(Malformed),
        })
    }
}

/// The stage of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Taking,
    Finished,
    /// The merge was cancelled.
    Discarded,
}

/// The progress of a tablet that takes over the rows of another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// The number of the merge.
    number: u64,
    attempt: u64,
    parts: u64,
    stage: Stage,
    /// Pieces of an incomplete row, stored under [`staged_key`]. Meanwhile no other merge may begin here.
    pieces: u32,
}

impl Progress {
    fn of(from: TabletId, view: &dyn TabletView) -> Result<Self, EvaluationFailed> {
        let Some(bytes) = view.get(&absorbed_key(from.0))? else { return Ok(Self::default()) };
        Self::decode(&bytes)
            .map_err(|_| EvaluationFailed(format!("the progress of taking over the rows of {from} cannot be decoded")))
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (attempt, parts) = (reader.u64()?, reader.u64()?);
        let stage = match reader.u8()? {
            0 => Stage::Taking,
            1 => Stage::Finished,
            2 => Stage::Discarded,
            _ => return Err(Malformed),
        };
        if reader.is_empty() {
            // The format of earlier versions.
            return Ok(Self { attempt, parts, stage, ..Self::default() });
        }
        let (number, pieces) = (reader.u64()?, reader.u32()?);
        Ok(Self { number, attempt, parts, stage, pieces })
    }

    fn put(self, from: TabletId, changes: &mut dyn TabletChanges) {
        let mut bytes = Vec::new();
        put_numbers(&mut bytes, &[self.attempt, self.parts]);
        bytes.push(self.stage as u8);
        put_numbers(&mut bytes, &[self.number]);
        bytes.extend_from_slice(&self.pieces.to_le_bytes());
        changes.put(&absorbed_key(from.0), &bytes);
    }

    /// Removes the rows that were taken over.
    fn undo(
        &self,
        range: &KeyRange,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        if self.parts > 0 {
            delete_rows(range, view, changes)?;
        }
        (0..self.pieces).for_each(|piece| changes.delete(&staged_key(piece)));
        Ok(())
    }

    /// Whether part `number` of `attempt` is the next one. If it is not, the error is the reply.
    fn expects(&self, attempt: u64, number: u64) -> Result<(), MergeReply> {
        if self.stage != Stage::Taking || self.attempt != attempt || number > self.parts + 1 {
            return Err(MergeReply::Superseded);
        }
        // A repeated part must not undo the parts after it.
        if number <= self.parts { Err(MergeReply::Done) } else { Ok(()) }
    }
}

/// Whether an entry of the log is a step of a merge or of a transaction, on which other tablets depend.
pub(crate) fn is_step(payload: &[u8]) -> bool {
    let first = mutations(payload).ok().and_then(|mut found| found.next()?.ok());
    first.is_some_and(|mutation| match mutation.body() {
        Body::Evaluated(program) => is_merge_step(program),
        Body::Step(_) => true,
        Body::Blind(_) | Body::Request(_) => false,
    })
}

/// Adopts a record about the rows, which has a key that no row has.
type Adopt<'a> = dyn Fn(&[u8], &[u8], &mut dyn TabletChanges) -> Result<(), EvaluationFailed> + 'a;

fn carry_out(
    step: MergeStep,
    (taken_over, adopt): (&dyn Fn(Vec<u8>) -> Vec<u8>, &Adopt<'_>),
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<MergeReply, EvaluationFailed> {
    Ok(match step {
        MergeStep::Close { tablet, number } => return close(tablet, number, view, changes),
        MergeStep::Begin { from, number, attempt, range } => {
            let before = Progress::of(from, view)?;
            match (before.number.cmp(&number), before.stage) {
                (Ordering::Equal, Stage::Finished) => return Ok(MergeReply::Finished),
                (Ordering::Greater, _) | (Ordering::Equal, Stage::Discarded) => return Ok(MergeReply::Superseded),
                (Ordering::Less, _) | (Ordering::Equal, Stage::Taking) => {}
            }
            before.undo(&range, view, changes)?;
            Progress { number, attempt, ..Progress::default() }.put(from, changes);
            MergeReply::Done
        }
        MergeStep::Take { from, attempt, number, instead_of, rows } => {
            let progress = Progress::of(from, view)?;
            if let Err(reply) = progress.expects(attempt, number) {
                return Ok(reply);
            }
            instead_of.map_or(Ok(()), |range| delete_rows(&range, view, changes))?;
            take_rows(rows, (taken_over, adopt), changes)?;
            Progress { parts: number, ..progress }.put(from, changes);
            MergeReply::Done
        }
        MergeStep::TakePiece { from, attempt, number, instead_of, key, piece, is_last } => {
            let progress = Progress::of(from, view)?;
            if let Err(reply) = progress.expects(attempt, number) {
                return Ok(reply);
            }
            instead_of.map_or(Ok(()), |range| delete_rows(&range, view, changes))?;
            let pieces = take_piece(progress.pieces, &key, (piece, is_last), taken_over, view, changes)?;
            Progress { parts: number, pieces, ..progress }.put(from, changes);
            MergeReply::Done
        }
        MergeStep::Finish { from, attempt, parts, closing } => {
            let progress = Progress::of(from, view)?;
            if progress.attempt == attempt && progress.stage == Stage::Finished {
                return Ok(MergeReply::Finished);
            }
            let is_whole = progress.parts == parts && progress.pieces == 0;
            if progress.stage != Stage::Taking || progress.attempt != attempt || !is_whole {
                return Ok(MergeReply::Superseded);
            }
            changes.raise_flags(closing.flags & !CLOSED);
            changes.raise_stamps(closing.newest_stamp_us, closing.newest_explicit_us);
            Progress { stage: Stage::Finished, ..progress }.put(from, changes);
            MergeReply::Done
        }
        MergeStep::Discard { from, number, range } => {
            let before = Progress::of(from, view)?;
            if before.number > number {
                return Ok(MergeReply::Superseded);
            }
            if before.number < number || before.stage != Stage::Discarded {
                before.undo(&range, view, changes)?;
                Progress { number, stage: Stage::Discarded, ..Progress::default() }.put(from, changes);
            }
            MergeReply::Done
        }
    })
}

/// Takes over rows, and records about them.
fn take_rows(
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    (taken_over, adopt): (&dyn Fn(Vec<u8>) -> Vec<u8>, &Adopt<'_>),
    changes: &mut dyn TabletChanges,
) -> Result<(), EvaluationFailed> {
    for (key, value) in rows {
        match is_record(&key) {
            true => adopt(&key, &value, changes)?,
            false => changes.put(&key, &taken_over(value)),
        }
    }
    Ok(())
}

fn close(
    tablet: TabletId,
    number: u64,
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<MergeReply, EvaluationFailed> {
    let has_given_up = if tablet.0 == 0 { None } else { view.get(&absorbed_key(tablet.0))? };
    let given_up = given_up(tablet, has_given_up.as_deref()).map_err(|error| EvaluationFailed(error.to_string()))?;
    if given_up.is_some_and(|given_up| given_up >= number) {
        return Ok(MergeReply::Superseded);
    }
    changes.raise_flags(CLOSED);
    Ok(MergeReply::Done)
}

/// Deletes the rows of a range. Keys of the tablet's own state that lie between rows of the smallest tokens stay.
fn delete_rows(
    (start, end): &KeyRange,
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<(), EvaluationFailed> {
    let among = |key: &[u8]| key.min(AFTER_KEYS_ABOUT_TABLETS).to_vec();
    let mut rows = Vec::new();
    view.scan(&among(start), &among(end), &mut |key, _| {
        rows.push(key.to_vec());
        true
    })?;
    rows.iter().for_each(|key| changes.delete(key));
    let first = start.as_slice().max(AFTER_KEYS_ABOUT_TABLETS);
    // The storage refuses a range that ends before it begins.
    if first < end.as_slice() {
        changes.delete_range(first, end);
    }
    Ok(())
}

/// Takes over the next piece of a row, after `held` others; returns how many pieces there are then. The last piece
/// completes the row.
fn take_piece(
    held: u32,
    key: &[u8],
    (piece, is_last): (Vec<u8>, bool),
    taken_over: &dyn Fn(Vec<u8>) -> Vec<u8>,
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<u32, EvaluationFailed> {
    if !is_last {
        changes.put(&staged_key(held), &piece);
        return Ok(held + 1);
    }
    let mut row = Vec::new();
    for before in 0..held {
        let lost = || EvaluationFailed(format!("piece {before} of a row that is taken over is missing"));
        row.extend_from_slice(&view.get(&staged_key(before))?.ok_or_else(lost)?);
        changes.delete(&staged_key(before));
    }
    row.extend_from_slice(&piece);
    changes.put(key, &taken_over(row));
    Ok(0)
}
