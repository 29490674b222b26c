//! Every acknowledged write is there after `kill -9` at any moment.

use crate::client::{Client, count, make_table};
use crate::server::{Server, fresh_address};
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::protocol::Value;
use diorite_cql::protocol::client::ClientResponse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KILLS: u64 = 22;
const WRITERS: u64 = 3;
const IN_FLIGHT: u64 = 48;

/// What one writer knows.
#[derive(Default)]
struct Progress {
    /// Writes `0..acknowledged` have been answered.
    acknowledged: AtomicU64,
    /// Writes `0..sent` may be there.
    sent: AtomicU64,
}

fn key(writer: u64, n: u64) -> String {
    format!("{writer}-{n}")
}

fn value(writer: u64, n: u64) -> Vec<u8> {
    let mut value = n.to_be_bytes().to_vec();
    value.resize(100 + (n % 200) as usize, writer as u8);
    value
}

/// Writes in order, many in flight, until the server is gone. Answers may come in any order; progress counts the prefix that is complete.
fn write_until_killed(address: &str, writer: u64, progress: &Progress, killed: &AtomicBool) {
    let connected = Client::connect(address).and_then(|mut client| {
        let insert = client.try_prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)")?;
        Ok((client, insert))
    });
    let Ok((mut client, insert)) = connected else {
        // On a busy machine the kill may come before this thread has got so far.
        assert!(killed.load(Ordering::Acquire), "no connection before the server was killed");
        return;
    };
    let first = progress.sent.load(Ordering::Acquire);
    let mut answered = vec![false; 0];
    let mut acknowledged = first;
    let mut next = first;
    loop {
        while next - acknowledged < IN_FLIGHT {
            let (key, value) = (key(writer, next), value(writer, next));
            client.execute(next as i16 & 0x7FFF, &insert.id, &[Value::Set(key.as_bytes()), Value::Set(&value)]);
            answered.push(false);
            next += 1;
        }
        progress.sent.store(next, Ordering::Release);
        if client.flush().is_err() {
            break;
        }
        let Ok((stream, response)) = client.receive() else { break };
        assert_eq!(response, ClientResponse::Void, "writer {writer}");
        let n = (acknowledged..next).find(|n| *n as i16 & 0x7FFF == stream).expect("an answer to what was asked");
        answered[(n - first) as usize] = true;
        while acknowledged < next && answered[(acknowledged - first) as usize] {
            acknowledged += 1;
        }
        progress.acknowledged.store(acknowledged, Ordering::Release);
    }
    assert!(killed.load(Ordering::Acquire), "the connection ended before the server was killed");
    // What was in flight is unknown; the next round writes it again, so that the prefix stays the measure.
    progress.sent.store(acknowledged, Ordering::Release);
}

fn check(address: &str, writer: u64, from: u64, to: u64) {
    let mut client = Client::connect(address).unwrap();
    let select = client.prepare("SELECT v FROM ks.t WHERE k = ?");
    for batch in (from..to).collect::<Vec<_>>().chunks(500) {
        for n in batch {
            let key = key(writer, *n);
            client.execute((n - batch[0]) as i16, &select.id, &[Value::Set(key.as_bytes())]);
        }
        client.flush().unwrap();
        for _ in batch {
            let (stream, response) = client.receive().unwrap();
            let n = batch[0] + stream as u64;
            let ClientResponse::Rows(rows) = response else { panic!("{response:?}") };
            let found = rows.rows.first().and_then(|row| row[0].as_deref());
            assert_eq!(found, Some(value(writer, n).as_slice()), "acknowledged write {} is not there", key(writer, n));
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed_again_and_again() {
    let seed = std::env::var("DIORITE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SplitMix64::from_entropy().next_u64());
    println!("seed {seed} (DIORITE_SEED repeats it)");
    let mut random = SplitMix64::new(seed);
    let home = tempfile::tempdir().unwrap();
    let progress: Arc<Vec<Progress>> = Arc::new((0..WRITERS).map(|_| Progress::default()).collect());
    let mut checked = vec![0; WRITERS as usize];
    // Small limits, so that kills also hit flushes, compactions and log truncation.
    let limits = ["--replay-limit", "1MiB", "--memory-limit", "128MiB"];
    for kill in 0..KILLS {
        let address = fresh_address();
        let server = Server::start_on(&address, home.path(), &limits);
        make_table(&mut Client::connect(&address).unwrap());
        for writer in 0..WRITERS {
            let acknowledged = progress[writer as usize].acknowledged.load(Ordering::Acquire);
            check(&address, writer, checked[writer as usize], acknowledged);
            checked[writer as usize] = acknowledged;
        }
        let killed = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (progress, killed, address) = (Arc::clone(&progress), Arc::clone(&killed), address.clone());
                std::thread::spawn(move || write_until_killed(&address, writer, &progress[writer as usize], &killed))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50 + random.below(400)));
        killed.store(true, Ordering::Release);
        server.kill();
        for writer in writers {
            writer.join().unwrap();
        }
        let written: u64 = progress.iter().map(|progress| progress.acknowledged.load(Ordering::Acquire)).sum();
        println!("kill {kill}: {written} acknowledged so far");
    }
    let server = Server::start(home.path(), &limits);
    let mut total = 0;
    for writer in 0..WRITERS {
        let acknowledged = progress[writer as usize].acknowledged.load(Ordering::Acquire);
        check(&server.address, writer, 0, acknowledged);
        total += acknowledged as i64;
    }
    assert!(total > 0, "something was written");
    let counted = count(&mut Client::connect(&server.address).unwrap(), "ks.t");
    assert!(counted >= total, "{counted} rows, {total} acknowledged");
    assert!(server.stop().success());
}
