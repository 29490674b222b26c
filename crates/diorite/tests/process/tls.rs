//! Clusters whose nodes have certificates, and nodes that must not start or join without them.

use crate::client::{Client, count};
use crate::server::{Server, command, fresh_address, fresh_addresses, refusal, wait_for};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::{TempDir, tempdir};

/// A directory with an authority, and what `diorite certs` does in it.
pub struct Authority(TempDir);

impl Authority {
    pub fn new() -> Self {
        let authority = Self(tempdir().unwrap());
        authority.certs(&["init"]);
        authority
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("certs")
    }

    pub fn certs(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
        let output = command.arg("certs").args(arguments).arg("--dir").arg(self.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The directory of a node.
    pub fn node(&self, address: &str) -> String {
        self.certs(&["node", address]);
        self.path().join("nodes").join(address).display().to_string()
    }
}

/// A file with a join token that `diorite admin join-token` makes at a node.
pub fn join_token(address: &str, home: &Path, arguments: &[&str]) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
    let output = command.args(["admin", "join-token", "--host", address]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = home.join(format!("token-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&path, output.stdout).unwrap();
    path
}

/// Three nodes with certificates, and their logs.
struct Cluster {
    home: TempDir,
    authority: Authority,
    addresses: Vec<String>,
    nodes: Vec<Server>,
}

impl Cluster {
    fn start() -> Self {
        let (home, authority, addresses) = (tempdir().unwrap(), Authority::new(), fresh_addresses(3));
        addresses.iter().for_each(|address| drop(authority.node(address)));
        let mut cluster = Self { home, authority, addresses, nodes: Vec::new() };
        let first = cluster.start_node(0);
        let token = join_token(&first.address, cluster.home.path(), &["--nodes", "2"]);
        cluster.nodes.push(first);
        for node in 1..3 {
            let started = cluster.start_with(node, &["--join-token-file", token.to_str().unwrap()]);
            cluster.nodes.push(started);
        }
        cluster
    }

    fn log(&self, node: usize) -> PathBuf {
        self.home.path().join(format!("{node}.log"))
    }

    fn start_node(&self, node: usize) -> Server {
        self.start_with(node, &[])
    }

    fn start_with(&self, node: usize, further: &[&str]) -> Server {
        let certs = self.authority.path().join("nodes").join(&self.addresses[node]).display().to_string();
        let mut more = vec!["--certs", &certs, "--log-level", "info"];
        more.extend(if node == 0 { ["--rf", "3"] } else { ["--join", &self.addresses[0]] });
        more.extend(further);
        let log = Stdio::from(File::options().create(true).append(true).open(self.log(node)).unwrap());
        Server::start_logging(&self.addresses[node], &self.home.path().join(node.to_string()), &more, log)
    }

    fn says(&self, node: usize, what: &str) -> bool {
        std::fs::read_to_string(self.log(node)).unwrap().contains(what)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.nodes[1].get("/api/v1/status").unwrap()).unwrap()
    }

    fn reload(&self) {
        for (node, server) in self.nodes.iter().enumerate() {
            let before = std::fs::read_to_string(self.log(node)).unwrap().matches("were read again").count();
            let id = server.process_id().to_string();
            assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
            wait_for("the certificates are read again", || {
                std::fs::read_to_string(self.log(node)).unwrap().matches("were read again").count() > before
            });
        }
    }
}

fn insert(client: &mut Client, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let statement = format!("INSERT INTO ks.t (k, v) VALUES ({number}, 'x')");
        wait_for("rows are taken", || client.query(&statement).is_ok());
    }
}

fn make_table(client: &mut Client) {
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.run("CREATE TABLE ks.t (k bigint PRIMARY KEY, v text) WITH tablets = 6");
}

/// Sends bytes that begin as TLS does not, and returns the answer.
fn said_to_a_stranger(address: &str, bytes: &[u8]) -> Vec<u8> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect((address, 7_100)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // The end may come as a reset.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn nodes_with_certificates_serve_fail_over_and_take_new_certificates() {
    let mut cluster = Cluster::start();
    let mut client = Client::connect(&cluster.addresses[1]).unwrap();
    make_table(&mut client);
    insert(&mut client, 0..50);
    wait_for("all nodes have reported", || cluster.status()["traffic"] == "encrypted");

    // The guard has the node's certificates.
    cluster.nodes.remove(0).kill();
    wait_for("the others are notified", || (1..3).all(|node| cluster.says(node, "the guard of a node reports")));
    insert(&mut client, 50..100);
    let restarted = cluster.start_node(0);
    cluster.nodes.insert(0, restarted);

    // The authority is replaced while all nodes run.
    cluster.authority.certs(&["authority", "add"]);
    cluster.reload();
    cluster.authority.certs(&["renew"]);
    cluster.reload();
    cluster.authority.certs(&["authority", "remove"]);
    cluster.reload();
    insert(&mut client, 100..120);
    // Its connections are new, and made with the new certificates.
    cluster.nodes.remove(0).kill();
    let restarted = cluster.start_node(0);
    cluster.nodes.insert(0, restarted);
    insert(&mut Client::connect(&cluster.addresses[0]).unwrap(), 120..130);
    assert_eq!(count(&mut Client::connect(&cluster.addresses[0]).unwrap(), "ks.t"), 130);

    // Files that cannot be used change nothing.
    let certificate = cluster.authority.path().join("nodes").join(&cluster.addresses[2]).join("node.pem");
    std::fs::write(certificate, "half of it").unwrap();
    wait_for("the log says so", || cluster.says(2, "the former ones stay in force"));
    insert(&mut client, 130..140);
}

#[test]
fn a_stranger_is_told_nothing_and_a_node_without_a_certificate_does_not_join() {
    let (home, authority, addresses) = (tempdir().unwrap(), Authority::new(), fresh_addresses(3));
    let certs = authority.node(&addresses[0]);
    let one = Server::start_on(&addresses[0], &home.path().join("1"), &["--certs", &certs]);
    for bytes in [&b"DIORITE\0\x02\0\0\0\x10\0\0\0"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\x05hello"] {
        let answer = said_to_a_stranger(&one.address, bytes);
        assert!(answer.is_empty() || (answer[0] == 21 && answer.len() == 7), "an alert of TLS at most: {answer:?}");
    }
    // The node that it asks may be too busy to answer at first: that is another reason.
    let join = |more: &[&str], reason: &str| {
        let more = [&["--log-level", "info", "--join", &addresses[0]], more].concat();
        let mut node = command(&addresses[1], &home.path().join("2"), &more);
        let mut node = node.stdout(log(home.path())).stderr(log(home.path())).spawn().unwrap();
        wait_for("it says why it cannot join", || {
            let said = std::fs::read_to_string(home.path().join("log")).unwrap_or_default();
            said.lines().any(|line| line.contains("cannot join yet") && line.contains(reason))
        });
        node.kill().unwrap();
        node.wait().unwrap();
        std::fs::remove_file(home.path().join("log")).unwrap();
    };
    join(&[], "or the node expects a certificate");
    let other = Authority::new();
    join(&["--certs", &other.node(&addresses[1])], "UnknownIssuer");
    let one_member = |server: &Server| server.get("/api/v1/nodes").unwrap().matches("\"host_id\"").count();
    assert_eq!(one_member(&one), 1);
}

fn log(home: &Path) -> Stdio {
    Stdio::from(File::options().create(true).append(true).open(home.join("log")).unwrap())
}

#[test]
fn a_node_does_not_start_open_beyond_loopback_or_with_a_wrong_certificate() {
    let home = tempdir().unwrap();
    let said = refusal("0.0.0.0", home.path(), &[]);
    assert!(said.contains("diorite certs node ADDRESS") && said.contains("--insecure"), "{said}");
    let said = refusal(&fresh_address(), home.path(), &["--advertise-node-address", "192.0.2.7"]);
    assert!(said.contains("diorite certs node 192.0.2.7"), "{said}");
    let authority = Authority::new();
    let address = fresh_address();
    let certs = authority.node("10.0.0.5");
    let said = refusal(&address, home.path(), &["--certs", &certs]);
    assert!(said.contains("node.pem: it does not cover") && said.contains(&address), "{said}");
    authority.certs(&["client", "app"]);
    let client = authority.path().join("clients/app").display().to_string();
    let said = refusal(&address, home.path(), &["--certs", &client]);
    assert!(said.contains("clients/app/node.pem: No such file"), "{said}");
    let said = refusal(&address, home.path(), &["--certs", &certs, "--insecure"]);
    assert!(said.contains("exclude each other"), "{said}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn open_traffic_is_shown() {
    let home = tempdir().unwrap();
    let server = Server::start(home.path(), &[]);
    let status = |server: &Server| serde_json::from_str::<Value>(&server.get("/api/v1/status").unwrap()).unwrap();
    wait_for("it is shown", || status(&server)["traffic"] == "open, on loopback");
    assert!(status(&server)["warnings"].as_array().unwrap().is_empty());
    assert!(server.get("/").unwrap().contains("open, on loopback"));
    assert!(server.stop().success());
    let server = Server::start(home.path(), &["--insecure"]);
    wait_for("it is shown", || status(&server)["traffic"] == "open, --insecure");
    assert!(status(&server)["warnings"][0].as_str().unwrap().contains("runs with --insecure"));
    assert!(server.get("/").unwrap().contains("runs with --insecure"));
    assert!(server.stop().success());
}
