//! Steps of an index in a tablet: evaluated writes, so that they are replicated and ordered with all other writes.
//!
//! ```text
//! step := 0xF2 · kind u8 · index u64 · 1 define: definition
//!                                    | 2 build:  last u8 · from slice · to slice
//!                                    | 3 remove: entry*         each a slice
//!                                    | 4 drop
//!                                    | 5 compare: round varint · compared · compared   from one to the next
//! ```
//!
//! Always true: a step that has been carried out, or that another one has overtaken, changes nothing. A build indexes
//! the rows of one range of keys, and only if all rows before it are indexed; it ends early, perhaps within a row, once
//! it has written [`BUILT_BYTES`] of entries. What it has written until then, and so where it ends, follows from the log:
//! only live values count, which all replicas have. A removal reads each row once. An entry is removed only if the row, as
//! it is at that place of the log, does not have the value; whatever writes the value later writes the entry again.
//! Values that have expired at the step's own time count as gone, because a compaction may have removed them on one
//! replica and not on another; compactions use no later time. An entry that expires is left to them. Left out: how
//! large a range or a list is ([`part`] and [`mod@super::removals`] keep them small).

use super::specification::{Compared, Dependent, Progress, Specification, specifications};
use super::stale::wrong_forms;
use crate::program::is_unmaintained;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::limits::{self, Exceeded};
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Mutation, TabletChanges, TabletView};
use diorite_base::program::{LoggedProgram, ProvenProgram, Target, Unprovable};
use diorite_model::index::{Derived, EntryKey, entries_end, entry_prefix, lasts, specification_key};
use diorite_model::row::now_seconds;
use diorite_transact::records;

/// The first byte of a step; no other program begins with it.
const MARK: u8 = 0xF2;
const DEFINE: u8 = 1;
const BUILD: u8 = 2;
const REMOVE: u8 = 3;
const DROP: u8 = 4;
const COMPARE: u8 = 5;

/// After so many bytes of entries a build ends, for the next one to go on.
const BUILT_BYTES: usize = 4 << 20;

/// A flag of a tablet: it has had an index.
pub const INDEXED: u64 = 1 << 8;

/// See the top of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexStep {
    /// From here on writes maintain the index, or the columns that a materialized view has got.
    Define {
        /// The index.
        index: u64,
        /// Its encoded definition ([`Specification::definition`]).
        definition: Vec<u8>,
    },
    /// Indexes the rows of a range.
    Build {
        /// The index.
        index: u64,
        /// The first key: up to here all rows are indexed.
        from: Vec<u8>,
        /// The end, exclusive.
        to: Vec<u8>,
        /// With this range all rows are indexed.
        is_last: bool,
    },
    /// Removes entries of values that the rows do not have.
    Remove {
        /// The index.
        index: u64,
        /// Their keys.
        entries: Vec<Vec<u8>>,
    },
    /// Forgets the index, and removes its entries.
    Drop {
        /// The index.
        index: u64,
    },
    /// More rows have been compared, for a dependent. The first of these steps has an effect only once every transaction
    /// that was prepared without the dependent has ended.
    Compare {
        /// The index.
        index: u64,
        /// The round of the comparison.
        round: u64,
        /// What had been compared before.
        from: Compared,
        /// What has been compared now.
        to: Compared,
    },
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexReply {
    /// It was carried out.
    Done,
    /// It changed nothing: it, or another one, was carried out before.
    Overtaken,
}

impl IndexReply {
    /// Encodes the reply.
    pub fn encode(self) -> Vec<u8> {
        vec![u8::from(self == Self::Overtaken)]
    }

    /// Reads a reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes {
            [0] => Ok(Self::Done),
            [1] => Ok(Self::Overtaken),
            _ => Err(Malformed),
        }
    }
}

impl LoggedProgram for IndexStep {
    const TARGET: Target = Target::Rows;
    type Error = String;

