//! The schema versions of all nodes, as drivers read them.

use diorite_cluster::catalog::Catalog;
use std::collections::VecDeque;
use uuid::Uuid;

/// For how many versions of the catalog the schema version is remembered, for nodes that serve an older one.
const REMEMBERED: usize = 64;

/// The newest versions of the catalog that were served here, each with its schema version.
#[derive(Debug, Default)]
pub struct SchemaVersions(VecDeque<(u64, Uuid)>);

impl SchemaVersions {
    /// Records a snapshot that is served from now on.
    pub fn push(&mut self, catalog: &Catalog) {
        self.0.push_back((catalog.version(), catalog.schema_version()));
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
    }

    /// The schema version of a node that serves this version of the catalog. A node that serves none is reported to
    /// agree, as drivers need not wait for it; a node whose version is older than all remembered ones is reported with
    /// a schema version of its own.
    pub fn of(&self, served: Option<u64>) -> Uuid {
        let Some(served) = served else { return self.0.back().map_or_else(Uuid::nil, |(_, schema)| *schema) };
        self.0.iter().rev().find(|(version, _)| *version <= served).map_or_else(Uuid::nil, |(_, schema)| *schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, cluster, table};
    use diorite_cluster::catalog::Command;

    #[test]
    fn a_node_that_lags_has_the_schema_of_the_version_that_it_serves() {
        let mut versions = SchemaVersions::default();
        assert_eq!(versions.of(Some(7)), Uuid::nil());
        let mut catalog = cluster(3, 1);
        versions.push(&catalog);
        let (before, schema_before) = (catalog.version(), catalog.schema_version());
        apply(&mut catalog, Command::CreateTable { table: table(1), tablets: 1, if_not_exists: false });
        versions.push(&catalog);
        assert_eq!(versions.of(Some(before)), schema_before);
        assert_eq!(versions.of(Some(catalog.version() + 5)), catalog.schema_version());
        assert_eq!(versions.of(None), catalog.schema_version());
        assert_eq!(versions.of(Some(before - 1)), Uuid::nil(), "older than all that is remembered");
    }
}
