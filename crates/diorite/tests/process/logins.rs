//! Logging in, as clients do it that are no drivers: out of order, twice, with wrong passwords, and with a role that changes meanwhile.

use crate::client::Client;
use crate::server::{Server, TIMEOUT, wait_for};
use diorite_cql::protocol::ErrorKind;
use diorite_cql::protocol::client::{ClientRequest, ClientResponse};
use std::io;
use std::time::{Duration, Instant};

/// A node that asks for passwords, and its superuser.
fn guarded(home: &std::path::Path) -> (Server, Client) {
    let server = Server::start(home, &["--auth"]);
    // The first role is made in the background once the node serves.
    wait_for("there is no first role", || Client::log_in(&server.address, "cassandra", "cassandra").is_ok());
    let mut superuser = Client::log_in(&server.address, "cassandra", "cassandra").unwrap();
    superuser.run("ALTER ROLE cassandra WITH PASSWORD = 'changed'");
    superuser.run("CREATE ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true");
    (server, superuser)
}

fn password(user: &str, password: &str) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

fn is_protocol_error(answer: &ClientResponse) -> bool {
    matches!(answer, ClientResponse::Error(error) if error.kind == ErrorKind::Protocol)
}

fn is_wrong_password(answer: &ClientResponse) -> bool {
    matches!(answer, ClientResponse::Error(error) if error.kind == ErrorKind::Authentication)
}

#[test]
fn a_password_is_given_once() {
    let home = tempfile::tempdir().unwrap();
    let (server, _superuser) = guarded(home.path());
    let right = password("ann", "sesame");
    let again = ClientRequest::AuthResponse(Some(&right));
    let mut client = Client::log_in(&server.address, "ann", "sesame").unwrap();
    // Another role, too: a connection keeps the one that it logged in as.
    let other = password("cassandra", "changed");
    for request in [&again, &ClientRequest::AuthResponse(Some(&other))] {
        assert!(is_protocol_error(&client.call(request).unwrap()), "after a login");
    }
    assert!(client.query("CREATE ROLE x").unwrap_err().message.contains("User ann"));
    // While the first one is being checked, whatever it is.
    let mut client = Client::guest(&server.address).unwrap();
    let wrong = password("ann", "Sesame");
    client.send(1, &ClientRequest::AuthResponse(Some(&wrong)));
    client.send(2, &again);
    client.flush().unwrap();
    let mut answers = [client.receive().unwrap(), client.receive().unwrap()];
    answers.sort_by_key(|(stream, _)| *stream);
    assert!(is_wrong_password(&answers[0].1) && is_protocol_error(&answers[1].1), "{answers:?}");
    // After that it may try again.
    assert!(matches!(client.call(&again).unwrap(), ClientResponse::AuthSuccess(_)));
    assert!(server.stop().success());
}

#[test]
fn a_wrong_password_takes_its_time_and_there_are_not_many() {
    let home = tempfile::tempdir().unwrap();
    let (server, _superuser) = guarded(home.path());
    // One that was right within the last minute is not held back.
    let remembered = Instant::now();
    assert!(Client::log_in(&server.address, "cassandra", "changed").is_ok());
    let begun = Instant::now();
    let mut client = Client::guest(&server.address).unwrap();
    let wrong = password("ann", "Sesame");
    assert!(is_wrong_password(&client.call(&ClientRequest::AuthResponse(Some(&wrong))).unwrap()));
    assert!(begun.elapsed() >= Duration::from_millis(500));
    // Many at once, each on a connection of its own.
    let mut guests: Vec<Client> = (0..40).map(|_| Client::guest(&server.address).unwrap()).collect();
    for (number, guest) in guests.iter_mut().enumerate() {
        let guess = password("ann", &number.to_string());
        guest.send(0, &ClientRequest::AuthResponse(Some(&guess)));
        guest.flush().unwrap();
    }
    let answers: Vec<ClientResponse> = guests.iter_mut().map(|guest| guest.receive().unwrap().1).collect();
    let wrong = answers.iter().filter(|answer| is_wrong_password(answer)).count();
    // Sixteen, those that were being checked beside them, and one more every two seconds.
    let most = 24 + (begun.elapsed().as_secs() / 2) as usize;
    assert!((8..=most).contains(&wrong), "{wrong} of 40 were checked, at most {most} may be");
    let again = Client::log_in(&server.address, "cassandra", "changed");
    assert!(again.is_ok() || remembered.elapsed() >= Duration::from_secs(60), "it is held back");
    let metrics = server.get("/metrics").unwrap();
    let counted = |outcome: &str| {
        let name = format!("diorite_logins_total{{outcome=\"{outcome}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{metrics}"));
        line.parse::<usize>().unwrap()
    };
    assert!(counted("wrong") > wrong && counted("busy") >= 40 - wrong && counted("accepted") >= 2);
    assert!(server.stop().success());
}

