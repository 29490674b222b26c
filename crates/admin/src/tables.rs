//! Answers as text for a terminal.

use crate::api::{
    ClusterStatus, LogStatus, MoveStatus, NodeCompaction, NodeScrub, NodeStatus, PreparedTransactions, QueryActivity,
    ReplicaDetail, RestartPlan, TableDetail, TableStatus, TabletDetail, TabletEvent, TabletStatus, TransactionHome,
};
use crate::moment::moment;
use diorite_base::NodeId;
use diorite_base::text::{NOTHING, bytes, duration, or_dash, table};

fn size(number: u64) -> String {
    bytes(number as f64)
}

fn list(nodes: &[NodeId]) -> String {
    let ids: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    if ids.is_empty() { NOTHING.to_owned() } else { ids.join(",") }
}

pub(crate) fn status(status: &ClusterStatus) -> String {
    let balancer = &status.balancer;
    let lines = [
        ("cluster", format!("{} ({})", status.name, status.cluster_id)),
        ("replication", format!("factor {} at least", status.replication_factor)),
        ("logins", logins(status.requires_login).to_owned()),
        ("nodes", format!("{} of {} up, {} leads the catalog", status.live_nodes, status.nodes, status.leader)),
        ("data", format!("{} tables in {} tablets", status.tables, status.tablets)),
        (
            "at risk",
            format!(
                "{} tablets under-replicated, {} without a leader, {} without a quorum",
                status.under_replicated, status.leaderless, status.unavailable
            ),
        ),
        (
            "balancer",
            format!(
                "{}, {} moves, {} left, done in {}",
                balancer.state,
                balancer.moves,
                size(balancer.bytes_left),
                or_dash(balancer.eta_seconds, duration)
            ),
        ),
        ("copies", format!("{}/s for each node", size(balancer.copy_rate_bytes))),
        ("scrub", scrubs(status)),
        ("traffic", format!("between nodes: {}", status.traffic)),
        ("replace", format!("nodes that are silent for {}", duration(balancer.replace_after_ms / 1_000))),
        (
            "split",
            match (balancer.split_bytes, balancer.split_operations_per_second) {
                (0, 0) => "no tablet by itself".to_owned(),
                (bytes, 0) => format!("tablets over {}", size(bytes)),
                (0, operations) => format!("tablets over {operations} operations/s"),
                (bytes, operations) => format!("tablets over {} or {operations} operations/s", size(bytes)),
            },
        ),
        (
            "merge",
            match balancer.merge_bytes {
                0 => "no tablets by themselves".to_owned(),
                bytes => format!("neighbours of up to {} together", size(bytes)),
            },
        ),
    ];
    let mut text: String = lines.iter().map(|(name, value)| format!("{name:<12}{value}\n")).collect();
    let more = match balancer.unlisted_stalled {
        0 => None,
        more => Some(format!("{more} more tablets cannot get their wanted replicas")),
    };
    for warning in status.warnings.iter().chain(&balancer.stalled).chain(&more) {
        text.push_str(&format!("warning     {warning}\n"));
    }
    text
}

/// Whether clients have to log in.
pub(crate) fn logins(required: Option<bool>) -> &'static str {
    match required {
        Some(true) => "required",
        Some(false) => "not required: whoever reaches a port may read and change everything",
        None => "not decided: each node does as its own --auth says",
    }
}

pub(crate) fn logging(status: &LogStatus) -> String {
    let LogStatus { levels, slow_query, format } = status;
    format!("{:<12}{levels}\n{:<12}{slow_query}\n{:<12}{format}\n", "levels", "slow query", "format")
}

/// What scrubs have read, and what they have found.
pub(crate) fn scrubs(status: &ClusterStatus) -> String {
    let found = match status.scrub_damage_found {
        0 => "no damage found".to_owned(),
        found => format!("damage found {found} times"),
    };
    let since = status.scrubbed_ms.map_or_else(String::new, |then_ms| format!(", each since {} UTC", moment(then_ms)));
    let (nodes, of) = (status.scrubbed_nodes, status.live_nodes);
    format!("{nodes} of {of} nodes have read all that they hold since they were started{since}; {found}")
}

