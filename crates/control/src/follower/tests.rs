//! The actions of a node between two snapshots of the catalog, and the replicas that it opens and removes when it
//! starts.

#![allow(clippy::unwrap_used, reason = "test data is known")]

use super::*;
use crate::testing::{Local, apply, cluster, table};
use diorite_cluster::catalog::{FinishedTablet, NodeState};

const A: NodeId = NodeId(1);

/// A follower of a node that serves a snapshot.
fn serving(node: NodeId, catalog: &Catalog) -> Follower {
    let mut follower = Follower::new(node, Planted::default());
    follower.start(&Arc::new(catalog.clone()));
    follower
}

/// All actions of a node on its way to a snapshot.
fn actions(follower: &mut Follower, catalog: &Catalog, local: &mut Local) -> Vec<Action> {
    let newest = Arc::new(catalog.clone());
    let mut done = Vec::new();
    while let Some(action) = follower.next(&newest, local) {
        match &action {
            Action::Open(openings) => local.open.extend(openings.iter().map(|opening| opening.tablet)),
            Action::Close(tablets) => local.open.retain(|tablet| !tablets.contains(tablet)),
            _ => {}
        }
        done.push(action);
    }
    done
}

fn place_of(actions: &[Action], wanted: impl Fn(&Action) -> bool) -> Option<usize> {
    actions.iter().position(wanted)
}

#[test]
fn a_table_is_served_only_when_its_tablets_are_open() {
    let mut catalog = cluster(3, 1);
    let (mut follower, mut local) = (serving(A, &catalog), Local::default());
    apply(&mut catalog, Command::CreateTable { table: table(1), tablets: 2, if_not_exists: false });
    let done = actions(&mut follower, &catalog, &mut local);
    let opened = place_of(&done, |action| matches!(action, Action::Open(openings) if openings.len() == 2)).unwrap();
    let published = place_of(&done, |action| matches!(action, Action::Publish(_))).unwrap();
    assert!(opened < published, "{done:?}");
    assert_eq!(follower.served().version(), catalog.version());
    assert_eq!(actions(&mut follower, &catalog, &mut local), [], "nothing is done twice");
}

#[test]
fn what_is_dropped_is_closed_after_nobody_is_sent_there() {
    let mut catalog = cluster(3, 1);
    let (tablet, _) = catalog.tablets().next().unwrap();
    let (mut follower, mut local) = (serving(A, &catalog), Local::default());
    local.open.insert(tablet);
    let (keyspace, name) = ("shop".to_owned(), "orders_000".to_owned());
    apply(&mut catalog, Command::DropTable { keyspace, name, if_exists: false });
    let done = actions(&mut follower, &catalog, &mut local);
    let closed = place_of(&done, |action| *action == Action::Close(vec![tablet])).unwrap();
    let published = place_of(&done, |action| matches!(action, Action::Publish(_))).unwrap();
    assert!(published < closed, "{done:?}");
    let forget = forgettable(follower.served(), A, &local);
    assert_eq!(forget, Some(Command::ForgetDropped { node: A, tablets: vec![tablet] }));
    apply(&mut catalog, forget.unwrap());
    actions(&mut follower, &catalog, &mut local);
    assert_eq!(forgettable(follower.served(), A, &local), None);
}

/// A cluster of four whose only tablet moves to the node that does not hold it.
fn moving() -> (Catalog, Catalog, TabletId, NodeId) {
    let before = cluster(4, 1);
    let (tablet, placement) = before.tablets().next().unwrap();
    let expected = placement.replicas.clone();
    let arriving = before.nodes().map(|node| node.id).find(|node| !expected.contains(node)).unwrap();
    let mut after = before.clone();
    let replicas = vec![expected[0], expected[1], arriving];
    apply(&mut after, Command::Place { tablet, expected, replicas, is_numbered: true });
    (before, after, tablet, arriving)
}

#[test]
fn a_replica_that_arrives_is_opened_only_after_the_catalog_is_durable_here() {
    let (before, after, tablet, arriving) = moving();
    let newest = Arc::new(after);
    for is_durable in [true, false] {
        let mut follower = serving(arriving, &before);
        assert_eq!(follower.next(&newest, &Local::default()), Some(Action::PersistCatalog));
        follower.persisted(is_durable);
        let next = follower.next(&newest, &Local::default());
        assert_eq!(matches!(next, Some(Action::Open(_))), is_durable, "{next:?}");
        if !is_durable {
            assert!(matches!(next, Some(Action::SetMembers(set, _)) if set == tablet), "{next:?}");
        }
    }
}

