//! The seam through which writes that read the tablet are evaluated, when they are applied.

use crate::Horizon;
use crate::program::Unprovable;
use crate::row_index::RowIndexes;
use std::sync::Arc;

/// An evaluation has failed. The replica must stop, as its outcome would differ from that of the other replicas.
#[derive(Debug, thiserror::Error)]
#[error("cannot apply a logged write: {0}")]
pub struct EvaluationFailed(pub String);

/// Read access to a tablet as it was before the mutation that is being applied. Merge operands are resolved.
pub trait TabletView {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed>;
    /// Calls `visit` with each entry of `start..end` in key order until it returns false.
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed>;
    /// As [`Self::scan`], but stops early if it would have to pass many removed entries. Returns false if it stopped
    /// early, and true if `visit` has seen all entries or has returned false. The result depends on how the data is
    /// stored, which differs between replicas, so the state that readers find afterwards must not depend on it.
    fn scan_briefly(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, EvaluationFailed> {
        self.scan(start, end, visit).map(|()| true)
    }
}

/// Collects the changes of an evaluation; all changes of one mutation take effect together.
pub trait TabletChanges {
    /// Replaces the value of `key`.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// Merges `value` into what `key` holds.
    fn merge(&mut self, key: &[u8], value: &[u8]);
    /// Removes `key`.
    fn delete(&mut self, key: &[u8]);
    /// Removes every key of `start..end`.
    fn delete_range(&mut self, start: &[u8], end: &[u8]);
    /// Sets bits of the tablet's flags. Set bits stay set, and are stored with the applied index. The evaluator defines
    /// the bits; readers see the flags beside the data.
    fn raise_flags(&mut self, flags: u64);
    /// Raises the tablet's newest stamp and newest explicit timestamp, microseconds, to those of rows that it took over
    /// from another tablet.
    fn raise_stamps(&mut self, newest_us: i64, newest_explicit_us: i64);
}

/// Changes that are not carried out.
struct Discarded;

impl TabletChanges for Discarded {
    fn put(&mut self, _: &[u8], _: &[u8]) {}
    fn merge(&mut self, _: &[u8], _: &[u8]) {}
    fn delete(&mut self, _: &[u8]) {}
    fn delete_range(&mut self, _: &[u8], _: &[u8]) {}
    fn raise_flags(&mut self, _: u64) {}
    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

/// Receives a key, or a range of keys from its start to before its end.
pub type SeeTarget<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// The context of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationContext {
    /// The mutation's timestamp, microseconds.
    pub stamp_us: i64,
    /// The greatest client-given timestamp this tablet has seen, or `i64::MIN`.
    pub newest_explicit_us: i64,
    /// The second at which rows are read: what has expired by then is not there.
    pub now_s: u32,
}

impl EvaluationContext {
    /// A mutation that reads rows at the time of its own timestamp.
    pub const fn new(stamp_us: i64, newest_explicit_us: i64) -> Self {
        Self { stamp_us, newest_explicit_us, now_s: seconds(stamp_us) }
    }
}

/// The second of a timestamp, within what a `u32` holds.
pub const fn seconds(at_us: i64) -> u32 {
    match at_us.div_euclid(1_000_000) {
        ..0 => 0,
        at_s if at_s > u32::MAX as i64 => u32::MAX,
        at_s => at_s as u32,
    }
}

/// The effect of a write on the size of a row, as far as it is known before the write is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The write adds its bytes, or fewer where it replaces something.
    Grows,
    /// The write only removes elements. A few bytes of each removed element stay for a while.
    RemovesElements,
    /// The write only removes columns, or all rows and deletions of a partition.
    Shrinks,
    /// The write is the whole row, with a server timestamp: see [`super::OperationKind::Overwrite`].
    Replaces,
}

/// The greatest possible effect of an evaluated mutation on the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The effect on the size of the stored value.
    pub effect: Effect,
    /// The most bytes that it adds or removes.
    pub bytes: usize,
}

