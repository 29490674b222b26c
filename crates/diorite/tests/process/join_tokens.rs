//! Clusters whose nodes have certificates: a node joins with a token, once, and a certificate stands for the node at its address.

use crate::server::{Server, TIMEOUT, command, fresh_addresses, get, refusal, wait_for};
use crate::tls::{Authority, join_token};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};

/// A first node with certificates that logs everything, and addresses of others.
struct Cluster {
    home: TempDir,
    authority: Authority,
    addresses: Vec<String>,
    first: Server,
}

impl Cluster {
    fn start(addresses: usize) -> Self {
        let (home, authority, addresses) = (tempdir().unwrap(), Authority::new(), fresh_addresses(addresses));
        let certs = authority.node(&addresses[0]);
        let audit = home.path().join("audit").display().to_string();
        let levels = "info,diorite_node=trace,diorite_admin=trace,diorite_rpc=trace";
        let log = Stdio::from(File::create(home.path().join("first.log")).unwrap());
        let more = ["--certs", &certs, "--audit", &audit, "--log-level", levels];
        let first = Server::start_logging(&addresses[0], &home.path().join("0"), &more, log);
        Self { home, authority, addresses, first }
    }

    fn data(&self, node: usize) -> PathBuf {
        self.home.path().join(node.to_string())
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).unwrap_or_default()
    }

    fn token(&self, arguments: &[&str]) -> PathBuf {
        join_token(&self.first.address, self.home.path(), arguments)
    }

    fn admin(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
        command.args(["admin", "--host", &self.first.address, "join-token"]).args(arguments).output().unwrap()
    }

    /// The arguments of a node that joins, with a certificate of its own address.
    fn arguments(&self, node: usize, token: Option<&Path>) -> Vec<String> {
        let directory = self.authority.path().join("nodes").join(&self.addresses[node]);
        if !directory.exists() {
            self.authority.node(&self.addresses[node]);
        }
        let mut arguments = vec!["--certs".to_owned(), directory.display().to_string()];
        arguments.extend(["--join".to_owned(), self.first.address.clone()]);
        arguments.extend(token.iter().flat_map(|path| ["--join-token-file".to_owned(), path.display().to_string()]));
        arguments
    }

    fn refused(&self, node: usize, token: Option<&Path>) -> String {
        let arguments = self.arguments(node, token);
        refusal(&self.addresses[node], &self.data(node), &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn started(&self, node: usize, token: Option<&Path>) -> Server {
        let arguments = self.arguments(node, token);
        Server::start_on(
            &self.addresses[node],
            &self.data(node),
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    }

    fn nodes(&self) -> Vec<Value> {
        serde_json::from_str(&self.first.get("/api/v1/nodes").unwrap()).unwrap()
    }

    /// Starts a node that the cluster must not admit; returns its log once `said` is in it. It is ended then.
    fn kept_out(&self, address: &str, data: &Path, certs: &str, said: &str) -> String {
        let log = data.with_extension("log");
        let more = ["--certs", certs, "--join", &self.first.address, "--log-level", "info,diorite_rpc=debug"];
        let mut node = command(address, data, &more).stderr(File::create(&log).unwrap()).spawn().unwrap();
        let read = || std::fs::read_to_string(&log).unwrap();
        wait_for(said, || read().contains(said) || node.try_wait().unwrap().is_some());
        let _ = node.kill();
        node.wait().unwrap();
        assert!(read().contains(said), "{}", read());
        read()
    }
}

/// A file with another text than that of a token.
fn changed(token: &Path, change: impl Fn(&str) -> String) -> PathBuf {
    let text = std::fs::read_to_string(token).unwrap();
    let path = token.with_extension("changed");
    std::fs::write(&path, change(text.trim())).unwrap();
    path
}

fn with_another_id(text: &str) -> String {
    format!("{}.{}", "0f".repeat(8), text.split_once('.').unwrap().1)
}

fn with_other_end(text: &str) -> String {
    let end = if text.ends_with('0') { '1' } else { '0' };
    format!("{}{end}", &text[..text.len() - 1])
}

#[test]
fn a_node_joins_with_a_valid_token_once_and_comes_back_without_one() {
    const INVALID: &str = "the join token is not valid";
    let cluster = Cluster::start(6);
    let said = cluster.refused(1, None);
    assert!(
        said.contains("a node joins this cluster with a join token") && said.contains("--join-token-file"),
        "{said}"
    );
    let token = cluster.token(&[]);
    let said = cluster.refused(1, Some(&changed(&token, |_| "sesame".to_owned())));
    assert!(said.contains("there is no join token in it") && !said.contains("sesame"), "{said}");
    // From other addresses, so that the log has a line for each of them.
    let said = cluster.refused(2, Some(&changed(&token, with_other_end)));
    assert!(said.contains(INVALID), "{said}");
    let said = cluster.refused(3, Some(&changed(&token, with_another_id)));
    assert!(said.contains(INVALID), "{said}");
    let short = cluster.token(&["--expires", "1s"]);
    std::thread::sleep(Duration::from_millis(1_500));
    let said = cluster.refused(4, Some(&short));
    assert!(said.contains(INVALID), "{said}");
    let revoked = cluster.token(&["--expires", "2h", "--nodes", "7"]);
    let text = std::fs::read_to_string(&revoked).unwrap();
    let id = text.split('.').next().unwrap();
    let listed: Vec<Value> = serde_json::from_slice(&cluster.admin(&["list", "--json"]).stdout).unwrap();
    assert!(listed.iter().any(|token| token["id"] == id && token["nodes"] == 7), "{listed:?}");
    assert!(String::from_utf8(cluster.admin(&["list"]).stdout).unwrap().contains(id));
    assert!(cluster.admin(&["revoke", text.trim()]).status.success());
    let again = cluster.admin(&["revoke", id]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("there is no join token"), "{again:?}");
    let said = cluster.refused(5, Some(&revoked));
    assert!(said.contains(INVALID), "{said}");
    let log = cluster.file("first.log");
    for reason in [
        "it has shown no join token",
        "the secret that was shown is not that of join token",
        "has expired",
        "there is no join token",
    ] {
        assert!(log.contains(reason), "the member's log says: {reason}: {log}");
    }
    assert_eq!(cluster.nodes().len(), 1);

    let second = cluster.started(1, Some(&token));
    assert_eq!(cluster.nodes().len(), 2);
    let said = cluster.refused(2, Some(&token));
    assert!(said.contains(INVALID), "a second time: {said}");
    assert!(second.stop().success());
    let second = cluster.started(1, None);
    assert_eq!(cluster.nodes().len(), 2);

    assert_written_nowhere(&cluster, &second, &[token, short, revoked]);
}

/// The secrets of tokens are in no log, page, metric, answer or audit entry, and in no command line.
fn assert_written_nowhere(cluster: &Cluster, second: &Server, tokens: &[PathBuf]) {
    let (audit, log) = (cluster.file("audit"), cluster.file("first.log"));
    assert!(audit.contains("POST /api/v1/join-tokens") && audit.contains("/revoke"), "{audit}");
    let mut everything = vec![("the audit log", audit), ("the log", log)];
    for path in [
        "/",
        "/nodes",
        "/config",
        "/metrics",
        "/logs?level=trace&limit=100000",
        "/queries",
        "/api/v1/config",
        "/api/v1/join-tokens",
        "/api/v1/logs?level=trace&limit=100000",
        "/api/v1/nodes",
        "/api/v1/status",
        "/api/v1/queries",
    ] {
        for server in [&cluster.first, second] {
            everything.push((path, server.get(path).unwrap()));
        }
    }
    for server in [&cluster.first, second] {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", server.process_id())).unwrap();
        everything.push(("the command line", String::from_utf8_lossy(&arguments).into_owned()));
    }
    for token in tokens {
        let text = std::fs::read_to_string(token).unwrap();
        let secret = text.trim().split('.').nth(1).unwrap();
        for (place, content) in &everything {
            assert!(!content.contains(&secret[..16]) && !content.contains(&secret[48..]), "{place} has a secret");
        }
        // Nor do the files of a node.
        let found = Command::new("grep").args(["-rlF", &secret[8..40]]).arg(cluster.data(0)).output().unwrap();
        assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
    }
}

#[test]
fn of_two_nodes_that_use_a_token_for_one_node_at_once_one_joins() {
    let cluster = Cluster::start(3);
    let token = cluster.token(&[]);
    let mut asking: Vec<_> = [1, 2]
        .map(|node| {
            let arguments = cluster.arguments(node, Some(&token));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut node = command(&cluster.addresses[node], &cluster.data(node), &arguments);
            node.stderr(Stdio::piped()).spawn().unwrap()
        })
        .into();
    let start = Instant::now();
    let refused = loop {
        if let Some(at) = asking.iter_mut().position(|node| node.try_wait().unwrap().is_some()) {
            break at;
        }
        assert!(start.elapsed() < TIMEOUT, "neither is refused");
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = asking.remove(refused).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("the join token is not valid"), "{said}");
    let other = &cluster.addresses[2 - refused];
    wait_for("the other one serves", || get(other, "/health/ready").is_some());
    assert_eq!(cluster.nodes().len(), 2);
    asking[0].kill().unwrap();
    asking[0].wait().unwrap();
}

#[test]
fn a_host_id_moves_to_another_address_only_with_a_certificate_of_both() {
    const NOT_COVERED: &str = "at an address that the certificate of this node does not cover";
    let cluster = Cluster::start(4);
    let token = cluster.token(&["--nodes", "9"]);
    let second = cluster.started(1, Some(&token));
    assert!(second.stop().success());
    let registered =
        |cluster: &Cluster| cluster.nodes().iter().map(|node| node["cql_address"].clone()).collect::<Vec<_>>();
    let before = registered(&cluster);
    let host = cluster.nodes()[1]["host_id"].as_str().unwrap().to_owned();

    // Another node, with a certificate of its own and a valid token, names the host id as it asks to join.
    std::fs::create_dir_all(cluster.data(2)).unwrap();
    std::fs::write(cluster.data(2).join("JOINING"), &host).unwrap();
    let said = cluster.refused(2, Some(&token));
    assert!(said.contains(NOT_COVERED) && !said.contains(&cluster.addresses[1]), "{said}");
    assert_eq!(registered(&cluster), before);

    // The member itself, or whoever has a copy of its directory, at another address.
    let certs = cluster.authority.node(&cluster.addresses[3]);
    cluster.kept_out(&cluster.addresses[3], &cluster.data(1), &certs, NOT_COVERED);
    assert_eq!(registered(&cluster), before);
    cluster.authority.certs(&["node", &cluster.addresses[3], &cluster.addresses[1], "--overwrite"]);
    let arguments = cluster.arguments(3, None);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let moved = Server::start_on(&cluster.addresses[3], &cluster.data(1), &arguments);
    wait_for("its new address is registered", || registered(&cluster) != before);
    assert_eq!((cluster.nodes().len(), cluster.nodes()[1]["host_id"].as_str()), (2, Some(host.as_str())));
    assert!(cluster.nodes()[1]["cql_address"].as_str().unwrap().starts_with(&cluster.addresses[3]));
    assert!(moved.stop().success());
}

#[test]
fn a_certificate_alone_makes_no_member() {
    let cluster = Cluster::start(3);
    let token = cluster.token(&[]);
    assert!(cluster.started(1, Some(&token)).stop().success());
    // A copy of a member's directory that claims to be a node which has joined since.
    let claimed = cluster.data(2);
    assert!(Command::new("cp").arg("-a").args([cluster.data(1), claimed.clone()]).status().unwrap().success());
    let marker = claimed.join("DIORITE");
    let mut identity: Value = serde_json::from_slice(&std::fs::read(&marker).unwrap()).unwrap();
    identity["node"] = 9.into();
    identity["host"] = "00000000-0000-4000-8000-000000000009".into();
    std::fs::write(&marker, identity.to_string()).unwrap();
    let certs = cluster.authority.node(&cluster.addresses[2]);
    let said = cluster.kept_out(&cluster.addresses[2], &claimed, &certs, "it does not know node n9 yet");
    assert!(!said.contains("connected node=n1"), "{said}");
    assert_eq!(cluster.nodes().len(), 2);
}

/// The node that leads the catalog, as a node says.
fn leader(at: &Server) -> Option<u64> {
    let status: Value = serde_json::from_str(&at.get("/api/v1/status")?).ok()?;
    status["leader"].as_u64()
}

/// Nodes 1 to 4, of which node 3 has been replaced by node 4 while it was down, and node 4 leads the catalog.
struct Replaced {
    home: TempDir,
    authority: Authority,
    addresses: Vec<String>,
    nodes: [Option<Server>; 4],
}

impl Replaced {
    fn start() -> Self {
        let (home, authority, addresses) = (tempdir().unwrap(), Authority::new(), fresh_addresses(4));
        addresses.iter().for_each(|address| drop(authority.node(address)));
        let mut cluster = Self { home, authority, addresses, nodes: [const { None }; 4] };
        cluster.begin(0, None);
        let token = join_token(&cluster.addresses[0], cluster.home.path(), &["--nodes", "3"]);
        cluster.begin(1, Some(&token));
        cluster.begin(2, Some(&token));
        cluster.end(2);
        let replace = || {
            let mut admin = Command::new(env!("CARGO_BIN_EXE_diorite"));
            admin.args(["admin", "--host", &cluster.addresses[0], "replace", "3"]).output().unwrap().status.success()
        };
        wait_for("node 3 is replaced", replace);
        cluster.begin(3, Some(&token));
        cluster.let_the_fourth_lead();
        cluster
    }

    fn begin(&mut self, node: usize, token: Option<&Path>) {
        let address = &self.addresses[node];
        let certs = self.authority.path().join("nodes").join(address).display().to_string();
        let token = token.map(|path| path.display().to_string());
        let mut more = vec!["--certs", &certs];
        more.extend(if node == 0 { &["--rf", "3"] } else { &[][..] });
        if let Some(token) = &token {
            more.extend(["--join", &self.addresses[0], "--join-token-file", token]);
        }
        self.nodes[node] = Some(Server::start_on(address, &self.home.path().join(node.to_string()), &more));
    }

    fn end(&mut self, node: usize) {
        assert!(self.nodes[node].take().unwrap().stop().success());
    }

    /// Ends whoever leads until the fourth does, which may lose against the other one any number of times; of the first
    /// two, one stays ended.
    fn let_the_fourth_lead(&mut self) {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            wait_for("somebody leads", || leader(self.nodes[3].as_ref().unwrap()).is_some());
            let leading = leader(self.nodes[3].as_ref().unwrap());
            let missing = self.nodes[..2].iter().position(Option::is_none);
            match (leading, missing) {
                (Some(4), Some(_)) => return,
                (Some(4), None) => self.end(0),
                (Some(_), Some(missing)) => self.begin(missing, None),
                (Some(leading), None) => self.end(leading as usize - 1),
                (None, _) => {}
            }
        }
        panic!("node 4 does not lead");
    }
}

#[test]
fn a_member_that_was_away_admits_a_leader_that_has_joined_since() {
    let mut cluster = Replaced::start();
    // It was started with no `--join`: it asks the one member that it knows and that is up.
    cluster.begin(2, None);
    let third = cluster.nodes[2].as_ref().unwrap();
    wait_for("its copy of the catalog has the fourth node", || {
        let peers = crate::client::Client::connect(&third.address)
            .map(|mut client| client.run("SELECT peer FROM system.peers"));
        peers.is_ok_and(|peers| peers.rows.len() == 3)
    });
}