pub(crate) fn restart_plan(plan: &RestartPlan) -> String {
    let rows = plan.nodes.iter().map(|node| {
        let uptime = or_dash(node.uptime_ms, |uptime_ms| duration(uptime_ms / 1_000));
        [node.node.0.to_string(), node.address.clone(), node.zone.clone(), uptime, node.turn.clone()]
    });
    let mut text = table(["node", "address", "zone", "uptime", "turn"], rows);
    text.push('\n');
    for reason in &plan.waits_for {
        text.push_str(&format!("wait: {reason}\n"));
    }
    match plan.next {
        Some(node) if plan.may_go => text.push_str(&format!("node {} may be restarted now\n", node.0)),
        Some(_) => {}
        None if plan.is_finished() => text.push_str("all nodes have been restarted\n"),
        None => text.push_str("all nodes have been restarted, and not all have recovered\n"),
    }
    if !plan.interrupted.is_empty() {
        text.push_str(&format!(
            "{} tablets have too few replicas to be read or written while that node is down\n",
            plan.interrupted.len()
        ));
    }
    text
}

pub(crate) fn scrub(nodes: &[NodeScrub]) -> String {
    let state = |node: &NodeScrub| match (&node.stopped, node.is_running, node.tablets) {
        (_, true, _) => "running".to_owned(),
        (Some(reason), ..) => reason.clone(),
        (None, false, 0) => "none yet".to_owned(),
        (None, false, _) => "done".to_owned(),
    };
    let damaged = |node: &NodeScrub| {
        let ids: Vec<String> = node.damaged.iter().map(|tablet| tablet.0.to_string()).collect();
        if ids.is_empty() { NOTHING.to_owned() } else { ids.join(" ") }
    };
    table(
        ["node", "state", "tablets", "of", "read", "rate", "damaged", "all read (UTC)"],
        nodes.iter().map(|node| {
            [
                node.node.0.to_string(),
                state(node),
                node.tablets_read.to_string(),
                node.tablets.to_string(),
                size(node.bytes_read),
                if node.rate_bytes == 0 { NOTHING.to_owned() } else { format!("{}/s", size(node.rate_bytes)) },
                damaged(node),
                or_dash(node.finished_ms, moment),
            ]
        }),
    )
}

pub(crate) fn compaction(nodes: &[NodeCompaction]) -> String {
    let state = |node: &NodeCompaction| match (&node.failure, node.is_running, node.tablets) {
        (Some(reason), ..) => reason.clone(),
        (None, true, _) => "running".to_owned(),
        (None, false, 0) => "none yet".to_owned(),
        (None, false, _) => "done".to_owned(),
    };
    table(
        ["node", "state", "tablets", "of", "rate"],
        nodes.iter().map(|node| {
            [
                node.node.0.to_string(),
                state(node),
                node.tablets_done.to_string(),
                node.tablets.to_string(),
                if node.rate_bytes == 0 { NOTHING.to_owned() } else { format!("{}/s", size(node.rate_bytes)) },
            ]
        }),
    )
}

pub(crate) fn nodes(nodes: &[NodeStatus]) -> String {
    let names = ["node", "address", "zone", "up", "state", "replicas", "leaders", "data", "free", "uptime"];
    table(
        names,
        nodes.iter().map(|node| {
            let free: u64 = node.disks.iter().map(|disk| disk.free_bytes).sum();
            [
                node.node.0.to_string(),
                node.cql_address.clone(),
                node.zone.clone(),
                if node.is_up { "yes" } else { "no" }.to_owned(),
                if node.may_lead { node.state.clone() } else { format!("{}, leads nothing", node.state) },
                node.replicas.to_string(),
                node.leaders.to_string(),
                size(node.tablet_bytes),
                if node.disks.is_empty() { NOTHING.to_owned() } else { size(free) },
                or_dash(node.uptime_seconds, duration),
            ]
        }),
    )
}

pub(crate) fn tables(tables: &[TableStatus]) -> String {
    let names = ["keyspace", "table", "tablets", "replicas", "data", "under-replicated"];
    table(
        names,
        tables.iter().map(|found| {
            [
                found.keyspace.clone(),
                found.name.clone(),
                found.tablets.to_string(),
                found.replication_factor.to_string(),
                size(found.bytes),
                found.under_replicated.to_string(),
            ]
        }),
    )
}

pub(crate) fn tablets(tablets: &[TabletStatus]) -> String {
    let names = ["tablet", "table", "first token", "last token", "data", "leader", "replicas"];
    table(
        names,
        tablets.iter().map(|tablet| {
            let replicas: Vec<String> = tablet
                .replicas
                .iter()
                .map(|replica| {
                    let role = if replica.role == "voter" { String::new() } else { format!(" {}", replica.role) };
                    format!("{}{role}{}", replica.node.0, if replica.is_up { "" } else { " (down)" })
                })
                .collect();
            [
                tablet.tablet.0.to_string(),
                format!("{}.{}", tablet.keyspace, tablet.table),
                tablet.first_token.to_string(),
                tablet.last_token.to_string(),
                size(tablet.bytes),
                or_dash(tablet.leader, |node| node.0.to_string()),
                replicas.join(", "),
            ]
        }),
    )
}