/// Carries out evaluated mutations. Deterministic: the same program over the same tablet gives the same changes and the
/// same reply on every replica. Errors of the client are in the reply, never in the error.
pub trait Evaluator: Send + Sync + 'static {
    /// The evaluator that carries out whatever this one does not carry out itself, if there is one: it decides wherever
    /// this one has no method of its own.
    fn inner(&self) -> Option<&dyn Evaluator> {
        None
    }

    /// Runs `program`; returns the reply for the client.
    fn evaluate(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed>;

    /// The reply of a program that is not carried out.
    fn reply(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        match self.inner() {
            Some(inner) => inner.reply(program, context, view),
            None => self.evaluate(program, context, view, &mut Discarded),
        }
    }

    /// The reply of a program that cannot be evaluated, because a row that it reads is damaged: nothing is carried out.
    /// Only for programs that are not in the log; a replica that cannot carry out what is logged stops.
    fn reply_of_damage(&self) -> Vec<u8> {
        self.inner().map_or_else(Vec::new, |inner| inner.reply_of_damage())
    }

    /// Calls `see` with each key and each range of keys, from its start to before its end, that `program` reads or
    /// writes, once it has proven that replicas can decode it, and the rows that it writes.
    ///
    /// # Errors
    /// Replicas could not decode it, or a row that it writes.
    fn targets(&self, program: &[u8], see: &mut SeeTarget<'_>) -> Result<(), Unprovable> {
        let none = || Err(Unprovable::Unreadable("these rows have no programs".to_owned()));
        self.inner().map_or_else(none, |inner| inner.targets(program, see))
    }

    /// Whether the reply of [`Self::evaluate`] says that the program took effect.
    fn has_applied(&self, reply: &[u8]) -> bool {
        self.inner().is_none_or(|inner| inner.has_applied(reply))
    }

    /// A program that does what `program` does whose conditions hold; `None` if it is the same.
    fn without_conditions(&self, program: &[u8]) -> Option<Vec<u8>> {
        self.inner()?.without_conditions(program)
    }

    /// Whether `program` writes values that it makes of stored ones, which may be much longer than itself.
    fn edits_stored(&self, program: &[u8]) -> bool {
        self.inner().is_some_and(|inner| inner.edits_stored(program))
    }

    /// Whether what `program` changes depends on what is stored. One that does not has no conditions, and takes effect
    /// wherever it is carried out.
    fn reads(&self, program: &[u8]) -> bool {
        self.inner().is_none_or(|inner| inner.reads(program))
    }

    /// The latest timestamp with which `program` writes that a client has given, if it has any.
    fn explicit_us(&self, program: &[u8]) -> Option<i64> {
        self.inner()?.explicit_us(program)
    }

    /// The value of a key that holds `stored` once `written` is merged into it.
    ///
    /// # Errors
    /// One of them is damaged.
    fn merged(&self, stored: Option<&[u8]>, written: &[u8]) -> Result<Vec<u8>, EvaluationFailed> {
        self.inner().map_or_else(|| Ok(written.to_vec()), |inner| inner.merged(stored, written))
    }

    /// The form of `value` to merge instead of `value`, if it differs. A value with timestamps from before the horizon
    /// gets the horizon added, so that deletions past the horizon do not affect it, whether they are still stored or
    /// not.
    fn bounded(&self, value: &[u8], horizon: Horizon) -> Option<Vec<u8>> {
        self.inner()?.bounded(value, horizon)
    }

    /// Replaces the placeholder paths of list elements in `value`, which is the `nth` of the mutation.
    fn place(&self, value: &mut [u8], stamp_us: i64, nth: u32) {
        if let Some(inner) = self.inner() {
            inner.place(value, stamp_us, nth);
        }
    }

    /// The form in which to store a value here that was written to another tablet, if it differs from `value`.
    fn taken_over(&self, value: &[u8]) -> Option<Vec<u8>> {
        self.inner()?.taken_over(value)
    }

    /// The effect of merging `value` on the size of a row.
    fn effect(&self, value: &[u8]) -> Effect {
        self.inner().map_or(Effect::Grows, |inner| inner.effect(value))
    }

    /// Calls `see` for each key that `program` may write to, if its conditions hold.
    fn growth(&self, program: &[u8], see: &mut dyn FnMut(Growth<'_>)) {
        if let Some(inner) = self.inner() {
            inner.growth(program, see);
        }
    }

    /// The indexes that the tablet has to maintain, according to its flags and data; `None`: none.
    ///
    /// # Errors
    /// If the data cannot be read, or specifies an index that this program does not know.
    fn row_indexes(&self, flags: u64, view: &dyn TabletView) -> Result<Option<Arc<dyn RowIndexes>>, EvaluationFailed> {
        self.inner().map_or(Ok(None), |inner| inner.row_indexes(flags, view))
    }

    /// Whether `program` changes which indexes the tablet has.
    fn changes_indexes(&self, program: &[u8]) -> bool {
        self.inner().is_some_and(|inner| inner.changes_indexes(program))
    }

    /// Whether `program` may change what a unique index or a view says of a row, and does not say that it maintains it.
    fn is_unmaintained(&self, program: &[u8], indexes: &dyn RowIndexes) -> bool {
        self.inner().is_some_and(|inner| inner.is_unmaintained(program, indexes))
    }

    /// Takes over a record of another tablet with its rows: views that say something of them already.
    ///
    /// # Errors
    /// If it is malformed, or the data cannot be read.
    fn adopt(
        &self,
        key: &[u8],
        value: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        self.inner().map_or(Ok(()), |inner| inner.adopt(key, value, view, changes))
    }

    /// Rows were taken over that were written to another tablet: has them compared again, for unique indexes and views.
    ///
    /// # Errors
    /// If the data cannot be read.
    fn compare_again(&self, view: &dyn TabletView, changes: &mut dyn TabletChanges) -> Result<(), EvaluationFailed> {
        self.inner().map_or(Ok(()), |inner| inner.compare_again(view, changes))
    }

    /// About how many bytes of index entries follow from what `program` writes, if its conditions hold; counting ends
    /// beyond `most`.
    fn index_bytes(&self, program: &[u8], indexes: &dyn RowIndexes, most: usize) -> usize {
        self.inner().map_or(0, |inner| inner.index_bytes(program, indexes, most))
    }

    /// Makes the tablet's indexes incomplete from the row with this key on, some of whose entries are not written.
    ///
    /// # Errors
    /// As [`Self::row_indexes`].
    fn index_again(
        &self,
        from: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        self.inner().map_or(Ok(()), |inner| inner.index_again(from, view, changes))
    }
}