#[test]
fn a_replica_that_leaves_is_closed_when_the_group_does_without_it() {
    let (before, mut after, tablet, _) = moving();
    let leaving = after.placement(tablet).unwrap().leaving[0];
    let (mut follower, mut local) = (serving(leaving, &before), Local::default());
    local.open.insert(tablet);
    let done = actions(&mut follower, &after, &mut local);
    assert!(place_of(&done, |action| matches!(action, Action::Close(_))).is_none(), "{done:?}");
    let voters = after.placement(tablet).unwrap().replicas.clone();
    apply(&mut after, Command::FinishMoves { tablets: vec![FinishedTablet { tablet, voters, move_number: None }] });
    let done = actions(&mut follower, &after, &mut local);
    assert!(done.contains(&Action::Close(vec![tablet])), "{done:?}");
}

#[test]
fn a_replica_that_has_come_back_meanwhile_is_not_closed() {
    let (before, mut gone, tablet, _) = moving();
    let placement = gone.placement(tablet).unwrap().clone();
    let (leaving, voters) = (placement.leaving[0], placement.replicas.clone());
    apply(
        &mut gone,
        Command::FinishMoves { tablets: vec![FinishedTablet { tablet, voters: voters.clone(), move_number: None }] },
    );
    let mut back = gone.clone();
    let replicas = vec![voters[0], voters[1], leaving];
    apply(&mut back, Command::Place { tablet, expected: voters, replicas: replicas.clone(), is_numbered: true });
    let mut away = back.clone();
    let expected = replicas.clone();
    apply(&mut away, Command::Place { tablet, expected, replicas: replicas[..2].to_vec(), is_numbered: true });
    apply(
        &mut away,
        Command::FinishMoves {
            tablets: vec![FinishedTablet { tablet, voters: replicas[..2].to_vec(), move_number: None }],
        },
    );
    for (last, stays) in [(&back, true), (&away, false)] {
        let (mut follower, mut local) = (serving(leaving, &before), Local::default());
        local.open.insert(tablet);
        let seen = Arc::new(gone.clone());
        assert!(follower.next(&seen, &local).is_some(), "it sets out for the version in which the replica is gone");
        let done = actions(&mut follower, &back, &mut local);
        assert!(local.open.contains(&tablet), "{done:?}");
        let done = actions(&mut follower, last, &mut local);
        assert_eq!(local.open.contains(&tablet), stays, "{done:?}");
    }
}

#[test]
fn versions_that_are_passed_over_leave_nothing_undone() {
    let (before, mut after, tablet, arriving) = moving();
    let voters = after.placement(tablet).unwrap().replicas.clone();
    apply(&mut after, Command::FinishMoves { tablets: vec![FinishedTablet { tablet, voters, move_number: None }] });
    apply(&mut after, Command::BeginSplit { tablet, at: 0, stays: true });
    let (mut follower, mut local) = (serving(arriving, &before), Local::default());
    let done = actions(&mut follower, &after, &mut local);
    let opened = place_of(&done, |action| matches!(action, Action::Open(_))).unwrap();
    let prepared = place_of(&done, |action| matches!(action, Action::PrepareSplit(split, _) if *split == tablet));
    assert!(prepared.is_some_and(|prepared| prepared > opened), "the split finds the replica open: {done:?}");
}

#[test]
fn a_tablet_that_came_and_went_between_two_snapshots_is_closed_if_it_is_open() {
    let before = cluster(3, 1);
    let (mut after, child) = (before.clone(), before.identity().next_tablet());
    apply(&mut after, Command::CreateTable { table: table(1), tablets: 1, if_not_exists: false });
    let (keyspace, name) = ("shop".to_owned(), "orders_001".to_owned());
    apply(&mut after, Command::DropTable { keyspace, name, if_exists: false });
    // The replica of a parent tablet makes its child tablets, whatever this node serves.
    let (mut follower, mut local) = (serving(A, &before), Local::default());
    local.open.insert(child);
    let done = actions(&mut follower, &after, &mut local);
    assert!(done.contains(&Action::Close(vec![child])), "{done:?}");
    let forget = forgettable(follower.served(), A, &local);
    assert_eq!(forget, Some(Command::ForgetDropped { node: A, tablets: vec![child] }));
}

