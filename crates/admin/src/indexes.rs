//! `diorite admin indexes` and `set-index-rate`: the secondary indexes, how far they have been built, and how fast they
//! may be.
//!
//! Always true: a state is shown as the cluster says it; nothing is computed here but percentages.

use crate::api::{INDEX_RATE, INDEXES, IndexDetail, IndexList, IndexState, IndexStatus, NodeIndexRate};
use crate::client::{AdminError, Client};
use crate::join_token::{Answer, answer};
use crate::percent::encoded;
use crate::qualified::qualified;
use diorite_base::text::{NOTHING, bytes, duration, or_dash, table};
use serde_json::json;

/// Carries out the command: for one index, or for all.
pub(crate) fn carry_out(client: &Client, index: Option<&str>) -> Result<Answer, AdminError> {
    let Some(index) = index else {
        return answer(&client.get::<IndexList>(INDEXES)?, listed);
    };
    let (keyspace, name) = qualified(index)?;
    let found: IndexDetail = client.get(&format!("{INDEXES}/{}/{}", encoded(keyspace), encoded(name)))?;
    answer(&found, detail)
}

/// Limits builds on all nodes.
pub(crate) fn set_rate(client: &Client, rate_bytes: u64) -> Result<Answer, AdminError> {
    let nodes: Vec<NodeIndexRate> = client.post(INDEX_RATE, &json!({ "rate_bytes": rate_bytes }))?;
    answer(&nodes, |nodes| rates(nodes))
}

fn rates(nodes: &[NodeIndexRate]) -> String {
    let rate = |node: &NodeIndexRate| match (&node.failure, node.rate_bytes) {
        (Some(reason), _) => reason.clone(),
        (None, 0) => "no limit".to_owned(),
        (None, rate_bytes) => format!("{}/s", bytes(rate_bytes as f64)),
    };
    table(["node", "rate"], nodes.iter().map(|node| [node.node.0.to_string(), rate(node)]))
}

/// `ready`, `building 37 %`
pub(crate) fn state(state: IndexState, done_permille: u16) -> String {
    match state {
        IndexState::Failed => "failed".to_owned(),
        IndexState::Ready => "ready".to_owned(),
        IndexState::Building => format!("building {} %", done_permille / 10),
        IndexState::Deferred => "deferred".to_owned(),
        IndexState::NotBegun => "not begun".to_owned(),
        IndexState::Unknown => "unknown".to_owned(),
    }
}

fn rows<'i>(indexes: impl IntoIterator<Item = &'i IndexStatus>) -> String {
    let names = ["index", "table", "of", "state", "tablets", "of", "unknown", "rows", "rate", "done in"];
    table(
        names,
        indexes.into_iter().map(|one| {
            let is_built = one.rate_rows == 0 && one.rate_bytes == 0;
            let rate = |shown: String| if is_built { NOTHING.to_owned() } else { format!("{shown}/s") };
            [
                format!("{}.{}", one.keyspace, one.name),
                one.table.clone(),
                one.target.clone(),
                state(one.state, one.done_permille),
                one.tablets_complete.to_string(),
                one.tablets.to_string(),
                if one.tablets_unknown == 0 { NOTHING.to_owned() } else { one.tablets_unknown.to_string() },
                rate(one.rate_rows.to_string()),
                rate(bytes(one.rate_bytes as f64)),
                or_dash(one.eta_seconds, duration),
            ]
        }),
    )
}

/// Why unique indexes have failed.
fn failures<'i>(indexes: impl IntoIterator<Item = &'i IndexStatus>) -> String {
    let failed = indexes.into_iter().filter_map(|one| Some((one, one.failure.as_ref()?)));
    failed.map(|(one, why)| format!("failed: {}.{}: {why}\n", one.keyspace, one.name)).collect()
}

fn missing(unanswered: &[String]) -> String {
    unanswered.iter().map(|reason| format!("missing: {reason}\n")).collect()
}

fn listed(found: &IndexList) -> String {
    format!("{}{}{}", rows(&found.indexes), failures(&found.indexes), missing(&found.unanswered))
}

fn detail(found: &IndexDetail) -> String {
    let tablets = found.listed.iter().map(|one| {
        [one.tablet.0.to_string(), or_dash(one.leader, |node| node.0.to_string()), state(one.state, one.done_permille)]
    });
    let tablets = table(["tablet", "leader", "state"], tablets);
    let more = match found.status.tablets.saturating_sub(found.listed.len()) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    let (failed, missing) = (failures([&found.status]), missing(&found.unanswered));
    format!("{}{failed}\n{tablets}{more}{missing}", rows([&found.status]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::IndexedTablet;
    use diorite_base::{NodeId, TabletId};

    fn status(state: IndexState) -> IndexStatus {
        IndexStatus {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            name: "t_by_v".to_owned(),
            target: "values(v)".to_owned(),
            state,
            done_permille: 379,
            tablets: 2_000,
            tablets_complete: 3,
            tablets_unknown: 2,
            rate_rows: 1_000,
            rate_bytes: 2 << 20,
            eta_seconds: Some(61),
            failure: None,
        }
    }

    #[test]
    fn an_index_is_one_line() {
        let ready = IndexStatus {
            tablets_unknown: 0,
            rate_rows: 0,
            rate_bytes: 0,
            eta_seconds: None,
            ..status(IndexState::Ready)
        };
        let unanswered = vec!["node 4: it does not answer".to_owned()];
        let shown = listed(&IndexList { indexes: vec![status(IndexState::Building), ready], unanswered });
        let lines: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split("  ").map(str::trim).filter(|of| !of.is_empty()).collect()).collect();
        let building =
            ["ks.t_by_v", "t", "values(v)", "building 37 %", "3", "2000", "2", "1000/s", "2.0 MiB/s", "1 min 1 s"];
        assert_eq!(lines[1], building, "{shown}");
        assert_eq!(lines[2], ["ks.t_by_v", "t", "values(v)", "ready", "3", "2000", "–", "–", "–", "–"], "{shown}");
        assert_eq!(lines[3], ["missing: node 4: it does not answer"], "{shown}");
    }

    #[test]
    fn rates_are_those_in_force() {
        let node = |node, rate_bytes, failure| NodeIndexRate { node: NodeId(node), rate_bytes, failure };
        let shown = rates(&[node(1, 0, None), node(2, 1 << 20, None), node(3, 0, Some("it is down".to_owned()))]);
        assert_eq!(shown, "node  rate\n1     no limit\n2     1.0 MiB/s\n3     it is down\n");
    }

    #[test]
    fn tablets_of_an_index_are_listed_below_it() {
        let tablet =
            |number, leader, state| IndexedTablet { tablet: TabletId(number), leader, state, done_permille: 5 };
        let listed = vec![
            tablet(7, None, IndexState::Unknown),
            tablet(8, Some(NodeId(2)), IndexState::Building),
            tablet(9, Some(NodeId(3)), IndexState::NotBegun),
        ];
        let shown = detail(&IndexDetail { status: status(IndexState::Building), listed, unanswered: Vec::new() });
        let lines: Vec<&str> = shown.lines().skip(3).collect();
        assert_eq!(
            lines[1..],
            ["7       –       unknown", "8       2       building 0 %", "9       3       not begun", "and 1997 more"]
        );
    }
}