    fn check(&self) -> Result<(), Exceeded> {
        let check = |key: &[u8]| {
            limits::check(&limits::STORED_KEY_BYTES, key.len(), || "a key in a step of an index".to_owned())
        };
        match self {
            Self::Build { from, to, .. } => check(from).and_then(|()| check(to)),
            Self::Define { .. } | Self::Remove { .. } | Self::Drop { .. } | Self::Compare { .. } => Ok(()),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, index) = match self {
            Self::Define { index, .. } => (DEFINE, index),
            Self::Build { index, .. } => (BUILD, index),
            Self::Remove { index, .. } => (REMOVE, index),
            Self::Drop { index } => (DROP, index),
            Self::Compare { index, .. } => (COMPARE, index),
        };
        let mut out = vec![MARK, kind];
        out.extend_from_slice(&index.to_le_bytes());
        match self {
            Self::Define { definition, .. } => out.extend_from_slice(definition),
            Self::Build { from, to, is_last, .. } => {
                out.push(u8::from(*is_last));
                put_slice(&mut out, from);
                put_slice(&mut out, to);
            }
            Self::Remove { entries, .. } => entries.iter().for_each(|entry| put_slice(&mut out, entry)),
            Self::Compare { round, from, to, .. } => {
                put_varint(&mut out, *round);
                from.put(&mut out);
                to.put(&mut out);
            }
            Self::Drop { .. } => {}
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        Self::read(bytes).map_err(|_| "a step of an index is malformed".to_owned())
    }
}

impl IndexStep {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != MARK {
            return Err(Malformed);
        }
        let (kind, index) = (reader.u8()?, reader.u64()?);
        let step = match kind {
            DEFINE => {
                let definition = reader.rest().to_vec();
                Specification::from_definition(&definition)?;
                return Ok(Self::Define { index, definition });
            }
            BUILD => {
                let is_last = match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed),
                };
                Self::Build { index, is_last, from: reader.slice()?.to_vec(), to: reader.slice()?.to_vec() }
            }
            REMOVE => {
                let mut entries = Vec::new();
                while !reader.is_empty() {
                    entries.push(reader.slice()?.to_vec());
                }
                Self::Remove { index, entries }
            }
            DROP => Self::Drop { index },
            COMPARE => {
                let round = reader.shortest_varint()?;
                Self::Compare { index, round, from: Compared::read(&mut reader)?, to: Compared::read(&mut reader)? }
            }
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(step) } else { Err(Malformed) }
    }

    /// The step as a write.
    ///
    /// # Errors
    /// If it is over a limit.
    pub fn mutation(&self) -> Result<Mutation, Unprovable> {
        Ok(Mutation::evaluated(None, &ProvenProgram::new(self)?))
    }

    /// Whether a program is a step.
    pub(crate) fn is_step(program: &[u8]) -> bool {
        program.first() == Some(&MARK)
    }

    /// Whether a program changes which indexes a tablet has.
    pub(crate) fn changes_indexes(program: &[u8]) -> bool {
        matches!(program, [MARK, DEFINE | DROP, ..])
    }
}

