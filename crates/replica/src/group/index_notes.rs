//! What readers have learned of a tablet's indexes, so that not every read by index has to look it up.
//!
//! Always true: a note counts only as long as the tablet's own records have not changed since what it says was read;
//! they change together with the data ([`crate::group::transacted`]), so whoever finds the data unchanged during a read
//! has had notes of that moment. The notes are few. Left out: what a note says, which readers know.

use arc_swap::ArcSwapOption;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A note.
pub type IndexNote = Arc<dyn Any + Send + Sync>;

/// The most indexes that there are notes of. Tables have fewer, as a rule.
const MOST_NOTES: usize = 16;

/// See the top of this module.
#[derive(Default)]
pub(crate) struct IndexNotes {
    /// Another number after each change of the tablet's records.
    changes: AtomicU64,
    notes: ArcSwapOption<Notes>,
}

struct Notes {
    changes: u64,
    of_indexes: Vec<(u64, IndexNote)>,
}

impl IndexNotes {
    /// The records are being changed: notes from before do not count any more.
    pub(crate) fn forget(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Names the records that a reader finds from now on.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// The note of an index, if there is one of these records.
    pub(crate) fn get(&self, changes: u64, index: u64) -> Option<IndexNote> {
        let notes = self.notes.load();
        let notes = notes.as_ref().filter(|notes| notes.changes == changes)?;
        let (_, note) = notes.of_indexes.iter().find(|(of, _)| *of == index)?;
        Some(Arc::clone(note))
    }

    /// Adds a note of these records.
    pub(crate) fn add(&self, changes: u64, index: u64, note: &IndexNote) {
        self.notes.rcu(|known| {
            let known = known.as_ref().filter(|known| known.changes >= changes);
            if known.is_some_and(|known| known.changes > changes || known.of_indexes.len() >= MOST_NOTES) {
                return known.cloned();
            }
            let before = known.map(|known| known.of_indexes.as_slice()).unwrap_or_default();
            let others = before.iter().filter(|(of, _)| *of != index).cloned();
            let of_indexes = others.chain([(index, Arc::clone(note))]).collect();
            Some(Arc::new(Notes { changes, of_indexes }))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> IndexNote {
        Arc::new(text.to_owned())
    }

    fn text(note: Option<IndexNote>) -> Option<String> {
        note.and_then(|note| note.downcast_ref::<String>().cloned())
    }

    #[test]
    fn notes_count_until_the_records_change() {
        let notes = IndexNotes::default();
        let first = notes.changes();
        notes.add(first, 1, &note("one"));
        notes.add(first, 2, &note("two"));
        assert_eq!(text(notes.get(first, 1)).as_deref(), Some("one"));
        assert_eq!(text(notes.get(first, 2)).as_deref(), Some("two"));
        assert_eq!(text(notes.get(first, 3)), None);
        notes.forget();
        let second = notes.changes();
        assert_eq!(text(notes.get(second, 1)), None);
        notes.add(second, 1, &note("new"));
        notes.add(first, 2, &note("of a reader that was slow"));
        assert_eq!(text(notes.get(second, 1)).as_deref(), Some("new"));
        assert_eq!((text(notes.get(second, 2)), text(notes.get(first, 2))), (None, None));
    }

    #[test]
    fn notes_are_few() {
        let notes = IndexNotes::default();
        (0..100).for_each(|index| notes.add(0, index, &note("n")));
        assert_eq!((0..100).filter(|index| notes.get(0, *index).is_some()).count(), MOST_NOTES);
    }
}
