//! Clients that send what is not CQL, too much of it, too slowly, or nothing at all: the server answers or closes, and goes on.

use crate::client::{Client, make_table};
use crate::server::{Server, TIMEOUT};
use diorite_base::random::{Random, SplitMix64};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((server.address.as_str(), 9042)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn still_serves(server: &mut Server) {
    assert!(server.is_running());
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    client.run("INSERT INTO ks.t (k, v) VALUES ('a', 0x01)");
    assert_eq!(client.run("SELECT * FROM ks.t WHERE k = 'a'").rows.len(), 1);
}

/// What is not a frame is answered with an ERROR or a close.
#[test]
fn noise_unknown_opcodes_and_impossible_lengths() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[]);
    let mut random = SplitMix64::new(7);
    for round in 0..200u64 {
        let mut stream = connect(&server);
        let mut noise: Vec<u8> = (0..random.below(300) + 9).map(|_| random.next_u64() as u8).collect();
        match round % 4 {
            0 => {}
            // A frame of a version we speak with a random opcode and a length that is there.
            1 => {
                let length = (noise.len() - 9) as u32;
                noise[0] = 3 + (round % 3) as u8;
                noise[5..9].copy_from_slice(&length.to_be_bytes());
            }
            // A frame that claims 2 GB.
            2 => {
                noise[..5].copy_from_slice(&[4, 0, 0, 1, 7]);
                noise[5..9].copy_from_slice(&0x7FFF_FFFFu32.to_be_bytes());
            }
            // HTTP.
            _ => noise = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        }
        stream.write_all(&noise).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        // A reset is an answer, too.
        let _ = stream.read_to_end(&mut answer);
    }
    still_serves(&mut server);
}

#[test]
fn requests_before_startup_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[]);
    let mut stream = connect(&server);
    let body = b"\0\0\0\x0bSELECT nope\0\x01\0";
    let mut frame = vec![4, 0, 0, 5, 7];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame).unwrap();
    let mut header = [0; 13];
    stream.read_exact(&mut header).unwrap();
    assert_eq!((header[0], header[3], header[4]), (0x84, 5, 0), "an ERROR on stream 5: {header:?}");
    assert_eq!(header[9..], [0, 0, 0, 0x0A], "a protocol error");
    still_serves(&mut server);
}

/// A peer that stops in the middle of a frame is closed after a bounded wait.
#[test]
fn a_slow_sender_is_closed() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[]);
    let mut stream = connect(&server);
    stream.write_all(&[4, 0, 0, 0]).unwrap();
    let mut answer = Vec::new();
    let closed = stream.read_to_end(&mut answer);
    assert!(closed.is_ok() || closed.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    still_serves(&mut server);
}

/// A peer that sends a byte now and then is not waited for any longer.
#[test]
fn a_dripping_sender_is_closed() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[]);
    let mut stream = connect(&server);
    let mut frame = startup();
    frame.extend_from_slice(&[4, 0, 0, 1, 7, 0, 0, 1, 0]);
    stream.write_all(&frame).unwrap();
    // READY is read first, however long it takes; then the rest of the message drips for longer than the server's timeout.
    let mut answer = [0; 64];
    assert!(stream.read(&mut answer).unwrap() >= 9);
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let closed = (0..90).any(|_| {
        let sent = stream.write_all(&[0]);
        let is_open = matches!(stream.read(&mut answer), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        sent.is_err() || !is_open
    });
    assert!(closed, "a byte a second is not progress");
    still_serves(&mut server);
}

#[test]
fn five_thousand_idle_connections_cost_little_and_block_nobody() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[]);
    still_serves(&mut server);
    let before = server.resident_bytes();
    let connections: Vec<Client> = (0..5_000).map(|_| Client::connect(&server.address).unwrap()).collect();
    still_serves(&mut server);
    let grown = server.resident_bytes().saturating_sub(before);
    println!("{} idle connections: {} KB each", connections.len(), grown / 5_000 / 1024);
    assert!(grown < 5_000 * 24 * 1024, "{} bytes a connection", grown / 5_000);
    drop(connections);
    still_serves(&mut server);
}

/// A client that sends and never reads is throttled; what it costs stays bounded.
#[test]
fn a_client_that_does_not_read_does_not_fill_memory() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[]);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    client.run(&format!("INSERT INTO ks.t (k, v) VALUES ('large', 0x{})", "ab".repeat(100_000)));
    let select = client.prepare("SELECT v FROM ks.t WHERE k = 'large'");
    let before = server.resident_bytes();
    let mut deaf = TcpStream::connect((server.address.as_str(), 9042)).unwrap();
    deaf.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    deaf.write_all(&startup()).unwrap();
    let mut request = vec![4, 0, 0, 1, 0x0A, 0, 0, 0, 0];
    request.extend_from_slice(&(select.id.len() as u16).to_be_bytes());
    request.extend_from_slice(&select.id);
    request.extend_from_slice(&[0, 4, 0]);
    let length = (request.len() - 9) as u32;
    request[5..9].copy_from_slice(&length.to_be_bytes());
    // 100,000 requests for 100 KB each: 10 GB if they were all answered into memory.
    for _ in 0..100_000 {
        if deaf.write_all(&request).is_err() {
            break;
        }
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MB for one client that does not read", grown >> 20);
    still_serves(&mut server);
}

fn startup() -> Vec<u8> {
    let body = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
    let mut frame = vec![4, 0, 0, 0, 1];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}
