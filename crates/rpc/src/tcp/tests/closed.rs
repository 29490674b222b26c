//! Connections that were closed before they are accepted, nodes that are not there, and transports that have stopped.

use super::*;

/// The connections of a node's former process wait while the node that they reach is paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_closed_before_it_is_accepted_changes_nothing() {
    let (node, listener) = Node::bind("127.0.0.1:0".parse().unwrap(), options(2));
    let mut former = TcpStream::connect(node.address).await.unwrap();
    former.write_all(&opening()).await.unwrap();
    former.shutdown().await.unwrap();
    node.listen(listener);
    let mut answer = Vec::new();
    let _ = timeout(LIMIT, former.read_to_end(&mut answer)).await.expect("the connection is closed");
    assert!(answer.is_empty(), "it is not accepted: {answer:?}");
    assert_eq!(node.transport.incarnations().of(NodeId(1)), None);
    assert!(node.transport.statistics().is_empty(), "nobody is dialled");
}

/// A second process is killed while the node that it dialled finds out whether the first one, which is silent, runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_closed_while_it_waits_takes_nobodys_place() {
    let b = Node::start(options(2)).await;
    let first = Node::start(TcpOptions { incarnation: 11, ..options(1) }).await;
    first.dial(&[(2, b.address)]);
    first.connected(2).await;
    let mut second = TcpStream::connect(b.address).await.unwrap();
    second.write_all(&opening()).await.unwrap();
    // It may also be closed before it waits; then the test shows less.
    let _ = timeout(Duration::from_millis(200), std::future::pending::<()>()).await;
    second.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(LIMIT, second.read_to_end(&mut answer)).await.expect("the connection is closed");
    assert!(answer.is_empty(), "it is not accepted: {answer:?}");
    assert_eq!(b.transport.incarnations().of(NodeId(1)), Some(11));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transport_that_was_stopped_dials_nobody() {
    let (a, b) = two().await;
    a.transport.stop();
    a.transport.suggest(NodeId(2), b.address);
    a.dial(&[(2, b.address)]);
    assert!(a.transport.peers.map.load().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_reached_who_is_not_a_peer_or_not_there() {
    let a = Node::start(options(1)).await;
    assert_eq!(a.transport.send(NodeId(2), Lane::Raft, b"?"), Err(SendError::Down));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    a.dial(&[(2, nobody)]);
    assert_eq!(a.transport.send(NodeId(2), Lane::Raft, b"?"), Err(SendError::Down));
    assert_eq!(a.transport.statistics()[1].2.frames_dropped, 1);
}
