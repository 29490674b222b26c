//! Properties of random sequences of commands.

use super::*;
use proptest::prelude::*;

fn any_replication() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        (1..4u32).prop_map(|factor| format!("rf={factor}")),
        (0..3u32, 1..3u32).prop_map(|(east, west)| format!("dcs=east:{east},west:{west}")),
    ]
}

/// A line of a random script, over few names so that they collide.
fn any_line() -> impl Strategy<Value = String> {
    let keyspace = prop_oneof![Just("a"), Just("b")];
    let object = (prop_oneof![Just("a"), Just("b")], prop_oneof![Just("x"), Just("y")])
        .prop_map(|(keyspace, name)| format!("{keyspace}.{name}"));
    prop_oneof![
        3 => (prop_oneof![Just("m"), Just("n"), Just("o"), Just("p")], prop_oneof![Just("east"), Just("west")])
            .prop_map(|(node, dc)| format!("register {node} zone={node} dc={dc}")),
        4 => (keyspace.clone(), any_replication()).prop_map(|(name, rf)| format!("create-keyspace {name} {rf}")),
        2 => (keyspace.clone(), any_replication()).prop_map(|(name, rf)| format!("alter-keyspace {name} {rf}")),
        1 => keyspace.clone().prop_map(|name| format!("drop-keyspace {name} if-exists")),
        1 => (keyspace, any::<bool>()).prop_map(|(name, durable)| format!("alter-keyspace {name} durable={durable}")),
        6 => (object.clone(), 1..9u32).prop_map(|(name, count)| format!("create-table {name} tablets={count}")),
        3 => object.clone().prop_map(|name| format!("create-table {name} type=y")),
        2 => (object.clone(), 0..9u32).prop_map(|(name, ttl)| format!("alter-table {name} ttl={ttl}")),
        2 => object.clone().prop_map(|name| format!("drop-table {name}")),
        2 => object.clone().prop_map(|name| format!("truncate {name}")),
        3 => object.clone().prop_map(|name| format!("create-type {name} fields=f")),
        1 => object.clone().prop_map(|name| format!("alter-type {name} fields=f,g")),
        1 => object.prop_map(|name| format!("drop-type {name}")),
        1 => (1..3u64).prop_map(|node| format!("forget {node}")),
        8 => (1_000..1_012u64, any_replicas()).prop_map(|(tablet, on)| format!("place {tablet} on={on}")),
        4 => (1_000..1_012u64).prop_map(|tablet| format!("finish {tablet}")),
        2 => (1_000..1_012u64, 0..30u64).prop_map(|(tablet, number)| format!("finish {tablet} number={number}")),
        4 => (1_000..1_012u64, -9i64..9).prop_map(|(tablet, at)| format!("split {tablet} at={}", at << 60)),
        4 => (1_000..1_012u64).prop_map(|tablet| format!("serve-split {tablet}")),
        1 => (1_000..1_012u64).prop_map(|tablet| format!("cancel-split {tablet}")),
        2 => (1_000..1_012u64, 1_000..1_012u64).prop_map(|(tablet, into)| format!("merge {tablet} {into}")),
        2 => (1_000..1_012u64, 1_000..1_012u64).prop_map(|(tablet, into)| format!("serve-merge {tablet} {into}")),
        1 => (1..4u64).prop_map(|node| format!("update m node={node}")),
        2 => (1..4u64, prop::sample::select(vec!["active", "draining", "dead"])).prop_map(|(node, state)| format!("state {node} {state}")),
        1 => (1..4u64, any::<bool>()).prop_map(|(node, guarded)| format!("remove {node}{}", if guarded { " without-vote" } else { "" })),
        1 => (1..4u64, "[ab]").prop_map(|(node, zone)| format!("zone {node} {zone}")),
        1 => (1..3u64).prop_map(|rate| format!("set rate {rate}")),
        2 => (prop::sample::select(vec!["t", "u"]), 0..2u32, 1..3u32)
            .prop_map(|(token, expires, nodes)| format!("token {token} expires={expires} nodes={nodes}")),
        1 => prop::sample::select(vec!["revoke t", "revoke u"]).prop_map(str::to_owned),
        3 => (prop::sample::select(vec!["m", "n", "o", "p"]), prop::sample::select(vec!["t", "u"]), any::<bool>())
            .prop_map(|(node, token, moves)| format!("join {node} token={token} zone={node}{}", if moves { " at=x" } else { "" })),
        2 => (2..4u32, prop::sample::select(vec!["1", "1,2", "1,2,3"])).prop_map(|(level, members)| format!("raise {level} members={members}")),
        2 => (prop::sample::select(vec!["m", "n", "o"]), 1..4u32).prop_map(|(node, level)| format!("register {node} zone={node} levels=1-{level}")),
        1 => prop::sample::select(vec!["login on", "login off", "login on if-undecided", "login off if-undecided"])
            .prop_map(str::to_owned),
    ]
}

