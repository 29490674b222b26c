//! A read of rows of several tablets as of one moment, without a snapshot: all rows are read between two looks at the
//! versions of the tablets. If no version has changed, all was there at each moment between the two looks.
//!
//! Where another node leads a tablet, each of its answers says the version from before what it has read, if that was the
//! same afterwards. Once all have answered, they are asked for their versions once more: the moment at which the last
//! answer arrived is between the two looks at each tablet.
//!
//! Always true: a version names the leader's term, so no other replica has answered meanwhile. **A prepare changes the
//! version, and has changed it before anybody knows of the prepare**, though it changes no row that readers see: so a
//! transaction that was committed before that moment had finished in each of these tablets before the first look at it, or
//! had prepared rows there, which the read meets as locked, or a version has changed. One that was committed later had not
//! changed any of them. Left out: what is read, and what is done if a version has changed ([`crate::snapshot`]).

use diorite_base::{NodeId, TabletId};
use std::collections::BTreeMap;

/// Names a time in which the data of a tablet does not change, and no other replica may answer for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataVersion {
    /// The node of the replica that leads the tablet.
    pub node: NodeId,
    /// The term of its lease.
    pub term: u64,
    /// Another number after each change.
    pub changes: u64,
}

/// The versions of the tablets of a read, from before it.
#[derive(Clone, Debug)]
pub struct Versions(Vec<(TabletId, DataVersion)>);

impl Versions {
    /// The versions now that are known, and the tablets whose versions are not.
    pub fn now(
        tablets: impl IntoIterator<Item = TabletId>,
        version: impl Fn(TabletId) -> Option<DataVersion>,
    ) -> (Self, Vec<TabletId>) {
        let (mut known, mut others) = (Vec::new(), Vec::new());
        for tablet in tablets {
            match version(tablet) {
                Some(version) => known.push((tablet, version)),
                None => others.push(tablet),
            }
        }
        (Self(known), others)
    }

    /// Whether none has changed.
    pub fn are_current(&self, version: impl Fn(TabletId) -> Option<DataVersion>) -> bool {
        self.0.iter().all(|(tablet, before)| version(*tablet) == Some(*before))
    }
}

/// What tablets that other nodes lead have answered.
#[derive(Debug, Default)]
pub struct Answers(BTreeMap<TabletId, OfTablet>);

/// The answers of a tablet.
#[derive(Debug, Default)]
struct OfTablet {
    count: u32,
    /// The version that all of them had.
    version: Option<DataVersion>,
}

impl Answers {
    /// No answers of these tablets yet.
    pub fn none_of(tablets: impl IntoIterator<Item = TabletId>) -> Self {
        Self(tablets.into_iter().map(|tablet| (tablet, OfTablet::default())).collect())
    }

    /// Whether there is no such tablet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tablets.
    pub fn tablets(&self) -> impl Iterator<Item = TabletId> {
        self.0.keys().copied()
    }

    /// Whether this is one of the tablets.
    pub fn is_of(&self, tablet: TabletId) -> bool {
        self.0.contains_key(&tablet)
    }

    /// Takes down an answer; without a version it may have been read amid a change.
    pub fn note(&mut self, tablet: TabletId, version: Option<DataVersion>) {
        let Some(of_tablet) = self.0.get_mut(&tablet) else { return };
        of_tablet.version = match of_tablet.count {
            0 => version,
            _ => of_tablet.version.filter(|before| version == Some(*before)),
        };
        of_tablet.count = of_tablet.count.saturating_add(1);
    }

    /// What the second look has to find, where one is needed. `None`: a version has changed already.
    ///
    /// The answers of one tablet alone need none: its data was the same from before the first answer until after the last,
    /// and that of the tablets of this node from before that to the looks that follow. Of a tablet without an answer
    /// nothing was read.
    pub fn to_look_at(&self) -> Option<Vec<(TabletId, DataVersion)>> {
        let answered = self.0.iter().filter(|(_, of_tablet)| of_tablet.count > 0);
        let all =
            answered.map(|(tablet, of_tablet)| Some((*tablet, of_tablet.version?))).collect::<Option<Vec<_>>>()?;
        Some(if all.len() == 1 { Vec::new() } else { all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: u64) -> DataVersion {
        DataVersion { node: NodeId(1), term: 3, changes }
    }

    #[test]
    fn versions_are_current_until_one_has_changed_or_is_not_known() {
        let tablets = [TabletId(1), TabletId(2)];
        let (versions, others) = Versions::now(tablets, |tablet| Some(of(tablet.0)));
        assert_eq!(others, []);
        assert!(versions.are_current(|tablet| Some(of(tablet.0))));
        assert!(!versions.are_current(|tablet| Some(of(tablet.0 + u64::from(tablet == tablets[1])))));
        assert!(!versions.are_current(|tablet| Some(DataVersion { term: 4, ..of(tablet.0) })));
        assert!(!versions.are_current(|tablet| Some(DataVersion { node: NodeId(2), ..of(tablet.0) })));
        let unless_second = |tablet: TabletId| (tablet != tablets[1]).then(|| of(tablet.0));
        assert!(!versions.are_current(unless_second));
        let (known, others) = Versions::now(tablets, unless_second);
        assert_eq!((known.0, others), (vec![(tablets[0], of(1))], vec![tablets[1]]));
    }

    #[test]
    fn answers_have_a_version_as_long_as_all_say_the_same() {
        let (one, two, three) = (TabletId(1), TabletId(2), TabletId(3));
        let mut answers = Answers::none_of([one, two, three]);
        assert_eq!(answers.to_look_at(), Some(Vec::new()), "nothing was read");
        answers.note(one, Some(of(7)));
        answers.note(two, Some(of(8)));
        answers.note(TabletId(4), None);
        answers.note(one, Some(of(7)));
        assert_eq!(answers.to_look_at(), Some(vec![(one, of(7)), (two, of(8))]), "nothing was read of the third");
        answers.note(one, Some(of(9)));
        assert_eq!(answers.to_look_at(), None);
        answers.note(one, Some(of(7)));
        assert_eq!(answers.to_look_at(), None, "it has changed in between");
    }

    #[test]
    fn answers_of_one_tablet_are_of_one_moment_if_they_say_the_same() {
        let (one, two) = (TabletId(1), TabletId(2));
        let mut answers = Answers::none_of([one, two]);
        answers.note(one, Some(of(7)));
        answers.note(one, Some(of(7)));
        assert_eq!(answers.to_look_at(), Some(Vec::new()));
        answers.note(one, Some(of(8)));
        assert_eq!(answers.to_look_at(), None);
        let mut amid_a_change = Answers::none_of([one]);
        amid_a_change.note(one, None);
        assert_eq!(amid_a_change.to_look_at(), None);
    }
}
