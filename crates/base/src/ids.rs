//! Identifiers, each its own type so that one cannot be passed for another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A node of the cluster; never reused, starts at 1.
    NodeId,
    "n"
);
id!(
    /// A table; assigned by the catalog, never reused. The schema also has a UUID for it, which CQL shows.
    TableId,
    "t"
);
id!(
    /// A tablet: one token range of one table. Never reused.
    TabletId,
    "tablet-"
);
id!(
    /// A Raft group. A tablet's group has the tablet's number; [`GroupId::CATALOG`] is the catalog's own.
    GroupId,
    "group-"
);

impl GroupId {
    /// The Raft group that replicates the catalog. Tablet ids start above it.
    pub const CATALOG: GroupId = GroupId(1);
}

impl From<TabletId> for GroupId {
    fn from(tablet: TabletId) -> Self {
        GroupId(tablet.0)
    }
}