/// Carries out an encoded step.
pub(crate) fn carry_out(
    program: &[u8],
    context: EvaluationContext,
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<Vec<u8>, EvaluationFailed> {
    let malformed = |_| EvaluationFailed("a step of an index is malformed or of a newer version".to_owned());
    let reply = match IndexStep::read(program).map_err(malformed)? {
        IndexStep::Define { index, definition } => {
            let defined = Specification::from_definition(&definition).map_err(malformed)?;
            match newer(Specification::stored(index, view)?, defined) {
                Some(specification) => {
                    changes.put(&specification_key(index), &specification.encode());
                    changes.raise_flags(INDEXED);
                    IndexReply::Done
                }
                None => IndexReply::Overtaken,
            }
        }
        IndexStep::Build { index, from, to, is_last } => match Specification::stored(index, view)? {
            Some(specification) if specification.progress.goes_on_at(&from) => {
                let reached = index_rows((index, &specification), (&from, &to), context, view, changes)?;
                let progress = reached.unwrap_or(if is_last { Progress::Complete } else { Progress::Before(to) });
                changes.put(&specification_key(index), &Specification { progress, ..specification }.encode());
                IndexReply::Done
            }
            _ => IndexReply::Overtaken,
        },
        IndexStep::Remove { index, entries } => match Specification::stored(index, view)? {
            Some(specification) => {
                let now_s = now_seconds(context.stamp_us);
                remove_stale((index, &specification), &entries, now_s, view, changes)?;
                IndexReply::Done
            }
            None => IndexReply::Overtaken,
        },
        IndexStep::Compare { index, round, from, to } => match Specification::stored(index, view)? {
            Some(mut specification) if may_compare(index, &specification, (round, &from), view)? => {
                if let Some(dependent) = &mut specification.dependent {
                    dependent.compared = to;
                }
                changes.put(&specification_key(index), &specification.encode());
                IndexReply::Done
            }
            _ => IndexReply::Overtaken,
        },
        IndexStep::Drop { index } => {
            changes.delete(&specification_key(index));
            changes.delete_range(&entry_prefix(index), &entries_end(index));
            IndexReply::Done
        }
    };
    Ok(reply.encode())
}

/// What a tablet stores from now on, if it is to know what is defined; `None`: it knows that, or more.
fn newer(stored: Option<Specification>, defined: Specification) -> Option<Specification> {
    match stored {
        None => Some(defined),
        Some(stored) => stored.extended(&defined),
    }
}

/// Whether more rows may be compared. The first of them only once no transaction is prepared whose coordinator did not
/// know the dependent: this step follows the dependent in the log, and the leader that has proposed it admits no others.
fn may_compare(
    index: u64,
    specification: &Specification,
    (round, from): (u64, &Compared),
    view: &dyn TabletView,
) -> Result<bool, EvaluationFailed> {
    let is_next = |dependent: &Dependent| dependent.round == round && dependent.compared == *from;
    if !specification.dependent.as_ref().is_some_and(is_next) {
        return Ok(false);
    }
    let mut may = true;
    if *from == Compared::Nothing {
        let (start, end) = records::prepared_range();
        let indexes = specification.indexes(index);
        view.scan(&start, &end, &mut |_, value| {
            let programs = records::prepared_programs(value).unwrap_or_default();
            may = !programs.iter().any(|program| is_unmaintained(program, &indexes));
            may
        })?;
    }
    Ok(may)
}

/// Writes the entries of the rows of a range; returns how far it has come, if that is not to its end. What has expired by
/// now is left out: one replica may still store it, and another not.
fn index_rows(
    (index, specification): (u64, &Specification),
    (from, to): (&[u8], &[u8]),
    context: EvaluationContext,
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<Option<Progress>, EvaluationFailed> {
    let (indexes, now_s) = (specification.indexes(index), now_seconds(context.stamp_us));
    let (mut bytes, mut reached) = (0, None);
    view.scan(from, to, &mut |key, value| {
        let done = specification.progress.path_within(key);
        let mut last: Option<Vec<u8>> = None;
        indexes.derive(key, value, &mut |derived| {
            if has_expired(derived, now_s) || done.is_some_and(|done| derived.path <= done) {
                return true;
            }
            if bytes >= BUILT_BYTES {
                reached = Some(match last.take() {
                    Some(path) => Progress::Within { row: key.to_vec(), path },
                    None => Progress::before(key, done),
                });
                return false;
            }
            match derived.is_merged() {
                true => changes.merge(&derived.key(), &derived.value()),
                false => changes.put(&derived.key(), &derived.value()),
            }
            bytes += derived.size_bytes();
            last = Some(derived.path.to_vec());
            true
        });
        reached.is_none()
    })?;
    Ok(reached)
}

fn has_expired(derived: &Derived<'_>, now_s: u32) -> bool {
    derived.expiry.is_some_and(|expiry| !expiry.is_live(now_s))
}

/// Removes those of the entries whose rows do not have the value, and which do not expire.
fn remove_stale(
    (index, specification): (u64, &Specification),
    entries: &[Vec<u8>],
    now_s: u32,
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<(), EvaluationFailed> {
    let indexes = specification.indexes(index);
    let mut named: Vec<EntryKey<'_>> = Vec::with_capacity(entries.len());
    for entry in entries.iter().filter(|entry| EntryKey::index(entry) == Some(index)) {
        let Ok(read) = EntryKey::read(entry) else { continue };
        if view.get(entry)?.is_some_and(|value| lasts(&value)) {
            named.push(read);
        }
    }
    named.sort_unstable_by_key(|entry| entry.row);
    for of_row in named.chunk_by(|one, other| one.row == other.row) {
        let Some(EntryKey { row, partition_len, .. }) = of_row.first().copied() else { continue };
        let forms = of_row.iter().map(|entry| entry.form).collect();
        let counts = |derived: &Derived<'_>| !has_expired(derived, now_s);
        let wrong = wrong_forms(&indexes, (row, view.get(row)?.as_deref()), forms, &counts);
        wrong.iter().for_each(|form| changes.delete(&EntryKey { form, row, partition_len }.join(index)));
    }
    Ok(())
}

/// Makes all indexes of a tablet begin again at a row, whose entries have not all been written. Views have no entries here,
/// and nothing would build them.
pub(crate) fn begin_again(
    from: &[u8],
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<(), EvaluationFailed> {
    for (index, specification) in specifications(view)? {
        if !specification.is_of_view() && specification.progress.is_after(from) {
            let progress = Progress::Before(from.to_vec());
            changes.put(&specification_key(index), &Specification { progress, ..specification }.encode());
        }
    }
    Ok(())
}

/// Takes over a stored specification from a tablet whose rows are taken over: views say something of these rows already,
/// so a write to them has to maintain these views, even if this tablet does not know them yet, or not all of their columns.
///
/// # Errors
/// If a specification cannot be read.
pub(crate) fn adopt(
    key: &[u8],
    value: &[u8],
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<(), EvaluationFailed> {
    let malformed = |_| EvaluationFailed("a specification that is taken over is malformed".to_owned());
    let adopted = Specification::decode(value).map_err(malformed)?;
    if !adopted.is_of_view() {
        return Ok(());
    }
    let fresh = Specification::from_definition(&adopted.definition()).map_err(malformed)?;
    let stored = view.get(key)?.map(|value| Specification::decode(&value)).transpose().map_err(malformed)?;
    if let Some(specification) = newer(stored, fresh) {
        changes.put(key, &specification.encode());
        changes.raise_flags(INDEXED);
    }
    Ok(())
}

/// Whether a tablet can take over a record. Asked before a step that has it reaches the log, as every replica stops at one
/// that [`adopt`] cannot read.
pub fn is_adoptable(key: &[u8], value: &[u8]) -> bool {
    let is_of_index = |id: &[u8; 8]| specification_key(u64::from_be_bytes(*id)) == key;
    let reads_again = |read: Specification| Specification::from_definition(&read.definition()).is_ok();
    key.last_chunk().is_some_and(is_of_index) && Specification::decode(value).is_ok_and(reads_again)
}

/// Keys and values.
pub type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The records that a tablet which takes over the rows has to adopt: the specifications of views.
///
/// # Errors
/// If they cannot be read.
pub fn adopted_records(view: &dyn TabletView) -> Result<Records, EvaluationFailed> {
    let of_views = specifications(view)?.into_iter().filter(|(_, specification)| specification.is_of_view());
    Ok(of_views.map(|(id, specification)| (specification_key(id).to_vec(), specification.encode())).collect())
}

/// Has the rows compared again: some were taken over from another tablet, in which they may not have been compared.
pub(crate) fn compare_again(view: &dyn TabletView, changes: &mut dyn TabletChanges) -> Result<(), EvaluationFailed> {
    for (index, mut specification) in specifications(view)? {
        if let Some(dependent) = &mut specification.dependent {
            dependent.begin_again();
            changes.put(&specification_key(index), &specification.encode());
        }
    }
    Ok(())
}

/// The next range of rows to index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The end, exclusive.
    pub to: Vec<u8>,
    /// Nothing follows.
    pub is_last: bool,
    /// Its rows and headers of partitions.
    pub entries: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The end of a range that begins at the start of `scan` and has about this many entries or bytes at most. `scan` calls
/// its argument with keys and values, in order, until that returns false.
///
/// # Errors
/// Those of `scan`.
pub fn part<E>(
    end: &[u8],
    (most_entries, most_bytes): (usize, usize),
    scan: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, E>,
) -> Result<Part, E> {
    let (mut entries, mut bytes, mut last) = (0, 0, Vec::new());
    let is_last = scan(&mut |key, value| {
        entries += 1;
        bytes += key.len() + value.len();
        let goes_on = entries < most_entries && bytes < most_bytes;
        if !goes_on {
            last = [key, &[0]].concat();
        }
        goes_on
    })?;
    Ok(Part { to: if is_last { end.to_vec() } else { last }, is_last, entries, bytes })
}
