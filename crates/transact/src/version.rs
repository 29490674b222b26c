//! A read of rows of several tablets as of one moment, without a snapshot: all rows are read between two looks at the
//! versions of the tablets. If no version has changed, all was there at each moment between the two looks.
//!
//! Always true: a version names the leader's term, so no other replica has answered meanwhile. A transaction that was
//! committed before that moment had finished in each of these tablets, or had prepared rows there, which the read meets
//! as locked; one that was committed after it had not changed any of them. Left out: what is read, and what is done if
//! a version has changed ([`crate::snapshot`]).

use diorite_base::{NodeId, TabletId};

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
    /// The versions now, if all are known.
    pub fn now(
        tablets: impl IntoIterator<Item = TabletId>,
        version: impl Fn(TabletId) -> Option<DataVersion>,
    ) -> Option<Self> {
        tablets.into_iter().map(|tablet| Some((tablet, version(tablet)?))).collect::<Option<_>>().map(Self)
    }

    /// Whether none has changed.
    pub fn are_current(&self, version: impl Fn(TabletId) -> Option<DataVersion>) -> bool {
        self.0.iter().all(|(tablet, before)| version(*tablet) == Some(*before))
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
        let versions = Versions::now(tablets, |tablet| Some(of(tablet.0))).expect("both are known");
        assert!(versions.are_current(|tablet| Some(of(tablet.0))));
        assert!(!versions.are_current(|tablet| Some(of(tablet.0 + u64::from(tablet == tablets[1])))));
        assert!(!versions.are_current(|tablet| Some(DataVersion { term: 4, ..of(tablet.0) })));
        assert!(!versions.are_current(|tablet| Some(DataVersion { node: NodeId(2), ..of(tablet.0) })));
        let unless_second = |tablet: TabletId| (tablet != tablets[1]).then(|| of(tablet.0));
        assert!(!versions.are_current(unless_second));
        assert!(Versions::now(tablets, unless_second).is_none());
    }
}