/// Some order of some of the first nodes.
fn any_replicas() -> impl Strategy<Value = String> {
    (prop::sample::subsequence(vec![1u64, 2, 3, 4], 1..=4).prop_shuffle()).prop_map(|nodes| {
        let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
        nodes.join(",")
    })
}

/// Tables and tablets that a command created.
fn new_ids(before: &Catalog, after: &Catalog) -> (Vec<TableId>, Vec<TabletId>) {
    let tables = after.tables().map(|entry| entry.table.id).filter(|id| before.table_by_id(*id).is_none()).collect();
    let tablets = after.tablets().map(|(id, _)| id).filter(|id| before.placement(*id).is_none()).collect();
    (tables, tablets)
}

/// No tablet has two replicas on one node, and all replicas are on members; new tablets have as many replicas as
/// wanted, or as there are active nodes; initial voters never change; a node that held a replica is a holder until the
/// group does not need that replica.
fn check_placements(before: &Catalog, after: &Catalog) -> Result<(), TestCaseError> {
    for (tablet, placement) in after.tablets() {
        let holders: BTreeSet<NodeId> = placement.holders().collect();
        prop_assert_eq!(holders.len(), placement.holders().count());
        prop_assert!(holders.iter().all(|node| after.node(*node).is_some()));
        prop_assert!(placement.arriving.iter().all(|node| placement.replicas.contains(node)));
        let Some(old) = before.placement(tablet) else {
            prop_assert_eq!(&placement.initial_voters, &placement.replicas);
            prop_assert!(!placement.is_moving());
            let Some(origin) = placement.origin else {
                check_new_placement(after, placement)?;
                continue;
            };
            // Its parent may have fewer replicas than a new table would get by now.
            prop_assert_eq!(&before.placement(origin.parent).unwrap().replicas, &placement.replicas);
            continue;
        };
        prop_assert_eq!(&old.initial_voters, &placement.initial_voters);
        let is_finished = old.is_moving() && !placement.is_moving() && old.replicas == placement.replicas;
        prop_assert!(is_finished || old.holders().all(|node| holders.contains(&node)));
        prop_assert!(
            is_finished
                || placement
                    .replicas
                    .iter()
                    .all(|node| old.replicas.contains(node) || placement.arriving.contains(node))
        );
    }
    if after.nodes().next().is_none() {
        return Ok(());
    }
    let members = after.catalog_members();
    let all: BTreeSet<NodeId> = members.voters.iter().chain(&members.learners).copied().collect();
    prop_assert_eq!(all, after.nodes().map(|node| node.id).collect::<BTreeSet<_>>());
    let stays = |node: NodeId| after.node(node).unwrap().state.is_active() || after.tablets_on(node).next().is_some();
    let staying = after.nodes().filter(|node| stays(node.id)).count();
    let most = if staying > 0 { staying } else { after.nodes().count() };
    prop_assert_eq!(members.voters.len(), most.min(after.identity().replication_factor as usize));
    prop_assert!(staying == 0 || members.voters.iter().all(|node| stays(*node)));
    Ok(())
}

fn check_new_placement(catalog: &Catalog, placement: &Placement) -> Result<(), TestCaseError> {
    let keyspace = &catalog.table_by_id(placement.table).unwrap().table.keyspace;
    let active: Vec<_> = catalog.nodes().filter(|node| node.state.is_active()).collect();
    match catalog.replication_of(keyspace) {
        Replication::Anywhere(wanted) => prop_assert!(placement.replicas.len() >= active.len().min(wanted as usize)),
        Replication::PerDataCenter(wanted) => {
            for (data_center, wanted) in wanted {
                let nodes = active.iter().filter(|node| node.description.data_center == data_center);
                let held = nodes.clone().filter(|node| placement.replicas.contains(&node.id)).count();
                prop_assert!(held >= nodes.count().min(wanted as usize), "in {data_center}");
            }
        }
    }
    Ok(())
}