pub(crate) fn moves(moves: &[MoveStatus]) -> String {
    let names = ["tablet", "table", "to", "from", "leaving", "copied", "of", "rate", "done in"];
    table(
        names,
        moves.iter().map(|moving| {
            [
                moving.tablet.0.to_string(),
                format!("{}.{}", moving.keyspace, moving.table),
                or_dash(moving.to, |node| node.0.to_string()),
                or_dash(moving.source, |node| node.0.to_string()),
                list(&moving.leaving),
                size(moving.bytes_done),
                size(moving.bytes_total),
                format!("{}/s", size(moving.rate_bytes)),
                or_dash(moving.eta_seconds, duration),
            ]
        }),
    )
}

/// Who leads the home of a transaction, or why nobody does.
pub(crate) fn home_leader(home: &TransactionHome) -> String {
    match (home.obstacle(), home.leader) {
        (Some(obstacle), _) => obstacle.to_owned(),
        (None, Some(leader)) => leader.0.to_string(),
        (None, None) => NOTHING.to_owned(),
    }
}

pub(crate) fn transactions(found: &PreparedTransactions) -> String {
    let names = ["tablet", "table", "leader", "transaction", "age", "rows", "staged", "home", "of", "led by"];
    let rows = found.transactions.iter().map(|one| {
        [
            one.tablet.0.to_string(),
            format!("{}.{}", one.keyspace, one.table),
            one.leader.0.to_string(),
            one.transaction.to_string(),
            format!("{:.1} s", one.age_ms as f64 / 1e3),
            one.rows.to_string(),
            size(one.staged_bytes as u64),
            or_dash(one.home.tablet, |tablet| tablet.0.to_string()),
            or_dash(one.home.tablet, |_| format!("{}.{}", one.home.keyspace, one.home.table)),
            home_leader(&one.home),
        ]
    });
    let mut text = table(names, rows);
    if let Some(more) = found.total.checked_sub(found.transactions.len()).filter(|more| *more > 0) {
        text.push_str(&format!("and {more} more\n"));
    }
    found.unanswered.iter().for_each(|reason| text.push_str(&format!("missing: {reason}\n")));
    text
}

pub(crate) fn requests(found: &QueryActivity) -> String {
    let names = ["request", "seconds", "memory", "client", "keyspace", "statement"];
    table(
        names,
        found.running.iter().map(|running| {
            [
                running.number.to_string(),
                format!("{:.1}", running.seconds_running),
                size(running.memory_bytes),
                or_dash(running.client.as_ref(), Clone::clone),
                or_dash(running.keyspace.as_ref(), Clone::clone),
                running.statement.clone(),
            ]
        }),
    )
}

pub(crate) fn table_detail(found: &TableDetail) -> String {
    let names = ["node", "replicas", "leaders", "data"];
    let shares = table(
        names,
        found.nodes.iter().map(|share| {
            [share.node.0.to_string(), share.replicas.to_string(), share.leaders.to_string(), size(share.bytes)]
        }),
    );
    format!("{}\n\n{}\n{shares}", found.schema, tables(std::slice::from_ref(&found.status)))
}