/// Splits a tablet, whose children no longer need it.
fn split(catalog: &mut Catalog, tablet: TabletId, at: i64) -> [TabletId; 2] {
    apply(catalog, Command::BeginSplit { tablet, at, stays: true });
    let children = catalog.placement(tablet).unwrap().split.unwrap().children;
    apply(catalog, Command::ServeSplit { tablet, index: 7, term: 1 });
    let finished = |tablet: TabletId| {
        let voters = catalog.placement(tablet).unwrap().replicas.clone();
        FinishedTablet { tablet, voters, move_number: None }
    };
    let tablets = children.map(finished).to_vec();
    apply(catalog, Command::FinishMoves { tablets });
    children
}

#[test]
fn a_child_that_its_parent_has_made_and_that_has_moved_away_is_closed() {
    let before = cluster(4, 1);
    let (parent, placement) = before.tablets().next().unwrap();
    let (me, other) = (placement.replicas[2], placement.replicas[0]);
    let elsewhere = before.nodes().map(|node| node.id).find(|node| !placement.replicas.contains(node)).unwrap();
    let mut after = before.clone();
    let [first, second] = split(&mut after, parent, 0);
    let expected = after.placement(second).unwrap().replicas.clone();
    let replicas = vec![other, expected[1], elsewhere];
    let (to, voters) = (replicas.clone(), replicas.clone());
    apply(&mut after, Command::Place { tablet: second, expected, replicas: to, is_numbered: true });
    apply(
        &mut after,
        Command::FinishMoves { tablets: vec![FinishedTablet { tablet: second, voters, move_number: None }] },
    );
    // The parent's replica has made both children before this node's copy of the catalog went on.
    let (mut follower, mut local) = (serving(me, &before), Local::default());
    local.open.extend([parent, first, second]);
    let done = actions(&mut follower, &after, &mut local);
    assert_eq!(local.open, [first].into(), "{done:?}");
}

#[test]
fn a_child_that_lagged_and_was_split_between_two_snapshots_is_replaced_by_its_children() {
    let before = cluster(3, 1);
    let (parent, _) = before.tablets().next().unwrap();
    let mut after = before.clone();
    let [first, second] = split(&mut after, parent, 0);
    let grandchildren = split(&mut after, first, -1_000);
    // Its replica has not applied the entry that split it, and no other replica will send it.
    let (mut follower, mut local) = (serving(A, &before), Local::default());
    local.open.extend([parent, first, second]);
    let done = actions(&mut follower, &after, &mut local);
    assert_eq!(local.open, grandchildren.into_iter().chain([second]).collect(), "{done:?}");
}

#[test]
fn a_tablet_that_came_and_was_split_between_two_snapshots_is_opened_and_makes_its_children() {
    let before = cluster(3, 1);
    let (mut after, parent) = (before.clone(), before.identity().next_tablet());
    apply(&mut after, Command::CreateTable { table: table(1), tablets: 1, if_not_exists: false });
    apply(&mut after, Command::BeginSplit { tablet: parent, at: 0, stays: true });
    apply(&mut after, Command::ServeSplit { tablet: parent, index: 7, term: 1 });
    // Its group may need this node's replica until the children are made.
    let (mut follower, mut local) = (serving(A, &before), Local::default());
    let done = actions(&mut follower, &after, &mut local);
    let opened = place_of(&done, |action| matches!(action, Action::Open(_)));
    let published = place_of(&done, |action| matches!(action, Action::Publish(_)));
    assert!(opened.is_some() && opened < published, "{done:?}");
    assert_eq!(local.open, [parent].into(), "{done:?}");
}

