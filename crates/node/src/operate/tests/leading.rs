//! A node that leads nothing because an operator has ordered it.

use super::sight;
use crate::operate::answers;
use crate::operate::sight::Sight;
use diorite_base::NodeId;
use diorite_cluster::catalog::Command;
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_node_that_leads_nothing_is_named_in_the_status() {
    let warned = |leads_nothing| {
        let Sight { catalog, known, .. } = sight();
        let (catalog, _) = catalog.apply(&Command::SetLeading { node: NodeId(20), leads_nothing });
        let status =
            answers::status(&Sight::new(NodeId(1), Arc::new(catalog), known, BTreeMap::new(), BTreeMap::new()));
        status.warnings.into_iter().filter(|warning| warning.contains("leads nothing")).collect::<Vec<_>>()
    };
    assert_eq!(warned(false), Vec::<String>::new());
    let warnings = warned(true);
    assert!(warnings.len() == 1 && warnings[0].starts_with("node n20 ("), "{warnings:?}");
    assert!(warnings[0].ends_with("until `diorite admin move-leaders 20 --back`"), "{warnings:?}");
}