pub(crate) fn tablet_detail(found: &TabletDetail) -> String {
    let names = ["node", "leader", "lease", "term", "log from", "to", "committed", "applied", "data", "sstables"];
    let lease = |replica: &ReplicaDetail| match (replica.holds_lease, replica.lease_left_ms) {
        (false, _) => NOTHING.to_owned(),
        (true, None) => "permanent".to_owned(),
        (true, Some(left_ms)) => format!("{left_ms} ms"),
    };
    let replicas = table(
        names,
        found.replicas.iter().map(|replica| {
            [
                replica.node.0.to_string(),
                or_dash(replica.leader, |node| node.0.to_string()),
                lease(replica),
                replica.term.to_string(),
                replica.first_index.to_string(),
                replica.last_index.to_string(),
                replica.commit_index.to_string(),
                replica.applied_index.to_string(),
                size(replica.bytes),
                replica.sst_files.to_string(),
            ]
        }),
    );
    let event = |event: &TabletEvent| [moment(event.unix_ms), event.node.0.to_string(), event.event.clone()];
    let events = table(["time (UTC)", "node", "event"], found.events.iter().map(event));
    let reshaping = found.status.reshaping.as_ref();
    let reshaping = reshaping.map_or_else(String::new, |how| format!("tablet {}: {how}\n", found.status.tablet.0));
    let advice: String = found.advice.iter().map(|line| format!("{line}\n")).collect();
    format!("{}{reshaping}\n{replicas}\n{advice}{events}", tablets(std::slice::from_ref(&found.status)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PreparedTransaction, TabletState, TransactionName};
    use diorite_base::TabletId;

    #[test]
    fn stalled_tablets_that_are_not_listed_are_summed_up() {
        let shown = |unlisted: u64| {
            let found = r#"{
                "name": "c", "cluster_id": "", "replication_factor": 3, "catalog_version": 1, "leader": 1, "nodes": 3,
                "live_nodes": 3, "programs": [], "tables": 1, "tablets": 205, "leaders": 205, "under_replicated": 205,
                "leaderless": 0, "unavailable": 0, "bytes": 0, "replica_bytes": 0, "reads_per_second": 0.0,
                "writes_per_second": 0.0, "warnings": ["node 4 is down"],
                "balancer": {
                    "state": "idle", "moves": 0, "bytes_left": 0, "eta_seconds": null, "stalled": ["tablet 7 is large"],
                    "unlisted_stalled": UNLISTED, "copy_rate_bytes": 1, "replace_after_ms": 1,
                    "preferred_leader_zones": [], "split_bytes": 0, "split_operations_per_second": 0, "merge_bytes": 0
                }
            }"#;
            let found = found.replace("UNLISTED", &unlisted.to_string());
            let text = status(&serde_json::from_str(&found).expect("a status"));
            let warnings = text.lines().filter_map(|line| line.strip_prefix("warning     "));
            warnings.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(shown(0), ["node 4 is down", "tablet 7 is large"]);
        let more = "104 more tablets cannot get their wanted replicas";
        assert_eq!(shown(104), ["node 4 is down", "tablet 7 is large", more]);
    }

    #[test]
    fn a_node_that_leads_nothing_is_shown_as_such() {
        let shown = |may_lead: bool| {
            let found = r#"[{
                "node": 4, "host_id": "", "cql_address": "", "http_address": "", "data_center": "", "zone": "a",
                "is_up": true, "state": "active", "may_lead": MAY_LEAD, "replicas": 1, "leaders": 0, "tablet_bytes": 0,
                "sst_files": 0, "sst_bytes": 0, "content_bytes": null, "last_heartbeat_ms": null,
                "uptime_seconds": null, "program": null, "resident_bytes": null, "memory_limit_bytes": null,
                "cpu_seconds": null, "processors": null, "activity": {}, "disks": []
            }]"#;
            let found: Vec<NodeStatus> =
                serde_json::from_str(&found.replace("MAY_LEAD", &may_lead.to_string())).expect("nodes");
            nodes(&found)
        };
        assert!(shown(false).contains("active, leads nothing"), "{}", shown(false));
        assert!(!shown(true).contains("leads nothing"), "{}", shown(true));
    }

    #[test]
    fn a_home_that_decides_nothing_is_named() {
        let home = |state, leader| TransactionHome {
            tablet: Some(TabletId(9)),
            keyspace: "ks".to_owned(),
            table: "homes".to_owned(),
            leader,
            state: Some(state),
        };
        let homes = [
            (home(TabletState::Ok, Some(NodeId(3))), "3"),
            (home(TabletState::Leaderless, None), "no leader"),
            (home(TabletState::Unavailable, None), "no quorum"),
            (TransactionHome::default(), "dropped"),
        ];
        for (home, expected) in homes {
            let one = PreparedTransaction {
                tablet: TabletId(7),
                keyspace: "ks".to_owned(),
                table: "t".to_owned(),
                leader: NodeId(2),
                transaction: TransactionName { tablet: TabletId(9), term: 4, number: 5 },
                age_ms: 1_234,
                rows: 6,
                staged_bytes: 70,
                home,
            };
            let unanswered = vec!["node 1 does not answer".to_owned()];
            let shown = transactions(&PreparedTransactions { transactions: vec![one], total: 3, unanswered });
            let lines: Vec<&str> = shown.lines().collect();
            assert!(
                lines[1].starts_with("7 ") && lines[1].contains(" 9/4/5 ") && lines[1].contains(" 1.2 s "),
                "{shown}"
            );
            assert!(lines[1].ends_with(expected), "{shown}");
            assert_eq!(lines[2..], ["and 2 more", "missing: node 1 does not answer"]);
        }
    }
}
