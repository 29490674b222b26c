//! Folds many packed rows into one: a merge of all of them at once, by column and, within multi-cell columns, by path.
//!
//! Always true: the bytes are those that [`super::merge`] gives from the oldest to the newest, where counters carry the stamps of the log.
//! Each cell and each element is read once, passed over a heap of the rows (a logarithm of their number) and written at
//! most once, so that a row written one element at a time is read in `n log n`.
//! Left out: many more rows than the heap should hold at once ([`crate::entry::fold`] folds those in groups).

use super::merging::{Placed, later_element, latest_horizon, merge_markers, survivor, write_element, write_simple};
use super::reader::{Cell, Complex, Content, Element};
use super::{Deletion, NOTHING_DELETED, RowReader, RowWriter};
use crate::schema::ColumnId;
use diorite_base::bytes::Malformed;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Appends the merge of packed rows, oldest first, to `out`.
pub fn fold(values: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let rows = values.iter().map(|value| RowReader::new(value)).collect::<Result<Vec<_>, _>>()?;
    let base_us = rows.iter().map(RowReader::base_us).max().ok_or(Malformed)?;
    let deletion = rows.iter().filter_map(RowReader::deletion).max();
    let shadow_us = deletion.map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
    let marker = rows.iter().fold(None, |best, row| merge_markers(best, row.marker()));
    let mut folding =
        Folding { writer: RowWriter::bounded(out, base_us, latest_horizon(values.iter().copied())), shadow_us };
    if let Some(marker) = marker.filter(|marker| marker.timestamp_us > shadow_us) {
        folding.writer.marker(marker);
    }
    if let Some(deletion) = deletion {
        folding.writer.deletion(deletion);
    }
    let placed = rows.iter().map(|row| {
        let at_base = row.base_us() == base_us;
        row.cells().map(move |cell| cell.map(|cell| Placed { cell, at_base }))
    });
    folding.cells(Sources::new(placed)?)
}

/// An item of an ascending sequence, with its sort key.
trait InPlace: Copy {
    type Place: Ord + Copy;

    fn place(&self) -> Self::Place;
}

impl InPlace for Placed<'_> {
    type Place = ColumnId;

    fn place(&self) -> ColumnId {
        self.cell.column
    }
}

impl<'a> InPlace for Element<'a> {
    type Place = &'a [u8];

    fn place(&self) -> &'a [u8] {
        self.path
    }
}

/// Ascending sequences merged by place; at the same place, from the oldest sequence to the newest.
struct Sources<I, T: InPlace> {
    sources: Vec<(I, T)>,
    /// The place of each sequence's next item, and the number of the sequence.
    heap: BinaryHeap<Reverse<(T::Place, usize)>>,
}

impl<I: Iterator<Item = Result<T, Malformed>>, T: InPlace> Sources<I, T> {
    fn new(sequences: impl Iterator<Item = I>) -> Result<Self, Malformed> {
        let mut sources = Vec::with_capacity(sequences.size_hint().0);
        for mut sequence in sequences {
            if let Some(first) = sequence.next().transpose()? {
                sources.push((sequence, first));
            }
        }
        let places = sources.iter().enumerate().map(|(source, (_, first))| Reverse((first.place(), source)));
        let heap = places.collect();
        Ok(Self { sources, heap })
    }

    fn next(&mut self) -> Result<Option<T>, Malformed> {
        #[cfg(test)]
        (0..=self.heap.len().checked_ilog2().unwrap_or(0)).for_each(|_| crate::testing::count_step());
        let Some(mut top) = self.heap.peek_mut() else { return Ok(None) };
        let Reverse((place, source)) = &mut *top;
        let (sequence, head) = &mut self.sources[*source];
        let item = *head;
        match sequence.next().transpose()? {
            Some(next) => {
                *head = next;
                *place = next.place();
            }
            None => {
                PeekMut::pop(top);
            }
        }
        Ok(Some(item))
    }
}

/// A column whose cells are being gathered.
enum Open<'a> {
    /// The cell that survives so far; `None` if all are deleted.
    Simple(ColumnId, Option<Placed<'a>>),
    Complex(ColumnId, Vec<Complex<'a>>),
}

struct Folding<'a> {
    writer: RowWriter<'a>,
    /// The timestamp of the row deletion.
    shadow_us: i64,
}

impl Folding<'_> {
    fn cells<'a>(
        mut self,
        mut sources: Sources<impl Iterator<Item = Result<Placed<'a>, Malformed>>, Placed<'a>>,
    ) -> Result<(), Malformed> {
        let mut open = None;
        while let Some(placed) = sources.next()? {
            let column = placed.cell.column;
            open = Some(match open {
                Some(before @ (Open::Simple(at, _) | Open::Complex(at, _))) if at != column => {
                    self.close(before)?;
                    self.join(None, placed)?
                }
                before => self.join(before, placed)?,
            });
        }
        open.map_or(Ok(()), |open| self.close(open))
    }

    /// Adds the column's next cell.
    fn join<'a>(&self, open: Option<Open<'a>>, next: Placed<'a>) -> Result<Open<'a>, Malformed> {
        let Cell { column, timestamp_us, content, .. } = next.cell;
        match (open, content) {
            (None, Content::Complex(complex)) => Ok(Open::Complex(column, vec![complex])),
            (Some(Open::Complex(_, mut gathered)), Content::Complex(complex)) => {
                gathered.push(complex);
                Ok(Open::Complex(column, gathered))
            }
            (Some(Open::Complex(..)), _) | (Some(Open::Simple(..)), Content::Complex(_)) => Err(Malformed),
            (Some(Open::Simple(_, best)), _) => {
                let lives = timestamp_us > self.shadow_us;
                Ok(Open::Simple(
                    column,
                    match best {
                        Some(best) if lives => Some(survivor(best, next)),
                        None if lives => Some(next),
                        best => best,
                    },
                ))
            }
            (None, _) => Ok(Open::Simple(column, Some(next).filter(|_| timestamp_us > self.shadow_us))),
        }
    }

    fn close(&mut self, open: Open<'_>) -> Result<(), Malformed> {
        match open {
            Open::Simple(_, None) => Ok(()),
            Open::Simple(_, Some(placed)) => {
                write_simple(&mut self.writer, placed.cell, placed.at_base);
                Ok(())
            }
            Open::Complex(column, gathered) => self.complex(column, &gathered),
        }
    }

    fn complex(&mut self, column: ColumnId, gathered: &[Complex<'_>]) -> Result<(), Malformed> {
        let deletion: Option<Deletion> = gathered.iter().filter_map(|complex| complex.deletion).max();
        let deletion = deletion.filter(|deletion| deletion.timestamp_us > self.shadow_us);
        let shadow_us = deletion.map_or(self.shadow_us, |deletion| deletion.timestamp_us);
        self.writer.begin_complex(column, deletion);
        let mut sources = Sources::new(gathered.iter().map(Complex::elements))?;
        let mut best: Option<Element<'_>> = None;
        while let Some(element) = sources.next()? {
            best = Some(match best {
                Some(before) if before.path == element.path => later_element(before, element),
                before => {
                    self.element(before, shadow_us);
                    element
                }
            });
        }
        self.element(best, shadow_us);
        self.writer.end_complex();
        Ok(())
    }

    fn element(&mut self, element: Option<Element<'_>>, shadow_us: i64) {
        if let Some(element) = element.filter(|element| element.timestamp_us > shadow_us) {
            write_element(&mut self.writer, element);
        }
    }
}
