//! What receivers learn of connections that end or are replaced, and of frames that were not sent.

use super::*;

/// The events of one direction of the lane of requests.
fn events(ear: &Ear, of: &str) -> Vec<&'static str> {
    let connections = ear.connections.lock();
    let of_lane = connections.iter().filter(|(_, lane, what, _)| *lane == Lane::Requests && what.starts_with(of));
    of_lane.map(|(_, _, what, _)| *what).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_learn_that_a_connection_has_ended_before_the_next_one_begins() {
    let (a, b) = two().await;
    // Each connection from the other side makes this one dial, so they have to be there before.
    b.connected(1).await;
    a.dial(&[]);
    until(|| events(&a.ear, "out") == ["out", "out ended"]).await;
    until(|| events(&b.ear, "in") == ["in", "in ended"]).await;
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    until(|| events(&b.ear, "in") == ["in", "in ended", "in"]).await;
    assert_eq!(events(&a.ear, "out"), ["out", "out ended", "out"]);
}

/// The kernel of the other side may not have said that the first connection has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_replaced_has_ended_and_what_it_holds_is_not_received() {
    let b = Node::start(options(2)).await;
    let mut first = TcpStream::connect(b.address).await.unwrap();
    first.write_all(&opening()).await.unwrap();
    let of_lane = || {
        let connections = b.ear.connections.lock();
        connections.iter().filter(|(_, lane, ..)| *lane == Lane::Raft).map(|(_, _, what, _)| *what).collect::<Vec<_>>()
    };
    until(|| of_lane().contains(&"in")).await;
    let mut frame = Vec::new();
    put_frame(&mut frame, b"a request");
    first.write_all(&frame[..10]).await.unwrap();
    let mut second = TcpStream::connect(b.address).await.unwrap();
    second.write_all(&opening()).await.unwrap();
    let incoming = || of_lane().into_iter().filter(|what| what.starts_with("in")).collect::<Vec<_>>();
    until(|| incoming() == ["in", "in ended", "in"]).await;
    // The rest of the frame may be refused by the kernel.
    let _ = first.write_all(&frame[10..]).await;
    second.write_all(&frame).await.unwrap();
    until(|| !b.ear.frames.lock().is_empty()).await;
    assert_eq!(b.ear.frames.lock().len(), 1, "it is received once");
}

fn frame_of(number: u64) -> Vec<u8> {
    // Short enough for the receiver to keep.
    [&number.to_le_bytes()[..], &[7; 900]].concat()
}

fn number_of(frame: &[u8]) -> u64 {
    frame.first_chunk::<8>().map_or(u64::MAX, |number| u64::from_le_bytes(*number))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[allow(clippy::await_holding_lock, reason = "the receiver stays busy until the connection has ended")]
async fn frames_that_were_queued_and_not_sent_are_named_and_do_not_arrive() {
    let buffer_bytes = [1 << 20; Lane::COUNT];
    let a = Node::start(TcpOptions { buffer_bytes, ..options(1) }).await;
    let b = Node::start(options(2)).await;
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    b.connected(1).await;
    let busy = b.ear.busy.lock();
    let mut sent = 0u64;
    // The sockets take some megabytes.
    while a.transport.send(NodeId(2), Lane::Requests, &frame_of(sent)).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "a gigabyte is queued");
    }
    a.dial(&[]);
    until(|| events(&a.ear, "out").ends_with(&["out ended"])).await;
    drop(busy);
    until(|| events(&b.ear, "in").ends_with(&["in ended"])).await;
    let unsent: Vec<u64> = {
        let connections = a.ear.connections.lock();
        connections.iter().flat_map(|(.., unsent)| unsent.iter().map(|frame| number_of(frame))).collect()
    };
    let received: Vec<u64> = b.ear.frames.lock().iter().map(|(.., frame)| number_of(frame)).collect();
    let first = *unsent.first().expect("the buffer was full");
    assert!(unsent.iter().copied().eq(first..sent), "the last ones, in order");
    assert!(received.iter().copied().eq(0..received.len() as u64));
    assert!(received.len() as u64 <= first, "none of those that were not sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_talk_both_ways_and_one_way_can_fail_alone() {
    let (a, b) = two().await;
    b.connected(1).await;
    a.dial(&[]);
    until(|| !a.transport.is_connected(NodeId(2), Lane::Control)).await;
    b.transport.send(NodeId(1), Lane::Control, b"still there").unwrap();
    until(|| a.ear.lengths.lock().len() == 1).await;
    assert!(b.transport.is_connected(NodeId(1), Lane::Control));
}