/// Changes a set of open replicas as nodes would.
fn carry_out(changes: &[Change], open: &mut BTreeSet<(TabletId, NodeId)>) {
    for change in changes {
        match change {
            Change::OpenTablets { tablets, .. } => {
                for new in tablets {
                    open.extend(new.replicas.iter().map(|node| (new.tablet, *node)));
                }
            }
            Change::ReplicasMoved { tablets, .. } => {
                for (tablet, nodes) in tablets {
                    open.extend(nodes.iter().map(|node| (*tablet, *node)));
                }
            }
            Change::ReplicasGone { tablets } => open.retain(|replica| !tablets.contains(replica)),
            Change::DropTablets { tablets, .. } => open.retain(|(tablet, _)| !tablets.contains(tablet)),
            _ => {}
        }
    }
}

fn replicas_of(catalog: &Catalog) -> BTreeSet<(TabletId, NodeId)> {
    let tablets = catalog.tablets();
    tablets.flat_map(|(tablet, placement)| placement.holders().map(move |node| (tablet, node))).collect()
}

proptest! {
    #[test]
    fn random_histories_keep_the_invariants(lines in prop::collection::vec(any_line(), 1..60)) {
        let start = ["bootstrap demo rf=2", "register m zone=m"].map(str::to_owned);
        let (mut catalog, mut stored) = (Catalog::default(), HashMap::new());
        let (mut tables_seen, mut tablets_seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open = BTreeSet::new();
        let mut history = vec![(catalog.clone(), open.clone())];
        for line in start.into_iter().chain(lines) {
            let command = parse(&catalog, &line);
            let (next, outcome) = catalog.apply(&command);
            let changes = next.changes_since(&catalog);
            prop_assert_eq!(&catalog.apply(&command), &(next.clone(), outcome.clone()));
            prop_assert_eq!(outcome.version(), next.version());
            let changed = matches!(outcome, Outcome::Applied { .. } | Outcome::Registered { .. });
            prop_assert_eq!(next.version(), catalog.version() + u64::from(changed));
            prop_assert!(changed || next == catalog);
            prop_assert_eq!(Outcome::decode(&outcome.encode()).unwrap(), outcome);

            let (tables, tablets) = new_ids(&catalog, &next);
            for id in tables {
                prop_assert!(tables_seen.insert(id), "{id} was used before");
            }
            for id in tablets {
                prop_assert!(tablets_seen.insert(id), "{id} was used before");
            }
            for (key, value) in next.puts_since(&catalog) {
                match value {
                    Some(value) => { stored.insert(key, value); }
                    None => { prop_assert!(stored.remove(&key).is_some()); }
                }
            }
            prop_assert_eq!(&Catalog::load(stored.iter()).unwrap(), &next);
            check_placements(&catalog, &next)?;
            carry_out(&changes, &mut open);
            prop_assert_eq!(&open, &replicas_of(&next));
            for entry in next.tables() {
                prop_assert_eq!(entry.tablets[0].first_token, i64::MIN);
                prop_assert!(entry.tablets.is_sorted_by_key(|range| range.first_token));
                prop_assert!(entry.tablets.iter().all(|range| next.placement(range.tablet).is_some()));
                prop_assert_eq!(entry.tablet_of(i64::MAX), entry.tablets[entry.tablets.len() - 1].tablet);
            }
            let same_schema = next.keyspaces().eq(catalog.keyspaces())
                && next.tables().map(|entry| &entry.table).eq(catalog.tables().map(|entry| &entry.table))
                && ["a", "b"].iter().all(|name| next.types_in(name).eq(catalog.types_in(name)));
            prop_assert_eq!(next.schema_version() == catalog.schema_version(), same_schema);
            history.push((next.clone(), open.clone()));
            catalog = next;
        }
        // A node that was down for some versions goes on from the last that it has seen.
        for (older, mut then_open) in history {
            carry_out(&catalog.changes_since(&older), &mut then_open);
            prop_assert_eq!(&then_open, &open, "from version {}", older.version());
        }
    }
}