#[test]
fn a_node_that_is_removed_stops_and_the_others_part_from_it() {
    let mut catalog = cluster(4, 1);
    let idle = catalog.nodes().map(|node| node.id).find(|node| catalog.tablets_on(*node).count() == 0).unwrap();
    let (mut removed, mut other) = (serving(idle, &catalog), serving(NodeId(idle.0 % 4 + 1), &catalog));
    apply(&mut catalog, Command::RemoveNode { node: idle, only_without_vote: false });
    assert!(actions(&mut removed, &catalog, &mut Local::default()).contains(&Action::Stop));
    let done = actions(&mut other, &catalog, &mut Local::default());
    let members = Members::of_catalog(&catalog).unwrap();
    assert!(!members.voters.contains(&idle) && !members.learners.contains(&idle));
    assert!(done.contains(&Action::SetMembers(CATALOG_TABLET, members)), "{done:?}");
    assert!(!done.contains(&Action::Stop));
}

#[test]
fn a_child_is_opened_by_its_parents_replica_or_never() {
    let mut catalog = cluster(3, 1);
    let (tablet, _) = catalog.tablets().next().unwrap();
    let before = catalog.clone();
    apply(&mut catalog, Command::BeginSplit { tablet, at: 0, stays: true });
    let children = catalog.placement(tablet).unwrap().split.unwrap().children;
    let child = |served: &Catalog| child_opening(served, &catalog, A, tablet, children[0]);
    assert_eq!(child(&Catalog::default()), ChildOpening::NotYet);
    assert_eq!(child(&before), ChildOpening::NotYet, "it is not numbered yet, as far as this node knows");
    assert!(matches!(child(&catalog), ChildOpening::As(_)));
    // A child that is split while the node knows only its number.
    let of_child = |served: &Catalog| child_opening(served, served, A, children[0], TabletId(children[1].0 + 1));
    assert_eq!(of_child(&catalog), ChildOpening::NotYet);
    assert_eq!(of_child(&before), ChildOpening::Never, "a tablet that the node does not know is dropped");
    let mut cancelled = catalog.clone();
    apply(&mut cancelled, Command::CancelSplit { tablet });
    assert_eq!(child(&cancelled), ChildOpening::Never);
}

#[test]
fn left_overs_are_what_the_catalog_knows_to_be_gone() {
    let mut catalog = cluster(4, 1);
    let (tablet, placement) = catalog.tablets().next().unwrap();
    let replicas = placement.replicas.clone();
    let other = catalog.nodes().map(|node| node.id).find(|node| !replicas.contains(node)).unwrap();
    let unknown = catalog.identity().next_tablet();
    assert!(Leftovers::new(&catalog, other).has_moved(tablet));
    assert!(!Leftovers::new(&catalog, replicas[0]).has_moved(tablet));
    let is_dropped = |catalog: &Catalog, tablet| Leftovers::new(catalog, replicas[0]).was_dropped(tablet);
    assert!(!is_dropped(&catalog, tablet) && !is_dropped(&catalog, unknown) && !is_dropped(&catalog, CATALOG_TABLET));
    apply(&mut catalog, Command::BeginSplit { tablet, at: 0, stays: true });
    assert!(!is_dropped(&catalog, unknown), "it is a child tablet that is to come");
    apply(&mut catalog, Command::CancelSplit { tablet });
    assert!(is_dropped(&catalog, unknown));
    let openings = openings_at_start(&catalog, replicas[0], |_| true);
    assert_eq!(openings.iter().map(|opening| opening.tablet).collect::<Vec<_>>(), [tablet]);
}

#[test]
fn a_node_without_replicas_that_is_being_drained_has_no_vote() {
    let drained = NodeId(3);
    let votes = |done: &[Action]| {
        let members = done.iter().find_map(|action| match action {
            Action::SetMembers(CATALOG_TABLET, members) => Some(members),
            _ => None,
        });
        members.map(|members| members.voters.contains(&drained))
    };
    let mut catalog = cluster(3, 1);
    let (mut follower, mut local) = (serving(A, &catalog), Local::default());
    apply(&mut catalog, Command::SetNodeState { node: drained, state: NodeState::Draining });
    assert_eq!(votes(&actions(&mut follower, &catalog, &mut local)), Some(true), "it holds a replica");
    let (keyspace, name) = ("shop".to_owned(), "orders_000".to_owned());
    apply(&mut catalog, Command::DropTable { keyspace, name, if_exists: false });
    assert_eq!(votes(&actions(&mut follower, &catalog, &mut local)), Some(false));
}