/// The connection of `ann` ends after the change.
fn ends(server: &Server, superuser: &mut Client, change: &str) {
    superuser.run("CREATE ROLE IF NOT EXISTS ann");
    superuser.run(
        "ALTER ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true AND ACCESS TO ALL DATACENTERS AND ACCESS FROM ALL CIDRS",
    );
    let mut client = Client::log_in(&server.address, "ann", "sesame").unwrap();
    client.run("SELECT key FROM system.local");
    superuser.run(change);
    let changed = Instant::now();
    let ended = loop {
        match client.try_query("SELECT key FROM system.local") {
            Err(error) => break error.kind(),
            Ok(_) => assert!(changed.elapsed() < TIMEOUT, "after {change}"),
        }
    };
    assert!(matches!(ended, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe));
    assert!(Client::log_in(&server.address, "ann", "sesame").is_err(), "after {change}");
}

#[test]
fn connections_end_when_their_role_may_not_connect_any_more() {
    let home = tempfile::tempdir().unwrap();
    let (server, mut superuser) = guarded(home.path());
    for change in [
        "DROP ROLE ann",
        "ALTER ROLE ann WITH LOGIN = false",
        "ALTER ROLE ann WITH ACCESS FROM CIDRS {'10.0.0.0/8', '::/0'}",
    ] {
        ends(&server, &mut superuser, change);
    }
    superuser.run("ALTER ROLE ann WITH ACCESS FROM CIDRS {'127.0.0.0/8'}");
    superuser.run("ALTER ROLE ann WITH ACCESS TO DATACENTERS {'datacenter1'}");
    let mut client = Client::log_in(&server.address, "ann", "sesame").unwrap();
    // A new password is for new connections, as in Cassandra.
    superuser.run("ALTER ROLE ann WITH PASSWORD = 'other'");
    assert!(Client::log_in(&server.address, "ann", "sesame").is_err());
    client.run("SELECT key FROM system.local");
    // What a superuser may no longer do it may not from the next statement on.
    superuser.run("ALTER ROLE ann WITH SUPERUSER = true");
    client.run("CREATE ROLE bob");
    superuser.run("ALTER ROLE ann WITH SUPERUSER = false");
    assert!(client.query("CREATE ROLE cay").unwrap_err().message.contains("no CREATE permission"));
    assert!(client.query("ALTER ROLE ann WITH ACCESS FROM ALL CIDRS").unwrap_err().message.contains("Only superusers"));
    assert!(server.stop().success());
}

/// Whoever logs in while the role is dropped does not stay, whichever comes first.
#[test]
fn a_login_during_a_change_leaves_no_connection_behind() {
    let home = tempfile::tempdir().unwrap();
    let (server, mut superuser) = guarded(home.path());
    for round in 0..10 {
        superuser.run(&format!("CREATE ROLE r{round} WITH PASSWORD = 'sesame' AND LOGIN = true"));
        let mut guests: Vec<Client> = (0..4).map(|_| Client::guest(&server.address).unwrap()).collect();
        let name = format!("r{round}");
        let right = password(&name, "sesame");
        for guest in &mut guests {
            guest.send(0, &ClientRequest::AuthResponse(Some(&right)));
            guest.flush().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10 * round));
        superuser.run(&format!("DROP ROLE {name}"));
        let dropped = Instant::now();
        for mut guest in guests {
            if !matches!(guest.receive(), Ok((_, ClientResponse::AuthSuccess(_)))) {
                continue;
            }
            while guest.try_query("SELECT key FROM system.local").is_ok() {
                assert!(dropped.elapsed() < TIMEOUT, "in round {round}");
            }
        }
    }
    assert!(server.stop().success());
}
