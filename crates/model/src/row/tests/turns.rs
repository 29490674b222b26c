//! Writes of one row with one timestamp: the later one wins.

use super::*;

const AT_US: i64 = 1_000_000;
const LIST: ColumnId = 2;

fn packed(write: impl FnOnce(&mut RowWriter<'_>)) -> Vec<u8> {
    let mut value = Vec::new();
    write(&mut RowWriter::new(&mut value, AT_US));
    value
}

fn cell(value: u8) -> Vec<u8> {
    packed(|writer| writer.cell(1, AT_US, None, &[value]))
}

fn row(value: u8) -> Vec<u8> {
    packed(|writer| {
        writer.marker(Marker { timestamp_us: AT_US, expiry: None });
        writer.cell(1, AT_US, None, &[value]);
    })
}

fn deletion() -> Vec<u8> {
    packed(|writer| writer.deletion(Deletion { timestamp_us: AT_US, local_s: 1 }))
}

fn tombstone() -> Vec<u8> {
    packed(|writer| writer.tombstone(1, Deletion { timestamp_us: AT_US, local_s: 1 }))
}

fn elements(cleared: bool, elements: &[(&[u8], Option<u8>)]) -> Vec<u8> {
    packed(|writer| {
        let before = Deletion { timestamp_us: writer.before_base(), local_s: 1 };
        writer.begin_complex(LIST, cleared.then_some(before));
        for (path, value) in elements {
            match value {
                Some(value) => writer.element(path, AT_US, None, &[*value]),
                None => writer.element_tombstone(path, Deletion { timestamp_us: AT_US, local_s: 1 }),
            }
        }
        writer.end_complex();
    })
}

fn emptied() -> Vec<u8> {
    packed(|writer| {
        writer.begin_complex(LIST, Some(Deletion { timestamp_us: AT_US, local_s: 1 }));
        writer.end_complex();
    })
}

/// What is seen of writes in their order, over a row that was stored before.
fn seen(writes: &[Vec<u8>]) -> (bool, Vec<(u32, Vec<u8>)>) {
    let mut together: Option<Vec<u8>> = None;
    for write in writes {
        let mut out = Vec::new();
        follow(together.as_deref(), write, &mut out).unwrap();
        together = Some(out);
    }
    let mut stored = Vec::new();
    let mut writer = RowWriter::new(&mut stored, AT_US - 1);
    writer.marker(Marker { timestamp_us: AT_US - 1, expiry: None });
    writer.cell(1, AT_US - 1, None, &[99]);
    writer.begin_complex(LIST, None);
    writer.element(b"s", AT_US - 1, None, &[98]);
    writer.end_complex();
    let mut folded = Vec::new();
    fold(Some(&stored), [together.unwrap().as_slice()], &mut folded).unwrap();
    let view = view(&folded, 1, NOTHING_DELETED);
    let cells = view.cells.into_iter().map(|(place, .., value)| match place {
        Place::Simple(column) => (column, value),
        Place::Element(column, path) => (column, [path, value].concat()),
    });
    (view.marker, cells.collect())
}

#[test]
fn the_later_of_two_writes_wins_whatever_their_values_are() {
    let stored = (LIST, b"s\x62".to_vec());
    let list = |cells: &[&[u8]]| cells.iter().map(|cell| (LIST, cell.to_vec())).collect::<Vec<_>>();
    let one = |value: u8| (1, vec![value]);
    for (writes, marker, cells) in [
        (vec![cell(9), cell(1)], true, vec![one(1), stored.clone()]),
        (vec![cell(1), cell(9)], true, vec![one(9), stored.clone()]),
        (vec![tombstone(), cell(1)], true, vec![one(1), stored.clone()]),
        (vec![cell(1), tombstone()], true, vec![stored.clone()]),
        (vec![deletion()], false, vec![]),
        (vec![deletion(), row(1)], true, vec![one(1)]),
        (vec![row(1), deletion()], false, vec![]),
        (vec![row(1), deletion(), cell(2)], false, vec![one(2)]),
        (vec![cell(1), deletion(), row(2), deletion(), row(3)], true, vec![one(3)]),
        (vec![elements(false, &[(b"a", Some(1))])], true, [vec![one(99)], list(&[b"a\x01", b"s\x62"])].concat()),
        (
            vec![elements(true, &[(b"a", Some(1))]), elements(true, &[(b"b", Some(2))])],
            true,
            [vec![one(99)], list(&[b"b\x02"])].concat(),
        ),
        (
            vec![elements(true, &[(b"a", Some(1))]), elements(false, &[(b"a", None), (b"b", Some(2))])],
            true,
            [vec![one(99)], list(&[b"b\x02"])].concat(),
        ),
        (
            vec![elements(false, &[(b"a", None)]), elements(false, &[(b"a", Some(7))])],
            true,
            [vec![one(99)], list(&[b"a\x07", b"s\x62"])].concat(),
        ),
        (vec![elements(true, &[(b"a", Some(1))]), deletion(), row(4)], true, vec![one(4)]),
        (vec![elements(false, &[(b"a", Some(1))]), emptied()], true, vec![one(99)]),
        (
            vec![elements(false, &[(b"a", Some(1))]), emptied(), elements(false, &[(b"b", Some(2))])],
            true,
            [vec![one(99)], list(&[b"b\x02"])].concat(),
        ),
        (vec![deletion(), emptied(), row(4)], true, vec![one(4)]),
    ] {
        assert_eq!(seen(&writes), (marker, cells), "{writes:?}");
    }
}

#[test]
fn what_is_newer_by_its_timestamp_stays() {
    let newer = packed(|writer| writer.cell(1, AT_US + 5, None, &[7]));
    let mut out = Vec::new();
    follow(Some(&newer), &cell(1), &mut out).unwrap();
    assert_eq!(view(&out, 1, NOTHING_DELETED).cells[0].3, [7]);
    assert!(follow(Some(&newer), &[0xFF; 20], &mut Vec::new()).is_err());
    assert!(follow(Some(&[0xFF; 20]), &newer, &mut Vec::new()).is_err());
}

#[test]
fn a_deletion_is_kept_as_the_timestamp_before_in_a_form_that_can_be_stamped_again() {
    let (mut deleted, mut out) = (Vec::new(), Vec::new());
    follow(None, &deletion(), &mut deleted).unwrap();
    follow(Some(&deleted), &row(1), &mut out).unwrap();
    let later_us = AT_US + 77;
    out[1..9].copy_from_slice(&later_us.to_le_bytes());
    let reader = RowReader::new(&out).unwrap();
    assert_eq!(reader.deletion().map(|deletion| deletion.timestamp_us), Some(later_us - 1));
    assert_eq!(reader.marker().map(|marker| marker.timestamp_us), Some(later_us));
}
